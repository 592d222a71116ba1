"""The graphs of all meshes and windows, each one analysed as a whole in an executor.

A window's graph is small beside its history: it is one group, handed to the kernel, so that a
thousand windows keep all executors busy. One with too many arcs for a worker goes through
:mod:`pubsubd.topology.distributed` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.kernel.facts import SCHEMA
from pubsubd.topology.kernel.graph import read
from pubsubd.topology.kernel.snapshot import snapshot

GRAPH = ("mesh", "window")
"""Columns that identify a graph."""

ROWS = pa.schema([("mesh", pa.string()), ("window", pa.timestamp("us", "UTC")), *SCHEMA])
"""Columns of the kernel's rows, and of the graph that they are of."""

_SQL = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double"}
_TYPES = "mesh string, `window` timestamp, " + ", ".join(
    f"`{field.name}` {_SQL[field.type]}" for field in SCHEMA
)


def sizes(arcs: DataFrame) -> DataFrame:
    """Return the columns of a graph, and ``arcs``, how many rows it has, for each graph."""
    return arcs.groupBy(*GRAPH).agg(F.count("*").alias("arcs"))


def analyse_whole(arcs: DataFrame, seed: int, partitions: int) -> DataFrame:
    """Return the rows of :data:`ROWS` of all graphs; in detail, those of each mesh's last window.

    Args:
        arcs: as :data:`pubsubd.topology.history.ARCS`.
        seed: of everything that is drawn at random.
        partitions: how many tasks the graphs are dealt to.
    """
    last = arcs.groupBy("mesh").agg(F.max("window").alias("last"))
    detailed = F.col("window").eqNullSafe(F.col("last"))
    return (
        arcs.join(F.broadcast(last), "mesh")
        .select(*GRAPH, detailed.alias("detailed"), "src", "dst")
        .repartition(partitions, *GRAPH)
        .groupBy(*GRAPH, "detailed")
        .applyInArrow(_analyse(seed), _TYPES)
    )


def _analyse(seed: int) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def analyse_one(key: tuple[Any, ...], arcs: pa.Table) -> pa.Table:
        mesh, window, detailed = (value.as_py() for value in key)
        rows = snapshot(read(arcs["src"], arcs["dst"]), seed, detailed)
        return label(rows, mesh, window)

    return analyse_one


def label(rows: pa.Table, mesh: str, window: Any) -> pa.Table:
    """Return ``rows`` with the columns of :data:`GRAPH`."""
    graph = [
        pa.array([value], field.type) for value, field in zip((mesh, window), ROWS, strict=False)
    ]
    columns = [pa.repeat(one[0], rows.num_rows) for one in graph]
    return pa.table([*columns, *rows.columns], schema=ROWS)
