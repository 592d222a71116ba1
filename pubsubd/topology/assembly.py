"""Input of a report: the latest window of each mesh, and its history in short."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pubsubd.topology.incident import find_incident
from pubsubd.topology.kernel.facts import SCHEMA
from pubsubd.topology.kernel.graph import read
from pubsubd.topology.latest import is_timed, lose_domains, place, time_links
from pubsubd.topology.report import Coverage, DomainKind, Incident, MeshReport, RoundTrips

WINDOWS = 2_000
"""The latest windows of a mesh that its history is shown of."""

EVENTS = 1_000
"""The latest events of a mesh that are shown."""

WORST = 40
"""Daemons whose availability is shown, those with the least in the mean; and as many of those
that were articulation daemons in the most windows."""

NAMED = 100
"""Daemons that are named where there may be many."""

_DIFFERING = ["src", "dst", "src_rtt_p50", "dst_rtt_p50", "src_messages", "dst_messages"]


Arcs = Callable[[str, datetime | None], pa.Table | str]
"""Returns ``src, dst`` of a mesh and window, or the reason why they are not to be had here."""


def assemble(
    made: Path,
    facts: Path,
    nodes: pa.Table | None,
    arcs: Arcs,
    seed: int,
    before: pa.Table | None = None,
) -> list[MeshReport]:
    """Return the report's input for each mesh, in the order of their names.

    Args:
        made: a directory with the tables in Parquet.
        facts: a directory with the facts of all graphs, partitioned by their kinds.
        nodes: the daemons that were listed, if any: ``id``, ``address``, ``domains``.
        arcs: of a graph.
        seed: of what is chosen at random.
        before: the metrics of the meshes that were reported, if those here are hypothetical.
    """
    windows = pq.read_table(made / "metrics.parquet", columns=["mesh", "window"])
    latest = windows.group_by("mesh").aggregate([("window", "max")]).sort_by("mesh")
    addresses = {}
    if nodes is not None:
        known = nodes.filter(pc.field("address").is_valid())
        addresses = dict(zip(known["id"].to_pylist(), known["address"].to_pylist(), strict=True))
    meshes = [
        _assemble_one(made, facts, row["mesh"], row["window_max"], nodes, addresses, arcs, seed)
        for row in latest.to_pylist()
    ]
    if before is not None:
        for mesh in meshes:
            mesh.before = before.filter(pc.field("mesh") == mesh.mesh).select(SCHEMA.names)
    return meshes


def _assemble_one(
    made: Path,
    facts: Path,
    mesh: str,
    window: datetime | None,
    nodes: pa.Table | None,
    addresses: dict[str, str],
    arcs: Arcs,
    seed: int,
) -> MeshReport:
    here = pc.field("mesh") == mesh
    now = here & _is(window)
    events = _read(made, "events", here)
    incident = None
    snapshot = ds.dataset(facts, partitioning="hive").to_table(filter=now)
    links = _read(made, "link_history", now)
    daemons = _read(made, "daemon_history", now)
    if window is not None:
        incident = find_incident(made, mesh, window, snapshot, events, nodes)
        columns = ["id", "window", "address"]
        known = pq.read_table(made / "daemon_history.parquet", columns=columns, filters=here)
        addresses = _told(known, "address") | addresses
    series = _read(made, "metrics", here).select(["window", "name", "value"])
    shown = here & _since_lately(series["window"])
    domains, trips = _look_closer(lambda: arcs(mesh, window), daemons, nodes, links, seed)
    return MeshReport(
        mesh=mesh,
        window=window,
        snapshot=snapshot.select(SCHEMA.names).cast(SCHEMA),
        series=series.filter(_since_lately(series["window"])),
        churn=_read(made, "churn", shown),
        chronic=_find_chronic(
            _read(made, "articulation", shown), pc.count_distinct(series["window"]).as_py()
        ),
        availability=_find_worst(_read(made, "daemon_history", shown)),
        events=events[-EVENTS:].drop_columns("mesh"),
        one_sided=links.filter(pc.field("one_sided")).select(["src", "dst", "told_by"]),
        asymmetric=links.filter(pc.field("asymmetric")).select(_DIFFERING),
        coverage=_cover(daemons, snapshot, nodes, incident) if incident else {},
        addresses=addresses,
        versions=_told(daemons.filter(pc.field("present")), "version"),
        incident=incident,
        domains=domains,
        trips=trips,
    )


def _look_closer(
    arcs: Callable[[], pa.Table | str],
    daemons: pa.Table,
    nodes: pa.Table | None,
    links: pa.Table,
    seed: int,
) -> tuple[list[DomainKind], RoundTrips | None]:
    """Return failure domains and round trips; the graph is asked for only if there are any."""
    placed, timed = place(daemons, nodes), is_timed(links)
    if not placed and not timed:
        return [], None
    found = arcs()
    if isinstance(found, str):
        kinds = [
            DomainKind(kind, len(set(domains.values())), len(domains), [], found)
            for kind, domains in placed.items()
        ]
        return kinds, RoundTrips(why=found) if timed else None
    graph = read(found["src"], found["dst"])
    return lose_domains(graph, placed), time_links(graph, links, seed) if timed else None


def _read(made: Path, name: str, where: pc.Expression) -> pa.Table:
    return pq.read_table(made / f"{name}.parquet", filters=where)


def _is(window: datetime | None) -> pc.Expression:
    field = pc.field("window")
    return field.is_null() if window is None else field == pa.scalar(window)


def _since_lately(windows: pa.ChunkedArray) -> pc.Expression:
    """Select rows of the latest :data:`WINDOWS`, and rows without a window."""
    known = pc.unique(windows.drop_null()).sort()
    field = pc.field("window")
    return field.is_null() | (field >= known[-WINDOWS:][0]) if len(known) else field.is_null()


def _find_worst(daemons: pa.Table) -> pa.Table:
    """Return ``id``, ``window``, ``availability`` of the :data:`WORST` daemons."""
    told = daemons.filter(pc.field("availability").is_valid())
    means = told.group_by("id").aggregate([("availability", "mean")])
    order = [("availability_mean", "ascending"), ("id", "ascending")]
    worst = means.sort_by(order)["id"][:WORST]
    rows = told.filter(pc.is_in(told["id"], worst))
    return rows.select(["id", "window", "availability"])


def _find_chronic(points: pa.Table, windows: int) -> pa.Table:
    """Return ``id``, ``windows``, ``share`` of the :data:`WORST` articulation daemons."""
    counts = (
        points.filter(pc.field("window").is_valid()).group_by("id").aggregate([([], "count_all")])
    )
    order = [("count_all", "descending"), ("id", "ascending")]
    worst = counts.sort_by(order)[:WORST]
    share = pc.divide(worst["count_all"].cast(pa.float64()), float(max(1, min(windows, WINDOWS))))
    return pa.table({"id": worst["id"], "windows": worst["count_all"], "share": share})


def _told(daemons: pa.Table, column: str) -> dict[str, str]:
    """Return what each daemon told of itself last."""
    rows = daemons.filter(pc.field(column).is_valid()).sort_by("window")
    last = rows.group_by("id", use_threads=False).aggregate([(column, "last")])
    return dict(zip(last["id"].to_pylist(), last[f"{column}_last"].to_pylist(), strict=True))


def _cover(
    daemons: pa.Table, snapshot: pa.Table, nodes: pa.Table | None, incident: Incident
) -> Coverage:
    """Return the number of daemons that report themselves, and the age of the oldest report."""
    there = daemons.filter(pc.field("present"))
    told = there.filter(pc.field("told")).sort_by([("last_seen", "ascending"), ("id", "ascending")])
    silent = there.filter(~pc.field("told"))["id"].to_pylist()
    gone = len(incident.gone)
    cover = Coverage(exporters=len(told), named=len(there) + gone, gone=gone, silent=silent[:NAMED])
    if len(told):
        latest = pc.max(daemons["last_seen"]).as_py()
        oldest = told.slice(0, 1).to_pylist()[0]
        cover["age_seconds"] = (latest - oldest["last_seen"]).total_seconds()
        cover["oldest"] = oldest["id"]
    if nodes is not None:
        ids = snapshot.filter(pc.field("kind") == "daemon")["id"]
        cover["unknown_ids"] = ids.filter(pc.invert(pc.is_in(ids, nodes["id"]))).to_pylist()[:NAMED]
    return cover
