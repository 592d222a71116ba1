"""Other daemons as the router sees them: receivers of what they have asked for, without I/O.

A :class:`Remote` subscribes for one of them. What several want is put once, to the
:class:`Group` of them, in the order in which it came: so runs of messages that go to the same
daemons are one batch, and one publisher's messages stay in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsubd.outbox import Pieces
from pubsubd.peer import stay
from pubsubd.routing import Router

if TYPE_CHECKING:
    from pubsubd.acl import Permission
    from pubsubd.wildcards import Pattern


class Remote:
    """Another daemon, which subscribes what it tells to want.

    Attributes:
        node: its id.
    """

    remote = True
    renders = False
    end = staticmethod(stay)
    permission: Permission | None = None
    names: set[bytes] | None = None
    patterns: set[Pattern] | None = None

    def __init__(self, node: str) -> None:
        self.node = node
        self.label = f"mesh/{node}"
        self._wanted: tuple[bytes, ...] = ()
        self.substrings: set[bytes] = set()
        self.fresh: list[bytes] = []

    def want(self, router: Router, interests: tuple[bytes, ...]) -> None:
        """Subscribe ``interests`` and nothing else."""
        if interests is self._wanted:
            return
        self._wanted = interests
        wanted = frozenset(interests)
        for substring in self.substrings - wanted:
            router.unsubscribe(self, substring)
        for substring in wanted - self.substrings:
            router.subscribe(self, substring)

    def put(self, chunk: bytes) -> None:
        """Take nothing: what it wants is put to its groups."""

    def send(self, data: bytes | Pieces) -> None:
        """Take nothing, as :meth:`put`."""


class Outbound:
    """What was put for other daemons and is not sent.

    Attributes:
        runs: who gets it, and whole frames, in order.
        closed: whether nothing is taken at present: what came from another daemon goes on as it
            came, and not once more.
    """

    __slots__ = ("closed", "runs")

    def __init__(self) -> None:
        self.runs: list[tuple[Group, bytes | Pieces]] = []
        self.closed = False


class Group:
    """Some other daemons, as one receiver.

    Attributes:
        nodes: their ids.
        messages: put and not counted by a batch.
    """

    __slots__ = ("__weakref__", "_outbound", "fresh", "messages", "nodes")

    renders = False
    end = staticmethod(stay)

    def __init__(self, nodes: frozenset[str], outbound: Outbound) -> None:
        self.nodes = nodes
        self.messages = 0
        self.fresh: list[bytes] = []  # stays empty: what is put goes to the outbound
        self._outbound = outbound

    def put(self, chunk: bytes) -> None:
        """Take a run of frames."""
        if not self._outbound.closed:
            self._outbound.runs.append((self, chunk))

    def count(self, messages: int) -> None:
        """Take note that so many messages were put."""
        if not self._outbound.closed:
            self.messages += messages

    def send(self, data: bytes | Pieces) -> None:
        """Take one large frame."""
        if not self._outbound.closed:
            self.messages += 1
            self._outbound.runs.append((self, data))
