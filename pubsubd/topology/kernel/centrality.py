"""Centrality: PageRank and betweenness.

Betweenness is exact as long as searching from every daemon is affordable (:data:`WORK`), and else
estimated from seeded pivots, each daemon's standard error with it.

Searches run for a block of pivots at once, one level after the other: each level is a product of
the sparse adjacency matrix and a dense matrix of daemons x pivots. That is wasted on a mesh that is
long and thin; there networkit takes one pivot after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkit as nk
import numpy as np
import numpy.typing as npt

from pubsubd.topology.kernel.graph import Floats, Graph, Ints, Longs, build
from pubsubd.topology.kernel.hops import induced, long_way

# PageRank

DAMPING = 0.85
"""The share of a daemon's rank that goes on along its arcs (Page, Brin, Motwani, Winograd 1999)."""

TOLERANCE = 1e-8
"""Rounds end when no more than this has moved in one, all daemons together."""

ROUNDS = 120
"""The most rounds; 0.85 ** 113 is below the tolerance."""


@dataclass(frozen=True, eq=False)
class PageRank:
    """The ranks of n daemons, which sum to 1.

    Attributes:
        ranks: n shares; they are off by less than 6 times the change, all together.
        rounds: how many were made.
        change: what moved in the last one.
    """

    ranks: Floats
    rounds: int
    change: float


def pagerank(graph: Graph) -> PageRank:
    """Return the PageRank of the arcs: a daemon with many arcs to it, from such ones, ranks high.

    It starts with 1 / n for each daemon and goes on as :func:`next_ranks` tells until
    :data:`TOLERANCE` or :data:`ROUNDS` is met. Sums are made in the order of the arcs.
    """
    ranks = np.full(graph.n, 1 / max(graph.n, 1))
    out = graph.out_degrees
    rounds, change = 0, 0.0
    while graph.n and rounds < ROUNDS:
        shares = ranks / np.maximum(out, 1)
        inflow = np.bincount(graph.arc_heads, shares[graph.arc_tails], graph.n).astype(np.float64)
        new = next_ranks(ranks, inflow, out)
        change = float(np.abs(new - ranks).sum())
        ranks = new
        rounds += 1
        if change <= TOLERANCE:
            break
    return PageRank(ranks, rounds, change)


def next_ranks(ranks: Floats, inflow: Floats, out: Ints | Longs) -> Floats:
    """Return the ranks after one more round.

    Args:
        ranks: n shares.
        inflow: for each daemon, the sum of rank / out-degree over the tails of the arcs to it.
        out: n out-degrees. What daemons without arcs hold goes to all daemons alike.
    """
    n = len(ranks)
    dangling = ranks[out == 0].sum()
    moved: Floats = inflow + dangling / n
    return (1 - DAMPING) / n + DAMPING * moved


# Betweenness

WORK = 2.5e9
"""Ends of links to look at, some nanoseconds each, up to which betweenness is exact: about 3 s."""

PIVOTS = 512
"""The most pivots, where it is not exact; fewer if even they are more than :data:`WORK`."""

_LEAST = 32  # pivots, whatever the work
_BLOCK = 1 << 19  # numbers in a dense matrix: 4 MiB, of which there are six, and caches have those

NATIVE_COST = 20.0
"""What networkit takes for one end of a link, in ends of a link here."""

_LEVEL = 1.0  # numbers of the dense matrices that a level costs beside the product, in ends


@dataclass(frozen=True, eq=False)
class Betweenness:
    """The share of the shortest paths between others that lead through each of n daemons.

    Attributes:
        shares: n numbers in 0..1: the mean over all ordered pairs of other daemons; a pair without
            a path counts as 0. As networkx has it, normalised.
        errors: n standard errors; None: exact.
        pivots: how many daemons were searched from.
    """

    shares: Floats
    errors: Floats | None
    pivots: int

    @property
    def worst_error(self) -> float | None:
        """The largest standard error among the ten largest shares; None: exact."""
        if self.errors is None:
            return None
        return float(self.errors[np.argsort(-self.shares, kind="stable")[:10]].max())


def betweenness(graph: Graph, labels: npt.NDArray[np.integer], seed: int) -> Betweenness:
    """Return the betweenness of each daemon (Freeman 1977; Brandes 2001), on the undirected links.

    Pivots are drawn without putting back (Brandes and Pich 2007) and weighed by how far the daemon
    is on the way, so that a pivot's neighbours are not overrated (Geisberger, Sanders and
    Schultes 2008). Leaves are not searched: all that a leaf adds is known from its neighbour.

    Args:
        graph: n daemons.
        labels: the component of each, from 0.
        seed: of the pivots.
    """
    n = graph.n
    if n < 3 or not graph.m:
        return Betweenness(np.zeros(n), None, n)
    core, place, weights, fixed = _without_leaves(graph, labels)
    scale = 1.0 / ((n - 1) * (n - 2))
    if not core.m:  # stars
        return Betweenness(fixed * scale, None, n)
    steps = long_way(core)
    # An end costs as much in each level; the dense matrices are gone through as well.
    dense = 2.0 * (steps + 1) * (2 * core.m + _LEVEL * core.n)
    single = 2.0 * graph.m * NATIVE_COST
    if single * n < min(dense * core.n, WORK) or single < dense:
        return _native(graph, single, seed)
    inside = np.flatnonzero(place >= 0)
    pivots = np.arange(core.n)
    times = weights
    error = None
    if dense * core.n > WORK:
        count = int(np.clip(WORK / dense, _LEAST, PIVOTS))
        drawn = np.random.default_rng([seed, 2]).permutation(n)[:count]
        pivots = _stand_ins(graph, place)[drawn]
        times = np.ones(count)
    total, squares = _search(core, pivots, times, weights, steps)
    shares = fixed
    if len(pivots) < core.n:
        count = len(pivots)
        spread = np.maximum(squares - total**2 / count, 0) / (count - 1)
        error = np.zeros(n)
        error[inside] = n * scale * np.sqrt(spread / count * (1 - count / n))
        total *= n / count
    shares[inside] += total
    return Betweenness(shares * scale, error, len(pivots) if error is not None else n)


def _without_leaves(
    graph: Graph, labels: npt.NDArray[np.integer]
) -> tuple[Graph, Longs, Floats, Floats]:
    """Return the graph without leaves, and what they add.

    Returns:
        The core; n places in the core, -1 for leaves; for each daemon of the core 1 and its leaves;
        n sums over the ordered pairs of which one is a leaf of the daemon itself.
    """
    degrees = graph.degrees
    single = np.flatnonzero(degrees == 1)
    ends = graph.indices[graph.indptr[single]]
    hanging = degrees[ends] > 1  # of two that have only each other, none is a leaf
    single, ends = single[hanging], ends[hanging]
    leaves = np.bincount(ends, minlength=graph.n).astype(np.float64)
    inside = np.ones(graph.n, np.bool_)
    inside[single] = False
    place = np.where(inside, np.cumsum(inside) - 1, -1)
    sizes = np.bincount(labels)[labels]
    fixed = leaves * (sizes - 2) + leaves * (sizes - 1 - leaves)
    return induced(graph, inside), place, 1 + leaves[inside], fixed


def _stand_ins(graph: Graph, place: Longs) -> Longs:
    """Return for each daemon its place in the core, for a leaf its neighbour's."""
    first = np.minimum(graph.indptr[:-1], 2 * graph.m - 1)
    return np.where(place >= 0, place, place[graph.indices[first]])


def _search(
    core: Graph, pivots: Longs, times: Floats, weights: Floats, steps: int
) -> tuple[Floats, Floats]:
    """Return for each daemon the sum over the pivots, and the sum of squares.

    Args:
        core: a graph.
        pivots: daemons; each counts ``times`` as often.
        times: as many numbers.
        weights: how many daemons each daemon of the core stands for, as the end of a path.
        steps: about how many levels there are.
    """
    matrix = core.adjacency.astype(np.float64)
    width = int(np.clip(_BLOCK // core.n, 8, 64))
    # Numbers of paths grow with each level; only if they could overflow they are scaled.
    tall = (2 * steps + 2) * np.log2(max(int(core.degrees.max()), 2)) > 900
    total, squares = np.zeros(core.n), np.zeros(core.n)
    for first in range(0, len(pivots), width):
        some = slice(first, first + width)
        part = dependencies(matrix, pivots[some], weights, tall)
        part *= times[some]
        total += part.sum(1)
        squares += np.einsum("nk,nk->n", part, part)
    return total, squares


def dependencies(matrix: Any, pivots: Longs, weights: Floats, tall: bool) -> Floats:
    """Return the share that each of k pivots adds to each of n daemons, n x k. The hot loop."""
    shape = (matrix.shape[0], len(pivots))
    columns = np.arange(len(pivots))
    paths = np.zeros(shape)
    paths[pivots, columns] = 1
    level = np.full(shape, -1, np.int16)
    level[pivots, columns] = 0
    front = paths.copy()
    depth = 0
    scales = [1.0]
    while True:
        front = matrix @ front
        new = front > 0
        new &= level < 0
        if not new.any():
            break
        front *= new
        scales.append(1.0)
        if tall and (most := front.max()) > 2.0**400:
            scales[-1] = 2.0 ** -np.floor(np.log2(most))
            front *= scales[-1]
        depth += 1
        level[new] = depth
        paths += front
    # g(v) is the sum over what is behind v, each by 1 / its distance: the weighing is put in last.
    behind = np.zeros(shape)
    np.copyto(paths, 1, where=level < 0)
    for here in range(depth, 1, -1):
        share = weights[:, None] / here + behind
        share /= paths
        share *= level == here
        share = matrix @ share
        share *= paths
        share *= scales[here]
        np.copyto(behind, share, where=level == here - 1)
    behind *= level
    behind *= 2
    behind[pivots, columns] = 0
    return behind


def _native(graph: Graph, single: float, seed: int) -> Betweenness:
    """Compute it with networkit: exactly, or from batches of pivots, whose means give the error."""
    scale = 1.0 / ((graph.n - 1) * (graph.n - 2))
    if single * graph.n <= WORK:
        whole = nk.centrality.Betweenness(graph.kit())
        return Betweenness(np.array(whole.run().scores()) * scale, None, graph.n)
    batches = 16
    most = min(PIVOTS, graph.n)
    each = int(np.clip(WORK / single / batches, _LEAST // batches, max(most // batches, 1)))
    nk.setSeed(seed % 2**63, False)
    parts = np.array([_estimate(graph, each) for _ in range(batches)]) / _bias(each)
    errors = parts.std(0, ddof=1) / np.sqrt(batches)
    return Betweenness(parts.mean(0) * scale, errors * scale, batches * each)


def _estimate(graph: Graph, pivots: int) -> Floats:
    return np.array(nk.centrality.EstimateBetweenness(graph.kit(), pivots).run().scores())


def _bias(pivots: int) -> float:
    """Return by how much networkit's estimate from so many pivots is too high.

    It is 1 + 1 / pivots in networkit 11. In a ring every pivot gives the same sum, the true one.
    """
    ring = build(8, np.arange(8), np.roll(np.arange(8), 1))
    whole = nk.centrality.Betweenness(ring.kit()).run().scores()
    return float(_estimate(ring, pivots).sum() / sum(whole))
