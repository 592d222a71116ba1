"""What a client raises, and the words for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from pubsubd import wire
from pubsubd.errors import ProtocolError, PubsubdError


class ConnectError(PubsubdError):
    """There is no connection to be had; ``__cause__`` is the :class:`OSError`.

    Attributes:
        where: ``host:port`` or the path of the Unix socket.
        reason: why, in lower case, as ``connection refused``.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot connect to {self.where}: {self.reason}"


class DisconnectedError(PubsubdError):
    """The connection ended and the daemon did not say why, or what came is not its protocol."""


class DaemonError(PubsubdError):
    """What the daemon said on ``//pubsubd/error``, or in a ``hub:error``.

    Attributes:
        code: as in pubsubd-protocol(7), for example ``slow-consumer``, or in pubsubd-hub(7), for
            example ``rate_limited``.
        text: one printable line for a person.
        details: what a ``hub:error`` tells beside, for example ``{"retryAfter": 3}``.
    """

    def __init__(self, code: str, text: str, details: Mapping[str, Any] | None = None) -> None:
        # The arguments are what fresh() makes it anew from.
        super().__init__(*((code, text, details) if details else (code, text)))
        self.code = code
        self.text = text
        self.details: dict[str, Any] = dict(details or {})

    @property
    def retry_after(self) -> float | None:
        """Seconds after which to try again what was ``rate_limited``."""
        seconds = self.details.get("retryAfter")
        return float(seconds) if isinstance(seconds, int | float) else None

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class BufferFullError(PubsubdError):
    """A call waited for an answer behind more messages than may be kept: read some first."""


def fresh(error: PubsubdError) -> PubsubdError:
    """Return ``error`` anew, as each raising adds to an exception's traceback."""
    return caused(type(error)(*error.args), error.__cause__)


def caused(error: PubsubdError, cause: BaseException | None) -> PubsubdError:
    """Return ``error`` with its cause."""
    error.__cause__ = cause
    return error


def connection_lost(exc: BaseException) -> str:
    """Return what to say of a connection that broke."""
    return f"the connection broke: {reason(exc.__cause__ or exc)}"


def reason(exc: BaseException) -> str:
    """Return why the system refused something, in a few words in lower case."""
    if not isinstance(exc, OSError) or exc.errno is None:
        return str(exc)
    # The system's text: trio's own in strerror tells the address as well. Resolvers number
    # their errors differently.
    text = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno)
    return (text or str(exc)).lower()


def printable(text: str | bytes) -> str:
    """Return what a peer has said as one printable line; what it has escaped stays as it is."""
    return wire.escape(text).replace("\\\\", "\\")


def not_understood(error: ProtocolError) -> str:
    """Return what to say of a peer that wrote something else than whole, legal messages."""
    if error.code == "payload-too-large":
        return f"a message is larger than this client takes: {error.text}"
    return f"the peer does not speak this protocol: {error.text}"
