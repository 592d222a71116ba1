"""How rows are dealt to tasks: of few rows, one task does everything."""

from __future__ import annotations

from pyspark.sql import DataFrame

ALONE = 2**20
"""Bytes of text up to which one task does everything, since each one costs more than its rows."""


def deal(frame: DataFrame, *columns: str) -> DataFrame:
    """Deal rows to tasks by the values of ``columns``, or by none in particular.

    Where a shuffle would make a single partition, they are given to one task without one, and
    nothing that is made of them needs another.
    """
    if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1":
        return frame.coalesce(1)
    return frame.repartition(*columns) if columns else frame
