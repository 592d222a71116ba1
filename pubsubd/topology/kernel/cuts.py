"""Single points of failure: articulation daemons, bridges, and pairs of links.

Blocks are what stays connected whichever daemon of it is lost (Hopcroft and Tarjan 1973). An
articulation daemon is in more than one; a bridge is a block of two daemons. Blocks and articulation
daemons together form a tree for each component (Harary and Prins 1966), on which everything that
is said here of a daemon or a bridge is one sum over subtrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import networkit as nk
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.forest import Forest, first_of_each, grow
from pubsubd.topology.kernel.graph import Graph, Ints, Longs

_LABELS = 0x2C75  # sets the random numbers of the labels apart from others of the same seed


@dataclass(frozen=True, eq=False)
class BlockCutTrees:
    """The blocks of a graph and the trees that they form with the articulation daemons.

    Blocks are in the order of their two lowest daemons, which no two have in common. The trees'
    nodes are the B blocks and, from B on, the articulation daemons in ascending order.

    Attributes:
        indptr: B + 1 places: the daemons of block b are ``members[indptr[b]:indptr[b + 1]]``.
        members: daemons, ascending within a block.
        articulation: the articulation daemons, ascending.
        cut_off: how many daemons each of these cuts off: those of its component that are left but
            not in the largest of the pieces that are left when it is lost.
        bridges: numbers of the links that are bridges, ascending.
        bridge_cut_off: how many daemons are on the smaller side of each.
        nodes: the node of each daemon: of an articulation daemon its own, of another one its only
            block, -1 for one without links.
        tree_indptr: where the neighbours of each of the trees' nodes are in ``tree_indices``.
        tree_indices: the neighbours.
        trees: the tree of each node, numbered without gaps.
        forest: the trees, each with its lowest block as the root.
        below: how many daemons there are in each node's subtree; the articulation daemon above a
            block is not one of its subtree.
    """

    indptr: Longs
    members: Ints
    articulation: Ints
    cut_off: Longs
    bridges: Ints
    bridge_cut_off: Longs
    nodes: Ints
    tree_indptr: Longs
    tree_indices: Ints
    trees: Ints
    forest: Forest
    below: Longs

    @property
    def count(self) -> int:
        """The number of blocks, B."""
        return len(self.indptr) - 1


def blocks(g: Graph) -> BlockCutTrees:
    """Return the blocks; a daemon without links is in none."""
    indptr, members = _find_blocks(g)
    count = len(indptr) - 1
    sizes = np.diff(indptr)
    block_of = np.repeat(np.arange(count, dtype=np.int32), sizes)
    in_blocks = np.bincount(members, minlength=g.n)
    articulation = np.flatnonzero(in_blocks > 1).astype(np.int32)
    nodes = np.full(g.n, -1, np.int32)
    nodes[members] = block_of
    nodes[articulation] = count + np.arange(len(articulation), dtype=np.int32)

    joint = in_blocks[members] > 1
    tree = symmetric(block_of[joint], nodes[members[joint]], count + len(articulation))
    trees = csgraph.connected_components(tree, directed=False)[1] if count else block_of
    forest = grow(tree.indptr, tree.indices, first_of_each(trees))
    weights = np.ones(len(trees), np.int64)
    weights[:count] = sizes - np.bincount(block_of[joint], minlength=count)
    below = forest.sum_up(weights)
    whole = below[first_of_each(trees)][trees] if count else below

    # What an articulation daemon leaves: the subtrees of its blocks, and all that is not below it.
    left = whole - below
    child = np.flatnonzero(forest.parents >= count)
    np.maximum.at(left, forest.parents[child], below[child])
    cut_off = (whole - 1 - left)[count:]

    pairs = np.flatnonzero(sizes == 2)
    low, high = members[indptr[pairs]], members[indptr[pairs] + 1]
    ends = low.astype(np.int64) * g.n + high
    bridges = np.searchsorted(g.tails.astype(np.int64) * g.n + g.heads, ends).astype(np.int32)
    # Below a bridge is one side of it; but a root has both below it, one of them with its end.
    side = below[pairs].copy()
    root = forest.parents[pairs] < 0
    ended = nodes[low[root]]
    side[root] = np.where(ended < count, 1, below[ended])
    smaller = np.minimum(side, whole[pairs] - side)

    return BlockCutTrees(
        indptr=indptr,
        members=members,
        articulation=articulation,
        cut_off=cut_off,
        bridges=bridges,
        bridge_cut_off=smaller,
        nodes=nodes,
        tree_indptr=tree.indptr.astype(np.int64),
        tree_indices=tree.indices,
        trees=trees,
        forest=forest,
        below=below,
    )


def count_two_link_cuts(g: Graph, found: BlockCutTrees, seed: int) -> int:
    """Count the pairs of links, neither of them a bridge, whose loss cuts the graph.

    Each link beside a spanning forest has a random label of 64 bits, and each link of the forest
    the exclusive or of those that go round it; two links are a cut where their labels are equal
    (Pritchard and Thurimella 2011). That two are equal by chance has a probability of less than
    2**-18 for 5 million links, and the same ``seed`` makes the same labels.
    """
    if not g.m:
        return 0
    roots = csgraph.connected_components(g.adjacency, directed=False)[1]
    forest = grow(g.indptr, g.indices, first_of_each(roots))
    lower = np.flatnonzero(forest.parents >= 0)
    upper = forest.parents[lower]
    ends = np.minimum(lower, upper).astype(np.int64) * g.n + np.maximum(lower, upper)
    wood = np.searchsorted(g.tails.astype(np.int64) * g.n + g.heads, ends)
    labels = np.random.default_rng([seed, _LABELS]).integers(2**63, size=g.m)
    labels[wood] = 0
    at_daemon = np.zeros(g.n, np.int64)
    np.bitwise_xor.at(at_daemon, g.tails, labels)
    np.bitwise_xor.at(at_daemon, g.heads, labels)
    labels[wood] = forest.xor_up(at_daemon)[lower]
    alike = np.unique(np.delete(labels, found.bridges), return_counts=True)[1]
    return int((alike * (alike - 1) // 2).sum())


def _find_blocks(g: Graph) -> tuple[Longs, Ints]:
    """Return the start of each block in the list of all blocks' daemons, and that list."""
    if not g.m:
        return np.zeros(1, np.int64), np.zeros(0, np.int32)
    search = nk.components.BiconnectedComponents(g.kit())
    search.run()
    found = [block for block in search.getComponents() if len(block) > 1]
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    members = np.fromiter(chain.from_iterable(found), np.int32, int(sizes.sum()))
    del found
    block_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    members = members[np.lexsort((members, block_of))]
    starts = np.cumsum(sizes) - sizes
    order = np.lexsort((members[starts + 1], members[starts]))
    sizes, starts = sizes[order], starts[order]
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr, members[np.repeat(starts - indptr[:-1], sizes) + np.arange(len(members))]


def symmetric(tails: Ints, heads: Ints, n: int) -> sparse.csr_array:
    """Return the n x n matrix of these links, each of them once, in no order."""
    ends = (np.concatenate([tails, heads]), np.concatenate([heads, tails]))
    return sparse.csr_array((np.ones(len(ends[0])), ends), (n, n))
