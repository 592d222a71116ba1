"""Sections on what to add, and on what has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pubsubd.topology.report.data import MeshReport
from pubsubd.topology.report.parts import (
    MORE,
    Figure,
    Listing,
    Section,
    Status,
    judge,
    metric_figure,
)
from pubsubd.topology.report.snapshot_view import Row, SnapshotView
from pubsubd.topology.report.texts import count, moment, number, peer_option, percent, visible

_STEPS = (1, 5, 10)  # links after which it is told what is left
KINDS = {
    "join": "To join the components",
    "redundancy": "To remove all single points of failure",
    "bridge": "To remove only the bridges",
    "shortcut": "To shorten distances",
}
"""Kinds of advised links, in the order in which they are of use."""


def dialling(row: Row, addresses: Mapping[str, str]) -> tuple[str, str, str]:
    """Return on which daemon an advised link is to be added, to which one, and the option for it.

    It is added where the other end's address is known, and else on the first one.
    """
    here, there = row["id"], row["other"]
    if there not in addresses and here in addresses:
        here, there = there, here
    return here, there, peer_option(addresses.get(there))


def links_to_add(mesh: MeshReport, facts: SnapshotView) -> Section:
    """Return the links that are advised, and what each changes."""
    section = Section("advice", "Links to add")
    section.figures = [
        metric_figure(
            facts,
            "advice_links",
            note=f"lower bound: {number(facts.value('advice_links_least'))}"
            if facts.value("advice_links")
            else "",
        ),
        metric_figure(facts, "bridge_links"),
        metric_figure(
            facts,
            "shortcut_hops_mean",
            judged=False,
            note=f"now {number(facts.value('hops_mean'))}",
        ),
    ]
    section.add(_before_and_after(facts))
    for kind, title in KINDS.items():
        rows = [
            [str(row["rank"]), *dialling(row, mesh.addresses), row["text"] or ""]
            for row in facts.advice(kind, MORE)
        ]
        columns = {
            "No.": "number",
            "In the settings of": "name",
            "Link to": "name",
            "Option": "command",
            "Effect": "text",
        }
        section.add(Listing(title, columns, rows, facts.advised(kind), kind == "bridge"))
    links = facts.value("advice_links")
    if links is None:
        section.advice = f"Which links to add is {facts.metric('advice_links').why}."
    elif links:
        section.advice = (
            f"With {count(links, 'more link')}, no single failure splits the mesh: give each option"
            " to the daemon that is named beside it, or add the address to peer in its settings"
            " file."
        )
    elif facts.advised("shortcut"):
        section.advice = "No links are needed; shortcuts would make paths shorter."
    else:
        section.advice = "No links are needed."
    return section


def _before_and_after(facts: SnapshotView) -> Listing:
    """List the single points of failure left after the first few links, and after all."""
    left = {row["rank"]: row["value"] for row in facts.advice("redundancy")}
    before = facts.whole("articulation_daemons") + facts.whole("bridges")
    steps = [step for step in _STEPS if step < len(left)] + ([len(left)] if left else [])
    rows = [["none", number(before)]]
    joined = "the links that join components, and " if facts.advised("join") else ""
    rows += [
        [
            joined + (_first(step) if step < len(left) else f"all {len(left):,}"),
            number(left[step]),
        ]
        for step in steps
        if left.get(step) is not None
    ]
    return Listing(
        "Single points of failure, before and after",
        {"After adding": "text", "Left": "number"},
        rows if len(rows) > 1 else [],
    )


def _first(links: int) -> str:
    return "the first" if links == 1 else f"the first {links}"


def churn(mesh: MeshReport) -> Section:
    """Section: daemons and links that came, went and flapped."""
    section = Section("churn", "Churn")
    if mesh.window is None:
        section.silent = True
        section.advice = "The input has no times, so there is no history."
        return section
    windows = mesh.churn.sort_by("window").to_pylist()
    joined, left = (sum(row[name] or 0 for row in windows) for name in ("joined", "left"))
    jaccard = [row["jaccard"] for row in windows if row["jaccard"] is not None]
    kept = sum(jaccard) / len(jaccard) if jaccard else None
    section.figures = [
        Figure("Windows", number(len(windows))),
        Figure("Daemons joined", number(joined)),
        Figure("Daemons left", number(left), "0, unless intended", judge(left == 0)),
        Figure(
            "Links kept from window to window",
            percent(kept),
            "above 90 %",
            judge(None if kept is None else kept > 0.9),
            "Mean Jaccard index: links present in both of two successive windows, as a share of"
            " the links present in either (Jaccard 1901).",
        ),
    ]
    if len(windows) > 1:
        section.pictures += ["churn", "trend"]
    if len(mesh.availability):
        section.pictures.append("availability")
    lowest = _least_available(mesh)
    section.add(
        Listing(
            "Least available",
            {"Daemon": "name", "Mean": "number", "Worst window": "number"},
            [[name, percent(mean), percent(worst)] for name, mean, worst in lowest[:MORE]],
        )
    )
    order = [("windows", "descending"), ("id", "ascending")]
    chronic = mesh.chronic.sort_by(order).to_pylist()
    section.add(
        Listing(
            "Articulation daemons of the most windows",
            {"Daemon": "name", "Windows": "number", "Share": "number"},
            [[row["id"], number(row["windows"]), percent(row["share"])] for row in chronic[:MORE]],
            len(chronic),
        )
    )
    events = _latest(mesh)
    section.add(
        Listing(
            "Latest events",
            {
                "When": "text",
                "What": "text",
                "Daemon": "name",
                "Other end": "name",
                "Details": "text",
            },
            [
                [
                    moment(row["at"]),
                    (row["kind"] or "").replace("-", " "),
                    row.get("src") or row.get("id") or "",
                    row.get("dst") or "",
                    row.get("detail") or "",
                ]
                for row in events[:MORE]
            ],
            len(events),
        )
    )
    if section.status is Status.LOOK:
        section.advice = (
            f"Look at {visible(lowest[0][0])} first: it was up for {percent(lowest[0][1])} of the"
            " time."
            if lowest
            else "Look at the latest events."
        )
    else:
        section.advice = "Little has changed."
    return section


def _least_available(mesh: MeshReport) -> list[tuple[str, float, float]]:
    """Return daemons that were not up all the time: name, mean share, share in the worst window."""
    shares: dict[str, list[float]] = defaultdict(list)
    order = [("id", "ascending"), ("window", "ascending")]
    for row in mesh.availability.sort_by(order).to_pylist():
        if row["availability"] is not None:
            shares[row["id"]].append(row["availability"])
    found = [(name, sum(every) / len(every), min(every)) for name, every in shares.items()]
    return sorted((one for one in found if one[1] < 1), key=lambda one: (one[1], one[0]))


def _latest(mesh: MeshReport) -> list[Row]:
    """Return the events, the latest first; those of one moment in the order of their names."""
    rows = list(mesh.events.to_pylist())
    rows.sort(key=lambda row: [str(row.get(key) or "") for key in ("kind", "src", "id", "dst")])
    rows.sort(key=lambda row: row["at"], reverse=True)
    return rows
