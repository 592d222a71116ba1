"""Frames of the output: a WebSocket's (RFC 6455), or lines; and events of their readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pubsubd.protocol import wire

_HTTP_SWITCH = b"HTTP/1.1 101 "


@dataclass(frozen=True, slots=True)
class Send:
    """Something to send now, before the answers to what comes after it, such as a pong."""

    data: bytes


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A message of ``size`` bytes, too many: none of it is held, and the connection goes on."""

    size: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of a connection: nothing comes after it.

    Attributes:
        code: the client's close code (1005 if it sent none), or 1002 or 1009 for a fault of its.
        reason: one printable line, escaped.
        reply: the frame to send before closing; empty for none.
    """

    code: int
    reason: str
    reply: bytes


Event = bytes | TooLarge | Send | Closed
"""An event of a reader: a complete message as bytes, or one of the others."""


class Framing(Protocol):
    """The way in which texts follow one another in the output.

    Attributes:
        tail: bytes after a text.
    """

    tail: bytes

    def head(self, size: int) -> bytes:
        """Return the bytes before a text of ``size`` bytes."""

    def frame(self, body: bytes) -> bytes:
        """Return one text as a whole frame."""

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        """Return where the frame that holds ``offset`` ends, in a chunk of whole frames.

        An ``offset`` between two frames is returned as it is.
        """

    def count_frames(self, chunk: bytes) -> int:
        """Return how many frames a chunk holds, all of them whole."""


class _WebSocketFraming:
    """Frames of a server: unmasked, each a whole text.

    A chunk may begin with answers of HTTP, the last of which switches to WebSocket; these are not
    counted, and are cut only at their end.
    """

    __slots__ = ()
    first = 0x81  # a whole text
    tail = b""

    def head(self, size: int) -> bytes:
        if size < 126:
            return _SMALL_HEADS[self.first, size]
        if size < 65_536:
            return _MEDIUM[self.first] + size.to_bytes(2)
        return _LARGE[self.first] + size.to_bytes(8)

    def frame(self, body: bytes) -> bytes:
        return self.head(len(body)) + body

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        at = _first_frame(chunk) if offset else 0
        while at < offset:
            at = _next_frame(chunk, at)
        return at

    def count_frames(self, chunk: bytes) -> int:
        at, count = _first_frame(chunk), 0
        while at < len(chunk):
            at = _next_frame(chunk, at)
            count += 1
        return count


_SMALL_HEADS = {
    (first, size): bytes((first, size)) for first in (0x81, 0x82) for size in range(126)
}


_MEDIUM = {first: bytes((first, 126)) for first in (0x81, 0x82)}
_LARGE = {first: bytes((first, 127)) for first in (0x81, 0x82)}


class _LinesInWebSocketFraming(_WebSocketFraming):
    """Frames of a server that hold frames of the line protocol, each of them some whole ones."""

    __slots__ = ()
    first = 0x82  # whole, and binary

    def count_frames(self, chunk: bytes) -> int:
        at, count = _first_frame(chunk), 0
        while at < len(chunk):
            end = _next_frame(chunk, at)
            if chunk[at] == self.first:
                count += wire.count_frames(chunk[_start_of_data(chunk, at) : end])
            at = end
        return count


def _first_frame(chunk: bytes) -> int:
    if not chunk.startswith(b"H"):
        return 0
    end = chunk.find(b"\r\n\r\n", chunk.rfind(_HTTP_SWITCH))
    return end + 4 if end >= 0 else len(chunk)


def _next_frame(chunk: bytes, at: int) -> int:
    size = chunk[at + 1]
    if size < 126:
        return at + 2 + size
    start = _start_of_data(chunk, at)
    return start + int.from_bytes(chunk[at + 2 : start])


def _start_of_data(chunk: bytes, at: int) -> int:
    size = chunk[at + 1]
    return at + (2 if size < 126 else 4 if size == 126 else 10)


class _LineFraming:
    """A text a line. Texts hold no LF: that is escaped in JSON."""

    __slots__ = ()
    tail = b"\n"

    def head(self, size: int) -> bytes:
        return b""

    def frame(self, body: bytes) -> bytes:
        return body + b"\n"

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        if not offset or chunk[offset - 1] == 10:
            return offset
        return chunk.index(b"\n", offset) + 1

    def count_frames(self, chunk: bytes) -> int:
        return chunk.count(b"\n")


WEBSOCKET: Framing = _WebSocketFraming()
LINES_IN_WEBSOCKET: Framing = _LinesInWebSocketFraming()
NDJSON: Framing = _LineFraming()


def close_frame(code: int, reason: str) -> bytes:
    """Return a close frame; of ``reason`` at most 123 bytes; 1005 makes an empty one."""
    if code == 1005:
        return b"\x88\0"
    text = reason.encode(errors="replace")[:123].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (2 + len(text), code.to_bytes(2), text)
