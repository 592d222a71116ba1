"""Edge lists: the links of a mesh as rows, in JSON lines, CSV or Parquet.

A row is one daemon's report of one link; that daemon is the ``observer``. Each link has two ends,
so there are two rows of it. All formats have the same columns in the same order.

Nothing here needs a daemon, a network or a terminal.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any, BinaryIO, TypeAlias

from pubsubd.protocol.errors import PubsubdError

COLUMNS = {
    "ts": "timestamp",
    "mesh": "string",
    "observer": "string",
    "src": "string",
    "dst": "string",
    "state": "string",
    "since": "timestamp",
    "rtt_ms": "double",
    "messages": "bigint",
    "bytes": "bigint",
    "address": "string",
    "version": "string",
    "site": "string",
    "rack": "string",
    "actors": "bigint",
    "hub_connections": "bigint",
}
"""Column -> type, as Spark's SQL calls it. ``src`` has dialled ``dst``; ``state`` is up or down;
the columns after ``bytes`` are the observer's.

In JSON and CSV a timestamp is a text, as ``2026-11-28T06:00:00.000Z``, always UTC.
"""

ABOUT = ("address", "version", "site", "rack")
"""Columns that say where the observer is, and what."""

LATER = (*ABOUT, "actors", "hub_connections")
"""Columns that a file of an earlier version lacks, the last ones: a reader takes them for null."""

REQUIRED = tuple(name for name in COLUMNS if name not in LATER)
"""Columns that each file has."""

OPTIONAL = frozenset({"rtt_ms", *LATER})
"""Columns that may be null, which is empty in CSV."""

HEADERS = tuple(",".join([*REQUIRED, *LATER[:more]]) for more in range(len(LATER), -1, -1))
"""First lines that a CSV file may have, that of this version first."""

Row: TypeAlias = Mapping[str, Any]
"""A value for each of :data:`COLUMNS`, as in JSON: timestamps are texts."""


class EdgesError(PubsubdError):
    """Rows that cannot be written or read, in one line."""


# Formats


def write_jsonl(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write one JSON object a line. All of it is printable ASCII but for the line feeds."""
    file.writelines(map(format_row, rows))


def format_row(row: Row) -> bytes:
    """Return the line of :func:`write_jsonl` for one row."""
    text = json.dumps({name: row[name] for name in COLUMNS})
    return text.replace("\x7f", "\\u007f").encode() + b"\n"


def write_csv(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write a line with the columns' names and one for each row, in UTF-8."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([row[name] for name in COLUMNS] for row in rows)
    finally:
        text.detach()  # it would close the file


def write_parquet(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write a Parquet file; timestamps have milliseconds and are UTC.

    Raises:
        EdgesError: pyarrow is not installed, or a timestamp is none.
    """
    try:
        # By name: whether it has types, and whether it is there, differs.
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as exc:
        raise EdgesError(
            f"Parquet needs pyarrow ({exc}); install it with: pip install '.[parquet]',"
            " in a checkout of pubsubd"
        ) from exc
    types = {
        "timestamp": arrow.timestamp("ms", tz="UTC"),
        "string": arrow.string(),
        "double": arrow.float64(),
        "bigint": arrow.int64(),
    }
    fields = [
        arrow.field(name, types[kind], nullable=name in OPTIONAL) for name, kind in COLUMNS.items()
    ]
    rows = list(rows)
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in COLUMNS}
    for name, kind in COLUMNS.items():
        if kind == "timestamp":
            columns[name] = [_parse_time(text) for text in columns[name]]
    # Counters and times grow from row to row; this takes half the room of what is usual.
    growing = [name for name, kind in COLUMNS.items() if kind in ("timestamp", "bigint")]
    parquet.write_table(
        arrow.table(columns, schema=arrow.schema(fields)),
        file,
        compression="zstd",
        compression_level=9,
        use_dictionary=[name for name in COLUMNS if name not in growing],
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    )


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise EdgesError(f"{text[:80]!r} is not a time") from None


FORMATS: dict[str, Callable[[Iterable[Row], BinaryIO], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}
"""Name of a format -> what writes rows to a binary file."""
