"""Breadth-first search from many daemons at once: 64 of them in each word.

``seen[v]`` holds one bit for each source that is within the present distance of v, so one step is
``seen[v] |= seen[u]`` over all neighbours u of v, for all sources together (Then et al., "The more
the merrier: efficient multi-source graph traversal", 2014). The k-th neighbours of all daemons are
taken at once (jagged diagonals, as Saad 1989 stores sparse matrices), which leaves numpy long rows
of plain OR. Rows in which every bit is set are left out of later steps.

Invariants:

- The graph is connected, so every row is full in the end.
- Rows are in order of degree, descending; ``place[v]`` is the row of daemon v.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pubsubd.topology.kernel.graph import Floats, Graph, Longs

WORDS = 64
"""The most words of sources in one pass: a row of 512 bytes is read at the speed of memory."""

_HUB = 512  # neighbours; above, a row is one reduction and not one of the diagonals
_BLOCK = 1 << 15  # words that one block of rows has: its sums stay in the cache


class Balls:
    """The rows of a connected graph, ready for :meth:`grow` and :meth:`distances`."""

    def __init__(self, graph: Graph) -> None:
        degrees = graph.degrees
        order = np.argsort(-degrees, kind="stable")
        self.n = graph.n
        self.place = np.empty(graph.n, np.int64)
        self.place[order] = np.arange(graph.n)
        self._starts = graph.indptr[:-1][order]
        self._degrees = degrees[order].astype(np.int64)
        self._neighbours = self.place[graph.indices]
        self._hubs = int(np.searchsorted(-self._degrees, -_HUB, "left"))
        widest = int(self._degrees[self._hubs]) if self._hubs < graph.n else 0
        # reach[k]: the rows before it have more than k neighbours.
        self._reach = np.searchsorted(-self._degrees, -np.arange(widest), "left")
        self._diagonals = [
            self._neighbours[self._starts[self._hubs : end] + k]
            for k, end in enumerate(self._reach)
        ]

    def grow(
        self, words: Longs, weights: Floats | None = None
    ) -> Iterator[tuple[npt.NDArray[np.uint64], Floats]]:
        """Yield, for distances 0, 1, ..., to the last at which something is new, what is seen.

        Args:
            words: w x 64 daemons, the sources; -1 is none.
            weights: a x n numbers, one row or more, of each daemon; as a rule, 1.

        Raises:
            ValueError: the graph is not connected.

        Yields:
            ``seen``, n x w words, in the order of the rows, good until the next step; and a x w
            sums over the daemons of weight times sources seen, exact while below 2^53.
        """
        width = len(words)
        if weights is None:
            weights = np.ones((1, self.n))
        weights = np.ascontiguousarray(weights[:, np.argsort(self.place)])
        used = words >= 0
        total = int(used.sum())
        bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
        seen = np.zeros((self.n, width), np.uint64)
        word, bit = np.nonzero(used)
        np.bitwise_or.at(seen, (self.place[words[word, bit]], word), bits[bit])
        sizes = used.sum(1)
        places = self.place[words[word, bit]]
        yield seen, np.array([np.bincount(word, weight[places], width) for weight in weights])
        other = seen.copy()
        rows = np.flatnonzero(np.bitwise_count(seen).sum(1) < total)
        height = max(_BLOCK // width, 64)
        room = np.empty((height, width), np.uint64)
        spare = np.empty((height, width), np.uint64)
        # What the rows that are full add to the sums.
        closed = np.outer(weights.sum(1) - weights[:, rows].sum(1), sizes).astype(np.float64)
        seen_before = -1
        while len(rows):
            seen_now = 0
            sums = closed.copy()
            still = np.zeros(len(rows), np.bool_)
            whole = len(rows) == self.n
            for first in range(0, len(rows), height):
                some = rows[first : first + height]
                if whole:
                    now = other[first : first + height]
                    np.copyto(now, seen[first : first + height])
                else:
                    now = np.take(seen, some, 0, out=room[: len(some)], mode="clip")
                self._gather(seen, some, now, spare, whole)
                if not whole:
                    other[some] = now
                counts = np.bitwise_count(now)
                each = counts.sum(1, dtype=np.int64)
                full = each == total
                seen_now += int(each.sum())
                # Not a matrix product: BLAS would start threads for it, and wait for them.
                sums += np.einsum("ar,rw->aw", weights[:, some], counts.astype(np.float64))
                np.logical_not(full, out=still[first : first + len(some)])
            if seen_now == seen_before:
                raise ValueError("the graph is not connected")
            seen, other = other, seen
            yield seen, sums
            done = rows[~still]
            if len(done):
                other[done] = seen[done]
                closed += np.outer(weights[:, done].sum(1), sizes)
                rows = rows[still]
                seen_now -= len(done) * total
            seen_before = seen_now

    def _gather(self, seen: Any, some: Longs, now: Any, spare: Any, whole: bool) -> None:
        """OR into ``now`` what the neighbours of ``some`` rows have seen. The hot loop."""
        start = int(np.searchsorted(some, self._hubs))
        for i in range(start):
            begin = self._starts[some[i]]
            ends = self._neighbours[begin : begin + self._degrees[some[i]]]
            now[i] |= np.bitwise_or.reduce(seen[ends], 0)
        if start == len(some):
            return
        some = some[start:]
        now = now[start:]
        base = int(some[0]) - self._hubs
        shifted = some - self._hubs
        # How many of these rows, in order of degree, have a k-th neighbour.
        depth = int(self._degrees[some[0]])
        reach = np.searchsorted(some, self._reach[:depth]).tolist()
        for diagonal, count in zip(self._diagonals, reach, strict=False):
            ends = diagonal[base : base + count] if whole else diagonal[shifted[:count]]
            got = np.take(seen, ends, 0, out=spare[:count], mode="clip")
            np.bitwise_or(now[:count], got, out=now[:count])
