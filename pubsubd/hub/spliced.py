"""Frames with a gap for the receiver's address in each, which is filled in for one after the other.

What is between the gaps is the same for all receivers whose addresses are of one length. In general
it is joined anew for each of them, :class:`Joined`. Where there is much of it, and the gaps are
equally far from one another, there is one buffer for all, :class:`Patched`: of an address, only
the bytes are written that differ from the one before it. Addresses differ little, and a copy of
all frames would take half as long as the kernel's own.
"""

from __future__ import annotations

from typing import cast

from pubsubd.routing.outbox import Pieces

MUCH = 8_192
"""Bytes of payloads from which on a buffer costs less than joining, with 50 receivers or more."""

_MOST = 32  # bytes of an address beyond which it is written as a whole

_BYTES = [bytes((value,)) for value in range(256)]


class Joined:
    """Frames in any places.

    Args:
        stretches: what is before the first gap, between each two, and behind the last one.

    Attributes:
        size: bytes that are kept.
    """

    __slots__ = ("_stretches", "size")

    def __init__(self, stretches: list[bytes]) -> None:
        self._stretches = stretches
        self.size = sum(map(len, stretches))

    def fill(self, address: bytes) -> bytes:
        """Return the frames for a receiver."""
        return address.join(self._stretches)


class Patched:
    """Frames of one length, with the gap in one place.

    Args:
        frames: whole ones, for ``address``.
        count: how many.
        start: where the first gap is.
        address: of the first receiver; those of all others are of the same length.

    Attributes:
        size: bytes that are kept.
    """

    __slots__ = ("_address", "_buffer", "_count", "_start", "size")

    def __init__(self, frames: bytearray, count: int, start: int, address: bytes) -> None:
        self._buffer = frames
        self._count = count
        self._start = start
        self._address = address
        self.size = len(frames)

    def fill(self, address: bytes) -> Pieces:
        """Return the frames for a receiver; they are valid until the next call."""
        if address != self._address:
            buffer, count, start, known = self._buffer, self._count, self._start, self._address
            step = len(buffer) // count
            differing = [at for at, byte in enumerate(address) if byte != known[at]]
            if len(differing) > _MOST:
                for at in range(start, len(buffer), step):
                    buffer[at : at + len(address)] = address
            else:
                for at in differing:
                    buffer[start + at :: step] = _BYTES[address[at]] * count
            self._address = address
        return Pieces([cast("bytes", self._buffer)])  # who keeps them makes bytes of it
