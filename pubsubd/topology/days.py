"""Days that several daemons have kept, each read as one.

The files of a day (:mod:`pubsubd.mesh.compaction`) have, of each hour, the first and the last row
of each end of a link in one state since one time; and each daemon keeps those of all daemons. So
those of fifty daemons tell fifty times almost the same. They are brought to the first and the last
row of all of them, with the smallest and the largest counters. The windows of whole hours have the
same links, daemons and events as with all rows; only round trips are of fewer of them, as they are
in each of the files.

Rows that something may be wrong with stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pubsubd.mesh.edges import COLUMNS, LATER
from pubsubd.topology.errors import TopologyError

DAYS = "file string, rows bigint, " + ", ".join(f"`{one}` {kind}" for one, kind in COLUMNS.items())
"""Columns of an edge list, with the file of rows that stay as they are, and how many rows of the
files each one stands for."""

_TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "double": pa.float64(),
    "bigint": pa.int64(),
}
SCHEMA = pa.schema(
    [("file", pa.string()), ("rows", pa.int64())]
    + [(name, _TYPES[kind]) for name, kind in COLUMNS.items()]
)
""":data:`DAYS` as Arrow has it."""

Flags: TypeAlias = npt.NDArray[np.bool_]

_TEXT = pa.dictionary(pa.int32(), pa.string())
_CODED = pa.schema(
    [(one.name, _TEXT if pa.types.is_string(one.type) else one.type) for one in SCHEMA]
)
"""The same with texts as numbers: names are repeated, and compared, in each row."""

_NAMED = ("mesh", "observer", "src", "dst", "state")
_COUNTERS = ("messages", "bytes")
_OVER = int(np.datetime64("9999-01-01", "us").astype(np.int64))
HELD = 2_000_000  # rows that are brought together at once
_TASKS = 16  # a core, that days are dealt to


def read_days(spark: SparkSession, days: Sequence[Sequence[str]], here: bool) -> DataFrame:
    """Return the rows of days: :data:`DAYS`.

    Args:
        spark: the session.
        days: the files of each, as :func:`pubsubd.mesh.edges.write_parquet` writes them.
        here: there are few rows; they are read by this process, and not by workers.
    """
    if here:
        return spark.createDataFrame(pa.concat_tables(map(read_day, days)), DAYS)
    tasks = pa.table({"files": pa.array(days, pa.list_(pa.string()))})
    several = _TASKS * max(1, spark.sparkContext.defaultParallelism)
    frame = spark.createDataFrame(tasks).repartition(min(several, len(days)))
    return frame.mapInArrow(_read_all, DAYS)


def _read_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for files in batch["files"].to_pylist():
            yield from read_day(files).to_batches()


def read_day(files: Iterable[str]) -> pa.Table:
    """Return the rows of a day's files: :data:`SCHEMA`. A file that has vanished is left out.

    Raises:
        TopologyError: one cannot be read.
    """
    held = [_CODED.empty_table()]
    most = HELD
    for file in files:
        try:
            held.append(_read_file(file))
        except FileNotFoundError:
            continue
        if sum(one.num_rows for one in held) > most:
            held = [_merge(pa.concat_tables(held))]
            most = max(HELD, 2 * held[0].num_rows)
    return _merge(pa.concat_tables(held)).cast(SCHEMA)


def _read_file(file: str) -> pa.Table:
    try:
        about = pq.read_metadata(file)
        texts = [name for name in about.schema.names if COLUMNS.get(name) == "string"]
        # Not by read_table(), which takes twice as long for a small one.
        with pq.ParquetFile(file, metadata=about, read_dictionary=texts) as opened:
            found = opened.read(use_threads=False)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        # Without its cause, or that would be told of a worker.
        raise TopologyError(f"{file} cannot be read: {error}") from None
    count = found.num_rows
    columns = {
        "file": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([file])),
        "rows": pa.array(np.ones(count, np.int64)),
    }
    columns |= {name: found[name] for name in COLUMNS if name in found.column_names}
    return pa.table(
        [
            columns[one.name].cast(one.type) if one.name in columns else pa.nulls(count, one.type)
            for one in _CODED
        ],
        schema=_CODED,
    )


def _merge(rows: pa.Table) -> pa.Table:
    """Return, of each hour, the first and the last row of each end in one state since one time.

    The latest one that tells of the daemon stays as well: of several versions, some do not tell.
    """
    rows = rows.unify_dictionaries().combine_chunks()
    if not rows.num_rows:
        return rows
    good = _find_good(rows)
    odd = rows.filter(pa.array(~good))
    rows = rows.filter(pa.array(good)) if odd.num_rows else rows
    if not rows.num_rows:
        return odd
    order = rows["ts"].cast(pa.int64()).to_numpy().argsort(kind="stable")
    there = reduce(pc.or_, [pc.is_valid(rows[name]) for name in LATER])
    places = np.arange(rows.num_rows)
    keyed = pa.table(
        [rows[name] for name in (*_NAMED, *_COUNTERS, "rows")]
        + [pc.floor_temporal(rows["since"], unit="second")]
        + [pc.floor_temporal(rows["ts"], unit="hour")]
        + [places, pc.if_else(there, places, None)],
        [*_NAMED, *_COUNTERS, "rows", "second", "hour", "place", "about"],
    ).take(order)
    wanted = [("place", "first"), ("place", "last"), ("about", "last"), ("rows", "sum")]
    wanted += [(name, how) for name in _COUNTERS for how in ("min", "max")]
    # In one thread, or "first" and "last" would be any.
    groups = keyed.group_by([*_NAMED, "second", "hour"], use_threads=False).aggregate(wanted)
    first, last, about = (groups[name] for name in ("place_first", "place_last", "about_last"))
    latest = _replaced(
        rows.take(last),
        {name: groups[f"{name}_max"] for name in _COUNTERS} | {"rows": groups["rows_sum"]},
    )
    none = {"rows": pa.array(np.zeros(groups.num_rows, np.int64))}  # the latest row has them all
    counts = {name: groups[f"{name}_min"] for name in _COUNTERS}
    earliest = _replaced(rows.take(first), counts | none)
    earliest = earliest.filter(pc.not_equal(earliest["ts"], latest["ts"]))
    telling = pc.and_(pc.not_equal(about, last), pc.not_equal(about, first))
    others = _replaced(rows.take(pc.coalesce(about, last)), none).filter(telling)
    return pa.concat_tables([odd, earliest, others, latest]).unify_dictionaries()


def _replaced(rows: pa.Table, columns: dict[str, pa.ChunkedArray | pa.Array]) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.column_names.index(name), _CODED.field(name), column)
    return rows


def _find_good(rows: pa.Table) -> Flags:
    """Return which rows nothing is wrong with; :mod:`pubsubd.topology.cleaning` has the reasons."""
    good = _among(rows["state"], ["up", "down"])
    for name in ("ts", "since"):
        good &= _among_years(rows[name])
    for name in _COUNTERS:
        good &= pc.fill_null(rows[name], -1).to_numpy() >= 0
    trips = pc.fill_null(rows["rtt_ms"], 0.0).to_numpy()
    good &= (trips >= 0) & (trips < np.inf)
    for name in ("mesh", "observer", "src", "dst"):
        good &= pc.is_valid(rows[name]).to_numpy() & ~_among(rows[name], [""])
    ends = [rows[name].chunk(0) for name in ("observer", "src", "dst")]
    alike = pa.chunked_array(ends).unify_dictionaries().chunks
    observer, src, dst = (pc.fill_null(one.indices, -1).to_numpy() for one in alike)
    good &= (observer == src) != (observer == dst)
    return good


def _among(texts: pa.ChunkedArray, values: list[str]) -> Flags:
    """Return which of some texts are one of these; null is none."""
    column = texts.chunk(0)
    wanted = pc.is_in(column.dictionary, pa.array(values))
    found: Flags = pc.fill_null(wanted.take(column.indices), False).to_numpy(zero_copy_only=False)
    return found


def _among_years(times: pa.ChunkedArray) -> Flags:
    at = pc.fill_null(times.cast(pa.int64()), -1).to_numpy()
    found: Flags = (at >= 0) & (at < _OVER)
    return found
