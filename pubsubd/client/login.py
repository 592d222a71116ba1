"""Credentials of a client, and connections that begin with a login."""

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
"""Seconds for the answer to a login: checking is slow on purpose, and many may be waiting."""

AUTH = b"//pubsubd/auth"
PING = b"//pubsubd/ping"

_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and what UTF-8 has not
_ANSWER = 64 * KIB  # bytes that an answer may have


@dataclass(frozen=True, slots=True)
class Login:
    """A name and its password, or other secret, which ``repr`` does not show.

    Raises:
        ValueError: one of them is empty or cannot be sent.
    """

    name: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        # The protocol wants one word, HTTP no colon.
        if not self.name or not self.name.isprintable() or {" ", ":"} & set(self.name):
            raise ValueError("a name to log in with is empty, or has spaces, controls or colons")
        _check_secret(self.secret)

    def words(self) -> bytes:
        """Return the credentials as the line port takes them."""
        return f"{self.name} {self.secret}".encode()

    def header(self) -> bytes:
        """Return the value of ``Authorization`` on the hub port."""
        return b"Basic " + base64.b64encode(f"{self.name}:{self.secret}".encode())


@dataclass(frozen=True, slots=True)
class Token:
    """A token that proves who has it; ``repr`` does not show it.

    Raises:
        ValueError: it cannot be sent.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.text.isascii() or " " in self.text:
            raise ValueError("a token is not one word of ASCII characters")
        _check_secret(self.text)

    def words(self) -> bytes:
        """Return the credentials as the line port takes them."""
        return self.text.encode()

    def header(self) -> bytes:
        """Return the value of ``Authorization`` on the hub port."""
        return b"Bearer " + self.text.encode()


Credentials: TypeAlias = Login | Token
"""The two ways to log in."""


def _check_secret(text: str) -> None:
    if not text or _UNFIT.search(text):  # not quoted in what is raised
        raise ValueError("a secret to log in with is empty or has controls")


class Introduced:
    """Connections on which the daemon has accepted the client before anything else is sent.

    Without a login this is about the certificate, which a server may refuse after the handshake is
    complete for the client (RFC 8446, section 4.4.2.4): its first answer shows that it has not.

    Args:
        connect: makes a connection.
        where: the daemon's address.
        login: name and secret, or token; None for none.
    """

    def __init__(self, connect: Connect, where: str, login: Credentials | None) -> None:
        self._connect = connect
        self._where = where
        self._login = login

    async def __call__(self) -> trio.abc.Stream:
        """Return a new connection.

        Raises:
            ConnectError: there is none.
            LoginError: the daemon refuses the login.
            DaemonError: it refuses the connection for another reason.
            DisconnectedError: the peer is no pubsubd.
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
