"""The leaves of a tree in pairs from different branches of its centre."""

from __future__ import annotations

from collections.abc import Sequence

from pubsubd.connectivity.pairing import Pair, pair
from pubsubd.protocol.steps import Steps

_STEP = 256  # nodes between two pauses


def pair_leaves(
    indptr: Sequence[int], indices: Sequence[int], weights: Sequence[int], solid: Sequence[bool]
) -> Steps[list[Pair]]:
    """Return as few pairs as can be that have each leaf in one, the most useful ones first.

    The centre is a node from which each branch has at most half of the leaves, rounded down: one
    that is solid, if there is such a one. The two leaves of a pair are in different branches of it.
    If it is not solid, the pairs connect all its branches.

    How useful a pair is: a branch that has a leaf with a new link to another branch cannot be cut
    off any more. Counted is what weighs less, the branch or all the rest, at each node from the
    leaf to the centre as far as no more useful leaf has the same way.

    Args:
        indptr: a tree of n nodes, two or more: n + 1 places, the neighbours of node i are
            ``indices[indptr[i]:indptr[i + 1]]``.
        indices: neighbours.
        weights: of each node.
        solid: for each node, whether its branches hold together without a new link.

    The pairs are made in steps.
    """
    if len(indptr) == 3:
        return [(0, 1)]
    root = yield from _find_centre(indptr, indices, solid)
    order, parents = yield from _grow(indptr, indices, root)
    below = yield from _sum_up(order, parents, weights)
    whole = below[root]
    lighter = [min(weight, whole - weight) for weight in below]
    yield
    branches = yield from _list_leaves(order, parents, root, lighter)
    # The branch with the most useful leaf first; in each branch its most useful one.
    worth: dict[int, int] = {}
    for branch in branches:
        branch.sort()
        worth.update((leaf, -value) for value, leaf in branch)
        yield
    branches.sort(key=lambda branch: branch[0])
    groups = [[leaf for _, leaf in branch] for branch in branches]
    pairs = yield from pair(groups, not solid[root])
    pairs.sort(key=lambda ends: -worth[ends[0]] - worth[ends[1]])
    yield
    # A leaf that is in several pairs counts once.
    ranked = []
    for number, (one, other) in enumerate(pairs):
        ranked.append((-worth[one] - worth[other], one, other))
        worth[one] = worth[other] = 0
        if number % _STEP == 0:
            yield
    ranked.sort()
    yield
    return [(one, other) for _, one, other in ranked]


def _find_centre(
    indptr: Sequence[int], indices: Sequence[int], solid: Sequence[bool]
) -> Steps[int]:
    order, parents = yield from _grow(indptr, indices, 0)
    leaves = [int(indptr[i + 1] - indptr[i] == 1) for i in range(len(order))]
    below = yield from _sum_up(order, parents, leaves)
    total = below[0]
    most = [total - count for count in below]  # in any branch
    for number, node in enumerate(order):
        if parents[node] >= 0:
            most[parents[node]] = max(most[parents[node]], below[node])
        if number % _STEP == 0:
            yield
    central = [node for node in order if most[node] <= total // 2 and not leaves[node]]
    return min(central, key=lambda node: (not solid[node], most[node], node))


def _grow(
    indptr: Sequence[int], indices: Sequence[int], root: int
) -> Steps[tuple[list[int], list[int]]]:
    """Return the nodes, breadth first from the root, and the parent of each, -1 of the root."""
    order, parents = [root], [-1] * (len(indptr) - 1)
    for number, node in enumerate(order):
        for other in indices[indptr[node] : indptr[node + 1]]:
            if other != parents[node]:
                parents[other] = node
                order.append(other)
        if number % _STEP == 0:
            yield
    return order, parents


def _sum_up(
    order: Sequence[int], parents: Sequence[int], values: Sequence[int]
) -> Steps[list[int]]:
    """Return for each node the sum of the values in its subtree, itself included."""
    sums = list(values)
    for number, node in enumerate(reversed(order)):
        if parents[node] >= 0:
            sums[parents[node]] += sums[node]
        if number % _STEP == 0:
            yield
    return sums


def _list_leaves(
    order: Sequence[int], parents: Sequence[int], root: int, lengths: Sequence[int]
) -> Steps[list[list[Pair]]]:
    """Return, for each branch of the root, its leaves as ``(-worth, leaf)``.

    A leaf's worth is the length of the way from it up to where a longer way joins it.
    """
    longest: list[Pair] = [(-1, -1)] * len(parents)  # of the ways to a node from below
    worths: dict[int, int] = {}
    for number, node in enumerate(reversed(order)):
        if number % _STEP == 0:
            yield
        if node == root:
            break
        way, leaf = longest[node]
        way, leaf = (lengths[node], node) if leaf < 0 else (way + lengths[node], leaf)
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
    for number, node in enumerate(order):
        if number % _STEP == 0:
            yield
        if node == root:
            continue
        if parents[node] != root:
            branch_of[node] = branch_of[parents[node]]
        if node in worths:
            branches.setdefault(branch_of[node], []).append((-worths[node], node))
    return list(branches.values())
