"""The line protocol's grammar, without I/O: what is legal, and how things are written.

    pub <name> <length> <data><LF>
    sub <substring><LF>
    unsub <substring><LF>

``sub`` and ``unsub`` alone mean the empty substring, which every name contains.

The daemon's hot loop is in :mod:`pubsubd.broker.broker`; it comes here for what it has
not seen before. Clients use :class:`Decoder`.

A *header* is everything of a ``pub`` before its data, ``pub <name> <length> ``.
By this grammar no header is the beginning of another one: it ends at its third
space. The broker's lookups rely on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import LARGE, MAX_DIGITS, MAX_LINE, MAX_NAME

FORWARD = b"//fwd/"
TOPICS = FORWARD + b"hub-topics/"
"""Copies of topics of the hub begin so, then come the mesh, a slash and the topic."""

HUB = FORWARD + b"hub/"
"""What daemons tell each other about their hubs is named so, then come the mesh and for whom."""

OWN = b"//pubsubd/"
ERROR = b"//pubsubd/error"
HELP = b"//pubsubd/help"

TO_LINE_END = b"-"
"""Stands for the length of data that the line ends: for people, who would have to count."""


def header_matcher(reserved: tuple[bytes, ...]) -> Callable[..., re.Match[bytes] | None]:
    """Return what :data:`match_header` is, for names that begin with none of ``reserved``."""
    none = b"|".join(map(re.escape, reserved))
    legal = rb"\npub (?!%b)([^ \r\n]{1,%d}) ([0-9]{1,%d}) " % (none, MAX_NAME, MAX_DIGITS)
    return re.compile(legal).match


match_header = header_matcher((OWN,))
"""Match LF and a ``pub`` header in lower case: groups 1 and 2 are its name and its digits.

What matches is legal, unless its name is not UTF-8, and is not the daemon's own.
"""

_ALONE = {b"help": b"help", b"?": b"help", b"quit": b"quit", b"exit": b"quit"}
_IAC = 0xFF
_TLS = b"\x16\x03"  # how a greeting begins
_QUOTED = 64
_WINDOW = 64  # frames whose headers are compared at first
_HTTP = (b" HTTP/1.0", b" HTTP/1.1", b" HTTP/2.0")


def equal_headers(buf: bytes, at: int, key: bytes, length: int) -> int:
    """Return how many frames in a row, ``length`` bytes apart from ``at`` on, begin with ``key``.

    At least 1, as the first one is known to. Compares a column of bytes at a time, so that
    a frame costs about 5 ns instead of a lookup; windows grow, so that a short run costs
    little. The last frame may be cut short by the end of ``buf``.
    """
    done, window = 1, _WINDOW
    while True:
        base = at + done * length
        rows = min(window, (len(buf) - base) // length)
        for i in range(len(key) - 1, -1, -1):  # the last bytes of a header differ most
            column = buf[base + i : base + rows * length : length]
            if column != key[i : i + 1] * rows:
                rows = next(row for row in range(rows) if column[row] != key[i])
        done += rows
        if rows < window:
            return done
        window *= 8


def escape(text: bytes | str, limit: int | None = None) -> str:
    r"""Return ``text`` as one printable line: ``\n``, ``\x1b``, ``\\`` for what is not.

    With ``limit``, at most that many characters or bytes of ``text``, and ``...`` after
    them where something was left out.
    """
    cut = limit is not None and len(text) > limit
    if cut:
        text = text[:limit]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    shown = "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape_one(c)) for c in text)
    return shown + "..." if cut else shown


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _escape_one(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote(text: bytes) -> str:
    """Return ``text`` escaped and cut, in double quotes, for an error line."""
    return '"' + escape(text, _QUOTED).replace('"', '\\"') + '"'


def show_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, or ``[HOST]:PORT`` if the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_in(address: str) -> str:
    """Return the host in ``HOST:PORT`` or ``[HOST]:PORT``; an empty text if there is none."""
    return address.rpartition(":")[0].strip("[]")


def is_utf8(text: bytes) -> bool:
    """Return whether ``text`` is valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_name(name: bytes, what: str = "name") -> None:
    """Raise :class:`ProtocolError` unless ``name`` is a legal name or substring."""
    if not name:
        raise ProtocolError("bad-name", f"the {what} is missing")
    if len(name) > MAX_NAME:
        raise ProtocolError("name-too-long", f"the {what} has {len(name)} bytes, over {MAX_NAME}")
    for bad, title in ((b" ", "a space"), (b"\r", "a CR"), (b"\n", "an LF")):
        if bad in name:
            raise ProtocolError("bad-name", f"{title} in the {what} {quote(name)}")
    if not is_utf8(name):
        raise ProtocolError("bad-name", f"the {what} {quote(name)} is not UTF-8")


def parse_length(digits: bytes) -> int:
    """Return the payload length that ``digits`` spell; raise :class:`ProtocolError`."""
    if not digits.isdigit() or len(digits) > MAX_DIGITS:  # int() alone takes b"1_0" and b"+5"
        shown = quote(digits) if digits else "nothing"
        raise ProtocolError("bad-length", f"expected - or 1 to {MAX_DIGITS} digits, got {shown}")
    return int(digits)


class Sizes(dict[bytes, int]):
    """Payload lengths by their digits; each spelling is read once. Holds 4,096 at most."""

    def __missing__(self, digits: bytes) -> int:
        if len(self) >= 4_096:
            self.clear()
        self[digits] = size = parse_length(digits)
        return size


_sizes = Sizes()  # of what decoders have read


def check_size(size: int, max_payload: int) -> None:
    """Raise :class:`ProtocolError` if ``size`` bytes of data are too many."""
    if size > max_payload:
        raise ProtocolError("payload-too-large", f"{size} bytes of data, over {max_payload}")


def subscription(verb: bytes, substring: bytes) -> bytes:
    """Return a whole ``sub`` or ``unsub`` command; the empty substring is for all names."""
    return b"%b %b\n" % (verb, substring) if substring else verb + b"\n"


def header(name: bytes, size: int) -> bytes:
    """Return ``pub <name> <size> ``."""
    return b"pub %b %d " % (name, size)


def frame(name: bytes, data: bytes) -> bytes:
    """Return a whole ``pub`` command."""
    return b"pub %b %d %b\n" % (name, len(data), data)


def error_frame(error: ProtocolError) -> bytes:
    """Return the line that tells ``error`` to the peer."""
    return frame(ERROR, f"{error.code} {error.text}".encode())


def copy_name(name: bytes) -> bytes | None:
    """Return the name of ``name``'s forwarded copy, or None where there is none.

    ``//x/y`` is copied to ``//fwd/x/y``. Names that do not start with ``//`` are local,
    and names under ``//fwd/`` are forwarded as they are. A name whose copy's name would be
    too long has no copy.
    """
    if not name.startswith(b"//") or name.startswith(FORWARD) or len(name) > MAX_NAME - 4:
        return None
    return FORWARD + name[2:]


def find_header_end(buf: bytes, start: int) -> int:
    """Return the offset just after the header at ``start``, which begins with ``pub``, or -1.

    -1 when the line ends, or reaches :data:`~pubsubd.protocol.limits.MAX_LINE`, or the bytes end,
    before a third space.
    """
    room = start + MAX_LINE
    gap = buf.find(b" ", start + 4, room)
    stop = buf.find(b" ", gap + 1, room) if gap >= 0 else -1
    if stop < 0 or buf.find(b"\n", start, stop) >= 0:
        return -1
    return stop + 1


def find_line_end(buf: bytes, start: int) -> int:
    """Return the offset of the LF that ends the line at ``start``, or -1 if it is not there yet.

    Raises:
        ProtocolError: ``line-too-long``, after :data:`~pubsubd.protocol.limits.MAX_LINE` bytes, or
            ``no-tls``.
    """
    stop = buf.find(b"\n", start, start + MAX_LINE + 1)
    if buf.startswith(_TLS, start):
        raise ProtocolError("no-tls", "this listener does not speak TLS")
    if stop < 0 and len(buf) - start > MAX_LINE:
        shown = quote(buf[start : start + 24])
        raise ProtocolError("line-too-long", f"{MAX_LINE} bytes without a line feed, from {shown}")
    return stop


def find_typed_data(buf: bytes, start: int, most: int) -> tuple[int, int]:
    """Return the offsets of the end of the data at ``start``, and of the LF that ends its line.

    The latter is -1 if it is not there yet.

    Raises:
        ProtocolError: ``payload-too-large``, for more than ``most`` bytes.
    """
    stop = buf.find(b"\n", start, start + most + 2)
    if stop < 0 and len(buf) < start + most + 2:
        return start, -1
    end = stop - 1 if buf[start:stop].endswith(b"\r") else stop
    if stop < 0 or end > start + most:
        raise ProtocolError("payload-too-large", f"over {most} bytes of data without a length")
    return end, stop


def parse_header(head: bytes) -> tuple[bytes, bytes]:
    """Split a ``pub`` header, which ends with its third space, into name and digits."""
    _verb, name, digits, _rest = head.split(b" ", 3)
    return name, digits


def parse_line(line: bytes) -> tuple[bytes, bytes]:
    """Return the verb and the substring of a line without its end.

    The verb is ``b"sub"``, ``b"unsub"``, ``b"help"`` or ``b"quit"``. The substring is empty for the
    last two, and for the first two where they are alone.

    Raises:
        ProtocolError: for every other line, a ``pub`` that has no header included.
    """
    verb, gap, rest = line.partition(b" ")
    verb = verb.lower()
    if verb in (b"sub", b"unsub"):
        if gap and not rest:  # as a script writes it whose variable is empty
            text = f"the substring is missing; {verb.decode()} alone is for all names"
            raise ProtocolError("bad-name", text)
        if gap:
            check_name(rest, "substring")
        return verb, rest
    if not gap and verb in _ALONE:
        return _ALONE[verb], b""
    if verb == b"pub":
        name = rest.partition(b" ")[0]
        if not name:
            raise ProtocolError("bad-name", "pub needs a name, a length and data")
        raise ProtocolError("bad-length", f"pub {quote(name)} needs a length, a space and data")
    if line.endswith(_HTTP) and gap:
        raise ProtocolError("http-request", "this is a line protocol: pub, sub and unsub")
    hint = "JSON goes to the hub port" if verb.startswith(b"{") else "try help"
    raise ProtocolError("unknown-command", f"{quote(verb)} is not pub, sub or unsub; {hint}")


def end_of_frame(chunk: bytes, offset: int) -> int:
    """Return where the frame that holds ``offset`` ends; frames begin at the start of ``chunk``.

    ``chunk`` holds whole, legal frames: what a broker delivers. An ``offset`` between two
    frames is returned as it is.
    """
    at = 0
    while at < offset:
        at = next_frame(chunk, at)
    return at


def count_frames(chunk: bytes) -> int:
    """Return how many frames ``chunk`` holds: whole, legal ones."""
    at = count = 0
    while at < len(chunk):
        at = next_frame(chunk, at)
        count += 1
    return count


def next_frame(chunk: bytes, at: int) -> int:
    """Return the offset after the whole, legal frame at ``at``, or the answer to telnet there."""
    if chunk[at] == _IAC:
        return at + 3
    gap = chunk.index(b" ", at + 4)
    stop = chunk.index(b" ", gap + 1)
    return stop + 1 + int(chunk[gap + 1 : stop]) + 1


def skip_frames(chunk: bytes, at: int, most: int) -> int:
    """Return the offset after the whole, legal frames at ``at``, after ``most`` of them at most."""
    while at < len(chunk) and most > 0:
        at = next_frame(chunk, at)
        most -= 1
    return at


_FRAGMENT = 4_096  # bytes; less is copied behind what has come before


class Decoder:
    """Frames out of a byte stream, for clients: feed bytes, get ``(name, data)`` pairs.

    It reads what a daemon writes, so anything but a legal ``pub`` ends the stream.
    Holds at most one frame beyond what it was fed.

    Attributes:
        size: bytes that are held.
        stopped: whether there may be whole messages that were not asked for yet.
    """

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._parts: list[bytes | bytearray] = []
        self._missing = 1
        self._name = b""  # of the last message, which is legal
        self._start = b"\n"  # of a message with that name; none begins so
        self._large = 0  # bytes before the data of a large message that has come in part
        self.size = 0
        self.stopped = False

    @property
    def incomplete(self) -> bool:
        """Whether the last frame has come in part only."""
        return any(self._parts)

    def feed(self, data: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        """Return the messages that ``data`` completes.

        Args:
            data: what has come.
            most: of so many messages the rest are kept, for another call, without data perhaps.

        Raises:
            ProtocolError: the stream is not this protocol, or a frame is over the limit.
        """
        if not data and not self.stopped:
            return []
        parts = self._parts
        if not self.size:
            parts[:] = [data]
        elif len(data) < _FRAGMENT:  # or a few bytes at a time would be a part each
            tail = parts[-1]
            if not isinstance(tail, bytearray):
                tail = bytearray()
                parts.append(tail)
            tail += data
        else:
            parts.append(data)
        self.size += len(data)
        if len(data) < self._missing:
            self._missing -= len(data)
            return []
        found: list[tuple[bytes, bytes]] = []
        if self._large and most != 0:
            found.append((self._name, self._complete(len(data))))
        self._large = 0
        buf = b"".join(parts)
        at, end, self._missing, self.stopped = 0, len(buf), 1, False
        while at < end:
            if len(found) == most:
                self._missing, self.stopped = 0, True
                break
            size = -1
            if buf.startswith(self._start, at):  # the same name again, as most have
                begin = at + len(self._start)
                start = buf.find(b" ", begin, begin + MAX_DIGITS + 1) + 1
                size = _sizes.get(buf[begin : start - 1], -1) if start else -1
            if size < 0:
                start, size = self._read_header(buf, at)
                if start < 0:
                    break
            if size > self._max_payload:
                check_size(size, self._max_payload)
            stop = start + size
            if stop >= end:
                self._missing = stop + 1 - end
                self._large = start - at if size >= LARGE else 0
                break
            if buf[stop] != 10:
                raise ProtocolError("wrong-length", f"after {quote(self._name)} no line feed")
            found.append((self._name, buf[start:stop]))
            at = stop + 1
        self._parts = [buf[at:]]
        self.size = end - at
        return found

    def _read_header(self, buf: bytes, at: int) -> tuple[int, int]:
        """Return where the data of the message at ``at`` begins, and its size.

        -1 if its header has not come as a whole.
        """
        start = find_header_end(buf, at)
        verb, ended = buf[at : at + 4].lower(), start < 0 and find_line_end(buf, at) >= 0
        if ended or verb != b"pub "[: len(verb)]:
            raise ProtocolError("unknown-command", f"not a pub: {quote(buf[at : at + 64])}")
        if start < 0:
            return -1, 0
        name, digits = parse_header(buf[at:start])
        if name != self._name or not name:
            check_name(name)
            self._name, self._start = name, b"pub %b " % name
        return start, _sizes[digits]

    def _complete(self, size: int) -> bytes:
        """Return the data of a large message that the last ``size`` bytes complete, copied once."""
        first, *middle, last = self._parts
        stop = len(last) - size + self._missing - 1
        if last[stop] != 10:
            raise ProtocolError("wrong-length", f"after {quote(self._name)} no line feed")
        data = b"".join((memoryview(first)[self._large :], *middle, memoryview(last)[:stop]))
        self._parts[:] = [last[stop + 1 :]]
        return data
