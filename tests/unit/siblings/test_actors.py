"""Actors of the hub port at the workers of one daemon."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hubs import heaviest, message_a, message_b
from tests.unit.siblings.webs import HubWorker, Workers


@pytest.fixture
def two() -> Workers:
    """Two workers; ann is at the first, bob at the second."""
    workers = Workers(2, HubWorker)
    assert workers[0].register("ann")["type"] == "hub:registered"
    assert workers[1].register("bob")["type"] == "hub:registered"
    workers.settle()
    return workers


def send(to: str, data: Any, me: str = "x/ann", **more: Any) -> dict[str, Any]:
    return message_b("hub:send", {"to": to, "type": "t", "data": data}, me=me, **more)


def test_a_message_reaches_an_actor_of_another_worker_in_order(two):
    two[0].say("ann", *[send("x/bob", number) for number in range(20)])
    two.settle()
    heard = two[1].hears("bob")
    assert [one["payload"] for one in heard] == list(range(20))
    assert {one["from"] for one in heard} == {"x/ann"}


def test_an_address_is_free_at_all_workers_before_its_client_is_told(two):
    held = two[0].connections["ann"].peer.outbox
    assert held.held is None or held.held.over
    two[0].say("ann", message_b("hub:unregister", {"actorAddress": "x/ann"}, me="x/ann"))
    assert held.held is not None
    assert not held.held.over
    two.settle()
    assert held.held.over
    assert [one["type"] for one in two[0].hears("ann")] == ["hub:unregistered"]
    assert two[1].register("ann")["type"] == "hub:registered"


def test_what_was_published_before_a_message_comes_before_it(two):
    two[1].say("bob", message_b("hub:subscribe", {"topic": "news"}, me="x/bob"))
    two.settle()
    two[1].hears("bob")
    publish = message_b("hub:publish", {"topic": "news", "type": "n", "data": 1}, me="x/ann")
    two[0].say("ann", publish, send("x/bob", 2), publish)
    two.settle()
    assert [one["type"] for one in two[1].hears("bob")] == ["n", "t", "n"]


def test_what_has_been_read_together_names_each_of_its_senders(two):
    two[1].say("bob", message_b("hub:subscribe", {"topic": "news"}, me="x/bob"))
    two[0].join_line("eve", "amy")
    two.settle()
    two[1].hears("bob")
    for name in ("eve", "amy", "amy"):
        two[0].say_raw(name, b"pub news 1 x\n")
    _, queue = two[0].links[1]
    stream = b"".join(queue)
    queue.clear()
    two.carry(0, 1, stream)
    eve, amy = (f"tcp/{two[0].lines[name].label}" for name in ("eve", "amy"))
    assert [one["from"] for one in two[1].hears("bob")] == [eve, amy, amy]


def test_what_several_actors_have_published_is_delivered_together(two):
    two[0].register("amy")
    two[1].say("bob", message_b("hub:subscribe", {"topic": "news"}, me="x/bob"))
    two.settle()
    two[1].hears("bob")
    for number in range(9):
        name = ("ann", "amy")[number % 2]
        payload = {"topic": "news", "type": "n", "data": number}
        two[0].say(name, message_b("hub:publish", payload, me=f"x/{name}"))
    _, queue = two[0].links[1]
    stream = b"".join(queue)
    queue.clear()
    pieces = []
    two[1].sends["bob"] = pieces.append
    two.carry(0, 1, stream)
    (piece,) = pieces
    two[1].sends.clear()
    two[1].heard["bob"] += piece
    heard = [(one["from"], one["payload"]) for one in two[1].hears("bob")]
    assert heard == [(f"x/{('ann', 'amy')[number % 2]}", number) for number in range(9)]


FORGED = b'{"type":"n","from":"x/ann","payload":%b}'


@pytest.mark.parametrize("payload", [b"1,", b'1,"payload":2', b"2e999"])
def test_text_that_begins_like_a_message_stays_text_at_another_worker(two, payload):
    two[1].say("bob", message_b("hub:subscribe", {"topic": "news"}, me="x/bob"))
    two.settle()
    two[1].hears("bob")
    data = {"name": "news", "data": (FORGED % payload).decode()}
    forged = message_b(
        "hub:publish", {"topic": "news", "type": "pubsub:message", "data": data}, me="x/ann"
    )
    honest = message_b("hub:publish", {"topic": "news", "type": "n", "data": 1}, me="x/ann")
    two[0].say("ann", honest, forged, honest)
    two.settle()
    heard = two[1].hears("bob")
    assert [one["payload"] for one in heard] == [1, data, 1]


def test_an_acknowledgement_counts_the_subscribers_of_all_workers(two):
    publish = message_b("hub:publish", {"topic": "news", "type": "n", "data": 1}, me="x/ann")

    def counted() -> int:
        two.settle()
        two[0].say("ann", publish)
        (ack,) = [one for one in two[0].hears("ann") if one["type"] == "hub:delivery_ack"]
        assert ack["payload"]["subscriberCount"] == ack["payload"]["deliveredCount"]
        return ack["payload"]["deliveredCount"]

    for number in range(5):
        two[1].join(f"s{number}")
        two[1].say(f"s{number}", message_b("hub:subscribe", {"topic": "news"}))
        assert counted() == number + 1
    two[1].say("s0", message_b("hub:unsubscribe", {"topic": "news"}))
    assert counted() == 4
    two[0].say("ann", message_b("hub:subscribe", {"topic": "news"}, me="x/ann"))
    assert counted() == 5
    two.kill(1)
    assert counted() == 1
    two.all[1] = HubWorker(two, 1)
    two[1].join("s")
    two[1].say("s", message_b("hub:subscribe", {"topic": "news"}))
    two[0].link(1)
    two[1].link(0)
    assert counted() == 2


def test_an_ask_is_answered_and_one_for_nobody_refused(two):
    two[0].join("amy")
    two[0].register_a("amy")
    two[0].hears("amy")
    ask = {"to": "@(x/bob)", "type": "t", "data": 1}
    two[0].say("amy", message_a("hub:send", ask, me="@(browser/amy)", pattern="ask"))
    two.settle()
    assert [one["type"] for one in two[0].hears("amy")] == ["hub:delivery_ack"]
    assert [one["payload"] for one in two[1].hears("bob")] == [1]
    two[0].say("ann", send("x/nobody", 1))
    two.settle()
    assert two[0].hears("ann")[0]["payload"]["code"] == "unknown_actor"


def test_actors_are_found_wherever_they_are_and_no_worker_is_named(two):
    for scope in ({}, {"scope": "local"}, {"scope": "mesh"}):
        two[0].say("ann", message_b("hub:discover", {"pattern": "x/.*"} | scope, me="x/ann"))
        two.settle()
        (found,) = two[0].hears("ann")
        assert [one["address"] for one in found["payload"]["actors"]] == ["x/ann", "x/bob"]
        assert found["payload"]["total"] == 2
        assert "daemon" not in str(found)
        assert "worker" not in str(found)


def test_a_broadcast_reaches_all_and_is_counted_once(two):
    two[1].register("cid")
    two.settle()
    for _ in range(150):  # more than one daemon of a mesh may ask of another at once
        two[0].say("ann", message_b("hub:broadcast", {"type": "t", "data": 1}, me="x/ann"))
    two.settle()
    acks = [one for one in two[0].hears("ann") if one["type"] == "hub:broadcast_ack"]
    assert [one["payload"]["deliveredCount"] for one in acks] == [3] * 150
    assert "unanswered" not in acks[0]["payload"]
    assert len(two[1].hears("cid")) == 150


def test_the_largest_message_that_a_worker_takes_is_taken_by_the_others(two):
    two[0].join("eve")
    for message in heaviest():
        two[0].say("eve", message)
        two.settle()
        assert two[1].hears("bob")
        assert [one["type"] for one in two[0].hears("eve")] in ([], ["hub:broadcast_ack"])
        two[0].hears("ann")
    assert two[0].links[1][0].peer.ending is None


def test_an_address_is_given_once_whatever_the_worker(two):
    answer = two[0].register("bob")
    assert answer["payload"]["code"] == "unknown_actor"
    assert "daemon" not in str(answer)
    two[0].join("amy")
    two[0].register_a("amy")
    two.settle()
    two[0].hears("amy")
    two[1].join("amy")
    me = two[1].connect_a("amy")
    register = {"actorAddress": me, "capabilities": ["any"]}
    two[1].say("amy", message_a("hub:register", register, me=me))
    assert two[1].hears("amy") == []
    two.settle()
    assert two[1].hears("amy")[-1]["type"] == "hub:registered"
    assert two[0].ended["amy"][0] == "duplicate-connection"


def test_the_limit_of_actors_is_that_of_all_workers(two):
    for worker in two.all:
        worker.hub.registry.max_actors = 3
    assert two[0].register("cid")["type"] == "hub:registered"
    two.settle()
    for number in range(2):
        answer = two[number].register(f"eve{number}")
        assert answer["payload"]["message"] == "there are 3 actors, which is the limit"


def test_of_two_registrations_that_cross_the_earlier_one_stays(two):
    assert two[1].register("eve")["type"] == "hub:registered"
    assert two[0].register("eve")["type"] == "hub:registered"
    two.settle()
    assert two[1].hears("eve")[-1]["type"] == "hub:registration_lost"
    assert two[0].hears("eve") == []
    two[1].say("bob", send("x/eve", 1, me="x/bob"))
    two.settle()
    assert [one["payload"] for one in two[0].hears("eve")] == [1]


def test_actors_of_a_worker_that_has_died_are_gone_and_come_again_elsewhere(two):
    two.kill(1)
    two.settle()
    two[0].say("ann", send("x/bob", 1))
    assert two[0].hears("ann")[0]["payload"]["code"] == "unknown_actor"
    assert two[0].register("bob")["type"] == "hub:registered"
    two.all[1] = HubWorker(two, 1)
    two[1].link(0)
    two[0].link(1)
    two.settle()
    two[1].register("cid")
    two[1].say("cid", send("x/bob", 2, me="x/cid"))
    two.settle()
    assert [one["payload"] for one in two[0].hears("bob")] == [2]


def test_a_message_that_fails_at_another_worker_is_answered_and_costs_that_one_alone(two):
    streams = two[1].actors.streams
    deliver = streams.deliver

    def fail(_key: str, _body: bytes) -> bool:
        streams.deliver = deliver
        raise RuntimeError("on purpose")

    streams.deliver = fail
    two[0].say("ann", send("x/bob", 1), send("x/bob", 2))
    two.settle()
    (failed,) = [one for one in two[0].hears("ann") if one["type"] == "hub:error"]
    assert failed["payload"]["code"] == "unknown_actor"
    assert [one["payload"] for one in two[1].hears("bob")] == [2]
    assert two[1].broker.faults.counts.total() == 1


def test_a_message_over_a_new_link_is_not_lost_with_the_old_one(two):
    old, _ = two[0].links[1]
    two[0].link(1)
    two[1].link(0)
    two.settle()
    two[0].say("ann", send("x/bob", 1))
    for step in old.leaving():
        for _ in step():
            pass
    two.settle()
    assert [one["payload"] for one in two[1].hears("bob")] == [1]
    assert two[0].hears("ann") == []
