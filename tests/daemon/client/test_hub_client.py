"""The hub client, against the real daemon where one can be had, else against one of memory."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import jwt
import pytest
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

import pubsubd.client.exchange
import pubsubd.client.reconnect
import pubsubd.client.websocket
from pubsubd.client import (
    BufferFullError,
    ConnectError,
    DaemonError,
    Delivered,
    DisconnectedError,
    HubClient,
    HubMessage,
    Login,
    Message,
    open_client,
    open_hub_client,
)
from pubsubd.client import request as requests
from pubsubd.client.exchange import Exchange
from pubsubd.client.websocket import WebSocket
from pubsubd.daemon import run as daemon
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from pubsubd.protocol.limits import HubLimits, Limits
from tests.daemons import DEADLINE
from tests.running import run_until_stopped, running
from tests.running import serving as serving_lines

ANN, BOB = "@(python/ann)", "@(python/bob)"
SECRET = "0123456789abcdef0123456789abcdef"


def configure(
    port: int = 0, *, auth: str | None = None, max_connections: int = 1000, **limits: Any
) -> daemon.Config:
    return daemon.Config(
        port=0,
        hub_port=port,
        hub_auth=auth,
        limits=Limits(max_connections=max_connections),
        hub_limits=HubLimits(**({"rate": 0.0} | limits)),
    )


@asynccontextmanager
async def serving(port: int = 0, **more: Any) -> AsyncIterator[dict[str, int]]:
    """Run a daemon, yield its ports, and end it without a drain."""
    async with running(configure(port, **more)) as ports:
        yield ports


@asynccontextmanager
async def pair(**limits: Any) -> AsyncIterator[tuple[HubClient, HubClient]]:
    async with (
        serving(**limits) as ports,
        open_hub_client(port=ports["hub"], actor=ANN, capabilities=["work"]) as ann,
        open_hub_client(port=ports["hub"], actor=BOB, capabilities=["work", "rest"]) as bob,
    ):
        yield ann, bob


ANSWERS: dict[str, tuple[str, Any]] = {
    "hub:publish": ("hub:published", {"subscriberCount": 3}),
    "hub:send": ("hub:delivery_ack", {"messageId": "m", "deliveredAt": 5}),
    "hub:subscribe": ("hub:subscribed", {"subscriptionId": "sub"}),
    "hub:unsubscribe": ("hub:unsubscribed", {}),
    "hub:heartbeat": ("hub:heartbeat_ack", {}),
    "hub:disconnect": ("hub:disconnect", {}),
    "hub:register": ("hub:registered", {"expiresAt": 301_000}),
    "hub:metrics": ("hub:metrics_response", {}),
}


class Hub:
    """The other end of a client's connections, in memory: each connection is a new stream.

    Attributes:
        heard: the messages of each connection.
        mute: kinds of messages that are not answered.
        answers: kind -> kind and payload of the answer.
        refuse: how many attempts to connect fail from now on.
        deaf: whether connections are closed as soon as they are there.
        breaks: how many were broken off.
        times: of the attempts to connect.
    """

    def __init__(self, *mute: str) -> None:
        self.heard: list[list[dict[str, Any]]] = []
        self.mute = set(mute)
        self.answers = dict(ANSWERS)
        self.refuse = 0
        self.deaf = False
        self.breaks = 0
        self.times: list[float] = []
        self.pongs: list[bytes] = []
        self.closes: list[int] = []
        self.stream: trio.abc.Stream
        self.news = trio.Event()
        self._sending = trio.Lock()
        self.welcome: dict[str, Any] = {"heartbeatInterval": 30_000, "maxMessageSize": 1024 * 1024}
        self.pair: Callable[[], Any] = trio.testing.memory_stream_pair
        self._send, self._accept = trio.open_memory_channel[trio.abc.Stream](10)

    async def connect(self) -> trio.abc.Stream:
        self.times.append(trio.current_time())
        if self.refuse:
            self.refuse -= 1
            raise ConnectError("memory", "connection refused")
        ours, theirs = self.pair()
        self._send.send_nowait(ours)
        return theirs  # type: ignore[no-any-return]

    async def serve(self) -> None:
        """Answer one connection after another."""
        while True:
            self.stream = await self._accept.receive()
            self.ws = WSConnection(ConnectionType.SERVER)
            self.heard.append([])
            if self.deaf:
                await self.stream.aclose()
            try:
                while True:
                    data = bytes(await self.stream.receive_some())
                    if not data:
                        break
                    self.ws.receive_data(data)
                    for event in self.ws.events():
                        await self._answer(event)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                pass
            self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = trio.Event()

    async def _answer(self, event: Any) -> None:
        if isinstance(event, Request):
            await self.say_raw(self.ws.send(AcceptConnection()))
        elif isinstance(event, Pong):
            self.pongs.append(bytes(event.payload))
        elif isinstance(event, CloseConnection):
            self.closes.append(int(event.code))
        else:
            assert isinstance(event, TextMessage), event
            message = json.loads(event.data)
            self.heard[-1].append(message)
            kind = message["type"]
            if kind in self.mute:
                pass
            elif kind == "hub:connect":
                await self.reply(message, "hub:connected", self.welcome)
            elif kind == "ping":
                await self.say({"type": "pong"})
            else:
                await self.reply(message, *self.answers[kind])
        self._tell()

    async def say_raw(self, data: bytes) -> None:
        async with self._sending:
            await self.stream.send_all(data)

    async def say(self, *messages: Any) -> None:
        if self.ws.state is not ConnectionState.OPEN:
            return
        texts = (m if isinstance(m, str) else json.dumps(m) for m in messages)
        await self.say_raw(b"".join(self.ws.send(TextMessage(data=text)) for text in texts))

    async def reply(self, request: dict[str, Any], kind: str, payload: Any) -> None:
        await self.say(
            {
                "id": "x",
                "from": "@(cloudflare/signal-hub)",
                "to": request["from"],
                "type": kind,
                "payload": payload,
                "correlationId": request["id"],
                "timestamp": 1_000,
                "metadata": {},
            }
        )

    async def refuse_all(self, kind: str, code: str, **details: Any) -> None:
        for request in self.told(kind):
            await self.reply(request, "hub:error", error(code, **details))

    async def wait_heard(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Return the messages of a kind of the present connection, once there are so many.

        The present one is the one after all that were broken off.
        """
        with trio.fail_after(1000):
            while len(self.heard) <= self.breaks or len(self.told(kind)) < count:
                await self.news.wait()
        return self.told(kind)

    def told(self, kind: str, at: int = -1) -> list[dict[str, Any]]:
        return [one for one in self.heard[at] if one["type"] == kind]

    async def break_off(self) -> None:
        """End the present connection without a word."""
        self.breaks += 1
        await trio.aclose_forcefully(self.stream)


def error(code: str, **details: Any) -> dict[str, Any]:
    return {"code": code, "message": f"it was {code}", "resolution": "", "details": details}


def delivery(data: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "id": "i",
        "from": BOB,
        "to": ANN,
        "type": "n",
        "payload": data,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": 0,
        "metadata": {"forwarded": True, "publication": True, "topic": "t"} | metadata,
    }


@asynccontextmanager
async def meeting(hub: Hub, **more: Any) -> AsyncIterator[HubClient]:
    """A client of a hub made of memory."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.serve)
        failure: BaseException | None = None
        try:
            async with open_hub_client(connect=hub.connect, **more) as client:
                yield client
        except PubsubdError as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect again without waiting."""
    monkeypatch.setattr(pubsubd.client.reconnect, "BACKOFF_MAX", 0.0)


async def until(true: Callable[[], object]) -> None:
    with trio.fail_after(DEADLINE):
        while not true():
            await trio.lowlevel.checkpoint()


async def refusal(call: Awaitable[Any]) -> DaemonError:
    """Return the DaemonError that a call raises."""
    with pytest.raises(DaemonError) as caught:
        await call
    return caught.value


# Topics


async def test_a_message_arrives_as_it_was_published() -> None:
    async with pair() as (ann, bob):
        subscription = await ann.subscribe("system/events")
        assert subscription.topic == "system/events"
        assert subscription.id.startswith("sub-")
        assert await bob.publish("system/events", "event:created", {"id": 7, "é": [1.5, None]}) == 1
        message = await anext(ann)
        assert message == HubMessage(
            topic="system/events",
            type="event:created",
            data={"id": 7, "é": [1.5, None]},
            sender=BOB,
            id=message.id,
            correlation_id=None,
            metadata=message.metadata,
            broadcast=False,
        )
        assert message.raw is None
        assert await bob.publish("nobody", "x") == 0


async def test_wildcards_match_and_a_message_comes_once() -> None:
    async with pair() as (ann, bob):
        for topic in ("a/+", "a/#", "a/b"):
            await ann.subscribe(topic)
        for topic in ("a", "a/b", "a/b/c", "b"):
            await bob.publish(topic, "x", topic)
        await ann.flush()
        assert [message.data for message in await ann.receive()] == ["a", "a/b", "a/b/c"]


async def test_the_line_port_and_the_hub_port_hear_each_other() -> None:
    async with (
        serving() as ports,
        open_hub_client(port=ports["hub"]) as hub,
        open_client(port=ports["line"]) as line,
    ):
        await hub.subscribe("chat/+")
        await line.publish("chat/main", "héllo")
        await line.publish("chat/main", b"\xff\x00")
        await line.publish("chat/main", b'{"type":"said","payload":[1]}')
        await line.flush()
        text, raw, said = [await anext(hub) for _ in range(3)]
        assert (text.topic, text.type, text.raw) == (
            "chat/main",
            "pubsub:message",
            "héllo".encode(),
        )
        assert raw.raw == b"\xff\x00"
        assert (said.type, said.data, said.raw) == ("said", [1], None)
        await line.subscribe("back/")
        assert await hub.publish_raw("back/x", b"\xfe\n") == 1
        assert await hub.publish_raw("back/x", "grüß") == 1
        assert await hub.publish("back/x", "said", 5) == 1
        assert await anext(line) == Message("back/x", b"\xfe\n")
        assert await anext(line) == Message("back/x", "grüß".encode())
        assert json.loads((await anext(line)).data)["payload"] == 5


async def test_unsubscribing_ends_it_and_spares_the_others() -> None:
    async with pair() as (ann, bob):
        first = await ann.subscribe("a")
        await ann.subscribe("b")
        await ann.unsubscribe(first)
        assert await bob.publish("a", "x") == 0
        assert await bob.publish("b", "x") == 1
        with pytest.raises(ProtocolError, match="not-subscribed"):
            await ann.unsubscribe("a")
        assert ann.statistics().subscriptions == 1


async def test_a_subscription_that_is_refused_is_not_kept() -> None:
    async with pair() as (ann, _):
        assert "must match" in str(await refusal(ann.subscribe("a b")))
        assert ann.statistics().subscriptions == 0
        await ann.flush()


async def test_topics_and_the_hub_can_be_asked_about() -> None:
    async with pair() as (ann, bob):
        await ann.subscribe("a")
        await bob.publish("a", "x")
        await bob.publish("b", "x")
        topics = await ann.list_topics()
        assert [(one.topic, one.subscriber_count) for one in topics.topics] == [("a", 1), ("b", 0)]
        assert (topics.total, topics.has_more) == (2, False)
        page = await ann.list_topics(offset=1, limit=1)
        assert [one.topic for one in page.topics] == ["b"]
        assert (await ann.topic_info("a")).message_count == 1
        assert "not found" in str(await refusal(ann.topic_info("c")))
        assert (await ann.metrics())["actors"] == 2
        assert (await ann.queue_stats())["queueDepth"] == 0
        assert await ann.ping() > 0


# Many at once


async def test_each_of_many_calls_at_once_gets_its_own_answer_and_each_task_keeps_its_order() -> (
    None
):
    heard: list[tuple[int, int]] = []
    answers: dict[int, list[int]] = {}

    async def publish(client: HubClient, task: int) -> None:
        # Each topic has as many subscribers as its number's remainder tells.
        answers[task] = [
            await client.publish(f"t{task % 2}", "n", [task, number]) for number in range(40)
        ]

    async with pair() as (ann, bob), trio.open_nursery() as nursery:
        await ann.subscribe("t1")
        for task in range(50):
            nursery.start_soon(publish, bob, task)
        while len(heard) < 25 * 40:
            heard += [tuple(message.data) for message in await ann.receive()]
    assert answers == {task: [task % 2] * 40 for task in range(50)}
    for task in range(1, 50, 2):
        assert [number for of, number in heard if of == task] == list(range(40))


async def test_no_more_than_a_bounded_number_of_requests_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pubsubd.client.exchange, "UNDER_WAY", 4)
    hub = Hub("hub:publish")
    done: list[int] = []

    async def publish(client: HubClient, number: int) -> None:
        done.append(await client.publish("t", "n", number))

    async with meeting(hub) as client, trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(publish, client, number)
        first = await hub.wait_heard("hub:publish", 4)
        await trio.testing.wait_all_tasks_blocked()
        assert len(hub.told("hub:publish")) == 4
        await hub.reply(first[2], "hub:published", {"subscriberCount": 9})
        await hub.wait_heard("hub:publish", 5)
        await trio.testing.wait_all_tasks_blocked()
        assert len(hub.told("hub:publish")) == 5
        hub.mute.clear()
        for request in (first[0], first[1], first[3], hub.told("hub:publish")[4]):
            await hub.reply(request, "hub:published", {"subscriberCount": 1})
    assert sorted(done) == [1] * 4 + [3] * 5 + [9]


async def test_a_call_that_is_cancelled_leaves_its_answer_to_nobody() -> None:
    hub = Hub("hub:publish")
    async with meeting(hub) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.publish, "t", "n")
            await hub.wait_heard("hub:publish")
            nursery.cancel_scope.cancel()
        await hub.refuse_all("hub:publish", "internal_error")
        await client.flush()
        hub.mute.clear()
        assert await client.publish("t", "n") == 3


async def test_requests_that_gather_share_a_send() -> None:
    hub, sends = Hub(), 0

    async def connect() -> trio.abc.Stream:
        stream = await hub.connect()
        send_all = stream.send_all

        async def counting(data: Any) -> None:
            nonlocal sends
            sends += 1
            await send_all(data)

        stream.send_all = counting  # type: ignore[method-assign]
        return stream

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.serve)
        async with (
            open_hub_client(connect=connect) as client,
            trio.open_nursery() as publishers,
        ):
            for number in range(200):
                publishers.start_soon(client.publish, "t", "n", number)
        nursery.cancel_scope.cancel()
    assert sends <= 8


# Actors


async def test_actors_tell_each_other_and_answer() -> None:
    async with pair() as (ann, bob):
        await bob.send(ANN, "greeting", {"n": 1}, metadata={"trace": "t1"})
        greeting = await anext(ann)
        assert (greeting.topic, greeting.type, greeting.data) == (None, "greeting", {"n": 1})
        assert (greeting.sender, greeting.broadcast) == (BOB, False)
        assert greeting.metadata["trace"] == "t1"
        ack = await bob.ask(ANN, "question", None)
        assert isinstance(ack, Delivered)
        question = await anext(ann)
        assert question.correlation_id == ack.message_id
        await ann.send(question.sender, "answer", 42, correlation_id=question.correlation_id)
        answer = await anext(bob)
        assert (answer.type, answer.data, answer.correlation_id) == ("answer", 42, ack.message_id)


async def test_asking_nobody_is_told() -> None:
    async with pair() as (ann, _):
        fault = await refusal(ann.ask("@(python/nobody)", "x"))
        assert fault.code == "unknown_actor"
        assert fault.details["actorAddress"] == "@(python/nobody)"
        await ann.send("@(python/nobody)", "x")  # of which the protocol tells nothing
        await ann.flush()


async def test_broadcasting_reaches_all_that_are_meant() -> None:
    async with pair() as (ann, bob):
        assert await ann.broadcast("all", 1) == 2
        assert await ann.broadcast("others", 2, exclude_self=True) == 1
        assert await bob.broadcast("resting", 3, capability="rest") == 1
        await ann.flush()
        assert [(m.type, m.data, m.broadcast) for m in await ann.receive()] == [("all", 1, True)]
        assert [m.type for m in await bob.receive()] == ["all", "others", "resting"]


async def test_actors_are_found() -> None:
    async with pair() as (ann, _):
        found = await ann.discover("@(python/*)", capability="work", limit=1)
        assert (len(found.actors), found.has_more) == (1, True)
        rest = await ann.discover("*", capability="rest")
        assert [one.address for one in rest.actors] == [BOB]
        assert rest.actors[0].capabilities == ("work", "rest")
        listed = await ann.list_actors()
        assert ({one.address for one in listed.actors}, listed.total) == ({ANN, BOB}, 2)


async def test_a_registration_is_renewed_in_time() -> None:
    async with serving(heartbeat=1.5) as ports, open_hub_client(port=ports["hub"]) as watcher:
        async with open_hub_client(port=ports["hub"], actor=ANN, capabilities=["x"], ttl=2.0):
            ends: set[int | None] = set()
            while len(ends) < 5:  # it would have expired, and have been silent, in the meantime
                (actor,) = (await watcher.list_actors()).actors
                assert actor.expires_at is not None
                assert actor.expires_at > time.time() * 1000
                ends.add(actor.expires_at)
                await trio.sleep(0.02)  # others need the processor too
        assert (await watcher.list_actors()).actors == []  # it has taken leave


async def test_who_registers_an_address_again_ends_the_other_client_for_good() -> None:
    lost: list[PubsubdError] = []
    async with (
        serving() as ports,
        open_hub_client(
            port=ports["hub"], actor=ANN, capabilities=["x"], on_disconnect=lost.append
        ) as first,
        open_hub_client(port=ports["hub"], actor=ANN, capabilities=["x"]) as second,
    ):
        for call in (anext(first), first.flush(), first.publish("t", "x")):
            assert (await refusal(call)).code == "duplicate_connection"
        assert await second.ask(ANN, "x")
    assert [getattr(one, "code", "") for one in lost] == ["duplicate_connection"]


async def test_a_registration_that_is_refused_is_told_at_once() -> None:
    async with serving() as ports:
        for more in ({"actor": ANN}, {"actor": "no address", "capabilities": ["x"]}):
            with pytest.raises(DaemonError, match="internal_error"):
                async with open_hub_client(port=ports["hub"], **more):  # type: ignore[arg-type]
                    raise AssertionError


async def test_nobody_can_make_an_answer_or_an_end_by_its_type() -> None:
    hub = Hub()
    forged = [
        ("hub:disconnect", {"reason": "duplicate_connection", "message": "x"}),
        ("hub:error", error("internal_error", reason="slow-consumer")),
        ("hub:published", {"subscriberCount": 99}),
        ("pong", None),
    ]
    async with meeting(hub) as client:
        await hub.say(*(delivery(payload) | {"type": kind} for kind, payload in forged))
        await client.flush()
        assert [(m.type, m.data) for m in await client.receive()] == forged


async def test_nobody_can_make_a_topic_by_metadata() -> None:
    async with pair() as (ann, bob):
        forged = {"topic": "t", "publication": True, "forwarded": False}
        await bob.send(ANN, "pong", metadata=forged)
        await bob.ask(ANN, "pong", metadata=forged)
        await ann.flush()
        assert [(m.type, m.topic) for m in await ann.receive()] == [("pong", None)] * 2


async def test_an_answer_is_not_forged_by_who_knows_what_is_asked() -> None:
    hub = Hub("hub:publish")
    counts: list[int] = []

    async def publish(client: HubClient) -> None:
        counts.append(await client.publish("t", "n"))

    async with meeting(hub) as client, trio.open_nursery() as nursery:
        nursery.start_soon(publish, client)
        (request,) = await hub.wait_heard("hub:publish")
        forged = delivery({"subscriberCount": 99}) | {"type": "hub:published"}
        await hub.say(forged | {"correlationId": request["id"]})
        assert (await anext(client)).type == "hub:published"
        await hub.reply(request, "hub:published", {"subscriberCount": 1})
    assert counts == [1]


# Faults


async def test_no_connection_is_one_exception_that_says_why() -> None:
    async with serving() as ports:
        port = ports["hub"]
    with pytest.raises(ConnectError, match="connection refused"):
        async with open_hub_client(port=port):
            raise AssertionError


async def test_a_peer_that_is_no_websocket_is_told() -> None:
    async with serving_lines() as port:
        with pytest.raises(DisconnectedError, match="before it became a WebSocket"):
            async with open_hub_client(port=port):
                raise AssertionError


async def test_one_connection_too_many_hears_so() -> None:
    async with serving(max_connections=1) as ports, open_hub_client(port=ports["hub"]):
        with pytest.raises(DaemonError, match="too-many-connections"):
            async with open_hub_client(port=ports["hub"]):
                raise AssertionError


@pytest.mark.parametrize(("status", "final"), [(403, True), (503, False)])
async def test_a_refusal_to_become_a_websocket_is_told(status: int, final: bool) -> None:
    socket = pubsubd.client.websocket.WebSocket("h", "/ws", 1000)
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(socket.request)
    assert isinstance(next(server.events()), Request)
    answer = server.send(RejectConnection(status_code=status, headers=[], has_body=True))
    answer += server.send(RejectData(data=b"not\x1b today"))
    (ended,) = [one for at in range(len(answer)) for one in socket.receive(answer[at : at + 1])]
    assert socket.receive(b"") == []
    assert isinstance(ended, pubsubd.client.websocket.Ended)
    assert ended.final == final
    assert f"{status} not\\x1b today" in str(ended.why)


async def test_an_exception_leaves_the_block_as_it_is() -> None:
    async with serving() as ports:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  (a block is what this is about)
            async with open_hub_client(port=ports["hub"]) as client:
                await client.publish("t", "x")
                raise ZeroDivisionError


async def test_a_cancelled_block_ends_and_raises_nothing() -> None:
    async with serving() as ports:
        with trio.CancelScope() as scope:
            async with open_hub_client(port=ports["hub"]) as client:
                scope.cancel()
                await anext(client)
        assert scope.cancelled_caught


async def test_a_closed_client_says_so() -> None:
    async with serving() as ports:
        async with open_hub_client(port=ports["hub"]) as client:
            pass
        for call in (
            client.publish("t", "x"),
            client.send(ANN, "x"),
            client.subscribe("t"),
            client.flush(),
            client.metrics(),
            anext(client),
        ):
            with pytest.raises(trio.ClosedResourceError):
                await call


async def test_what_is_refused_is_raised_by_its_call_alone() -> None:
    async with pair() as (ann, bob):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bob.publish, "fine", "x")
            nursery.start_soon(bob.publish, "fine", "x")
            assert "must match" in (await refusal(bob.publish("not fine", "x"))).text
            assert "type is required" in (await refusal(bob.publish("fine", ""))).text
        await ann.flush()
        await bob.flush()


async def test_what_a_tell_is_refused_with_is_raised_by_the_next_flush_or_read() -> None:
    async with pair() as (ann, _):
        await ann.send("no address", "x")
        assert "to is no address" in str(await refusal(ann.flush()))
        await ann.send("no address", "x")
        assert "to is no address" in str(await refusal(anext(ann)))
        await ann.flush()


async def test_a_tell_is_flushed_when_the_block_ends() -> None:
    async with serving() as ports:
        with pytest.raises(DaemonError, match="to is no address"):
            async with open_hub_client(port=ports["hub"]) as client:
                await client.send("no address", "x")


async def test_too_much_at_a_time_tells_when_to_try_again() -> None:
    async with serving(rate=1.0, burst=3) as ports, open_hub_client(port=ports["hub"]) as ann:
        for _ in range(3):
            await ann.metrics()
        fault = await refusal(ann.metrics())
        assert fault.code == "rate_limited"
        assert fault.retry_after == fault.details["retryAfter"] > 0


async def test_a_message_that_the_hub_would_not_take_is_never_sent() -> None:
    async with serving(max_message=2000) as ports, open_hub_client(port=ports["hub"]) as client:
        for call in (client.publish("t", "x", "y" * 2000), client.send(ANN, "x", "y" * 2000)):
            with pytest.raises(ProtocolError, match="payload-too-large"):
                await call
        assert await client.publish("t", "x", "y") == 0
        assert client.statistics().published == 1


async def test_large_messages_pass() -> None:
    async with pair() as (ann, bob):
        await ann.subscribe("t")
        data = "é" * 450_000
        await bob.publish("t", "x", data)
        assert (await anext(ann)).data == data


async def test_a_token_is_asked_for_and_can_be_renewed(tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET)
    claims = {"sub": "python/ann", "iss": "signal-hub", "exp": int(time.time()) + 100}
    token = jwt.encode(claims, SECRET, "HS256")
    async with serving(auth=str(key)) as ports:
        for wrong in (None, token + "x"):
            with pytest.raises(DaemonError, match=r"unauthorized|invalid_token"):
                async with open_hub_client(port=ports["hub"], token=wrong):
                    raise AssertionError
        async with open_hub_client(
            port=ports["hub"], actor=ANN, capabilities=["x"], token=token
        ) as client:
            assert await client.refresh_token() > time.time() * 1000
            assert client.token not in (None, token)
            assert await client.publish("t", "x") == 0


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "1", '{"type":1}', "[" * 100_000, '{"type":"hub:error","payload":{"code":1}}'],
)
async def test_garbage_ends_the_client(text: str) -> None:
    hub = Hub()
    async with meeting(hub) as client:
        await hub.say(delivery(1), text, delivery(2))
        assert (await anext(client)).data == 1  # what came before counts
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="does not speak this protocol"):
                await anext(client)
    assert len(hub.times) == 1


async def test_bytes_that_are_no_frames_end_the_client() -> None:
    hub = Hub()
    async with meeting(hub) as client:
        await hub.say_raw(hub.ws.send(TextMessage(data=json.dumps(delivery(1)))) + b"\xff\xff\xff")
        assert (await anext(client)).data == 1
        with pytest.raises(DisconnectedError, match="does not speak this protocol"):
            await anext(client)
        await until(lambda: hub.closes)
    assert hub.closes == [1002]


async def test_an_answer_of_another_shape_is_told_by_the_call_and_by_the_opening() -> None:
    hub = Hub()
    hub.answers["hub:publish"] = ("hub:published", {"subscriberCount": "many"})
    async with meeting(hub) as client:
        with pytest.raises(DisconnectedError, match="Published"):
            await client.publish("t", "x")
        await client.flush()
    hub = Hub()
    hub.welcome = {"maxMessageSize": []}
    with pytest.raises(DisconnectedError, match="Connected"):
        async with meeting(hub):
            raise AssertionError
    hub = Hub()
    hub.answers["hub:register"] = ("hub:registered", {"expiresAt": "soon"})
    async with meeting(hub, actor=ANN) as client:
        with pytest.raises(DisconnectedError, match="Registered"):
            await anext(client)


@pytest.mark.parametrize(
    ("code", "final"), [(1002, True), (1009, True), (1013, False), (1000, False)]
)
async def test_a_close_that_blames_the_client_ends_it_and_others_do_not(
    code: int, final: bool, at_once: None
) -> None:
    hub = Hub()
    async with meeting(hub) as client:
        await hub.say_raw(hub.ws.send(CloseConnection(code=code, reason="so\x1b")))
        await until(lambda: hub.closes)
        assert hub.closes == [code]  # answered as it should be
        await hub.break_off()
        if final:
            with pytest.raises(DisconnectedError, match=rf"closed the connection: {code} so\\x1b"):
                await anext(client)
        else:
            assert await client.publish("t", "x") == 3
    assert len(hub.times) == 2 - final


async def test_the_hubs_reason_for_closing_is_what_is_raised() -> None:
    hub = Hub()
    async with meeting(hub, reconnect=False) as client:
        farewell = {"type": "hub:error", "payload": error("timeout", reason="heartbeat-timeout")}
        await hub.say(delivery(1), farewell)
        await hub.say_raw(hub.ws.send(CloseConnection(code=1000)))
        assert (await anext(client)).data == 1
        for call in (anext(client), client.publish("t", "x"), client.subscribe("t")):
            fault = await refusal(call)
            assert (fault.code, fault.text) == ("timeout", "it was timeout")
            assert fault.details == {"reason": "heartbeat-timeout"}


async def test_a_message_larger_than_the_client_takes_ends_it() -> None:
    hub = Hub()
    async with meeting(hub, max_message=1000) as client:
        await hub.say(delivery("x" * 700), delivery("x" * 1000))
        await anext(client)
        with pytest.raises(DisconnectedError, match="larger than this client takes"):
            await anext(client)


async def test_a_hub_that_says_nothing_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for mute in (["hub:connect"], ["hub:heartbeat"]):
        hub = Hub(*mute)
        with pytest.raises(DisconnectedError, match=r"hub gave no answer|hub did not answer"):
            async with meeting(hub, reconnect=False) as client:
                await anext(client)
    assert trio.current_time() == pytest.approx(10 + 61, abs=0.1)


async def test_a_hub_may_take_as_long_for_a_login_as_the_line_port(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(DisconnectedError, match="hub gave no answer in 60 s"):
        async with meeting(Hub("hub:connect"), login=Login("ann", "x"), reconnect=False):
            pass
    assert trio.current_time() == 60


async def test_heartbeats_and_renewals_go_on_while_nobody_reads(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hub = Hub()
    async with meeting(hub, actor=ANN, capabilities=["x"], receive_buffer=1000) as client:
        await hub.say(*(delivery("x" * 100) for _ in range(10)))
        await trio.sleep(1000)
        assert 33 <= len(hub.told("hub:heartbeat")) <= 35
        assert 10 <= len(hub.told("hub:register")) <= 11
        assert client.statistics().connections == 1
        for _ in range(10):
            await anext(client)


async def test_a_full_buffer_does_not_keep_a_connection_from_being_renewed(
    at_once: None,
) -> None:
    hub = Hub("hub:publish")
    async with meeting(hub, actor=ANN, capabilities=["x"], receive_buffer=10_000) as client:
        await client.subscribe("t")
        async with trio.open_nursery() as nursery:

            async def fail() -> None:
                with pytest.raises(DisconnectedError):
                    await client.publish("t", "x")

            nursery.start_soon(fail)  # because of which reading goes on
            await hub.wait_heard("hub:publish")
            await hub.say(*(delivery(number) for number in range(40)))
            await trio.testing.wait_all_tasks_blocked()
            assert client.statistics().buffered_bytes > 10_000
            await hub.break_off()
        await hub.wait_heard("hub:subscribe")
        assert client.statistics().connections == 2
        assert [(await anext(client)).data for _ in range(40)] == list(range(40))


async def test_an_error_that_no_call_has_caused_is_raised_once_and_is_no_reason(
    at_once: None,
) -> None:
    hub = Hub()
    async with meeting(hub, reconnect=False) as client:
        await hub.say({"type": "hub:error", "payload": error("internal_error")}, delivery(1))
        await trio.testing.wait_all_tasks_blocked()
        await hub.break_off()
        assert (await refusal(anext(client))).code == "internal_error"
        assert (await anext(client)).data == 1
        with pytest.raises(DisconnectedError):
            await anext(client)


async def test_what_the_hub_cannot_read_is_raised_by_the_call(at_once: None) -> None:
    deep: Any = 0
    for _ in range(300):
        deep = [deep]
    async with pair() as (ann, _):
        for data in (2**70, deep, {1: 1, "1": 2}):
            fault = await refusal(ann.publish("t", "x", data))
            assert fault.code == "internal_error"
            assert fault.text.startswith("not JSON")
        with pytest.raises(TypeError):
            await ann.publish("t", "x", object())
        await ann.flush()
        assert ann.statistics().connections == 4


async def test_pings_are_answered() -> None:
    hub = Hub()
    async with meeting(hub) as client:
        await hub.say_raw(hub.ws.send(Ping(payload=b"p1")))
        await until(lambda: hub.pongs)
        assert hub.pongs == [b"p1"]
        await client.flush()


# Bounds


async def test_a_program_that_does_not_read_stops_the_reading() -> None:
    hub = Hub()
    sent = 0

    async def send() -> None:
        nonlocal sent
        for number in range(500):
            await hub.say(delivery([number, "x" * 1000]))
            sent += 1

    hub.pair = trio.testing.lockstep_stream_pair
    async with (
        meeting(hub, receive_buffer=100_000) as client,
        trio.open_nursery() as nursery,
    ):
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert 70 <= sent <= 90
        assert client.statistics().buffered_messages == sent
        assert 100_000 <= client.statistics().buffered_bytes < 102_000
        assert [(await anext(client)).data[0] for _ in range(500)] == list(range(500))


async def test_a_call_in_the_middle_of_a_full_buffer_gets_its_answer() -> None:
    async with (
        serving() as ports,
        open_hub_client(port=ports["hub"], receive_buffer=20_000) as ann,
        open_hub_client(port=ports["hub"]) as bob,
    ):
        await ann.subscribe("t")
        for number in range(100):
            await bob.publish("t", "n", number)
        heard = []
        async for message in ann:
            heard.append(message.data)
            await ann.subscribe(f"t{len(heard)}")
            if len(heard) == 100:
                break
    assert heard == list(range(100))


async def test_an_answer_behind_more_than_the_client_may_keep_is_given_up() -> None:
    hub = Hub("hub:publish", "ping")
    async with meeting(hub, receive_buffer=10_000) as client:
        async with trio.open_nursery() as nursery:

            async def wait(call: Callable[[], Awaitable[Any]]) -> None:
                with pytest.raises(BufferFullError):
                    await call()

            nursery.start_soon(wait, lambda: client.publish("t", "x"))
            nursery.start_soon(wait, client.flush)
            await hub.wait_heard("ping")
            for _ in range(50):
                await hub.say(delivery("x" * 1000))
                await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().buffered_bytes <= 40_000 + 2_000
        for _ in range(50):
            await anext(client)
        hub.mute.clear()
        await hub.refuse_all("hub:publish", "internal_error")  # too late for anybody
        await hub.say({"type": "pong"})
        assert await client.publish("t", "x") == 3
        await client.flush()


# Reconnecting


async def test_a_daemon_that_comes_back_finds_actor_and_subscriptions_as_they_were(
    at_once: None,
) -> None:
    events: list[str] = []
    async with trio.open_nursery() as nursery:
        ports, stop = await nursery.start(run_until_stopped, configure())
        async with open_hub_client(
            port=ports["hub"],
            actor=ANN,
            capabilities=["x"],
            on_disconnect=lambda why: events.append(type(why).__name__),
            on_connect=lambda: events.append("connected"),
        ) as ann:
            kept = [await ann.subscribe(f"topic{number}/#") for number in range(50)]
            await ann.unsubscribe("topic7/#")
            before = kept[0].id
            await stop()
            ports, _ = await nursery.start(run_until_stopped, configure(ports["hub"]))
            await until(lambda: kept[49].id and kept[0].id != before)
            async with open_hub_client(port=ports["hub"]) as bob:
                assert [one.address for one in (await bob.list_actors()).actors] == [ANN]
                assert await bob.publish("topic7/x", "n") == 0
                assert await bob.publish("topic8/x", "n") == 1
                assert (await anext(ann)).topic == "topic8/x"
        nursery.cancel_scope.cancel()
    assert events[0] in ("DisconnectedError", "DaemonError")
    assert events[1:] == ["connected"]


async def test_more_topics_than_the_rate_allows_are_there_again_before_the_program_is_told(
    at_once: None,
) -> None:
    again = trio.Event()
    async with trio.open_nursery() as nursery:
        ports, stop = await nursery.start(run_until_stopped, configure())
        async with open_hub_client(port=ports["hub"], on_connect=again.set) as ann:
            for number in range(1_100):
                await ann.subscribe(f"topic{number}")
            await stop()
            limits = {"rate": 1.0, "burst": 3}
            ports, _ = await nursery.start(run_until_stopped, configure(ports["hub"], **limits))
            await again.wait()
            assert ann.statistics().subscriptions == 1_100
            async with open_client(port=ports["line"]) as bob:
                for number in range(1_100):
                    await bob.publish(f"topic{number}", "n")
                await bob.flush()
            heard = [(await anext(ann)).topic for _ in range(1_100)]
            assert heard == [f"topic{number}" for number in range(1_100)]
        nursery.cancel_scope.cancel()


async def test_only_what_the_hub_has_confirmed_is_reported(at_once: None) -> None:
    events: list[str] = []
    hub = Hub()
    hub.welcome["capabilities"] = {"maxTopicsPerRequest": 2}
    async with meeting(hub, on_connect=lambda: events.append("connected")) as client:
        kept = {topic: await client.subscribe(topic) for topic in "abcde"}
        hub.mute.add("hub:subscribe")
        await hub.break_off()
        first, second, third = await hub.wait_heard("hub:subscribe", 3)
        payloads = [one["payload"] for one in (first, second, third)]
        assert [one.get("topics") for one in payloads] == [["a", "b"], ["c", "d"], None]
        assert payloads[2]["topic"] == "e"
        assert (client.statistics().subscriptions, kept["a"].id) == (0, "")
        several = [{"topic": topic, "subscriptionId": topic * 3} for topic in "ab"]
        await hub.reply(first, "hub:subscribed", {"subscriptions": several, "refused": []})
        refused = [{"topic": "c", "code": "unauthorized", "message": "no right"}]
        several = [{"topic": "d", "subscriptionId": "ddd"}]
        await hub.reply(second, "hub:subscribed", {"subscriptions": several, "refused": refused})
        told = await refusal(anext(client))
        assert (told.code, told.details) == ("unauthorized", {"topic": "c"})
        assert (client.statistics().subscriptions, events) == (3, [])
        await hub.reply(third, "hub:subscribed", {"subscriptionId": "eee"})
        await until(lambda: events == ["connected"])
        assert [one.id for one in kept.values()] == ["aaa", "bbb", "", "ddd", "eee"]


async def test_what_was_under_way_is_told_and_not_sent_again(at_once: None) -> None:
    hub = Hub("hub:publish", "hub:send")
    async with meeting(hub) as client:
        async with trio.open_nursery() as nursery:

            async def fail(call: Callable[[], Awaitable[Any]]) -> None:
                with pytest.raises(DisconnectedError):
                    await call()

            nursery.start_soon(fail, lambda: client.publish("t", "x"))
            nursery.start_soon(fail, lambda: client.ask(ANN, "x"))
            await hub.wait_heard("hub:publish")
            await hub.wait_heard("hub:send")
            await hub.break_off()
        hub.mute.clear()
        assert await client.publish("t", "x", "second") == 3
    assert [len(hub.told("hub:publish", at)) for at in (0, 1)] == [1, 1]
    assert len(hub.told("hub:send", 1)) == 0


async def test_a_reset_in_the_middle_of_an_answer_is_no_answer(at_once: None) -> None:
    hub = Hub("hub:metrics")
    async with meeting(hub) as client:
        async with trio.open_nursery() as nursery:

            async def fail() -> None:
                with pytest.raises(DisconnectedError):
                    await client.metrics()

            nursery.start_soon(fail)
            (request,) = await hub.wait_heard("hub:metrics")
            half = json.dumps({"type": "x", "correlationId": request["id"]}) * 2
            await hub.say_raw(hub.ws.send(TextMessage(data=half))[:60])
            await trio.testing.wait_all_tasks_blocked()
            await hub.break_off()
        hub.mute.clear()
        assert await client.metrics() == {}


async def connect_and_jam(hub: Hub, stuck: trio.Event) -> trio.abc.Stream:
    """Connect; the first connection takes nothing more once it is to be stuck."""
    stream = await hub.connect()
    if len(hub.times) == 1:
        send_all = stream.send_all

        async def send(data: Any) -> None:
            if stuck.is_set():
                await trio.sleep_forever()
            await send_all(data)

        stream.send_all = send  # type: ignore[method-assign]
    return stream


async def test_what_was_not_sent_yet_is_sent_by_the_next_connection(at_once: None) -> None:
    hub = Hub()
    stuck = trio.Event()
    counts: list[int] = []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.serve)
        with pytest.raises(DisconnectedError):  # noqa: PT012
            async with open_hub_client(connect=partial(connect_and_jam, hub, stuck)) as client:
                await client.flush()
                stuck.set()
                await client.send(BOB, "taken")
                await trio.testing.wait_all_tasks_blocked()  # in a send that never ends

                async def publish() -> None:
                    counts.append(await client.publish("t", "kept"))

                async with trio.open_nursery() as publishers:
                    publishers.start_soon(publish)
                    await trio.testing.wait_all_tasks_blocked()
                    await client.send(BOB, "kept")
                    await hub.break_off()
                assert counts == [3]
                await hub.wait_heard("hub:send")
                assert [one["payload"]["type"] for one in hub.told("hub:send")] == ["kept"]
                # Leaving the block tells that "taken" may be lost.
        nursery.cancel_scope.cancel()


async def test_what_waited_for_a_connection_and_is_lost_with_it_is_told(at_once: None) -> None:
    hub, stuck = Hub("hub:send"), trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.serve)
        async with open_hub_client(connect=partial(connect_and_jam, hub, stuck)) as client:
            stuck.set()
            await client.send(BOB, "taken")
            await trio.testing.wait_all_tasks_blocked()
            await client.send(BOB, "kept")
            for _ in range(2):
                await hub.break_off()
                if hub.breaks == 1:
                    await hub.wait_heard("hub:send")
                with pytest.raises(DisconnectedError):
                    await client.flush()
            await client.flush()
        nursery.cancel_scope.cancel()


async def test_cancelled_calls_leave_room_for_others(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsubd.client.exchange, "UNDER_WAY", 2)
    hub = Hub()
    async with meeting(hub) as client:
        hub.refuse = 1000
        await hub.break_off()
        await until(lambda: not client.statistics().connected)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(client.publish, "t", "x")
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        hub.refuse = 0
        assert await client.publish("t", "x") == 3


async def test_messages_that_may_be_lost_are_told_once_by_flush(at_once: None) -> None:
    hub = Hub("hub:send")
    async with meeting(hub) as client:
        await client.send(BOB, "x")
        await hub.wait_heard("hub:send")
        await hub.break_off()
        await until(lambda: client.statistics().connections == 2)
        with pytest.raises(DisconnectedError):
            await client.flush()
        await client.flush()
        await client.send(BOB, "x")
        await client.flush()  # and what is confirmed is in no doubt later
        await hub.break_off()
        await until(lambda: client.statistics().connections == 3)
        await client.flush()
        statistics = client.statistics()
        assert (statistics.published, statistics.confirmed) == (2, 2)


async def test_calls_wait_for_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    hub = Hub()
    async with meeting(hub) as client:
        hub.refuse = 3
        await hub.break_off()
        await trio.testing.wait_all_tasks_blocked()
        assert not client.statistics().connected
        with trio.move_on_after(0.001) as scope:
            await client.publish("t", "cancelled")
        assert scope.cancelled_caught
        assert await client.publish("t", "x") == 3
        assert [one["payload"]["type"] for one in hub.told("hub:publish")] == ["x"]


async def test_a_subscription_under_way_survives_a_broken_connection(at_once: None) -> None:
    hub = Hub("hub:subscribe")
    async with meeting(hub) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.subscribe, "t")
        await hub.wait_heard("hub:subscribe")
        hub.mute.clear()
        await hub.break_off()
        await until(lambda: len(hub.heard) == 2 and hub.told("hub:subscribe"))
    assert client.statistics().subscriptions == 1


async def test_restoring_takes_the_time_that_the_hub_allows(
    at_once: None, autojump_clock: trio.testing.MockClock
) -> None:
    hub = Hub()
    async with meeting(hub) as client:
        for topic in "abc":
            await client.subscribe(topic)
        hub.mute.add("hub:subscribe")
        await hub.break_off()
        requests = list(await hub.wait_heard("hub:subscribe", 3))
        await hub.reply(requests[0], "hub:subscribed", {"subscriptionId": "new"})
        began = trio.current_time()
        hub.mute.clear()
        for request in requests[1:]:
            await hub.reply(request, "hub:error", error("rate_limited", retryAfter=7))
        requests = await hub.wait_heard("hub:subscribe", 5)
        assert [one["payload"]["topic"] for one in requests] == ["a", "b", "c", "b", "c"]
        assert trio.current_time() - began == pytest.approx(14, abs=1)
        await client.flush()


async def test_what_cannot_be_restored_is_told(at_once: None) -> None:
    hub = Hub()
    async with meeting(hub, actor=ANN, capabilities=["x"]) as client:
        await client.subscribe("t")
        hub.answers["hub:subscribe"] = ("hub:error", error("internal_error", limit="t"))
        hub.answers["hub:register"] = ("hub:error", error("internal_error", limit="r"))
        await hub.break_off()
        told = [(await refusal(anext(client))).details["limit"] for _ in range(2)]
        assert sorted(told) == ["r", "t"]


async def test_a_token_that_is_refused_later_ends_the_client(at_once: None) -> None:
    hub = Hub("hub:connect")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.serve)
        nursery.start_soon(accept_once, hub)
        async with open_hub_client(connect=hub.connect) as client:
            await hub.break_off()
            (request,) = await hub.wait_heard("hub:connect")
            await hub.reply(request, "hub:error", error("unauthorized"))
            assert (await refusal(anext(client))).code == "unauthorized"
        nursery.cancel_scope.cancel()
    assert len(hub.times) == 2


async def accept_once(hub: Hub) -> None:
    (request,) = await hub.wait_heard("hub:connect")
    await hub.reply(request, "hub:connected", hub.welcome)


async def test_a_hub_that_accepts_and_closes_is_not_dialled_in_a_circle(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    hub = Hub()
    async with meeting(hub):
        hub.deaf = True
        await hub.break_off()
        await trio.sleep(100)
    assert len(hub.times) == 9  # 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5


async def test_without_reconnecting_a_broken_connection_is_raised_where_it_is_noticed() -> None:
    hub = Hub()
    async with meeting(hub, reconnect=False) as client:
        await hub.say(delivery("last"))
        await trio.testing.wait_all_tasks_blocked()
        await hub.break_off()
        assert (await anext(client)).data == "last"
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="the hub closed the connection"):
                await anext(client)
        with pytest.raises(DisconnectedError):
            await client.publish("t", "x")


@pytest.mark.parametrize("code", [1000, 1001, 1009])
def test_a_connection_that_the_hub_has_closed_says_so_and_is_not_written_to(code: int) -> None:
    socket = WebSocket("h", "/ws", 1_000)
    hub = WSConnection(ConnectionType.SERVER)
    hub.receive_data(socket.request)
    list(hub.events())
    socket.receive(hub.send(AcceptConnection()))
    assert not socket.ended
    assert socket.text(b"{}")
    socket.receive(hub.send(CloseConnection(code=code)))
    assert socket.ended


# Faults


async def test_a_handler_that_raises_ends_neither_the_block_nor_the_reconnecting(
    at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("broken on purpose")

    hub = Hub()
    more = {"actor": ANN, "capabilities": ["x"], "on_disconnect": fail, "on_connect": fail}
    async with meeting(hub, **more) as client:
        for number in range(1, 4):
            await hub.break_off()
            await until(lambda number=number: len(hub.heard) > number)
            await client.ping()
            assert len(hub.told("hub:register", number)) == 1
        assert calls == client.statistics().faults == 6
    assert [record.message for record in caplog.records] == [
        "on_disconnect has raised an exception",
        "on_connect has raised an exception",
    ]


@pytest.mark.parametrize(
    ("owner", "place"),
    [
        (Exchange, "request"),
        (Exchange, "post"),
        (requests.Request, "wait"),
        (pubsubd.client.exchange, "WebSocket"),
    ],
)
async def test_a_mistake_of_the_clients_own_costs_one_connection(
    at_once: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    place: str,
) -> None:
    right = getattr(owner, place)
    faulty: list[bool] = []

    def fail_once(*arguments: Any, **more: Any) -> Any:
        if faulty and faulty.pop():
            raise RuntimeError("broken on purpose")
        return right(*arguments, **more)

    monkeypatch.setattr(owner, place, fail_once)
    hub = Hub()
    async with meeting(hub, actor=ANN, capabilities=["x"]) as client:
        faulty.append(True)
        await hub.break_off()
        await until(lambda: client.statistics().faults)
        await until(lambda: client.statistics().connected)
        assert await client.publish("t", "x") == 3
        assert client.statistics().faults == 1
    assert "broken on purpose" in caplog.text


async def test_a_mistake_at_the_first_connection_is_raised_by_the_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Exchange, "post", None)
    with pytest.raises(DisconnectedError, match="of the client's own"):
        async with meeting(Hub()):
            pass
