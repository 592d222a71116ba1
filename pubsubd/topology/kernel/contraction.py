"""Single points of failure that remain while links are added.

A new link closes a circle: all blocks between its ends become one block (Eswaran and Tarjan 1976).
An articulation daemon on the way is in one block less, and is none any more once it is in a single
one; a bridge on the way becomes part of the circle. Blocks that have become one are kept in a
union-find structure, each set under its topmost block, so that a million links cost as many
steps as the tree has nodes, and each count is that of the real graph with these links.
"""

from __future__ import annotations

from pubsubd.topology.kernel.cuts import BlockCutTrees
from pubsubd.topology.kernel.forest import Forest


class Contraction:
    """The blocks and articulation daemons of a graph to which links are added.

    Args:
        found: the graph's blocks.
        forest: their trees, rooted anywhere; those of ``found`` by default.

    Attributes:
        articulation: how many articulation daemons there are.
        bridges: how many bridges.
    """

    def __init__(self, found: BlockCutTrees, forest: Forest | None = None) -> None:
        forest = forest or found.forest
        self._blocks = found.count
        self._parents: list[int] = forest.parents.tolist()
        self._depths = _depths(forest)
        self._tops = list(range(self._blocks))
        # Of an articulation daemon, the blocks that it is in.
        self._degrees: list[int] = (found.tree_indptr[1:] - found.tree_indptr[:-1]).tolist()
        self._is_bridge: list[bool] = (found.indptr[1:] - found.indptr[:-1] == 2).tolist()
        self.articulation = len(found.articulation)
        self.bridges = len(found.bridges)

    def add(self, one: int, other: int) -> None:
        """Add a link.

        Args:
            one: the node of one end, as :attr:`BlockCutTrees.nodes` has it: a block for a
                daemon that is in a single one.
            other: the node of the other end, in the same tree.
        """
        path = self.find_path(one, other)
        blocks = [node for node in path if node < self._blocks]
        if len(blocks) > 1:
            top = min(blocks, key=self._depths.__getitem__)
            for block in blocks:
                self._tops[block] = top
                if self._is_bridge[block]:
                    self._is_bridge[block] = False
                    self.bridges -= 1
        for node in path[1:-1]:
            if node >= self._blocks:
                self._degrees[node] -= 1
                self.articulation -= self._degrees[node] == 1

    def find_path(self, one: int, other: int) -> list[int]:
        """Return the nodes from ``one`` to ``other``; blocks that are one now are one node."""
        rising, falling = [self._top(one)], [self._top(other)]
        while rising[-1] != falling[-1]:
            side = rising
            if self._depths[rising[-1]] < self._depths[falling[-1]]:
                side = falling
            side.append(self._top(self._parents[side[-1]]))
        return rising + falling[-2::-1]

    def _top(self, node: int) -> int:
        if node >= self._blocks:
            return node
        tops = self._tops
        while tops[node] != node:
            tops[node] = node = tops[tops[node]]
        return node


def _depths(forest: Forest) -> list[int]:
    depths = [0] * len(forest.order) + [-1]  # one more, for the parent of the roots
    parents = forest.parents
    for node, parent in zip(forest.order.tolist(), parents[forest.order].tolist(), strict=True):
        depths[node] = depths[parent] + 1
    return depths[:-1]
