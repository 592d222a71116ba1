"""Output that waits for one peer, without I/O.

Strategy: chunks of whole frames, in order, as they were delivered: a chunk that many
peers wait for is one bytes object in all their outboxes. Only small chunks are
copied together, so that a million tiny messages do not cost a million objects.

Invariants:

- Every chunk holds whole frames; ``_offset`` bytes of the first one are sent.
- ``size`` is the number of bytes not sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

_SMALL = 2_048  # a chunk under this is copied behind its predecessor, if that is under it too
_ONCE = 262_144  # bytes that are joined for one send
_NONE: deque[bytes | memoryview] = deque(maxlen=0)  # of those who have never had a backlog


class Pieces:
    """Whole frames in pieces that need not be joined, or copied, if all go at once.

    Attributes:
        parts: the pieces, in order; a buffer among them is right only until it is used again.
        size: bytes of them all.
    """

    __slots__ = ("_whole", "parts", "size")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))
        self._whole: bytes | None = None

    def __len__(self) -> int:
        return self.size

    def whole(self) -> bytes:
        """Return the frames in one piece: the same object for all who cannot take it at once."""
        if self._whole is None:
            self._whole = b"".join(self.parts)  # the part itself, if it is the only one
        return self._whole


class Hold:
    """Something without which output must not be sent yet.

    Attributes:
        over: whether it has come.
    """

    __slots__ = ("_waiting", "over")

    def __init__(self) -> None:
        self.over = False
        self._waiting: list[Callable[[], None]] = []

    def then(self, call: Callable[[], None]) -> None:
        """Call ``call`` when it has come, or now if it has."""
        if self.over:
            call()
        else:
            self._waiting.append(call)

    def release(self) -> None:
        """Let it have come."""
        self.over = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def after(self, other: Hold | None) -> Hold:
        """Return what comes when both this and ``other`` have come."""
        if other is None or other.over:
            return self
        both = Hold()
        other.then(partial(self.then, both.release))
        return both


class Outbox:
    """A backlog of bytes.

    Attributes:
        size: bytes waiting.
        held: what has to come before any more is sent; None for nothing.
    """

    __slots__ = ("_chunks", "_offset", "held", "size")

    def __init__(self) -> None:
        self._chunks = _NONE
        self._offset = 0
        self.size = 0
        self.held: Hold | None = None

    def put(self, chunk: bytes, sent: int = 0) -> None:
        """Append ``chunk``, whole frames, of which ``sent`` bytes are sent already.

        Only the first chunk can be sent in part.
        """
        self.size += len(chunk) - sent
        chunks = self._chunks
        if not chunks:
            self._offset = sent
            if chunks is _NONE:
                chunks = self._chunks = deque()
        elif len(chunk) < _SMALL and len(chunks[-1]) < _SMALL:
            chunk = b"".join((chunks.pop(), chunk))
        chunks.append(chunk)

    def head(self) -> bytes | memoryview:
        """Return what to send next, some of :attr:`size` bytes; empty if nothing waits."""
        chunks = self._chunks
        if not chunks:
            return b""
        first = chunks[0]
        if len(first) < _ONCE and len(chunks) > 1:
            parts = [chunks.popleft()]
            room = _ONCE - len(first)
            while chunks and len(chunks[0]) <= room:
                room -= len(chunks[0])
                parts.append(chunks.popleft())
            first = b"".join(parts)
            chunks.appendleft(first)
        return memoryview(first)[self._offset :] if self._offset else first

    def sent(self, count: int) -> None:
        """Take note that the first ``count`` bytes of the last :meth:`head` are sent."""
        self.size -= count
        self._offset += count
        if self._offset >= len(self._chunks[0]):
            self._chunks.popleft()
            self._offset = 0

    def cut(self, end_of_frame: Callable[[bytes, int], int]) -> None:
        """Throw away all but the rest of a frame that is sent in part.

        What is put next is then understood by a reader that has kept up with what was sent.

        Args:
            end_of_frame: tells where the frame ends that holds an offset of a chunk.
        """
        if not self._chunks:
            return
        first, offset = self._chunks[0], self._offset
        self._chunks.clear()
        self._offset = self.size = 0
        if offset and isinstance(first, bytes):
            rest = memoryview(first)[offset : end_of_frame(first, offset)]  # still shared
            if rest:
                self._chunks.append(rest)
                self.size = len(rest)
