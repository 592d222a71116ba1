"""Real daemons and plain sockets, for tests that look at the whole from outside.

Nothing here sleeps in the hope that something has happened by then: a test waits for what
it can see, for :data:`DEADLINE` seconds at most, which bounds a hang and measures nothing.
What "has been carried out" means is a fact of the protocol: a ``//pubsubd/ping`` that is
answered says that everything sent before it has been, so :meth:`Line.ping` returns exactly
what the daemon had for that connection, and not a byte more.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.forks import Forked

DEADLINE = 120.0
"""Seconds after which something that is waited for will not come any more."""

PATIENT = ("--stall-timeout", str(DEADLINE), "--stall-budget", str(DEADLINE))
"""Flags of a daemon that waits for each reader, however slow the machine is."""

KIB = 1024
MIB = 1024 * KIB

ROOT = Path(__file__).resolve().parent.parent

_TICK = 0.005  # seconds between two looks at something that does not announce itself


def wait_until(seen: Callable[[], object], what: str) -> None:
    """Wait until ``seen()`` is true; ``what`` says in the failure what never came."""
    end = time.monotonic() + DEADLINE
    while not seen():
        if time.monotonic() > end:
            pytest.fail(f"waited {DEADLINE:g} s in vain: {what}")
        time.sleep(_TICK)


def free_port() -> int:
    """Return a port that nobody listens on, and that the system gives to nobody meanwhile."""
    while True:
        port = random.randrange(10_000, 32_768)  # from where on it chooses
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def frame(name: str | bytes, data: bytes) -> bytes:
    """Return a whole ``pub`` command."""
    name = name.encode() if isinstance(name, str) else name
    return b"pub %b %d %b\n" % (name, len(data), data)


def frames(stream: bytes) -> list[tuple[str, bytes]]:
    """Split what a daemon sent into ``(name, data)``; anything that is no frame fails the test."""
    found = []
    at = 0
    while at < len(stream):
        assert stream.startswith(b"pub ", at), f"no frame at {at}: {stream[at : at + 80]!r}"
        gap = stream.index(b" ", at + 4)
        start = stream.index(b" ", gap + 1) + 1
        stop = start + int(stream[gap + 1 : start - 1])
        assert stream[stop : stop + 1] == b"\n", f"cut at {at}: {stream[at : at + 80]!r}"
        found.append((stream[at + 4 : gap].decode(), stream[start:stop]))
        at = stop + 1
    return found


def error_codes(stream: bytes) -> list[str]:
    """Return the codes of the error lines among the frames in ``stream``, in order."""
    return [
        data.split(b" ", 1)[0].decode()
        for name, data in frames(stream)
        if name == "//pubsubd/error"
    ]


class Line:
    """A connection to a daemon that blocks, as a person's would, but not for ever.

    Args:
        address: ``(host, port)``, or the path of a Unix socket.
        buffer: bytes of the receive buffer, for a reader that is to fill up soon; None for
            what the system gives.
        source: the address to come from; None for what the system gives.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        buffer: int | None = None,
        source: str | None = None,
    ) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(DEADLINE)
            if buffer is not None:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            if source is not None:
                self.sock.bind((source, 0))
            self.sock.connect(address)
            if family == socket.AF_INET:
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.sock.close()
            raise
        self._heard = b""
        self._pings = 0

    @property
    def label(self) -> str:
        """What the daemon calls this connection in its logs."""
        host, port = self.sock.getsockname()[:2]
        return f"{host}:{port}"

    def say(self, data: bytes) -> None:
        """Send all of ``data``."""
        self.sock.sendall(data)

    def say_in_pieces(self, data: bytes, sizes: Iterator[int]) -> None:
        """Send ``data`` with a call for each piece."""
        at = 0
        while at < len(data):
            size = next(sizes)
            self.sock.sendall(data[at : at + size])
            at += size

    def hear(self, count: int) -> bytes:
        """Return exactly ``count`` bytes."""
        parts, have = [self._heard], len(self._heard)
        while have < count:
            part = self._recv(max(64 * KIB, min(count - have, MIB)))
            parts.append(part)
            have += len(part)
        everything = b"".join(parts)
        self._heard = everything[count:]
        return everything[:count]

    def hear_until(self, ending: bytes) -> bytes:
        """Return everything up to and with ``ending``."""
        parts, tail = [self._heard], self._heard
        while ending not in tail:
            part = self._recv(MIB)
            parts.append(part)
            tail = tail[-len(ending) :] + part
        everything = b"".join(parts)
        stop = everything.index(ending) + len(ending)
        self._heard = everything[stop:]
        return everything[:stop]

    def hear_end(self) -> bytes:
        """Return everything up to the end of the stream; a reset is no proper end."""
        parts = [self._heard]
        self._heard = b""
        while part := self.sock.recv(MIB):
            parts.append(part)
        return b"".join(parts)

    def hear_frame(self) -> tuple[str, bytes]:
        """Return the next message."""
        line = self.hear_until(b" ") + self.hear_until(b" ") + self.hear_until(b" ")
        verb, name, size, _ = line.split(b" ")
        assert verb == b"pub", line
        data = self.hear(int(size) + 1)
        assert data.endswith(b"\n"), line
        return name.decode(), data[:-1]

    def ping(self) -> bytes:
        """Wait until all that was said is carried out; return what came before the answer."""
        self._pings += 1
        answer = frame("//pubsubd/ping", b"-- %d --" % self._pings)
        self.say(answer)
        return self.hear_until(answer)[: -len(answer)]

    def stats(self) -> dict[str, Any]:
        """Return the daemon's statistics; nothing else may be due to this connection."""
        self.say(b"pub //pubsubd/stats 0 \n")
        name, data = self.hear_frame()
        assert name == "//pubsubd/stats", name
        found: dict[str, Any] = json.loads(data)
        return found

    def shut(self) -> None:
        """Shut down the sending side, as ``nc -N`` does at the end of its input."""
        self.sock.shutdown(socket.SHUT_WR)

    def vanish(self) -> None:
        """Close with a reset, as a process that crashes with unread input does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """Close."""
        self.sock.close()

    def _recv(self, most: int) -> bytes:
        part = self.sock.recv(most)
        if not part:
            raise ConnectionError("the daemon closed the connection")
        return part


class Daemon:
    """A daemon in a process of its own: ``python -m pubsubd serve --port 0 ...``.

    Args:
        directory: where its ports file and its log go.
        flags: more arguments for ``serve``.
        descriptors: the most file descriptors it may have, if that matters.
        fresh: whether it starts a Python of its own, as for users; otherwise it is a
            :class:`~tests.forks.Forked`.
        ports: whether flags tell it to take free ports; otherwise its settings have to.
        wait: whether to return only once it accepts connections.
        stderr: a descriptor that its log goes to; None for a file.

    Attributes:
        process: the process; its ``pid`` is the daemon's own.
        ports: what the ports file says, once it accepts.
    """

    def __init__(
        self,
        directory: Path,
        *flags: str,
        descriptors: int | None = None,
        fresh: bool = False,
        ports: bool = True,
        wait: bool = True,
        stderr: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.ports_file = directory / "ports.json"
        self.log_file = directory / "log"
        self.ports: dict[str, Any] = {}
        command = [sys.executable, "-m", "pubsubd", "serve"]
        if ports:
            command += ["--port", "0", "--hub-port", "0"]
        command += ["--ports-file", str(self.ports_file), *flags]
        if descriptors is not None:
            limit = f'ulimit -n {descriptors} && exec "$0" "$@"'
            command = ["/bin/sh", "-c", limit, *command]
            fresh = True
        with self.log_file.open("wb") as log:
            self.process = (subprocess.Popen if fresh else Forked)(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log if stderr is None else stderr,
                env=environment(),
                start_new_session=True,  # a Ctrl-C at the tests is for the tests
            )
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill()
                raise

    # What it says

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens for TCP."""
        return self.ports["line"]["host"], self.ports["line"]["port"]

    @property
    def hub(self) -> tuple[str, int]:
        """Host and port of the hub port."""
        return self.ports["hub"]["host"], self.ports["hub"]["port"]

    @property
    def log(self) -> str:
        """All that it has logged so far."""
        return self.log_file.read_text(encoding="utf-8")

    def wait_ready(self) -> None:
        """Wait until it accepts connections."""
        wait_until(self._ready, "the daemon accepts connections")

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the daemon ended with {self.process.returncode}: {self.log}")
        with contextlib.suppress(FileNotFoundError):
            self.ports = json.loads(self.ports_file.read_text(encoding="utf-8"))
        return bool(self.ports)

    def wait_log(self, text: str, count: int = 1) -> str:
        """Wait until ``text`` stands ``count`` times in the log, and return the log."""
        wait_until(lambda: self.log.count(text) >= count, f"{count} x {text!r} in {self.log_file}")
        return self.log

    def check_log(self) -> None:
        """One line an event, key=value, no traceback, nothing raw of what clients sent."""
        for line in self.log_file.read_bytes().split(b"\n")[:-1]:
            text = line.decode("utf-8")
            assert text.isprintable(), f"not printable in the log: {text!r}"
            assert text.startswith("time="), f"not an event in the log: {text!r}"
            assert " level=" in text, text
            assert " event=" in text, text
            assert "traceback=" not in text, text.replace("\\n", "\n")
            assert " level=error " not in text, text

    def label_of(self, name: str) -> str:
        """Return what it calls the one connection that would receive ``name``."""
        line = Line(self.address)
        line.say(frame("//pubsubd/explain", name.encode()))
        _, data = line.hear_frame()
        line.close()
        (receiver,) = json.loads(data)["receivers"]
        return str(receiver["peer"])

    # What it costs

    def memory(self) -> int:
        """Return its resident bytes now."""
        return self._status("VmRSS") * KIB

    def peak(self) -> int:
        """Return the most resident bytes that it ever had."""
        return self._status("VmHWM") * KIB

    def _status(self, key: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
        raise KeyError(key)

    def descriptors(self) -> int:
        """Return how many file descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu(self) -> float:
        """Return the seconds of processor time it has used, all its threads together."""
        # The clock that clock_getcpuclockid(3) gives for a process on Linux.
        return time.clock_gettime((~self.pid << 3) | 2)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Let it do nothing in a block, so that all said meanwhile is there when it looks."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    # Its end

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended, and return its exit status."""
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the daemon does not end; its log: {self.log[-2000:]}")

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it as a supervisor does; the test fails unless it does so properly."""
        try:
            if self.process.poll() is None:
                self.signal()
                status = self.wait()
                assert status == 0, f"ended with {status}: {self.log[-2000:]}"
            self.check_log()
        finally:
            self.kill()


Start: TypeAlias = Callable[..., Daemon]
"""The fixture that starts daemons."""

Dial: TypeAlias = Callable[..., Line]
"""The fixture that connects to them."""


class Background:
    """A call in a thread of its own, whose exception is that of the test.

    Leaving the ``with`` block waits for the call, unless the block has failed already.
    """

    def __init__(self, call: Callable[..., object], *arguments: Any) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call, arguments), daemon=True)

    def _run(self, call: Callable[..., object], arguments: Sequence[Any]) -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001  (raised again by the test)
            self._failure = error

    @property
    def done(self) -> bool:
        """Whether the call has returned."""
        return not self._thread.is_alive()

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.join()

    def join(self) -> None:
        """Wait for the call, and raise what it raised."""
        self._thread.join(DEADLINE)
        assert self.done, "a call in the background does not end"
        if self._failure is not None:
            raise self._failure


@contextlib.contextmanager
def program(*command: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with pipes for its input and output; it is ended with the block."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen[bytes](command, env=environment(), **(pipes | more))
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                stack.callback(_close, pipe)
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield process


def _close(pipe: Any) -> None:
    with contextlib.suppress(OSError):  # what could not be written is of no use any more
        pipe.close()


OTHERS = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "JOURNAL_STREAM", "NO_COLOR")
"""Variables of other programs that would change what ours write."""


def environment() -> dict[str, str]:
    """Return the environment of a program that is to find this checkout, and no settings."""
    found = {name: text for name, text in os.environ.items() if not name.startswith("PUBSUBD_")}
    for name in OTHERS:
        found.pop(name, None)
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return found | {"PYTHONPATH": os.pathsep.join(path)}


def tool(name: str) -> str:
    """Return the path of a program of the system, or skip the test and say how to get it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: run scripts/setup-test-tools")
    if name == "nc":  # the others called so know no -N
        told = subprocess.run([path, "-h"], capture_output=True, timeout=DEADLINE, check=False)
        if b"OpenBSD" not in told.stdout + told.stderr:
            pytest.skip("nc is not OpenBSD's: run scripts/setup-test-tools")
    return path
