"""A worker: how long a message takes while all else happens.

Probes leave at their times, whether those before have come or not, so that a time in which
nothing moves counts in full. It is told ``mark`` (begin anew) and ``report`` (milliseconds of
each route since the mark, and probes that have not come at all).
"""

from __future__ import annotations

import select
import ssl
import time
from dataclasses import dataclass, field

from .wires import MIB, PATIENCE, Address, frame, reset_at_end
from .workers import Told

_EVERY = 0.01  # seconds


@dataclass(frozen=True)
class Route:
    """Where probes go in and come out.

    Attributes:
        name: what it is called in reports.
        into, out: where it is published and where it is received.
    """

    name: str
    into: Address
    out: Address


@dataclass
class Times:
    """What became of the probes of a route.

    Attributes:
        took: milliseconds of each that came.
        missing: probes that have been under way for more than a second, or for ever.
    """

    took: list[float] = field(default_factory=list)
    missing: int = 0


class _Probe:
    def __init__(self, number: int, route: Route, every: float) -> None:
        self.route = route
        name = b"probe/%d" % number
        self._name = b"//" + name
        self._out = route.out.connect()
        self._out.sendall(b"sub //fwd/%b\n" % name)
        self._into = route.into.connect()
        reset_at_end(self._out)
        self._out.setblocking(False)
        self._every = every
        self._rest = b""
        self.times = Times()
        self.under_way: set[int] = set()
        self.due = time.monotonic() + every * number / 8
        self.fileno = self._out.fileno

    def send(self, now: float) -> None:
        if now >= self.due:
            stamp = time.monotonic_ns()
            self._into.sendall(frame(self._name, b"%020d" % stamp))
            self.under_way.add(stamp)
            self.due = max(self.due + self._every, now - 0.5)

    def receive(self) -> None:
        try:
            while data := self._out.recv(MIB):
                now = time.monotonic_ns()
                *whole, self._rest = (self._rest + data).split(b"\n")
                for one in whole:
                    stamp = int(one[-20:])
                    if stamp in self.under_way:
                        self.under_way.discard(stamp)
                        self.times.took.append((now - stamp) / 1e6)
                if not isinstance(self._out, ssl.SSLSocket):
                    return
            raise ConnectionError(f"probe {self.route.name} was closed: {self._rest!r}")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass

    def mark(self) -> None:
        self.times = Times()
        self.under_way.clear()

    def report(self) -> Times:
        self.times.missing = len(self.under_way)
        return self.times


def probes(told: Told, routes: list[Route], every: float = _EVERY) -> None:
    """Send probes over all routes; see the module."""
    all_probes = [_Probe(number, route, every) for number, route in enumerate(routes)]
    _wait_first(all_probes)
    told.answer()
    poll = select.poll()
    poll.register(told.fileno(), select.POLLIN)
    by_fd = {}
    for one in all_probes:
        poll.register(one.fileno(), select.POLLIN)
        by_fd[one.fileno()] = one
    while True:
        now = time.monotonic()
        for one in all_probes:
            one.send(now)
        wait = min(one.due for one in all_probes) - time.monotonic()
        for fd, _ in poll.poll(max(0.0, wait * 1000)):
            if fd in by_fd:
                by_fd[fd].receive()
                continue
            word, *arguments = told.hear()
            if word == "mark":
                for one in all_probes:
                    one.mark()
                told.answer()
            else:
                until = time.monotonic() + (arguments[0] if arguments else 1.0)
                while time.monotonic() < until and any(one.under_way for one in all_probes):
                    for there, _ in poll.poll(10):
                        if there in by_fd:
                            by_fd[there].receive()
                told.answer({one.route.name: one.report() for one in all_probes})


def _wait_first(all_probes: list[_Probe]) -> None:
    """Wait until each route carries."""
    until = time.monotonic() + PATIENCE
    for one in all_probes:
        while not one.times.took:
            if time.monotonic() > until:
                raise TimeoutError(f"no probe comes by {one.route.name}")
            one.send(time.monotonic())
            select.select([one], [], [], 0.02)
            one.receive()
        one.mark()
