"""Round trips along the ways that messages take, and what new links would save.

A message goes down the tree of its origin: from there, breadth first, neighbours in the order of
their ids (:mod:`pubsubd.mesh.linkstate`). So it takes the fewest hops, which need not be the
fastest way. The round trip of a way is the sum of those of its links.

How fast a link is that does not exist, nobody has measured. It is taken to be as fast as the
fastest way between its ends is now: whoever can pass by others can do so directly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Floats, Graph, Ints, Longs, build

PAIRS = 2_000_000
"""Pairs of origin and receiver that are looked at; of larger meshes, fewer origins."""

MOST = 50_000
"""Daemons up to which there are enough origins to tell something."""

SHOWN = 10
"""Links and pairs that are listed."""

TRIED = 5
"""New links that are tried."""

_SAVES = 1.0  # milliseconds for its own ends, from which a new link is worth trying
_TRY_PAIRS = 200_000  # pairs for each new link
_SEED = 0x77A1


@dataclass(frozen=True)
class Pairing:
    """Two daemons, by number, and what lies between them.

    Attributes:
        one, other: the daemons; ``one`` is where the message comes from.
        hops: links on the way that it takes.
        trip: milliseconds, the round trip of this way.
        fastest: milliseconds of the fastest way there is.
    """

    one: int
    other: int
    hops: int
    trip: float
    fastest: float


@dataclass(frozen=True)
class NewLink:
    """A link that is not there.

    Attributes:
        one, other: its ends, by number.
        trip: milliseconds, the round trip that it is taken to have.
        saves: milliseconds less between its ends.
        mean_saves: milliseconds less in the mean over all pairs.
    """

    one: int
    other: int
    trip: float
    saves: float
    mean_saves: float


@dataclass(frozen=True)
class Trips:
    """Round trips of the largest component.

    Attributes:
        measured: links of it whose round trip is known; the others are taken to be as the median.
        origins: daemons whose trees were looked at.
        mean: milliseconds, of all pairs of an origin and another daemon.
        fastest: the same, if messages took the fastest way.
        worst: numbers of the links with the longest round trips, descending.
        slowest: the slowest pairs, of two daemons the slower direction.
        new: new links that would save most in the mean.
    """

    measured: int
    origins: int
    mean: float
    fastest: float
    worst: list[int]
    slowest: list[Pairing]
    new: list[NewLink]


def find_trips(g: Graph, labels: Ints, trips: Floats, seed: int) -> Trips | None:
    """Return the round trips; None if no link of the largest component has one.

    Args:
        g: the graph, of :data:`MOST` daemons at most.
        labels: components, the largest one is 0.
        trips: milliseconds of each of its links; NaN if it was not measured.
        seed: of the choice of origins.
    """
    inside = labels == 0
    known = ~np.isnan(trips) & inside[g.tails]
    if not known.any():
        return None
    weights = np.where(known, trips, np.median(trips[known]))
    weights = np.maximum(weights, 1e-6)  # zero would be no link to what finds fastest ways
    members = np.flatnonzero(inside).astype(np.int32)
    origins = _choose(members, PAIRS, seed)
    ways, hops = _sum_trees(g, weights, origins)
    fastest = csgraph.dijkstra(_matrix(g, weights), directed=False, indices=origins)
    late = np.subtract(ways, fastest, out=np.zeros(ways.shape), where=np.isfinite(ways))
    worst = np.flatnonzero(known)[np.argsort(-trips[known], kind="stable")][:SHOWN]
    return Trips(
        measured=int(known.sum()),
        origins=len(origins),
        mean=_mean(ways),
        fastest=_mean(fastest),
        worst=worst.tolist(),
        slowest=_first(ways, origins, hops, ways, fastest, SHOWN),
        new=_try(g, weights, _first(late, origins, hops, ways, fastest, TRIED), seed),
    )


def _choose(members: Ints, pairs: int, seed: int) -> Ints:
    most = max(1, pairs // len(members))
    if len(members) <= most:
        return members
    chosen = np.random.default_rng([seed, _SEED]).choice(members, most, replace=False)
    return np.sort(chosen)


def _matrix(g: Graph, weights: Floats) -> sparse.csr_array:
    return sparse.csr_array((weights[g.link_of], g.indices, g.indptr), (g.n, g.n))


def _sum_trees(g: Graph, weights: Floats, origins: Ints) -> tuple[Floats, Longs]:
    """Return round trip and hops from each origin to each daemon: infinite and 0 for no way."""
    codes = g.tails.astype(np.int64) * g.n + g.heads
    ways = np.full((len(origins), g.n), np.inf)
    hops = np.zeros((len(origins), g.n), np.int64)
    for row, origin in enumerate(origins.tolist()):
        order, parents = csgraph.breadth_first_order(g.adjacency, origin, directed=False)
        nodes, above = order[1:], parents[order[1:]]
        ends = np.minimum(nodes, above).astype(np.int64) * g.n + np.maximum(nodes, above)
        steps = weights[np.searchsorted(codes, ends)].tolist()
        way, far = [0.0] * g.n, [0] * g.n
        for node, up, step in zip(nodes.tolist(), above.tolist(), steps, strict=True):
            way[node], far[node] = way[up] + step, far[up] + 1
        ways[row, order] = np.array(way)[order]
        hops[row] = far
    return ways, hops


def _first(
    worth: Floats, origins: Ints, hops: Longs, ways: Floats, fastest: Floats, most: int
) -> list[Pairing]:
    """Return the pairs of the greatest worth, each two daemons once."""
    found: dict[tuple[int, int], Pairing] = {}
    flat = np.where(np.isfinite(ways), worth, -np.inf).ravel()
    few = min(len(flat), 4 * most + 4)
    places = np.argpartition(-flat, few - 1)[:few]
    for place in places[np.lexsort((places, -flat[places]))].tolist():
        row, other = divmod(place, ways.shape[1])
        one = int(origins[row])
        ends = (min(one, other), max(one, other))
        if one != other and np.isfinite(flat[place]) and ends not in found:
            trip, least = float(ways[row, other]), float(fastest[row, other])
            found[ends] = Pairing(one, other, int(hops[row, other]), trip, least)
    return list(found.values())[:most]


def _try(g: Graph, weights: Floats, pairs: list[Pairing], seed: int) -> list[NewLink]:
    """Return the links between these pairs that would save something, the most useful first."""
    tried: list[NewLink] = []
    pairs = [one for one in pairs if one.trip - one.fastest >= _SAVES]
    if not pairs:
        return tried
    labels = csgraph.connected_components(g.adjacency, directed=False)[1]
    members = np.flatnonzero(labels == labels[pairs[0].one]).astype(np.int32)
    origins = _choose(members, _TRY_PAIRS, seed)
    before = _mean(_sum_trees(g, weights, origins)[0])
    for one in pairs:
        tails, heads = np.append(g.tails, one.one), np.append(g.heads, one.other)
        more = build(g.ids, tails.astype(np.int32), heads.astype(np.int32))
        codes = np.minimum(tails, heads).astype(np.int64) * g.n + np.maximum(tails, heads)
        trips = np.append(weights, one.fastest)[np.argsort(codes)]
        saved = before - _mean(_sum_trees(more, trips, origins)[0])
        tried.append(NewLink(one.one, one.other, one.fastest, one.trip - one.fastest, saved))
    tried = [one for one in tried if one.mean_saves > 0]
    return sorted(tried, key=lambda link: (-link.mean_saves, link.one, link.other))


def _mean(ways: Floats) -> float:
    return float(ways[np.isfinite(ways) & (ways > 0)].mean())
