"""Rows that are computed once and needed again: in files, or in this process where there are few.

Files are on a file system that all executors see. To write and read them costs Spark about half a
second each time, however few the rows; through this process it costs a tenth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pubsubd.topology.dealing import deal
from pubsubd.topology.output import Shared

Rows: TypeAlias = DataFrame | pa.Table
"""Rows of a frame, or those that are here already."""

_ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class Store:
    """Rows of a job.

    Attributes:
        spark: the session.
        shared: a folder for files.
        here: rows are kept in this process.
    """

    def __init__(self, spark: SparkSession, shared: Shared, here: bool) -> None:
        self.spark = spark
        self.shared = shared
        self.here = here
        self._kept = 0

    def compute(self, frame: DataFrame) -> Rows:
        """Compute a frame once; what is made of the result has a short plan."""
        if self.here:
            return frame.toArrow()
        self._kept += 1
        path = f"{self.shared.url}/kept-{self._kept}"
        frame.write.parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def frame(self, rows: Rows) -> DataFrame:
        """Return ``rows`` as a frame."""
        return rows if isinstance(rows, DataFrame) else deal(self.spark.createDataFrame(rows))

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return the rows of ``frame`` as another one, computed once."""
        return self.frame(self.compute(frame))

    def write(self, rows: Rows, keys: Sequence[str], name: str, by: str | None = None) -> Path:
        """Write rows, sorted by ``keys``, to a new directory ``name``, and return it.

        Its files are called ``part-*.parquet``; those of rows with the same value of the column
        ``by``, if it is given, are in a directory of their own, called ``BY=VALUE``.
        """
        if isinstance(rows, DataFrame) and not self.here:
            writer = rows.orderBy(*keys).write
            (writer.partitionBy(by) if by else writer).parquet(f"{self.shared.url}/{name}")
            return self.shared.fetch(name)
        parts = self.shared.here / name
        table = rows.toArrow() if isinstance(rows, DataFrame) else rows
        table = sort_as_spark(table, keys)
        for value in pc.unique(table[by]).to_pylist() if by else [None]:
            some = table.filter(pc.field(by) == value).drop_columns(by) if by else table
            folder = parts / f"{by}={value}" if by else parts
            folder.mkdir(parents=True)
            pq.write_table(some, folder / "part-0.parquet")
        return parts


def sort_as_spark(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return rows in the order of ``keys``, nulls first."""
    # Arrow has nulls last, and how to change that depends on its version.
    flags = {f"{key} there": pc.is_valid(rows[key]) for key in keys if rows[key].null_count}
    flagged = rows
    for name, flag in flags.items():
        flagged = flagged.append_column(name, flag)
    order = [
        (name, "ascending")
        for key in keys
        for name in (f"{key} there", key)
        if name in flags or name == key
    ]
    return rows.take(pc.sort_indices(flagged, order))


def empty(schema: str) -> pa.Table:
    """Return no rows of a schema in SQL."""
    fields = [field.split() for field in schema.split(", ")]
    return pa.schema([(name, _ARROW[kind]) for name, kind in fields]).empty_table()


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old or "")  # all of them have defaults
