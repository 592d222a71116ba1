"""A sparse graph that breaks where the whole one does.

Which daemons and links are single points of failure, and what each would cut off, can be told from
a spanning tree and a few more links of every daemon (Tarjan & Vishkin, "An efficient parallel
biconnectivity algorithm", 1985). With the tree's daemons in preorder, it takes

- which subtrees the links join that lead across, neither end being above the other one, and
- whether links lead from each subtree to what is above its top.

So these links are enough: the tree's; from each daemon that to its lowest neighbour besides; and a
spanning forest of the links that lead across. (Of a link across that is not in this forest, the
ends are joined by some that are; these leave each subtree that the link leaves.) Their graph has
the very same bridges, articulation daemons, and pieces that are left without each.

For pairs of links, a spanning forest of what is beside the first one, and another one of what is
beside both, are enough: together they have at least three links of each cut, or all that it has
(Nagamochi & Ibaraki, "A linear-time algorithm for finding a sparse k-connected spanning subgraph",
1992). All of it is below 5n links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.distributed.blocks import Arrays, Block, PartitionedGraph
from pubsubd.topology.distributed.forest import Forest, span
from pubsubd.topology.kernel import graph as graphs
from pubsubd.topology.kernel.forest import Forest as Rooted
from pubsubd.topology.kernel.forest import first_of_each
from pubsubd.topology.kernel.graph import Bools, Graph, Ints


@dataclass(frozen=True, eq=False)
class Trees:
    """A forest with roots.

    Attributes:
        order: all daemons, each subtree in one piece that its top begins.
        place: where in ``order`` each daemon is.
        parents: the daemon above each one; -1 for a root.
        end: where in ``order`` the subtree of each daemon ends.
    """

    order: Ints
    place: Ints
    parents: Ints
    end: Ints


def certify(blocks: PartitionedGraph, forest: Forest, pairs: bool = True) -> Graph:
    """Return a graph of the same daemons, of fewer links, that is cut by the same losses.

    These are the losses of a daemon, of a link, and of two links.

    Args:
        blocks: of the graph.
        forest: a spanning forest of it.
        pairs: False leaves the losses of two links out of account.
    """
    trees = plant(forest)
    (low,) = blocks.gather(_reach(trees), blocks.n)
    down = np.flatnonzero(low < trees.place)
    forests = [forest, span(blocks, _across(trees))]
    if pairs:
        second = span(blocks, _beside([trees.parents]))
        forests += [second, span(blocks, _beside([trees.parents, plant(second).parents]))]
    tails = np.concatenate([down, *(one.tails for one in forests)])
    heads = np.concatenate([trees.order[low[down]], *(one.heads for one in forests)])
    return graphs.build(blocks.ids, tails, heads)


def plant(forest: Forest) -> Trees:
    """Return the forest with the first daemon of each tree as its root."""
    n = len(forest.labels)
    roots = first_of_each(forest.labels)
    # One more daemon, above all roots, makes it one tree.
    tails = np.concatenate([forest.tails, np.full(len(roots), n)])
    heads = np.concatenate([forest.heads, roots])
    ones = np.ones(len(tails), np.int8)
    tree = sparse.csr_array((ones, (tails, heads)), (n + 1, n + 1))
    order, parents = csgraph.depth_first_order(tree + tree.T, n)
    order, parents = order[1:].astype(np.int32), parents[:n].astype(np.int32)
    parents[parents == n] = -1
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    sizes = Rooted(order, parents).sum_up(np.ones(n, np.int64))
    return Trees(order, place, parents, (place + sizes).astype(np.int32))


def _reach(trees: Trees) -> Callable[[Block], Arrays]:
    """Find the first place to which each daemon has a link that is not the tree's; n if none."""
    place, parents = trees.place, trees.parents

    def reach(block: Block) -> Arrays:
        low = np.where(_is_in(parents, block), np.int32(block.n), place[block.indices])
        return (block.reduce(np.minimum, low, block.n),)

    return reach


def _beside(forests: list[Ints]) -> Callable[[Block], Bools]:
    """Flag the links that are in none of the forests, given by each daemon's parent in them."""

    def is_beside(block: Block) -> Bools:
        flags = np.ones(len(block.indices), np.bool_)
        for parents in forests:
            flags &= ~_is_in(parents, block)
        return flags

    return is_beside


def _is_in(parents: Ints, block: Block) -> Bools:
    tails, heads = block.tails, block.indices
    found: Bools = (parents[tails] == heads) | (parents[heads] == tails)
    return found


def _across(trees: Trees) -> Callable[[Block], Bools]:
    """Flag the links of which neither end is above the other one."""
    place, end = trees.place, trees.end

    def is_across(block: Block) -> Bools:
        tails, heads = block.tails, block.indices
        apart: Bools = (place[heads] >= end[tails]) | (place[tails] >= end[heads])
        return apart

    return is_across
