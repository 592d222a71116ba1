"""TLS settings of a client, and encrypted connections."""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import dataclass
from typing import TypeAlias

import trio

from pubsubd.client.dial import CONNECT_TIMEOUT, Connect
from pubsubd.client.faults import ConnectError, TlsError, connection_lost
from pubsubd.protocol.errors import ConfigError
from pubsubd.transport.addresses import without_interface
from pubsubd.transport.tls import client_context, explain

_Path: TypeAlias = str | os.PathLike[str]

# What OpenSSL calls an answer that is no TLS; which of them depends on its version and the answer.
_NO_TLS = frozenset(
    {
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)

# The ends of what it calls alerts about the certificate that we have shown or not.
_REFUSALS = (
    "ALERT_ACCESS_DENIED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings. The files are read again for each connection.

    Attributes:
        ca: PEM file with the certificate authorities to trust; None for those of the system.
        certificate: PEM file with the client's certificate; None for none.
        key: PEM file with its private key; None if the key is in the same file.
        server_name: the name that the server's certificate must be for; None for the host.
    """

    ca: _Path | None = None
    certificate: _Path | None = None
    key: _Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return an ``SSLContext`` with these settings, TLS 1.2 or newer, and host name checks.

        Raises:
            ConfigError: a file cannot be used.
        """
        if self.key is not None and self.certificate is None:
            raise ConfigError("a key is of no use without its certificate")
        files = (self.ca, self.certificate, self.key)
        return client_context(*(None if path is None else os.fspath(path) for path in files))


class Secured:
    """Encrypted connections.

    Args:
        connect: makes an unencrypted connection.
        where: the address of the daemon, for error texts.
        tls: the TLS settings.
        host: the name that the server's certificate must be for, unless ``tls`` has one.
    """

    def __init__(self, connect: Connect, where: str, tls: Tls | ssl.SSLContext, host: str) -> None:
        self._connect = connect
        self._where = where
        self._tls = tls if isinstance(tls, Tls) else None
        self._name = (self._tls and self._tls.server_name) or without_interface(host)
        self._context = tls.context() if isinstance(tls, Tls) else tls
        self._fresh = True

    async def __call__(self) -> trio.abc.Stream:
        """Return a connection.

        Raises:
            TlsError: the peer does not speak TLS, refuses the client, or is not trusted.
            ConnectError: no connection could be made.
        """
        self._load()
        stream = await self._connect()
        secured = trio.SSLStream(stream, self._context, server_hostname=self._name)
        try:
            with trio.fail_after(CONNECT_TIMEOUT):
                await secured.do_handshake()
        except BaseException as exc:
            await trio.aclose_forcefully(stream)
            if isinstance(exc, trio.TooSlowError):
                text = f"no answer in {CONNECT_TIMEOUT:g} s to the beginning of TLS"
                raise ConnectError(self._where, text) from None
            if isinstance(exc, trio.BrokenResourceError):
                raise self._failed(exc) from exc.__cause__
            raise
        return secured

    def _load(self) -> None:
        """Read the files again, because certificates are renewed. Unusable files change nothing.

        So a file that is just being written does not end the client.
        """
        if self._fresh:
            self._fresh = False
        elif self._tls is not None:
            with contextlib.suppress(ConfigError):
                self._context = self._tls.context()

    def _failed(self, exc: trio.BrokenResourceError) -> ConnectError:
        cause = exc.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = cause.verify_message.lower().rstrip(".")
            return TlsError(self._where, f"its certificate is not to be trusted: {text}")
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            if cause.reason in _NO_TLS:
                return TlsError(self._where, "it does not speak TLS")
            return certificate_refused(self._where, exc) or TlsError(
                self._where, f"no agreement on TLS: {explain(cause)}"
            )
        return ConnectError(self._where, connection_lost(exc))


def certificate_refused(where: str, exc: trio.BrokenResourceError) -> TlsError | None:
    """Return the error of a connection that broke because our certificate is missing or refused."""
    cause = exc.__cause__
    if not isinstance(cause, ssl.SSLError) or not (cause.reason or "").endswith(_REFUSALS):
        return None
    if cause.reason.endswith("REQUIRED"):
        return TlsError(where, "it wants a certificate from us")
    return TlsError(where, f"it refuses our certificate: {explain(cause)}")
