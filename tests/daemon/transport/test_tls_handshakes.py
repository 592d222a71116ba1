"""Handshakes of TLS: all in one task, which nobody who shakes hands depends on."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
import trio
import trio.testing

from pubsubd.protocol.limits import MIB, TURN, Limits
from pubsubd.transport.connection import Connection, open_connection
from pubsubd.transport.lane import Lane
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.server import Server
from pubsubd.transport.tls import TlsSocket, client_context, explain
from pubsubd.transport.tls_handshakes import TlsHandshakes
from tests.certificates import Certificates
from tests.daemon.transport.test_tls import flags, server_side
from tests.daemons import Daemon, Line, frame

SAID = b"sub a\npub a 5 hello\n"


class Member:
    """One that shakes hands, and is done with its nth read; it may fail."""

    def __init__(self, reads: int = 1, error: Exception | None = None) -> None:
        self.near, self.far = socket.socketpair()
        self.far.send(bytes(reads))
        self.left = reads
        self.error = error
        self.shaken = self.begun = 0

    def fileno(self) -> int:
        return self.near.fileno()

    def shake(self) -> bool:
        if self.error is not None:
            raise self.error
        self.shaken += 1
        self.near.recv(1)
        self.left -= 1
        return not self.left

    def begin(self) -> None:
        self.begun += 1


class CountingLane(Lane):
    """A lane that notes what those who enter are likely to take."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: list[float] = []

    def enter(self, cost: float) -> bool:
        self.costs.append(cost)
        return super().enter(cost)


@pytest.fixture
def members() -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(reads: int = 1, error: Exception | None = None) -> Member:
        made.append(Member(reads, error))
        return made[-1]

    yield make
    for member in made:
        member.near.close()
        member.far.close()


@contextlib.contextmanager
def hello(certificates: Certificates) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """A server's end, to which a client has said hello, and the client's end."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    client = TlsSocket(far, client_context(str(certificates.ca)), "localhost")
    client.greet()
    with near, far:
        yield TlsSocket(near, server_side(certificates)), client


async def until_heard(client: TlsSocket, what: bytes) -> None:
    heard = b""
    while what not in heard:
        await trio.lowlevel.wait_readable(client.raw)
        with contextlib.suppress(BlockingIOError):
            piece = client.recv(MIB)
            assert piece, "it has ended"
            heard += piece


async def until_secure(near: TlsSocket, client: TlsSocket) -> None:
    while not client.secure:
        await trio.lowlevel.wait_readable(client.raw)
        with contextlib.suppress(BlockingIOError):
            client.recv(MIB)
    while not near.secure:
        await trio.lowlevel.checkpoint()


async def test_a_connection_has_a_task_once_it_has_said_something(
    certificates: Certificates,
) -> None:
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        await trio.testing.wait_all_tasks_blocked()
        before = len(nursery.child_tasks)
        with hello(certificates) as (near, client):
            open_connection(server, near, "client", partial(LineProtocol, server.broker))
            await until_secure(near, client)
            assert len(server.handshakes) == 1
            assert len(nursery.child_tasks) == before
            client.send(SAID)
            await until_heard(client, b"hello")
            assert len(server.handshakes) == 0
            assert len(nursery.child_tasks) == before + 1
        nursery.cancel_scope.cancel()


async def test_whoever_is_told_to_end_has_a_task_for_that(certificates: Certificates) -> None:
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        await trio.testing.wait_all_tasks_blocked()
        with hello(certificates) as (near, client):
            peer = open_connection(server, near, "client", partial(LineProtocol, server.broker))
            await until_secure(near, client)
            peer.end("killed", "on purpose")
            await until_heard(client, b"killed")
            assert len(server.handshakes) == 0
            client.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_one_that_cannot_be_added_shakes_hands_in_its_own_task(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_member: object) -> None:
        raise RuntimeError("on purpose")

    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(server.handshakes, "add", fail)
        with hello(certificates) as (near, client):
            open_connection(server, near, "client", partial(LineProtocol, server.broker))
            await until_secure(near, client)
            client.send(b"pub //pubsubd/ping 5 hello\n")
            await until_heard(client, b"hello")
            client.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
        assert sum(server.broker.faults.counts.values()) == 1
        nursery.cancel_scope.cancel()


async def test_who_hangs_up_in_a_handshake_is_no_fault(certificates: Certificates) -> None:
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        await trio.testing.wait_all_tasks_blocked()
        with hello(certificates) as (near, client):
            peer = open_connection(server, near, "client", partial(LineProtocol, server.broker))
            client.raw.shutdown(socket.SHUT_WR)
            while peer.ending is None and server.connections:
                await trio.lowlevel.checkpoint()
            client.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
        assert peer.ending is not None
        assert (peer.ending.code, peer.ending.text) == ("tls-failed", "it was cut off")
        assert not server.broker.faults.counts
        nursery.cancel_scope.cancel()


def test_an_error_that_is_not_of_openssl_is_told_in_its_words() -> None:
    assert explain(ssl.SSLError(1, "too much that it has caused")) == "too much that it has caused"


async def test_a_task_that_cannot_be_started_at_first_is_started(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, faults = Connection.begin, [RuntimeError("on purpose")] * 2

    def fail(connection: Connection) -> None:
        if faults:
            raise faults.pop()
        begin(connection)

    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        await trio.testing.wait_all_tasks_blocked()
        with hello(certificates) as (near, client):
            peer = open_connection(server, near, "client", partial(LineProtocol, server.broker))
            await until_secure(near, client)
            monkeypatch.setattr(Connection, "begin", fail)
            for _ in range(2):
                with pytest.raises(RuntimeError):
                    server.handshakes.remove(next(iter(server.connections)))
            peer.end("killed", "on purpose")
            await until_heard(client, b"killed")
            client.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
        near_end, far_end = socket.socketpair()
        with near_end, far_end:
            near_end.setblocking(False)
            faults.append(RuntimeError("on purpose"))
            open_connection(server, near_end, "plain", partial(LineProtocol, server.broker))
            far_end.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_one_that_fails_costs_the_others_nothing(members: Callable[..., Member]) -> None:
    handshakes = TlsHandshakes(Lane())
    silent, bad = members(0), members(1, RuntimeError("on purpose"))
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="on purpose")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handshakes.run)
            await trio.testing.wait_all_tasks_blocked()
            handshakes.add(silent)
            handshakes.add(bad)
            assert (silent.begun, bad.begun) == (0, 0)
    assert (silent.begun, bad.begun) == (1, 1)
    late = members()
    handshakes.add(late)  # nobody would take what it says
    assert late.begun == 1
    async with trio.open_nursery() as nursery:  # it is started again
        nursery.start_soon(handshakes.run)
        await trio.testing.wait_all_tasks_blocked()
        good = members(2)
        handshakes.add(good)
        while not good.begun:
            await trio.lowlevel.checkpoint()
        assert good.shaken == 2
        nursery.cancel_scope.cancel()


async def test_a_connection_is_begun_once(members: Callable[..., Member]) -> None:
    handshakes = TlsHandshakes(Lane())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handshakes.run)
        await trio.testing.wait_all_tasks_blocked()
        member, other = members(), members(0)
        handshakes.add(member)
        handshakes.remove(other)  # it was never there
        handshakes.remove(member)
        handshakes.remove(member)
        await trio.testing.wait_all_tasks_blocked()
        assert (member.shaken, member.begun, other.begun) == (0, 1, 0)
        nursery.cancel_scope.cancel()


async def test_many_handshakes_take_half_a_turn_at_once_and_few_less(
    members: Callable[..., Member],
) -> None:
    clock = count()
    lane = CountingLane()
    handshakes = TlsHandshakes(lane, lambda: next(clock) * TURN / 4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handshakes.run)
        await trio.testing.wait_all_tasks_blocked()
        many = [members() for _ in range(8)]
        for member in many:
            handshakes.add(member)
        while not all(member.begun for member in many):
            await trio.lowlevel.checkpoint()
        assert max(lane.costs) == TURN / 2
        assert lane.costs[-1] < TURN / 10  # the last one
        assert len(many) / 2 <= len(lane.costs) < len(many)  # each takes a quarter of a turn
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("ended", [False, True])
def test_what_comes_with_the_end_of_a_handshake_is_not_lost(
    start: Callable[..., Daemon], certificates: Certificates, version: ssl.TLSVersion, ended: bool
) -> None:
    context = certificates.client_context()
    context.minimum_version = context.maximum_version = version
    come, made = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(come, made, server_hostname="localhost")
    line = Line(start(*flags(certificates)).address)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            line.say(made.read())
            come.write(line.sock.recv(MIB))
        else:
            break
    client.write(SAID)
    if ended:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.unwrap()
    line.say(made.read())  # with TLS 1.3, one segment with the end of the handshake
    heard = b""
    while frame("a", b"hello") not in heard:
        come.write(line.sock.recv(MIB))
        with contextlib.suppress(ssl.SSLWantReadError):
            heard += client.read(MIB)
    line.close()
