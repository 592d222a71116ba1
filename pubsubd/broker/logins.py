"""Logins of peers and the rights that follow from them, without I/O.

A *login* is told by a token, which is checked at once, or by a name and a password, which takes a
fraction of a second: that is a :class:`Check`, for a thread to run. A password that was right
before is remembered, and found at once.

Invariants:

- ``peer.permission`` is what the rules give its identity, for every peer there is; each change of
  the rules, of who a peer is, or of what its listener asks for, sees to that before it returns. A
  reload does so in steps; between them, peers that it has not come to have what they had.
- Who came in by what has been taken back, a user's line or the key of a token, is no longer here
  after that.
- ``peer.publish_filter`` always fits ``peer.permission``, and the router is guarded if anybody is
  limited.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pubsubd.access.identity import AuthError, Authority, Identity, Login
from pubsubd.access.rules import OUTSIDE, Acl, Permission
from pubsubd.access.throttle import Throttle
from pubsubd.access.users import MAX_SECRET, Users
from pubsubd.broker.peer import Peer
from pubsubd.broker.publish_filter import PublishFilter
from pubsubd.broker.turn import Steps, finish
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import escape, host_in
from pubsubd.routing.router import Router

FAILURES = 10
"""Failed logins of one address in a minute; further passwords of it are not checked then."""

GUESSES = 600
"""Further passwords of one address in a minute that are compared with what was right there before.

More, and who guesses could find a remembered one as quickly as connections can be made.
"""

SUSPECT = 600.0
"""Seconds after a failed login for which those of its address are checked after all others."""


_TRIED = 3  # characters of an unknown name in the log: it may be a password in the wrong place


class FailedLogin(NamedTuple):
    """A login that has failed, as the log may tell it.

    Attributes:
        peer: who has tried.
        code: of the error.
        user: the name that was given, if the users file has it.
        tried: the beginning of any other name; None if there was none, but a token.
        detail: what is wrong with the token, if that is known.
    """

    peer: Peer
    code: str
    user: str | None
    tried: str | None
    detail: str


class Check:
    """A password that is to be checked: :meth:`run` in a thread, :meth:`settle`, :attr:`result`.

    Attributes:
        address: where it comes from, as :func:`origin` returns it.
    """

    __slots__ = (
        "_access",
        "_begun",
        "_found",
        "_name",
        "_peer",
        "_refused",
        "_secret",
        "_users",
        "_verdict",
        "address",
    )

    def __init__(self, access: Access, peer: Peer, name: str, secret: str, now: float) -> None:
        self._access = access
        self._peer = peer
        self._begun = now
        self._refused = False
        self._users = access.users
        self.address = origin(peer)
        self._name = name
        self._secret = secret
        self._found: str | None = None
        self._verdict: Login | AuthError | None = None

    def run(self) -> None:
        """Check it, unless so many of its address have failed while it waited for its turn."""
        if self._access.throttled(self.address, self._begun):
            self.refuse()
        else:
            self._found = self._users.verify(self._name, self._secret)

    def refuse(self) -> None:
        """Take note that it is not checked, because too much is to be."""
        self._refused = True

    @property
    def result(self) -> Login:
        """Return the login that the password has earned.

        Raises:
            AuthError: ``login-failed`` or ``login-throttled``, nobody.
        """
        verdict = self.settle()
        if isinstance(verdict, AuthError):
            raise verdict
        return verdict

    def settle(self) -> Login | AuthError:
        """Take note, in the loop, of how it went, whether or not somebody still waits for it."""
        if self._verdict is None:
            self._verdict = self._judge()
        return self._verdict

    def _judge(self) -> Login | AuthError:
        access, found = self._access, self._found
        if self._refused:
            return access.throttle(self._peer, self._name)
        if found is None or not access.users.holds(self._name, found):
            return access.failure(self._peer, self._name)
        access.users.remember(self._name, self._secret, found, self.address)
        return Login(self._name, found)


class Access:
    """Users, rules, and who has failed to come in.

    Args:
        peers: number -> peer, of all that are connected.
        router: knows what they subscribe.
        clock: seconds that only go forward.

    Attributes:
        users: who may come in by a password or a token.
        acl: what they may do.
        authority: checks tokens that are signed; None where there are none.
        asked: whether some listener asks clients who they are, or for certificates.
        operators: users of this machine who may see and end every connection, if there are no
            rules and they have come by a Unix socket.
        failed: called for each login that fails.
        on_failure: called with the address of each login that fails, and whether others had failed
            so often that it was not checked.
    """

    def __init__(
        self,
        peers: Mapping[int, Peer],
        router: Router,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.users = Users()
        self.acl = Acl()
        self.authority: Authority | None = None
        self.asked = False
        self.operators: frozenset[str] = frozenset()
        self.failed: Callable[[FailedLogin], None] = lambda _failed: None
        self.on_failure: Callable[[str, bool], None] = lambda _address, _guess: None
        self._peers = peers
        self._router = router
        self._clock = clock
        # Those of rights that nobody has any more go by themselves.
        self._publish_filters: WeakKeyDictionary[Permission, PublishFilter] = WeakKeyDictionary()
        self._guarding = False  # whether somebody limited has come since the last reload began
        self._stranger: Permission | None = None  # the rights of who has not logged in
        self._failures = Throttle(FAILURES)
        self._guesses = Throttle(GUESSES)

    @property
    def able(self) -> bool:
        """Whether there is anything that a login could be checked with."""
        return bool(self.users) or self.authority is not None

    @property
    def identifies(self) -> bool:
        """Whether clients say who they are: there are users, tokens or certificates."""
        return self.able or self.asked

    # Logging in

    def check(self, peer: Peer, name: str | None, secret: str, now: float) -> Login | Check:
        """Return who comes in, or what is to be run to know it.

        Args:
            peer: who asks to be let in.
            name: of the user; None if ``secret`` is a token.
            secret: a password, or a token, which a user may give as a password, too.
            now: seconds since the epoch.

        Raises:
            AuthError: ``login-failed`` or ``login-throttled``, nobody does.
        """
        # No token can be guessed, so who has one is not made to wait for others of its address.
        known = self.users.find_token(secret)
        if known is not None and name in (None, known[0]):
            return Login(*known)
        if name is None:
            return self._check_signed(peer, secret, now)
        if not self.users or len(secret.encode("utf-8", "surrogatepass")) > MAX_SECRET:
            raise self.failure(peer, name)
        monotonic, address = self._clock(), origin(peer)
        # Who was let in from here before is not locked out by others of its address.
        if not self._guesses.full(address, monotonic):
            line = self.users.recall(name, secret, address)
            if line is not None:
                return Login(name, line)
        if self.throttled(address, monotonic):
            self._guesses.note(address, monotonic)
            self.on_failure(address, True)
            raise self.throttle(peer, name)
        line = self.users.recall(name, secret)
        if line is None:
            return Check(self, peer, name, secret, monotonic)
        self.users.remember(name, secret, line, address)
        return Login(name, line)

    def _check_signed(self, peer: Peer, token: str, now: float) -> Login:
        if self.authority is None:
            raise self.failure(peer, None)
        try:
            identity = self.authority.verify(token, now)
        except AuthError as error:
            failure = self.failure(peer, None, error.text)
            if failure.code == "login-failed":
                failure = AuthError(failure.code, error.text)
            raise failure from None
        return self.admit(identity)

    def admit(self, identity: Identity) -> Login:
        """Return who comes in with a token that :attr:`authority` has checked."""
        return Login(plain_actor(identity.actor or ""), self.authority, identity)

    def failure(self, peer: Peer, name: str | None, why: str = "") -> AuthError:
        """Return what tells of a failed login, and take note of it.

        Args:
            peer: who has tried.
            name: the one that was given; None for a token.
            why: what is wrong with the token, for the log.
        """
        now, address = self._clock(), origin(peer)
        if self.throttled(address, now):
            return self.throttle(peer, name)
        self._failures.note(address, now)
        self.on_failure(address, False)
        self._tell(peer, "login-failed", name, why)
        return AuthError("login-failed", "the name, the password or the token is not good")

    def note_failure(self, address: str, *, guess: bool) -> None:
        """Take note of a login that has failed at another worker; see :attr:`on_failure`."""
        (self._guesses if guess else self._failures).note(address, self._clock())

    def throttle(self, peer: Peer, name: str | None) -> AuthError:
        """Return what tells of a login that is not checked."""
        self._tell(peer, "login-throttled", name)
        return AuthError("login-throttled", "too many logins have failed or wait; try again later")

    def _tell(self, peer: Peer, code: str, name: str | None, why: str = "") -> None:
        known = name in self.users.names
        tried = None if name is None or known else escape(name, _TRIED)
        self.failed(FailedLogin(peer, code, name if known else None, tried, why))

    def throttled(self, address: str, now: float) -> bool:
        """Return whether so many logins of an address have failed that no more are checked."""
        return self._failures.full(address, now)

    def suspect(self, address: str) -> bool:
        """Return whether a login of an address has failed of late."""
        return self._failures.since(address, self._clock()) < SUSPECT

    # Who is here

    def meet(self, peer: Peer) -> None:
        """Give a new peer the rights of somebody who has not logged in."""
        permission = OUTSIDE if peer.listener.login else self._stranger
        if permission is not None:
            self._permit(peer, permission)

    def enter(
        self,
        peer: Peer,
        name: str,
        credential: object = None,
        expires_at: float | None = None,
    ) -> None:
        """Let a peer be ``name``; see :attr:`pubsubd.broker.peer.Peer.credential`."""
        peer.identity, peer.credential, peer.expires_at = name, credential, expires_at
        peer.last_identity = name
        self._permit(peer, self._permission(peer))

    def leave(self, peer: Peer) -> None:
        """Let a peer be nobody again."""
        peer.identity = peer.credential = peer.expires_at = None
        self._permit(peer, self._permission(peer))

    def overdue(self, peer: Peer, now: float, wall: float) -> ProtocolError | None:
        """Return why a peer ends now, if it had to log in, or to do so again, and has not.

        To be called about once a second: so exact is the time.

        Args:
            peer: one that is connected.
            now: seconds that only go forward.
            wall: seconds since the epoch.
        """
        expired = peer.expires_at is not None and peer.expires_at <= wall
        if expired and not peer.listener.login:
            self.leave(peer)
        if not peer.listener.login or peer.trusted or (peer.identity is not None and not expired):
            peer.outside_since = None
            return None
        if peer.outside_since is None:
            peer.outside_since = now
        limit = peer.listener.limits.auth_timeout
        if peer.job is not None or now - peer.outside_since <= limit:
            return None
        what = "the login has expired, and there is no other one" if expired else "no login"
        return ProtocolError("login-timeout", f"{what} in {limit:g} s")

    def rest(self, peer: Peer, begun: float, now: float) -> None:
        """Let no time to log in be over from ``begun`` to ``now``: the daemon has not looked."""
        if peer.outside_since is not None:
            peer.outside_since = now - max(0.0, begun - peer.outside_since)

    def trust(self, peer: Peer) -> None:
        """Let a peer do everything, whatever the rules: it is another daemon."""
        peer.trusted = True
        self._permit(peer, None)

    def _permission(self, peer: Peer) -> Permission | None:
        if peer.trusted:
            return None
        if peer.identity is None and peer.listener.login:
            return OUTSIDE
        return self.acl.permission(peer.identity)

    def _permit(self, peer: Peer, permission: Permission | None) -> None:
        if permission is peer.permission:
            return
        peer.permission = permission
        peer.publish_filter = None if permission is None else self._publish_filter(permission)
        limited = _limited(peer)
        self._guarding = self._guarding or limited
        if not self._router.guarded:
            if limited:
                self._router.guard(True)
        elif peer.substrings or peer.names or peer.patterns:
            self._router.reconsider(peer)

    def _publish_filter(self, permission: Permission) -> PublishFilter:
        publish_filter = self._publish_filters.get(permission)
        if publish_filter is None:
            publish_filter = self._publish_filters[permission] = PublishFilter(
                self._router, permission
            )
        return publish_filter

    # Reload

    def replace(self, *, users: Users, acl: Acl, authority: Authority | None) -> int:
        """Do at once what :meth:`replacing` does."""
        return finish(self.replacing(users=users, acl=acl, authority=authority))

    def replacing(
        self,
        *,
        users: Users,
        acl: Acl,
        authority: Authority | None,
        over: Callable[[], bool] = lambda: False,
    ) -> Steps[int]:
        """Let other users, rules and keys hold from now on, for those who are here as well.

        To be called as well when what a listener asks for has changed. What is equal to what
        holds is kept, with what is remembered of it. Those who are here are looked at in steps:
        until it is its turn, each has the rights that it had.

        Args:
            users: who may come in.
            acl: what they may do.
            authority: checks tokens that are signed.
            over: tells whether the turn is over.

        Returns:
            How many connections are ended, because what had let them in was taken back.
        """
        if users != self.users:
            self.users = users
        if acl.rules != self.acl.rules:
            self.acl = acl
        self.authority = authority  # an equal one may have another leeway
        self._stranger = self.acl.permission(None)
        self._guarding = False
        limited, changed, ended = False, False, 0
        for peer in list(self._peers.values()):
            if over():
                self._tell_router(changed, limited or self._router.guarded)
                changed = False
                yield
            if peer.number not in self._peers:
                continue
            if self._revoked(peer):
                peer.end("login-revoked", "what it had logged in with holds no longer")
                peer.identity = peer.credential = peer.expires_at = None
                ended += 1
            permission = self._permission(peer)
            if permission is not peer.permission:
                peer.permission = permission
                peer.publish_filter = (
                    None if permission is None else self._publish_filter(permission)
                )
                changed = True
            limited = limited or _limited(peer)
        self._tell_router(changed, limited or self._guarding)
        return ended

    def _tell_router(self, changed: bool, limited: bool) -> None:
        """Let the router look at what peers may receive, and forget what it knows of that."""
        if changed or self._router.guarded != limited:
            self._router.guard(limited)

    def _revoked(self, peer: Peer) -> bool:
        credential = peer.credential
        if credential is None or peer.identity is None:
            return False
        if isinstance(credential, str):
            return not self.users.holds(peer.identity, credential)
        return credential != self.authority


def _limited(peer: Peer) -> bool:
    """Return whether a peer subscribes, or will, and may not receive everything."""
    if peer.permission is OUTSIDE:
        return bool(peer.substrings or peer.names or peer.patterns)
    return peer.permission is not None


def origin(peer: Peer) -> str:
    """Return what the failures of a peer are counted by: its address, of IPv6 the first half.

    The link-local addresses of each interface are counted together.
    """
    address = _address(peer)
    if address is None:
        return f"{peer.label}/{peer.identity}"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    network = str(ipaddress.IPv6Network((int(address), 64), strict=False))
    return f"{network}%{address.scope_id}" if address.scope_id else network


def is_local(peer: Peer) -> bool:
    """Return whether a peer has connected from this machine."""
    address = _address(peer)
    return peer.label == "unix" if address is None else address.is_loopback


def _address(peer: Peer) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of a peer; None if it has come by a Unix socket."""
    try:
        address = ipaddress.ip_address(host_in(peer.label))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def plain_actor(actor: str) -> str:
    """Return the actor of a token, ``@(runtime/id)`` as ``runtime/id``."""
    return actor[2:-1] if actor.startswith("@(") and actor.endswith(")") else actor
