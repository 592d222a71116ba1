"""Other daemons as the router sees them: receivers of what they have asked for, without I/O.

A :class:`Remote` subscribes for one of them. What several want is put once, to the
:class:`Group` of them, in the order in which it came: so runs of messages that go to the same
daemons are one batch, and one publisher's messages stay in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from pubsubd.broker.peer import stay
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.router import Router

if TYPE_CHECKING:
    from pubsubd.access.rules import Permission
    from pubsubd.broker.delivery import Delivery
    from pubsubd.mesh.link import Link
    from pubsubd.routing.wildcards import Pattern

WORK_PER_LINK = 100
"""Steps of work of a batch on one link, some 10 µs.

See :data:`~pubsubd.protocol.limits.WORK_PER_TURN`.
"""

_FEW = 64  # changes at once; of more, all answers are forgotten instead of the right ones
_STEP = 16  # changes between two looks at the clock


def _never() -> bool:
    return False


class Remote:
    """Another daemon, which subscribes what it tells to want.

    Attributes:
        node: its id.
        interests: what it subscribes, when all of it is subscribed.
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
        self.interests: tuple[bytes, ...] = ()
        self.substrings: set[bytes] = set()
        self.pending: list[bytes] = []

    def follow(
        self, router: Router, interests: tuple[bytes, ...], over: Callable[[], bool] = _never
    ) -> bool:
        """Subscribe ``interests`` and nothing else; False if ``over`` said stop before the end."""
        if interests is self.interests:
            return True
        wanted = frozenset(interests)
        gone, new = self.substrings - wanted, wanted - self.substrings
        with router.many() if len(gone) + len(new) > _FEW else nullcontext():
            for change, substrings in ((router.unsubscribe, gone), (router.subscribe, new)):
                for number, substring in enumerate(substrings, 1):
                    change(self, substring)
                    if number % _STEP == 0 and over():
                        return False
        self.interests = interests
        return True

    def enqueue(self, chunk: bytes) -> None:
        """Take nothing: what it wants is put to its groups."""

    def send(self, data: bytes | Pieces) -> None:
        """Take nothing, as :meth:`put`."""


class Run(NamedTuple):
    """Messages one after the other that the same daemons get.

    Attributes:
        group: these daemons.
        frames: the messages, whole frames.
        vouched: whether this daemon vouches for the senders that they name.
    """

    group: Group
    frames: bytes | Pieces
    vouched: bool


class Outbound:
    """What was put for other daemons and is not sent.

    Attributes:
        runs: in order.
        closed: whether nothing is taken at present: what came from another daemon goes on as it
            came, and not once more.
        delivery: what puts it; it tells whether that is vouched for.
    """

    __slots__ = ("closed", "delivery", "runs")

    def __init__(self, delivery: Delivery) -> None:
        self.runs: list[Run] = []
        self.closed = False
        self.delivery = delivery


class Group:
    """Some other daemons, as one receiver.

    Attributes:
        nodes: their ids.
        messages: put and not counted by a batch.
        work: what a batch for them costs, see :data:`~pubsubd.protocol.limits.WORK_PER_TURN`.
        next_hops: origin -> the links by which its batches go on, kept by :class:`Forwarding`.
        version: of the links and the graph, for which ``next_hops`` are right.
    """

    __slots__ = (
        "__weakref__",
        "_outbound",
        "messages",
        "next_hops",
        "nodes",
        "pending",
        "version",
        "work",
    )

    renders = False
    end = staticmethod(stay)

    def __init__(self, nodes: frozenset[str], outbound: Outbound) -> None:
        self.nodes = nodes
        self.messages = 0
        self.work = 2 * WORK_PER_LINK
        self.next_hops: dict[str, tuple[Link, ...]] = {}
        self.version = -1
        self.pending: list[bytes] = []  # stays empty: what is put goes to the outbound
        self._outbound = outbound

    def enqueue(self, chunk: bytes) -> None:
        """Take a run of frames."""
        outbound = self._outbound
        if not outbound.closed:
            delivery = outbound.delivery
            delivery.router.index.work += self.work
            outbound.runs.append(Run(self, chunk, delivery.vouching))

    def count(self, messages: int) -> None:
        """Take note that so many messages were put."""
        if not self._outbound.closed:
            self.messages += messages

    def send(self, data: bytes | Pieces) -> None:
        """Take one large frame."""
        if not self._outbound.closed:
            self.messages += 1
            self._outbound.runs.append(Run(self, data, self._outbound.delivery.vouching))
