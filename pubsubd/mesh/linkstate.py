"""The table of adverts, and the trees it leads to, without I/O.

All daemons of a mesh have the same table once they have heard the same adverts. A link counts if
both of its ends tell of it. From each origin a breadth-first walk over these links, neighbours in
the order of their ids, gives the same tree of shortest paths at every daemon: a message goes down
the tree of its origin, as in multicast OSPF (RFC 1584), so it crosses each link of it once.

Invariants:

- ``graph[u]`` has v if and only if the adverts of both u and v tell of a link between them.
- What was derived from the graph is thrown away whenever the graph changes.
"""

from __future__ import annotations

from collections import deque

from pubsubd.mesh.adverts import Advert


class Table:
    """The adverts that are known, and what follows from them.

    Args:
        me: the daemon whose table it is.

    Attributes:
        adverts: id -> its newest advert.
        graph: id -> ids of its neighbours, in order.
        version: goes up whenever the graph changes.
    """

    def __init__(self, me: str) -> None:
        self.me = me
        self.adverts: dict[str, Advert] = {}
        self.graph: dict[str, tuple[str, ...]] = {}
        self.version = 0
        self._told: dict[str, frozenset[str]] = {}
        self._hops: dict[str, int] | None = None
        self._branches: dict[str, dict[str, str]] = {}

    def put(self, advert: Advert) -> None:
        """Take an advert that is newer than what is known of its daemon."""
        node = advert.node
        self.adverts[node] = advert
        self._tell(node, frozenset(link.node for link in advert.links if link.node != node))

    def drop(self, node: str) -> None:
        """Forget a daemon."""
        self.adverts.pop(node, None)
        self._tell(node, frozenset())
        self._told.pop(node, None)
        self.graph.pop(node, None)

    def is_newer(self, node: str, stamp: tuple[int, int]) -> bool:
        """Return whether an advert of ``node`` with this stamp would be news."""
        known = self.adverts.get(node)
        return known is None or stamp > known.stamp

    def _tell(self, node: str, told: frozenset[str]) -> None:
        before = self._told.get(node, frozenset())
        self._told[node] = told
        changed = False
        for other in before ^ told:
            if node not in self._told.get(other, frozenset()):
                continue
            changed = True
            for one, another in ((node, other), (other, node)):
                neighbours = set(self.graph.get(one, ()))
                if other in told:
                    neighbours.add(another)
                else:
                    neighbours.discard(another)
                self.graph[one] = tuple(sorted(neighbours))
        if changed:
            self.version += 1
            self._hops = None
            self._branches.clear()

    @property
    def hops(self) -> dict[str, int]:
        """Id -> links on the way there, of all who can be reached, this daemon included."""
        if self._hops is None:
            hops = self._hops = {self.me: 0}
            queue = deque([self.me])
            while queue:
                node = queue.popleft()
                further = hops[node] + 1
                for neighbour in self.graph.get(node, ()):
                    if neighbour not in hops:
                        hops[neighbour] = further
                        queue.append(neighbour)
        return self._hops

    def branches(self, origin: str) -> dict[str, str]:
        """Return what lies below this daemon in the tree of ``origin``.

        Id -> the neighbour by which it is reached.
        """
        branches = self._branches.get(origin)
        if branches is None:
            branches = self._branches[origin] = self._walk(origin)
        return branches

    def _walk(self, origin: str) -> dict[str, str]:
        graph, me = self.graph, self.me
        branches: dict[str, str] = {}
        seen = {origin}
        queue = deque([origin])
        while queue:
            node = queue.popleft()
            branch = branches.get(node)
            for neighbour in graph.get(node, ()):
                if neighbour not in seen:
                    seen.add(neighbour)
                    queue.append(neighbour)
                    if branch is not None:
                        branches[neighbour] = branch
                    elif node == me:
                        branches[neighbour] = neighbour
        return branches
