"""A worker: how long a client waits for its own message, on each port, while all else happens.

Each probe sends one message to itself and waits for it before the next one. The wait is told
less the time in which the daemon or the probe was ready to run and had no processor: that is the
machine's doing, and the attacker's if it runs on the same one.

It is told ``mark`` (begin anew) and ``report`` (after waiting for what is under way).
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass, field

from .verdict import percentile
from .wires import MIB, Address, frame, over, synap_publish, synap_subscribe
from .workers import Told

EVERY = 0.002
"""Seconds between two messages while nothing is in the way."""

_NAME = "ψ"  # which is in nothing that an attack subscribes unawares


@dataclass
class Waits:
    """What a probe has seen.

    Attributes:
        took: milliseconds of each message, less those without a processor.
        longest_at: seconds since the mark at which the longest one was sent.
        without: milliseconds without a processor, of all messages together.
        lost: whether the last one has not come.
        broken: why the connection has ended, if it has.
    """

    took: list[float] = field(default_factory=list)
    longest_at: float = 0.0
    without: float = 0.0
    lost: bool = False
    broken: str = ""

    @property
    def longest(self) -> float:
        return max(self.took, default=0.0)

    def share(self, share: float) -> float:
        """Return the wait that so many are not above whose messages come at any moment.

        Who waits sends nothing meanwhile; so a long wait stands for those messages as well that
        others would have sent in that time.
        """
        every = EVERY * 1000
        all_waits = list(self.took)
        for wait in self.took:
            while (wait := wait - every) > every:
                all_waits.append(wait)
        return percentile(all_waits, share)


class _Probe:
    def __init__(self, address: Address, hello: bytes, wrap: tuple[bytes, bytes]) -> None:
        self._sock = address.connect()
        self._sock.sendall(hello)
        self._wrap = wrap
        self._rest = b""
        self._sent = self._delayed = 0
        self._marked = time.monotonic()
        self.stamp = b""  # of what is under way
        self.due = 0.0
        self.waits = Waits()
        self.fileno = self._sock.fileno

    def mark(self) -> None:
        """Begin anew; what is under way counts no more."""
        self.waits = Waits(broken=self.waits.broken)
        self.stamp = b""
        self._marked = time.monotonic()

    def send(self, delayed: int) -> None:
        self._sent, self._delayed = time.monotonic_ns(), delayed
        self.stamp = b"%020d" % self._sent
        try:
            self._sock.sendall(self.stamp.join(self._wrap))
        except OSError as error:
            self._end(repr(error))

    def receive(self, delays: _Delays) -> None:
        try:
            data = self._sock.recv(MIB)
        except OSError as error:
            self._end(repr(error))
            return
        if not data:
            self._end(f"closed: {self._rest[-200:]!r}")
            return
        self._rest = (self._rest + data)[-4096:]
        if self.stamp and self.stamp in self._rest:
            self._rest = b""
            self.take(delays)

    def take(self, delays: _Delays) -> None:
        """Take note of what is under way, whether it has come or not."""
        waits = self.waits
        without = delays.of_daemon() - self._delayed + delays.of_waking()
        took = max(0.0, (time.monotonic_ns() - self._sent - without) / 1e6)
        waits.without += without / 1e6
        if took > waits.longest:
            waits.longest_at = self._sent / 1e9 - self._marked
        waits.took.append(took)
        self.stamp = b""
        self.due = time.monotonic() + EVERY

    def _end(self, why: str) -> None:
        self.waits.broken = self.waits.broken or why
        self.waits.lost = bool(self.stamp)
        self.stamp = b""
        self.due = float("inf")


class _Delays:
    """Nanoseconds in which the daemon, or this process, was ready to run and could not.

    Of this process only the last time counts: while the daemon is busy it makes no difference.
    """

    def __init__(self, pid: int) -> None:
        self._daemon = _open(f"/proc/{pid}/schedstat")
        self._own = _open("/proc/self/schedstat")
        self._slept = 0

    def sleep(self) -> None:
        """Take note that this process is about to sleep."""
        self._slept = _read_delay(self._own)

    def of_daemon(self) -> int:
        """Return the daemon's since it was started."""
        return _read_delay(self._daemon)

    def of_waking(self) -> int:
        """Return that of this process since it last slept."""
        return _read_delay(self._own) - self._slept


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):  # not everywhere
        return os.open(path, os.O_RDONLY)
    return None


def _read_delay(file: int | None) -> int:
    if file is not None:
        with contextlib.suppress(OSError):
            return int(os.pread(file, 100, 0).split()[1])
    return 0


def pings(told: Told, line: Address, hub: Address, pid: int) -> None:
    """Probe both ports; see the module. ``pid`` is the daemon's."""
    with contextlib.suppress(OSError):
        os.nice(-10)  # or it would measure who else runs on the machine
    delays = _Delays(pid)
    size, name = 20, _NAME.encode()
    made = frame(name, b"-" * size)
    text = over("ndjson", synap_publish(_NAME, "-" * size))
    probes = {
        "line": _Probe(line, b"sub %b\n" % name, _cut(made, size)),
        "hub": _Probe(hub, over("ndjson", synap_subscribe(_NAME)), _cut(text, size)),
    }
    told.answer()
    poll = select.poll()
    poll.register(told.fileno(), select.POLLIN)
    by_fd = {probe.fileno(): probe for probe in probes.values()}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    while True:
        for probe in probes.values():
            if not probe.stamp and time.monotonic() >= probe.due:
                probe.send(delays.of_daemon())
        idle = [probe.due for probe in probes.values() if not probe.stamp]
        wait = min([*idle, time.monotonic() + 0.1]) - time.monotonic()
        delays.sleep()
        for fd, _ in poll.poll(max(0, int(wait * 1000 + 0.999))):
            if fd in by_fd:
                by_fd[fd].receive(delays)
                if by_fd[fd].waits.broken:
                    poll.unregister(fd)
        if told.waiting:
            word, *arguments = told.hear()
            if word == "mark":
                for probe in probes.values():
                    probe.mark()
                told.answer()
            else:
                _wait(probes, poll, delays, *arguments)
                told.answer({name: probe.waits for name, probe in probes.items()})


def _wait(probes: dict[str, _Probe], poll: select.poll, delays: _Delays, patience: float) -> None:
    """Wait for what is under way; what does not come has waited until now, and is lost."""
    until = time.monotonic() + patience
    by_fd = {probe.fileno(): probe for probe in probes.values()}
    while time.monotonic() < until and any(probe.stamp for probe in probes.values()):
        delays.sleep()
        for fd, _ in poll.poll(100):
            if fd in by_fd:
                by_fd[fd].receive(delays)
                if by_fd[fd].waits.broken:
                    poll.unregister(fd)
    for probe in probes.values():
        if probe.stamp:
            probe.take(delays)
            probe.waits.lost = True


def _cut(text: bytes, size: int) -> tuple[bytes, bytes]:
    """Return what is before and behind the place of a stamp."""
    before, after = text.split(b"-" * size)
    return before, after
