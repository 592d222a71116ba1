"""The fewest new links after which no single loss of a daemon or a link cuts anything off.

First the components are joined. What is then left to do is told by the tree of blocks and
articulation daemons (:mod:`pubsubd.topology.kernel.cuts`): each leaf of it needs a new link. Where
p leaves are, and an articulation daemon is in up to d blocks, no fewer than
``max(d - 1, ceil(p / 2))`` links will do, and that many always do (Eswaran and Tarjan 1976;
Rosenthal and Goldner 1977; Hsu and Ramachandran 1993). They are found at once, without adding them
one by one:

- The root is a node from which each branch has at most half of the leaves, a block if there is such
  a one. Each new link joins leaves of different branches. So whatever articulation daemon is lost,
  all that is below it keeps a way to the rest that is not below it.
- The root's own branches hold together by the root if it is a block; if it is a daemon, the links
  are chosen such that they connect its branches (:mod:`pubsubd.connectivity.pairing`).

Ends are daemons that are in the leaf only, so no new link is there already. For bridges alone the
same is done on the tree of what stays connected when all bridges are lost; ceil(L / 2) links then
do for L leaves. Two daemons alone cannot be helped: there is no room for a second link.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csgraph

from pubsubd.connectivity.leaves import pair_leaves
from pubsubd.connectivity.pairing import Pair
from pubsubd.protocol.steps import finish
from pubsubd.topology.kernel.contraction import Contraction
from pubsubd.topology.kernel.cuts import BlockCutTrees, blocks, symmetric
from pubsubd.topology.kernel.graph import Bools, Graph, Ints, Longs, build
from pubsubd.topology.kernel.structure import order_labels

OWN_EFFECTS = 20
"""Links, the first ones, whose effect alone is computed as well."""


@dataclass(frozen=True, eq=False)
class Plan:
    """New links, the most useful ones first, and what is left after each.

    Attributes:
        tails: a daemon of each link, the lower one.
        heads: the other one.
        least: no plan has fewer links.
        articulation: articulation daemons that are left after the first, the first two, ...
        bridges: bridges that are left.
        own_articulation: how many fewer there would be if a link were the only one that is added;
            for the first :data:`OWN_EFFECTS` links.
        own_bridges: the same of bridges.
        own_spared: the same of daemons that are cut off, added up over all articulation daemons.
    """

    tails: Ints
    heads: Ints
    least: int
    articulation: Longs
    bridges: Longs
    own_articulation: Longs
    own_bridges: Longs
    own_spared: Longs

    @property
    def count(self) -> int:
        """The number of links."""
        return len(self.tails)


@dataclass(frozen=True, eq=False)
class Advice:
    """Links to add.

    Attributes:
        join_tails: links that make one component of all, one fewer than components: a daemon of
            each, the lower one.
        join_heads: the other one.
        articulation: articulation daemons once these are there, and before anything else is.
        bridges: bridges then.
        redundancy: then removes all of both.
        bridge: or, instead, removes the bridges alone.
    """

    join_tails: Ints
    join_heads: Ints
    articulation: int
    bridges: int
    redundancy: Plan
    bridge: Plan


def advise(g: Graph, found: BlockCutTrees | None = None, degrees: Ints | None = None) -> Advice:
    """Return the links to add; the same graph always has the same ones.

    Args:
        g: the graph, or a part of its links that has the same blocks.
        found: its blocks, where they are known already.
        degrees: links of each daemon, if ``g`` does not have all of them. New ones go to those
            with few.
    """
    found = found or blocks(g)
    degrees = g.degrees if degrees is None else degrees
    joins = join_components(found, degrees)
    tails, heads = _columns(joins)
    if joins:
        degrees = degrees + np.bincount(np.append(tails, heads), minlength=g.n)
        # A ring for each block makes the same blocks, of fewer links.
        ring = found.members, found.members[_next_in_block(found)]
        found = blocks(build(g.ids, np.append(ring[0], tails), np.append(ring[1], heads)))
    return Advice(
        join_tails=tails,
        join_heads=heads,
        articulation=len(found.articulation),
        bridges=len(found.bridges),
        redundancy=_plan(found, *_link_leaf_blocks(found, degrees)),
        bridge=_plan(found, *_link_leaf_pieces(found, degrees)),
    )


def _next_in_block(found: BlockCutTrees) -> Longs:
    """Return for each place in the blocks' members the next one, and the first for the last."""
    after = np.arange(1, len(found.members) + 1)
    after[found.indptr[1:] - 1] = found.indptr[:-1]
    return after


def join_components(found: BlockCutTrees, degrees: Ints) -> list[Pair]:
    """Return links that make one component of all, the larger ones first.

    Each component is linked to one that is in already, on both sides at a leaf as long as there are
    any, so that these leaves need no other link. No daemon gets a second new link, but such that
    had none before.
    """
    n = len(degrees)
    linked = found.nodes >= 0
    components = len(found.trees) + np.arange(n)
    components[linked] = found.trees[found.nodes[linked]]
    labels, sizes = order_labels(components)
    if len(sizes) < 2:
        return []
    # An articulation daemon is no good end, and one of each leaf block is the best one.
    rank = np.ones(n, np.int8)
    rank[found.articulation] = 2
    rank[_ends_of_leaf_blocks(found, degrees)[1]] = 0
    order = np.lexsort((np.arange(n), degrees, rank, labels))
    order = order[rank[order] < 2]
    starts = np.searchsorted(labels[order], np.arange(len(sizes) + 1)).tolist()
    ends = order.tolist()
    free = deque(ends[: starts[1]])
    joins = []
    for start, stop in pairwise(starts[1:]):
        joins.append((free.popleft(), ends[start]))
        free.extend(ends[start + 1 : stop] or ends[start:stop])
    return joins


def _link_leaf_blocks(found: BlockCutTrees, degrees: Ints) -> tuple[list[Pair], int]:
    """Return links that remove all articulation daemons and bridges, and their least number."""
    if not len(found.articulation):
        return [], 0
    leaves, ends = _ends_of_leaf_blocks(found, degrees)
    end_of = dict(zip(leaves.tolist(), ends.tolist(), strict=True))
    branches = np.diff(found.tree_indptr)
    weights = np.ones(len(branches), np.int64)
    weights[: found.count] = np.diff(found.indptr) - branches[: found.count]
    solid = np.arange(len(branches)) < found.count
    pairs = _pair(found.tree_indptr, found.tree_indices, weights, solid)
    widest = int(branches[found.count :].max())
    return [(end_of[a], end_of[b]) for a, b in pairs], max(widest - 1, -(-len(leaves) // 2))


def _ends_of_leaf_blocks(found: BlockCutTrees, degrees: Ints) -> tuple[Longs, Ints]:
    """Return the leaves of the trees, and for each the daemon there with the fewest links.

    The articulation daemon by which the block hangs on the rest is none of its choices.
    """
    leaf = np.diff(found.tree_indptr)[: found.count] == 1
    inside = np.repeat(leaf, np.diff(found.indptr)) & (found.nodes[found.members] < found.count)
    daemons = found.members[inside]
    return _first_by(found.nodes[daemons], degrees[daemons], daemons)


def _link_leaf_pieces(found: BlockCutTrees, degrees: Ints) -> tuple[list[Pair], int]:
    """Return links that remove all bridges, and their least number."""
    n = len(degrees)
    sizes = np.diff(found.indptr)
    if n < 3 or sizes.min() > 2:
        return [], 0
    bridge = np.repeat(sizes == 2, sizes)
    ends = found.members[bridge]
    tails, heads = found.members[~bridge], found.members[_next_in_block(found)[~bridge]]
    pieces = csgraph.connected_components(symmetric(tails, heads, n), directed=False)[1]
    bridged = pieces[ends].reshape(-1, 2)
    tree = symmetric(bridged[:, 0], bridged[:, 1], int(pieces.max()) + 1)
    leaf = np.diff(tree.indptr) == 1
    # Not the bridge's end, so that the new link is another one than the bridge.
    at_end = np.zeros(n, np.int64)
    at_end[ends] = 1
    daemons = np.flatnonzero(leaf[pieces]).astype(np.int32)
    rank = at_end[daemons] * n + degrees[daemons]
    leaves, firsts = _first_by(pieces[daemons], rank, daemons)
    end_of = dict(zip(leaves.tolist(), firsts.tolist(), strict=True))
    weights = np.bincount(pieces).astype(np.int64)
    solid = np.ones(len(weights), np.bool_)
    pairs = _pair(tree.indptr, tree.indices, weights, solid)
    return [(end_of[a], end_of[b]) for a, b in pairs], -(-len(leaves) // 2)


def _pair(indptr: Ints | Longs, indices: Ints, weights: Longs, solid: Bools) -> list[Pair]:
    """Return the leaves of a tree in pairs; see :func:`pair_leaves`."""
    return finish(pair_leaves(indptr.tolist(), indices.tolist(), weights.tolist(), solid.tolist()))


def _plan(found: BlockCutTrees, links: list[Pair], least: int) -> Plan:
    """Return the plan of these links, with what is left after each."""
    tails, heads = _columns(links)
    ends = list(zip(found.nodes[tails].tolist(), found.nodes[heads].tolist(), strict=True))
    own = np.zeros((3, min(len(links), OWN_EFFECTS)), np.int64)
    left = np.zeros((2, len(links)), np.int64)
    now = Contraction(found)
    for i, (one, other) in enumerate(ends[:OWN_EFFECTS]):
        own[:, i] = _measure(found, np.array(now.find_path(one, other)))
    for i, (one, other) in enumerate(ends):
        now.add(one, other)
        left[:, i] = now.articulation, now.bridges
    return Plan(tails, heads, least, left[0], left[1], own[0], own[1], own[2])


def _measure(found: BlockCutTrees, path: Longs) -> tuple[int, int, int]:
    """Count the articulation daemons, bridges and cut off daemons that a link alone removes.

    Args:
        found: the blocks of the graph without it.
        path: the nodes between the link's ends, which are in one block with it.
    """
    path_blocks = path[path < found.count]
    bridges = 0
    if len(path_blocks) > 1:
        bridges = int((np.diff(found.indptr)[path_blocks] == 2).sum())
    inner = path[1:-1]
    passed = np.flatnonzero(inner >= found.count) + 1
    nodes = path[passed]
    gone = int((np.diff(found.tree_indptr)[nodes] == 2).sum())
    # At each daemon that is passed, two of the pieces that it leaves become one.
    whole = int(found.below[found.forest.parents < 0][found.trees[path[0]]])
    pieces = np.zeros(len(nodes), np.int64)
    for side in (path[passed - 1], path[passed + 1]):
        hangs = found.forest.parents[side] == nodes
        pieces += np.where(hangs, found.below[side], whole - found.below[nodes])
    largest = whole - 1 - found.cut_off[nodes - found.count]
    return gone, bridges, int(np.maximum(pieces - largest, 0).sum())


def _first_by(groups: Ints, rank: Ints | Longs, daemons: Ints) -> tuple[Longs, Ints]:
    """Return the groups, ascending, and of each the daemon with the lowest rank."""
    order = np.lexsort((daemons, rank, groups))
    found, first = np.unique(groups[order], return_index=True)
    return found.astype(np.int64), daemons[order][first]


def _columns(links: list[Pair]) -> tuple[Ints, Ints]:
    ends = np.sort(np.array(links, np.int32).reshape(-1, 2), axis=1)
    return ends[:, 0], ends[:, 1]
