"""Logins on the line port: ``//pubsubd/auth`` with a name and a password, or with a token."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.access.identity import AuthError, Login
from pubsubd.broker.delivery import AUTH, Delivery
from pubsubd.broker.logins import Access, Check
from pubsubd.broker.peer import Peer
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError

MAX_FAILURES = 3
"""Logins of one connection that may fail; it ends with the last one."""


class Authentication:
    """Logs peers in.

    Args:
        delivery: sends the answers.
        access: knows the users and tokens.
        wall: seconds since the epoch.
    """

    def __init__(self, delivery: Delivery, access: Access, wall: Callable[[], float]) -> None:
        self._delivery = delivery
        self._access = access
        self._wall = wall

    def request(self, peer: Peer, data: bytes) -> bytes | None:
        """Answer a login, or leave it as ``peer.job``, which has to be done first.

        Raises:
            ProtocolError: it has failed.
        """
        name, gap, secret = data.decode("utf-8", "surrogateescape").partition(" ")
        try:
            found = self._access.check(
                peer, name if gap else None, secret if gap else name, self._wall()
            )
            if isinstance(found, Login):
                return self._enter(peer, found)
        except AuthError as error:
            raise self._failure(peer, error) from None
        peer.job = _PasswordJob(self, peer, found)
        return None

    def _enter(self, peer: Peer, login: Login) -> bytes:
        identity = login.identity
        if identity is not None and not (
            identity.allows("publish") and identity.allows("subscribe")
        ):
            # Capabilities are the hub port's; here there would be nothing to hold it to them.
            raise AuthError("login-failed", "the token allows too little for the line port")
        expires_at = None if identity is None else identity.expires_at
        self._access.enter(peer, login.name, login.credential, expires_at)
        return b"ok " + wire.escape(login.name).encode()

    def _failure(self, peer: Peer, error: AuthError) -> ProtocolError:
        """Return the error of a failed login, which ends the peer if that is too often."""
        peer.failures += 1
        if peer.failures < MAX_FAILURES:
            return ProtocolError(error.code, error.text)
        self._delivery.counters.errors[error.code] += 1
        return ProtocolError("too-many-failures", f"{peer.failures} logins: {error.text}")

    def finish(self, peer: Peer, check: Check) -> None:
        """Act on a password of a peer that has been checked."""
        if peer.ending is not None:
            return
        delivery, ending = self._delivery, None
        try:
            delivery.answer(peer, wire.frame(AUTH, self._enter(peer, check.result)))
        except AuthError as failure:
            error = self._failure(peer, failure)
            delivery.tell(peer, error)
            if error.closes:
                peer.parts[:] = [b"\n"]
                ending = error
        delivery.send()
        peer.ending = ending


class _PasswordJob:
    """A password that is to be checked for a peer; see :class:`pubsubd.broker.peer.Job`."""

    __slots__ = ("_authentication", "_peer", "check")

    def __init__(self, authentication: Authentication, peer: Peer, check: Check) -> None:
        self._authentication, self._peer, self.check = authentication, peer, check

    def finish(self) -> None:
        """Tell the peer."""
        self._authentication.finish(self._peer, self.check)
