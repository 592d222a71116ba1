"""Distances in rounds: breadth-first search from many daemons at once, 64 of them in a word.

Each round takes all searches one hop further. The blocks are sent what each daemon was reached by
in the round before, and OR it over their neighbours; what is seen already stays on the driver
(Then et al., "The more the merrier: efficient multi-source graph traversal", 2014). Each search is
exact. The sources are those that the kernel samples, or all daemons where there are few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from pubsubd.topology.distributed.blocks import Arrays, Block, PartitionedGraph
from pubsubd.topology.kernel.graph import Bools, Ints, Longs
from pubsubd.topology.kernel.hops import SAMPLE, Hops, summarise

Words: TypeAlias = npt.NDArray[np.uint64]

WHOLE = 1 << 14
"""Daemons up to which all are searched from: one round sends the words of all, 32 MiB."""

LEVELS = 100
"""Hops after which a search is given up: each one is a round."""

BOUNDS = 1
"""Batches of 64 searches to narrow the diameter of what is sampled."""

_ROOM = 1 << 23  # words of all daemons that one round sends: 64 MiB
_SENT = 1 << 20  # words that a block gathers at once
_FAR = np.uint8(255)


@dataclass(frozen=True, eq=False)
class _Search:
    """Result of searches from w x 64 daemons.

    Attributes:
        counts: daemons that were reached at each distance, one column for each word.
        eccentricities: of each source, in the order of the words' bits; 0 where there is none.
        distances: n x 64 hops from the sources of the first word; 255 where it was not reached.
            None if they were not asked for.
    """

    counts: Longs
    eccentricities: Ints
    distances: npt.NDArray[np.uint8] | None


def measure(
    blocks: PartitionedGraph, labels: Ints, seed: int, levels: int = LEVELS, whole: int = WHOLE
) -> Hops | None:
    """Return the distances inside the largest component; None if they are above ``levels``.

    Args:
        blocks: of the graph.
        labels: n numbers, 0 for the daemons of the largest component.
        seed: of the sample, where one is taken.
        levels: how far searches go, up to 254.
        whole: up to how many daemons all of them are searched from.
    """
    inside = np.flatnonzero(labels == 0)
    n = len(inside)
    if n < 2:
        return Hops(n, n, np.ones(n), np.nan, None, np.nan, 0, 0)
    sources = inside
    if n > max(whole, 64 * SAMPLE):
        sources = inside[np.random.default_rng([seed, 1]).permutation(n)[: 64 * SAMPLE]]
    exact = len(sources) == n
    words = _words(sources)
    width = max(_ROOM // n, 1)
    searches = []
    for first in range(0, len(words), width):
        found = _search(blocks, words[first : first + width], inside, levels, not (exact or first))
        if found is None:
            return None
        searches.append(found)
    length = max(len(one.counts) for one in searches)
    counts = np.concatenate(
        [np.pad(one.counts, ((0, length - len(one.counts)), (0, 0))) for one in searches], axis=1
    )
    pairs = counts.sum(1) * (n / len(sources))
    if exact:
        return summarise(pairs, n, n, None, length - 1, length - 1)
    far = max(int(one.eccentricities.max()) for one in searches)
    lower, upper = _bound(blocks, searches[0], inside, far)
    return summarise(pairs, n, len(sources), _error(counts, n, len(sources)), lower, upper)


def _error(counts: Longs, n: int, sources: int) -> float:
    """Return half the width of the 95 % interval of the mean, from the words' own means."""
    means = np.arange(len(counts)) @ counts / counts[1:].sum(0)
    deviation = np.std(means, ddof=1) * np.sqrt((1 - sources / n) / len(means))
    return float(special.stdtrit(len(means) - 1, 0.975) * deviation)


def _bound(blocks: PartitionedGraph, first: _Search, inside: Longs, lower: int) -> tuple[int, int]:
    """Return bounds of the diameter, from below and above (Takes and Kosters 2011)."""
    least = np.zeros(len(inside), np.int64)
    most = np.full(len(inside), len(inside), np.int64)
    found: _Search | None = first
    for turn in range(BOUNDS + 1):
        if turn:
            wide = np.flatnonzero(most > lower)
            if not len(wide):
                break
            far = wide[np.argsort(-most[wide], kind="stable")[:32]]
            near = wide[np.argsort(least[wide], kind="stable")[:32]]
            sources = inside[np.union1d(far, near)]
            found = _search(blocks, _words(sources), inside, LEVELS, True)
        if found is None or found.distances is None:
            break
        for column, eccentricity in zip(found.distances.T, found.eccentricities, strict=False):
            if eccentricity:
                distance = column[inside].astype(np.int64)
                np.minimum(most, distance + eccentricity, out=most)
                np.maximum(least, np.maximum(distance, eccentricity - distance), out=least)
        lower = max(lower, int(least.max()))
    return lower, max(lower, int(most.max()))


def _words(sources: Longs) -> Longs:
    """Return the sources, 64 in a row; -1 is none."""
    words = np.full(-(-len(sources) // 64) * 64, -1, np.int64)
    words[: len(sources)] = sources
    return words.reshape(-1, 64)


def _search(
    blocks: PartitionedGraph, words: Longs, inside: Longs, levels: int, track: bool
) -> _Search | None:
    """Search until nothing new is reached; return None if that takes more than ``levels``.

    Args:
        blocks: of the graph.
        words: w x 64 sources.
        inside: the daemons of their component.
        levels: how far to go.
        track: whether to tell the distances of the first word's sources.
    """
    width = len(words)
    seen = np.zeros((blocks.n, width), np.uint64)
    word, bit = np.nonzero(words >= 0)
    bits = np.uint64(1) << bit.astype(np.uint64)
    np.bitwise_or.at(seen, (words[word, bit], word), bits)
    full = np.zeros(width, np.uint64)
    np.bitwise_or.at(full, word, bits)
    open_ = np.zeros(blocks.n, np.bool_)
    open_[inside] = True
    distances = np.full((blocks.n, 64), _FAR) if track else None
    eccentricities = np.zeros(width * 64, np.int32)
    rows = np.unique(words[word, bit]).astype(np.int32)
    front = seen[rows]
    counts = []
    while len(rows):
        counts.append(np.bitwise_count(front).sum(0, dtype=np.int64))
        level = len(counts) - 1
        if level > levels:
            return None
        eccentricities[_bits(np.bitwise_or.reduce(front, 0)).ravel()] = level
        if distances is not None:
            distances[rows] = np.where(_bits(front[:, 0]), np.uint8(level), distances[rows])
        open_[rows[(seen[rows] == full).all(1)]] = False
        if not open_.any():
            break
        rows, got = _step(blocks, rows, front, open_)
        front = got & ~seen[rows]
        new = front.any(1)
        rows, front = rows[new], front[new]
        seen[rows] |= front
    return _Search(np.array(counts), eccentricities, distances)


def _bits(words: Words) -> Bools:
    """Return 64 flags for each word, the lowest bit first."""
    octets = words.astype("<u8").view(np.uint8).reshape(*words.shape, 8)
    return np.unpackbits(octets, axis=-1, bitorder="little").astype(np.bool_)


def _step(blocks: PartitionedGraph, rows: Ints, front: Words, open_: Bools) -> tuple[Ints, Words]:
    """Return the daemons that are next to ``rows``, and the OR of what is in front there."""
    place = np.full(blocks.n, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    empty = np.zeros(0, np.int32), np.zeros((0, front.shape[1]), np.uint64)
    daemons, words = blocks.collect(_spread(place, front, open_), *empty)
    return daemons, words


def _spread(place: Ints, front: Words, open_: Bools) -> Callable[[Block], Arrays]:
    """OR over the neighbours of each daemon that is open."""

    def spread(block: Block) -> Arrays:
        used = (place[block.indices] >= 0) & open_[block.tails]
        tails, places = block.tails[used], place[block.indices[used]]
        starts = np.flatnonzero(np.diff(tails, prepend=-1))
        words = np.empty((len(starts), front.shape[1]), np.uint64)
        # Some daemons at once, with all of their neighbours.
        ends = np.append(starts[1:], len(tails))
        held = max(_SENT // front.shape[1], 1)
        done = 0
        while done < len(starts):
            first = starts[done]
            stop = max(int(np.searchsorted(ends, first + held, side="right")), done + 1)
            values = front[places[first : ends[stop - 1]]]
            words[done:stop] = np.bitwise_or.reduceat(values, starts[done:stop] - first, axis=0)
            done = stop
        return tails[starts], words

    return spread
