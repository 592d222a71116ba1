"""When full collections are made: seldom while there are many connections, soon after they left."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Callable

import pytest
import trio

from pubsubd.daemon import run as daemon
from pubsubd.daemon.garbage import Garbage
from pubsubd.settings.config import Config, TlsFiles
from pubsubd.transport.connection import Connection
from tests.certificates import Certificates
from tests.daemons import frame, wait_until
from tests.running import running


class Stage:
    """A daemon as its garbage sees it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.connections = self.collections = 0
        self.crowd = False
        self.found: Callable[[], object] = lambda: None
        self.garbage = Garbage(
            lambda: self.connections, collect=self._collect, clock=lambda: self.now
        )

    def _collect(self, crowd: bool) -> None:
        self.collections += 1
        self.crowd = crowd
        self.found()

    def come(self, count: int) -> None:
        self.connections += count
        self.pass_time(1)

    def leave(self, count: int) -> None:
        self.connections -= count
        self.pass_time(1)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.garbage.sweep()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_crowd_that_comes_costs_no_collection(stage: Stage) -> None:
    for _ in range(20):
        stage.come(500)
    assert stage.collections == 0


def test_when_most_of_a_crowd_has_left_and_no_more_leave_there_is_one(stage: Stage) -> None:
    stage.come(10_000)
    stage.leave(7_499)
    stage.pass_time(1)
    assert stage.collections == 0
    stage.leave(1)
    stage.leave(1_000)
    assert stage.collections == 0
    stage.pass_time(1)
    assert stage.collections == 1
    assert stage.crowd
    stage.pass_time(100)
    assert stage.collections == 1


def test_however_many_come_and_go_there_is_none_for_that(stage: Stage) -> None:
    for _ in range(200):
        stage.come(900)
        stage.leave(900)
    assert stage.collections == 0


def test_nothing_waits_for_more_than_ten_minutes(stage: Stage) -> None:
    stage.pass_time(599)
    assert stage.collections == 0
    stage.pass_time(1)
    assert stage.collections == 1
    stage.pass_time(1_200)
    assert stage.collections == 3


def test_python_makes_none_of_its_own_meanwhile_and_all_of_them_afterwards(stage: Stage) -> None:
    before = gc.get_threshold()
    with stage.garbage.keep():
        full = gc.get_stats()[2]["collections"]
        kept = [[i] for i in range(400_000)]
        assert gc.get_stats()[2]["collections"] == full
    del kept
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_was_there_a_second_ago_is_looked_at_by_full_collections_alone(stage: Stage) -> None:
    with stage.garbage.keep():
        table = {b"%d" % number: [number] for number in range(3)}
        stage.pass_time(1)
        assert not any(table is one for one in gc.get_objects())
        cycle: list[object] = []
        cycle.append(cycle)
        number = id(cycle)
        stage.pass_time(1)
        del cycle
        collected: list[bool] = []
        stage.found = lambda: collected.append(any(id(one) == number for one in gc.get_objects()))
        stage.pass_time(600)
    assert collected == [True]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("port", ["line", "hub"])
async def test_a_connection_that_has_ended_is_gone_without_a_collection(
    port: str, encrypted: bool, certificates: Certificates
) -> None:
    tls = None
    if encrypted:
        tls = TlsFiles(str(certificates.server_certificate), str(certificates.server_key))
    listen = frame("//pubsubd/ping", b"")
    half, wrongs = b"pub a 1", [b"pub a 1 xx\n", b"pub //pubsubd/ping 1 xx\n", b"quit\n"]
    if port == "hub":
        half = b'{"ty'
        wrongs = [b"{bad\n", b'{"a":' + b"[" * 5_000 + b"\n", b"{" + b" " * 3_000_000 + b"\n"]
        listen = b'{"type":"ping"}\n'
    context = certificates.client_context()

    def connect(said: bytes, *, reset: bool = False) -> None:
        sock = socket.create_connection(("127.0.0.1", ports[port]["port"]))
        if encrypted:
            sock = context.wrap_socket(sock, server_hostname="localhost")
        sock.sendall(listen)
        sock.recv(1000)
        sock.sendall(said)
        if said in wrongs:
            sock.recv(1000)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    gc.collect()  # what the last test has left would be set aside as well
    before = _alive()
    async with trio.open_nursery() as nursery:
        config = Config(port=0, hub_port=0, tls=tls)
        ports = await nursery.start(daemon.run, config)
        await trio.to_thread.run_sync(connect, half)  # which loads what is loaded when it is used
        gc.collect()
        gc.disable()
        try:
            for said in (b"", half, *wrongs):
                await trio.to_thread.run_sync(connect, said)
            await trio.to_thread.run_sync(lambda: connect(b"", reset=True))
            await trio.to_thread.run_sync(
                wait_until, lambda: _alive() <= before + 1, "they are gone"
            )
        finally:
            gc.enable()
            nursery.cancel_scope.cancel()


async def test_a_daemon_whose_metrics_were_asked_for_leaves_nothing_behind() -> None:
    gc.collect()
    before = _alive()
    async with running(Config(port=None, hub_port=0)) as ports:
        stream = await trio.open_tcp_stream("127.0.0.1", ports["hub"])
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
    gc.collect()
    assert _alive() == before


def _alive() -> int:
    """Count sessions. The daemon remembers the one that has said something last."""
    gc.unfreeze()  # what the daemon has set aside is not told of
    return sum(isinstance(one, Connection) for one in gc.get_objects())
