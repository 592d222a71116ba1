"""The incident of a mesh: which daemons are gone, which parts are apart, and what that made weak.

It is found in the tables of a run, at the end of a mesh's latest window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsubd.topology.kernel.cuts import blocks
from pubsubd.topology.kernel.graph import read
from pubsubd.topology.report import Gone, Incident, Part
from pubsubd.topology.report.snapshot_view import SnapshotView

PARTS = 50
"""Parts that are told, the largest ones but for the largest of all."""

NAMED = 10
"""Daemons of a part that are named, and neighbours of a daemon that is gone."""

COMPARED = 1_000_000
"""Links up to which a first window is compared with its own beginning, in this process."""

_NONE = -1  # the part of a daemon that is in none
_ABOUT = ("address", "version")
_GONE = pa.schema(
    [
        ("mesh", pa.string()),
        ("id", pa.string()),
        ("since", pa.timestamp("us", "UTC")),
        ("detail", pa.string()),
        ("last_seen", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in _ABOUT),
    ]
)
"""The table of daemons that are gone."""


def find_incident(
    made: Path,
    mesh: str,
    window: datetime,
    snapshot: pa.Table,
    events: pa.Table,
    listed: pa.Table | None,
) -> Incident:
    """Return the incident of a mesh whose reports have times.

    Args:
        made: a directory with the tables in Parquet.
        mesh: its name.
        window: the latest one.
        snapshot: facts of the graph then.
        events: all events of the mesh.
        listed: the daemons that exist, if they were listed: ``id``, ``address``.
    """
    here = pc.field("mesh") == mesh
    now = pc.field("window") == pa.scalar(window)
    return Incident(
        gone=_find_gone(made, here, window, events, listed),
        parts=_find_parts(snapshot, events),
        **_compare(made, here, now, window, snapshot),
    )


def gone_table(incidents: Iterable[tuple[str, Incident]]) -> pa.Table:
    """Return the daemons that are gone, of all meshes, as a table."""
    rows = [
        {"mesh": mesh} | {name: getattr(one, name) for name in _GONE.names if name != "mesh"}
        for mesh, incident in incidents
        for one in incident.gone
    ]
    return pa.Table.from_pylist(rows, schema=_GONE)


def _find_gone(
    made: Path, here: pc.Expression, window: datetime, events: pa.Table, listed: pa.Table | None
) -> list[Gone]:
    """Return the daemons that were there and are not, the latest first; then those never seen."""
    columns = ["id", "window", "present", "last_seen", *_ABOUT]
    rows = pq.read_table(made / "daemon_history.parquet", columns=columns, filters=here)
    # What is null in the latest row is taken from the one before.
    last = (
        rows.sort_by("window")
        .group_by("id", use_threads=False)
        .aggregate([(name, "last") for name in columns[1:]])
    )
    last = last.rename_columns(["id", *columns[1:]])
    there = pc.and_(last["present"], pc.equal(last["window"], pa.scalar(window)))
    missing = last.filter(pc.invert(there))
    unseen: list[str] = []
    addresses: dict[str, str] = {}
    if listed is not None:
        missing = missing.filter(pc.is_in(missing["id"], listed["id"]))
        unseen = sorted(
            listed["id"].filter(pc.invert(pc.is_in(listed["id"], last["id"]))).to_pylist()
        )
        addresses = dict(zip(listed["id"].to_pylist(), listed["address"].to_pylist(), strict=True))
    left = events.filter(pc.field("kind") == "daemon-left").sort_by("at")
    left = left.filter(pc.is_in(left["src"], missing["id"]))
    why = {row["src"]: row for row in left.to_pylist()}
    neighbours = _find_neighbours(made, here, missing["id"])
    gone = [
        Gone(
            id=row["id"],
            since=why.get(row["id"], row).get("at") or row["last_seen"],
            detail=why.get(row["id"], {}).get("detail") or "",
            last_seen=row["last_seen"],
            address=addresses.get(row["id"]) or row["address"],
            version=row["version"],
            neighbours=neighbours.get(row["id"], ()),
        )
        for row in missing.to_pylist()
    ]
    gone.sort(key=lambda one: one.id)
    gone.sort(key=lambda one: one.since.timestamp() if one.since else 0.0, reverse=True)
    return gone + [Gone(id=name, address=addresses.get(name)) for name in unseen]


def _find_neighbours(
    made: Path, here: pc.Expression, ids: pa.ChunkedArray
) -> dict[str, tuple[str, ...]]:
    """Return the neighbours that each of these daemons had in the last window that has any."""
    if not len(ids):
        return {}
    chosen = pc.field("src").isin(ids.combine_chunks()) | pc.field("dst").isin(ids.combine_chunks())
    columns = ["window", "src", "dst"]
    rows = pq.read_table(made / "link_history.parquet", columns=columns, filters=here & chosen)
    found: dict[str, dict[datetime, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.sort_by([(name, "ascending") for name in columns]).to_pylist():
        found[row["src"]][row["window"]].append(row["dst"])
        found[row["dst"]][row["window"]].append(row["src"])
    return {name: tuple(sorted(ends[max(ends)])[:NAMED]) for name, ends in found.items()}


def _find_parts(snapshot: pa.Table, events: pa.Table) -> list[Part]:
    """Return the components but for the largest, each with the time since when it is apart.

    That is when the last link between it and another part went down, or the last one to a daemon
    that is gone and had links to several parts.
    """
    facts = SnapshotView(snapshot)
    sizes = facts.component_sizes(PARTS + 1)[1:]
    if not sizes:
        return []
    since: dict[int, datetime] = {}
    down = events.filter(pc.field("kind") == "link-down").sort_by("at")
    ids = facts.daemons["id"].combine_chunks()
    labels = facts.daemons["component"]
    for name, end in (("one", "src"), ("other", "dst")):
        label = labels.take(pc.index_in(down[end], ids))
        down = down.append_column(name, pc.fill_null(label, _NONE))
    rows = down.filter(pc.field("one") != pc.field("other")).to_pylist()
    touched: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for name, label in (("src", row["other"]), ("dst", row["one"])):
            touched[row[name]].add(label)
    for row in rows:
        lost = [row[end] for end, label in (("src", "one"), ("dst", "other")) if row[label] < 0]
        if all(len(touched[name]) > 1 for name in lost):
            since[row["one"]] = since[row["other"]] = row["at"]
    return [
        Part(size, facts.daemons_where("component", label, NAMED)[1], since.get(label))
        for label, size in sizes
    ]


def _compare(
    made: Path, here: pc.Expression, now: pc.Expression, window: datetime, snapshot: pa.Table
) -> dict[str, Any]:
    """Return the single points of failure that the window before did not have."""
    columns = {"articulation": ["id"], "bridges": ["id", "other"]}
    facts = SnapshotView(snapshot)
    today = {
        "articulation": facts.articulation.select(["id"]).to_pylist(),
        "bridges": facts.bridges.select(["id", "other"]).to_pylist(),
    }
    windows = pq.read_table(made / "churn.parquet", columns=["window"], filters=here)["window"]
    earlier = windows.filter(pc.less(windows, pa.scalar(window)))
    compared = pc.max(earlier).as_py()
    if compared is not None:
        then = here & (pc.field("window") == pa.scalar(compared))
        before = {
            name: pq.read_table(made / f"{name}.parquet", columns=names, filters=then).to_pylist()
            for name, names in columns.items()
        }
    else:
        links = pq.read_table(
            made / "link_history.parquet",
            columns=["src", "dst", "state", "first_seen"],
            filters=here & now & pc.field("first_seen").is_valid(),
        )
        if len(links) > COMPARED:
            return {"why": f"not compared: the first window has more than {COMPARED:,} links"}
        lost = len(links.filter(pc.field("state") == "down"))
        before = _find_weak(links) if lost else today
    known = {name: {tuple(row.values()) for row in rows} for name, rows in before.items()}
    new = {
        name: [tuple(row.values()) for row in rows if tuple(row.values()) not in known[name]]
        for name, rows in today.items()
    }
    return {
        "compared": compared,
        "new_articulation": [one for (one,) in new["articulation"]],
        "new_bridges": [(one, other) for one, other in new["bridges"]],
    }


def _find_weak(links: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Return the single points of failure of a graph."""
    graph = read(links["src"], links["dst"])
    found = blocks(graph)
    names = graph.ids.to_pylist()
    return {
        "articulation": [{"id": names[place]} for place in found.articulation],
        "bridges": [
            {"id": names[graph.tails[link]], "other": names[graph.heads[link]]}
            for link in found.bridges
        ],
    }
