"""Messages of ``pubsubd bench``: cycles of frames, and whether they arrive as they were sent.

Strategy: what the daemon passes on is the frames as they were published, in runs of one publisher.
So a read is compared with the cycles of the publishers, in a few comparisons.

Invariant:

- All publishers but the one that a :class:`Check` is at are due to go on with a whole frame.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import click

from pubsubd.client.faults import daemon_error
from pubsubd.protocol import wire
from pubsubd.protocol.limits import MIB

MAX_CYCLES = 512 * MIB
"""Bytes of the frames of all publishers."""

LOST = "a message is lost, duplicated or out of order"
"""Error text of what does not arrive as it was sent."""

_STAMP = b"%03x%05x"  # publisher, number in its cycle
_STAMP_SIZE = 8
_MOST = 0xFFFFF  # messages of a cycle: what the stamp has room for
_CYCLE = MIB  # bytes of all cycles, at least


@dataclass(frozen=True)
class Plan:
    """What is published.

    Attributes:
        publishers, subscribers: connections of either kind.
        size: bytes of data of a message.
        names: how many different names are published in turn.
        prefix: of all names; what the subscribers subscribe.
    """

    publishers: int
    subscribers: int
    size: int
    names: int
    prefix: str = field(default_factory=lambda: f"bench/{os.urandom(3).hex()}/")

    @property
    def frame(self) -> int:
        """Bytes of each frame."""
        return len(self.make(0, 0))

    @property
    def stamped(self) -> bool:
        """Whether the data have room for a stamp."""
        return self.size >= _STAMP_SIZE

    def make(self, publisher: int, number: int) -> bytes:
        """Return a frame of a publisher's cycle."""
        width = len(str(self.names - 1))
        name = f"{self.prefix}{number % self.names:0{width}}"
        stamp = _STAMP % (publisher, number) if self.stamped else b""
        return wire.frame(name.encode(), stamp.ljust(self.size, b"."))

    def cycle(self, publisher: int) -> bytes:
        """Return the frames that a publisher sends again and again."""
        rounds = max(1, _CYCLE // (self.publishers * self.frame * self.names))
        count = self.names * min(rounds, _MOST // self.names)
        return b"".join([self.make(publisher, number) for number in range(count)])


class Check:
    """What one subscriber receives, compared with what it is due.

    If several publishers send several names, messages without room for a stamp are only counted.

    Args:
        plan: what is published.
        cycles: of each publisher.

    Attributes:
        bytes: that were received.
    """

    def __init__(self, plan: Plan, cycles: list[bytes]) -> None:
        self.bytes = 0
        self._frame = plan.frame
        self._counted = not plan.stamped and plan.names > 1 and plan.publishers > 1
        self._cycles = cycles if plan.stamped else cycles[:1]
        self._due = [0] * len(self._cycles)
        self._from = 0
        self._rest = b""  # the beginning of a frame that does not yet tell whose it is
        self._stamp = self._frame - 1 - plan.size  # where it stands in a frame

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            click.ClickException: it is not what is due.
            PubsubdError: the daemon tells an error.
        """
        self.bytes += len(data)
        if self._counted:
            return
        data = self._rest + data
        self._rest = b""
        at = 0
        while at < len(data):
            cycle, due = self._cycles[self._from], self._due[self._from]
            room = min(len(data) - at, len(cycle) - due)
            piece = data[at : at + room]
            if cycle.startswith(piece, due):
                tail = (due + room) % self._frame
                if 0 < tail < self._stamp + _STAMP_SIZE and len(self._cycles) > 1:
                    room -= tail
                    self._rest = data[at + room :]
                    at += tail
            else:
                whole = (due + _common(piece, cycle, due)) // self._frame * self._frame - due
                if whole <= 0:
                    if whole < 0 or not self._turn(data, at):
                        raise self._fault(data[at:])
                    if self._rest:
                        return
                    continue
                room = whole
            self._due[self._from] = (due + room) % len(cycle)
            at += room

    def _turn(self, data: bytes, at: int) -> bool:
        """Go on with the publisher of the frame at ``at``; False if it is not another one."""
        if len(self._cycles) == 1:
            return False
        stamp = data[at + self._stamp : at + self._stamp + 3]
        if not data.startswith(b"pub bench/"[: len(data) - at], at):
            return False
        if len(stamp) < 3:
            self._rest = data[at:]
            return True
        try:
            who = int(stamp, 16)
        except ValueError:
            return False
        if who == self._from or who >= len(self._cycles):
            return False
        self._from = who
        return True

    def _fault(self, data: bytes) -> Exception:
        if data.startswith(b"pub %b " % wire.ERROR):
            return daemon_error(data.split(b" ", 3)[-1].split(b"\n")[0], "")
        return click.ClickException(LOST)


def _common(piece: bytes, cycle: bytes, due: int) -> int:
    """Return how many bytes ``piece`` begins with that ``cycle`` has at ``due``."""
    low, high = 0, len(piece)
    while high - low > 1:
        middle = (low + high) // 2
        if cycle.startswith(piece[low:middle], due + low):
            low = middle
        else:
            high = middle
    return low
