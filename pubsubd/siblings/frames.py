"""Frames between two workers: a length, a kind, and bytes whose form depends on the kind.

Both ends are the same program, and nobody else can connect: what comes is what was sent.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import chain

from pubsubd.protocol.limits import MAX_READ, READ_SIZE
from pubsubd.routing.outbox import Pieces

BATCH = 1
"""Messages: flags, how many, the number of the connection that they are of, the length of a label,
the label, and frames of the line protocol."""

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

WAIT, GO_ON = 9, 10
"""The number of a connection: it has filled a consumer and waits for that; it need not any more."""

LETTER = 11
"""A letter between hubs: the number of the connection whose message it is, or 0, a line of words,
and a body."""

ADDRESSED = 12
"""A batch whose frames are sorted by who gets them: how many get some, and for each of these its
number as an owner, how many messages, and how many bytes; then the frames."""

ANYBODY = 0
"""Stands in place of an owner, and last of a batch: its messages, in their order, are for whoever
wants them, and how many each of the owners before gets is not known."""

VOUCHED, RELAYED, MADE = 1, 2, 4
"""Flags of a batch: this daemon vouches for the senders that it names; it comes from another daemon
of the mesh; all of it is vouched for, and was made on the hub port."""

READ_AT_ONCE = 2 * READ_SIZE
"""Bytes of a read, and as many may be under way: those of several publishers, which would be read
one by one here. That saves a fifth of the processor time where many publish what all workers want.
"""

_HEAD = struct.Struct("!IB")
_BATCH = struct.Struct("!BIQH")
_COUNT = struct.Struct("!H")
_PART = struct.Struct("!III")
_MOST_LABEL = 1_024  # the id of another daemon at most
_MOST_PIECES = 32  # from there on it takes less time to join them
_MOST_CHUNKS = _MOST_PIECES - 1  # of a batch: its head is another one


Part = tuple[int, int, list[memoryview]]
"""Of a sorted batch: an owner, how many messages, and their frames."""


def frame(kind: int, data: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(len(data), kind) + data


def batch(flags: int, count: int, number: int, label: bytes, chunks: list[bytes]) -> list[bytes]:
    """Return the pieces of a batch of ``count`` messages, as frames of the line protocol."""
    label = label[:_MOST_LABEL]
    return _batch(BATCH, _BATCH.pack(flags, count, number, len(label)) + label, chunks)


def addressed(
    count: int, number: int, label: bytes, parts: list[tuple[int, int, list[bytes]]]
) -> list[bytes]:
    """Return the pieces of a batch that is sorted: for each owner its number, count and frames."""
    label = label[:_MOST_LABEL]
    table = [_PART.pack(owner, few, sum(map(len, chunks))) for owner, few, chunks in parts]
    head = _BATCH.pack(0, count, number, len(label)) + label + _COUNT.pack(len(table))
    every = chain.from_iterable(chunks for _, _, chunks in parts)
    return _batch(ADDRESSED, head + b"".join(table), list(every))


def _batch(kind: int, head: bytes, chunks: list[bytes]) -> list[bytes]:
    if len(chunks) > _MOST_CHUNKS:  # before anything is done for each of them
        chunks = [b"".join(chunks)]
    return [_HEAD.pack(len(head) + sum(map(len, chunks)), kind) + head, *chunks]


def together(pieces: list[bytes]) -> Pieces:
    """Return what is sent at once: joined if it is more pieces than the system may take then."""
    return Pieces(pieces if len(pieces) <= _MOST_PIECES else [b"".join(pieces)])


def open_batch(views: list[memoryview]) -> tuple[int, int, int, bytes, list[memoryview]]:
    """Return a batch: flags, how many messages, whose, the label and the messages."""
    first, *rest = views
    if len(first) < _BATCH.size + _MOST_LABEL and rest:
        first, rest = memoryview(b"".join(views)), []
    flags, count, number, length = _BATCH.unpack_from(first)
    stop = _BATCH.size + length
    return flags, count, number, bytes(first[_BATCH.size : stop]), [first[stop:], *rest]


def open_addressed(chunks: list[memoryview]) -> list[Part]:
    """Return the parts of a sorted batch, of which :func:`open_batch` has returned the rest."""
    first, *more = chunks
    if more and len(first) < _COUNT.size:
        first, more = memoryview(b"".join(chunks)), []
    (count,) = _COUNT.unpack_from(first)
    start = _COUNT.size + count * _PART.size
    if more and len(first) < start:
        first, more = memoryview(b"".join(chunks)), []
    table = _PART.iter_unpack(first[_COUNT.size : start])
    views = deque([first[start:], *more])
    return [(owner, few, cut(views, size)) for owner, few, size in table]


def cut(views: deque[memoryview], count: int) -> list[memoryview]:
    """Take so many bytes away, and return them."""
    found = []
    while count:
        first = views.popleft()
        if len(first) > count:
            views.appendleft(first[count:])
            first = first[:count]
        found.append(first)
        count -= len(first)
    return found


class Frames:
    """Frames out of a stream of bytes, of which nothing is copied.

    Attributes:
        size: bytes that are held.
    """

    def __init__(self) -> None:
        self._views: deque[memoryview] = deque()
        self._kind = 0  # of the frame whose head has come; 0 if none has
        self._need = _HEAD.size  # bytes of its data, or of the next head
        self.size = 0

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""
        return max(READ_AT_ONCE, min(self._need - self.size, MAX_READ))

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.size += len(data)
        self._views.append(memoryview(data))

    def take(self) -> tuple[int, list[memoryview]] | None:
        """Return the next frame, its kind and its data; None if it has not come in whole."""
        if not self._kind:
            if self.size < _HEAD.size:
                return None
            self._need, self._kind = _HEAD.unpack(b"".join(self._cut(_HEAD.size)))
        if self.size < self._need:
            return None
        kind, data = self._kind, self._cut(self._need)
        self._kind, self._need = 0, _HEAD.size
        return kind, data

    def _cut(self, count: int) -> list[memoryview]:
        self.size -= count
        return cut(self._views, count)
