"""Look-up in the rows of a snapshot, by kind.

All orders are total, so they do not depend on the order of the rows: what is worst comes first,
and of equals the one whose name is first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Row = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """A metric's value; ``error`` is None where it is exact; without a value, ``why`` says why."""

    value: float | None
    error: float | None = None
    why: str | None = None


_LEFT_OUT = "not computed"  # what the reasons begin with
_UNKNOWN = Value(None, None, _LEFT_OUT)


class SnapshotView:
    """The snapshot of one mesh.

    Args:
        snapshot: rows as in :class:`~pubsubd.topology.report.data.MeshReport`.
    """

    def __init__(self, snapshot: pa.Table) -> None:
        self._snapshot = snapshot

    def table(self, kind: str, *order: tuple[str, str], name: str | None = None) -> pa.Table:
        """Return the rows of one kind, sorted.

        Args:
            kind: of the rows.
            order: columns and ``ascending`` or ``descending``.
            name: only those with this name.
        """
        wanted = pc.equal(self._snapshot["kind"], kind)
        if name is not None:
            wanted = pc.and_(wanted, pc.equal(self._snapshot["name"], name))
        rows = self._snapshot.filter(wanted)
        return rows.sort_by(list(order)) if order and len(rows) > 1 else rows

    @cached_property
    def metrics(self) -> dict[str, Value]:
        """Name -> value."""
        rows = self.table("metric", ("name", "ascending")).select(
            ["name", "value", "error", "text"]
        )
        return {
            row["name"]: Value(_finite(row["value"]), _finite(row["error"]), row["text"])
            for row in rows.to_pylist()
        }

    def metric(self, name: str) -> Value:
        """Return a metric's value, without one where the snapshot has no such row."""
        return self.metrics.get(name, _UNKNOWN)

    def value(self, name: str) -> float | None:
        """Return the value of :meth:`metric` alone."""
        return self.metric(name).value

    def left_out(self, name: str) -> str | None:
        """Return why a metric was not computed; None if it was, or if there is no such figure."""
        why = self.metrics.get(name, Value(0)).why
        return why if why is not None and why.startswith(_LEFT_OUT) else None

    def whole(self, name: str) -> int:
        """Return a count; 0 where it is not known."""
        return int(self.value(name) or 0)

    @cached_property
    def articulation(self) -> pa.Table:
        """``id, size``: articulation daemons and how many each cuts off, the worst first."""
        rows = self.table("articulation", ("size", "descending"), ("id", "ascending"))
        return rows.select(["id", "size"])

    @cached_property
    def bridges(self) -> pa.Table:
        """``id, other, size``: bridges and how many daemons each cuts off, the worst first."""
        order = (("size", "descending"), ("id", "ascending"), ("other", "ascending"))
        return self.table("bridge", *order).select(["id", "other", "size"])

    @cached_property
    def cut(self) -> list[tuple[str, str]]:
        """The links of the minimum cut."""
        rows = self.table("cut", ("id", "ascending"), ("other", "ascending"))
        return list(zip(rows["id"].to_pylist(), rows["other"].to_pylist(), strict=True))

    @cached_property
    def daemons(self) -> pa.Table:
        """All daemons, by name."""
        return self.table("daemon", ("id", "ascending"))

    def worst_daemons(self, column: str, most: int) -> list[Row]:
        """Return the daemons where ``column`` is largest, at most so many."""
        order = [(column, "descending"), ("id", "ascending")]
        chosen = pc.select_k_unstable(self.daemons, k=most, sort_keys=order)
        # Of equals, which ones are taken is settled by the name, which is in the key.
        return list(self.daemons.take(chosen).to_pylist())

    def degrees(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the number of links of each of these daemons."""
        wanted = pc.is_in(self.daemons["id"], value_set=pa.array(list(ids), pa.string()))
        rows = self.daemons.filter(wanted)
        return dict(zip(rows["id"].to_pylist(), rows["degree"].to_pylist(), strict=True))

    def regions_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the region of each of these daemons that has one."""
        wanted = pc.is_in(self.daemons["id"], value_set=pa.array(list(ids), pa.string()))
        rows = self.daemons.filter(wanted)
        return dict(zip(rows["id"].to_pylist(), rows["region"].to_pylist(), strict=True))

    def daemons_where(self, column: str, value: int, most: int) -> tuple[int, list[str]]:
        """Return the number of daemons with ``value`` there, and the names of the first ones."""
        ids = self.daemons.filter(pc.equal(self.daemons[column], value))["id"]
        return len(ids), ids[:most].to_pylist()

    def component_sizes(self, most: int) -> list[tuple[int, int]]:
        """Return the largest components: label and daemons."""
        sizes = self.daemons.group_by("component").aggregate([("id", "count")])
        sizes = sizes.sort_by([("id_count", "descending"), ("component", "ascending")])
        rows = sizes.slice(0, most).to_pylist()
        return [(row["component"], row["id_count"]) for row in rows]

    def small_components(self, most: int, names: int) -> list[tuple[int, list[str]]]:
        """Return the components but for the largest: daemons, and the names of some of them."""
        return [
            self.daemons_where("component", label, names)
            for label, _ in self.component_sizes(most + 1)[1:]
        ]

    def histogram(self, name: str) -> list[tuple[float, float]]:
        """Return ``(x, count)`` by ``x``."""
        return list(self._points("histogram", name))

    def curve(self, name: str) -> list[tuple[float, float]]:
        """Return ``(share removed, share left)`` by the first."""
        return list(self._points("curve", name))

    def _points(self, kind: str, name: str) -> Iterator[tuple[float, float]]:
        rows = self.table(kind, ("x", "ascending"), name=name)
        return zip(rows["x"].to_pylist(), rows["value"].to_pylist(), strict=True)

    def advice(self, name: str, most: int | None = None) -> list[Row]:
        """Return advised links of one kind by their rank: ``rank, id, other, value, text``."""
        rows = self.table("advice", ("rank", "ascending"), name=name)
        return list(
            rows.select(["rank", "id", "other", "value", "text"]).slice(0, most).to_pylist()
        )

    def advised(self, name: str) -> int:
        """Return the number of advised links of one kind."""
        return len(self.table("advice", name=name))

    @cached_property
    def map_nodes(self) -> list[Row]:
        """The marks of the mesh's picture: ``id, text, name, x, y, size, value``."""
        rows = self.table("map_node", ("size", "descending"), ("id", "ascending"))
        return list(rows.select(["id", "text", "name", "x", "y", "size", "value"]).to_pylist())

    @cached_property
    def map_links(self) -> list[Row]:
        """The lines of the mesh's picture: ``id, other, name, size``."""
        rows = self.table("map_link", ("id", "ascending"), ("other", "ascending"))
        return list(rows.select(["id", "other", "name", "size"]).to_pylist())


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
