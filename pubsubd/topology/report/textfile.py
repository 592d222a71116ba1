"""The latest window of each mesh for Prometheus, by the textfile collector of node-exporter."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.parameters import CONDITIONS
from pubsubd.topology.report.conditions import conditions_of
from pubsubd.topology.report.data import Report
from pubsubd.topology.report.sections import in_order
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import visible

PREFIX = "pubsubd_topology_"
"""What the names of all metrics begin with."""


def exposition(report: Report) -> bytes:
    """Return the metrics of all meshes in the text format of Prometheus.

    What could not be computed is left out, so that no alert takes it for a zero; so are metrics of
    the twin, which are there to be looked at.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Findings(report))
    return generate_latest(registry)


class _Findings(Collector):
    def __init__(self, report: Report) -> None:
        self._meshes = [
            (visible(mesh.mesh), mesh, SnapshotView(mesh.snapshot)) for mesh in in_order(report)
        ]

    def collect(self) -> Iterator[Metric]:
        window = GaugeMetricFamily(
            f"{PREFIX}window_start_timestamp_seconds",
            "When the latest window began; without it for a list without times.",
            labels=["mesh"],
        )
        holds = GaugeMetricFamily(
            f"{PREFIX}condition",
            "1 if a condition of --fail-on holds, else 0.",
            labels=["mesh", "condition"],
        )
        for name, mesh, _ in self._meshes:
            if mesh.window is not None:
                window.add_metric([name], mesh.window.timestamp())
            found = conditions_of(mesh)
            for condition in CONDITIONS:
                holds.add_metric([name, condition], condition in found)
        yield window
        yield holds
        for key, metric in METRICS.items():
            if key.startswith("twin_"):
                continue
            family = GaugeMetricFamily(
                PREFIX + key, f"{metric.label} ({metric.unit}).", labels=["mesh"]
            )
            for name, _, facts in self._meshes:
                value = facts.value(key)
                if value is not None:
                    family.add_metric([name], value)
            yield family
