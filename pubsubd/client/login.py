"""Who a client is: what proves it, and connections on which the daemon has taken it."""

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
"""Seconds for the answer to a login: it is slow on purpose, and many may wait for theirs."""

AUTH = b"//pubsubd/auth"
PING = b"//pubsubd/ping"

_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and what UTF-8 has not
_ANSWER = 64 * KIB  # bytes that an answer may have


@dataclass(frozen=True, slots=True)
class Login:
    """A name and its password, or other secret. The secret is in no text of this object.

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
        """Return what is sent on the line port."""
        return f"{self.name} {self.secret}".encode()

    def header(self) -> bytes:
        """Return what is sent as ``Authorization`` on the hub port."""
        return b"Basic " + base64.b64encode(f"{self.name}:{self.secret}".encode())


@dataclass(frozen=True, slots=True)
class Token:
    """A text that tells the daemon who has it; in no text of this object.

    Raises:
        ValueError: it cannot be sent.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.text.isascii() or " " in self.text:
            raise ValueError("a token is not one word of ASCII characters")
        _check_secret(self.text)

    def words(self) -> bytes:
        """Return what is sent on the line port."""
        return self.text.encode()

    def header(self) -> bytes:
        """Return what is sent as ``Authorization`` on the hub port."""
        return b"Bearer " + self.text.encode()


Credentials: TypeAlias = Login | Token
"""What a client logs in with."""


def _check_secret(text: str) -> None:
    if not text or _UNFIT.search(text):  # not quoted in what is raised
        raise ValueError("a secret to log in with is empty or has controls")


class Introduced:
    """Connections on which the daemon has agreed to who we are, before anything else is said.

    Without a login, that is a certificate, which a server may refuse after it was told that all is
    well (RFC 8446, section 4.4.2.4): its first answer says that it has not.

    Args:
        connect: makes a connection.
        where: what it is to.
        login: what to log in with; None for nothing.
    """

    def __init__(self, connect: Connect, where: str, login: Credentials | None) -> None:
        self._connect = connect
        self._where = where
        self._login = login

    async def __call__(self) -> trio.abc.Stream:
        """Return a connection.

        Raises:
            ConnectError: there is none.
            LoginError: the daemon does not know us.
            DaemonError: it has another reason to refuse the connection.
            DisconnectedError: what is there is no pubsubd.
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
