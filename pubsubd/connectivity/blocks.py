"""Blocks, articulation nodes and bridges of a graph, by one walk in depth (Hopcroft, Tarjan 1973).

A block is what stays connected whichever node of it is lost. An articulation node is in more than
one; a bridge is a block of two nodes. In the order in which the walk meets the nodes, each subtree
of its tree is a slice, so what hangs on a node or a link is known without a further walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from pubsubd.protocol.steps import Steps

_STEP = 256  # ends of links between two pauses

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of what can be reached from the root.

    Attributes:
        order: the nodes as they were met, the root first.
        places: node -> its place in ``order``; -1 if it was not met.
        sizes: node -> nodes in its subtree, itself included: those from its place on.
        hanging: articulation node -> the nodes below it whose subtrees are cut off if it is lost.
        articulation: articulation node -> how many nodes it cuts off: all that are left but the
            largest of the pieces.
        bridges: ``(upper, lower)``, the one nearer to the root first -> how many nodes are on the
            smaller side.
        blocks: the nodes of each, ascending; in the order of their two lowest nodes.
    """

    order: list[int]
    places: list[int]
    sizes: list[int]
    hanging: dict[int, list[int]]
    articulation: dict[int, int]
    bridges: dict[tuple[int, int], int]
    blocks: list[list[int]]

    def behind(self, node: int) -> Iterator[int]:
        """Return the nodes that an articulation node cuts off.

        Of two largest pieces, that which the root is in stays, or the first.
        """
        pieces: list[Ranges] = [[self._subtree(one)] for one in self.hanging[node]]
        start, stop = self._subtree(node)
        # The rest: what is around the node's subtree, and what of that has another way.
        rest, at = [(0, start)], start + 1
        for ((first, last),) in pieces:
            rest.append((at, first))
            at = last
        rest += [(at, stop), (stop, len(self.order))]
        pieces.insert(0, rest)
        kept = max(range(len(pieces)), key=lambda i: sum(last - first for first, last in pieces[i]))
        return self._list(chain(*pieces[:kept], *pieces[kept + 1 :]))

    def beyond(self, bridge: tuple[int, int]) -> Iterator[int]:
        """Return the nodes on the smaller side of a bridge; of two halves, not the root's."""
        start, stop = self._subtree(bridge[1])
        if 2 * (stop - start) <= len(self.order):
            return self._list([(start, stop)])
        return self._list([(0, start), (stop, len(self.order))])

    def _subtree(self, node: int) -> tuple[int, int]:
        place = self.places[node]
        return place, place + self.sizes[node]

    def _list(self, ranges: Iterator[tuple[int, int]] | Ranges) -> Iterator[int]:
        return chain.from_iterable(islice(self.order, *one) for one in ranges)


def find_blocks(near: Sequence[Sequence[int]], root: int) -> Steps[Blocks]:
    """Return the blocks of what can be reached from ``root``, in steps.

    Args:
        near: node -> its neighbours, in order; each link at both of its ends, none twice.
        root: where the walk begins.
    """
    places, lowest, sizes = [-1] * len(near), [0] * len(near), [1] * len(near)
    order, open_nodes, path = [root], [root], [root]
    waiting = [iter(near[root])]  # for each node of the path, neighbours that were not looked at
    started: list[int] = [0] * len(near)  # where a node's subtree begins in `open_nodes`
    places[root] = 0
    hanging: dict[int, list[int]] = {}
    bridges: list[tuple[int, int]] = []
    blocks: list[list[int]] = []
    looked = 0
    while path:
        node = path[-1]
        above = path[-2] if len(path) > 1 else -1
        for other in waiting[-1]:
            looked += 1
            if places[other] < 0:
                places[other] = lowest[other] = len(order)
                started[other] = len(open_nodes)
                order.append(other)
                open_nodes.append(other)
                path.append(other)
                waiting.append(iter(near[other]))
                break
            if other != above and places[other] < lowest[node]:
                lowest[node] = places[other]
        else:
            looked += 1
            path.pop()
            waiting.pop()
            if above >= 0:
                sizes[above] += sizes[node]
                lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] >= places[above]:  # there is no way from here around it
                    hanging.setdefault(above, []).append(node)
                    blocks.append(sorted([above, *open_nodes[started[node] :]]))
                    del open_nodes[started[node] :]
                    if lowest[node] > places[above]:
                        bridges.append((above, node))
        if looked >= _STEP:
            looked = 0
            yield
    if len(hanging.get(root, ())) == 1:
        del hanging[root]
    blocks.sort(key=lambda members: members[0] * len(near) + members[1])
    yield
    whole = len(order)
    articulation = {}
    for number, (node, below) in enumerate(hanging.items()):
        pieces = [sizes[one] for one in below]
        articulation[node] = whole - 1 - max(*pieces, whole - 1 - sum(pieces))
        if number % _STEP == 0:
            yield
    yield
    sides = {(one, other): min(sizes[other], whole - sizes[other]) for one, other in bridges}
    return Blocks(order, places, sizes, hanging, articulation, sides, blocks)
