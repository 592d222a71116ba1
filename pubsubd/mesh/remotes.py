"""Other daemons as subscribers in the router, without I/O.

A :class:`Remote` subscribes for one of them. A message for several is enqueued once, for the
:class:`Group` of them, in order: so a run of messages for the same daemons is one batch, and the
messages of one publisher stay in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

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
    """Another daemon, which subscribes its interests.

    Attributes:
        node: its id.
        interests: the ones that it has advertised, once all of them are subscribed.
    """

    remote = True
    render: Callable[[bytes], bool] | None = None
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
        self.messages_out = 0

    def follow(
        self, router: Router, interests: tuple[bytes, ...], over: Callable[[], bool] = _never
    ) -> bool:
        """Subscribe ``interests`` and nothing else; False if ``over`` said stop before the end."""
        if interests is self.interests:
            return True
        asked = frozenset(interests)
        gone, new = self.substrings - asked, asked - self.substrings
        with router.many() if len(gone) + len(new) > _FEW else nullcontext():
            for change, substrings in ((router.unsubscribe, gone), (router.subscribe, new)):
                for number, substring in enumerate(substrings, 1):
                    change(self, substring)
                    if number % _STEP == 0 and over():
                        return False
        self.interests = interests
        return True

    def enqueue(self, chunk: bytes) -> None:
        """Take nothing: its messages go to its groups."""

    def send(self, data: bytes | Pieces) -> None:
        """Take nothing, as :meth:`enqueue`."""


Run = tuple["Group", bytes | Pieces, bool]
"""Successive messages for the same daemons.

These daemons; the messages, whole frames; whether this daemon vouches for the senders they name.
"""


class Outbound:
    """Messages for other daemons that are not sent yet.

    Attributes:
        runs: in order.
        closed: whether nothing is taken at present: a batch of another daemon is passed on as it
            came, not once more.
        delivery: the source of the messages; it knows whether they are vouched for.
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
        messages: enqueued, and not part of a batch yet.
        messages_out: enqueued so far.
        work: the cost of a batch for them, see :data:`~pubsubd.protocol.limits.WORK_PER_TURN`.
        next_hops: origin -> the links by which its batches go on, kept by :class:`Forwarding`.
        version: of the links and the graph, for which ``next_hops`` are right.
    """

    __slots__ = (
        "__weakref__",
        "_outbound",
        "messages",
        "messages_out",
        "next_hops",
        "nodes",
        "pending",
        "version",
        "work",
    )

    render: Callable[[bytes], bool] | None = None
    end = staticmethod(stay)

    def __init__(self, nodes: frozenset[str], outbound: Outbound) -> None:
        self.nodes = nodes
        self.messages = self.messages_out = 0
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
            outbound.runs.append((self, chunk, delivery.vouching > 0))

    def count(self, messages: int) -> None:
        """Count messages that were enqueued."""
        if not self._outbound.closed:
            self.messages += messages

    def post(self, frame: bytes) -> None:
        """Take a message of the daemon itself."""
        outbound = self._outbound
        if not outbound.closed:
            outbound.delivery.router.index.work += self.work
            self.messages += 1
            outbound.runs.append((self, frame, True))

    def send(self, data: bytes | Pieces) -> None:
        """Take one large frame."""
        if not self._outbound.closed:
            self.messages += 1
            self._outbound.runs.append((self, data, self._outbound.delivery.vouching > 0))
