"""Frames between two workers: a length, a kind, and bytes whose form depends on the kind.

Both ends are the same program, and nobody else can connect: what comes is what was sent.
"""

from __future__ import annotations

import struct

from pubsubd.protocol.limits import MAX_READ, READ_SIZE
from pubsubd.routing.outbox import Pieces

BATCH = 1
"""Messages: flags, how many, the length of a label, the label, and frames of the line protocol."""

WANT = 2
"""Keys of which the other worker now has, or no longer has, subscribers: one a line."""

MARK, MARKED = 3, 4
"""A number, which comes back when everything before it has been carried out."""

ASK, ANSWER = 5, 6
"""A question: a number, a name, and data; an answer: the number, whether it is one, and data."""

TELL = 7
"""Something that is not answered: a name, and data."""

OUT = 8
"""That nothing more comes of clients: this worker ends, or has taken note that the other one does.
"""

VOUCHED, RELAYED = 1, 2
"""Flags of a batch: this daemon vouches for the senders that it names; it comes from another daemon
of the mesh."""

_HEAD = struct.Struct("!IB")
_BATCH = struct.Struct("!BIH")
_MOST_LABEL = 65_535


def frame(kind: int, data: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(len(data), kind) + data


def batch(flags: int, count: int, label: bytes, chunks: list[bytes]) -> Pieces:
    """Return a batch of ``count`` messages, as frames of the line protocol."""
    label = label[:_MOST_LABEL]
    size = _BATCH.size + len(label) + sum(map(len, chunks))
    head = _HEAD.pack(size, BATCH) + _BATCH.pack(flags, count, len(label)) + label
    return Pieces([head, *chunks])


def open_batch(data: bytes) -> tuple[int, int, bytes, bytes]:
    """Return the flags, the number of messages, the label and the frames of a batch."""
    flags, count, length = _BATCH.unpack_from(data)
    stop = _BATCH.size + length
    return flags, count, data[_BATCH.size : stop], data[stop:]


class Frames:
    """Frames out of a stream of bytes.

    Attributes:
        size: bytes that are held.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0  # bytes without which there is no whole frame
        self._buf = b""
        self._at = 0
        self.size = 0

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""
        return max(READ_SIZE, min(self._missing, MAX_READ))

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.size += len(data)
        self._parts.append(data)
        self._missing -= len(data)

    def take(self) -> tuple[int, bytes] | None:
        """Return the next frame, its kind and its data; None if it has not come in whole."""
        if self._parts:
            if self._missing > 0:
                return None
            self._buf = b"".join((self._buf[self._at :], *self._parts))
            self._parts.clear()
            self._at = 0
        start = self._at + _HEAD.size
        have = len(self._buf)
        if start > have:
            self._missing = start - have
            return None
        length, kind = _HEAD.unpack_from(self._buf, self._at)
        stop = start + length
        if stop > have:
            self._missing = stop - have
            return None
        data = self._buf[start:stop]
        self.size -= stop - self._at
        self._at = stop
        if stop == have:
            self._buf, self._at = b"", 0
        self._missing = 0
        return kind, data
