"""Single points of failure of the mesh as it is now, and the links that remove them.

They follow from the graph of :mod:`pubsubd.mesh.linkstate` as far as this daemon can reach it, by
the definitions of the analysis (:mod:`pubsubd.topology.kernel.cuts`): a test compares them. They
are found once for each state of the graph, in steps. Where the graph is large and keeps changing,
they may be a second old, and take a small part of the time however often it changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import thread_time

from pubsubd.broker.turn import Shared, Steps
from pubsubd.connectivity.blocks import Blocks, find_blocks
from pubsubd.connectivity.remedy import remedy
from pubsubd.mesh.linkstate import Table

NAMED = 10
"""Daemons that are named of those that a loss cuts off."""

_SMALL = 256  # daemons and ends of links; such a graph takes 2 ms
_STEP = 512  # daemons and ends of links between two pauses

Bridge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Weak:
    """Single points of failure.

    Attributes:
        version: of the table's graph, see :attr:`Table.version`.
        reached: the daemons that can be reached, this one included.
        links: how many there are between these.
        articulation: id -> how many daemons the loss of this one cuts off; the most first.
        bridges: two ids, the lesser first -> how many daemons the loss of this link cuts off; the
            most first.
        added: links to add, the most useful first. With them, no single loss cuts off anything.
        ids: all daemons of the graph, in order: the nodes of ``blocks`` are places in it.
        blocks: of what can be reached.
    """

    version: int
    reached: frozenset[str]
    links: int
    articulation: dict[str, int]
    bridges: dict[Bridge, int]
    added: list[Bridge]
    ids: list[str]
    blocks: Blocks

    def behind(self, node: str) -> list[str]:
        """Return the ids of some daemons that an articulation daemon cuts off, in order."""
        return self._some(self.blocks.behind(self._number(node)))

    def beyond(self, bridge: Bridge) -> list[str]:
        """Return the ids of some daemons that a bridge cuts off, in order."""
        one, other = map(self._number, bridge)
        known = (one, other) if (one, other) in self.blocks.bridges else (other, one)
        return self._some(self.blocks.beyond(known))

    def _number(self, node: str) -> int:
        return bisect_left(self.ids, node)

    def _some(self, numbers: Iterator[int]) -> list[str]:
        return [self.ids[number] for number in sorted(islice(numbers, NAMED))]


class WeakPoints:
    """Finds the single points of failure.

    Args:
        table: of this daemon.
        clock: seconds that only go forward.

    Attributes:
        latest: those that were found last; None before.
    """

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table = table
        self._shared = Shared(self._make, clock, thread_time)
        self.latest: Weak | None = None

    def find(self) -> Steps[Weak]:
        """Return the single points of failure, in steps; at once if the graph is the same."""
        table = self._table
        if self.latest is not None and self.latest.version == table.version:
            return self.latest
        if table.links + len(table.graph) < _SMALL:
            return (yield from self._make())
        return (yield from self._shared.get())

    def _make(self) -> Steps[Weak]:
        table = self._table
        version = table.version
        # Copied at once, some 2 ms at most, since the table goes on changing.
        graph = {node: near.copy() for node, near in table.graph.items()}
        graph.setdefault(table.me, [])
        ids = sorted(graph)
        yield
        numbers = {node: number for number, node in enumerate(ids)}
        yield
        near: list[list[int]] = []
        looked = 0
        for node in ids:
            near.append([numbers[other] for other in graph[node]])
            looked += len(near[-1]) + 1
            if looked >= _STEP:
                looked = 0
                yield
        found = yield from find_blocks(near, numbers[table.me])
        added = yield from remedy(found, [len(one) for one in near])
        yield
        nodes = sorted(found.articulation, key=lambda node: (-found.articulation[node], node))
        articulation = {ids[node]: found.articulation[node] for node in nodes}
        yield
        ends = sorted((-size, min(one), max(one)) for one, size in found.bridges.items())
        yield
        bridges = {(ids[one], ids[other]): -size for size, one, other in ends}
        yield
        reached = frozenset(ids[node] for node in found.order)
        yield
        self.latest = Weak(
            version=version,
            reached=reached,
            links=sum(len(near[node]) for node in found.order) // 2,
            articulation=articulation,
            bridges=bridges,
            added=[(ids[one], ids[other]) for one, other in added],
            ids=ids,
            blocks=found,
        )
        return self.latest
