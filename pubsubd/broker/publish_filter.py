"""Filters what a peer with limited rights publishes, without I/O.

Strategy: such a peer asks a :class:`PublishFilter` where the broker asks the router for others.
So those who may do everything pay nothing for it, and those who may not pay for one more
lookup a header. What is refused goes to :class:`~pubsubd.routing.targets.Denied`, so that a run
of it is one event.

Invariants:

- ``allowed`` has headers only of names that may be published; whether the router still has a
  route for one is the router's to know.
- ``refused`` has headers only of names that must not be; it holds whatever the subscriptions.
"""

from __future__ import annotations

from pubsubd.access.rules import OUTSIDE, Permission
from pubsubd.protocol.limits import MAX_LOGIN_PAYLOAD
from pubsubd.routing.router import Router
from pubsubd.routing.targets import Denied, Route

_ALLOWED, _REFUSED = 8_192, 1_024  # headers remembered
_SHORT = 256  # bytes of one that is


class PublishFilter:
    """The way to the router of all who have the same rights.

    Attributes:
        code: of the error for what is refused.
        closed: whether nothing at all may be done before a login.
        allows: tells of a legal name whether it may be published.
        allowed, refused: headers that are remembered.
    """

    __slots__ = (
        "_denied",
        "_router",
        "_routes",
        "allowed",
        "allows",
        "closed",
        "code",
        "refused",
    )

    def __init__(self, router: Router, permission: Permission) -> None:
        self._router = router
        self._routes = router.routes
        self.allows = permission.may_publish
        self.allowed: set[bytes] = set()
        self.refused: dict[bytes, Route] = {}
        self._denied = Denied()
        self.code = permission.code
        self.closed = permission is OUTSIDE

    def get(self, key: bytes) -> Route | None:
        """Return the route of frames that begin with ``key``, if that is known."""
        if key in self.allowed:
            return self._routes.get(key)
        return self.refused.get(key)

    def learn(self, key: bytes, name: bytes, size: int) -> Route:
        """Return the route of frames that begin with ``key``, as :meth:`Router.learn` does it."""
        if self.allows(name):
            route = self._router.learn(key, name, size)
            if key in self._routes and len(key) <= _SHORT:
                if len(self.allowed) >= _ALLOWED:
                    self.allowed.clear()
                self.allowed.add(key)
            return route
        width = len(key)
        route = self._router.made.make(self._denied, width, size)
        if width <= _SHORT:
            if len(self.refused) >= _REFUSED:
                self.refused.clear()
            self.refused[key] = route
        return route

    def limit(self, size: int) -> int:
        """Return how many bytes of data a frame may have where ``size`` are the most."""
        return min(size, MAX_LOGIN_PAYLOAD) if self.closed else size


class Refusals:
    """Messages refused to one peer that it has not been told of yet.

    Told are ten lines a second, and a hundred at once: what is refused beyond that is told later,
    in one line.

    Attributes:
        code, name: of the first message.
        count: messages.
    """

    __slots__ = ("_lines", "_lines_at", "code", "count", "name")

    def __init__(self) -> None:
        self.code = ""
        self.name = b""
        self.count = 0
        self._lines = 0.0
        self._lines_at = 0.0

    def add(self, code: str, name: bytes, count: int) -> None:
        """Take note of messages."""
        if not self.count:
            self.code, self.name = code, name
        self.count += count

    def due(self, now: float) -> bool:
        """Return whether there is something to tell, and it may be told now; it then has to be."""
        if not self.count:
            return False
        self._lines = max(0.0, self._lines - (now - self._lines_at) * 10)
        self._lines_at = now
        if self._lines > 99:
            return False
        self._lines += 1
        return True
