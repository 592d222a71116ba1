"""Real daemons on loopback: starting, asking, killing and starting them again.

Each has a loopback address of its own, so that its ports are its own again after a restart:
connections that others make in the meantime come from 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .wires import KIB, PATIENCE, Address, Line, SoakError, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """In a child: end when the parent is gone, even if that was killed outright."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a daemon: this checkout, and no settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PUBSUBD_")}
    kept.pop("JOURNAL_STREAM", None)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, **more}


def free_host() -> str:
    """Return a loopback address that is hardly in use."""
    return f"127.{random.randint(2, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"


def free_ports(host: str, count: int) -> list[int]:
    """Return ports of ``host`` that nobody listens on."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_server((host, 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in socks]


def family(pid: int) -> list[int]:
    """Return a process and its children: of a daemon, the supervisor and its workers."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [pid, *map(int, text.split())]
    return [pid]


def listener(name: str, address: Address, more: str = "") -> str:
    """Return a table of the settings file; ``hub`` in its name says what is spoken there."""
    where = address.where
    text = f"unix:{where}" if isinstance(where, str) else f"{where[0]}:{where[1]}"
    protocol = "hub" if "hub" in name else "line"
    head = f'[[listener]]\nname = "{name}"\nprotocol = "{protocol}"\naddress = "{text}"\n'
    return head + more


class Daemon:
    """A daemon in a process of its own.

    Args:
        directory: where its files go.
        flags: of ``pubsubd serve``.
        hub: whether it has a hub port.
        wrapper: a command before that of the daemon, which it replaces itself by.
        env: more of its environment.
        log: where its log goes; None for a file in ``directory``.
        prepare: called in the child before it becomes the daemon.
        start: whether to start it at once.
        addressed: whether flags tell it where to listen, and not a file.

    Attributes:
        host, port, hub_port: where it listens.
        flags, env: as given; they hold from the next start on.
        starts: how often it has been started.
    """

    def __init__(
        self,
        directory: Path,
        *flags: str,
        hub: bool = True,
        wrapper: Sequence[str] = (),
        env: dict[str, str] | None = None,
        log: Path | None = None,
        prepare: Callable[[], object] | None = None,
        start: bool = True,
        addressed: bool = True,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.flags = list(flags)
        self.log_file = log or directory / "log"
        self.ports_file = directory / "ports.json"
        self.host = free_host()
        self.port, self.hub_port = free_ports(self.host, 2)
        self._hub = hub
        self._wrapper = list(wrapper)
        self.env = env or {}
        self._prepare = prepare
        self._addressed = addressed
        self.starts = 0
        self.process: subprocess.Popen[bytes]
        if start:
            self.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def command(self) -> list[str]:
        """What is run, up to its arguments."""
        return [sys.executable, "-m", "pubsubd", "serve"]

    @property
    def line(self) -> Address:
        """Its line port."""
        return Address((self.host, self.port))

    @property
    def hub(self) -> Address:
        """Its hub port."""
        return Address((self.host, self.hub_port))

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it accepts connections; raises SoakError with its log."""
        self.starts += 1
        self.ports_file.unlink(missing_ok=True)
        command = [*self._wrapper, *self.command]
        if self._addressed:
            command += [f"--host={self.host}", f"--port={self.port}"]
            command.append(f"--hub-port={self.hub_port}" if self._hub else "--no-hub")
        command += [f"--ports-file={self.ports_file}", *self.flags]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment(**self.env),
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for the script, which then ends it
                preexec_fn=self._in_child,  # noqa: PLW1509 (there are no threads)
            )
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill()
                raise

    def _in_child(self) -> None:
        die_with_parent()
        if self._prepare is not None:
            self._prepare()

    def wait_ready(self) -> None:
        def ready() -> bool:
            if self.process.poll() is not None:
                raise SoakError(f"a daemon ended with {self.process.returncode}:\n{self.tail()}")
            return self.ports_file.exists()

        wait_until(ready, f"a daemon accepts connections; its log:\n{self.tail()}")

    # What it says

    @property
    def log(self) -> str:
        """All that it has logged so far."""
        with contextlib.suppress(OSError):
            return self.log_file.read_text(encoding="utf-8", errors="replace")
        return ""

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.splitlines()[-12:])

    def faults(self) -> list[str]:
        """Lines in its log that tell of a fault of the daemon's own."""
        signs = ("event=fault", "internal-error", "Traceback", "traceback=", "Error:")
        return [line for line in self.log.splitlines() if any(sign in line for sign in signs)]

    def request(self, what: str, address: Address | None = None) -> dict[str, Any]:
        """Return the answer to ``//pubsubd/<what>``."""
        with Line(address or self.line) as line:
            return line.request(what)

    # What it costs

    def memory(self) -> int:
        """Its resident bytes now, of all its processes together; 0 if it is not there."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most resident bytes that its processes ever had."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Let the peak begin anew."""
        for pid in family(self.pid):
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def _status(self, key: str) -> int:
        total = 0
        for pid in family(self.pid):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
                    if line.startswith(f"{key}:"):
                        total += int(line.split()[1]) * KIB
        return total

    def descriptors(self) -> int:
        """How many file descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu(self) -> float:
        """Seconds of processor time that its processes have used."""
        total = 0.0
        for pid in family(self.pid):
            with contextlib.suppress(OSError):
                total += time.clock_gettime((~pid << 3) | 2)
        return total

    # Its end

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int | None:
        """Wait until it has ended; return its exit status, None if it does not end."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it and its workers, whatever they do."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # it is the first of its group
        self.process.wait()

    def stop(self) -> int | None:
        """End it as a supervisor does; return its exit status, None if it had to be killed."""
        try:
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
            return self.wait()
        finally:
            self.kill()


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A directory for files, gone with the block."""
    with tempfile.TemporaryDirectory(prefix="pubsubd-chaos-") as name:
        yield Path(name)


@contextlib.contextmanager
def running(directory: Path, *flags: str, **more: Any) -> Iterator[Daemon]:
    """A daemon that is killed with the block, if it has not ended by then."""
    daemon = Daemon(directory, *flags, **more)
    try:
        yield daemon
    finally:
        daemon.kill()


class Mesh:
    """Some daemons in a ring, with chords from four on: any one of them can go.

    Each dials its neighbours, so that one that comes back does not have to wait for them.
    """

    def __init__(self, directory: Path, count: int, *flags: str, tls: Any = None) -> None:
        self.daemons = [Daemon(directory / f"d{i}", start=False) for i in range(count)]
        self.edges: set[frozenset[int]] = set()
        for i in range(count):
            self.edges.add(frozenset((i, (i + 1) % count)))
            if count > 4:
                self.edges.add(frozenset((i, (i + 2) % count)))
        self.edges = {edge for edge in self.edges if len(edge) == 2}
        for i, one in enumerate(self.daemons):
            one.flags = ["--mesh=soak", f"--node=n{i}", *flags]
            for edge in self.edges:
                if i in edge:
                    (other,) = edge - {i}
                    there = self.daemons[other]
                    one.flags.append(f"--peer={there.host}:{there.port}")
            if tls is not None:
                pair = tls.server(one.host, "localhost", "127.0.0.1")
                one.flags += [f"--tls-certificate={pair.certificate}", f"--tls-key={pair.key}"]
                one.flags += ["--mesh-tls", f"--mesh-tls-ca={tls.ca}"]
        self.ca = None if tls is None else str(tls.ca)

    def __enter__(self) -> Mesh:
        try:
            for one in self.daemons:
                one.start(wait=False)
            for one in self.daemons:
                one.wait_ready()
            self.wait_linked()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        for one in self.daemons:
            if hasattr(one, "process"):
                one.kill()

    def line(self, index: int) -> Address:
        one = self.daemons[index]
        return Address((one.host, one.port), self.ca)

    def hub(self, index: int) -> Address:
        one = self.daemons[index]
        return Address((one.host, one.hub_port), self.ca)

    def request(self, index: int, what: str) -> dict[str, Any]:
        return self.daemons[index].request(what, self.line(index))

    def degree(self, index: int) -> int:
        """How many links a daemon has once all are there."""
        return sum(index in edge for edge in self.edges)

    def wait_linked(self) -> None:
        """Wait until each one knows all others and has all its links."""

        def linked() -> bool:
            for i in range(len(self.daemons)):
                told = self.request(i, "peers")
                known = {one["node"] for one in told["daemons"] if one["hops"] is not None}
                known.add(told["node"])
                if len(known) < len(self.daemons) or told["flooding"]:
                    return False
                if len(told["links"]) < self.degree(i):
                    return False
            return True

        wait_until(linked, "all daemons are linked", tick=0.05)
