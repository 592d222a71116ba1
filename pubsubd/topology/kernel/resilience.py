"""Resilience: the largest component while daemons are lost, at random or by degree.

The order of removal is read backwards: daemons come back one after the other, and components only
ever grow. The curve's points are a few steps apart; from one to the next the components are
contracted, so that a curve costs little more than looking at each link once. Between the two
points where half is lost, daemons come back one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Floats, Graph, Ints, Longs

SMALL = 20_000
"""Daemons and links up to which daemons come back one at a time from the start to the end."""

BIG = 200_000
"""Daemons above which the points of a curve are 2 % apart instead of 1 %."""

ORDERS = 10
"""Random orders, of which the mean is taken, for a small graph."""

FEW = 4
"""As many for one that is not small; half of them for a big one, whose orders hardly differ."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Largest component as daemons are removed.

    Attributes:
        removed: shares of the daemons, 0 to 1 in even steps.
        largest: for each, the share of all daemons that is in the largest component.
        robustness: R, the mean of ``largest`` but for the first (Schneider, Moreira, Andrade,
            Havlin and Herrmann 2011): 0.5 at most, when what is left always holds together.
        half_lost: the smallest share whose removal leaves less than half of the largest component
            there was, exact to one daemon; NaN without daemons.
        error: the standard error of the mean of ``half_lost`` over random orders; None: one order.
    """

    removed: Floats
    largest: Floats
    robustness: float
    half_lost: float
    error: float | None


@dataclass(frozen=True, eq=False)
class Resilience:
    """The curve when daemons fail at random, and when the best connected ones fail first."""

    random: Curve
    targeted: Curve


def resilience(graph: Graph, seed: int) -> Resilience:
    """Return both curves: the mean of some seeded random orders, and that by degree."""
    big = graph.n > BIG
    orders = ORDERS if graph.n + graph.m <= SMALL else FEW // 2 if big else FEW
    steps = 50 if big else 100
    curves = []
    for i in range(orders):
        order = np.random.default_rng([seed, 3, i]).permutation(graph.n)
        curves.append(removal_curve(graph, order, steps))
    halves = np.array([curve.half_lost for curve in curves])
    random = Curve(
        curves[0].removed,
        np.mean([curve.largest for curve in curves], 0),
        float(np.mean([curve.robustness for curve in curves])),
        float(halves.mean()),
        float(halves.std(ddof=1) / np.sqrt(len(halves))),
    )
    return Resilience(random, removal_curve(graph, by_degree(graph), steps))


def by_degree(graph: Graph) -> Longs:
    """Return the daemons by how many neighbours they have in the intact mesh, the most first.

    Equal ones are in the order of their numbers (Albert, Jeong and Barabási 2000).
    """
    return np.argsort(-graph.degrees, kind="stable")


def removal_curve(graph: Graph, order: Longs, steps: int = 100) -> Curve:
    """Return the largest component while daemons are removed in an order.

    Args:
        graph: n daemons.
        order: all n daemons, the first to be removed first.
        steps: how many; the curve has one point more.
    """
    n = graph.n
    removed = np.arange(steps + 1) / steps
    if not n:
        return Curve(removed, np.zeros(steps + 1), 0.0, np.nan, None)
    # Daemons are called by their turn: ``turn`` t is there as long as no more than t are removed.
    turn = np.empty(n, np.int32)
    turn[order] = np.arange(n, dtype=np.int32)
    first, last = turn[graph.tails], turn[graph.heads]
    ends = np.minimum(first, last), np.maximum(first, last)
    points = np.rint(removed * n).astype(np.int64)
    if n + graph.m <= SMALL:
        sizes = _one_by_one(np.arange(n), 0, n, 0, *_sorted(*ends))
        half = int(np.argmax(2 * sizes < sizes[0]))
        largest = sizes[points]
    else:
        largest, half = _by_points(_whole(graph), points, *_sorted(*ends))
    shares = largest / n
    return Curve(removed, shares, float(shares[1:].mean()), half / n, None)


def _whole(graph: Graph) -> int:
    """Return the number of daemons in the largest component."""
    _, labels = csgraph.connected_components(graph.adjacency, directed=False)
    return int(np.bincount(labels).max())


def _sorted(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Sort links by the end that is removed first, which is when the link is lost."""
    order = np.argsort(first, kind="stable")
    return first[order], last[order]


def _by_points(whole: int, points: Longs, first: Ints, last: Ints) -> tuple[Longs, int]:
    """Return the size of the largest component at each point, and where it is below half.

    Args:
        whole: the size when nothing is removed.
        points: numbers of daemons that are removed, ascending from 0 to n.
        first: the end of each link that is removed first, ascending.
        last: its other end.
    """
    n = int(points[-1])
    labels = np.arange(n)
    largest = np.zeros(len(points), np.int64)
    starts = np.searchsorted(first, points)
    half = n
    found = False
    for i in range(len(points) - 2, -1, -1):
        back = slice(starts[i], starts[i + 1])
        ends = first[back], last[back]
        merged = _contract(labels, *ends)
        largest[i] = np.bincount(merged[points[i] :], minlength=1).max()
        if not found and 2 * largest[i] >= whole:
            found = True
            low, high = int(points[i]), int(points[i + 1])
            sizes = _one_by_one(labels, low, high, int(largest[i + 1]), *ends)
            half = low + int(np.argmax(2 * sizes < whole))
        labels = merged
    return largest, half


def _contract(labels: Longs, first: Ints, last: Ints) -> Longs:
    """Return n new labels: those that the links join are one."""
    count = int(labels.max()) + 1
    ends = labels[first], labels[last]
    joined = sparse.coo_array((np.ones(len(first), np.int8), ends), (count, count))
    _, components = csgraph.connected_components(joined, directed=False)
    merged: Longs = components.astype(np.int64)[labels]
    return merged


def _one_by_one(labels: Longs, low: int, high: int, largest: int, first: Ints, last: Ints) -> Longs:
    """Return the size of the largest component with ``low``, ``low`` + 1, ..., ``high`` removed.

    Daemons and components are joined as Tarjan (1975) does, the smaller ones to the larger.

    Args:
        labels: the component of each of n daemons while ``high`` are removed; those are alone.
        low: how many are removed in the end.
        high: how many at the start.
        largest: the size of the largest component then.
        first: of each link that comes back, the end that comes back last, ascending.
        last: its other end.
    """
    sizes = np.bincount(labels).tolist()
    parents = list(range(len(sizes)))
    grown = np.zeros(high - low + 1, np.int64)
    grown[-1] = largest
    grown[:-1] = 1
    turns = (first[::-1] - low).tolist()
    for turn, a, b in zip(
        turns, labels[first[::-1]].tolist(), labels[last[::-1]].tolist(), strict=True
    ):
        while (up := parents[a]) != a:
            parents[a] = a = parents[up]  # noqa: PLW2901
        while (up := parents[b]) != b:
            parents[b] = b = parents[up]  # noqa: PLW2901
        if a == b:
            continue
        if sizes[a] < sizes[b]:
            a, b = b, a  # noqa: PLW2901
        parents[b] = a
        sizes[a] += sizes[b]
        if sizes[a] > largest:
            largest = grown[turn] = sizes[a]
    return np.maximum.accumulate(grown[::-1])[::-1]
