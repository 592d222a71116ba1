"""The report as JSON: what a program reads.

The schema is the file ``report.schema.json`` of this package. ``version`` is 1: a key that is added
does not change it, one that is taken away or means something else does.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.changes import KINDS, dialling
from pubsubd.topology.report.data import DomainKind, Incident, MeshReport, Report
from pubsubd.topology.report.parts import FULL, WORST
from pubsubd.topology.report.sections import by_need, in_order, sections_of, status_of, verdict
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import stamp

VERSION = 1
LIMIT = 1_000
"""Entries of each list of daemons, links and events; ``total`` is their full number. Of meshes
but for the first :data:`FULL` they are :data:`WORST`."""
SERIES = (
    "daemons",
    "links",
    "one_way_links",
    "components",
    "articulation_daemons",
    "bridges",
    "worst_cut_off",
    "hops_mean",
    "algebraic_connectivity",
    "half_lost_targeted",
)
"""Metrics given for all windows; the table of metrics has all of them."""
_CELLS = 40  # of the heat map, for each other entry
_MEMBERS = 100  # names of the members of a component
_STATUS = ("unknown", "healthy", "look", "act")
_HISTOGRAMS = {
    "degree": "degree_max",
    "hops": "hops_mean",
    "component_size": "components",
    "strong_component_size": "strong_components",
    "core": "core_max",
}
_CURVES = {
    "random": "robustness_random",
    "targeted": "robustness_targeted",
    "twin_random": "twin_robustness_random",
    "twin_targeted": "twin_robustness_targeted",
}
"""Histogram or curve -> the metric that is not computed if it is not."""
_PLANS = {
    "join": "advice_links",
    "redundancy": "advice_links",
    "bridge": "bridge_links",
    "shortcut": "shortcut_hops_mean",
}
"""Kind of advice -> the metric that is not computed if it is not."""
_DAEMON = (
    "id",
    "degree",
    "in_degree",
    "out_degree",
    "component",
    "region",
    "core",
    "cut_off",
    "clustering",
    "pagerank",
    "betweenness",
    "betweenness_error",
)

Json = dict[str, Any]


def schema() -> Json:
    """Return the JSON Schema (2020-12) of ``report.json``."""
    text = resources.files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8")
    found: Json = json.loads(text)
    return found


def encode(report: Report) -> bytes:
    """Return ``report.json``: printable ASCII, indented, with a line feed at the end."""
    return (json.dumps(as_json(report), indent=2, allow_nan=False) + "\n").encode("ascii")


def as_json(report: Report) -> Json:
    """Return the report as values that JSON has."""
    return {
        "version": VERSION,
        "made_of": report.made_of,
        "rows": report.rows,
        "rejects": dict(sorted(report.rejects.items())),
        "seed": report.seed,
        "hypothetical": {
            "without": [list(one) for one in report.without],
            "with": [list(one) for one in report.added],
        }
        if report.without or report.added
        else None,
        "parameters": {name: _plain(one) for name, one in sorted(report.parameters.items())},
        "meshes": [
            _mesh(mesh, report.parameters, LIMIT if index < FULL else WORST)
            for index, mesh in enumerate(in_order(report))
        ],
    }


def _mesh(mesh: MeshReport, parameters: dict[str, Any], most: int) -> Json:
    facts = SnapshotView(mesh.snapshot)
    sections = sections_of(mesh, facts, parameters)
    return {
        "mesh": mesh.mesh,
        "window": stamp(mesh.window),
        "status": _STATUS[status_of(sections)],
        "verdict": verdict(mesh, facts),
        "incident": _incident(mesh.incident, most),
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "status": _STATUS[section.status],
                "advice": section.advice,
            }
            for section in by_need(sections)
        ],
        "metrics": _metrics(facts),
        "before": None if mesh.before is None else _metrics(SnapshotView(mesh.before)),
        "versions": _versions(mesh.versions),
        "coverage": {name: _plain(value) for name, value in sorted(mesh.coverage.items())},
        "articulation_daemons": _some(facts.articulation, most, id="id", cut_off="size"),
        "bridges": _some(facts.bridges, most, src="id", dst="other", cut_off="size"),
        "failure_domains": [_domains(kind, most) for kind in mesh.domains],
        "round_trips": None if mesh.trips is None else _plain(asdict(mesh.trips)),
        "minimum_cut": _unless(
            facts.left_out("minimum_cut"),
            _listed([{"src": one, "dst": other} for one, other in facts.cut], most),
        ),
        "small_components": {
            "total": max(facts.whole("components") - 1, 0),
            "items": [
                {"daemons": size, "members": names}
                for size, names in facts.small_components(most, _MEMBERS)
            ],
        },
        "hubs": [
            {name: _plain(row[name]) for name in _DAEMON}
            for row in facts.worst_daemons("degree", WORST)
        ],
        "one_sided": _ordered(mesh.one_sided, most, "src", "dst"),
        "asymmetric": _ordered(mesh.asymmetric, most, "src", "dst"),
        "histograms": {
            name: None if facts.left_out(metric) else _pairs(facts.histogram(name))
            for name, metric in _HISTOGRAMS.items()
        },
        "curves": {
            name: None if facts.left_out(metric) else _pairs(facts.curve(name))
            for name, metric in _CURVES.items()
        },
        "advice": {kind: _advice(mesh, facts, kind, most) for kind in KINDS},
        "churn": _ordered(mesh.churn, most, "window", latest=True),
        "chronic": _ordered(mesh.chronic, most),
        "availability": _ordered(mesh.availability, _CELLS * most, "id", "window"),
        "events": _ordered(mesh.events, most, "at", "kind", latest=True),
        "series": _series(mesh.series, most),
    }


def _incident(incident: Incident | None, most: int) -> Json | None:
    if incident is None:
        return None
    daemons, links = incident.new_articulation, incident.new_bridges
    return {
        "gone": _listed(
            [
                {
                    "id": one.id,
                    "since": stamp(one.since),
                    "detail": one.detail,
                    "last_seen": stamp(one.last_seen),
                    "address": one.address,
                    "version": one.version,
                }
                for one in incident.gone
            ],
            most,
        ),
        "parts": [
            {"daemons": one.daemons, "members": list(one.names), "since": stamp(one.since)}
            for one in incident.parts
        ],
        "compared_with": stamp(incident.compared),
        "new_articulation_daemons": None if daemons is None else _listed(list(daemons), most),
        "new_bridges": None
        if links is None
        else _listed([{"src": one, "dst": other} for one, other in links], most),
        "why": incident.why,
    }


def _domains(kind: DomainKind, most: int) -> Json:
    return {
        "kind": kind.kind,
        "domains": kind.domains,
        "placed": kind.placed,
        "why": kind.why,
        "parting": _listed(kind.parting, most),
    }


def _metrics(facts: SnapshotView) -> Json:
    found = {}
    for name, metric in METRICS.items():
        one = facts.metric(name)
        found[name] = {
            "value": _number(one.value),
            "error": _number(one.error),
            "unit": metric.unit,
            "why": one.why if one.value is None else None,
        }
    return found


def _versions(versions: dict[str, str]) -> dict[str, int]:
    return dict(sorted(Counter(versions.values()).items()))


def _advice(mesh: MeshReport, facts: SnapshotView, kind: str, most: int) -> Json:
    items = []
    for row in facts.advice(kind, most):
        here, there, option = dialling(row, mesh.addresses)
        value, text = _plain(row["value"]), row["text"]
        items.append(
            {
                "rank": row["rank"],
                "on": here,
                "to": there,
                "address": mesh.addresses.get(there),
                "option": option,
                "value": value,
                "text": text,
            }
        )
    return _unless(facts.left_out(_PLANS[kind]), {"total": facts.advised(kind), "items": items})


def _some(table: pa.Table, most: int, **columns: str) -> Json:
    """Return the first rows, with the columns renamed: new name -> old one."""
    rows = table.slice(0, most).to_pylist()
    return {
        "total": len(table),
        "items": [{new: row[old] for new, old in columns.items()} for row in rows],
    }


def _ordered(table: pa.Table, most: int, *keys: str, latest: bool = False) -> Json:
    """Return rows in their order, by ``keys`` first: a list of objects, and how many there are."""
    names = [name for name in table.column_names if name != "mesh"]
    order = [*keys, *(name for name in names if name not in keys)]
    rows = table.sort_by([(name, "ascending") for name in order]).to_pylist()
    rows = rows[-most:] if latest else rows[:most]
    items = [{name: _plain(row[name]) for name in names} for row in rows]
    return _listed(items, most, len(table))


def _listed(items: list[Any], most: int, total: int | None = None) -> Json:
    return {"total": len(items) if total is None else total, "items": items[:most]}


def _unless(why: str | None, found: Json) -> Json:
    """Return what was found; without a total, and with the reason, if it was not computed."""
    return found if why is None else {"total": None, "items": [], "why": why}


def _pairs(points: Iterable[tuple[float, float]]) -> list[list[float | int | None]]:
    return [[_number(x), _number(y)] for x, y in points]


def _series(table: pa.Table, most: int) -> Json:
    found: dict[str, list[list[Any]]] = {}
    table = table.filter(pc.is_in(table["name"], value_set=pa.array(SERIES)))
    for row in table.sort_by([("name", "ascending"), ("window", "ascending")]).to_pylist():
        value = _number(row["value"])
        found.setdefault(row["name"], []).append([stamp(row["window"]), value])
    return {name: values[-most:] for name, values in found.items()}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: times as text, null for numbers that are not finite."""
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value if value is None or isinstance(value, str | int) else str(value)


def _number(value: float | None) -> float | int | None:
    """Return whole numbers without a fraction, and nothing for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
