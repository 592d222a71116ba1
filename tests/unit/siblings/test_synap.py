"""Synap's subscribers at the workers of one daemon."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pubsubd.broker.turn import Steps
from pubsubd.hub.synap import NAMED, SynapError
from pubsubd.siblings.questions import PATIENCE
from tests.unit.siblings.webs import HubWorker, Workers


class Asking(HubWorker):
    """A worker whose hub asks the others.

    Attributes:
        asked: how often it has.
    """

    def __init__(self, workers: Workers, number: int) -> None:
        super().__init__(workers, number)
        self.asked = 0
        self.hub.elsewhere = self._ask
        self.siblings.questions[NAMED] = self.hub.synap.elsewhere.answer

    def _ask(self, name: bytes, data: bytes) -> Steps[list[bytes]]:
        self.asked += 1
        return list((yield from self.siblings.ask(name, data)).got.values())

    def synap(self, command: str, client: str | None = None, **payload: Any) -> Steps[Any]:
        """Give a command of Synap's over a connection, or over HTTP, and return its answer."""
        connection = None if client is None else self.connections[client]
        answer = self.hub.synap.run(f"pubsub.{command}", payload, connection)
        return answer if isinstance(answer, dict) else (yield from answer)

    @property
    def ids(self) -> dict[str, list[str]]:
        """The subscribers here, and their topics."""
        return {id_: list(one.topics) for id_, one in self.hub.synap.subscribers.items()}


@pytest.fixture
def web() -> Workers:
    """Three workers; ann is at the first, bob at the second, cat at the third."""
    workers = Workers(3, Asking)
    for worker, name in zip(workers.all, ("ann", "bob", "cat"), strict=True):
        worker.join(name)
    return workers


def together(web: Workers, *commands: Steps[Any]) -> list[Any]:
    """Give commands in turn, a step each; return their answers, or the texts of their errors."""
    found: dict[int, Any] = {}
    for _ in range(100):
        for number, steps in enumerate(commands):
            if number not in found:
                try:
                    next(steps)
                except StopIteration as done:
                    found[number] = done.value
                except SynapError as error:
                    found[number] = error.text
        web.settle()
    return [found[number] for number in range(len(commands))]


def one(web: Workers, number: int, command: str, client: str | None = None, **payload: Any) -> Any:
    """Give a command at a worker, and return its answer, or the text of its error."""
    return together(web, web[number].synap(command, client, **payload))[0]


def test_a_connection_takes_over_what_was_subscribed_at_another_worker(web: Workers) -> None:
    one(web, 0, "subscribe", topics=["a", "b.*"], subscriber_id="x")
    found = one(web, 1, "subscribe", "bob", topics=["c"], subscriber_id="x")
    assert (found["topics"], found["subscription_count"]) == (["c"], 3)
    assert [worker.ids for worker in web.all] == [{}, {"x": ["a", "b.*", "c"]}, {}]
    assert not web[0].hub.synap.subscribers.detached_topics
    for topic in ("a", "b.1", "c"):
        one(web, 0, "publish", "ann", topic=topic, payload=topic)
        web[0].hub.flush()
        web.settle()
    assert [heard["topic"] for heard in web[1].hears("bob")] == ["a", "b.1", "c"]


def test_a_name_is_that_of_one_connection(web: Workers) -> None:
    one(web, 0, "subscribe", "ann", topics=["a"], subscriber_id="x")
    error = "Invalid request: Subscriber 'x' is connected elsewhere"
    assert one(web, 1, "subscribe", "bob", topics=["a"], subscriber_id="x") == error
    assert [worker.ids for worker in web.all] == [{"x": ["a"]}, {}, {}]


def test_a_name_is_that_of_one_user(web: Workers) -> None:
    one(web, 0, "subscribe", topics=["a"], subscriber_id="x")
    web[1].connections["bob"].peer.identity = "bob"
    run = web[1].hub.synap.run
    payload = {"topics": ["b"], "subscriber_id": "x"}
    for connection, command in itertools.product(
        (None, web[1].connections["bob"]), ("pubsub.subscribe", "pubsub.unsubscribe")
    ):
        steps = run(command, payload, connection, None, "bob")
        assert not isinstance(steps, dict)
        (found,) = together(web, steps)
        assert found == "Unauthorized: subscriber 'x' is another user's"
    assert [worker.ids for worker in web.all] == [{"x": ["a"]}, {}, {}]


@pytest.mark.parametrize("client", [None, "ann"], ids=["without a connection", "with one"])
def test_what_is_said_over_http_is_carried_out_where_the_subscriber_is(
    web: Workers, client: str | None
) -> None:
    one(web, 0, "subscribe", client, topics=["a"], subscriber_id="x")
    found = one(web, 1, "subscribe", topics=["b", "b", "a"], subscriber_id="x")
    assert found == {"subscriber_id": "x", "topics": ["b", "b", "a"], "subscription_count": 2}
    assert [worker.ids for worker in web.all] == [{"x": ["a", "b"]}, {}, {}]
    found = one(web, 2, "unsubscribe", topics=["b", "z"], subscriber_id="x")
    assert found == {"unsubscribed": 1}
    assert one(web, 1, "unsubscribe", subscriber_id="x") == {"unsubscribed": 1}
    assert one(web, 1, "unsubscribe", subscriber_id="x") == {"unsubscribed": 0}


def test_limits_that_hold_there_are_told(web: Workers) -> None:
    one(web, 0, "subscribe", topics=["a"], subscriber_id="x")
    many = [f"t{number}" for number in range(1_000)]
    error = "Invalid request: over 1000 topics of one subscriber without a connection"
    assert one(web, 1, "subscribe", topics=many, subscriber_id="x") == error


CLIENTS = list(itertools.product((None, "ann"), (None, "bob"), (None, "cat")))


@pytest.mark.parametrize("before", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("clients", CLIENTS, ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_who_comes_to_several_workers_at_the_same_moment_is_one_subscriber(
    web: Workers, before: bool, clients: tuple[str | None, ...], order: tuple[int, ...]
) -> None:
    if before:
        one(web, order[0], "subscribe", topics=["before"], subscriber_id="x")
    found = together(
        web,
        *[
            web[number].synap(
                "subscribe", clients[number], topics=[f"t{number}"], subscriber_id="x"
            )
            for number in order
        ],
    )
    done = {f"t{n}" for n, answer in zip(order, found, strict=True) if isinstance(answer, dict)}
    had = [worker.ids for worker in web.all if worker.ids]
    assert len(had) == 1
    assert set(had[0]["x"]) == done | ({"before"} if before else set())
    assert len(done) >= 3 - max(0, 3 - clients.count(None) - 1)


def test_one_worker_is_not_waited_for_long_nor_asked_about_who_is_here(web: Workers) -> None:
    one(web, 0, "subscribe", topics=["a"], subscriber_id="x")
    one(web, 0, "subscribe", topics=["b"])
    assert web[0].asked == 1
    one(web, 0, "subscribe", topics=["b"], subscriber_id="x")
    one(web, 0, "subscribe", "ann", topics=["b"], subscriber_id="x")
    one(web, 0, "subscribe", "ann", topics=["c"], subscriber_id="x")
    assert web[0].asked == 1
    steps = web[0].synap("subscribe", topics=["a"], subscriber_id="y")
    next(steps)
    next(steps)  # nobody has answered
    web.now += PATIENCE
    web[0].siblings.expire()
    assert together(web, steps)[0]["subscription_count"] == 1
