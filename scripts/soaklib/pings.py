"""A worker: how long a client waits for its own message, on each port, while all else happens.

Each probe sends one message to itself and waits for it before the next one. The wait is told
less the time in which the daemon or the probe was ready to run and had no processor: that is the
machine's doing, and the attacker's if it runs on the same one. Told as well is how long the daemon
computed meanwhile, which is the same however busy the machine is.

To a daemon of several workers, a probe has two connections: they are the first ones of a new
daemon, so they are at different workers, and each message crosses.

It is told ``mark`` (begin anew) and ``report`` (after waiting for what is under way).
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .daemons import family
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
        worked: milliseconds that the daemon has computed meanwhile, the most of any message.
        longest_at: seconds since the mark at which the longest one was sent.
        without: milliseconds without a processor, of all messages together.
        lost: whether the last one has not come.
        broken: why the connection has ended, if it has.
    """

    took: list[float] = field(default_factory=list)
    worked: float = 0.0
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
    def __init__(
        self,
        address: Address,
        hello: tuple[bytes, bytes],
        wrap: tuple[bytes, bytes],
        *,
        crossing: bool,
    ) -> None:
        self._sock = self._out = address.connect()
        said, due = hello
        self._sock.sendall(said)
        heard = b""
        while due not in heard:
            heard += self._sock.recv(MIB)
        if crossing:
            self._out = address.connect()
        self._wrap = wrap
        self._rest = b""
        self._sent = 0
        self._delayed = _Spent([], 0)
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

    @property
    def answered(self) -> int | None:
        """The descriptor of the connection that only publishes, if there is one."""
        return None if self._out is self._sock else self._out.fileno()

    def discard(self) -> None:
        """Throw away what is answered to the one that only publishes."""
        try:
            if not self._out.recv(MIB):
                self._end("closed where it publishes")
        except OSError as error:
            self._end(repr(error))

    def send(self, delayed: _Spent) -> None:
        self._sent, self._delayed = time.monotonic_ns(), delayed
        self.stamp = b"%020d" % self._sent
        try:
            self._out.sendall(self.stamp.join(self._wrap))
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
        delayed, worked = delays.of_daemon().since(self._delayed)
        without = delayed + delays.of_waking()
        waits.worked = max(waits.worked, worked / 1e6)
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


@dataclass
class _Spent:
    """Nanoseconds since the daemon was started.

    Attributes:
        delayed: in which each of its processes was ready to run and could not.
        worked: in which they ran.
    """

    delayed: list[int]
    worked: int

    def since(self, before: _Spent) -> tuple[int, int]:
        """Return those of the process that was delayed most since then, and those of all."""
        pairs = zip(self.delayed, before.delayed, strict=False)
        delayed = max((now - then for now, then in pairs), default=0)
        return max(0, delayed), self.worked - before.worked


class _Delays:
    """How long the daemon, or this process, was ready to run and could not.

    Of this process only the last time counts: while the daemon is busy it makes no difference.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._daemon = [_open(f"/proc/{pid}/schedstat") for pid in pids]
        self._own = _open("/proc/self/schedstat")
        self._slept = 0

    def sleep(self) -> None:
        """Take note that this process is about to sleep."""
        self._slept = _read(self._own)[1]

    def of_daemon(self) -> _Spent:
        """Return the daemon's since it was started."""
        read = [_read(file) for file in self._daemon]
        return _Spent([delayed for _, delayed in read], sum(worked for worked, _ in read))

    def of_waking(self) -> int:
        """Return that of this process since it last slept."""
        return _read(self._own)[1] - self._slept


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):  # not everywhere
        return os.open(path, os.O_RDONLY)
    return None


def _read(file: int | None) -> tuple[int, int]:
    """Return how long a process has run, and been ready to run."""
    if file is not None:
        with contextlib.suppress(OSError):
            worked, delayed = os.pread(file, 100, 0).split()[:2]
            return int(worked), int(delayed)
    return 0, 0


def pings(told: Told, line: Address, hub: Address, pid: int) -> None:
    """Probe both ports; see the module. ``pid`` is the daemon's, or the supervisor's."""
    with contextlib.suppress(OSError):
        os.nice(-10)  # or it would measure who else runs on the machine
    pids = family(pid)
    delays, crossing = _Delays(pids), len(pids) > 1
    size, name = 20, _NAME.encode()
    pong = frame(b"//pubsubd/ping", b"subscribed")
    made = frame(name, b"-" * size)
    text = over("ndjson", synap_publish(_NAME, "-" * size))
    probes = {
        "line": _Probe(
            line, (b"sub %b\n" % name + pong, pong), _cut(made, size), crossing=crossing
        ),
        "hub": _Probe(
            hub,
            (over("ndjson", synap_subscribe(_NAME)), b'"success":true'),
            _cut(text, size),
            crossing=crossing,
        ),
    }
    told.answer()
    poll = select.poll()
    poll.register(told.fileno(), select.POLLIN)
    by_fd = {probe.fileno(): probe for probe in probes.values()}
    answered = {probe.answered: probe for probe in probes.values() if probe.answered is not None}
    for fd in (*by_fd, *answered):
        poll.register(fd, select.POLLIN)
    while True:
        for probe in probes.values():
            if not probe.stamp and time.monotonic() >= probe.due:
                probe.send(delays.of_daemon())
        idle = [probe.due for probe in probes.values() if not probe.stamp]
        wait = min([*idle, time.monotonic() + 0.1]) - time.monotonic()
        delays.sleep()
        _take(poll, max(0, int(wait * 1000 + 0.999)), by_fd, answered, delays)
        if told.waiting:
            word, *arguments = told.hear()
            if word == "mark":
                for probe in probes.values():
                    probe.mark()
                told.answer()
            else:
                _wait(by_fd, answered, poll, delays, *arguments)
                told.answer({name: probe.waits for name, probe in probes.items()})


def _take(
    poll: select.poll,
    wait: int,
    by_fd: dict[int, _Probe],
    answered: dict[int, _Probe],
    delays: _Delays,
) -> None:
    """Take what comes within so many milliseconds."""
    for fd, _ in poll.poll(wait):
        if fd in by_fd:
            by_fd[fd].receive(delays)
        elif fd in answered:
            answered[fd].discard()
        else:
            continue
        if (by_fd.get(fd) or answered[fd]).waits.broken:
            poll.unregister(fd)


def _wait(
    by_fd: dict[int, _Probe],
    answered: dict[int, _Probe],
    poll: select.poll,
    delays: _Delays,
    patience: float,
) -> None:
    """Wait for what is under way; what does not come has waited until now, and is lost."""
    until = time.monotonic() + patience
    probes = by_fd.values()
    while time.monotonic() < until and any(probe.stamp for probe in probes):
        delays.sleep()
        _take(poll, 100, by_fd, answered, delays)
    for probe in probes:
        if probe.stamp:
            probe.take(delays)
            probe.waits.lost = True


def _cut(text: bytes, size: int) -> tuple[bytes, bytes]:
    """Return what is before and behind the place of a stamp."""
    before, after = text.split(b"-" * size)
    return before, after
