"""Metrics of a mesh as it was reported, beside those of the mesh that is supposed."""

from __future__ import annotations

from collections.abc import Iterator

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.data import MeshReport
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import quantity

MAIN = (
    "daemons",
    "links",
    "components",
    "articulation_daemons",
    "bridges",
    "worst_cut_off",
    "hops_mean",
    "advice_links",
)
"""Metrics that are compared in any case."""


def compare(mesh: MeshReport, names: tuple[str, ...] = MAIN) -> Iterator[tuple[str, str, str]]:
    """Yield the label of each metric, and its value before and after, as a person reads them.

    Args:
        mesh: nothing is yielded if it is not hypothetical.
        names: of metrics.
    """
    if mesh.before is None:
        return
    before, after = SnapshotView(mesh.before), SnapshotView(mesh.snapshot)
    for name in names:
        unit = METRICS[name].unit
        was, now = before.metric(name), after.metric(name)
        yield (
            METRICS[name].label,
            quantity(was.value, unit, was.error),
            quantity(now.value, unit, now.error),
        )


def differing(mesh: MeshReport) -> tuple[str, ...]:
    """Return the metrics to show: the main ones, and others that have changed."""
    if mesh.before is None:
        return ()
    before, after = SnapshotView(mesh.before), SnapshotView(mesh.snapshot)
    changed = [name for name in METRICS if before.value(name) != after.value(name)]
    return (*MAIN, *(name for name in changed if name not in MAIN))
