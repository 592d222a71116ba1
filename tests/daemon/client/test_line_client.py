"""The client, against the real daemon where one can be had, else against a peer made of memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import pubsubd.client.reconnect
from pubsubd.client import (
    BufferFullError,
    Client,
    ConnectError,
    DaemonError,
    DisconnectedError,
    Message,
    open_client,
)
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from tests.running import count_receivers, serve_until_stopped, serving


@asynccontextmanager
async def clients(count: int, **limits: Any) -> AsyncIterator[list[Client]]:
    async with (
        serving(**limits) as port,
        open_client(port=port) as first,
        open_client(port=port) as second,
    ):
        yield [first, second][:count]


class Peer:
    """The other end of a client's connections, in memory: each connection is a new stream."""

    def __init__(self) -> None:
        self.streams: list[trio.StapledStream[Any, Any]] = []
        self.times: list[float] = []  # of the attempts to connect
        self.refuse = 0  # how many attempts fail from now on
        self.back = trio.Event()  # set when a connection is there that is not the first

    async def connect(self) -> trio.abc.Stream:
        self.times.append(trio.current_time())
        if self.refuse:
            self.refuse -= 1
            raise ConnectError("memory", "connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        if self.streams:
            self.back.set()
        self.streams.append(ours)
        return theirs

    async def read(self, until: bytes) -> bytes:
        """Return what the client sends on its present connection up to ``until``."""
        heard = b""
        while not heard.endswith(until):
            part = await self.streams[-1].receive_some()
            assert part, heard
            heard += bytes(part)
        return heard

    async def read_ping(self) -> bytes:
        """Return what comes before a ping, and answer that."""
        heard = b""
        while b"pub //pubsubd/ping" not in heard or not heard.endswith(b"\n"):
            heard += bytes(await self.streams[-1].receive_some())
        before, ping = heard.split(b"pub //pubsubd/ping")
        await self.say(b"pub //pubsubd/ping" + ping)
        return before

    async def say(self, data: bytes) -> None:
        await self.streams[-1].send_all(data)


class CountingStream(trio.abc.Stream):
    """A stream that keeps what is sent, send by send."""

    def __init__(self, stream: trio.abc.Stream, sends: list[bytes]) -> None:
        self._stream = stream
        self._sends = sends

    async def send_all(self, data: Any) -> None:
        self._sends.append(bytes(data))
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self._stream.aclose()


def counting(port: int, sends: list[bytes]) -> Callable[[], Awaitable[trio.abc.Stream]]:
    async def connect() -> trio.abc.Stream:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError as exc:
            raise ConnectError("there", "connection refused") from exc
        return CountingStream(stream, sends)

    return connect


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect again without waiting."""
    monkeypatch.setattr(pubsubd.client.reconnect, "BACKOFF_MAX", 0.0)


# Publishing and reading


async def test_a_message_arrives_as_it_was_published() -> None:
    async with clients(2) as (ann, bob):
        await ann.subscribe("chat/")
        await bob.publish("chat/h\u00e9llo", "gr\u00fc\u00df")
        await bob.publish(b"chat/raw", b"\x00\xff\r\npub chat/x 1 y\n")
        assert await anext(ann) == Message("chat/h\u00e9llo", "gr\u00fc\u00df".encode())
        assert await anext(ann) == Message("chat/raw", b"\x00\xff\r\npub chat/x 1 y\n")


async def test_messages_of_all_sizes_come_complete_and_in_order() -> None:
    sent = [b"%d " % number + b"x" * (number * 37 % 5000) for number in range(3000)]
    sent += [b"y" * 1024 * 1024, b"", b"z"]
    heard: list[bytes] = []

    async def publish(client: Client) -> None:
        for data in sent:
            await client.publish("n", data)

    async with clients(2) as (ann, bob), trio.open_nursery() as nursery:
        await ann.subscribe("n")
        nursery.start_soon(publish, bob)
        while len(heard) < len(sent):
            heard += [message.data for message in await ann.receive()]
    assert heard == sent


async def test_many_small_messages_share_a_send() -> None:
    sends: list[bytes] = []
    async with serving() as port, open_client(connect=counting(port, sends)) as client:
        for _ in range(6400):
            await client.publish("name", b"0123456789")
        await client.flush()
        assert (await client.request("//pubsubd/stats")).find(b'"messages_in": 6400') > 0
    assert len(sends) <= 6400 / 64 + 3


async def test_publishing_lets_other_tasks_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with clients(1) as (client,), trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for _ in range(640):
            await client.publish("n", b"")
        assert turns >= 5  # of 10, as tasks take their turns in any order
        nursery.cancel_scope.cancel()


async def test_a_full_outbox_makes_publishers_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stuck, _ = trio.testing.lockstep_stream_pair()

    async def connect() -> trio.abc.Stream:
        return stuck

    published = 0
    with trio.move_on_after(1):
        async with open_client(connect=connect) as client:
            while True:
                await client.publish("n", b"x" * 1000)
                published += 1
    assert 256 <= published <= 600  # what is being sent, and as much again


async def test_flush_returns_when_the_daemon_has_carried_out_everything() -> None:
    async with clients(2) as (ann, bob):
        await bob.publish("n", b"x")
        await bob.flush()
        assert b'"messages_in": 1,' in await ann.request("//pubsubd/stats")
        assert await bob.ping() > 0
        assert bob.statistics().confirmed == 1


async def test_leaving_the_block_delivers_what_was_published() -> None:
    async with serving() as port, open_client(port=port) as ann:
        await ann.subscribe("n")
        async with open_client(port=port) as bob:
            for number in range(1000):
                await bob.publish("n", b"%d" % number)
        # Everything is there already: it is read without waiting for the daemon.
        assert [(await anext(ann)).data for _ in range(1000)] == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "bad-name"),
        ("a b", "bad-name"),
        ("a\nsub x", "bad-name"),
        ("a\r", "bad-name"),
        (b"\xff", "bad-name"),
        ("\udcff", "bad-name"),
        ("n" * 1025, "name-too-long"),
        ("//pubsubd/ping", "bad-name"),
    ],
)
async def test_a_name_that_is_not_legal_is_never_sent(name: str | bytes, code: str) -> None:
    sends: list[bytes] = []
    async with serving() as port, open_client(connect=counting(port, sends)) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.publish(name, b"x")
        assert caught.value.code == code
        if not (isinstance(name, str) and name.startswith("//pubsubd/")):
            with pytest.raises(ProtocolError):
                await client.subscribe("good", name)
        await client.publish("fine", b"x")
    assert b"".join(sends).startswith(b"pub fine 1 x\n")


async def test_data_over_max_payload_is_never_sent() -> None:
    async with serving() as port, open_client(port=port, max_payload=10) as client:
        with pytest.raises(ProtocolError, match="payload-too-large"):
            await client.publish("n", b"x" * 11)
        await client.publish("n", b"x" * 10)


async def test_receive_returns_all_that_has_come() -> None:
    async with clients(1) as (client,):
        await client.subscribe("n")
        for data in (b"1", b"2", b"3"):
            await client.publish("n", data)
        await client.flush()  # the messages were sent to us before the answer
        assert await client.receive() == [Message("n", data) for data in (b"1", b"2", b"3")]
        assert client.statistics().buffered_bytes == 0


async def test_several_tasks_may_read_and_each_message_goes_to_one_of_them() -> None:
    heard: list[int] = []
    readers = 3

    async def read(client: Client) -> None:
        async for message in client:
            if not message.data:
                break
            heard.append(int(message.data))

    async with clients(1) as (client,), trio.open_nursery() as nursery:
        await client.subscribe("n")
        for _ in range(readers):
            nursery.start_soon(read, client)
        for number in range(5000):
            await client.publish("n", b"%d" % number)
        for _ in range(readers):
            await client.publish("n", b"")
    assert sorted(heard) == list(range(5000))


# Subscribing


async def test_a_subscription_is_in_force_when_subscribe_returns() -> None:
    async with clients(2) as (ann, bob):
        await ann.subscribe("a", "b", b"c")
        assert await count_receivers(bob, "xax") == 1
        assert ann.statistics().subscriptions == 3


async def test_unsubscribing_ends_it_and_spares_the_others() -> None:
    async with clients(1) as (client,):
        await client.subscribe("a", "b")
        await client.unsubscribe("a")
        await client.publish("a", b"no")
        await client.publish("b", b"yes")
        assert await anext(client) == Message("b", b"yes")


async def test_everything_is_a_subscription_of_its_own() -> None:
    async with serving() as port, open_client(port=port) as client:
        await client.subscribe("a", everything=True)
        for name in ("a", "//x/y", "z"):
            await client.publish(name, b"1")
        assert [(await anext(client)).name for _ in range(3)] == ["a", "//x/y", "z"]
        await client.unsubscribe(everything=True)
        for name in ("z", "a"):
            await client.publish(name, b"2")
        assert (await anext(client)).name == "a"
        with pytest.raises(ProtocolError, match="not-subscribed"):
            await client.unsubscribe(everything=True)
        with pytest.raises(ProtocolError, match="bad-name"):
            await client.subscribe("")


async def test_unsubscribing_what_is_not_subscribed_is_refused_here() -> None:
    async with clients(1) as (client,):
        await client.subscribe("a")
        with pytest.raises(ProtocolError, match="not-subscribed"):
            await client.unsubscribe("a", "b")
        assert await count_receivers(client, "a") == 1


async def test_too_many_subscriptions_are_told_and_none_of_them_is_kept() -> None:
    async with clients(2, max_subscriptions=3) as (ann, bob):
        await ann.subscribe("one")
        with pytest.raises(DaemonError) as caught:
            await ann.subscribe("two", "three", "four", "five")
        assert caught.value.code == "too-many-subscriptions"
        await ann.flush()
        assert ann.statistics().subscriptions == 1
        assert [await count_receivers(bob, name) for name in ("one", "two", "five")] == [1, 0, 0]
        await ann.subscribe("six", "seven")


async def test_a_subscriber_that_leaves_is_forgotten_at_once() -> None:
    async with serving() as port, open_client(port=port) as bob:
        async with open_client(port=port) as ann:
            await ann.subscribe("n")
        while await count_receivers(bob, "n"):
            pass  # nothing is published that could tell the daemon


# Requests


async def test_each_request_gets_its_own_answer() -> None:
    answers: dict[str, bytes] = {}

    async def ask(client: Client, name: str) -> None:
        answers[name] = await client.request("//pubsubd/explain", name)

    async with clients(1) as (client,), trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, client, f"name{number}")
    assert len(answers) == 20
    assert all(b'"%b"' % name.encode() in answer for name, answer in answers.items())


async def test_what_is_wrong_with_a_request_is_raised_by_it() -> None:
    async with clients(1) as (client,):
        with pytest.raises(DaemonError) as caught:
            await client.request("//pubsubd/nonsense")
        assert caught.value.code == "unknown-request"
        with pytest.raises(DaemonError) as caught:
            await client.request("//pubsubd/explain", b"a b")
        assert caught.value.code == "bad-request"
        with pytest.raises(ProtocolError):
            await client.request("chat/main")
        await client.flush()


async def test_the_answer_to_a_cancelled_call_is_nobodys_message() -> None:
    async with clients(1) as (client,):
        await client.subscribe("//pubsubd/", "n")
        for _ in range(3):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.flush)
                    nursery.start_soon(client.request, "//pubsubd/explain", "one")
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        assert b'"two"' in await client.request("//pubsubd/explain", "two")
        await client.publish("n", b"x")
        assert await anext(client) == Message("n", b"x")


async def test_what_the_daemon_says_of_itself_can_be_read() -> None:
    async with clients(1, stats_interval=0.01) as (ann,):
        await ann.subscribe("//pubsubd/stats")
        message = await anext(ann)
        assert message.name == "//pubsubd/stats"
        assert message.data.startswith(b"{")


async def test_a_message_is_not_taken_for_the_answer_to_another_question() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.flush)
        await peer.read(b"0 \n")
        await peer.say(b"pub //pubsubd/events 1 x\n")
        assert await anext(client) == Message("//pubsubd/events", b"x")
        await peer.say(b"pub //pubsubd/ping 0 \n")


# Faults


async def test_no_connection_is_one_exception_that_says_why() -> None:
    async with serving() as port:
        pass
    with pytest.raises(ConnectError) as caught:
        async with open_client(port=port):
            raise AssertionError
    assert str(caught.value) == f"cannot connect to 127.0.0.1:{port}: connection refused"
    with pytest.raises(ConnectError, match="no such file or directory"):
        async with open_client(unix="/nonexistent/socket"):
            raise AssertionError


async def test_a_unix_socket_does_as_well(tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    async with serving(unix=path), open_client(unix=path) as client:
        await client.subscribe("n")
        await client.publish("n", b"x")
        assert await anext(client) == Message("n", b"x")


async def test_an_exception_leaves_the_block_as_it_is() -> None:
    async with serving() as port:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  (a block is what this is about)
            async with open_client(port=port) as client:
                await client.publish("n", b"x")
                raise ZeroDivisionError


async def test_a_cancelled_block_ends_and_raises_nothing() -> None:
    async with serving() as port:
        with trio.CancelScope() as scope:
            async with open_client(port=port) as client:
                scope.cancel()
                await anext(client)
        assert scope.cancelled_caught


async def test_a_closed_client_says_so() -> None:
    async with serving() as port:
        async with open_client(port=port) as client:
            await client.subscribe("n")
        for call in (
            client.publish("n", b""),
            client.flush(),
            client.subscribe("m"),
            anext(client),
        ):
            with pytest.raises(trio.ClosedResourceError):
                await call


async def test_a_cancelled_call_does_nothing() -> None:
    sends: list[bytes] = []
    async with serving() as port, open_client(connect=counting(port, sends)) as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            for call in (
                lambda: client.publish("n", b"x"),
                client.flush,
                lambda: client.request("//pubsubd/stats"),
                client.receive,
            ):
                with pytest.raises(trio.Cancelled):
                    await call()
        await client.flush()
    assert len(sends) == 1


async def test_without_reconnecting_a_broken_connection_is_raised_where_it_is_noticed() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect, reconnect=False) as client:
        await peer.say(b"pub n 4 last\n")
        await peer.streams[-1].aclose()
        assert await anext(client) == Message("n", b"last")
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="the daemon closed the connection"):
                await anext(client)
        with pytest.raises(DisconnectedError):
            await client.publish("n", b"x")


async def test_the_daemons_reason_for_closing_is_what_is_raised() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect, reconnect=False) as client:
        await peer.say(wire.error_frame(ProtocolError("slow-consumer", "9000000 bytes waiting")))
        await peer.streams[-1].aclose()
        with pytest.raises(DaemonError) as caught:
            await client.receive()
        assert (caught.value.code, caught.value.text) == ("slow-consumer", "9000000 bytes waiting")
        assert str(caught.value) == "slow-consumer: 9000000 bytes waiting"


async def test_what_the_daemon_refuses_ends_a_client_that_would_repeat_it() -> None:
    lost: list[PubsubdError] = []
    async with (
        serving(max_payload=100) as port,
        open_client(port=port, on_disconnect=lost.append) as client,
    ):
        await client.publish("n", b"x" * 101)
        for _ in range(3):
            with pytest.raises(DaemonError) as caught:
                await client.flush()
            assert caught.value.code == "payload-too-large"
        assert client.statistics().connections == 1
    assert [type(error) for error in lost] == [DaemonError]


async def test_a_fault_that_was_not_told_before_is_raised_when_the_block_ends() -> None:
    async with serving(max_payload=100) as port:
        with pytest.raises(DaemonError, match="payload-too-large"):
            async with open_client(port=port) as client:
                await client.publish("n", b"x" * 101)


async def test_a_peer_that_speaks_something_else_ends_the_client() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client:
        await peer.say(b"SSH-2.0-OpenSSH_9.2p1\r\n")
        with pytest.raises(DisconnectedError, match="does not speak this protocol"):
            await client.receive()
    assert len(peer.times) == 1


async def test_an_objection_that_no_call_has_caused_is_raised_once() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client:
        await peer.say(wire.error_frame(ProtocolError("bad-name", "of old")) + b"pub n 1 x\n")
        with pytest.raises(DaemonError, match="bad-name: of old"):
            await anext(client)
        assert await anext(client) == Message("n", b"x")


async def test_control_characters_in_the_daemons_text_are_escaped() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client:
        await peer.say(wire.frame(b"//pubsubd/error", b"bad-name \x1b[31m \\x1b"))
        with pytest.raises(DaemonError) as caught:
            await anext(client)
    assert caught.value.text == "\\x1b[31m \\x1b"


async def test_too_many_connections_is_what_the_one_too_many_hears() -> None:
    async with serving(max_connections=1) as port, open_client(port=port) as first:
        await first.flush()
        async with open_client(port=port, reconnect=False) as second:
            with pytest.raises(DaemonError) as caught:
                await second.receive()
    assert caught.value.code == "too-many-connections"


# Bounds


async def test_a_program_that_does_not_read_stops_the_reading() -> None:
    theirs, ours = trio.testing.lockstep_stream_pair()
    sent = 0

    async def connect() -> trio.abc.Stream:
        return theirs

    async def send() -> None:
        nonlocal sent
        for _ in range(500):
            await ours.send_all(wire.frame(b"n", b"x" * 1000))
            sent += 1

    async with (
        open_client(connect=connect, receive_buffer=100_000) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert sent == 87  # each counts its name, its data and 160 bytes
        assert client.statistics().buffered_bytes == 87 * 1161
        for _ in range(500):
            await anext(client)  # and it goes on when there is room


async def test_a_call_in_the_middle_of_a_full_buffer_gets_its_answer() -> None:
    heard: list[int] = []
    async with (
        serving() as port,
        open_client(port=port) as bob,
        open_client(port=port, receive_buffer=10_000) as ann,
    ):
        await ann.subscribe("n")
        for number in range(200):
            await bob.publish("n", b"%d" % number)
        await bob.flush()
        async for message in ann:
            heard.append(int(message.data))
            await ann.subscribe(f"m{len(heard)}")
            if len(heard) == 200:
                break
    assert heard == list(range(200))


async def test_an_answer_behind_more_than_the_client_may_keep_is_given_up() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect, receive_buffer=10_000) as client:
        async with trio.open_nursery() as nursery:

            async def flush() -> None:
                with pytest.raises(BufferFullError):
                    await client.flush()

            nursery.start_soon(flush)
            for _ in range(50):
                await peer.say(wire.frame(b"n", b"x" * 1000))
                await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().buffered_bytes <= 40_000 + 1_161
        # Later on, when the messages have been read, all is well.
        for _ in range(50):
            await anext(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.flush)
            await peer.read_ping()
            await peer.say(b"pub //pubsubd/ping 0 \n")


# Reconnecting


async def test_subscriptions_are_renewed_with_one_send(at_once: None) -> None:
    sends: list[bytes] = []
    events: list[str] = []
    async with trio.open_nursery() as nursery:
        port, stop = await nursery.start(serve_until_stopped)
        async with open_client(
            connect=counting(port, sends),
            on_disconnect=lambda why: events.append(type(why).__name__),
            on_connect=lambda: events.append("connected"),
        ) as ann:
            await ann.subscribe(*(f"topic{number}/" for number in range(1000)), everything=True)
            await ann.unsubscribe("topic500/")
            await ann.flush()
            sends.clear()
            await stop()
            port, _ = await nursery.start(serve_until_stopped, port)
            async with open_client(port=port) as bob:
                while not await count_receivers(bob, "topic999/"):
                    pass
                await bob.publish("anything", b"back, too")
                assert await anext(ann) == Message("anything", b"back, too")
                await bob.publish("topic7/x", b"back")
                assert await anext(ann) == Message("topic7/x", b"back")
        nursery.cancel_scope.cancel()
    assert [(send.count(b"sub\n"), send.count(b"sub ")) for send in sends] == [(1, 999)]
    assert b"topic500/" not in sends[0]
    assert events == ["DisconnectedError", "connected"]


async def test_publishing_waits_for_the_connection_and_loses_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peer = Peer()

    async def publish() -> None:
        await client.publish("n", b"1")
        await client.publish("n", b"2")

    async with open_client(connect=peer.connect) as client, trio.open_nursery() as nursery:
        peer.refuse = 3
        await peer.streams[-1].aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert not client.statistics().connected
        nursery.start_soon(publish)
        with trio.move_on_after(0.001) as scope:
            await client.publish("n", b"cancelled")
        assert scope.cancelled_caught
        await peer.back.wait()
        assert await peer.read(b"2\n") == b"pub n 1 1\npub n 1 2\n"
        nursery.start_soon(client.flush)
        await peer.read_ping()


async def test_what_a_broken_connection_may_have_lost_is_told_by_flush(at_once: None) -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client, trio.open_nursery() as nursery:
        await client.publish("n", b"1")
        await peer.read(b"1\n")
        await peer.streams[-1].aclose()
        while client.statistics().connections < 2:
            await trio.lowlevel.checkpoint()
        with pytest.raises(DisconnectedError):
            await client.flush()
        nursery.start_soon(client.flush)  # told once; and nothing is sent twice
        assert await peer.read_ping() == b""


async def test_what_was_not_sent_yet_is_sent_by_the_next_connection(at_once: None) -> None:
    peer = Peer()
    stuck, theirs = trio.testing.lockstep_stream_pair()
    streams: list[trio.abc.Stream] = [stuck]

    async def connect() -> trio.abc.Stream:
        return streams.pop() if streams else await peer.connect()

    async def ask() -> None:
        with pytest.raises(DisconnectedError):
            await client.request("//pubsubd/stats")

    async with open_client(connect=connect) as client, trio.open_nursery() as nursery:
        await client.publish("n", b"taken")
        await trio.testing.wait_all_tasks_blocked()  # in a send that nobody receives
        nursery.start_soon(client.subscribe, "s")
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await client.publish("n", b"kept")
        await theirs.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await peer.read_ping() == b"sub s\npub n 4 kept\n"
        with pytest.raises(DisconnectedError):
            await client.flush()


async def test_what_was_confirmed_is_not_in_doubt_later(at_once: None) -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client, trio.open_nursery() as nursery:
        await client.publish("n", b"1")
        nursery.start_soon(client.flush)
        await peer.read_ping()
        await trio.testing.wait_all_tasks_blocked()
        await peer.streams[-1].aclose()
        while client.statistics().connections < 2:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(client.flush)
        await peer.read_ping()


async def test_a_subscription_under_way_survives_a_broken_connection(at_once: None) -> None:
    peer = Peer()
    async with open_client(connect=peer.connect) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.subscribe, "n")
        await peer.read(b"0 \n")  # the ping behind it, which is never answered
        await peer.streams[-1].aclose()
        while client.statistics().connections < 2:
            await trio.lowlevel.checkpoint()
        assert await peer.read_ping() == b"sub n\n"


async def test_the_waits_between_attempts_double_up_to_half_a_minute(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def longest(least: float, most: float) -> float:
        asked.append((least, most))
        return most

    monkeypatch.setattr(random, "uniform", longest)
    peer = Peer()
    async with open_client(connect=peer.connect):
        peer.refuse = 8
        await peer.streams[-1].aclose()
        await peer.back.wait()
        gaps = [after - before for before, after in zip(peer.times, peer.times[1:], strict=False)]
        assert gaps == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert asked == [(0, most) for most in gaps]  # full jitter


async def test_a_daemon_that_accepts_and_closes_is_not_dialled_in_a_circle(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    peer = Peer()

    async def connect() -> trio.abc.Stream:
        stream = await peer.connect()
        await peer.streams[-1].aclose()
        return stream

    async with open_client(connect=connect):
        await trio.sleep(100)
    assert len(peer.times) == 9  # 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5


async def test_after_a_long_connection_the_first_wait_is_short_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    peer = Peer()
    async with open_client(connect=peer.connect):
        peer.refuse = 5
        await peer.streams[-1].aclose()
        await peer.back.wait()
        await trio.sleep(60)
        peer.back = trio.Event()
        before = trio.current_time()
        await peer.streams[-1].aclose()
        await peer.back.wait()
        assert peer.times[-1] - before == pytest.approx(0.5, abs=0.01)


# Faults


async def test_a_handler_that_raises_ends_neither_the_block_nor_the_reconnecting(
    at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("broken on purpose")

    peer = Peer()
    async with (
        open_client(connect=peer.connect, on_disconnect=fail, on_connect=fail) as client,
        trio.open_nursery() as nursery,
    ):
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client.subscribe, "n")
        assert await peer.read_ping() == b"sub n\n"
        for number in range(2, 5):
            await trio.testing.wait_all_tasks_blocked()
            await peer.streams[-1].aclose()
            while client.statistics().connections < number:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(client.flush)
            assert await peer.read_ping() == b"sub n\n"
        assert calls == client.statistics().faults == 6
    # Each of them with its traceback, once a minute.
    assert [record.message for record in caplog.records] == [
        "on_disconnect has raised an exception",
        "on_connect has raised an exception",
    ]
    assert {record.name for record in caplog.records} == {"pubsubd.client"}
    assert caplog.text.count("ValueError: broken on purpose") == 2


async def test_a_mistake_of_the_clients_own_costs_one_connection_and_is_told(
    at_once: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed, faulty = wire.Decoder.feed, [True]

    def fail_once(self: wire.Decoder, data: bytes) -> Any:
        if faulty and faulty.pop():
            raise RuntimeError("broken on purpose")
        return feed(self, data)

    monkeypatch.setattr(wire.Decoder, "feed", fail_once)
    peer = Peer()
    reasons: list[BaseException] = []

    async def ask() -> None:
        with pytest.raises(DisconnectedError, match="of the client's own"):
            await client.request("//pubsubd/stats")

    async with open_client(connect=peer.connect, on_disconnect=reasons.append) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await peer.read(b"ping 0 \n")
            await peer.say(b"pub n 1 1\n")
        while client.statistics().connections < 2:
            await trio.lowlevel.checkpoint()
        await peer.say(b"pub n 1 2\n")
        assert await anext(client) == Message("n", b"2")
        assert client.statistics().faults == 1
    assert isinstance(reasons[0].__cause__, BaseException)
    assert "broken on purpose" in caplog.text


async def test_without_reconnecting_a_mistake_of_the_clients_own_is_what_calls_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire.Decoder, "feed", None)
    peer = Peer()
    async with open_client(connect=peer.connect, reconnect=False) as client:
        await peer.say(b"pub n 1 1\n")
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="of the client's own"):
                await anext(client)


async def test_a_mistake_around_the_connections_ends_the_client_and_calls_raise_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pubsubd.client.reconnect, "dial_again", None)
    peer = Peer()
    async with open_client(connect=peer.connect) as client:
        await peer.streams[-1].aclose()
        with pytest.raises(DisconnectedError, match="of the client's own"):
            await anext(client)


async def test_whatever_connect_raises_it_is_called_again(
    at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    peer, failures = Peer(), [OSError("one"), ValueError("two"), KeyError("three")]

    async def connect() -> trio.abc.Stream:
        if peer.streams and failures:
            raise failures.pop()
        return await peer.connect()

    async with open_client(connect=connect) as client:
        await peer.streams[-1].aclose()
        await peer.back.wait()
        assert client.statistics().faults == 3
    assert "connect has raised an exception" in caplog.text


async def test_a_request_over_its_rate_is_told_as_such() -> None:
    async with serving(request_rate=0.01) as port, open_client(port=port) as client:
        await client.request("//pubsubd/stats")
        with pytest.raises(DaemonError, match="rate-limited"):
            await client.request("//pubsubd/stats")
        await client.flush()
