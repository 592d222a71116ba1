"""Sections on who is there and what would fall apart: coverage to overload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.data import MeshReport
from pubsubd.topology.report.incident import gone_listing
from pubsubd.topology.report.parts import (
    MORE,
    WORST,
    Figure,
    Listing,
    Section,
    Status,
    judge,
    metric_figure,
)
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import (
    count,
    duration,
    listing,
    number,
    percent,
    quantity,
    visible,
)

_HEADINGS = {
    "src_rtt_p50": "First: round trip, ms",
    "dst_rtt_p50": "Second: round trip, ms",
    "src_messages": "First: messages",
    "dst_messages": "Second: messages",
}
_LARGE = 100  # daemons from which shares of the whole mean something
_OLD = 300.0  # seconds, if the run was not told


def coverage(mesh: MeshReport, facts: SnapshotView, parameters: dict[str, Any]) -> Section:
    """Section: coverage of the mesh by the input."""
    section = Section("coverage", "Coverage")
    known = mesh.coverage
    if mesh.window is None or "exporters" not in known:
        section.silent = True
        section.advice = "A plain list of links does not say who reported them."
        return section
    named = known.get("named", facts.whole("daemons"))
    gone = known.get("gone", 0)
    missing = named - known["exporters"] - gone
    section.figures.append(
        Figure(
            "Daemons that report their links",
            f"{known['exporters']:,} of {named:,}",
            "all",
            judge(missing + gone <= 0),
        )
    )
    section.figures.append(
        Figure("Daemons that are gone", number(gone), "0", judge(not gone, Status.ACT))
    )
    if mesh.incident is not None:
        section.add(gone_listing(mesh.incident))
    _add_versions(section, mesh.versions)
    age, limit = known.get("age_seconds"), parameters.get("stale_seconds")
    limit = float(limit) if isinstance(limit, int | float) else _OLD
    if age is not None:
        whose = f"of {visible(known['oldest'])}" if known.get("oldest") else ""
        section.figures.append(
            Figure(
                "Longest silence of a reporting daemon",
                duration(age),
                f"up to {duration(limit)}",
                judge(age <= limit),
                note=whose,
            )
        )
    silent = known.get("silent", [])
    section.add(
        Listing(
            "Daemons that others name but that report nothing",
            {"Daemon": "name"},
            [[name] for name in silent[:MORE]],
            max(missing, len(silent)),
        )
    )
    for label, ids in (
        ("Ids used by several daemons", known.get("duplicate_ids")),
        ("Ids that are not in the file of --nodes", known.get("unknown_ids")),
    ):
        if ids is not None:
            fits = judge(not ids, Status.ACT)
            section.figures.append(Figure(label, f"{len(ids):,}", "0", fits, note=listing(ids, 5)))
    if gone and mesh.incident is not None and mesh.incident.gone:
        first = visible(mesh.incident.gone[0].id)
        them = first if gone == 1 else f"{first} and {count(gone - 1, 'more daemon')}"
        section.advice = f"Find out what happened to {them}, and start what should run."
    elif missing > 0:
        them = "it is silent: its" if missing == 1 else "they are silent: their"
        section.advice = (
            f"Run {count(missing, 'more daemon')} with --export-edges, or find out why {them}"
            " links are reported from the other end only."
        )
    else:
        section.advice = "All known daemons report their links."
    if known.get("duplicate_ids"):
        section.advice = (
            "Give each daemon its own id: reports on daemons that share one are mixed up."
        )
    return section


def _add_versions(section: Section, versions: dict[str, str]) -> None:
    """Add the versions that daemons have, the most frequent first."""
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, version in sorted(versions.items()):
        by_version[version].append(name)
    found = sorted(by_version.items(), key=lambda one: (-len(one[1]), one[0]))
    if not found:
        return
    section.figures.append(
        Figure(
            "Versions of pubsubd",
            number(len(found)),
            "1",
            judge(len(found) == 1),
            note=visible(found[0][0]) if len(found) == 1 else "",
        )
    )
    section.add(
        Listing(
            "Versions",
            {"Version": "text", "Daemons": "number", "Which": "text"},
            [
                [visible(version), number(len(names)), listing(names, WORST)]
                for version, names in found[:MORE]
                if len(found) > 1
            ],
            len(found),
        )
    )


def partitions(mesh: MeshReport, facts: SnapshotView) -> Section:
    """Return whether the mesh is in one piece."""
    daemons, largest = facts.whole("daemons"), facts.whole("largest_component")
    parts, strong = facts.whole("components"), facts.value("strong_components")
    section = Section("partitions", "Partitions")
    section.figures = [
        metric_figure(facts, "components", otherwise=Status.ACT),
        metric_figure(
            facts,
            "largest_component",
            fits=largest == daemons,
            otherwise=Status.ACT,
            note=f"{percent(largest / daemons)} of all" if daemons else "",
        ),
        metric_figure(facts, "isolated", otherwise=Status.ACT),
        metric_figure(
            facts,
            "strong_components",
            fits=None if strong is None else strong <= parts,
            judged=mesh.window is not None,
        ),
    ]
    if parts > 1:
        rows = [
            [number(size), listing(names, WORST)]
            for size, names in facts.small_components(MORE, WORST)
        ]
        columns = {"Daemons": "number", "Members": "name"}
        section.add(Listing("Components other than the largest", columns, rows, parts - 1))
        section.advice = (
            f"Join the parts with {count(parts - 1, 'link')}{_see_links(facts)}:"
            f" {count(daemons - largest, 'daemon')} cannot reach the largest part."
        )
    elif daemons:
        section.advice = "Every daemon reaches every other."
    else:
        section.advice = "There is no daemon in this window."
    return section


def _see_links(facts: SnapshotView) -> str:
    return "" if facts.left_out("advice_links") else " (see Links to add)"


def single_points(facts: SnapshotView) -> Section:
    """Section: daemons and links that the mesh cannot lose."""
    section = Section("failure", "Single points of failure")
    daemons = facts.whole("daemons")
    spof, links = len(facts.articulation), len(facts.bridges)
    section.figures = [
        metric_figure(facts, "articulation_daemons", otherwise=Status.ACT),
        metric_figure(facts, "worst_cut_off", otherwise=Status.ACT),
        metric_figure(facts, "bridges", otherwise=Status.ACT),
        metric_figure(facts, "leaves"),
        metric_figure(facts, "two_link_cuts"),
    ]
    worst = facts.articulation.slice(0, MORE).to_pylist()
    degrees = facts.degrees(row["id"] for row in worst)
    section.add(
        Listing(
            "Daemons whose loss cuts off the most",
            {
                "No.": "number",
                "Daemon": "name",
                "Cuts off": "number",
                "Share": "number",
                "Links": "number",
            },
            [
                [
                    str(rank),
                    row["id"],
                    number(row["size"]),
                    percent(row["size"] / daemons) if daemons else "",
                    number(degrees.get(row["id"])),
                ]
                for rank, row in enumerate(worst, 1)
            ],
            spof,
        )
    )
    section.add(
        Listing(
            "Links whose loss cuts off the most",
            {"One end": "name", "Other end": "name", "Cuts off": "number"},
            [
                [row["id"], row["other"], number(row["size"])]
                for row in facts.bridges.slice(0, MORE).to_pylist()
            ],
            links,
        )
    )
    if spof or links:
        add = facts.value("advice_links")
        first = (
            f"watch {visible(worst[0]['id'])} first"
            if worst
            else "add a second link beside each bridge"
        )
        section.advice = (
            f"Add {count(add, 'link')} to remove them all{_see_links(facts)}; until then {first}."
            if add
            else f"Add links around them; {first}."
        )
    else:
        section.advice = "No loss of a single daemon or link can split the mesh."
    return section


def asymmetry(mesh: MeshReport, facts: SnapshotView) -> Section:
    """Return on which links the two ends do not agree."""
    section = Section("asymmetry", "Asymmetric links")
    if mesh.window is None:
        section.silent = True
        section.advice = (
            f"Links named in one direction only: {number(facts.whole('one_way_links'))} of"
            f" {number(facts.whole('links'))}; this is common in lists of two columns, and is"
            " not judged."
        )
        return section
    differing = mesh.asymmetric
    section.figures = [
        metric_figure(facts, "one_way_links"),
        metric_figure(facts, "reciprocity"),
        Figure("Links whose ends differ", number(len(differing)), "0", judge(not len(differing))),
    ]
    rows = _sorted(mesh.one_sided.to_pylist(), "src", "dst")
    section.add(
        Listing(
            "Reported by one end only",
            {"From": "name", "To": "name", "Reported by": "name"},
            [[row["src"], row["dst"], row["told_by"] or ""] for row in rows[:MORE]],
            len(rows),
        )
    )
    extra = [name for name in differing.column_names if name not in {"src", "dst", "mesh"}]
    rows = _sorted(differing.to_pylist(), "src", "dst")
    section.add(
        Listing(
            "Links whose ends differ",
            {"From": "name", "To": "name"}
            | {_HEADINGS.get(name, name): _kind(differing[name]) for name in extra},
            [
                [row["src"], row["dst"], *(_shown(row[name]) for name in extra)]
                for row in rows[:MORE]
            ],
            len(rows),
        )
    )
    if mesh.one_sided.num_rows or facts.value("one_way_links"):
        section.advice = (
            "Check the silent ends: each is down, does not export, or does not know of its link."
        )
    elif len(differing):
        section.advice = "Look at these links first when messages are slow or get lost."
    else:
        section.advice = "Both ends of every link report the same."
    return section


def overload(facts: SnapshotView) -> Section:
    """Section: daemons that carry more than others."""
    section = Section("overload", "Overload", pictures=["degrees"])
    large = facts.whole("daemons") >= _LARGE
    most, median = facts.value("degree_max"), facts.value("degree_median")
    ratio = most / median if most and median else None
    section.figures = [
        metric_figure(
            facts,
            "degree_max",
            fits=None if ratio is None else ratio <= 10,
            note=f"{number(ratio, 3)} times the median" if ratio else "",
        ),
        metric_figure(facts, "degree_median"),
        metric_figure(facts, "degree_gini"),
        metric_figure(
            facts,
            "degree_top1_share",
            fits=(facts.value("degree_top1_share") or 0) < 0.1 if large else None,
            judged=large,
        ),
        metric_figure(facts, "degree_tail_exponent"),
        metric_figure(
            facts,
            "betweenness_max",
            fits=(facts.value("betweenness_max") or 0) < 0.1 if large else None,
            judged=large,
        ),
        metric_figure(facts, "pagerank_max", judged=False),
    ]
    hubs = facts.worst_daemons("degree", WORST)
    section.add(
        Listing(
            "Daemons with the most links",
            {
                "Daemon": "name",
                "Links": "number",
                "Share of paths": "number",
                "PageRank": "number",
            },
            [
                [
                    row["id"],
                    number(row["degree"]),
                    quantity(row["betweenness"], "share", row["betweenness_error"]),
                    percent(row["pagerank"]),
                ]
                for row in hubs
                if row["degree"]
            ],
            facts.whole("daemons"),
        )
    )
    heavy = {
        METRICS[name].label
        for name in ("degree_max", "degree_gini", "degree_top1_share", "betweenness_max")
    }
    over = any(one.status is Status.LOOK and one.label in heavy for one in section.figures)
    if over and hubs:
        section.advice = (
            f"Move links away from {visible(hubs[0]['id'])} and similar daemons, or give them"
            " stronger machines: they carry far more than others, and more breaks when they fail."
        )
    else:
        section.advice = "No daemon carries far more links than the others."
    return section


def _sorted(rows: Iterable[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple(row[key] or "" for key in keys))


def _kind(column: pa.ChunkedArray) -> str:
    return "text" if pa.types.is_string(column.type) else "number"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return "" if value is None else str(value)
