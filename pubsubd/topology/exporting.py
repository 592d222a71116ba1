"""The latest window of a mesh for :mod:`pubsubd.topology.exports`, from the tables of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.exports import Graph
from pubsubd.topology.history import History
from pubsubd.topology.store import Rows, Store

_ENDS = ("src", "dst")
_TOLD = ("availability", "messages", "bytes")
_ABOUT = (*_TOLD, "address", "version", "site", "rack")


def check_one_mesh(graphs: list[dict[str, Any]]) -> None:
    """Check that there is one mesh, since a file has one graph.

    Raises:
        TopologyError: there are several.
    """
    meshes = sorted({str(one["mesh"]) for one in graphs})
    if len(meshes) > 1:
        some = ", ".join(meshes[:3]) + (", ..." if len(meshes) > 3 else "")
        raise TopologyError(
            f"--export writes one mesh, and there are {len(meshes):,} ({some}): choose one with"
            " --mesh"
        )


def export_links(
    store: Store, arcs: Rows, checked: DataFrame, history: History | None, mesh: str, window: Any
) -> Path:
    """Write the links of a mesh at the end of a window as Parquet, and return the folder.

    Args:
        store: where to write.
        arcs: :data:`pubsubd.topology.history.ARCS` of one mesh.
        checked: rows of the inputs, for the weights of lists.
        history: of what daemons told, if they did.
        mesh: its name.
        window: the window.
    """
    here = F.col("window").eqNullSafe(F.lit(window))
    links = (
        store.frame(arcs)
        .where(here & (F.col("src") != F.col("dst")))
        .select(*_ordered(), (F.col("src") < F.col("dst")).alias("way"))
        .groupBy(*_ENDS)
        .agg((F.count_distinct("way") == 1).alias("one_sided"))
    )
    if window is not None and history is not None:
        told = history.links.where(here).select(*_ENDS, F.col("rtt_p50").alias("rtt_ms"), *_TOLD)
        links = links.join(told, [*_ENDS], "left")
    else:
        weights = (
            checked.where(F.col("listed") & (F.col("mesh") == mesh) & F.col("rtt_ms").isNotNull())
            .select(*_ordered(), "rtt_ms")
            .groupBy(*_ENDS)
            .agg(F.max("rtt_ms").alias("weight"))
        )
        links = links.join(weights, [*_ENDS], "left")
    return store.write(links, _ENDS, "export")


def _ordered() -> tuple[Any, Any]:
    return F.least(*_ENDS).alias("src"), F.greatest(*_ENDS).alias("dst")


def read_graph(made: Path, links: Path, mesh: str, window: Any) -> Graph:
    """Return the graph of a mesh at the end of a window.

    Args:
        made: the folder with the tables of the run.
        links: as :func:`export_links` returns it.
        mesh: its name.
        window: the window.
    """
    field = pc.field("window")
    here = (pc.field("mesh") == mesh) & (field.is_null() if window is None else field == window)

    def rows(name: str, where: pc.Expression = here) -> list[dict[str, Any]]:
        table = pq.read_table(made / f"{name}.parquet", filters=where)
        return [
            {key: value for key, value in row.items() if value is not None}
            for row in table.to_pylist()
        ]

    bridges = {(one["id"], one["other"]): one["cut_off"] for one in rows("bridges")}
    points = {one["id"] for one in rows("articulation")}
    about = {
        one["id"]: {name: one[name] for name in _ABOUT if name in one}
        for one in rows("daemon_history")
    }
    daemons = [
        {**about.get(one["id"], {}), **one, "state": "up", "articulation": one["id"] in points}
        for one in rows("daemons")
    ]
    gone = rows("gone", pc.field("mesh") == mesh)
    daemons += [{**about.get(one["id"], {}), **one, "state": "gone"} for one in gone]
    return Graph(mesh, daemons, _read_links(links, bridges))


def _read_links(folder: Path, bridges: dict[tuple[str, str], int]) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("part-*.parquet")):
        with pq.ParquetFile(file) as reader:
            for batch in reader.iter_batches():
                for row in batch.to_pylist():
                    ends = (row["src"], row["dst"])
                    cut_off = bridges.get(ends, bridges.get(ends[::-1]))
                    yield {**row, "bridge": cut_off is not None, "cut_off": cut_off}
