"""Logins, and connections on which the daemon has accepted one."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from pubsubd.client.dial import Connect
from pubsubd.client.faults import (
    ConnectError,
    connection_lost,
    daemon_error,
    not_understood,
)
from pubsubd.client.secure import certificate_refused
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import KIB

LOGIN_TIMEOUT = 60.0
"""Seconds for the answer to a login. Checks are slow on purpose, and may have to queue."""

AUTH = b"//pubsubd/auth"
PING = b"//pubsubd/ping"

_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and what UTF-8 has not
_ANSWER = 64 * KIB  # bytes that an answer may have


@dataclass(frozen=True, slots=True)
class Login:
    """A user name with its password or another secret. ``repr()`` does not show the secret.

    Raises:
        ValueError: the name or the secret is empty or cannot be sent.
    """

    name: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        # The protocol wants one word, HTTP no colon.
        if not self.name or not self.name.isprintable() or {" ", ":"} & set(self.name):
            raise ValueError("a name to log in with is empty, or has spaces, controls or colons")
        _check_secret(self.secret)

    def words(self) -> bytes:
        """Return the data of the login on the line port."""
        return f"{self.name} {self.secret}".encode()

    def header(self) -> bytes:
        """Return the ``Authorization`` header for the hub port."""
        return b"Basic " + base64.b64encode(f"{self.name}:{self.secret}".encode())


@dataclass(frozen=True, slots=True)
class Token:
    """A token to log in with. ``repr()`` does not show it.

    Raises:
        ValueError: the token cannot be sent.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.text.isascii() or " " in self.text:
            raise ValueError("a token is not one word of ASCII characters")
        _check_secret(self.text)

    def words(self) -> bytes:
        """Return the data of the login on the line port."""
        return self.text.encode()

    def header(self) -> bytes:
        """Return the ``Authorization`` header for the hub port."""
        return b"Bearer " + self.text.encode()


Credentials: TypeAlias = Login | Token
"""The credentials of a client."""


def _check_secret(text: str) -> None:
    if not text or _UNFIT.search(text):  # not quoted in what is raised
        raise ValueError("a secret to log in with is empty or has controls")


class Introduced:
    """Connections on which the daemon has accepted the login or the certificate of the client.

    With a certificate alone, a ping is sent. In TLS 1.3 a server may refuse a certificate after the
    client has finished its handshake (RFC 8446, section 4.4.2.4), so only the first answer shows
    that it has accepted it.

    Args:
        connect: makes a connection.
        where: the address of the daemon, for error texts.
        login: the credentials; None for none.
    """

    def __init__(self, connect: Connect, where: str, login: Credentials | None) -> None:
        self._connect = connect
        self._where = where
        self._login = login

    async def __call__(self) -> trio.abc.Stream:
        """Return a connection.

        Raises:
            ConnectError: no connection could be made.
            LoginError: the daemon rejects the login.
            DaemonError: the daemon refuses the connection for another reason.
            DisconnectedError: the peer is not a pubsubd daemon.
        """
        stream = await self._connect()
        try:
            with trio.fail_after(LOGIN_TIMEOUT):
                await self._introduce(stream)
        except BaseException as exc:
            await trio.aclose_forcefully(stream)
            if isinstance(exc, trio.TooSlowError):
                reason = f"no answer in {LOGIN_TIMEOUT:g} s"
                raise ConnectError(self._where, reason) from None
            if isinstance(exc, trio.BrokenResourceError):
                refused = certificate_refused(self._where, exc)
                raise refused or ConnectError(self._where, connection_lost(exc)) from exc.__cause__
            raise
        return stream

    async def _introduce(self, stream: trio.abc.Stream) -> None:
        name, data = (PING, b"") if self._login is None else (AUTH, self._login.words())
        await stream.send_all(wire.frame(name, data))
        decoder = wire.Decoder(_ANSWER)
        answered = False
        # What follows the answer is the daemon's reason to close, and may have come in part.
        while not answered or decoder.incomplete:
            part = bytes(await stream.receive_some())
            if not part:
                raise ConnectError(self._where, "the daemon closed the connection")
            try:
                messages = decoder.feed(part)
            except ProtocolError as exc:
                raise not_understood(exc, part, self._where) from exc
            for heard, text in messages:
                if heard == wire.ERROR:
                    raise daemon_error(text, self._where, login=True)
                answered = answered or heard == name
