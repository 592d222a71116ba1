"""The client's side of one WebSocket, without I/O.

wsproto implements the protocol. This module adds what a client needs: whole messages of bounded
size, the pongs to send, and for each ending its reason, and whether another connection would end in
the same way. A fault is the last event of its read, so that the messages before it are delivered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from pubsubd.client.faults import (
    TLS_ALERT,
    DaemonError,
    DisconnectedError,
    LoginError,
    TlsError,
    caused,
    printable,
)
from pubsubd.protocol import wire
from pubsubd.protocol.errors import PubsubdError

_TOO_BIG = 1009
_REPEATS = (1002, 1003, 1007, _TOO_BIG, 1010)  # close codes that blame what this client has sent
_UNKNOWN = {  # statuses that say nothing more
    401: ("unauthorized", "the hub wants a login that is good"),
    429: ("login-throttled", "too many logins have failed; try again later"),
}
_MAX_REFUSAL = 4096  # bytes read of the answer to a request that is refused


@dataclass(frozen=True, slots=True)
class Opened:
    """The connection has become a WebSocket."""


@dataclass(frozen=True, slots=True)
class Pong:
    """A frame to send; it may replace one that has not been sent yet."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended.

    Attributes:
        why: the error to raise.
        final: whether another connection would end in the same way.
        reply: the frame to send before closing, if any.
    """

    why: PubsubdError
    final: bool
    reply: bytes = b""


Event: TypeAlias = Opened | Pong | Ended | bytes
"""An event; ``bytes`` are a whole message."""


class WebSocket:
    """One connection, beginning with the upgrade request.

    Args:
        host: for the ``Host`` header.
        path: the path of the request, for example ``/ws``.
        max_message: most bytes of a received message; a larger one ends the connection.
        headers: additional headers of the request.
    """

    def __init__(
        self,
        host: str,
        path: str,
        max_message: int,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._host = host
        self._proto = WSConnection(ConnectionType.CLIENT)
        self._max_message = max_message
        self._parts: list[bytes] = []
        self._size = 0
        self._status = 0  # of a refusal
        self._refusal = b""
        self._ended = False
        self.request = self._proto.send(
            Request(host=_without_interface(host), target=path, extra_headers=list(headers))
        )
        """The bytes to send first."""

    @property
    def ended(self) -> bool:
        """Whether the peer has closed, so that nothing can be sent any more."""
        return self._ended

    def text(self, body: bytes) -> bytes:
        """Return the frame of a text message."""
        return self._proto.send(TextMessage(data=body.decode()))

    def receive(self, data: bytes) -> list[Event]:
        """Return the events in ``data``; empty data is the end of the stream."""
        if self._ended:
            return []
        found: list[Event] = []
        if data:
            try:
                self._proto.receive_data(data)
            except RemoteProtocolError as exc:
                if data.startswith(TLS_ALERT):
                    found.append(self._encrypted(exc))
                else:
                    found.append(self._not_understood(str(exc)))
            else:
                for event in self._proto.events():
                    found += self._hear(event)
                    if found and isinstance(found[-1], Ended):
                        break
        elif self._status:
            found.append(self._refused())
        else:
            text = "the hub closed the connection"
            if self._proto.connection is None:
                text += " before it became a WebSocket"
            found.append(Ended(DisconnectedError(text), final=False))
        return found

    def _hear(self, event: object) -> list[Event]:
        if isinstance(event, TextMessage | BytesMessage):
            return self._gather(event)
        if isinstance(event, Ping):
            return [Pong(self._proto.send(event.response()))]
        if isinstance(event, AcceptConnection):
            return [Opened()]
        if isinstance(event, RejectConnection):
            self._status = event.status_code
            return [] if event.has_body else [self._refused()]
        if isinstance(event, RejectData):
            self._refusal += event.data
            done = event.body_finished or len(self._refusal) > _MAX_REFUSAL
            return [self._refused()] if done else []
        if isinstance(event, CloseConnection):
            return [self._closed(event)]
        return []  # a pong that nobody asked for

    def _gather(self, event: TextMessage | BytesMessage) -> list[Event]:
        part = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        self._size += len(part)
        if self._size > self._max_message:
            self._ended = True
            text = f"a message is larger than this client takes: over {self._max_message} bytes"
            reply = self._proto.send(CloseConnection(code=_TOO_BIG))
            return [Ended(DisconnectedError(text), final=True, reply=reply)]
        self._parts.append(part)
        if not event.message_finished:
            return []
        whole = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return [whole]

    def _closed(self, event: CloseConnection) -> Ended:
        code, reason = int(event.code), event.reason or ""
        if self._proto.state is not ConnectionState.REMOTE_CLOSING:  # wsproto's words for a fault
            return self._not_understood(reason, self._proto.send(event))
        self._ended = True
        told = f"{code} {reason}".strip() if code != 1005 else "without a reason"
        why = DisconnectedError(f"the hub closed the connection: {printable(told)}")
        return Ended(why, final=code in _REPEATS, reply=self._proto.send(event.response()))

    def _not_understood(self, text: str, reply: bytes = b"") -> Ended:
        self._ended = True
        why = DisconnectedError(f"the peer does not speak this protocol: {printable(text)}")
        return Ended(why, final=True, reply=reply)

    def _encrypted(self, cause: Exception | None = None) -> Ended:
        self._ended = True
        why = TlsError(self._host, "it speaks TLS, and we do not")
        return Ended(caused(why, cause), final=True)

    def _refused(self) -> Ended:
        self._ended = True
        final = self._status < 500
        try:
            text = msgspec.json.decode(self._refusal, type=_Refusal).error
        except msgspec.DecodeError:
            text = wire.escape(self._refusal, 200)
        code, colon, more = text.partition(": ")
        if not colon or not code.replace("-", "").isalnum():
            code = ""
        if code == "tls-required":
            return self._encrypted()
        if self._status in _UNKNOWN:
            why = LoginError(*_UNKNOWN[self._status])
            return Ended(why, final=not why.passing)
        if not final and code:
            return Ended(DaemonError(code, printable(more)), final=False)
        text = printable(f"the hub refused to become a WebSocket: {self._status} {text}".strip())
        return Ended(DisconnectedError(text), final=final)


class _Refusal(msgspec.Struct):
    error: str


def _without_interface(host: str) -> str:
    """Return a ``Host`` without the interface of a link-local address (RFC 6874, section 3)."""
    return re.sub("%[^]]*", "", host)
