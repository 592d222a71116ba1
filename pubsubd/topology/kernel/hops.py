"""Distances between daemons, in hops, inside the largest component.

All pairs, exactly, as long as the words that this has to OR stay below :data:`WORK`; above it, the
same search from a seeded sample of daemons. Daemons with a single neighbour are not searched
from: they see what their neighbour sees, one hop later, and are counted in by that.

Where the component is long and thin, so that a step over all daemons is wasted on most of them,
networkit searches from one daemon after the other instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import networkit as nk
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import special

from pubsubd.topology.kernel.balls import WORDS, Balls
from pubsubd.topology.kernel.graph import Floats, Graph, Ints, Longs

WORK = 8e9
"""Words to OR, some nanosecond each, up to which all pairs are searched: about 10 s."""

SAMPLE = 16
"""Batches of 64 sources, seeded, where not all pairs are searched. Their means give the error."""

ROUNDS = 4
"""Batches of 64 searches to narrow the diameter, where not all pairs are searched."""

NATIVE_COST = 10.0
"""What networkit takes for one end of a link, in ORs of a word."""

_CALLS = 2e4  # what numpy takes for being called in one step of one pass, in ORs of a word


@dataclass(frozen=True, eq=False)
class Hops:
    """Distances between the daemons of the largest component.

    Attributes:
        daemons: how many there are; 0 in a graph without daemons.
        sources: how many of them were searched from; all, when the figures are exact.
        pairs: ordered pairs at distance 0, 1, ..., diameter. Where sampled: those that were seen,
            times daemons / sources.
        mean: hops between two different daemons; NaN if there are no two.
        mean_error: half the width of the mean's 95 % interval; None: exact.
        effective: effective diameter: hops within which 90 % of the pairs are, with linear
            interpolation between whole hops, as SNAP has it (Leskovec, Kleinberg, Faloutsos 2005);
            NaN if there is no pair.
        diameter: the most hops between two; a lower bound where it is below ``diameter_upper``.
        diameter_upper: a proven upper bound, equal when exact.
    """

    daemons: int
    sources: int
    pairs: Floats
    mean: float
    mean_error: float | None
    effective: float
    diameter: int
    diameter_upper: int

    @property
    def exact(self) -> bool:
        """All pairs have been searched."""
        return self.sources == self.daemons


def largest_component(graph: Graph, labels: npt.NDArray[np.integer]) -> Graph:
    """Return the graph of the daemons with label 0, which keep their order."""
    inside = labels == 0
    if inside.all():
        return graph
    return induced(graph, inside)


def induced(graph: Graph, inside: npt.NDArray[np.bool_]) -> Graph:
    """Return the graph of the daemons that are flagged, and of the arcs between them."""
    # The order stays, so nothing has to be sorted again.
    number = (np.cumsum(inside) - 1).astype(np.int32)
    links = inside[graph.tails] & inside[graph.heads]
    arcs = inside[graph.arc_tails] & inside[graph.arc_heads]
    return Graph(
        graph.ids.filter(pa.array(inside)),
        number[graph.tails[links]],
        number[graph.heads[links]],
        graph.mutual[links],
        number[graph.arc_tails[arcs]],
        number[graph.arc_heads[arcs]],
        number[graph.loops[inside[graph.loops]]],
    )


def hops(
    graph: Graph,
    labels: npt.NDArray[np.integer],
    seed: int,
    batches: int = SAMPLE,
    rounds: int = ROUNDS,
    most: float | None = None,
) -> Hops:
    """Return the distances inside the largest component.

    Args:
        graph: n daemons.
        labels: n numbers, 0 for the daemons of the largest component.
        seed: of the sample, where one is taken.
        batches: of 64 sources then, 2 at least.
        rounds: of 64 searches to narrow the diameter then; with 0, the upper bound is a formality.
        most: words to join up to which no sample is taken; :data:`WORK` if None.
    """
    inner = largest_component(graph, labels)
    if inner.n < 2:
        return Hops(inner.n, inner.n, np.ones(inner.n), np.nan, None, np.nan, 0, 0)
    steps = long_way(inner)
    native, work = cheaper(inner, steps, inner.n)
    if work <= (WORK if most is None else most):
        pairs = _sum(_native_pairs(inner, range(inner.n))) if native else _all_pairs(inner)
        return summarise(pairs, inner.n, inner.n, None, len(pairs) - 1, len(pairs) - 1)
    return _sampled(inner, steps, seed, batches, rounds)


def summarise(
    pairs: Floats, n: int, sources: int, error: float | None, lower: int, upper: int
) -> Hops:
    """Return the figures that follow from how many pairs are at each distance.

    Args:
        pairs: as :attr:`Hops.pairs`, of two daemons or more.
        n: daemons.
        sources: those searched from.
        error: of the mean.
        lower: the diameter, or a lower bound of it.
        upper: an upper bound.
    """
    # As many pairs of a daemon and itself as daemons are among the 90 %, as in SNAP's figures.
    within = pairs.cumsum()
    goal = 0.9 * within[-1]
    far = int(np.searchsorted(within, goal))
    effective = far - (within[far] - goal) / pairs[far] if far else np.nan
    mean = float(pairs @ np.arange(len(pairs)) / pairs[1:].sum())
    return Hops(n, sources, pairs, mean, error, float(effective), lower, upper)


def long_way(graph: Graph) -> int:
    """Return the distance between two daemons that are far apart: about as many steps it takes.

    Twice a search from what was farthest, beginning with a daemon that has the most neighbours.
    """
    if not graph.m:
        return 0
    far = int(graph.degrees.argmax())
    for _ in range(2):
        distance = _native(graph, far)
        distance[distance > graph.n] = 0  # of another component
        far = int(distance.argmax())
    return int(distance[far])


def cheaper(graph: Graph, steps: int, sources: int) -> tuple[bool, float]:
    """Return whether networkit costs less for so many sources, and the cost of the cheaper one."""
    words = -(-sources // 64)
    together = (steps + 1) * (2 * graph.m * words + _CALLS * -(-words // WORDS))
    alone = sources * (2 * graph.m * NATIVE_COST + _CALLS)
    return alone < together, min(alone, together)


# All pairs


def _all_pairs(graph: Graph) -> Floats:
    """Count the ordered pairs at each distance.

    A leaf is as far from everything as its neighbour, and one hop more. So only the core, what is
    left without leaves, is searched; ``leaves`` of each daemon there weigh its rows, and its
    column too, as the sources are put into words by how many leaves they have.
    """
    core = graph
    leaves = np.zeros(graph.n, np.int64)
    single = graph.degrees == 1
    if graph.n > 2 and single.any():
        core = induced(graph, ~single)
        ends = graph.indices[graph.indptr[:-1][single]]
        leaves = np.bincount(ends, minlength=graph.n)[~single]
    words = _words_by(leaves)
    # Within each distance: both in the core; leaf and core; leaf and leaf.
    within = np.zeros((3, 0))
    weights = np.stack([np.ones(core.n), leaves.astype(np.float64)])
    balls = Balls(core)
    for first in range(0, len(words), WORDS):
        some = words[first : first + WORDS]
        heavy = leaves[some[:, 0]]
        counts = np.array(
            [(a.sum(), b.sum(), (b * heavy).sum()) for _, (a, b) in balls.grow(some, weights)]
        ).T
        length = max(within.shape[1], counts.shape[1])
        within = _longer(within, length) + _longer(counts, length)
    plain, mixed, hanging = np.diff(within, prepend=0)
    pairs = np.zeros(within.shape[1] + 2)
    pairs[:-2] += plain
    pairs[1:-1] += 2 * mixed
    pairs[2:] += hanging
    pairs[0] += leaves.sum()  # a leaf is not two hops from itself
    pairs[2] -= leaves.sum()
    return pairs[: int(np.flatnonzero(pairs)[-1]) + 1]


def _words_by(leaves: Longs) -> Longs:
    """Return all daemons in words of 64, each of daemons with as many leaves; -1 is none."""
    order = np.argsort(leaves, kind="stable")
    _, counts = np.unique(leaves, return_counts=True)
    room = -(-counts // 64) * 64
    starts = np.cumsum(room) - room
    words = np.full(room.sum(), -1, np.int64)
    skipped = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    words[np.arange(len(leaves)) + skipped] = order
    return words.reshape(-1, 64)


def _longer(counts: Floats, length: int) -> Floats:
    """Repeat the last column: nothing new is further away."""
    return np.pad(
        counts, ((0, 0), (0, length - counts.shape[1])), "edge" if counts.size else "constant"
    )


# A sample


def _sampled(graph: Graph, steps: int, seed: int, batches: int, rounds: int) -> Hops:
    native, work = cheaper(graph, steps, 64 * batches)
    each = 64 if work <= WORK else max(4, int(64 * WORK / work))
    sources = np.random.default_rng([seed, 1]).permutation(graph.n)[: each * batches]
    drawn = sources.reshape(batches, each)
    if native:
        counts = [_sum(_native_pairs(graph, batch)) for batch in drawn]
    else:
        words = np.full((batches, 64), -1, np.int64)
        words[:, :each] = drawn
        seen = np.array([sums[0] for _, sums in Balls(graph).grow(words)])
        counts = list(np.diff(seen, axis=0, prepend=0).T)
    pairs = _sum(counts) * (graph.n / len(sources))
    means = [count @ np.arange(len(count)) / count[1:].sum() for count in counts]
    # Means of batches are all but normal, whatever the distances are. Drawn without putting back.
    deviation = np.std(means, ddof=1) * np.sqrt((1 - len(sources) / graph.n) / batches)
    error = float(special.stdtrit(batches - 1, 0.975) * deviation)
    lower, upper = _diameter(graph, steps, native, rounds)
    return summarise(pairs, graph.n, len(sources), error, max(lower, len(pairs) - 1), upper)


def _diameter(graph: Graph, steps: int, native: bool, rounds: int) -> tuple[int, int]:
    """Return bounds of the diameter, equal if that many searches are enough.

    Each search bounds the eccentricity of every daemon, from below and above (Takes and Kosters
    2011); the next ones are from where the bounds are widest, 64 at a time.
    """
    least = np.zeros(graph.n, np.int32)
    most = np.full(graph.n, graph.n, np.int32)
    lower = steps
    balls = None if native else Balls(graph)
    for _ in range(rounds):
        open_ = np.flatnonzero(most > lower)
        if not len(open_):
            break
        degrees = graph.degrees[open_]
        far = open_[np.lexsort((degrees, -most[open_]))[:32]]
        near = open_[np.lexsort((-degrees, least[open_]))[:32]]
        for distance in distances(graph, np.union1d(far, near), balls):
            eccentricity = int(distance.max())
            lower = max(lower, eccentricity)
            np.minimum(most, distance + np.int32(eccentricity), out=most)
            np.maximum(least, np.maximum(distance, eccentricity - distance), out=least)
    return lower, max(lower, int(most.max()))


# From a few sources


def distances(graph: Graph, sources: Ints | Longs, balls: Balls | None = None) -> Ints:
    """Return k x n hops from each of k sources to each of the n daemons of a connected graph.

    Args:
        graph: connected.
        sources: k daemons.
        balls: of that graph: to search from 64 at once; otherwise networkit does it one by one.
    """
    out = np.zeros((len(sources), graph.n), np.int32)
    if balls is None:
        for row, source in zip(out, sources, strict=True):
            row[:] = _native(graph, int(source))
        return out
    for first in range(0, len(sources), 64):
        some = sources[first : first + 64]
        word = np.full((1, 64), -1, np.int64)
        word[0, : len(some)] = some
        # A source is as far as the number of steps after which it was not yet seen.
        unseen: Any = np.zeros((graph.n, 64), np.uint8)
        for step, (seen, _) in enumerate(balls.grow(word)):
            if step == 255:  # a byte holds no more
                unseen = unseen.astype(np.int32)
            unseen += np.unpackbits(~seen.view(np.uint8), axis=1, bitorder="little")
        out[first : first + 64] = unseen[balls.place, : len(some)].T
    return out


def _native(graph: Graph, source: int) -> Floats:
    search = nk.distance.BFS(graph.kit(), source, False)
    return np.asarray(search.run().getDistances(asarray=True))


def _native_pairs(graph: Graph, sources: Iterable[int]) -> list[Floats]:
    return [
        np.bincount(_native(graph, int(source)).astype(np.int64)).astype(np.float64)
        for source in sources
    ]


def _sum(counts: list[Floats]) -> Floats:
    """Add counts of different lengths."""
    total = np.zeros(max(map(len, counts)))
    for count in counts:
        total[: len(count)] += count
    return total
