"""Connections that wait for what others have to do first, over real sockets in one process."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from time import thread_time
from typing import Any

import pytest
import trio
import trio.testing

from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.protocol.limits import LONG_TURN, MAX_PAUSE, TURN, Limits
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.transport.connection import Connection, open_connection
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.processor import Delay
from pubsubd.transport.server import Server
from tests.daemons import DEADLINE

PING = b"pub //pubsubd/ping 1 x\n"


@asynccontextmanager
async def connected(
    speak: type[LineProtocol] = LineProtocol,
) -> AsyncIterator[tuple[Server, trio.socket.SocketType]]:
    """A server with one connection, and its client."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        open_connection(server, ours, "client", partial(speak, server.broker))
        with trio.socket.from_stdlib_socket(theirs) as client:
            yield server, client
        nursery.cancel_scope.cancel()


class Keeping(LineProtocol):
    """Keeps what was read last."""

    last: bytes

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        work_off = self.receive

        def receive(data: bytes) -> bool:
            Keeping.last = data
            return work_off(data)

        self.receive = receive  # type: ignore[assignment]


async def test_a_connection_holds_nothing_of_what_it_has_read_while_it_waits() -> None:
    async with connected(Keeping) as (server, client):
        await client.send(b"pub name 3 abc\n" + PING)
        assert await client.recv(100) == PING
        while not server.broker.counters.messages_in:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        last, Keeping.last = Keeping.last, b""
        assert sys.getrefcount(last) == 2  # our own, and that of the question


async def ping(client: trio.socket.SocketType) -> None:
    """Say little often enough to be known for that."""
    for _ in range(30):
        await client.send(PING)
        assert await client.recv(100) == PING


@pytest.mark.parametrize("lost", [False, True], ids=["ended", "lost"])
async def test_a_connection_ends_although_its_task_cannot_be_told_at_the_first_time(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt, failed = Connection.interrupt, list[Connection]()

    def fail_once(self: Connection) -> None:
        if not failed:
            failed.append(self)
            raise RuntimeError("on purpose")
        interrupt(self)

    async with connected() as (server, client):
        await client.send(b"sub a\n" + PING)
        assert await client.recv(100) == PING
        client.shutdown(socket.SHUT_WR)  # it goes on listening
        await trio.testing.wait_all_tasks_blocked(0.01)
        (peer,) = server.broker.peers.values()
        monkeypatch.setattr(Connection, "interrupt", fail_once)
        if lost:
            client.close()
            server.broker.delivery.push(peer, PING)
        else:
            server.broker.faults.end(peer, RuntimeError())
            client.close()
        with trio.fail_after(DEADLINE):
            await server.wait_empty()
    assert failed


async def test_who_may_cause_much_waits_for_siblings_and_others_do_not() -> None:
    asked = 0
    held: Hold | None = Hold()

    def behind() -> Hold | None:
        nonlocal asked
        asked += 1
        return held

    async with connected() as (server, client):
        server.siblings.add(Other())
        server.behind = behind
        await client.send(PING)  # of who is new nobody knows how much that is
        while not asked:
            await trio.lowlevel.checkpoint()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert server.broker.counters.bytes_in == 0
        waited, held = held, None
        assert waited is not None
        waited.release()
        assert await client.recv(100) == PING


async def test_who_leaves_with_much_waits_for_siblings_between_the_steps_of_it() -> None:
    held: Hold | None = None
    waiting = trio.Event()

    def behind() -> Hold | None:
        if held is not None:
            waiting.set()
        return held

    async with connected() as (server, client):
        server.siblings.add(Other())
        server.behind = behind
        await client.send(b"".join(b"sub s/%d\n" % number for number in range(5_000)) + PING)
        assert await client.recv(100) == PING
        (connection,) = server.connections
        held = Hold()
        connection.interrupt()
        while server.connections and not waiting.is_set():
            await trio.lowlevel.checkpoint()
        left = server.broker.router.substrings
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert server.broker.router.substrings == left > 0
        waited, held = held, None
        waited.release()
        await server.wait_empty()
        assert server.broker.router.substrings == 0


async def test_a_sibling_waits_for_no_sibling() -> None:
    async with connected() as (server, client):
        server.siblings |= server.connections
        server.behind = Hold
        await client.send(PING)
        assert await client.recv(100) == PING


class Other:
    """Another connection."""

    leaving = False

    def end(self, code: str, text: str) -> None:
        raise AssertionError

    def interrupt(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""


async def test_a_long_turn_after_many_short_ones_is_followed_by_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = []

    async def pause(_connection: Connection, seconds: float) -> None:
        paused.append(seconds)
        await trio.lowlevel.checkpoint()

    def work(_peer: object, data: bytes) -> bytes:
        until = thread_time() + 1.5 * LONG_TURN
        while thread_time() < until:
            pass
        return data

    monkeypatch.setattr(Connection, "pause", pause)
    async with connected() as (server, client):
        server.without = lambda: 0.0  # in the long turn, as this machine may be busy
        server.broker.requests[b"//pubsubd/work"] = work
        await ping(client)
        paused.clear()
        for said in (PING.replace(b"ping", b"work"), PING):
            await client.send(said)
            assert await client.recv(100) == said
    assert paused
    assert all(0 < seconds <= MAX_PAUSE for seconds in paused)


def test_the_time_without_a_processor_only_grows() -> None:
    delay = Delay()
    first = delay.since()
    assert 0 <= first <= delay.since()
    delay.note()
    assert delay.since() >= 0


class Others:
    """Many who wait in the lane, over and over.

    Attributes:
        turns: that they have had.
    """

    def __init__(self, server: Server, nursery: trio.Nursery) -> None:
        self.turns = 0
        self._server = server
        for _ in range(200):
            nursery.start_soon(self._run)

    async def _run(self) -> None:
        while True:
            await self._server.lane.wait(TURN / 5)
            self.turns += 1

    async def come(self) -> None:
        """Return when they are there."""
        while not self.turns:
            await trio.lowlevel.checkpoint()
        self.turns = 0


async def test_little_that_is_left_to_send_does_not_wait_for_all_who_take_turns() -> None:
    async with connected() as (server, client), trio.open_nursery() as nursery:
        delivery, heard = server.broker.delivery, 0

        def hear(_data: bytes | Pieces) -> None:
            nonlocal heard
            heard += 1

        for number in range(14):
            peer = server.broker.join(f"p{number}", hear)
            server.broker.receive(peer, b"sub a\n")
        await ping(client)
        others = Others(server, nursery)
        await others.come()
        delivery.turn.clock = count(0, TURN).__next__  # at each look the turn is over
        await client.send(b"pub a 1 x\n")
        while heard < 14:
            await trio.lowlevel.checkpoint()
        assert others.turns < 100
        nursery.cancel_scope.cancel()


async def test_who_has_said_little_does_not_wait_for_many_who_are_new() -> None:
    def work(peer: Peer, data: bytes) -> Steps[bytes]:
        until = thread_time() + TURN / 7
        while thread_time() < until:
            pass
        server.broker.delivery.turn.end()  # there is more to do
        yield
        return data

    async with connected() as (server, client), trio.open_nursery() as nursery:
        server.broker.requests[b"//pubsubd/work"] = work
        await ping(client)
        others = Others(server, nursery)
        await others.come()
        said = PING.replace(b"ping", b"work")
        for _ in range(2):  # from the first one on, the processor's time is looked at
            await client.send(said)
            assert await client.recv(100) == said
        others.turns = 0
        await client.send(PING)
        assert await client.recv(100) == PING
        assert others.turns < 100  # it would wait for all of them
        nursery.cancel_scope.cancel()
