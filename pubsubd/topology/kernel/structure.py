"""Structure of a graph: degrees, components, cores and triangles.

Degrees, cores and triangles are those of the undirected graph without loops; so are the weak
components. Strong components follow the arcs. All figures are exact but the exponent of the tail,
which is an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkit as nk
import numpy as np
from scipy import sparse, special
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Floats, Graph, Ints, Longs

TAIL_DAEMONS = 50
"""Fewest daemons in a tail whose exponent is estimated."""

_TAIL_STARTS = 50  # degrees that are tried as the start of the tail, the lowest ones
_TAIL_STEEPEST = 20.0  # an exponent that high tells that there is no tail


@dataclass(frozen=True, eq=False)
class Histogram:
    """``counts[i]`` things have the value ``values[i]``; the values ascend, no count is 0."""

    values: Longs
    counts: Longs


@dataclass(frozen=True, eq=False)
class Degrees:
    """The degrees of n daemons; all is 0 where there are none.

    Attributes:
        mean: 2m / n.
        median: of all daemons; between the middle two.
        maximum: the highest.
        gini: 0 when all are equal, towards 1 when one daemon has all links (Gini 1912).
        top1_share: of all ends of links, those on the 1 % of daemons with the most, rounded up.
        tail_exponent: of a power law above ``tail_start``; None when fewer than
            :data:`TAIL_DAEMONS` daemons are there, or their degrees fall off too fast for one.
        tail_start: the degree from which the exponent holds.
        leaves: daemons with one neighbour.
        isolated: daemons with none.
        share_two: of all daemons, those with two neighbours or more.
        share_three: with three or more.
        histogram: daemons of each degree.
    """

    mean: float
    median: float
    maximum: int
    gini: float
    top1_share: float
    tail_exponent: float | None
    tail_start: int | None
    leaves: int
    isolated: int
    share_two: float
    share_three: float
    histogram: Histogram


@dataclass(frozen=True, eq=False)
class Components:
    """Components of a graph.

    Attributes:
        count: weak components; a daemon without links is one.
        labels: the component of each daemon: 0 is the largest one, of equals the one with the
            lowest daemon.
        sizes: daemons of each component, descending.
        largest: daemons of the largest one.
        largest_arcs: arcs in it, self-loops as well.
        strong_count: strong components.
        strong_largest: daemons of the largest of them.
        strong_largest_arcs: arcs within it, self-loops as well.
        size_histogram: components of each size.
        strong_size_histogram: strong components of each size.
    """

    count: int
    labels: Ints
    sizes: Longs
    largest: int
    largest_arcs: int
    strong_count: int
    strong_largest: int
    strong_largest_arcs: int
    size_histogram: Histogram
    strong_size_histogram: Histogram


@dataclass(frozen=True, eq=False)
class Cores:
    """Core numbers (Seidman 1983): the k-core is what is left when no degree is below k."""

    numbers: Ints
    maximum: int
    histogram: Histogram


@dataclass(frozen=True, eq=False)
class Clustering:
    """Triangles (Watts and Strogatz 1998).

    Attributes:
        local: for each daemon, of the pairs of its neighbours, the share that is linked; 0 with
            fewer than two neighbours.
        mean: of ``local`` over all daemons.
        triangles: T.
        closed: T / (W - 2T) of W paths of two links; 0 when there are none.
        transitivity: 3T / W; 0 when there are none.
    """

    local: Floats
    mean: float
    triangles: int
    closed: float
    transitivity: float


def count_values(values: Ints | Longs) -> Histogram:
    """Count how often each of ``values``, none of them negative, occurs."""
    counts = np.bincount(values)
    found = np.flatnonzero(counts)
    return Histogram(found.astype(np.int64), counts[found].astype(np.int64))


def degrees(each: Ints) -> Degrees:
    """Return the distribution of the degrees of n daemons."""
    n, histogram = len(each), count_values(each)
    if not n:
        return Degrees(0.0, 0.0, 0, 0.0, 0.0, None, None, 0, 0, 0.0, 0.0, histogram)
    ascending = np.sort(each).astype(np.int64)
    ends = int(ascending.sum())
    weighed = int((ascending * np.arange(1, n + 1)).sum())
    exponent, start = fit_tail(histogram)
    return Degrees(
        mean=ends / n,
        median=float(np.median(ascending)),
        maximum=int(ascending[-1]),
        gini=2 * weighed / (n * ends) - (n + 1) / n if ends else 0.0,
        top1_share=int(ascending[-n // 100 :].sum()) / ends if ends else 0.0,
        tail_exponent=exponent,
        tail_start=start,
        leaves=int((ascending == 1).sum()),
        isolated=int((ascending == 0).sum()),
        share_two=int((ascending >= 2).sum()) / n,
        share_three=int((ascending >= 3).sum()) / n,
        histogram=histogram,
    )


def fit_tail(histogram: Histogram) -> tuple[float | None, int | None]:
    """Return the exponent of the degrees' tail and the degree that it starts from.

    Clauset, Shalizi and Newman (2009): for each start, the exponent is the maximum likelihood
    one of the discrete power law; that start is taken whose law is nearest to the degrees by
    Kolmogorov and Smirnov's distance. Only the lowest starts are tried, and such that leave
    enough daemons in the tail and two different degrees.
    """
    linked = histogram.values > 0
    values = histogram.values[linked].astype(np.float64)
    counts = histogram.counts[linked]
    above = counts[::-1].cumsum()[::-1]  # daemons with at least this degree
    tries = min(int((above >= TAIL_DAEMONS).sum()), len(values) - 1, _TAIL_STARTS)
    if tries < 1:
        return None, None
    logs = (counts * np.log(values))[::-1].cumsum()[::-1][:tries] / above[:tries]
    starts = values[:tries]
    # The likelihood's slope falls with the exponent: the root is between two bounds.
    low, high, step = np.full(tries, 1.0 + 1e-6), np.full(tries, _TAIL_STEEPEST), 1e-6
    for _ in range(40):
        middle = (low + high) / 2
        zetas = special.zeta(np.stack([middle - step / 2, middle + step / 2]), starts)
        rising = -np.diff(np.log(zetas), axis=0)[0] / step > logs
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    exponents = (low + high) / 2
    whole = special.zeta(exponents, starts)
    law = special.zeta(exponents[:, None], values[None, :]) / whole[:, None]
    gaps = np.abs(law - above[None, :] / above[:tries, None])
    gaps[values[None, :] < starts[:, None]] = 0.0
    best = int(gaps.max(axis=1).argmin())
    if exponents[best] > _TAIL_STEEPEST - 0.01:
        return None, None
    return float(exponents[best]), int(starts[best])


def components(g: Graph) -> Components:
    """Return the weak and the strong components."""
    search = nk.components.ConnectedComponents(g.kit())
    search.run()
    labels, sizes = order_labels(np.asarray(search.getPartition().getVector(), np.int64))
    arcs = np.ones(len(g.arc_tails), np.bool_)
    matrix = sparse.csr_array((arcs, (g.arc_tails, g.arc_heads)), (g.n, g.n))
    found = csgraph.connected_components(matrix, connection="strong")[1] if g.n else g.loops
    strong, strong_sizes = order_labels(found.astype(np.int64))
    strong_inner = strong[g.arc_tails] + strong[g.arc_heads] == 0
    return Components(
        count=len(sizes),
        labels=labels,
        sizes=sizes,
        largest=int(sizes[0]) if g.n else 0,
        largest_arcs=int((labels[g.arc_tails] == 0).sum() + (labels[g.loops] == 0).sum()),
        strong_count=len(strong_sizes),
        strong_largest=int(strong_sizes[0]) if g.n else 0,
        strong_largest_arcs=int(strong_inner.sum() + (strong[g.loops] == 0).sum()),
        size_histogram=count_values(sizes),
        strong_size_histogram=count_values(strong_sizes),
    )


def order_labels(labels: Longs) -> tuple[Ints, Longs]:
    """Return ``labels`` numbered anew, and how many daemons have each.

    The label of the most daemons is 0; of labels with equally many, the one that the lowest
    daemon has comes first.
    """
    _, first, dense, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -sizes))
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places[dense], sizes[order].astype(np.int64)


def cores(g: Graph) -> Cores:
    """Return the core numbers (Batagelj and Zaversnik 2003)."""
    if not g.n:
        return Cores(g.degrees, 0, count_values(g.degrees))
    peeling = nk.centrality.CoreDecomposition(g.kit())
    peeling.run()
    numbers = np.asarray(peeling.scores()).astype(np.int32)
    return Cores(numbers, int(numbers.max()), count_values(numbers))


def clustering(g: Graph) -> Clustering:
    """Return the triangles, counted from the lower degrees up (Ortmann and Brandes 2014)."""
    if not g.m:
        return Clustering(np.zeros(g.n), 0.0, 0, 0.0, 0.0)
    search = nk.centrality.LocalClusteringCoefficient(g.kit(), True)
    search.run()
    pairs = g.degrees.astype(np.int64) * (g.degrees - 1) // 2
    # Its shares are rounded; what they are shares of is whole.
    around = np.rint(np.asarray(search.scores()) * pairs).astype(np.int64)
    local = around / np.maximum(pairs, 1)
    triangles, paths = int(around.sum()) // 3, int(pairs.sum())
    return Clustering(
        local=local,
        mean=float(local.mean()),
        triangles=triangles,
        closed=triangles / (paths - 2 * triangles) if paths else 0.0,
        transitivity=3 * triangles / paths if paths else 0.0,
    )
