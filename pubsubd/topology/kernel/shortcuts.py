"""The new links that bring the daemons of the largest component closest together.

One link after the other is chosen, each the best of some candidates with those before it in place
(greedy, as Papagelis, Bonchi and Gionis 2011 suggest shortcuts). A link from a to b makes the way
from s to t no longer than s to a, over it, and b to t, so its effect follows from distances that
are known, without a search.

Candidates: all pairs out of :data:`ENDS` daemons that are, together, near to all others (greedy
medians), not linked yet. They are compared on a sample of the pairs of daemons, the best of them
once more on many more pairs, and in a component that is not large with their ends moved to
neighbours as long as that is better still.

What a link is good for is told by all pairs. In a large component it is told by all ways of the
daemons that gain the most, and for the others by a sample that had no part in choosing the links:
the few daemons near the ends may gain more than all others together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pubsubd.topology.kernel.balls import Balls
from pubsubd.topology.kernel.graph import Graph, Longs
from pubsubd.topology.kernel.hops import cheaper, distances, largest_component, long_way

EXACT = 8000
"""Daemons up to which the effect of the links that are chosen is exact."""

ENDS = 64
"""Daemons of which pairs are candidates."""

SAMPLE = 256
"""Daemons, to and from which ways are compared; 64 at least, where that is too much."""

_POOL = 2000  # the daemons nearest to all, out of which the ends are chosen
_ROOM = 20_000_000  # distances to hold, of each of two samples
_FINALISTS = 16  # candidates to compare once more
_FINAL = 2000  # daemons, all of whose pairs are compared then
_WIDE = 4096  # daemons, the ways to which from the sample are compared then, where there are more
_MOVES = 8  # of the ends of the best one

Distances = npt.NDArray[Any]


@dataclass(frozen=True)
class Shortcut:
    """A new link, and what it does when it and those before it are there.

    Attributes:
        a: the lower end, a daemon of the whole graph.
        b: the other one.
        mean: hops between two different daemons of the largest component then.
        error: the standard error of how much it is below the mean of the mesh as it is; None:
            exact.
    """

    a: int
    b: int
    mean: float
    error: float | None


def advise_shortcuts(
    graph: Graph,
    labels: npt.NDArray[np.integer],
    seed: int,
    count: int = 5,
    mean: float | None = None,
) -> list[Shortcut]:
    """Return up to ``count`` new links, the best one first; fewer when no link shortens anything.

    Args:
        graph: n daemons.
        labels: n numbers, 0 for the daemons of the largest component.
        seed: of the sample.
        count: how many.
        mean: hops between two daemons now, if known; else estimated from the sample.
    """
    inner = largest_component(graph, labels)
    n = inner.n
    if n < 3 or count < 1:
        return []
    members = np.flatnonzero(labels == 0)
    ways = _Ways(inner, np.random.default_rng([seed, 6]))
    if mean is None:
        mean = ways.mean()
    while len(ways.links) < count and (link := ways.best()):
        ways.add(*link)
    advice = []
    for link, (gain, error) in zip(ways.links, ways.judge(), strict=True):
        a, b = sorted(int(members[end]) for end in link)
        advice.append(Shortcut(a, b, mean - gain, error))
    return advice


class _Ways:
    """Distances in a connected graph, with the links that are added.

    Invariants:

    - ``_rows[i]`` are the distances from source i to all daemons, ``_ends[e]`` those from end e.
      All are of one type, and the sum of any three fits it.
    - ``_ways[k]`` are, for both ends of link k, 1 + the distances before that link was there.
    """

    def __init__(self, graph: Graph, random: np.random.Generator) -> None:
        n = graph.n
        self.links: list[tuple[int, int]] = []
        self._ways: list[tuple[Distances, Distances]] = []
        self._graph = graph
        self._exact = n <= EXACT
        self._order = random.permutation(n)
        self._size = min(n, int(np.clip(_ROOM // n, 64, SAMPLE)))
        native, _ = cheaper(graph, long_way(graph), SAMPLE)
        self._balls = None if native else Balls(graph)
        drawn = self._order[: self._size]
        if self._exact:
            self._rows = _rows(graph, np.arange(n), self._balls)
            self._first = drawn
            self._final = np.arange(n) if n <= _FINAL else drawn
        else:
            self._rows = _rows(graph, drawn, self._balls)
            self._first = self._final = np.arange(self._size)
        self._targets = drawn
        self._wide = self._final if self._exact and n <= _FINAL else self._order[:_WIDE]
        self._ends: dict[int, Distances] = {}
        ends = self._medians()
        found = self._rows[ends] if self._exact else _rows(graph, np.array(ends), self._balls)
        kind = np.result_type(self._rows, found)
        self._rows = self._rows.astype(kind, copy=False)
        self._ends = dict(zip(ends, found.astype(kind), strict=True))
        self._before = self._rows.sum(0, dtype=np.int64)
        self._totals = [self._before.sum()]

    def _medians(self) -> list[int]:
        """Choose daemons so that, each time, the mean distance to the nearest shrinks most."""
        near = self._rows[self._first]
        pool = np.argsort(near.sum(0, dtype=np.int64), kind="stable")[:_POOL]
        table = np.ascontiguousarray(near[:, pool].T)
        best = np.full(table.shape[1], np.iinfo(table.dtype).max, table.dtype)
        chosen: list[int] = []
        for _ in range(min(ENDS, len(pool))):
            totals = np.minimum(table, best).sum(1, dtype=np.int64)
            totals[chosen] = np.iinfo(np.int64).max
            place = int(totals.argmin())
            chosen.append(place)
            best = np.minimum(best, table[place])
        return sorted(pool[chosen].tolist())

    def mean(self) -> float:
        """Return the mean distance from the sources to all other daemons, before any link."""
        return float(self._totals[0] / len(self._rows) / (self._graph.n - 1))

    def best(self) -> tuple[int, int] | None:
        """Return the best link; None when none is any good."""
        pairs = itertools.combinations(self._ends, 2)
        tried = self._compare(pairs, self._first, self._targets)[:_FINALISTS]
        final = self._compare([link for _, link in tried], self._final, self._wide)
        if not final:
            return None
        gain, (a, b) = final[0]
        for _ in range(_MOVES if self._exact else 0):
            moves = {_pair(c, b) for c in self._around(a)} | {_pair(a, c) for c in self._around(b)}
            moved = self._compare(sorted(moves), self._first, self._targets)[:1]
            again = self._compare([link for _, link in moved], self._final, self._wide)
            if not again or again[0][0] <= gain:
                break
            gain, (a, b) = again[0]
        return (a, b) if gain > 0 else None

    def _compare(
        self, links: Iterable[tuple[int, int]], sources: Longs, targets: Longs
    ) -> list[tuple[int, tuple[int, int]]]:
        """Return the links, by how much they shorten the ways from ``sources``, which are rows.

        Those that there are, and those with one end only, are left out.
        """
        table = np.ascontiguousarray(self._rows[np.ix_(sources, targets)])
        starts = sources if self._exact else self._targets
        gains = []
        for a, b in links:
            one, two = self._from(a), self._from(b)
            if one[b] > 1:
                new = np.minimum(
                    one[starts][:, None] + two[targets], two[starts][:, None] + one[targets]
                )
                new += 1
                np.minimum(new, table, out=new)
                gains.append((int(new.sum(dtype=np.int64)), (a, b)))
        total = int(table.sum(dtype=np.int64))
        return [(total - left, link) for left, link in sorted(gains)]

    def _from(self, daemon: int) -> Distances:
        row: Distances = self._rows[daemon] if self._exact else self._ends[daemon]
        return row

    def _around(self, daemon: int) -> list[int]:
        begin, end = self._graph.indptr[daemon : daemon + 2]
        around: list[int] = self._graph.indices[begin:end].tolist()
        return around

    def add(self, a: int, b: int) -> None:
        """Put a link there."""
        ways = self._from(a) + 1, self._from(b) + 1
        self.links.append((a, b))
        self._ways.append(ways)
        _shorten(itertools.chain(self._rows, self._ends.values()), a, b, *ways)
        self._totals.append(self._rows.sum(dtype=np.int64))

    def judge(self) -> list[tuple[float, float | None]]:
        """Return for each link how much shorter, with those before it, ways are in the mean.

        With it, the standard error; None: exact.
        """
        n = self._graph.n
        pairs = n * (n - 1)
        if self._exact:
            return [(float(self._totals[0] - total) / pairs, None) for total in self._totals[1:]]
        gained = self._before - self._rows.sum(0, dtype=np.int64)
        heavy = np.sort(np.argsort(-gained, kind="stable")[:64])
        others = self._order[self._size : 2 * self._size + 64]
        others = others[~np.isin(others, heavy)][: self._size]
        # What is between the heavy ones and all others counts twice, from either side.
        twice = np.full(n, 2)
        twice[heavy] = 1
        known = _rows(self._graph, heavy, self._balls)
        sampled = _rows(self._graph, others, self._balls)
        light = n - len(heavy)
        results: list[tuple[float, float | None]] = []
        before: tuple[int, Longs] | None = None
        for link, ways in itertools.chain([(None, None)], zip(self.links, self._ways, strict=True)):
            if link is not None and ways is not None:
                _shorten(itertools.chain(known, sampled), *link, *ways)
            both = sum(int(np.einsum("i,i->", row, twice)) for row in known)
            each = sampled.sum(1, dtype=np.int64) - sampled[:, heavy].sum(1, dtype=np.int64)
            if before is None:
                before = both, each
                continue
            gains = before[1] - each
            spread = gains.std(ddof=1) * np.sqrt((1 - len(gains) / light) / len(gains))
            gain = before[0] - both + light * gains.mean()
            results.append((float(gain / pairs), float(light * spread / pairs)))
        return results


def _shorten(rows: Iterable[Distances], a: int, b: int, one: Distances, two: Distances) -> None:
    """Let distances from some daemons make use of a new link.

    Args:
        rows: n distances each, which are written to.
        a: an end of the link.
        b: the other end.
        one: 1 + n distances from a.
        two: 1 + n distances from b.
    """
    for row in rows:
        to_a, to_b = row[a], row[b]
        np.minimum(row, to_a + two, out=row, casting="same_kind")
        np.minimum(row, to_b + one, out=row, casting="same_kind")


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _rows(graph: Graph, sources: Longs, balls: Balls | None) -> Distances:
    """Return distances from sources, in so few bytes each that the sum of two, and one, fits."""
    joined: list[Distances] = []
    for first in range(0, len(sources), 64):
        block = distances(graph, sources[first : first + 64], balls)
        most = 2 * int(block.max()) + 2
        kind = np.uint8 if most < 256 else np.uint16 if most < 65536 else np.int32
        joined.append(block.astype(kind))
    return np.concatenate(joined)
