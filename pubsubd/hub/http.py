"""HTTP/1.1 as a server reads and answers it, without I/O, and the upgrade to WebSocket.

Strategy: h11 reads one request after the other, each with an object of its own, which is fed in
slices; wsproto judges and answers an upgrade. Requests are read ahead of their answers: an answer
needs to know whether it has a body and whether it is the last one.

Invariants:

- Answers leave in the order of the requests, one each: ``_due`` has the unanswered ones.
- Memory is bounded by a header block, a body, and the small requests that fit into one read.
- The events do not depend on how the stream was cut.
- No answer and no error text repeats what a client sent, except an Origin, whose characters are
  checked, in :func:`pubsubd.hub.browsers.cors_headers`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

import h11
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection
from wsproto.handshake import H11Handshake
from wsproto.utilities import ProtocolError as HandshakeError

from pubsubd.hub.frames import Closed, Send

MAX_HEADER = 16_384
"""Bytes of a request line and its headers; also what h11 is fed at once."""

MAX_LINES = 200
"""Lines of such a header block: each takes 2 µs to read."""

_CHUNKED = 1_024  # bytes of a chunked body that h11 is fed at once: each chunk takes 20 µs

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_REASONS |= {413: "Content Too Large", 422: "Unprocessable Content"}  # new names in Python 3.13

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FOR_BROWSERS = (
    "Cache-Control: no-store",
    "X-Content-Type-Options: nosniff",
    "Cross-Origin-Resource-Policy: same-origin",
)
"""In every answer: it is not kept, it is what it says it is, and no other page shows it."""
_OF_UPGRADE = (b"connection", b"upgrade")

_find_blank_line = re.compile(rb"\n\r?\n").search
_match_header_name = re.compile(r"[A-Za-z0-9-]+").fullmatch
_match_header_value = re.compile(r"[ -~]*").fullmatch


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        path: percent-decoded, without the query.
        query: key -> its values, in order.
        headers: name in lower case -> value; those of one name are joined by ``", "``.
        upgrade: whether it asks for a WebSocket as it should: :meth:`HttpReader.accept` it, or
            refuse it, which ends the connection.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    upgrade: bool


@dataclass(frozen=True, slots=True)
class HttpError:
    """A fault of the client, to be answered with ``status``; nothing comes after it."""

    status: int
    text: str


Event = Request | HttpError | Send | Closed
"""An event of a reader. Closed comes after a request that is the last one."""


class HttpReader:
    """The requests of one connection, and the form of their answers.

    Args:
        max_body: bytes of a request's body.

    Attributes:
        ended: whether an answer has said that the connection is closed after it.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_due",
        "_fed",
        "_handshake",
        "_lines",
        "_max",
        "_parser",
        "_reading",
        "_request",
        "_trailing",
        "ended",
    )

    def __init__(self, max_body: int) -> None:
        self._max = max_body
        self._parser: h11.Connection | None = None  # while a request comes
        self._fed = 0  # bytes that the parser was given of its request
        self._lines = 0  # that these were, of its header block
        self._chunked = False  # whether its body comes in chunks
        self._request: Request | None = None  # whose body comes
        self._body = bytearray()
        self._due: deque[tuple[bool, bool]] = deque()  # (HEAD, last) of requests not answered
        self._handshake: H11Handshake | None = None  # of an upgrade that is not answered
        self._trailing: list[bytes] = []
        self._reading = True
        self.ended = False

    @property
    def halfway(self) -> bool:
        """Whether part of a request has come and the rest has not."""
        return self._parser is not None

    @property
    def trailing(self) -> bytes:
        """Input behind an upgrade, which belongs to the WebSocket."""
        return b"".join(self._trailing)

    # Input

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that ``data`` completes, in order.

        Nothing comes after an upgrade, an :class:`HttpError` or a ``Closed``.
        """
        events: list[Event] = []
        at, end = 0, len(data)
        while at < end:
            found, at = self.take(data, at)
            events += found
        return events

    def take(self, data: bytes, at: int) -> tuple[list[Event], int]:
        """Return the events that ``data`` completes from ``at`` on, and up to where it was read.

        It reads one request at most, which takes 0.1 ms.
        """
        events: list[Event] = []
        end = len(data)
        while at < end and not events:
            if not self._reading:
                if self._handshake is not None:
                    self._trailing.append(data[at:])
                return events, end
            if self._parser is None:
                if data[at] in b"\r\n":  # some clients end a body with them
                    at += 1
                    continue
                self._parser, self._fed = h11.Connection(h11.SERVER, MAX_HEADER), 0
                self._lines, self._chunked = 0, False
            if self._request is None:
                room = MAX_HEADER - self._fed
            else:
                room = _CHUNKED if self._chunked else MAX_HEADER
            piece = data[at : at + room]
            if self._request is None and self._too_many_lines(piece):
                self._refuse(431, f"a header block of over {MAX_LINES} lines", events)
                return events, end
            at += len(piece)
            self._fed += len(piece)
            try:
                at -= self._feed(self._parser, piece, events)
            except h11.RemoteProtocolError as error:
                text = str(error).partition(": bytearray(")[0]  # what follows is quoted
                self._refuse(error.error_status_hint, text, events)
            if self._request is not None:
                break  # more of a body: others may have their turn
        return events, at

    def _too_many_lines(self, piece: bytes) -> bool:
        """Count the lines of a header block that ``piece`` belongs to."""
        blank = _find_blank_line(piece)
        self._lines += piece.count(b"\n", 0, blank.start() if blank else len(piece))
        return self._lines > MAX_LINES

    def _feed(self, parser: h11.Connection, piece: bytes, events: list[Event]) -> int:
        """Let the parser read on; return how many bytes at the end belong to the next request."""
        parser.receive_data(piece)
        while self._reading:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if self._request is None and self._fed >= MAX_HEADER:
                    self._refuse(431, f"a header block over {MAX_HEADER} bytes", events)
                break
            if isinstance(event, h11.Request):
                self._begin(event, events)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._max:
                    self._refuse(413, f"a body over {self._max} bytes", events)
            elif isinstance(event, h11.EndOfMessage):
                self._finish(events)
                return len(parser.trailing_data[0])
        return 0

    def _begin(self, head: h11.Request, events: list[Event]) -> None:
        """Take the header block of a request."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in head.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        last = head.http_version < b"1.1" or "close" in _tokens(headers.get("connection"))
        self._due.append((head.method == b"HEAD", last))
        size = int(headers.get("content-length", "0"))
        chunked = self._chunked = "transfer-encoding" in headers
        if head.http_version >= b"2":
            self._refuse(505, "HTTP/1.1 is spoken here", events)
        elif chunked and "content-length" in headers:
            # Two parties that disagree which one counts would see different requests.
            self._refuse(400, "both Content-Length and Transfer-Encoding", events)
        elif size > self._max:
            self._refuse(413, f"a body of {size} bytes, over {self._max}", events)
        else:
            method, target = head.method.decode("ascii"), head.target.decode("ascii")
            try:
                path, query = _split_target(target)
            except ValueError:
                self._refuse(400, "a target that is no URL in UTF-8", events)
                return
            self._request = Request(method, path, query, headers, b"", False)
            if head.http_version >= b"1.1" and "websocket" in _tokens(headers.get("upgrade")):
                self._handshake = _handshake(head)
            expected = "100-continue" in _tokens(headers.get("expect"))
            if expected and (size or chunked) and head.http_version >= b"1.1":
                events.append(Send(_CONTINUE))

    def _finish(self, events: list[Event]) -> None:
        """Pass on a request whose body has come."""
        request, self._request, self._parser = self._request, None, None
        assert request is not None
        request.body = bytes(self._body)
        self._body.clear()
        request.upgrade = self._handshake is not None
        events.append(request)
        if request.upgrade:
            self._reading = False
        elif self._due[-1][1]:
            self._reading = False
            events.append(Closed(1000, "", b""))

    def _refuse(self, status: int, text: str, events: list[Event]) -> None:
        events.append(HttpError(status, text))
        self._reading = False
        self._parser = self._request = self._handshake = None
        self._body.clear()

    # Output

    def respond(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
        close: bool = False,
    ) -> bytes:
        """Return the answer to the first request that is not answered, if there is one.

        Afterwards :attr:`ended` is set if the connection is to be closed: the client or
        ``close`` has asked for it, or an upgrade was refused.

        Raises:
            ValueError: a header that cannot be sent.
        """
        head, last = self._due.popleft() if self._due else (False, False)
        if self._handshake is not None and not self._due:
            self._handshake, last = None, True
            self._trailing.clear()
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}"]
        if body:
            lines.append(f"Content-Type: {content_type}")
        if status != 204:  # which must not have one (RFC 9110, 8.6)
            lines.append(f"Content-Length: {len(body)}")
        lines += _FOR_BROWSERS
        for name, value in headers:
            if not _match_header_name(name) or not _match_header_value(value):
                raise ValueError(f"not a header: {name!r}")
            lines.append(f"{name}: {value}")
        if last or close:
            self.ended = True
            self._reading = False
            lines.append("Connection: close")
        answer = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
        return answer if head or status in (204, 304) else answer + body

    def accept(self, subprotocol: str | None = None) -> bytes:
        """Return the answer that turns the connection into a WebSocket; this reader is done then.

        ``subprotocol`` is one of those that were asked for, or None. What is in :attr:`trailing`
        is for the reader of the WebSocket.
        """
        assert self._handshake is not None
        self._due.popleft()
        answer, self._handshake = self._handshake.send(AcceptConnection(subprotocol)), None
        return answer


def _tokens(value: str | None) -> list[str]:
    return [token.strip() for token in value.lower().split(",")] if value else []


def _split_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """Return path and query, decoded; raise ValueError if they are not UTF-8."""
    if not target.startswith("/"):  # as a proxy is asked, or OPTIONS *
        parts = urlsplit(target)
        raw_path, query = parts.path, parts.query
    else:
        raw_path, _, query = target.partition("#")[0].partition("?")
    path = unquote(raw_path, errors="strict")
    return path, parse_qs(query, keep_blank_values=True, errors="strict") if query else {}


def _handshake(head: h11.Request) -> H11Handshake | None:
    """Return wsproto's side of an upgrade, or None if it asks for that in a wrong way."""
    wanted = [
        (name, value)
        for name, value in head.headers
        if name in _OF_UPGRADE or name.startswith(b"sec-websocket-")
    ]
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.initiate_upgrade_connection([(b"host", b"hub"), *wanted], "/")
    except (HandshakeError, UnicodeError):
        return None
    return handshake if head.method == b"GET" else None
