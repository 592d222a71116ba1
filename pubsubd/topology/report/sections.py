"""All sections of a mesh, in the order in which an operator reads them, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pubsubd.topology.report import breaks, changes, places, reach
from pubsubd.topology.report.data import MeshReport, Report
from pubsubd.topology.report.incident import findings
from pubsubd.topology.report.parts import Section, Status
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import count, number, percent, visible


def sections_of(mesh: MeshReport, facts: SnapshotView, parameters: dict[str, Any]) -> list[Section]:
    """Return the sections of one mesh.

    Args:
        mesh: what is known of it.
        facts: its snapshot.
        parameters: of the run: ``stale_seconds``, and ``ttl``, hops, are used if they are there.
    """
    return [
        breaks.coverage(mesh, facts, parameters),
        breaks.partitions(mesh, facts),
        breaks.single_points(facts),
        places.domains(mesh),
        breaks.asymmetry(mesh, facts),
        breaks.overload(facts),
        reach.hops(facts, parameters),
        places.round_trips(mesh),
        reach.redundancy(facts),
        reach.resilience(facts),
        reach.twin(facts),
        changes.links_to_add(mesh, facts),
        changes.churn(mesh),
        reach.clustering(facts),
    ]


def status_of(sections: Sequence[Section]) -> Status:
    """Return the status of a mesh: that of its worst section."""
    return max((section.status for section in sections), default=Status.UNKNOWN)


def by_need(sections: Sequence[Section]) -> list[Section]:
    """Return the sections that ask for something first; of equals, in the order of reading."""
    return sorted(sections, key=lambda section: -section.status)


def verdict(mesh: MeshReport, facts: SnapshotView) -> str:
    """Return the verdict for an operator: what broke, and what could break next."""
    broke = [sentence for status, sentence in findings(mesh, facts) if status is Status.ACT]
    return " ".join([*broke, structure(facts)])


def structure(facts: SnapshotView) -> str:
    """Return what could break, in one sentence or two."""
    daemons, parts = facts.whole("daemons"), facts.whole("components")
    if not daemons:
        return "There is no daemon."
    said = []
    if parts > 1:
        largest = facts.whole("largest_component")
        said.append(
            f"The mesh is in {count(parts, 'part')}: {number(daemons - largest)} of"
            f" {count(daemons, 'daemon')} cannot reach the largest one."
        )
    worst = facts.articulation.slice(0, 1).to_pylist()
    if worst:
        size = worst[0]["size"]
        said.append(
            f"The loss of {visible(worst[0]['id'])} alone would cut off {count(size, 'daemon')}"
            f" ({percent(size / daemons)}), and there {_are(len(facts.articulation) - 1)}."
        )
    elif len(facts.bridges):
        said.append(
            f"The loss of a single link can split the mesh: there {_bridges(len(facts.bridges))}."
        )
    elif parts == 1:
        said.append("No loss of a single daemon or link can split the mesh.")
    return " ".join(said)


def _are(others: int) -> str:
    return (
        "is no other such daemon"
        if not others
        else f"{'is' if others == 1 else 'are'} {count(others, 'more such daemon')}"
    )


def _bridges(bridges: int) -> str:
    return f"{'is' if bridges == 1 else 'are'} {count(bridges, 'bridge')}"


def in_order(report: Report) -> list[MeshReport]:
    """Return the meshes, those with most daemons first; of equals by their names."""
    return sorted(
        report.meshes, key=lambda one: (-SnapshotView(one.snapshot).whole("daemons"), one.mesh)
    )
