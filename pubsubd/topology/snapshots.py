"""The graphs of all meshes and windows, each one analysed as a whole: in an executor, or here.

A window's graph is small beside its history: it is one group, handed to the kernel, so that a
thousand windows keep all executors busy. A mesh is the same at the end of most windows: what a
process has found out of a small graph it keeps for the next one like it. A few small graphs are
analysed in this process, since a worker's Python takes seconds to start. One with too many arcs for
a worker goes through
:mod:`pubsubd.topology.distributed` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.kernel.facts import SCHEMA
from pubsubd.topology.kernel.graph import Graph, read
from pubsubd.topology.kernel.snapshot import snapshot
from pubsubd.topology.store import Rows

GRAPH = ("mesh", "window")
"""Columns that identify a graph."""

ROWS = pa.schema([("mesh", pa.string()), ("window", pa.timestamp("us", "UTC")), *SCHEMA])
"""Columns of the kernel's rows, and of the graph that they are of."""

_SQL = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double"}
_TYPES = "mesh string, `window` timestamp, " + ", ".join(
    f"`{field.name}` {_SQL[field.type]}" for field in SCHEMA
)


_SMALL = 2_000  # daemons of a graph whose facts are kept
KNOWN_ROWS = 100_000  # of facts that are kept: about 20 MB
KNOWN: dict[tuple[Any, ...], pa.Table] = {}


def list_graphs(arcs: Rows) -> list[dict[str, Any]]:
    """Return the columns of each graph, and ``arcs``: how many rows it has."""
    if isinstance(arcs, DataFrame):
        found = arcs.groupBy(*GRAPH).agg(F.count("*").alias("arcs")).toArrow()
    else:
        found = arcs.group_by(GRAPH).aggregate([([], "count_all")])
    graphs: list[dict[str, Any]] = found.rename_columns([*GRAPH, "arcs"]).to_pylist()
    return graphs


def analyse_here(arcs: pa.Table, graphs: Sequence[Mapping[str, Any]], seed: int) -> pa.Table:
    """Return what :func:`analyse_whole` returns, without any worker."""
    last: dict[str, Any] = {}
    for one in graphs:
        known = [at for at in (last.get(one["mesh"]), one["window"]) if at is not None]
        last[one["mesh"]] = max(known, default=None)
    tables = []
    for one in graphs:
        key = tuple(one[name] for name in GRAPH)
        values = dict(zip(GRAPH, key, strict=True))
        rows = take_graph(arcs, values)
        detailed = one["window"] == last[one["mesh"]]
        graph = read(rows["src"], rows["dst"])
        # Nothing else runs here meanwhile.
        tables.append(label(_known(graph, seed, detailed, threads=2), *key))
    return pa.concat_tables(tables)


def take_graph(arcs: pa.Table, graph: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a graph."""
    return arcs.filter(reduce(and_, (_is(name, graph[name]) for name in GRAPH)))


def _is(column: str, value: Any) -> pc.Expression:
    return pc.field(column).is_null() if value is None else pc.field(column) == value


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
        rows = _known(read(arcs["src"], arcs["dst"]), seed, detailed)
        return label(rows, mesh, window)

    return analyse_one


def _known(graph: Graph, seed: int, detailed: bool, threads: int = 1) -> pa.Table:
    """Return the facts of a graph, computed once for graphs that are the same."""
    if detailed or graph.n > _SMALL:
        return snapshot(graph, seed, detailed, threads)
    arcs = (one.tobytes() for one in (graph.arc_tails, graph.arc_heads, graph.loops))
    key = (seed, *graph.ids.to_pylist(), *arcs)
    found = KNOWN.pop(key, None)
    if found is None:
        found = snapshot(graph, seed, detailed)
    KNOWN[key] = found  # as the latest one
    while len(KNOWN) > 1 and sum(one.num_rows for one in KNOWN.values()) > KNOWN_ROWS:
        del KNOWN[next(iter(KNOWN))]
    return found


def label(rows: pa.Table, mesh: str, window: Any) -> pa.Table:
    """Return ``rows`` with the columns of :data:`GRAPH`."""
    graph = [
        pa.array([value], field.type) for value, field in zip((mesh, window), ROWS, strict=False)
    ]
    columns = [pa.repeat(one[0], rows.num_rows) for one in graph]
    return pa.table([*columns, *rows.columns], schema=ROWS)
