"""The leaves of a tree in pairs from different branches of its centre."""

from __future__ import annotations

import numpy as np

from pubsubd.topology.kernel.forest import Forest, grow
from pubsubd.topology.kernel.graph import Bools, Ints, Longs
from pubsubd.topology.kernel.pairing import Pair, pair


def pair_leaves(indptr: Longs, indices: Ints, weights: Longs, solid: Bools) -> list[Pair]:
    """Return as few pairs as can be that have each leaf in one, the most useful ones first.

    The centre is a node from which each branch has at most half of the leaves, rounded down: one
    that is solid, if there is such a one. The two leaves of a pair are in different branches of it.
    If it is not solid, the pairs connect all its branches.

    How useful a pair is: a branch that has a leaf with a new link to another branch cannot be cut
    off any more. Counted is what weighs less, the branch or all the rest, at each node from the
    leaf to the centre as far as no more useful leaf has the same way.

    Args:
        indptr: a tree of two nodes or more, as the rows of a sparse matrix.
        indices: neighbours.
        weights: of each node.
        solid: for each node, whether its branches hold together without a new link.
    """
    degrees = np.diff(indptr)
    if len(degrees) == 2:
        return [(0, 1)]
    root = _find_centre(indptr, indices, degrees, solid)
    forest = grow(indptr, indices, np.array([root], np.int32))
    below = forest.sum_up(weights)
    lighter = np.minimum(below, below[root] - below)
    branches = _list_leaves(forest, root, lighter)
    # The branch with the most useful leaf first; in each branch its most useful one.
    for branch in branches:
        branch.sort(key=lambda leaf: (-leaf[0], leaf[1]))
    branches.sort(key=lambda branch: (-branch[0][0], branch[0][1]))
    worth = {leaf: value for branch in branches for value, leaf in branch}
    pairs = pair([[leaf for _, leaf in branch] for branch in branches], not solid[root])
    # A leaf that is in several pairs counts once.
    ranked = []
    for one, other in sorted(pairs, key=lambda ends: -worth[ends[0]] - worth[ends[1]]):
        ranked.append((-worth[one] - worth[other], one, other))
        worth[one] = worth[other] = 0
    return [(one, other) for _, one, other in sorted(ranked)]


def _find_centre(indptr: Longs, indices: Ints, degrees: Longs, solid: Bools) -> int:
    forest = grow(indptr, indices, np.zeros(1, np.int32))
    leaves = (degrees == 1).astype(np.int64)
    below = forest.sum_up(leaves)
    most = leaves.sum() - below  # in any branch
    child = np.flatnonzero(forest.parents >= 0)
    np.maximum.at(most, forest.parents[child], below[child])
    central = (most <= leaves.sum() // 2) & (degrees > 1)
    return int(np.lexsort((most, ~solid, ~central))[0])


def _list_leaves(forest: Forest, root: int, lengths: Longs) -> list[list[Pair]]:
    """Return, for each branch of the root, its leaves as ``(worth, leaf)``.

    A leaf's worth is the length of the way from it up to where a longer way joins it.
    """
    parents = forest.parents.tolist()
    longest: list[Pair] = [(-1, -1)] * len(parents)  # of the ways to a node from below
    worths: dict[int, int] = {}
    length = lengths.tolist()
    for node in forest.order[:0:-1].tolist():
        way, leaf = longest[node]
        way, leaf = (length[node], node) if leaf < 0 else (way + length[node], leaf)
        up = parents[node]
        if up == root:
            worths[leaf] = way
            continue
        other = longest[up]
        if way > other[0]:
            longest[up], other = (way, leaf), longest[up]
        else:
            other = (way, leaf)
        if other[1] >= 0:
            worths[other[1]] = other[0]
    branches: dict[int, list[Pair]] = {}
    branch_of = list(range(len(parents)))
    for node in forest.order[1:].tolist():
        if parents[node] != root:
            branch_of[node] = branch_of[parents[node]]
        if node in worths:
            branches.setdefault(branch_of[node], []).append((worths[node], node))
    return list(branches.values())
