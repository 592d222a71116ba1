"""Numbered messages, and the check that none is lost, doubled, out of order or changed.

There are two kinds of streams. Those named ``p..`` are *fast*: runs of messages of one size on
one name, as a fast publisher sends them. What has to arrive is known beforehand, byte for byte,
and is compared run by run, so that the check costs some 10 ns a message. Those named ``s..`` are
*slow*: they pass all doors, in JSON and out of it again, so each one is found by its mark, which
is its stream, its number and a checksum.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

RUN = 100
"""Messages of a run; the last digits of a number are the place in it."""

_SIZE = 40  # bytes of data
_HOLE = b"########"  # where the number of the run goes
_MARK = re.compile(
    rb'(?:"payload":(?:\{"name":"[^"]*","data":)?"|\d )(([sz]\d\d) (\d{8})) ([0-9a-f]{8})'
)
_KEPT = 400  # bytes in which the beginning of a message may be
_TOLD = re.compile(rb"pub //pubsubd/error \d+ ([a-z-]+)|\"reason\":\"([a-z-]+)\"")

PUBLISHED, COPIED = b"//soak/", b"//fwd/soak/"
SLOW_PUBLISHED, SLOW_COPIED = b"//slow/", b"//fwd/slow/"


def _template(name: bytes, prefix: bytes) -> bytes:
    parts = []
    for i in range(RUN):
        check = zlib.crc32(b"%b %d" % (name, i))
        data = (b"%b%02d %b %08x" % (_HOLE, i, name, check)).ljust(_SIZE, b".")
        parts.append(b"pub %b%b %d %b\n" % (prefix, name, _SIZE, data))
    return b"".join(parts)


class Runs:
    """The runs of one fast stream, as they are published or as they arrive."""

    def __init__(self, name: str, prefix: bytes) -> None:
        self._template = _template(name.encode(), prefix)
        self._made: dict[int, bytes] = {}
        self.header = b"pub %b%b " % (prefix, name.encode())
        self.size = len(self._template) // RUN
        self.number_at = self._template.index(_HOLE)

    def __getitem__(self, number: int) -> bytes:
        """Return the run with that number, in bytes."""
        found = self._made.get(number)
        if found is None:
            if len(self._made) >= 64:
                self._made.clear()
            self._made[number] = found = self._template.replace(_HOLE, b"%08d" % number)
        return found

    def message(self, number: int) -> bytes:
        """Return one message."""
        at = number % RUN * self.size
        return self[number // RUN][at : at + self.size]


@dataclass
class Flow:
    """What one subscriber has had of one stream.

    Attributes:
        next: the number that has to come.
        received: messages that came as they should.
        gaps: numbers that were left out: first, and the one after the last.
        excused_gaps: the same of those that were left out because a connection broke.
        late: messages that came after later ones.
        doubled: messages that came again.
        changed: messages that are not what was published.
        heard: whether anything has come since that was last reset.
        broken: whether a gap is excused, since a connection has just broken.
    """

    next: int = 0
    received: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    excused_gaps: list[tuple[int, int]] = field(default_factory=list)
    late: int = 0
    doubled: int = 0
    changed: int = 0
    heard: bool = False
    broken: bool = False
    samples: list[str] = field(default_factory=list)

    def take(self, number: int) -> None:
        """Take a message that is as it was published."""
        self.heard = True
        if number < self.next:
            self._take_old(number)
            return
        if number > self.next:
            if self.broken:
                self.excused_gaps.append((self.next, number))
            else:
                self.gaps.append((self.next, number))
                self.sample(f"{number} after {self.next - 1}")
        self.broken = False
        self.received += 1
        self.next = number + 1

    def _take_old(self, number: int) -> None:
        self.sample(f"{number} after {self.next - 1}")
        for gaps in (self.gaps, self.excused_gaps):
            for i, (first, stop) in enumerate(gaps):
                if first <= number < stop:
                    parts = (first, number), (number + 1, stop)
                    gaps[i : i + 1] = [part for part in parts if part[0] < part[1]]
                    self.late += 1
                    return
        self.doubled += 1

    @property
    def lost(self) -> int:
        """How many messages never came, with no connection broken."""
        return sum(stop - first for first, stop in self.gaps)

    @property
    def excused(self) -> int:
        """How many never came because a connection broke."""
        return sum(stop - first for first, stop in self.excused_gaps)

    def sample(self, text: str) -> None:
        if len(self.samples) < 3:
            self.samples.append(text)


class FastReader:
    """Reads the fast streams of a connection to the line port.

    Attributes:
        flows: name of a stream -> what has come of it.
        told: codes of errors that came.
        strange: frames that nobody of us has sent.
        primed: numbers of the publishers of whom something has come before they began.
    """

    def __init__(self, names: list[str], known: dict[str, Runs]) -> None:
        self.flows = {name: Flow() for name in names}
        self.told: list[str] = []
        self.strange: list[str] = []
        self.primed: set[str] = set()
        self._runs = {known[name].header: (known[name], self.flows[name]) for name in names}
        self._rest = b""
        self._header = len(next(iter(self._runs)))
        self._size = known[names[0]].size

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        if self._rest:
            data = self._rest + data
        at, end, size = 0, len(data), self._size
        while end - at >= size:
            found = self._runs.get(data[at : at + self._header])
            if found is None:
                step = self._take_other(data, at)
                if not step:
                    break
                at += step
                continue
            runs, flow = found
            place = flow.next % RUN
            count = min((end - at) // size, RUN - place)
            due = runs[flow.next // RUN]
            start = place * size
            if data[at : at + count * size] != due[start : start + count * size]:
                low = 0  # as many as are as they should be, found by halves
                while count - low > 1:
                    middle = (low + count) // 2
                    if data.startswith(due[start : start + middle * size], at):
                        low = middle
                    else:
                        count = middle
                count = low
                if not count:
                    self._take_one(data[at : at + size], runs, flow)
                    at += size
                    continue
            flow.next += count
            flow.received += count
            flow.heard, flow.broken = True, False
            at += count * size
        self._rest = data[at:]
        if self._rest and self._rest.startswith(b"pub //pubsubd/"):
            step = self._take_other(self._rest, 0)
            self._rest = self._rest[step:]

    def break_off(self) -> None:
        """Take note that the connection broke, and that there is another one."""
        self._rest = b""
        for flow in self.flows.values():
            flow.broken = True

    def _take_one(self, data: bytes, runs: Runs, flow: Flow) -> None:
        at = runs.number_at
        digits = data[at : at + 10]
        if digits.isdigit() and data == runs.message(int(digits)):
            flow.take(int(digits))
        else:
            flow.changed += 1
            flow.sample(repr(data))

    def _take_other(self, data: bytes, at: int) -> int:
        """Take one frame that is of no stream; return its length, 0 if it is not complete."""
        end = data.find(b" ", at + 4)
        start = data.find(b" ", end + 1) + 1
        if end < 0 or not start:
            return 0
        stop = start + int(data[end + 1 : start - 1]) + 1
        if stop > len(data):
            return 0
        if (match := _TOLD.match(data, at)) is not None:
            self.told.append(match[1].decode())
        elif data[end - 3 : end - 2] == b"z":
            self.primed.add(data[end - 2 : end].decode())
        elif not data.startswith(b"//pubsubd/", at + 4):
            self.strange.append(repr(data[at:stop][:80]))
        return stop - at


def errors(data: bytes) -> tuple[list[str], int]:
    """Return the codes of the errors in what was received, and where the last one ends."""
    found = list(_TOLD.finditer(data)) if b"error" in data else []
    return [(match[1] or match[2]).decode() for match in found], found[-1].end() if found else 0


def mark(name: str, number: int) -> bytes:
    """Return the data of one message of a slow stream."""
    text = b"%b %08d" % (name.encode(), number)
    return b"%b %08x" % (text, zlib.crc32(text))


class SlowReader:
    """Reads the slow streams, whatever is spoken: each message has its mark in it once."""

    def __init__(self, names: list[str]) -> None:
        self.flows = {name: Flow() for name in names}
        self.told: list[str] = []
        self.strange: list[str] = []
        self.primed: set[str] = set()
        self._by_name = {name.encode(): flow for name, flow in self.flows.items()}
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        data = self._rest + data
        end = 0
        for match in _MARK.finditer(data):
            flow = self._by_name.get(match[2])
            if match[2][:1] == b"z":
                self.primed.add(match[2][1:].decode())
            elif flow is not None:
                if zlib.crc32(match[1]) == int(match[4], 16):
                    flow.take(int(match[3]))
                else:
                    flow.changed += 1
                    flow.sample(repr(match[0]))
            end = match.end()
        codes, after = errors(data)
        self.told += codes
        self._rest = data[max(end, after, len(data) - _KEPT) :]

    def break_off(self) -> None:
        """Take note that the connection broke, and that there is another one."""
        self._rest = b""
        for flow in self.flows.values():
            flow.broken = True
