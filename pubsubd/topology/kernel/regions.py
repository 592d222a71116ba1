"""Regions: where daemons have more links among themselves than to the rest."""

from __future__ import annotations

from dataclasses import dataclass

import networkit as nk
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Graph, Ints, Longs
from pubsubd.topology.kernel.structure import order_labels

MOST_LINKS = 10_000_000
"""Links of a graph above which no minimum cut is computed: the flow would take minutes."""

MOST_CUT_LINKS = 1_000
"""Links of a minimum cut that are listed, the first ones."""

_THOROUGH_LINKS = 1_000_000
"""Links above which regions are sought with fewer rounds, and daemons not moved once more at the
end: the modularity is then some hundredths lower, and found in a fifth of the time."""
_ROUNDS, _FEWER_ROUNDS = 32, 8  # of moves on each level


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a graph.

    Attributes:
        count: how many; a daemon without links is one of its own.
        labels: the region of each daemon: 0 is the largest one, of equals the one with the lowest
            daemon.
        sizes: daemons of each region, descending.
        modularity: of this division (Newman and Girvan 2004); 0 for a graph without links.
    """

    count: int
    labels: Ints
    sizes: Longs
    modularity: float


@dataclass(frozen=True, eq=False)
class MinimumCut:
    """The fewest links that separate the two largest regions.

    Attributes:
        size: links; 0 where they are not connected, None when there is no such figure.
        reason: why there is none; empty when there is.
        links: the numbers of the cut's links, ascending, at most :data:`MOST_CUT_LINKS`. Of
            several smallest cuts it is the one nearest to the largest region.
    """

    size: int | None
    reason: str
    links: Ints


def regions(g: Graph, seed: int) -> Regions:
    """Return the regions by the Louvain method (Blondel et al. 2008; Staudt and Meyerhenke 2016).

    Args:
        g: the graph.
        seed: of ties; the same seed makes the same regions.
    """
    if not g.m:
        labels, sizes = order_labels(np.arange(g.n))
        return Regions(g.n, labels, sizes, 0.0)
    nk.setSeed(seed % 2**64, False)
    thorough = g.m <= _THOROUGH_LINKS
    rounds = _ROUNDS if thorough else _FEWER_ROUNDS
    search = nk.community.PLM(g.kit(), thorough, 1.0, "none", rounds, turbo=True, recurse=True)
    search.run()
    # Its partition can be asked for once; a second one crashes networkit 11.
    labels, sizes = order_labels(np.asarray(search.getPartition().getVector(), np.int64))
    return Regions(len(sizes), labels, sizes, modularity(g, labels))


def modularity(g: Graph, labels: Ints) -> float:
    """Return the modularity of a division of a graph with links."""
    inner = int((labels[g.tails] == labels[g.heads]).sum())
    ends = np.bincount(labels, g.degrees).astype(np.int64)
    # Whole numbers until the end, as a float's rounding would depend on the order of the regions.
    squares = sum(end * end for end in ends.tolist())
    return float(inner / g.m - squares / (2 * g.m) ** 2)


def minimum_cut(g: Graph, labels: Ints, most: int = MOST_LINKS) -> MinimumCut:
    """Return the minimum cut of the regions 0 and 1, as the largest flow (Dinitz 1970).

    Each of the two regions counts as one daemon: it is kept whole, whatever is cut.

    Args:
        g: the graph.
        labels: the region of each daemon.
        most: links of a graph above which there is no such figure.
    """
    none = np.zeros(0, np.int32)
    if not g.n or labels.max() < 1:
        return MinimumCut(None, "there is only one region", none)
    if g.m > most:
        return MinimumCut(None, f"not computed for more than {most:,} links", none)
    places = labels.copy()
    rest = labels > 1
    places[rest] = 2 + np.arange(int(rest.sum()), dtype=np.int32)
    tails, heads = places[g.tails], places[g.heads]
    kept = np.flatnonzero(tails != heads)
    tails, heads = tails[kept], heads[kept]
    n = 2 + int(rest.sum())
    capacity = sparse.coo_array(
        (
            np.ones(2 * len(kept), np.int32),
            (np.concatenate([tails, heads]), np.concatenate([heads, tails])),
        ),
        (n, n),
    ).tocsr()
    capacity.indices, capacity.indptr = (
        part.astype(np.int32) for part in (capacity.indices, capacity.indptr)
    )
    result = csgraph.maximum_flow(sparse.csr_matrix(capacity), 0, 1, method="dinic")
    left = sparse.csr_array(capacity - result.flow)
    left.eliminate_zeros()
    reached = np.zeros(n, np.bool_)
    reached[csgraph.breadth_first_order(left, 0, return_predecessors=False)] = True
    cut = kept[reached[tails] != reached[heads]]
    return MinimumCut(int(result.flow_value), "", cut[:MOST_CUT_LINKS].astype(np.int32))
