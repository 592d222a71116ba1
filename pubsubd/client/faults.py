"""The exceptions of the clients, and their texts."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from pubsubd.protocol import wire
from pubsubd.protocol.errors import CLOSES, ProtocolError, PubsubdError
from pubsubd.transport.tls import explain

TLS_ALERT = b"\x15\x03"
"""The first bytes of TLS's answer to a peer that speaks no TLS (RFC 8446, section 5.1)."""

_LOGIN = ("login-failed", "login-throttled", "login-timeout", "too-many-failures")
_HOPELESS = ("payload-too-large", "wrong-length", "line-too-long", "http-request", "wrong-port")


class ConnectError(PubsubdError):
    """A connection could not be made; ``__cause__`` is the :class:`OSError`.

    Attributes:
        where: ``host:port`` or the path of the Unix socket.
        reason: the reason in lower case, for example ``connection refused``.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot connect to {self.where}: {self.reason}"


class TlsError(ConnectError):
    """No TLS session with this peer is possible, or the peer requires TLS and we do not use it.

    It ends the client, because another connection would fail in the same way. ``__cause__`` is the
    :class:`ssl.SSLError`, if there was one.
    """


class DisconnectedError(PubsubdError):
    """The connection ended without a reason from the daemon, or the peer broke the protocol."""


class DaemonError(PubsubdError):
    """An error from the daemon: ``//pubsubd/error`` on the line port, or a ``hub:error``.

    Attributes:
        code: an error code from pubsubd-protocol(7), for example ``slow-consumer``, or from
            pubsubd-hub(7), for example ``rate_limited``.
        text: one printable line for people.
        details: the details of a ``hub:error``, for example ``{"retryAfter": 3}``.
    """

    def __init__(self, code: str, text: str, details: Mapping[str, Any] | None = None) -> None:
        # The arguments are what fresh() makes it anew from.
        super().__init__(*((code, text, details) if details else (code, text)))
        self.code = code
        self.text = text
        self.details: dict[str, Any] = dict(details or {})

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before trying again, after ``rate_limited``; otherwise None."""
        seconds = self.details.get("retryAfter")
        return float(seconds) if isinstance(seconds, int | float) else None

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class LoginError(DaemonError):
    """The daemon rejects the login.

    The codes are ``login-failed``, ``login-throttled``, ``login-timeout`` and
    ``too-many-failures``; on the hub port ``unauthorized``, ``invalid_token`` and
    ``login-throttled``; or another code, if the daemon does not know logins.
    """

    @property
    def passing(self) -> bool:
        """Whether the same login may succeed later."""
        return self.code in ("login-throttled", "login-timeout")


class BufferFullError(PubsubdError):
    """Too many unread messages came before the answer that a call waited for: read some first."""


def fresh(error: PubsubdError) -> PubsubdError:
    """Return a copy of ``error``: each raise adds to an exception's traceback."""
    return caused(type(error)(*error.args), error.__cause__)


def caused(error: PubsubdError, cause: BaseException | None) -> PubsubdError:
    """Return ``error`` with its cause."""
    error.__cause__ = cause
    return error


def daemon_error(said: bytes, where: str, *, login: bool = False) -> PubsubdError:
    """Return the exception for an error of the daemon.

    Args:
        said: the data of its message.
        where: the daemon's address.
        login: whether it is the answer to a login.
    """
    code, _, text = printable(said).partition(" ")
    if code == "tls-required":
        return TlsError(where, "it speaks TLS, and we do not")
    if code in _LOGIN or (login and code not in CLOSES):
        return LoginError(code, text)
    return DaemonError(code, text)


def lasting(error: PubsubdError) -> bool:
    """Return whether a new connection would end likewise."""
    if isinstance(error, LoginError):
        return not error.passing
    if isinstance(error, DaemonError):
        return error.code in _HOPELESS
    return isinstance(error, TlsError) or isinstance(error.__cause__, ProtocolError)


def ends_client(error: PubsubdError) -> bool:
    """Return whether a client of the line port gives up instead of reconnecting."""
    # A login that is missing now will be missing again.
    return lasting(error) or isinstance(error, LoginError)


def connection_lost(exc: BaseException) -> str:
    """Return the text for a broken connection."""
    return f"the connection broke: {reason(exc.__cause__ or exc)}"


def reason(exc: BaseException) -> str:
    """Return the system's reason for a failure, in a few words in lower case."""
    if isinstance(exc, ssl.SSLError):
        return explain(exc)
    if not isinstance(exc, OSError) or exc.errno is None:
        return str(exc)
    # The system's text: trio's own in strerror tells the address as well. Resolvers number
    # their errors differently.
    text = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno)
    return (text or str(exc)).lower()


def printable(text: str | bytes) -> str:
    """Return a peer's text as one printable line; escapes in it stay as they are."""
    return wire.escape(text).replace("\\\\", "\\")


def not_understood(error: ProtocolError, data: bytes, where: str) -> PubsubdError:
    """Return the exception for input that is not whole, legal messages.

    Args:
        error: the parser's error.
        data: the last input.
        where: the peer's address.
    """
    if data.startswith(TLS_ALERT):
        return caused(TlsError(where, "it speaks TLS, and we do not"), error)
    if error.code == "payload-too-large":
        text = f"a message is larger than this client takes: {error.text}"
    else:
        text = f"the peer does not speak this protocol: {error.text}"
    return caused(DisconnectedError(text), error)
