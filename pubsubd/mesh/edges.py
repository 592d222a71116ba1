"""Edge lists: the links of a mesh as rows, in JSON lines, CSV or Parquet.

A row is one daemon's report of one link; that daemon is the ``observer``. Each link has two ends,
so there are two rows of it. All formats have the same columns in the same order.

Nothing here needs a daemon, a network or a terminal.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
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
    arrow, _ = _arrow()
    rows = list(rows)
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in COLUMNS}
    for name in _TIMES:
        columns[name] = [_parse_time(text) for text in columns[name]]
    write_parquet_tables([arrow.table(columns, schema=_schema(arrow))], file)


def write_parquet_tables(tables: Iterable[Any], file: BinaryIO) -> None:
    """Write Arrow's tables, each as a row group; columns get the types of :func:`write_parquet`."""
    arrow, parquet = _arrow()
    schema = _schema(arrow)
    # Counters and times grow from row to row; this takes half the room of what is usual.
    growing = [name for name, kind in COLUMNS.items() if kind in ("timestamp", "bigint")]
    with parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=9,
        use_dictionary=[name for name in COLUMNS if name not in growing],
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    ) as writer:
        for table in tables:
            writer.write_table(table.select(schema.names).cast(schema))


def parse_lines(lines: bytes) -> Any:
    """Return lines of :func:`write_jsonl` as a table for :func:`write_parquet_tables`.

    Raises:
        EdgesError: pyarrow is not installed, or something differs from what a daemon writes.
    """
    arrow, _ = _arrow()
    reader: Any = import_module("pyarrow.json")
    schema = _schema(arrow)
    texts = arrow.schema(
        [
            arrow.field(one.name, arrow.string() if one.name in _TIMES else one.type)
            for one in schema
        ]
    )
    try:
        found = reader.read_json(
            io.BytesIO(lines),
            reader.ReadOptions(use_threads=False, block_size=len(lines)),
            reader.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore"),
        )
        table = found.select(schema.names).cast(schema)
    except (arrow.ArrowException, ValueError, KeyError) as exc:
        raise EdgesError(f"rows are not those of a daemon: {exc}") from exc
    if not lines.isascii() or any(
        table[name].null_count for name in COLUMNS if name not in OPTIONAL
    ):
        raise EdgesError("rows are not those of a daemon")
    return table


def read_parquet_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of :func:`write_jsonl` for the rows of a file of :func:`write_parquet`.

    Raises:
        EdgesError: pyarrow is not installed, or the file is none, or not whole.
        OSError: it cannot be read.
    """
    arrow, parquet = _arrow()
    compute: Any = import_module("pyarrow.compute")
    try:
        with path.open("rb") as opened, parquet.ParquetFile(opened) as file:
            for batch in file.iter_batches(_READ, columns=list(COLUMNS)):
                table = arrow.table(batch)
                for name in _TIMES:
                    texts = compute.strftime(table[name], "%Y-%m-%dT%H:%M:%SZ")
                    table = table.set_column(table.column_names.index(name), name, texts)
                yield from map(format_row, table.to_pylist())
    except (arrow.ArrowException, KeyError) as exc:
        raise EdgesError(f"{path.name}: {exc}") from exc


_TIMES = tuple(name for name, kind in COLUMNS.items() if kind == "timestamp")
_READ = 10_000  # rows that are held at once


def _arrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet.

    Raises:
        EdgesError: pyarrow is not installed.
    """
    try:
        # By name: whether it has types, and whether it is there, differs.
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as exc:
        raise EdgesError(
            f"Parquet needs pyarrow ({exc}); install it with: pip install '.[parquet]',"
            " in a checkout of pubsubd"
        ) from exc


def _schema(arrow: Any) -> Any:
    types = {
        "timestamp": arrow.timestamp("ms", tz="UTC"),
        "string": arrow.string(),
        "double": arrow.float64(),
        "bigint": arrow.int64(),
    }
    return arrow.schema(
        [
            arrow.field(name, types[kind], nullable=name in OPTIONAL)
            for name, kind in COLUMNS.items()
        ]
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
