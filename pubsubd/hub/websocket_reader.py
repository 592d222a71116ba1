"""Messages in the stream of a WebSocket's client (RFC 6455), without I/O.

Strategy: everything a well-behaved client sends, its fragments and pings included, is read by
offsets, and a payload is unmasked as one large integer, 1 µs for 400 bytes. A frame that breaks the
protocol ends the connection, with the code and the words of wsproto. A reader at rest is a hundred
bytes.

Invariants:

- ``_rest`` is empty or the beginning of a frame, and is looked at again only when ``_need`` bytes
  of it have come. So a frame costs the same in whatever pieces it comes.
- A reader holds at most ``max_message`` bytes of messages, a header, and what it was fed last.
- Its events do not depend on how the stream was cut.
"""

from __future__ import annotations

from wsproto.frame_protocol import CloseReason, Opcode

from pubsubd.hub.frames import Closed, Event, Send, TooLarge, close_frame
from pubsubd.protocol.wire import escape

_BLOCK = 16_384  # bytes unmasked at once: larger integers leave the processor's cache
_EXCESS = 16  # a message over so many times what is allowed is not skipped: the connection ends
_KINDS = frozenset(map(int, Opcode))
_CODES = frozenset(map(int, CloseReason))  # those below 3000 that mean something
_NEVER_SENT = (  # which stand for what came instead of a close frame
    CloseReason.NO_STATUS_RCVD,
    CloseReason.ABNORMAL_CLOSURE,
    CloseReason.TLS_HANDSHAKE_FAILED,
)

_int = int.from_bytes


class WebSocketReader:
    """Messages out of the frames of a client, after the handshake. No extensions.

    Whether a text is UTF-8 is left to whoever decodes it.

    Args:
        max_message: bytes of one message, in however many fragments.
    """

    __slots__ = ("_ended", "_max", "_message", "_need", "_rest", "_skip", "_total")

    def __init__(self, max_message: int) -> None:
        self._max = max_message
        self._rest: bytes | bytearray = b""
        self._need = 0
        self._skip = 0  # bytes to come of a frame that is not wanted
        self._total = -1  # bytes of the message whose fragments are coming; -1 for none
        self._message: bytearray | None = None  # what has come of it, unless it is too large
        self._ended = False

    @property
    def halfway(self) -> bool:
        """Whether part of a frame or message has come and the rest has not."""
        return bool(self._rest) or self._skip > 0 or self._total >= 0

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that ``data`` completes; nothing comes after a :class:`Closed`."""
        if self._ended:
            return []
        at = 0
        if self._skip:
            at = min(self._skip, len(data))
            self._skip -= at
        if self._rest:
            rest = self._rest
            if len(rest) + len(data) < self._need:
                if isinstance(rest, bytes):
                    rest = self._rest = bytearray(rest)
                rest += data
                return []
            data = b"".join((rest, data))
            self._rest = rest = b""
        events: list[Event] = []
        need, end = 2, len(data)
        whole = b"" if self._total >= 0 else b"\x81\x82"  # FIN, and text or binary
        most = min(self._max, _BLOCK)
        # The hot loop: one turn a frame, 0.3 µs and the unmasking, 1.1 µs in all for 400 bytes.
        while end - at > 1:
            first = data[at]
            size = data[at + 1] - 128  # under 0: not masked
            start = at + 6
            if size > 125:
                width = 2 if size == 126 else 8
                start += width
                if end < start - 4:
                    need = 2 + width
                    break
                size = _int(data[at + 2 : start - 4])
                if size < (126 if width == 2 else 65_536) or size >> 63:
                    size = -1  # not written as it should be
            if first in whole and 0 <= size <= most:
                stop = start + size
                if stop > end:
                    need = stop - at
                    break
                mask = data[start - 4 : start] * (size // 4 + 1)
                plain = _int(data[start:stop], "little") ^ _int(mask[:size], "little")
                events.append(plain.to_bytes(size, "little"))
                at = stop
                continue
            need = self._take(data, at, start, size, events)
            if need:
                break
            need = 2
            at = start + size
            whole = b"" if self._total >= 0 else b"\x81\x82"
            if at > end:
                self._skip = at - end
                at = end
        if at < end and need > 0:
            self._rest = data[at:] if at else data
            self._need = need
        return events

    def _take(self, data: bytes, at: int, start: int, size: int, events: list[Event]) -> int:
        """Deal with any frame: large ones, fragments, control frames, faulty ones.

        Returns:
            How many bytes the frame has, if they are all needed and have not all come; 0 if it is
            dealt with, even if bytes that are not needed are still to come; -1 if it is the end.
        """
        first, kind, total = data[at], data[at] & 0x0F, self._total
        stop = start + size
        if kind >= 8:
            if not 0 <= size <= 125 or not 0x88 <= first <= 0x8A:
                return self._refuse(data[at : start - 4], events)
            if stop > len(data):
                return stop - at
            if kind == 8:
                return self._close(*_read_close(_unmask(data, start, stop)), events)
            if kind == 9:
                events.append(Send(b"\x8a%c%b" % (size, _unmask(data, start, stop))))
            return 0
        if size < 0 or first & 0x70 or kind > 2 or (kind == 0) is (total < 0):
            return self._refuse(data[at : start - 4], events)
        total = size + max(total, 0)
        if total > self._max * _EXCESS:
            return self._close(
                CloseReason.MESSAGE_TOO_BIG, f"{total} bytes or more, over {self._max}", events
            )
        final = first >= 0x80
        if total > self._max:
            self._message = None
            if final:
                events.append(TooLarge(total))
        elif stop > len(data):
            return stop - at
        elif final and self._message is None:
            events.append(_unmask(data, start, stop))
        else:
            if self._message is None:
                self._message = bytearray()
            self._message += _unmask(data, start, stop)
            if final:
                events.append(bytes(self._message))
                self._message = None
        self._total = -1 if final else total
        return 0

    def _refuse(self, head: bytes, events: list[Event]) -> int:
        """End the connection for a frame that breaks the protocol."""
        return self._close(CloseReason.PROTOCOL_ERROR, _describe_fault(head), events)

    def _close(self, code: int, reason: str, events: list[Event]) -> int:
        events.append(Closed(code, escape(reason), close_frame(code, reason)))
        self._ended = True
        self._rest, self._message, self._skip, self._total = b"", None, 0, -1
        return -1


def _describe_fault(head: bytes) -> str:
    """Describe the first fault in the header of a frame, in wsproto's words.

    ``head`` is the frame up to its mask. If the header has no fault, the frame continues a
    message that has not begun, or begins one in the middle of another.
    """
    first, short, kind = head[0], head[1] & 0x7F, head[0] & 0x0F
    masked, control = head[1] >= 0x80, kind >= 8
    if kind not in _KINDS:
        return f"Invalid opcode {kind:#x}"
    if control and first < 0x80:
        return "Invalid attempt to fragment control frame"
    if masked and control and short > 125:
        return "Control frame with payload len > 125"
    size = _int(head[2:])
    if masked and short == 126 and size < 126:
        return "Payload length used 2 bytes when 1 would have sufficed"
    if masked and short == 127 and size < 65_536:
        return "Payload length used 8 bytes when 2 would have sufficed"
    if masked and short == 127 and size >> 63:
        return "8-byte payload length with non-zero MSB"
    if first & 0x70:
        return "Reserved bit set unexpectedly"
    if not masked:
        return "server received unexpected unmasked frame"
    if kind == Opcode.CONTINUATION:
        return "unexpected CONTINUATION"
    return f"expected CONTINUATION, got {Opcode(kind)!r}"


def _read_close(payload: bytes) -> tuple[int, str]:
    """Return code and reason of a close frame, or those with which a faulty one is answered."""
    if not payload:
        return CloseReason.NO_STATUS_RCVD, ""
    if len(payload) == 1:
        return CloseReason.PROTOCOL_ERROR, "CLOSE with 1 byte payload"
    code = _int(payload[:2])
    if not 1000 <= code <= 4999:
        return CloseReason.PROTOCOL_ERROR, "CLOSE with invalid code"
    if code in _NEVER_SENT:
        return CloseReason.PROTOCOL_ERROR, "remote CLOSE with local-only reason"
    if code < 3000 and code not in _CODES:
        return CloseReason.PROTOCOL_ERROR, "CLOSE with unknown reserved code"
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError as error:
        text = f"Error decoding CLOSE reason: {error}"
        return CloseReason.INVALID_FRAME_PAYLOAD_DATA, text


def _unmask(data: bytes, start: int, stop: int) -> bytes:
    """Return the payload from ``start`` to ``stop``, whose mask is just before it."""
    mask = data[start - 4 : start] * (min(stop - start, _BLOCK) // 4 + 1)
    parts = []
    for at in range(start, stop, _BLOCK):
        size = min(stop - at, _BLOCK)
        plain = _int(data[at : at + size], "little") ^ _int(mask[:size], "little")
        parts.append(plain.to_bytes(size, "little"))
    return b"".join(parts)
