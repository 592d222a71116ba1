"""Spanning forests, and with them components, in a few rounds over the blocks.

Each daemon names a neighbour outside its own tree, all of these links together join trees, and so
on until no tree has a link that leaves it: at least half of the trees that have one are gone after
each round (Borůvka 1926), so there are never more than log2 n rounds; two to five in practice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.distributed.blocks import Arrays, Block, PartitionedGraph
from pubsubd.topology.kernel.graph import Bools, Ints, Longs


@dataclass(eq=False)
class Forest:
    """A spanning forest, or what there is of one yet.

    Attributes:
        labels: for each daemon the tree that it is in, from 0; in no order that means anything.
        count: how many trees there are.
        links: one array of each end of the links, for each round.
    """

    labels: Ints
    count: int
    links: list[tuple[Ints, Ints]] = field(default_factory=list)

    @property
    def tails(self) -> Ints:
        """One end of each link."""
        return np.concatenate([np.zeros(0, np.int32), *(tails for tails, _ in self.links)])

    @property
    def heads(self) -> Ints:
        """The other end."""
        return np.concatenate([np.zeros(0, np.int32), *(heads for _, heads in self.links)])

    def join(self, tails: Ints, heads: Ints) -> None:
        """Add those of some links between trees that are needed to join all that they can join."""
        chosen, self.count, joined = _join(self.labels[tails], self.labels[heads], self.count)
        self.links.append((tails[chosen], heads[chosen]))
        self.labels = joined[self.labels]


def span(blocks: PartitionedGraph, keep: Callable[[Block], Bools] | None = None) -> Forest:
    """Return a spanning forest of the links, or of those that ``keep`` flags.

    Args:
        blocks: of the graph.
        keep: returns a flag for each of a block's neighbours; the same one for both ends of a link.
    """
    forest = Forest(np.arange(blocks.n, dtype=np.int32), blocks.n)
    while True:
        (named,) = blocks.gather(_leave(forest.labels, keep), np.int32(-1))
        some = np.flatnonzero(named >= 0).astype(np.int32)
        if not len(some):
            return forest
        forest.join(some, named[some])


def span_each(blocks: PartitionedGraph, turns: list[Ints]) -> list[Forest]:
    """Return spanning forests of the links that last longest.

    A link is lost with that end of it that is lost first. At any time, what is left of the forest
    joins the same daemons as what is left of all links.

    Args:
        blocks: of the graph.
        turns: for each forest, for each daemon when it is lost: 0 to n - 1, each once.
    """
    forests = [Forest(np.arange(blocks.n, dtype=np.int32), blocks.n) for _ in turns]
    orders = [np.argsort(turn).astype(np.int32) for turn in turns]
    open_ = list(range(len(turns)))
    while open_:
        work = _outlast([forests[i].labels for i in open_], [turns[i] for i in open_])
        lasts = blocks.gather(work, *[np.int32(-1)] * len(open_))
        still = []
        for i, last in zip(open_, lasts, strict=True):
            some = np.flatnonzero(last >= 0).astype(np.int32)
            if len(some):
                named = orders[i][last[some]]
                best = _longest(forests[i].labels[some], turns[i][some], last[some])
                forests[i].join(some[best], named[best])
                still.append(i)
        open_ = still
    return forests


def _leave(labels: Ints, keep: Callable[[Block], Bools] | None) -> Callable[[Block], Arrays]:
    """Name, for each daemon, its highest neighbour that is in another tree, or -1."""

    def leave(block: Block) -> Arrays:
        leaves = labels[block.indices] != labels[block.tails]
        if keep is not None:
            leaves &= keep(block)
        ends = np.where(leaves, block.indices, np.int32(-1))
        return (block.reduce(np.maximum, ends, -1),)

    return leave


def _outlast(labels: list[Ints], turns: list[Ints]) -> Callable[[Block], Arrays]:
    """Find, for each daemon, the turn of its neighbour in another tree that is lost last, or -1.

    Of all links that lead from the daemon to another tree, that one lasts longest.
    """

    def outlast(block: Block) -> Arrays:
        lasts = []
        for trees, turn in zip(labels, turns, strict=True):
            leaves = trees[block.indices] != trees[block.tails]
            ends = np.where(leaves, turn[block.indices], np.int32(-1))
            lasts.append(block.reduce(np.maximum, ends, -1))
        return tuple(lasts)

    return outlast


def _longest(trees: Ints, left: Ints, right: Ints) -> Longs:
    """Return the place of the link that lasts longest, for each tree.

    No two links are equally good, so that all trees' together make no circle.

    Args:
        trees: for each link a tree that it leads out of.
        left: the turn of its one end.
        right: the turn of its other end.
    """
    lasting = np.minimum(left, right).astype(np.int64) << 32 | np.maximum(left, right)
    best = np.full(int(trees.max()) + 1, -1)
    np.maximum.at(best, trees, lasting)
    return np.flatnonzero(best[trees] == lasting)


def _join(left: Ints, right: Ints, count: int) -> tuple[Longs, int, Ints]:
    """Return the pairs of trees to join so that all that touch become one, and the result.

    Args:
        left: a tree for each pair.
        right: another tree.
        count: how many trees there are.

    Returns:
        The places of the pairs that are needed, ascending; how many trees are left; and the new
        label of each old one.
    """
    keys = np.minimum(left, right).astype(np.int64) * count + np.maximum(left, right)
    keys, first = np.unique(keys, return_index=True)
    # The weights are all different, and not 0, so they tell which pairs the tree is made of.
    ends = (keys // count, keys % count)
    pairs = sparse.csr_array((first + 1.0, ends), (count, count))
    tree = csgraph.minimum_spanning_tree(pairs)
    joined, labels = csgraph.connected_components(tree, directed=False)
    return np.sort(tree.data.astype(np.int64)) - 1, int(joined), labels.astype(np.int32)
