"""Conditions of a mesh that monitoring asks for."""

from __future__ import annotations

from pubsubd.topology.report.data import MeshReport
from pubsubd.topology.report.snapshot_view import SnapshotView


def conditions_of(mesh: MeshReport) -> frozenset[str]:
    """Return those of :data:`pubsubd.topology.parameters.CONDITIONS` that hold."""
    facts, incident = SnapshotView(mesh.snapshot), mesh.incident
    found = {
        "partition": facts.whole("components") > 1,
        "spof": bool(facts.value("articulation_daemons") or facts.value("bridges")),
        "one-sided": mesh.one_sided.num_rows > 0,
        "left": incident is not None and bool(incident.gone),
        "new-spof": incident is not None
        and bool(incident.new_articulation or incident.new_bridges),
    }
    return frozenset(name for name, holds in found.items() if holds)
