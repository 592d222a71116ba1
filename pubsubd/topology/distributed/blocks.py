"""One window's graph in blocks that stay with the executors.

Block b of c holds daemons b, b + c, b + 2c, ... and each of these with all of its neighbours, so
that whatever is computed of a daemon's neighbours is computed in one place. What is known of each
daemon is an array that the driver holds: it goes to the blocks inside the function that a round
runs on them, and comes back from each block for its own daemons. So the driver has room for names
and for some numbers of each daemon, and needs none for links.

Invariants:

- A daemon's number is its place among all names in the order of their UTF-8 bytes, as in the
  kernel's graphs.
- How many blocks there are depends on the number of rows alone. Neighbours are ascending, and a
  block's results take their daemons' places: how the rows were cut into partitions, or in which
  order tasks end, cannot be told from any result.
- A block without daemons that have links or loops is not there, and has nothing to say.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.kernel.graph import Ints, Longs

Batches: TypeAlias = Iterator[pa.RecordBatch]
Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]
Step: TypeAlias = Callable[[Batches], Batches]
Work: TypeAlias = "Callable[[Block], Arrays]"
Deal: TypeAlias = "Callable[[Block], Iterator[tuple[int, Arrays]]]"
Combine: TypeAlias = Callable[[int, list[Arrays]], Arrays]

OUT, IN, LOOP = 1, 2, 4
"""Bits sent with a neighbour: an arc to it, an arc from it; with the daemon itself, a loop."""

ROWS = 1_000_000
"""Rows a block: about 20 MB of neighbours, with which a task takes some tenths of a second."""

_PACKED = "block int, data binary"
_SCHEMA = pa.schema([("block", pa.int32()), ("data", pa.binary())])
_HELD = 2_000_000  # rows that a task turns into numbers at once


@dataclass(frozen=True, eq=False)
class Block:
    """The daemons ``number``, ``number + count``, ... of n, and their neighbours.

    Attributes:
        number: of the block, from 0.
        count: how many blocks there are.
        n: daemons in the whole graph.
        indptr: where the neighbours of each of the daemons here begin, and where the last's end.
        indices: neighbours, numbered as in the whole graph, ascending for each daemon.
        told: :data:`OUT`, :data:`IN` or both, for each of the neighbours.
        loops: daemons with a self-loop, ascending.
    """

    number: int
    count: int
    n: int
    indptr: Longs
    indices: Ints
    told: npt.NDArray[np.uint8]
    loops: Ints

    @cached_property
    def daemons(self) -> Ints:
        """The daemons that are here."""
        return np.arange(self.number, self.n, self.count, dtype=np.int32)

    @cached_property
    def tails(self) -> Ints:
        """The daemon whose neighbour each of :attr:`indices` is."""
        return np.repeat(self.daemons, np.diff(self.indptr))

    def reduce(self, how: np.ufunc, values: npt.NDArray[Any], none: Any) -> npt.NDArray[Any]:
        """Return ``how`` over each daemon's part of ``values``; ``none`` where it has no part.

        Args:
            how: that takes two values to one.
            values: one, or a row of them, for each of the neighbours.
            none: the value of a daemon without neighbours.
        """
        some = np.flatnonzero(np.diff(self.indptr))
        result = np.full((len(self.indptr) - 1, *values.shape[1:]), none, values.dtype)
        if len(some):
            result[some] = how.reduceat(values, self.indptr[some], axis=0)
        return result


@dataclass(frozen=True, eq=False)
class PartitionedGraph:
    """A graph of which the driver has the names alone.

    Made by :func:`spread_blocks`, or by :func:`local_blocks`.

    Attributes:
        ids: the n names, sorted.
        count: how many blocks there are.
        run: gives all blocks, packed, to a function, and returns what it yields. With a second
            function and a number of parts, what the first one yields is sent on to the part whose
            number it has, and what the second one yields of each part is returned.
    """

    ids: pa.Array
    count: int
    run: Callable[[Step, Step | None, int], pa.Table]

    @property
    def n(self) -> int:
        """The number of daemons."""
        return len(self.ids)

    def map(self, work: Work) -> list[tuple[int, Arrays]]:
        """Return the result of ``work`` for each block, with the block's number, in their order.

        ``work`` is sent to the executors with all that it holds: some numbers for each daemon.
        """
        done = self.run(_work(work, self.n, self.count), None, 0)
        return sorted(_unpacked(done), key=lambda one: one[0])

    def exchange(self, deal: Deal, work: Combine, parts: int) -> list[tuple[int, Arrays]]:
        """Send parts of all blocks on, and return the result of ``work`` for each, in their order.

        Args:
            deal: yields numbers of parts, from 0, and arrays for each.
            work: takes a part's number and all arrays for it, in no order that can be relied on.
            parts: how many there are.
        """
        done = self.run(_deal(deal, self.n, self.count), _combine(work), parts)
        return sorted(_unpacked(done), key=lambda one: one[0])

    def gather(self, work: Work, *empty: npt.ArrayLike) -> list[npt.NDArray[Any]]:
        """Return arrays that have what ``work`` returns of each block at its daemons' places.

        Args:
            work: returns arrays with a value for each daemon of the block.
            empty: for each array, the value of daemons in blocks that are not there.
        """
        results = [np.full(self.n, one) for one in empty]
        for number, arrays in self.map(work):
            for result, part in zip(results, arrays, strict=True):
                result[number :: self.count] = part
        return results

    def collect(self, work: Work, *empty: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return the arrays that ``work`` returns, those of all blocks joined in their order.

        Args:
            work: returns arrays of any length.
            empty: the arrays to return if there is no block.
        """
        found = [arrays for _, arrays in self.map(work)] or [empty]
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@contextmanager
def spread_blocks(arcs: DataFrame, count: int | None = None) -> Iterator[PartitionedGraph]:
    """Deal arcs to blocks that the executors keep as long as the context lasts.

    Args:
        arcs: ``src``, ``dst``; as :func:`pubsubd.topology.kernel.graph.read` takes them. Read
            three times: keep it if it is dear to make.
        count: how many blocks to make; as a rule, one for each :data:`ROWS` rows.
    """
    pairs = arcs.select("src", "dst")
    ids = _names(pairs)
    count = count or -(-pairs.count() // ROWS) or 1
    frame = (
        pairs.mapInArrow(_number(ids, count), _PACKED)
        .repartitionById(count, "block")
        .mapInArrow(_assemble(len(ids)), _PACKED)
        .persist()
    )
    try:
        yield PartitionedGraph(ids, count, partial(_run, frame))
    finally:
        frame.unpersist()


def local_blocks(arcs: pa.Table, count: int) -> PartitionedGraph:
    """Deal arcs to blocks in this process, where one graph has to be seen both ways.

    Args:
        arcs: ``src``, ``dst``; as above.
        count: how many blocks to make.
    """
    names = pa.chunked_array([*arcs["src"].chunks, *arcs["dst"].chunks], pa.string())
    ids = pc.drop_null(pc.unique(names))
    ids = ids.take(pc.sort_indices(ids))
    numbered = _number(ids, count)(iter(arcs.to_batches()))
    batches = list(_assemble(len(ids))(numbered))

    def run(first: Step, second: Step | None, parts: int) -> pa.Table:
        done = list(first(iter(batches)))
        if second is not None:
            done = [one for part in range(parts) for one in second(_part(done, part))]
        return pa.Table.from_batches(done, schema=_SCHEMA)

    return PartitionedGraph(ids, count, run)


def _part(batches: list[pa.RecordBatch], part: int) -> Batches:
    return (one for one in batches if one["block"][0].as_py() == part)


def _run(frame: DataFrame, first: Step, second: Step | None, parts: int) -> pa.Table:
    done = frame.mapInArrow(first, _PACKED)
    if second is not None:
        done = done.repartitionById(parts, "block").mapInArrow(second, _PACKED)
    return done.toArrow()


def _names(pairs: DataFrame) -> pa.Array:
    """Return all names that stand in either column, sorted by their bytes."""
    names = (
        pairs.select(F.explode(F.array("src", "dst")).alias("id"))
        .where(F.col("id").isNotNull())
        .distinct()
        .toArrow()["id"]
    )
    return pc.cast(pc.take(names, pc.sort_indices(names)), pa.string()).combine_chunks()


# In the executors


def _number(ids: pa.Array, count: int) -> Step:
    """Turn names into numbers and send each arc to the blocks of both of its ends."""
    n = len(ids)

    def number_all(batches: Batches) -> Batches:
        for table in _held(batches, _HELD):
            places, others = (_places(table[name], ids) for name in ("src", "dst"))
            tails, heads = places[others >= 0], others[others >= 0]
            looped = tails == heads
            codes = _encode(tails, heads, np.where(looped, LOOP, OUT), n)
            backward = _encode(heads[~looped], tails[~looped], np.int64(IN), n)
            codes = np.concatenate([codes, backward])
            blocks = np.concatenate([tails, heads[~looped]]) % count
            order = np.argsort(blocks, kind="stable")
            ends = np.searchsorted(blocks[order], np.arange(count + 1))
            for block in range(count):
                part = codes[order[ends[block] : ends[block + 1]]]
                if len(part):
                    yield _pack(block, (part,))

    return number_all


def _assemble(n: int) -> Step:
    """Make a block of all arcs that were sent to it."""

    def assemble_all(batches: Batches) -> Batches:
        for number, parts in _grouped(batches):
            codes = np.sort(np.concatenate([codes for (codes,) in parts]))
            first = np.flatnonzero(np.diff(codes >> 3, prepend=-1))
            told = np.bitwise_or.reduceat(codes & 7, first).astype(np.uint8)
            tails, heads = (ends.astype(np.int32) for ends in np.divmod(codes[first] >> 3, n))
            link = told != LOOP
            yield _pack(number, (tails[link], heads[link], told[link], tails[~link]))

    return assemble_all


def _work(work: Work, n: int, count: int) -> Step:
    """Give each block to ``work``."""

    def work_all(batches: Batches) -> Batches:
        for block in _blocks(batches, n, count):
            yield _pack(block.number, work(block))

    return work_all


def _deal(deal: Deal, n: int, count: int) -> Step:
    """Split each block into parts with ``deal``."""

    def deal_all(batches: Batches) -> Batches:
        for block in _blocks(batches, n, count):
            for part, arrays in deal(block):
                yield _pack(part, arrays)

    return deal_all


def _combine(work: Combine) -> Step:
    """Combine the arrays of each part with ``work``."""

    def combine_all(batches: Batches) -> Batches:
        for part, found in _grouped(batches):
            yield _pack(part, work(part, found))

    return combine_all


def _blocks(batches: Batches, n: int, count: int) -> Iterator[Block]:
    for batch in batches:
        for number, (tails, heads, told, loops) in _unpacked(batch):
            size = len(range(number, n, count))
            indptr = np.zeros(size + 1, np.int64)
            np.cumsum(np.bincount(tails // count, minlength=size), out=indptr[1:])
            yield Block(number, count, n, indptr, heads, told, loops)


def _grouped(batches: Batches) -> Iterator[tuple[int, list[Arrays]]]:
    """Yield the arrays of each number; a partition has one, as a rule."""
    parts: dict[int, list[Arrays]] = {}
    for batch in batches:
        for number, arrays in _unpacked(batch):
            parts.setdefault(number, []).append(arrays)
    for number in sorted(parts):
        yield number, parts.pop(number)


def _held(batches: Batches, rows: int) -> Iterator[pa.Table]:
    """Yield the batches in tables of so many rows or a little more."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held)


def _places(names: pa.ChunkedArray, ids: pa.Array) -> Longs:
    """Return the number of each name; -1 for null."""
    found = pc.index_in(pc.cast(names, pa.string()), value_set=ids)
    places: Longs = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return places


def _encode(tails: Longs, heads: Longs, told: npt.NDArray[Any] | np.int64, n: int) -> Longs:
    """Return numbers that sort by tail and head; below 2^63 for up to a billion daemons."""
    return (tails * n + heads) << 3 | told


# Arrays in a row


def _pack(block: int, arrays: Arrays) -> pa.RecordBatch:
    data = pickle.dumps(arrays, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.record_batch([pa.array([block], pa.int32()), pa.array([data])], schema=_SCHEMA)


def _unpacked(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, Arrays]]:
    for number, data in zip(batch["block"].to_pylist(), batch["data"], strict=True):
        yield number, pickle.loads(data.as_buffer())
