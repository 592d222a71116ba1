"""Links of one file, collected by number and written as Parquet.

An arc takes 8 bytes of memory, 16 with a weight; a daemon takes its name and about 150 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pubsubd.topology.formats.errors import FormatError

ARCS = pa.schema(
    [
        ("file", pa.string()),
        ("mesh", pa.string()),
        ("src", pa.string()),
        ("dst", pa.string()),
        ("weight", pa.float64()),
        ("reason", pa.string()),
        ("line", pa.string()),
    ]
)
"""Rows of a converted file: arcs, of which one without ``dst`` tells only that ``src`` exists; and
rejected rows, with the ``reason`` and the ``line``."""

MOST_ARCS = 100_000_000
"""Arcs of one file at most: 1 GB of memory, or 2 GB with weights."""

MOST_DAEMONS = 10_000_000
"""Daemons of one file at most: 1.5 GB of memory."""

MOST_REJECTED = 0.1
"""Share of rejected rows from which on a file is taken for something else."""

_KEPT = 10_000  # rejected rows of a file whose lines are kept
_SHOWN = 400  # characters of such a line
_GROUP = 1 << 20  # rows written at once


class Links:
    """Collector of the links of a graph.

    Daemons are known by their ids in the file. They get their labels as names if all of them have
    one and no two have the same.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._numbers: dict[str, int] = {}
        self._labels: dict[int, str] = {}
        self._tails = array("i")
        self._heads = array("i")
        self._weights = array("d")
        self._rejected: dict[str, int] = {}
        self._lines: list[tuple[str, str]] = []

    def daemon(self, name: str, label: str | None = None) -> int:
        """Return the number of a daemon, which exists from now on.

        Raises:
            FormatError: the name is empty, or there are over :data:`MOST_DAEMONS`.
        """
        if not name:
            raise FormatError("a daemon has no name")
        number = self._numbers.setdefault(name, len(self._numbers))
        if number >= MOST_DAEMONS:
            self.expect(number + 1)
        if label:
            self._labels[number] = label
        return number

    def ids(self) -> list[str]:
        """Return the ids of the daemons, in the order of their numbers."""
        return list(self._numbers)

    def expect(self, daemons: int) -> None:
        """Check how many daemons a file says that it has.

        Raises:
            FormatError: there are over :data:`MOST_DAEMONS`.
        """
        if daemons > MOST_DAEMONS:
            raise FormatError(f"it has over {MOST_DAEMONS:,} daemons")

    def add(
        self, src: str, dst: str, *, both_ways: bool = False, weight: float | None = None
    ) -> None:
        """Add an arc, or a link that both ends have.

        Raises:
            FormatError: an end has no name, or there are over :data:`MOST_ARCS`.
        """
        tail, head = self.daemon(src), self.daemon(dst)
        self.rows += 1
        for one, two in ((tail, head), (head, tail))[: 1 + (both_ways and tail != head)]:
            self._tails.append(one)
            self._heads.append(two)
            if weight is not None:
                self._weights.append(weight)
        if len(self._tails) > MOST_ARCS:
            raise FormatError(f"it has over {MOST_ARCS:,} arcs")

    def reject(self, reason: str, line: str) -> None:
        """Count a row that cannot be used, with a reason of ``cleaning``."""
        self.rows += 1
        self._rejected[reason] = self._rejected.get(reason, 0) + 1
        if len(self._lines) < _KEPT:
            self._lines.append((reason, line[:_SHOWN]))

    def check(self, *, lenient: bool) -> None:
        """Check that most rows were good.

        Raises:
            FormatError: too many rows were rejected; with ``lenient``, over 10,000 were.
        """
        bad = sum(self._rejected.values())
        if bad > _KEPT or (not lenient and bad > MOST_REJECTED * self.rows):
            why = ", ".join(f"{count:,} {reason}" for reason, count in self._rejected.items())
            raise FormatError(f"{bad:,} of its {self.rows:,} rows are no links ({why})")

    def write(self, target: Path, file: str, mesh: str) -> None:
        """Write :data:`ARCS`.

        Args:
            target: the Parquet file.
            file: path of the file that was read, for people.
            mesh: its name.

        Raises:
            FormatError: a name is no text.
            OSError: it cannot be written.
        """
        names = self._names()
        tails, heads = (np.frombuffer(one, np.int32) for one in (self._tails, self._heads))
        linked = np.zeros(len(names), bool)
        linked[tails] = linked[heads] = True
        alone = np.flatnonzero(~linked)
        weights = np.frombuffer(self._weights, np.float64)
        with pq.ParquetWriter(target, ARCS, compression="zstd") as writer:

            def put(rows: int, **columns: pa.Array) -> None:
                known = {"file": file, "mesh": mesh}
                arrays = [
                    columns[field.name]
                    if field.name in columns
                    else pa.repeat(pa.scalar(known.get(field.name), field.type), rows)
                    for field in ARCS
                ]
                writer.write_table(pa.table(arrays, schema=ARCS))

            for start in range(0, len(tails), _GROUP):
                part = slice(start, start + _GROUP)
                more = {"weight": pa.array(weights[part])} if len(weights) == len(tails) else {}
                src, dst = names.take(pa.array(tails[part])), names.take(pa.array(heads[part]))
                put(len(src), src=src, dst=dst, **more)
            if len(alone):
                put(len(alone), src=names.take(pa.array(alone)))
            if self._lines:
                reasons, lines = zip(*self._lines, strict=True)
                put(len(lines), reason=pa.array(reasons), line=pa.array(lines))

    def _names(self) -> pa.Array:
        labels = self._labels
        names: Iterable[str] = self._numbers
        if len(labels) == len(self._numbers) == len(set(labels.values())):
            names = [labels[number] for number in range(len(labels))]
        try:
            return pa.array(names, pa.string())
        except UnicodeEncodeError as error:  # a lone surrogate, which JSON can have
            raise FormatError("a name is no text in UTF-8") from error
