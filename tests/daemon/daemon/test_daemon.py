"""The daemon's life in one process: listening, ending, and what its sessions share."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pubsubd.access.users import Users
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Turn
from pubsubd.daemon import reloading
from pubsubd.daemon import run as daemon
from pubsubd.daemon.run import Config, run
from pubsubd.hub.port import Hub
from pubsubd.hub.protocol import HubProtocol
from pubsubd.protocol.errors import ConfigError, FailedError
from pubsubd.protocol.limits import LONG_TURN, MAX_PAUSE, PAUSE, TURN, HubLimits, Limits
from pubsubd.protocol.limits import MUCH as LARGE_READ
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.transport import connection as session
from pubsubd.transport import crowd as crowds
from pubsubd.transport import lane
from pubsubd.transport.connection import Connection, open_connection
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.protocol import MakeProtocol
from pubsubd.transport.server import Server
from tests.daemons import DEADLINE, Daemon, wait_until
from tests.hubs import UPGRADE, client_frame
from tests.rights import PASSWORD, rules_in


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_a_host_that_is_not_loopback_is_refused_unless_it_is_wanted(host: str) -> None:
    with pytest.raises(ConfigError, match="not loopback"):
        await run(Config(hosts=(host,), port=0, hub_port=None))


async def test_nothing_to_listen_on_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to listen on"):
        await run(Config(hosts=()))


async def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot resolve"):
        await run(Config(hosts=("no such host",), hub_port=None))


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: "):
            await run(Config(port=port, hub_port=None))


async def test_a_file_where_the_unix_socket_should_be_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("text")
    with pytest.raises(OSError, match="cannot listen on"):
        await run(Config(hosts=(), unix=str(path)))
    assert path.read_text() == "text"


async def test_a_unix_socket_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    config = Config(hosts=(), unix=str(tmp_path / "socket"))
    async with trio.open_nursery() as nursery:
        await nursery.start(run, config)
        with pytest.raises(OSError, match="cannot listen on"):
            await run(config)
        assert (tmp_path / "socket").exists()
        nursery.cancel_scope.cancel()
    assert not (tmp_path / "socket").exists()


async def test_the_ports_are_told_and_written_and_the_file_goes_with_the_daemon(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ports"
    config = Config(port=0, hub_port=None, unix=str(tmp_path / "socket"), ports_file=str(file))
    async with trio.open_nursery() as nursery:
        ports = await nursery.start(run, config)
        assert json.loads(file.read_text()) == ports
        assert ports["line"]["port"] > 0
        assert ports["unix"] == config.unix
        assert [name for name in os.listdir(tmp_path) if name.startswith("ports")] == ["ports"]
        for address in (("127.0.0.1", ports["line"]["port"]), config.unix):
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            with trio.socket.socket(family) as client:
                await client.connect(address)
                await client.send(b"pub //pubsubd/ping 1 x\n")
                assert await client.recv(100) == b"pub //pubsubd/ping 1 x\n"
        nursery.cancel_scope.cancel()
    assert not file.exists()


async def test_signals_that_came_before_it_started_end_it_at_once() -> None:
    await run(Config(port=0, hub_port=None), early_signals=[15])


async def test_a_reload_whose_files_do_not_answer_is_given_up_and_no_second_one_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reloading, "READ_TIMEOUT", 0.01)
    caplog.set_level("INFO", "pubsubd")
    fifo = tmp_path / "users"
    config = Config(port=0, hub_port=None)
    reads = []

    def reload() -> Config:
        reads.append(fifo.read_bytes())
        return config

    async def told(text: str) -> None:
        await trio.to_thread.run_sync(wait_until, lambda: text in caplog.text, text)

    os.mkfifo(fifo)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run, config, reload=reload))
        os.kill(os.getpid(), signal.SIGHUP)
        await told("have not been read in 0.01 s")
        os.kill(os.getpid(), signal.SIGHUP)
        await told("of the reload before have not been read yet")
        monkeypatch.setattr(reloading, "READ_TIMEOUT", 60.0)
        fifo.write_bytes(b"")
        await trio.to_thread.run_sync(wait_until, lambda: len(reads) == 1, "it was read")
        fifo.unlink()
        fifo.touch()
        with trio.fail_after(DEADLINE):
            while "event=reloaded" not in caplog.text:
                os.kill(os.getpid(), signal.SIGHUP)  # again: the thread is free a moment later
                await trio.sleep(0.01)
        assert len(reads) >= 2
        nursery.cancel_scope.cancel()


class Crowd:
    """Sessions over socket pairs, with their far ends, on the test's clock."""

    def __init__(self, nursery: trio.Nursery, limits: Limits) -> None:
        self.told: list[tuple[int, int]] = []
        self.server = Server(limits, nursery, self._note)
        self.server.start()
        self.ends: list[trio.socket.SocketType] = []

    def _note(self, peer: Peer, waiting: int) -> None:
        self.told.append((peer.number, waiting))

    def join(self, make: MakeProtocol | None = None) -> trio.SocketStream:
        """Let a connection come to the line port, or to another."""
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        make = make or partial(LineProtocol, self.server.broker)
        open_connection(self.server, near, f"peer{len(self.ends)}", make)
        self.ends.append(trio.socket.from_stdlib_socket(far))
        return trio.SocketStream(self.ends[-1])


@asynccontextmanager
async def gather(limits: Limits, *, unhurried: bool = False) -> AsyncIterator[Crowd]:
    """Yield a crowd, and end it; ``unhurried``, no turn ends before its work."""
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, limits)
        if unhurried:
            crowd.server.broker.delivery.turn = Turn(clock=lambda: 0.0)
        try:
            yield crowd
        finally:
            nursery.cancel_scope.cancel()
            for end in crowd.ends:
                end.close()


async def ask(stream: trio.SocketStream) -> bytes:
    """Return all that comes before the answer to a ping, and that answer."""
    await stream.send_all(b"pub //pubsubd/ping 1 x\n")
    heard = b""
    while not heard.endswith(b"pub //pubsubd/ping 1 x\n"):
        part = await stream.receive_some(65_536)
        assert part, f"the connection was closed after {heard[-200:]!r}"
        heard += part
    return heard


async def drain(stream: trio.SocketStream) -> bytes:
    """Return all that comes before the end."""
    heard = b""
    while data := await stream.receive_some(65_536):
        heard += data
    return heard


LIMITS = Limits(max_pending=100_000, stall_timeout=0.25, stall_budget=2.0, linger=0.1)


async def test_one_who_leaves_before_its_output_may_be_sent_is_no_fault() -> None:
    async with gather(LIMITS) as crowd:
        stream, held = crowd.join(), Hold()
        await stream.send_all(b"sub a\npub a 1 x\n")
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = crowd.server.connections
        connection.peer.outbox.held = held  # type: ignore[attr-defined]
        await stream.send_all(b"pub a 1 x\n")
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()  # a reset, as something is unread
        await trio.testing.wait_all_tasks_blocked()
        assert not crowd.server.connections
        held.release()
        await trio.testing.wait_all_tasks_blocked()
        assert not crowd.server.broker.faults.counts


async def test_a_publisher_waits_once_for_all_the_consumers_it_has_stalled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(LIMITS) as crowd:
        stuck = [crowd.join() for _ in range(20)]
        publisher = crowd.join()
        for stream in stuck:
            await stream.send_all(b"sub big\n")
            await ask(stream)
        begun = trio.current_time()
        for _ in range(10):
            await publisher.send_all(b"pub big 30000 " + b"x" * 30_000 + b"\n")
        await ask(publisher)
        await publisher.send_all(b"pub big 1 x\n")  # in case all of it was one read
        await ask(publisher)
        # One stall_timeout, and not one for each of them.
        assert trio.current_time() - begun == pytest.approx(LIMITS.stall_timeout)
        await trio.testing.wait_all_tasks_blocked()
        assert crowd.server.broker.counters.closed == {"slow-consumer": 20}
        assert {number for number, _ in crowd.told} == set(range(1, 21))
        assert all(waiting > LIMITS.max_pending for _, waiting in crowd.told)


async def test_who_may_not_be_sent_anything_yet_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(LIMITS) as crowd, trio.open_nursery() as nursery:
        stream, publisher, held = crowd.join(), crowd.join(), Hold()
        await stream.send_all(b"sub big\n")
        await ask(stream)
        (consumer,) = (one for one in crowd.server.connections if one.peer.substrings)  # type: ignore[attr-defined]
        consumer.peer.outbox.held = held  # type: ignore[attr-defined]

        async def publish() -> None:
            for _ in range(10):
                await publisher.send_all(b"pub big 30000 " + b"x" * 30_000 + b"\n")
                await ask(publisher)

        nursery.start_soon(publish)
        await trio.sleep(4.5 * LIMITS.stall_timeout)
        held.release()
        heard = b""
        while len(heard) < 10 * len(b"pub big 30000 " + b"x" * 30_000 + b"\n"):
            part = await stream.receive_some(65_536)
            assert part
            heard += part
        assert not crowd.server.broker.counters.closed


async def test_a_publisher_that_logs_in_waits_first_for_those_that_the_same_read_has_filled(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gather(dataclasses.replace(LIMITS, max_pending=2_000)) as crowd:
        rules_in(crowd.server.broker, ann=PASSWORD)
        stuck, publisher = crowd.join(), crowd.join()
        await stuck.send_all(b"sub big\n")
        await ask(stuck)
        (filled,) = (one for one in crowd.server.connections if one.peer.substrings)  # type: ignore[attr-defined]
        while not filled.peer.outbox.size:  # type: ignore[attr-defined]
            await publisher.send_all(b"pub big 100 " + b"x" * 100 + b"\n")
            await ask(publisher)
        checked = []
        check = crowd.server.checker.run

        async def run(job: Any) -> None:
            checked.append(trio.current_time())
            await check(job)

        monkeypatch.setattr(crowd.server.checker, "run", run)
        begun = trio.current_time()
        login = b"ann " + PASSWORD.encode()
        await publisher.send_all(
            b"pub big 1000 %b\npub //pubsubd/auth %d %b\n" % (b"x" * 1_000, len(login), login)
        )
        await ask(publisher)
        assert [at - begun for at in checked] == [pytest.approx(LIMITS.stall_timeout)]


async def test_publishers_are_let_go_as_soon_as_the_consumer_they_wait_for_is_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = dataclasses.replace(LIMITS, stall_timeout=60.0, stall_budget=60.0, linger=30.0)
    async with gather(limits) as crowd, trio.open_nursery() as nursery:
        stuck, publisher = crowd.join(), crowd.join()
        await stuck.send_all(b"sub big\n")
        await ask(stuck)
        (session,) = (one for one in crowd.server.connections if one.peer.substrings)  # type: ignore[attr-defined]
        begun = trio.current_time()

        async def publish() -> None:
            for _ in range(4):
                await publisher.send_all(b"pub big 30000 " + b"x" * 30_000 + b"\n")
            await ask(publisher)
            assert trio.current_time() - begun == pytest.approx(1, abs=0.01)

        nursery.start_soon(publish)
        await trio.sleep(1)
        session.end("link-timeout", "it was silent")  # type: ignore[attr-defined]


class Stuck:
    """What takes the input of a link, and counts the batches it has lost."""

    def __init__(self) -> None:
        self.dropped = 0

    def receive(self, data: bytes) -> bool:
        return False


async def test_a_link_that_takes_nothing_loses_batches_first_and_is_ended_in_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(LIMITS) as crowd:
        crowd.join()
        (session,) = crowd.server.connections
        peer = session.peer  # type: ignore[attr-defined]
        peer.link = Stuck()
        for _ in range(40):
            peer.send(Pieces([b"pub //pubsubd/relay 9990 ", b"x" * 9_990, b"\n"]))
        lost, waiting = peer.link.dropped, peer.outbox.size
        assert lost > 20
        assert waiting < LIMITS.max_pending + 20_000
        while peer.ending is None:  # what keeps the mesh together is not lost
            before = peer.outbox.size
            peer.send(b"pub //pubsubd/heartbeat 990 " + b"x" * 990 + b"\n")
            assert peer.outbox.size > before
        assert 2 * LIMITS.max_pending < before < 2 * LIMITS.max_pending + 2_000
        assert peer.ending.code == "slow-consumer"
        assert peer.link.dropped == lost


async def test_a_slow_consumer_of_the_hub_port_is_told_to_the_hook_and_closed_with_1013(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(LIMITS) as crowd:
        hub = Hub(
            crowd.server.broker,
            HubLimits(max_pending=50_000),
            clock=trio.current_time,
        )
        slow, publisher = crowd.join(partial(HubProtocol, hub)), crowd.join()
        subscribe = {"type": "__subscribe", "id": "", "payload": {"topic": "big:1"}}
        await slow.send_all(UPGRADE + client_frame(json.dumps(subscribe).encode()))
        await slow.send_all(client_frame(b"before", 0x89))
        heard = b""
        while not heard.endswith(b"\x8a\x06before"):
            heard += await slow.receive_some(4_096)
        for _ in range(10):
            await publisher.send_all(b"pub big:1 30000 " + b"x" * 30_000 + b"\n")
        await ask(publisher)
        assert [number for number, _ in crowd.told] == [1]
        assert crowd.told[0][1] > 50_000
        heard = await drain(slow)
        assert b"\x03\xf5slow-consumer" in heard[-125:]  # 1013
        assert crowd.server.broker.counters.closed == {"slow-consumer": 1}


async def publish_much(stream: trio.SocketStream, count: int) -> None:
    """Publish 10,000 bytes so many times."""
    for _ in range(count):
        await stream.send_all(b"pub big 10000 " + b"x" * 10_000 + b"\n")
    await ask(stream)


MUCH = 10_015  # bytes of each of these messages


async def read_much(stream: trio.SocketStream, count: int) -> int:
    """Read so many bytes, through the small buffers; return how many there were to the end."""
    left = count
    while left and (part := await stream.receive_some(min(left, 5_000))):
        left -= len(part)
    return count - left


async def test_a_consumer_that_was_given_up_on_is_waited_for_again_once_it_has_caught_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(LIMITS) as crowd:
        consumer, publisher = crowd.join(), crowd.join()
        await consumer.send_all(b"sub big\n")
        await ask(consumer)
        for _ in range(2):
            # Nobody reads, so the publisher waits for stall_timeout, and then no more.
            begun = trio.current_time()
            await publish_much(publisher, 9)
            assert trio.current_time() - begun == pytest.approx(LIMITS.stall_timeout)
            assert await read_much(consumer, 9 * MUCH) == 9 * MUCH
            # Far more than may wait, and sent faster than it is read.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish_much, publisher, 300)
                assert await read_much(consumer, 300 * MUCH) == 300 * MUCH
        assert crowd.server.broker.counters.closed == {}
        assert crowd.told == []


@pytest.mark.parametrize(("share", "cut"), [(0.8, False), (1.2, True)])
async def test_a_consumer_that_pauses_in_a_flood_is_cut_if_the_pause_is_longer_than_the_timeout(
    autojump_clock: trio.testing.MockClock, share: float, cut: bool
) -> None:
    limits = Limits(max_pending=100_000)  # the usual timeout and budget
    async with gather(limits) as crowd, trio.open_nursery() as nursery:
        consumer, publisher = crowd.join(), crowd.join()
        await consumer.send_all(b"sub big\n")
        await ask(consumer)
        nursery.start_soon(publish_much, publisher, 400)
        heard = 0
        for _ in range(3):
            heard += await read_much(consumer, 100 * MUCH)
            await trio.sleep(share * limits.stall_timeout)
        heard += await read_much(consumer, 100 * MUCH)
        assert (heard < 400 * MUCH) == cut
        assert crowd.server.broker.counters.closed == ({"slow-consumer": 1} if cut else {})


async def test_time_in_which_the_daemon_did_not_run_is_not_held_against_a_consumer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = Limits(max_pending=100_000)
    async with gather(limits) as crowd, trio.open_nursery() as nursery:
        consumer, publisher = crowd.join(), crowd.join()
        await consumer.send_all(b"sub big\n")
        await ask(consumer)
        nursery.start_soon(publish_much, publisher, 400)
        for _ in range(3):
            assert await read_much(consumer, 100 * MUCH) == 100 * MUCH
            await trio.sleep(0.5 * limits.stall_timeout)
            autojump_clock.jump(limits.stall_timeout)  # as if all processes had been stopped
            await trio.sleep(0.5 * limits.stall_timeout)
        assert await read_much(consumer, 100 * MUCH) == 100 * MUCH
        assert crowd.server.broker.counters.closed == {}


async def test_input_is_looked_out_for_only_while_one_connection_speaks_in_short_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def look_out(connection: Connection) -> bool:
        looks.append(connection.peer.label)
        return True

    monkeypatch.setattr(Connection, "look_out", look_out)
    async with gather(LIMITS, unhurried=True) as crowd:
        one, other = crowd.join(), crowd.join()
        monkeypatch.setattr(session, "EAGER", float("inf"))
        await ask(one)
        assert looks == []  # nothing came before
        await ask(one)
        await ask(one)
        assert looks == ["peer0", "peer0"]
        for _ in range(5):
            await ask(other)
            await ask(one)
        assert looks == ["peer0", "peer0"]
        monkeypatch.setattr(session, "EAGER", 0.0)
        await ask(one)
        await ask(one)
        assert looks == ["peer0", "peer0"]


async def test_who_has_looked_for_input_in_a_late_pass_and_found_none_has_not_spoken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(session, "EAGER", float("inf"))
    async with gather(LIMITS, unhurried=True) as crowd:

        def look_out(connection: Connection) -> bool:
            looks.append(connection.peer.label)
            # So it waits for the next pass, in which the other one may be read first.
            crowd.server.lane.soon = crowd.server.lane.late = float("-inf")
            return True

        monkeypatch.setattr(Connection, "look_out", look_out)
        one, other = crowd.join(), crowd.join()
        for _ in range(20):
            await ask(one)
            await ask(one)
            await ask(other)
        assert looks == ["peer0"] * 20


async def test_who_looks_out_in_vain_does_so_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[bool] = []
    found = False

    def look_out(_connection: Connection) -> bool:
        looks.append(found)
        return found

    monkeypatch.setattr(Connection, "look_out", look_out)
    monkeypatch.setattr(session, "EAGER", float("inf"))
    async with gather(LIMITS, unhurried=True) as crowd:
        one = crowd.join()
        for _ in range(1 + 100):
            await ask(one)
        assert 12 <= len(looks) <= 15  # after 1, 3, 7, 7 ... that are left out
        found = True
        for _ in range(8 + 100):
            await ask(one)
        assert len(looks) >= 100  # as before, once it was not in vain


async def test_who_has_much_to_say_waits_for_those_who_have_not_while_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = 0
    real = crowds.Crowd.wait

    async def wait(self: crowds.Crowd, cost: float) -> None:
        nonlocal waits
        waits += 1
        await real(self, cost)

    monkeypatch.setattr(crowds.Crowd, "wait", wait)
    monkeypatch.setattr(lane, "SOON", -1.0)  # each pass has taken long already
    much = b"pub x %d " % LARGE_READ + b"x" * LARGE_READ + b"\n"
    async with gather(LIMITS) as crowd:
        one, other = crowd.join(), crowd.join()
        for _ in range(5):
            await ask(one)
            await ask(other)
        assert waits == 0
        monkeypatch.setattr(session, "ALTERNATELY", 0.0)
        for _ in range(5):
            await one.send_all(much)
            await ask(one)
        assert waits == 0
        monkeypatch.setattr(session, "ALTERNATELY", float("inf"))
        for _ in range(5):
            await one.send_all(much)
            await ask(one)
        assert waits > 0
        waits = 0
        monkeypatch.setattr(session, "SELDOM", float("-inf"))  # nobody has said little since
        for _ in range(5):
            await one.send_all(much)
            await ask(one)
        assert waits == 0
        assert crowd.server.crowd.queued == 0


class _Passes(trio.abc.Instrument):
    """Counts the passes of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


@pytest.mark.parametrize("alone", [0.0, float("inf")])
async def test_input_that_is_looked_out_for_is_read_without_a_pass_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, alone: float
) -> None:
    """Ten pings, each sent while the answer to the one before is being looked for."""
    ping, passes, at = b"pub //pubsubd/ping 1 x\n", _Passes(), list[int]()
    monkeypatch.setattr(session, "EAGER", float("inf"))
    monkeypatch.setattr(session, "ALONE", alone)
    monkeypatch.setattr(session, "LEFT_OUT", 0)
    async with gather(LIMITS) as crowd:
        client = crowd.join()

        def look_out(_connection: Connection) -> bool:
            at.append(passes.count)
            if len(at) < 10:
                os.write(client.socket.fileno(), ping)
            return len(at) < 10

        async def exchange() -> int:
            """Return in how many passes the pings were read."""
            at.clear()
            await client.send_all(ping)
            heard = 0
            while heard < 10 * len(ping):
                heard += len(await client.receive_some(65_536))
            return len(set(at))

        for _ in range(20):  # its first turns are taken with care
            await ask(client)
        monkeypatch.setattr(Connection, "look_out", look_out)
        trio.lowlevel.add_instrument(passes)
        # While others use the processor, a turn may be late: the next one waits for a pass then.
        counts = [await exchange() for _ in range(20)]
        trio.lowlevel.remove_instrument(passes)
    assert (min(counts) == 1) if alone else (max(counts) == 10)


async def test_nobody_looks_out_for_input_while_others_wait_for_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(Connection, "look_out", lambda self: looks.append(self.peer.label))
    monkeypatch.setattr(session, "EAGER", float("inf"))
    async with gather(LIMITS, unhurried=True) as crowd, trio.open_nursery() as nursery:
        client, lane = crowd.join(), crowd.server.lane

        async def work() -> None:
            while True:
                await lane.wait_next(TURN / 10)

        for _ in range(3):
            await ask(client)
        before = len(looks)
        assert before
        nursery.start_soon(work)
        await trio.lowlevel.checkpoint()
        for _ in range(3):
            await ask(client)
        assert len(looks) == before
        nursery.cancel_scope.cancel()
    assert lane.queued == 0


async def test_input_that_is_not_there_after_all_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "EAGER", float("inf"))
    monkeypatch.setattr(session, "ALONE", float("inf"))
    monkeypatch.setattr(Connection, "look_out", lambda _connection: True)
    async with gather(LIMITS) as crowd:
        one, other = crowd.join(), crowd.join()
        for _ in range(3):
            await ask(one)
        assert (await ask(other)).endswith(b" x\n")  # nobody goes on looking in vain


@pytest.mark.parametrize(
    ("said", "short"), [(b"unsub x\n" * 300, 1), (b"unsub x\n", 3)], ids=["much", "little"]
)
async def test_turns_are_short_until_one_has_ended_before_its_work(
    monkeypatch: pytest.MonkeyPatch, said: bytes, short: int
) -> None:
    """By clocks that go on by a fixed step at each look at them."""
    lengths: list[float] = []

    class Recorded(Turn):
        def begin(self) -> None:
            lengths.append(self.length)
            super().begin()

    monkeypatch.setattr(session, "thread_time", itertools.count(0.001, 0.001).__next__)
    monkeypatch.setattr(session, "perf_counter", lambda: 1.0)
    monkeypatch.setattr(session, "EAGER", 0.0)
    async with gather(LIMITS) as crowd:
        one = crowd.join()
        crowd.server.broker.delivery.turn = Recorded(itertools.count(0.0, TURN / 40).__next__)
        for _ in range(3):
            await one.send_all(said)
            await ask(one)
    assert lengths[:short] == [0.001] * short
    assert set(lengths[short:]) <= ({TURN} if short == 1 else {TURN, 0.001})
    assert len(lengths) > 20 or short > 1


async def test_turns_are_no_longer_short_when_one_has_not_sent_to_all_receivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same clocks."""
    lengths: list[float] = []

    class Recorded(Turn):
        def begin(self) -> None:
            lengths.append(self.length)
            super().begin()

    monkeypatch.setattr(session, "thread_time", itertools.count(0.001, 0.001).__next__)
    monkeypatch.setattr(session, "perf_counter", lambda: 1.0)
    monkeypatch.setattr(session, "EAGER", 0.0)
    async with gather(LIMITS) as crowd:
        receivers = [crowd.join() for _ in range(60)]
        for receiver in receivers:
            await receiver.send_all(b"sub n\n")
            await ask(receiver)
        publisher = crowd.join()
        crowd.server.broker.delivery.turn = Recorded(itertools.count(0.0, TURN / 40).__next__)
        for _ in range(3):
            await publisher.send_all(b"pub n 1 x\n")
            for receiver in receivers:
                assert await receiver.receive_some(100) == b"pub n 1 x\n"
    assert lengths.count(0.001) == 1


async def test_the_processor_s_time_is_not_asked_for_once_turns_are_known_to_be_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def thread_time() -> float:
        nonlocal calls
        calls += 1
        return 1.0

    monkeypatch.setattr(session, "thread_time", thread_time)
    monkeypatch.setattr(session, "perf_counter", lambda: 1.0)
    monkeypatch.setattr(session, "EAGER", 0.0)
    async with gather(LIMITS, unhurried=True) as crowd:
        one = crowd.join()
        for _ in range(10):
            await ask(one)
        before = calls
        for _ in range(10):
            await ask(one)
    assert 0 < before == calls


@pytest.mark.parametrize(
    ("took", "pause"),
    [(LONG_TURN / 2, None), (2 * LONG_TURN, 2 * LONG_TURN * PAUSE), (9.0, MAX_PAUSE)],
)
async def test_who_has_taken_far_too_long_a_turn_is_not_read_for_a_while(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float | None
) -> None:
    """The processor's time is made up; what is asserted is the pause that follows from it."""
    pauses: list[float] = []

    async def wait(_connection: Connection, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Connection, "pause", wait)
    monkeypatch.setattr(session, "thread_time", itertools.count(0.001, took).__next__)
    monkeypatch.setattr(session, "perf_counter", lambda: 1.0)
    monkeypatch.setattr(session, "EAGER", 0.0)
    async with gather(LIMITS, unhurried=True) as crowd:
        one = crowd.join()
        for _ in range(3):
            assert (await ask(one)).endswith(b" x\n")
    assert pauses == ([] if pause is None else [pytest.approx(pause)] * 2)


async def test_a_slow_consumer_is_cut_at_once_where_that_is_the_policy() -> None:
    limits = Limits(max_pending=100_000, slow_consumer="disconnect", linger=DEADLINE)
    async with gather(limits) as crowd:
        consumer, publisher = crowd.join(), crowd.join()
        await consumer.send_all(b"sub big\n")
        await ask(consumer)
        for _ in range(20):
            await publisher.send_all(b"pub big 30000 " + b"x" * 30_000 + b"\n")
        await ask(publisher)
        heard = await drain(consumer)
        assert heard.startswith(b"pub big 30000 ")
        assert heard.count(b"pub big 30000 ") * 30_015 == heard.index(b"pub //pubsubd/error")
        assert b" slow-consumer " in heard


async def test_what_a_slow_consumer_loses_is_counted_and_told_where_that_is_the_policy() -> None:
    async with gather(Limits(max_pending=100_000, slow_consumer="drop")) as crowd:
        consumer, publisher, watcher = crowd.join(), crowd.join(), crowd.join()
        await consumer.send_all(b"sub big\n")
        await ask(consumer)
        await watcher.send_all(b"sub //pubsubd/events\n")
        await ask(watcher)
        for _ in range(20):
            await publisher.send_all(b"pub big 30000 " + b"x" * 30_000 + b"\n")
        await ask(publisher)
        dropped = crowd.server.broker.counters.dropped
        assert dropped > 0
        received = (20 - dropped) * 30_015
        while received:
            received -= len(await consumer.receive_some(65_536))
        event = json.loads((await watcher.receive_some(65_536)).split(b" ", 3)[3])
        assert event["event"] == "dropped"
        assert event["peer"] == "peer0"
        assert event["detail"] == f"{dropped} messages"
        await publisher.send_all(b"pub big 2 hi\n")
        assert await consumer.receive_some(100) == b"pub big 2 hi\n"


async def test_a_fault_ends_one_connection_with_a_stated_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gather(LIMITS) as crowd:
        victim, other = crowd.join(), crowd.join()

        def fail(*_: object) -> None:
            raise RuntimeError("broken on purpose")

        crowd.server.broker.requests[b"//pubsubd/fail"] = fail
        await other.send_all(b"sub x\n")
        await ask(other)
        await victim.send_all(b"pub //pubsubd/fail 0 \n")
        heard = await victim.receive_some(1_000)
        text = b"internal-error a fault of the daemon's own, at broker.requests.Requests.make\n"
        assert heard.split(b" ", 3)[3] == text
        assert await victim.receive_some(1_000) == b""
        await other.send_all(b"pub x 1 y\n")
        assert (await ask(other)).startswith(b"pub x 1 y\n")
        assert "broken on purpose" in caplog.text
        assert "\n" not in caplog.records[0].getMessage()


async def test_a_fault_in_the_check_of_a_password_ends_its_connection_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("broken on purpose")

    monkeypatch.setattr(Users, "verify", fail)
    async with gather(LIMITS) as crowd:
        rules_in(crowd.server.broker, ann=PASSWORD)
        victim, other = crowd.join(), crowd.join()
        await victim.send_all(b"pub //pubsubd/auth 5 ann x\n")
        text = b"internal-error a fault of the daemon's own, at broker.logins.Check.run\n"
        assert (await drain(victim)).split(b" ", 3)[3] == text
        assert await ask(other) == b"pub //pubsubd/ping 1 x\n"


# Silence


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let silence be measured by the test's clock as well."""
    monkeypatch.setattr(session, "perf_counter", trio.current_time)


@asynccontextmanager
async def swept(crowd: Crowd, interval: float) -> AsyncIterator[None]:
    """Let sweeps go on during the block, and nobody look out for input."""
    crowd.server.look_out = 0.0

    async def sweep() -> None:
        while True:
            await trio.sleep(interval)
            await crowd.server.sweep()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep)
        yield
        nursery.cancel_scope.cancel()


BEAT = json.dumps({"type": "hub:heartbeat", "from": "a/b", "payload": {}}).encode() + b"\n"
CONNECT = {"type": "hub:connect", "from": "a/b", "payload": {"version": "1.0"}}
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("phase", [0.01, 0.13, 0.29])
@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ([b"p", b"u", b"b", b" ", b"x"], 1.0),
        ([json.dumps(CONNECT).encode() + b"\n", *[BEAT] * 4], 1.0),
        ([GET] * 4, 60.0),
    ],
    ids=["command", "heartbeat", "http"],
)
async def test_no_timeout_of_silence_is_early_or_late_by_more_than_a_sweep(
    one_clock: None,
    said: list[bytes],
    limit: float,
    phase: float,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(dataclasses.replace(LIMITS, command_timeout=1.0)) as crowd:
        hub = Hub(crowd.server.broker, HubLimits(heartbeat=1.0), clock=trio.current_time)
        async with swept(crowd, 0.3):
            stream = crowd.join(None if said[0] == b"p" else partial(HubProtocol, hub))
            await trio.sleep(phase)
            for text in said:
                await stream.send_all(text)
                await trio.sleep(limit - 0.01)
            await stream.send_all(said[-1])
            last = trio.current_time()
            assert crowd.server.broker.counters.errors == {}
            await drain(stream)
            assert limit <= trio.current_time() - last <= limit + 0.3


async def test_who_has_spoken_while_the_daemon_did_not_read_has_not_been_silent(
    one_clock: None, autojump_clock: trio.testing.MockClock
) -> None:
    async with gather(dataclasses.replace(LIMITS, command_timeout=1.0)) as crowd:
        crowd.server.look_out = 0.0
        typist, silent = crowd.join(), crowd.join()
        for stream in (typist, silent):
            await stream.send_all(b"pub //pubsubd/ping 4 ab")
        await trio.testing.wait_all_tasks_blocked()
        os.write(typist.socket.fileno(), b"cd\n")
        autojump_clock.jump(5.0)  # as if the process had been stopped
        await crowd.server.sweep()
        assert await typist.receive_some(1_000) == b"pub //pubsubd/ping 4 abcd\n"
        assert b"command-timeout" in await drain(silent)


async def test_who_has_logged_in_while_the_daemon_did_not_read_is_in_time(
    one_clock: None, autojump_clock: trio.testing.MockClock
) -> None:
    async with gather(dataclasses.replace(LIMITS, auth_timeout=1.0)) as crowd:
        rules_in(crowd.server.broker, ann=PASSWORD)
        late, stubborn = crowd.join(), crowd.join()
        crowd.server.broker.listener.login = True
        await trio.testing.wait_all_tasks_blocked()
        await crowd.server.sweep()  # from here on they are waited for
        login = b"ann " + PASSWORD.encode()
        os.write(late.socket.fileno(), b"pub //pubsubd/auth %d %b\n" % (len(login), login))
        os.write(stubborn.socket.fileno(), b"sub a\n")
        autojump_clock.jump(5.0)  # as if the process had been stopped
        await crowd.server.sweep()
        assert await late.receive_some(1_000) == b"pub //pubsubd/auth 6 ok ann\n"
        await trio.testing.wait_all_tasks_blocked()
        os.write(stubborn.socket.fileno(), b"sub a\n")
        await crowd.server.sweep()
        assert b"login-timeout" in await drain(stubborn)
        assert crowd.server.broker.counters.closed == {"login-timeout": 1}


def test_no_timeout_of_any_listener_is_late_by_more_than_a_quarter() -> None:
    usual = ListenerState("line", Limits())
    assert daemon.sweep_interval([usual]) == 1.0
    for limits, hub_limits, interval in (
        (Limits(command_timeout=1.0), HubLimits(), 0.25),
        (Limits(handshake_timeout=0.4), HubLimits(), 0.1),
        (Limits(auth_timeout=2.0), HubLimits(), 0.25),
        (Limits(), HubLimits(heartbeat=2.0), 0.5),
        (Limits(command_timeout=1e-9), HubLimits(), 0.02),
    ):
        other = ListenerState("other", limits, hub_limits)
        assert daemon.sweep_interval([usual, other]) == pytest.approx(interval)


async def test_a_connection_in_its_last_words_does_not_hold_up_the_drain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with gather(Limits(drain_timeout=1_000.0, linger=1.0)) as crowd:
        mistaken, other = crowd.join(), crowd.join()
        await ask(other)
        await mistaken.send_all(b"pub x 1 toolong\n")
        await mistaken.receive_some(1_000)  # and does not close
        begun = trio.current_time()
        crowd.server.drain()
        await crowd.server.wait_empty()
        assert trio.current_time() - begun < 500


async def test_what_comes_while_the_daemon_ends_does_not_overtake_what_is_being_sent() -> None:
    class Over(Turn):
        def over(self) -> bool:
            return True

    async with gather(Limits()) as crowd:
        delivery = crowd.server.broker.delivery
        consumers, publisher = [crowd.join() for _ in range(200)], crowd.join()
        last = consumers[-1]
        await last.send_all(b"sub last\n")
        for stream in consumers:
            await stream.send_all(b"sub all\n")
            await ask(stream)
        usual, delivery.turn = delivery.turn, Over()
        await publisher.send_all(b"pub all 1 a\n")
        with trio.fail_after(DEADLINE):
            while not delivery.unsent:
                await trio.lowlevel.checkpoint()
        await publisher.send_all(b"pub last 1 b\n")
        crowd.server.drain()
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        delivery.turn = usual
        assert (await drain(last)).startswith(b"pub all 1 a\npub last 1 b\n")


async def test_clients_cannot_flood_the_log(
    caplog: pytest.LogCaptureFixture, mock_clock: trio.testing.MockClock
) -> None:
    async with gather(LIMITS) as crowd:
        for _ in range(300):
            stream = crowd.join()
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            await stream.receive_some(1_000)
            await stream.aclose()
        await crowd.server.wait_empty()
        assert crowd.server.broker.counters.closed == {"http-request": 300}
        assert len(caplog.records) == 100
        mock_clock.jump(1.0)
        for _ in range(20):
            stream = crowd.join()
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            await stream.receive_some(1_000)
        assert len(caplog.records) == 110


@pytest.mark.parametrize(("ports", "loaded"), [(("--no-hub",), False), ((), True)])
def test_what_the_hub_port_stands_on_is_loaded_only_where_there_is_one(
    start: Callable[..., Daemon], ports: tuple[str, ...], loaded: bool
) -> None:
    """A process says nothing of its modules, but RE2's library is mapped where they are loaded."""
    daemon = start(*ports, fresh=True)
    assert ("_re2." in Path(f"/proc/{daemon.process.pid}/maps").read_text()) is loaded


# Rates, and tasks that fail


@pytest.mark.parametrize("rate", [{"byte_rate": 1_000.0}, {"message_rate": 10.0}])
async def test_what_comes_quicker_than_a_rate_waits(
    rate: dict[str, float], autojump_clock: trio.testing.MockClock
) -> None:
    async with gather(Limits(**rate)) as crowd:
        consumer, publisher = crowd.join(), crowd.join()
        await consumer.send_all(b"sub n\n")
        await ask(consumer)
        begun = trio.current_time()
        for _ in range(10):
            await publisher.send_all((b"pub n 87 " + b"x" * 87 + b"\n") * 10)
            await ask(publisher)
        assert 7.5 <= trio.current_time() - begun <= 11.0
        await ask(consumer)  # which has not waited


async def test_a_daemon_that_cannot_accept_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    calls = 0

    def fail(*_: object) -> bool:
        nonlocal calls
        calls += 1
        raise RuntimeError("on purpose")

    monkeypatch.setattr("pubsubd.transport.accept.accept_waiting", fail)
    failures: list[FailedError] = []

    async def serve(task_status: trio.TaskStatus[dict[str, Any]]) -> None:
        try:
            await run(Config(port=0, hub_port=None), task_status=task_status)
        except FailedError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        ports = await nursery.start(serve)
        stream = await trio.open_tcp_stream("127.0.0.1", ports["line"]["port"])
        await trio.sleep(10.0)
        await stream.aclose()
    text = "accept line has failed 3 times, at transport.accept._accept"
    assert [str(one) for one in failures] == [text]
    assert calls == 3


async def test_a_connection_that_cannot_be_served_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with trio.open_nursery() as nursery:
        ports = await nursery.start(partial(run, Config(port=0, hub_port=None)))
        port = ports["line"]["port"]
        for place in (
            "pubsubd.transport.accept.text_of",
            "pubsubd.broker.logins.Access.meet",
            "pubsubd.transport.line.LineProtocol",
        ):
            with monkeypatch.context() as patch:
                if place.endswith("LineProtocol"):
                    place += ".max_pending"  # noqa: PLW2901
                    patch.setattr(place, property(lambda _self: 1 // 0))
                else:
                    patch.setattr(place, lambda *_: 1 // 0)
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                assert await stream.receive_some(100) == b""
                await stream.aclose()
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"pub //pubsubd/stats 0 \n")
        told = json.loads((await stream.receive_some(65_536)).split(b" ", 3)[3])
        assert told["connections"] == 1
        assert sum(told["faults"].values()) == 3
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "place", ["tables.SubscriptionTable.remove", "answers.Answers.drop_substring"]
)
async def test_what_a_fault_has_left_of_a_subscription_goes_with_its_connection(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gather(LIMITS) as crowd:
        victim, other = crowd.join(), crowd.join()
        for stream in (victim, other):
            await stream.send_all(b"sub n\nsub m\n")
            await ask(stream)
        with monkeypatch.context() as patch:
            patch.setattr(f"pubsubd.routing.{place}", lambda *_: 1 // 0)
            await victim.send_all(b"unsub n\n")
            assert b"internal-error" in await victim.receive_some(1_000)
        await victim.aclose()
        with trio.fail_after(DEADLINE):
            while len(crowd.server.connections) > 1:  # noqa: ASYNC110  (nobody tells)
                await trio.sleep(0.01)
        assert crowd.server.broker.router.subscriptions == 2
