"""Findings of a run in a few lines for a terminal: up to fourteen for one mesh, ten for several.

A hypothetical report of one mesh has nine more, with what would change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.changes import KINDS, dialling
from pubsubd.topology.report.comparison import compare
from pubsubd.topology.report.data import MeshReport, Report
from pubsubd.topology.report.incident import findings
from pubsubd.topology.report.parts import Status
from pubsubd.topology.report.sections import in_order, sections_of, status_of
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import (
    NOTHING,
    count,
    duration,
    moment,
    number,
    percent,
    quantity,
    shorten,
    supposed,
)

LINES = 10
_ROOM = 40  # characters of a name


def terminal_summary(report: Report) -> list[str]:
    """Return the lines: of one mesh what matters most, of several a line each, the worst first.

    The texts have no control characters, whatever the names in the input are.
    """
    meshes = in_order(report)
    if not meshes:
        return [f"No mesh in {count(report.rows, 'row')}{_rejected(report)}."]
    first, *others = _one(meshes[0], report) if len(meshes) == 1 else _several(meshes, report)
    if said := supposed(report.without, report.added):
        first = f"{said}. {first}"
    return [first, *others]


def _one(mesh: MeshReport, report: Report) -> list[str]:
    facts = SnapshotView(mesh.snapshot)
    daemons = facts.whole("daemons")
    when = f", window of {moment(mesh.window)}" if mesh.window else ""
    entries = (
        *_incident(mesh, facts),
        ("partitions", _partitions(facts)),
        ("failure", _failure(facts)),
        ("coverage", _coverage(mesh)),
        ("one-sided", _one_sided(mesh, facts)),
        (
            "load",
            (
                f"mean {_value(facts, 'degree_mean')}, most {_value(facts, 'degree_max')} links per"
                f" daemon; {number(facts.whole('leaves'))} with one link"
            ),
        ),
        (
            "hops",
            (
                f"mean {_value(facts, 'hops_mean')}, 90 % within"
                f" {_value(facts, 'effective_diameter')}, diameter {_value(facts, 'diameter')}"
            ),
        ),
        (
            "resilience",
            (
                f"half is lost when {_value(facts, 'half_lost_targeted')} of the daemons fail,"
                f" hubs first (twin: {_value_or_why(facts, 'twin_half_lost_targeted')})"
            ),
        ),
        ("advice", _advice(mesh, facts)),
        ("read", f"{count(report.rows, 'row')}{_rejected(report)}"),
    )
    head = (
        f"{shorten(mesh.mesh, _ROOM)}: {count(daemons, 'daemon')},"
        f" {count(facts.whole('links'), 'link')}{when}"
    )
    return [head, *_changes(mesh), *(f"  {word:11} {text}" for word, text in entries)]


def _changes(mesh: MeshReport) -> list[str]:
    """Return what a hypothetical mesh changes, in columns."""
    rows = [("what if", "before", "after"), *compare(mesh)]
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    label, was, now = widths
    return [f"  {one:{label}}  {two:>{was}}  {three:>{now}}" for one, two, three in rows]


def _incident(mesh: MeshReport, facts: SnapshotView) -> list[tuple[str, str]]:
    """Return a line for each kind of what broke."""
    broke = [one for status, one in findings(mesh, facts) if status is Status.ACT]
    return [("incident", sentence) for sentence in broke]


def _several(meshes: Sequence[MeshReport], report: Report) -> list[str]:
    lines = [f"{count(len(meshes), 'mesh', 'meshes')}, {count(report.rows, 'row')}"]
    lines[0] += _rejected(report)
    found = []
    for mesh in meshes:
        facts = SnapshotView(mesh.snapshot)
        status = status_of(sections_of(mesh, facts, report.parameters))
        spof = len(facts.articulation) + len(facts.bridges)
        gone = len(mesh.incident.gone) if mesh.incident else 0
        text = (
            f"  {shorten(mesh.mesh, _ROOM)}: {count(facts.whole('daemons'), 'daemon')} in"
            f" {count(facts.whole('components'), 'part')},{f' {gone:,} gone,' if gone else ''}"
            f" {count(spof, 'single point of failure', 'single points of failure')}:"
            f" {status.word}"
        )
        found.append((-status, -gone, -spof, mesh.mesh, text))
    texts = [text for *_, text in sorted(found)]
    room = LINES - 1
    if len(texts) > room:
        texts[room - 1 :] = [f"  and {len(texts) - room + 1:,} more"]
    return lines + texts


def _value(facts: SnapshotView, name: str) -> str:
    """Return a metric's value, as a person reads it."""
    found = facts.metric(name)
    return quantity(found.value, METRICS[name].unit, found.error)


def _value_or_why(facts: SnapshotView, name: str) -> str:
    return facts.left_out(name) or _value(facts, name)


def _rejected(report: Report) -> str:
    bad = {reason: n for reason, n in sorted(report.rejects.items()) if n}
    if not bad:
        return ", none rejected"
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in bad.items())
    return f", {sum(bad.values()):,} rejected ({reasons})"


def _coverage(mesh: MeshReport) -> str:
    known = mesh.coverage
    if mesh.window is None or "exporters" not in known:
        return "a plain list does not say who reported its links"
    named = known.get("named", 0)
    text = f"{known['exporters']:,} of {count(named, 'daemon')} export{'s' * (named == 1)}"
    if known.get("age_seconds") is not None:
        text += f", longest silence {duration(known['age_seconds'])}"
    return text


def _partitions(facts: SnapshotView) -> str:
    parts, daemons = facts.whole("components"), facts.whole("daemons")
    if parts <= 1:
        return "none: every daemon reaches every other" if daemons else NOTHING
    return (
        f"{number(parts)} parts, {count(daemons - facts.whole('largest_component'), 'daemon')}"
        " apart from the largest"
    )


def _failure(facts: SnapshotView) -> str:
    spof, bridges = len(facts.articulation), len(facts.bridges)
    if not spof and not bridges:
        return "no loss of a single daemon or link can split the mesh"
    text = f"{count(spof, 'articulation daemon')}, {count(bridges, 'bridge')}"
    worst = facts.articulation.slice(0, 1).to_pylist()
    if worst:
        share = worst[0]["size"] / max(facts.whole("daemons"), 1)
        text += (
            f"; {shorten(worst[0]['id'], _ROOM)} cuts off {number(worst[0]['size'])}"
            f" ({percent(share)})"
        )
    return text


def _one_sided(mesh: MeshReport, facts: SnapshotView) -> str:
    if mesh.window is None:
        return "not judged in a plain list"
    return (
        f"{count(facts.whole('one_way_links'), 'link')} reported by one end only,"
        f" {len(mesh.asymmetric):,} whose ends differ"
    )


def _advice(mesh: MeshReport, facts: SnapshotView) -> str:
    links = facts.value("advice_links")
    if links is None:
        return f"{facts.metric('advice_links').why}"
    text = f"{count(links, 'new link')} would remove all single points of failure"
    for kind in KINDS:
        first = facts.advice(kind, 1)
        if first and (links or kind == "shortcut"):
            here, _, option = dialling(first[0], mesh.addresses)
            start = f"{text};" if links else "no links are needed; for shorter paths,"
            return f"{start} on {shorten(here, _ROOM)}: {option}"
    return "no links are needed"
