"""An upgrade under load: the daemon is replaced, and its sockets stay.

As a service manager does, the script listens itself and hands its sockets to the daemon (line, hub
and Unix). It ends the daemon with SIGTERM and starts the next one, again and again, while clients
of pubsubd.client publish and listen on both ports, and others do nothing but connect. Nobody may be
refused or reset when connecting, the clients have to be back with all their subscriptions, nothing
comes twice, and each process ends with status 0.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import trio

from pubsubd.client import open_client, open_hub_client
from pubsubd.protocol.errors import PubsubdError
from soaklib.daemons import die_with_parent, environment, free_host
from soaklib.scenario import Scenario, Setting
from soaklib.verdict import Verdict
from soaklib.wires import PATIENCE, Address, Line, SoakError, wait_until
from soaklib.workers import Told, Worker

_START = (
    "import os, sys\n"
    "for i, fd in enumerate(map(int, sys.argv[1].split(','))): os.dup2(fd, 3 + i)\n"
    "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='3',"
    " LISTEN_FDNAMES='line:hub:unix')\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'pubsubd', 'serve', *sys.argv[2:]])\n"
)


class _Manager:
    """What a service manager does: it listens, and starts and ends the daemon."""

    def __init__(self, directory: Path) -> None:
        host = free_host()
        self.line_socket = socket.create_server((host, 0), backlog=4096)
        self.hub_socket = socket.create_server((host, 0), backlog=4096)
        self.unix_path = str(directory / "socket")
        self.unix_socket = socket.socket(socket.AF_UNIX)
        self.unix_socket.bind(self.unix_path)
        self.unix_socket.listen(4096)
        self.sockets = (self.line_socket, self.hub_socket, self.unix_socket)
        self.line: tuple[str, int] = self.line_socket.getsockname()
        self.hub: tuple[str, int] = self.hub_socket.getsockname()
        self.log = directory / "log"
        self.ready = directory / "ports.json"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        numbers = [sock.fileno() for sock in self.sockets]
        # Copies above those that the daemon is to have.
        high = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in numbers]
        flags = [f"--ports-file={self.ready}", f"--unix={self.unix_path}", "--hub-rate=0"]
        flags += [f"--host={self.line[0]}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, ",".join(map(str, high)), *flags],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=environment(),
                pass_fds=high,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (which calls prctl and nothing else)
            )
        for number in high:
            os.close(number)

    def wait_ready(self) -> None:
        wait_until(self.ready.exists, f"the daemon is ready: {self.log.read_text()[-500:]}")

    def end(self) -> int | None:
        """End it with SIGTERM; return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for sock in self.sockets:
            sock.close()


# Those who do nothing but connect


def knockers(told: Told, addresses: list[Address]) -> None:
    """Connect again and again; told ``report``, tell how often, and what went wrong."""
    told.answer()
    stop = threading.Event()
    counts: Counter[str] = Counter()
    longest = [0.0]

    def knock(address: Address) -> None:
        while not stop.is_set():
            begun = time.monotonic()
            try:
                with Line(address) as line:
                    counts["connected"] += 1
                    try:
                        line.ping()
                        counts["answered"] += 1
                    except ConnectionError as error:  # told goodbye by the old one
                        text = str(error)
                        counts["told" if "shutting-down" in text else f"closed: {error}"] += 1
            except OSError as error:
                counts[f"refused: {errno.errorcode.get(error.errno or 0, repr(error))}"] += 1
            longest[0] = max(longest[0], time.monotonic() - begun)
            time.sleep(0.002)

    threads = [threading.Thread(target=knock, args=[one], daemon=True) for one in addresses]
    for thread in threads:
        thread.start()
    told.hear()
    stop.set()
    for thread in threads:
        thread.join()
    told.answer((counts, longest[0]))


# Those who use the client


class _Fan:
    """A client with some subscriptions.

    Attributes:
        names: what it subscribes, all of it exact names.
        heard: the messages that came, by name and data.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.heard: Counter[tuple[str, str]] = Counter()
        self._back: set[tuple[str, str]] = set()

    def take(self, name: str | None, data: bytes | None) -> None:
        text = (data or b"").decode()
        self.heard[name or "", text] += 1
        self._back.add((name or "", text.partition(".")[0]))

    def missing(self, number: int) -> list[str]:
        """The names that nothing of that round has come by."""
        return [name for name in self.names if (name, str(number)) not in self._back]

    async def listen(self, where: tuple[str, int], *, task_status: trio.TaskStatus[None]) -> None:
        """Use the line port."""
        async with open_client(*where) as client:
            await client.subscribe(*self.names)
            task_status.started()
            while True:
                try:
                    async for message in client:
                        self.take(message.name, message.data)
                except PubsubdError:  # it connects again
                    await trio.sleep(0.01)

    async def listen_hub(
        self, where: tuple[str, int], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Use the hub port."""
        async with open_hub_client(*where) as client:
            for name in self.names:
                await client.subscribe(name)
            task_status.started()
            while True:
                try:
                    async for message in client:
                        self.take(message.topic, message.raw)
                except PubsubdError:  # it connects again
                    await trio.sleep(0.01)


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    manager = _Manager(setting.directory)
    try:
        manager.start()
        manager.wait_ready()
        line = Address(manager.line)
        with Worker(knockers, [line, line, Address(manager.unix_path)]) as knocking:
            knocking.answer()
            trio.run(_until_signal, setting, verdict, manager)
            counts, longest = knocking.ask("report")
        verdict.note("connections made meanwhile", f"{counts.pop('connected'):,}")
        told = counts.pop("told", 0)
        verdict.note("of these served, told goodbye", f"{counts.pop('answered'):,}, {told:,}")
        bad = sum(counts.values())
        verdict.none("refused, reset or closed without a word", bad, dict(counts))
        verdict.note("longest until one was answered", f"{longest * 1e3:.0f} ms")
        status = manager.end()
        verdict.check("exit status of the last one", status, status == 0)
        text = manager.log.read_text()
        verdict.none("faults in the log", text.count("event=fault") + text.count("Traceback"))
    finally:
        manager.close()


async def _until_signal(setting: Setting, verdict: Verdict, manager: _Manager) -> None:
    """Do it, unless a signal ends it: an exception from its handler would end trio in disorder."""
    ended: list[int] = []
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def wait_signal() -> None:
                async for number in signals:
                    ended.append(number)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait_signal)
            await _upgrade(setting, verdict, manager)
            nursery.cancel_scope.cancel()
    if ended:
        raise SystemExit(128 + ended[0])


async def _upgrade(setting: Setting, verdict: Verdict, manager: _Manager) -> None:
    """Let clients live through some upgrades, and then others.

    They wait longer each time that a connection breaks soon, as too many at once would be a storm.
    """
    count, rounds, generations = (5, 2, 1) if setting.short else (50, 3, 5)
    statuses: list[int | None] = []
    waits: list[float] = []
    twice: list[tuple[str, str]] = []
    for generation in range(generations):
        fans = [_Fan((f"one/{i}", f"all/{i % 5}")) for i in range(2 * count)]
        async with trio.open_nursery() as nursery:
            for fan in fans[:count]:
                await nursery.start(fan.listen, manager.line)
            for fan in fans[count:]:
                await nursery.start(fan.listen_hub, manager.hub)
            pause = 0.01 if setting.short else 0.0
            nursery.start_soon(_publish_all_the_time, manager.line, pause)
            for number in range(rounds):
                statuses.append(await trio.to_thread.run_sync(manager.end))
                manager.start()
                begun = trio.current_time()
                await _hear_all(manager, fans, rounds * generation + number)
                waits.append(trio.current_time() - begun)
            nursery.cancel_scope.cancel()
        twice += [text for fan in fans for text, times in fan.heard.items() if times > 1]
    verdict.check(f"exit status at each of {len(statuses)} upgrades", statuses, not any(statuses))
    verdict.note("clients with all their subscriptions, after each", 2 * count)
    verdict.limit("longest from a start until all are back", max(waits), 10.0, "s")
    verdict.none("messages that came twice", len(twice), twice[:3])


async def _publish_all_the_time(port: tuple[str, int], pause: float) -> None:
    """Load: a hundred messages, a pause of so many seconds, and again."""
    async with open_client(*port) as client:
        while True:
            try:
                for _ in range(100):
                    await client.publish("load/x", b"x" * 100)
                await client.flush()
                await trio.sleep(pause)
            except PubsubdError:
                await trio.sleep(0.01)


async def _hear_all(manager: _Manager, fans: list[_Fan], number: int) -> None:
    """Publish to every subscription until each has heard of this round."""
    until = trio.current_time() + 2 * PATIENCE
    async with open_client(*manager.line) as client:
        for attempt in itertools.count():
            missing = sorted({name for fan in fans for name in fan.missing(number)})
            if not missing:
                return
            if trio.current_time() > until:
                raise SoakError(f"nothing comes of {missing[:5]} after upgrade {number}")
            for name in missing:
                await client.publish(name, f"{number}.{attempt}")
            await client.flush()
            await trio.sleep(0.1)


SCENARIO = Scenario("upgrade", __doc__ or "", run)
