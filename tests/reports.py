"""Reports to look at: with a history and without, with names that try to be something else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from pubsubd.topology.report import (
    Coverage,
    DomainKind,
    Gone,
    Incident,
    MeshReport,
    Part,
    Report,
    RoundTrips,
)

Rows = list[dict[str, Any]]

TEXTS = ("kind", "id", "other", "name", "text")
WHOLE = ("rank", "size", "degree", "in_degree", "out_degree", "component", "region", "core")
REAL = ("x", "y", "value", "error", "clustering", "pagerank", "betweenness", "betweenness_error")
SNAPSHOT = pa.schema(
    [(name, pa.string()) for name in TEXTS]
    + [(name, pa.int64()) for name in (*WHOLE, "cut_off")]
    + [(name, pa.float64()) for name in REAL]
)
MOMENT = pa.timestamp("us", "UTC")
HISTORY = {
    "series": {"window": MOMENT, "name": pa.string(), "value": pa.float64()},
    "churn": {
        "window": MOMENT,
        **dict.fromkeys(
            ("daemons", "joined", "left", "links", "new_links", "lost_links"), pa.int64()
        ),
        "jaccard": pa.float64(),
    },
    "availability": {"id": pa.string(), "window": MOMENT, "availability": pa.float64()},
    "chronic": {"id": pa.string(), "windows": pa.int64(), "share": pa.float64()},
    "events": {
        "at": MOMENT,
        **dict.fromkeys(("kind", "src", "dst", "detail"), pa.string()),
    },
    "one_sided": dict.fromkeys(("src", "dst", "told_by"), pa.string()),
    "asymmetric": {"src": pa.string(), "dst": pa.string(), "rtt_factor": pa.float64()},
}
NASTY = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "\u202egnirts",
    "a\x00\x1b[31m\n",
    "{{body}}",
    "$x^2$",
    "--><svg/onload=alert(1)>",
    'id="x" #c8323c font-family: x;',
    "\u65e5\u672c\u8a9e",
    "&amp;",
    "n" * 255,
    "\ud7ff\ue000\U0010ffff",
)
START = datetime(2026, 11, 28, tzinfo=UTC)


def metric(name: str, value: float | None, **more: Any) -> dict[str, Any]:
    return {"kind": "metric", "name": name, "value": value, **more}


def snapshot(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SNAPSHOT)


def two_triangles(names: Iterable[str] = "abcdef") -> Rows:
    """Return the snapshot of two triangles and a bridge between their third daemons."""
    a, b, c, d, e, f = names
    links = [(a, b), (b, c), (a, c), (d, e), (e, f), (d, f), (c, d)]
    degrees = Counter(end for link in links for end in link)
    rows = [
        metric("daemons", 6),
        metric("links", 7),
        metric("arcs", 13),
        metric("one_way_links", 1),
        metric("components", 1),
        metric("largest_component", 6),
        metric("articulation_daemons", 2),
        metric("bridges", 1),
        metric("worst_cut_off", 3),
        metric("degree_max", 3),
        metric("degree_median", 2),
        metric("hops_mean", 1.8, error=0.05),
        metric("twin_hops_mean", 1.7),
        metric("half_lost_targeted", 0.25),
        metric("twin_half_lost_targeted", 0.5),
        metric("advice_links", 1),
        metric("advice_links_least", 1),
        metric("algebraic_connectivity", None, text="it did not converge"),
        {"kind": "articulation", "id": c, "size": 3},
        {"kind": "articulation", "id": d, "size": 3},
        {"kind": "bridge", "id": c, "other": d, "size": 3},
        {"kind": "cut", "id": c, "other": d},
        {
            "kind": "advice",
            "name": "redundancy",
            "rank": 1,
            "id": a,
            "other": f,
            "value": 0.0,
            "text": "no single point of failure is left",
        },
    ]
    rows += [
        {"kind": "histogram", "name": "degree", "x": x, "value": n} for x, n in ((2, 4), (3, 2))
    ]
    rows += [
        {"kind": "histogram", "name": "hops", "x": x, "value": n} for x, n in ((1, 14), (2, 16))
    ]
    for name, left in (("random", 0.4), ("targeted", 0.2), ("twin_random", 0.5)):
        rows += [
            {"kind": "curve", "name": name, "x": x, "value": y}
            for x, y in ((0.0, 1.0), (0.5, left), (1.0, 0.0))
        ]
    for index, name in enumerate((a, b, c, d, e, f)):
        daemon = {"degree": degrees[name], "component": 0, "core": 2, "pagerank": 0.1}
        rows.append({"kind": "daemon", "id": name, "betweenness": 0.5, **daemon})
        place = {"x": index / 5, "y": index % 2, "size": 1, "text": name}
        role = "articulation" if name in {c, d} else "daemon"
        rows.append({"kind": "map_node", "id": name, "name": role, "value": 0.0, **place})
    for one, other in links:
        role = "bridge" if {one, other} == {c, d} else "link"
        rows.append({"kind": "map_link", "id": one, "other": other, "name": role, "size": 1})
    return rows


def mesh_of(rows: Rows, mesh: str = "lab", **history: Rows) -> MeshReport:
    tables = {
        name: pa.Table.from_pylist(history.get(name, []), schema=pa.schema(columns))
        for name, columns in HISTORY.items()
    }
    return MeshReport(mesh=mesh, window=START, snapshot=snapshot(rows), **tables)


def report_of(*meshes: MeshReport) -> Report:
    return Report(["edges/"], 100, {"short": 2, "utf8": 1}, 7, list(meshes), {"stale_seconds": 300})


def sample() -> Report:
    """Return the report of a mesh with a history of three windows."""
    windows = [START + timedelta(hours=hour) for hour in range(3)]
    mesh = mesh_of(
        two_triangles(),
        series=[
            {"window": window, "name": name, "value": value}
            for value, window in enumerate(windows)
            for name in ("bridges", "articulation_daemons", "hops_mean")
        ],
        churn=[
            {
                "window": window,
                "daemons": 6 - went,
                "joined": 0,
                "left": went,
                "jaccard": 1 - went / 4,
            }
            for window, went in zip(windows, (0, 1, 0), strict=True)
        ],
        availability=[
            {"id": name, "window": window, "availability": share}
            for window in windows
            for name, share in (("a", 1.0), ("e", 0.25))
        ],
        chronic=[{"id": "c", "windows": 2, "share": 2 / 3}],
        events=[
            {"at": windows[1], "kind": "daemon-left", "src": "e", "detail": "told by d"},
            {"at": windows[2], "kind": "link-up", "src": "d", "dst": "e"},
        ],
        one_sided=[{"src": "a", "dst": "b", "told_by": "a"}],
        asymmetric=[{"src": "b", "dst": "c", "rtt_factor": 8.0}],
    )
    mesh.coverage = Coverage(
        exporters=5, named=7, gone=1, silent=["b"], age_seconds=12.0, oldest="a"
    )
    mesh.addresses = {"f": "10.0.0.6:9015"}
    mesh.versions = dict.fromkeys("abcde", "0.1.0") | {"f": "0.0.9"}
    mesh.incident = Incident(
        gone=[
            Gone(
                "g",
                windows[1] + timedelta(seconds=90),
                "lost by c, d",
                windows[1],
                "10.0.0.7:9015",
                "0.1.0",
                ("c", "d"),
            )
        ],
        compared=windows[1],
        new_articulation=["d"],
        new_bridges=[("c", "d")],
    )
    lost = {"name": "ber", "daemons": 1, "cut_off": 2, "pieces": 2, "links": [["a", "d"]]}
    kept = {"name": "ham", "daemons": 2, "cut_off": 0, "pieces": 1, "links": []}
    large = "not computed for 9,000 domains of 90,000 daemons: it would take long"
    mesh.domains = [
        DomainKind("site", 2, 3, [lost, kept]),
        DomainKind("rack", 9_000, 6, [], large),
    ]
    mesh.trips = round_trips("a", "f")
    return report_of(mesh)


def round_trips(one: str, other: str) -> RoundTrips:
    ends = {"src": one, "dst": other}
    return RoundTrips(
        links=7,
        measured=6,
        daemons=6,
        origins=6,
        mean=30.0,
        fastest=12.5,
        worst=[ends | {"median": 40.0, "p95": 41.25}],
        slowest=[ends | {"hops": 3, "trip": 120.0, "fastest": 25.0}],
        new=[ends | {"trip": 25.0, "saves": 95.0, "mean_saves": 6.333}],
    )


def bare() -> Report:
    """Return the report of a list without times."""
    return report_of(replace(mesh_of(two_triangles()), window=None))


def nasty() -> Report:
    """Return a report whose names try to be something else."""
    meshes = []
    for names in (NASTY[:6], NASTY[6:]):
        history: dict[str, Rows] = {
            "availability": [{"id": n, "window": START, "availability": 0.5} for n in names],
            "chronic": [{"id": n, "windows": 1, "share": 1.0} for n in names],
            "events": [{"at": START, "kind": "daemon-left", "src": n, "detail": n} for n in names],
            "one_sided": [{"src": names[0], "dst": names[1], "told_by": names[0]}],
        }
        mesh = mesh_of(two_triangles(names), names[0], **history)
        mesh.coverage = Coverage(exporters=0, named=6, silent=list(names), duplicate_ids=[names[1]])
        mesh.addresses = {name: name for name in names}
        mesh.versions = {name: name for name in names}
        gone = [Gone(name + "!", START, name, START, name, name, names) for name in names]
        mesh.incident = Incident(
            gone=[*gone, Gone(names[0] + "?")],
            parts=[Part(2, names[:2], START)],
            new_articulation=names,
            new_bridges=[(names[0], names[1])],
        )
        domain = {"name": names[3], "daemons": 1, "cut_off": 1, "pieces": 2, "links": [names[:2]]}
        mesh.domains = [DomainKind(names[2], 1, 1, [domain])]
        mesh.trips = round_trips(*names[4:6])
        meshes.append(mesh)
    report = report_of(*meshes)
    report.made_of = [NASTY[0]]
    return report


def empty() -> Report:
    """Return a report of a mesh without daemons."""
    return report_of(mesh_of([metric("daemons", 0), metric("links", 0), metric("components", 0)]))


SAMPLES: dict[str, Callable[[], Report]] = {
    "history": sample,
    "bare": bare,
    "nasty": nasty,
    "no daemons": empty,
    "no metrics": lambda: report_of(mesh_of([])),
    "no mesh": report_of,
}


def shuffled(report: Report) -> Report:
    """Return the same report with its rows in another order."""
    dice = random.Random(5)

    def mix(table: pa.Table) -> pa.Table:
        return table.take(pa.array(dice.sample(range(len(table)), len(table)), pa.int64()))

    tables = ("snapshot", *HISTORY)
    meshes = [replace(m, **{name: mix(getattr(m, name)) for name in tables}) for m in report.meshes]
    rejects = dict(reversed(report.rejects.items()))
    return replace(report, meshes=meshes[::-1], rejects=rejects)
