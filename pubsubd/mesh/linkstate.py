"""The table of adverts, and the graph and trees that follow from it, without I/O.

All daemons of a mesh have the same table once they have heard the same adverts. A link counts if
both of its ends report it. From each origin a breadth-first walk over these links, neighbours in
the order of their ids, gives the same tree of shortest paths at every daemon: a message goes down
the tree of its origin, as in multicast OSPF (RFC 1584), so it crosses each link of it once.

What may take longer than a turn is made in steps: a walk over a large graph ends when the turn is
over, and goes on when it is asked for again.

Invariants:

- ``graph[u]`` has v if and only if the adverts of both u and v report a link between them.
- What was derived from the graph is thrown away whenever the graph changes; but of a large graph,
  ``hops`` is the one before until the new one is made.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from pubsubd.mesh.adverts import Advert
from pubsubd.protocol.limits import MIB

Found = TypeVar("Found")

MAX_DAEMONS = 10_000
"""Daemons in the table, some 4 KiB each with the window for their batches; more are not learned."""

MAX_TABLE = 128 * MIB
"""Bytes of memory that all adverts together may take, see :func:`weigh`."""

MAX_ALL_LINKS = 200_000
"""Links in all adverts together, each counted at both ends: walks go over all of them."""

MAX_TREES = 1_000_000
"""Daemons in all trees that are kept, some 40 bytes each: all trees of a mesh of 1,000."""

LINK_SIZE = 400
"""Bytes of a link or an interest, apart from its text; measured."""

ADVERT_SIZE = 2_048
"""Bytes of an advert without these."""

WALKED_AT_ONCE = 10_000
"""Daemons and ends of links that are walked over at once: some 2 ms."""

_STEP = 500  # ends of links between two looks at the clock
_WALKS = 64  # unfinished walks that are kept


def weigh(advert: Advert) -> int:
    """Return about how many bytes of memory an advert and its consequences take."""
    count = len(advert.links) + len(advert.interests)
    return ADVERT_SIZE + advert.size + LINK_SIZE * count + sum(map(len, advert.interests))


def _never() -> bool:
    return False


class Table:
    """The newest advert of each daemon, and the graph that they make.

    Args:
        me: the daemon whose table it is.

    Attributes:
        adverts: id -> its newest advert.
        graph: id -> ids of its neighbours, in order.
        version: goes up whenever the graph changes.
        weight: bytes that all adverts cost, see :func:`weigh`.
        links: how many links they report.
        longest: id -> milliseconds, the longest round trip of its links.
    """

    def __init__(self, me: str) -> None:
        self.me = me
        self.adverts: dict[str, Advert] = {}
        self.graph: dict[str, list[str]] = {}
        self.version = 0
        self.weight = self.links = 0
        self.longest: dict[str, float] = {}
        self._reported: dict[str, frozenset[str]] = {}
        self._ends = 0  # of links that count
        self._hops: dict[str, int] = {me: 0}
        self._stale = False  # whether the graph has changed since these were made
        self._measuring: Iterator[dict[str, int] | None] | None = None
        self._subtrees: dict[str, dict[str, str]] = {}
        self._kept = 0  # entries of all these
        self.walks: dict[str, Iterator[dict[str, str] | None]] = {}

    def has_room(self, advert: Advert) -> bool:
        """Return whether ``advert`` can be taken without exceeding a limit."""
        known = self.adverts.get(advert.node)
        weight, links = self.weight + weigh(advert), self.links + len(advert.links)
        if known is not None:
            weight, links = weight - weigh(known), links - len(known.links)
        return weight <= MAX_TABLE and links <= MAX_ALL_LINKS

    def put(self, advert: Advert) -> None:
        """Take an advert that is newer than the daemon's last one."""
        node = advert.node
        self._weigh(node, -1)
        self.adverts[node] = advert
        self._weigh(node)
        self.longest[node] = max((link.rtt_ms or 0.0 for link in advert.links), default=0.0)
        self._report(node, frozenset(link.node for link in advert.links if link.node != node))

    def drop(self, node: str) -> None:
        """Forget a daemon."""
        self._weigh(node, -1)
        self.adverts.pop(node, None)
        self.longest.pop(node, None)
        self._report(node, frozenset())
        self._reported.pop(node, None)
        self.graph.pop(node, None)

    def _weigh(self, node: str, sign: int = 1) -> None:
        advert = self.adverts.get(node)
        if advert is not None:
            self.weight += sign * weigh(advert)
            self.links += sign * len(advert.links)

    def _report(self, node: str, reported: frozenset[str]) -> None:
        before, both = self._reported.get(node, frozenset()), self._reported
        changed = [other for other in before ^ reported if node in both.get(other, frozenset())]
        both[node] = reported
        if not changed:
            return
        mine = set(self.graph.get(node, ()))
        for other in changed:
            theirs = self.graph.setdefault(other, [])
            if other in reported:
                insort(theirs, node)
                mine.add(other)
            else:
                del theirs[bisect_left(theirs, node)]
                mine.discard(other)
            self._ends += 2 if other in reported else -2
        self.graph[node] = sorted(mine)
        self.version += 1
        self._stale, self._measuring = True, None
        self._subtrees.clear()
        self.walks.clear()
        self._kept = 0

    @property
    def large(self) -> bool:
        """Whether a walk over the graph is made in steps."""
        return self._ends + len(self.graph) > WALKED_AT_ONCE

    @property
    def hops(self) -> dict[str, int]:
        """Id -> number of links on the way, of all reachable daemons, this one included.

        Of a large graph, the result of the last :meth:`find_hops`.
        """
        if self._stale and not self.large:
            self.find_hops()
        return self._hops

    def find_hops(self, over: Callable[[], bool] = _never) -> bool:
        """Update :attr:`hops` if the graph has changed; False if ``over`` said stop first."""
        if self._stale:
            # What has failed is begun anew: it would never come to its end.
            measuring, self._measuring = self._measuring or self._measure(), None
            found = _advance(measuring, over)
            if found is None:
                self._measuring = measuring
                return False
            self._hops, self._stale = found, False
        return True

    def _measure(self) -> Iterator[dict[str, int] | None]:
        hops = {self.me: 0}
        queue = deque([self.me])
        looked = 0
        while queue:
            node = queue.popleft()
            further = hops[node] + 1
            near = self.graph.get(node, ())
            for neighbour in near:
                if neighbour not in hops:
                    hops[neighbour] = further
                    queue.append(neighbour)
            looked += len(near) + 1
            if looked > _STEP:
                looked = 0
                yield None
        yield hops

    def subtree(self, origin: str, over: Callable[[], bool] = _never) -> dict[str, str] | None:
        """Return the daemons below this one in the tree of ``origin``.

        Id -> the next hop to it. None if the graph is large and ``over`` said
        stop before that was found: asked again, it goes on.
        """
        subtree = self._subtrees.get(origin)
        if subtree is not None:
            return subtree
        walk = self.walks.pop(origin, None) or self._walk(origin)
        subtree = _advance(walk, over if self.large else _never)
        if subtree is None:
            self.walks[origin] = walk
            if len(self.walks) > _WALKS:
                del self.walks[next(iter(self.walks))]
            return None
        self._subtrees[origin] = subtree
        self._kept += len(subtree) + 1
        while self._kept > MAX_TREES and len(self._subtrees) > 1:
            self._kept -= len(self._subtrees.pop(next(iter(self._subtrees)))) + 1
        return subtree

    def _walk(self, origin: str) -> Iterator[dict[str, str] | None]:
        graph, me = self.graph, self.me
        subtree: dict[str, str] = {}
        seen = {origin}
        queue = deque([origin])
        looked = 0
        while queue:
            node = queue.popleft()
            next_hop = subtree.get(node)
            near = graph.get(node, ())
            for neighbour in near:
                if neighbour not in seen:
                    seen.add(neighbour)
                    queue.append(neighbour)
                    if next_hop is not None:
                        subtree[neighbour] = next_hop
                    elif node == me:
                        subtree[neighbour] = neighbour
            looked += len(near) + 1
            if looked > _STEP:
                looked = 0
                yield None
        yield subtree


def _advance(walk: Iterator[Found | None], over: Callable[[], bool]) -> Found | None:
    """Go on with a walk until ``over`` says stop; return its result at the end."""
    for found in walk:
        if found is not None or over():
            return found
    return None
