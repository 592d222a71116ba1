"""One window's graph as arrays.

Daemons are numbers, 0 to n - 1, in the order of their names' UTF-8 bytes, so the same rows make
the same graph in whatever order they come.

Invariants:

- ``ids`` are sorted and distinct; a daemon's number is its place there.
- ``(tails, heads)`` are the links: ``tails < heads``, sorted, distinct, without loops.
- ``(arc_tails, arc_heads)`` are the arcs: sorted, distinct, without loops. Each makes a link, and
  each link is made of one arc or, where it is ``mutual``, of two.
- No array is ever written to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import networkit as nk
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of n daemons, m links and k arcs; made by :func:`read` or :func:`build`.

    Attributes:
        ids: n names, ``pa.string()``.
        tails: m numbers, the lower end of each link.
        heads: m numbers, the higher end.
        mutual: m flags: both arcs are there.
        arc_tails: k numbers.
        arc_heads: k numbers.
        loops: the daemons with a self-loop, ascending; they are no arcs and no links.
    """

    ids: pa.Array
    tails: Ints
    heads: Ints
    mutual: Bools
    arc_tails: Ints
    arc_heads: Ints
    loops: Ints

    @property
    def n(self) -> int:
        """The number of daemons."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """The number of links."""
        return len(self.tails)

    @cached_property
    def _rows(self) -> tuple[Longs, Ints, Ints]:
        """``indptr``, ``indices``, and the link that each of the indices is an end of."""
        rows = np.concatenate([self.heads, self.tails])
        # Stable, and for each daemon its lower neighbours come first: the rows come out sorted.
        order = np.argsort(rows, kind="stable")
        indices = np.concatenate([self.tails, self.heads])[order]
        links = (order % max(self.m, 1)).astype(np.int32)
        indptr = np.zeros(self.n + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.n), out=indptr[1:])
        return indptr, indices, links

    @property
    def indptr(self) -> Longs:
        """The n + 1 places: the neighbours of u are ``indices[indptr[u]:indptr[u + 1]]``."""
        return self._rows[0]

    @property
    def indices(self) -> Ints:
        """2m numbers: the neighbours of each daemon, ascending."""
        return self._rows[1]

    @property
    def link_of(self) -> Ints:
        """2m numbers: the link by which each of :attr:`indices` is a neighbour."""
        return self._rows[2]

    @cached_property
    def degrees(self) -> Ints:
        """The number of neighbours of each of the n daemons."""
        return np.diff(self.indptr).astype(np.int32)

    @cached_property
    def out_degrees(self) -> Ints:
        """The number of arcs from each of the n daemons."""
        return np.bincount(self.arc_tails, minlength=self.n).astype(np.int32)

    @cached_property
    def in_degrees(self) -> Ints:
        """The number of arcs to each of the n daemons."""
        return np.bincount(self.arc_heads, minlength=self.n).astype(np.int32)

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The symmetric n x n matrix, float32, with 1 where a link is; rows are sorted."""
        data = np.ones(2 * self.m, np.float32)
        return sparse.csr_array((data, self.indices, self.indptr), (self.n, self.n))

    @cached_property
    def _kit(self) -> Any:
        # Parallel reductions would not give the same sums twice.
        nk.setNumberOfThreads(1)
        if not self.m:
            return nk.Graph(self.n)
        ends = (self.tails.astype(np.uint64), self.heads.astype(np.uint64))
        return nk.GraphFromCoo(ends, n=self.n)

    def kit(self) -> Any:
        """The undirected ``networkit.Graph``, made once; nobody may change it.

        It lets networkit use one thread, for the whole process.
        """
        return self._kit


def read(src: pa.Array | pa.ChunkedArray, dst: pa.Array | pa.ChunkedArray) -> Graph:
    """Return the graph of arcs by name, in any order, with repeats.

    Args:
        src: names.
        dst: as many names. A null tells only that ``src`` exists, the name itself a self-loop.
    """
    chunks = [*_chunks(src), *_chunks(dst)]
    # In one piece: to merge the dictionaries of many chunks takes longer than all the rest.
    coded = pa.chunked_array(chunks, pa.large_string()).combine_chunks().dictionary_encode()
    if not len(coded):
        return build([], np.zeros(0, np.int32), np.zeros(0, np.int32))
    names = pc.cast(coded.dictionary, pa.string())
    codes = pc.fill_null(coded.indices, -1)
    order = pc.sort_indices(names)  # strings compare by their bytes
    # One more place, for null: it is code -1, the last one.
    places = np.empty(len(names) + 1, np.int32)
    places[order.to_numpy()] = np.arange(len(names), dtype=np.int32)
    places[-1] = -1
    numbers = places[codes.to_numpy()]
    return build(names.take(order), numbers[: len(src)], numbers[len(src) :])


def build(ids: pa.Array | Iterable[str] | int, tails: Ints | Longs, heads: Ints | Longs) -> Graph:
    """Return the graph of arcs by number, in any order, with loops and repeats.

    Args:
        ids: the names in the order of their bytes; or how many daemons there are, which are then
            called by their numbers with leading zeros.
        tails: numbers of daemons; an arc of which either end is negative is none.
        heads: as many numbers.
    """
    if isinstance(ids, int):
        width = len(str(max(ids - 1, 0)))
        ids = pa.array((f"{i:0{width}}" for i in range(ids)), pa.string())
    elif not isinstance(ids, pa.Array):
        ids = pa.array(ids, pa.string())
    n = len(ids)
    arcs = tails.astype(np.int64) * n + heads
    arcs = _distinct(arcs[np.minimum(tails, heads) >= 0])
    arc_tails, arc_heads = _split(arcs, n)
    looped = arc_tails == arc_heads
    loops = arc_tails[looped]
    arc_tails, arc_heads = arc_tails[~looped], arc_heads[~looped]
    links = np.minimum(arc_tails, arc_heads).astype(np.int64) * n + np.maximum(arc_tails, arc_heads)
    links.sort()
    first = _firsts(links)
    mutual = np.diff(np.flatnonzero(first), append=len(links)) > 1
    return Graph(ids, *_split(links[first], n), mutual, arc_tails, arc_heads, loops)


def _chunks(names: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    # Large, as the names of all arcs together may be more than 2 GiB.
    whole = pc.cast(names, pa.large_string())
    return whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]


def _distinct(codes: Longs) -> Longs:
    codes = np.sort(codes)
    return codes[_firsts(codes)]


def _firsts(codes: Longs) -> Bools:
    """Flag, in sorted codes, the first of each kind."""
    first = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=first[1:])
    return first


def _split(codes: Longs, n: int) -> tuple[Ints, Ints]:
    tails, heads = np.divmod(codes, max(n, 1))
    return tails.astype(np.int32), heads.astype(np.int32)
