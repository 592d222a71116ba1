"""Triangles, counted in parts of the graph that know of all links they need.

Each daemon has one of a few colours. For each three colours, equal ones among them or not, all
links between daemons of these colours go to one part, which counts the triangles whose corners
have just these colours: each triangle is counted once (Suri & Vassilvitskii, "Counting triangles
and the curse of the last reducer", 2011). Links lead from the lower degree to the higher one, so
that no daemon has more than sqrt(2m) of them, and what is tried are pairs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement

import numpy as np

from pubsubd.topology.distributed.blocks import Arrays, Block, PartitionedGraph
from pubsubd.topology.distributed.survey import Survey
from pubsubd.topology.kernel.graph import Ints, Longs
from pubsubd.topology.kernel.structure import Clustering

LINKS = 2_000_000
"""Links of a part, in the mean."""

_TRIED = 1 << 21  # pairs at once


def cluster(blocks: PartitionedGraph, known: Survey, colours: int | None = None) -> Clustering:
    """Return the triangles and how many are closed.

    Args:
        blocks: of the graph.
        known: of its daemons.
        colours: how many; as a rule, so many that a part has :data:`LINKS` links.
    """
    # Of three colours, a part has 6 of the colours^2 ordered pairs of colours.
    colours = min(max(colours or int(np.sqrt(6 * known.links / LINKS)) + 1, 1), 31)
    keys: list[tuple[int, ...]] = list(combinations_with_replacement(range(colours), 3))
    place = np.empty(blocks.n, np.int32)
    place[np.argsort(known.degrees, kind="stable")] = np.arange(blocks.n, dtype=np.int32)
    found = blocks.exchange(
        _deal_links(place, colours, keys), _count(blocks.n, colours, keys), len(keys)
    )
    around = np.zeros(blocks.n, np.int64)
    for _, (places, counts) in found:
        around[places] += counts
    return _summarise(around[place], known.degrees)


def _summarise(around: Longs, degrees: Ints) -> Clustering:
    """Return the figures of triangles at each daemon, as the kernel does."""
    pairs = degrees.astype(np.int64) * (degrees - 1) // 2
    local = around / np.maximum(pairs, 1)
    triangles, paths = int(around.sum()) // 3, int(pairs.sum())
    return Clustering(
        local=local,
        mean=float(local.mean()) if len(local) else 0.0,
        triangles=triangles,
        closed=triangles / (paths - 2 * triangles) if paths else 0.0,
        transitivity=3 * triangles / paths if paths else 0.0,
    )


def _deal_links(
    place: Ints, colours: int, keys: list[tuple[int, ...]]
) -> Callable[[Block], Iterator[tuple[int, Arrays]]]:
    """Send each link, from the lower place to the higher, to all parts that have its colours."""
    parts = {key: part for part, key in enumerate(keys)}

    def deal(block: Block) -> Iterator[tuple[int, Arrays]]:
        tails, heads = place[block.tails], place[block.indices]
        up = tails < heads
        codes = tails[up].astype(np.int64) * block.n + heads[up]
        kinds = tails[up] % colours * colours + heads[up] % colours
        for kind in range(colours * colours):
            some = codes[kinds == kind]
            if len(some):
                for third in range(colours):
                    yield parts[tuple(sorted((*divmod(kind, colours), third)))], (some,)

    return deal


def _count(
    n: int, colours: int, keys: list[tuple[int, ...]]
) -> Callable[[int, list[Arrays]], Arrays]:
    """Count the triangles of a part at each of its daemons."""

    def count(part: int, found: list[Arrays]) -> Arrays:
        codes = np.sort(np.concatenate([codes for (codes,) in found]))
        tails, heads = np.divmod(codes, n)
        # How often each colour is there, in base 4.
        weights = 4 ** np.arange(colours, dtype=np.int64)
        wanted = weights[list(keys[part])].sum()
        heads_weights, tails_weights = weights[heads % colours], weights[tails % colours]
        ends = np.searchsorted(tails, tails, side="right")
        corners = [np.zeros(0, np.int64)]
        for first, second in _pairs(ends):
            fits = tails_weights[first] + heads_weights[first] + heads_weights[second] == wanted
            first, second = first[fits], second[fits]  # noqa: PLW2901  (the ones to look up)
            sought = heads[first] * n + heads[second]
            at = np.searchsorted(codes, sought)
            closed = codes[np.minimum(at, len(codes) - 1)] == sought
            first, second = first[closed], second[closed]  # noqa: PLW2901
            corners += [tails[first], heads[first], heads[second]]
        return np.unique(np.concatenate(corners), return_counts=True)

    return count


def _pairs(ends: Longs) -> Iterator[tuple[Longs, Longs]]:
    """Yield all pairs i < j < ends[i], some of them at once."""
    numbers = np.arange(len(ends), dtype=np.int64)
    partners = ends - numbers - 1
    total = np.cumsum(partners)
    start = 0
    while start < len(ends):
        before = total[start] - partners[start]
        stop = max(int(np.searchsorted(total, before + _TRIED, side="right")), start + 1)
        some = partners[start:stop]
        first = np.repeat(numbers[start:stop], some)
        offsets = np.arange(len(first)) - np.repeat(total[start:stop] - some - before, some)
        yield first, first + 1 + offsets
        start = stop
