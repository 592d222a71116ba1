"""Facts about a graph, of all kinds, as rows of one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()

SCHEMA = pa.schema(
    [
        ("kind", _TEXT),
        ("id", _TEXT),
        ("other", _TEXT),
        ("name", _TEXT),
        ("rank", _WHOLE),
        ("x", _REAL),
        ("y", _REAL),
        ("size", _WHOLE),
        ("value", _REAL),
        ("error", _REAL),
        ("text", _TEXT),
        ("degree", _WHOLE),
        ("in_degree", _WHOLE),
        ("out_degree", _WHOLE),
        ("component", _WHOLE),
        ("region", _WHOLE),
        ("core", _WHOLE),
        ("cut_off", _WHOLE),
        ("clustering", _REAL),
        ("pagerank", _REAL),
        ("betweenness", _REAL),
        ("betweenness_error", _REAL),
    ]
)
"""The columns of facts; those that a kind has no use for are null.

============ ==========================================================================
metric       ``name``; ``value``, null with the reason in ``text`` where there is none;
             ``error``, null where it is exact
daemon       ``id``, and all from ``degree`` on
articulation ``id``; ``size``: daemons it cuts off
bridge       ``id``, ``other``: its ends; ``size``: daemons it cuts off
cut          ``id``, ``other``: a link of the minimum cut
histogram    ``name``; ``x``: a value; ``value``: how many have it
curve        ``name``; ``x``: share removed; ``value``: share in the largest component
advice       ``name``: join, redundancy, bridge or shortcut; ``rank`` from 1; ``id``,
             ``other``: ends; ``value``: its effect; ``error``; ``text``: the same in words
map_node     ``id``: a key; ``text``: label; ``name``: role; ``x``, ``y``: 0 to 1;
             ``size``: daemons; ``value``: daemons it cuts off
map_link     ``id``, ``other``: keys; ``name``: role; ``size``: links
============ ==========================================================================
"""


@dataclass
class FactTable:
    """Collector of rows of :data:`SCHEMA`."""

    tables: list[pa.Table] = field(default_factory=list)
    metrics: list[tuple[str, float | None, float | None, str | None]] = field(default_factory=list)

    def metric(
        self, name: str, value: float | None, error: float | None = None, why: str = ""
    ) -> None:
        """Add a metric; NaN is no value."""
        if value is not None and math.isnan(value):
            value, why = None, why or "there are too few daemons"
        self.metrics.append(
            (
                name,
                None if value is None else float(value),
                None if value is None else error,
                None if value is not None else why,
            )
        )

    def rows(self, kind: str, columns: Mapping[str, Any]) -> None:
        """Add rows of a kind: arrays, lists, or one value for all rows."""
        count = max(len(one) for one in columns.values() if not isinstance(one, str | None))
        arrays = []
        for one in SCHEMA:
            given = kind if one.name == "kind" else columns.get(one.name)
            if given is None:
                arrays.append(pa.nulls(count, one.type))
            elif isinstance(given, str):
                arrays.append(pa.repeat(pa.scalar(given, one.type), count))
            elif isinstance(given, pa.Array):
                arrays.append(given)
            else:
                arrays.append(pa.array(given, one.type))
        self.tables.append(pa.table(arrays, schema=SCHEMA))

    def histogram(self, name: str, values: Any, counts: Any) -> None:
        """Add how many have each value."""
        reals = [np.asarray(one).astype(np.float64) for one in (values, counts)]
        self.rows("histogram", {"name": name, "x": reals[0], "value": reals[1]})

    def table(self) -> pa.Table:
        """Return all rows; equal facts make equal tables."""
        names, values, errors, reasons = zip(*self.metrics, strict=True)
        self.rows("metric", {"name": names, "value": values, "error": errors, "text": reasons})
        return pa.concat_tables(self.tables).combine_chunks()
