"""Edge lists: the links of a mesh as rows, in JSON lines, CSV or Parquet.

A row is one daemon's report of one link; that daemon is the ``observer``. Each link has two ends,
so there are two rows of it. All formats have the same columns in the same order.

Nothing here needs a daemon, a network or a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
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
}
"""Column -> type, as Spark's SQL calls it. ``src`` has dialled ``dst``; ``state`` is up or down;
the columns after ``bytes`` are the observer's.

In JSON and CSV a timestamp is a text, as ``2026-11-28T06:00:00.000Z``, always UTC.
"""

LATER = ("address", "version", "site", "rack")
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
    parquet.write_table(arrow.table(columns, schema=arrow.schema(fields)), file)


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


# A directory


_NAME = re.compile(r"edges-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z\.jsonl").fullmatch
_PART = re.compile(r"\.edges-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z\.jsonl\.part").fullmatch
_STALE = 3600.0  # seconds after which a file that is not complete will not be any more


class Exporter:
    """Edge lists in a directory: ``edges-<yyyymmddThhmmss.mmmZ>.jsonl``, the times being UTC.

    - A file is there completely or not at all. It is never written over, nor is any other.
    - At most ``keep`` of them stay: each one written removes the oldest by their names. Files with
      other names are left alone, and so is what is no plain file.

    Args:
        directory: made when it is not there.
        keep: files, 1 or more.
    """

    def __init__(self, directory: Path | str, keep: int = 1_000) -> None:
        if keep < 1:
            raise ValueError(f"{keep} files cannot be kept")
        self._directory = Path(directory)
        self._keep = keep

    def write(self, rows: Iterable[Row], now: float) -> Path:
        """Write ``rows`` and return the file, named after ``now``, seconds since the epoch.

        A millisecond that another file has already is left to it, and a later one taken.

        Raises:
            OSError: the file could not be written, or old ones not be removed; its text tells
                which, where and why.
        """
        return self.write_lines(b"".join(map(format_row, rows)), now)

    def write_lines(self, lines: bytes, now: float) -> Path:
        """Write rows as :meth:`write` does that are lines of JSON already.

        Raises:
            OSError: as :meth:`write`.
        """
        with self._failing("an edge list cannot be written to"):
            self._directory.mkdir(parents=True, exist_ok=True)
            while (path := self._try_write(lines, now)) is None:
                now += 0.001
        with self._failing("old edge lists cannot be removed from"):
            self._remove_old(path.name, f".{_name(now - _STALE)}.part")
        return path

    def _try_write(self, data: bytes, now: float) -> Path | None:
        """Return the file, or None if there is one of that name.

        Who has made the ``.part`` has the name, until it is renamed or removed.
        """
        path = self._directory / _name(now)
        part = self._directory / f".{path.name}.part"
        try:
            file = part.open("xb")
        except FileExistsError:
            return None
        try:
            with file:
                if os.path.lexists(path):
                    part.unlink()
                    return None
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # or the name could outlive a power cut without the data
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return path

    def _remove_old(self, written: str, stale: str) -> None:
        """Remove the oldest but never ``written``, even if the clock was turned back."""
        others = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                if _NAME(entry.name) and entry.name != written:
                    others.append(entry.name)
                elif _PART(entry.name) and entry.name < stale:
                    (self._directory / entry.name).unlink(missing_ok=True)
        for name in sorted(others, reverse=True)[self._keep - 1 :]:
            (self._directory / name).unlink(missing_ok=True)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(f"{what} {str(self._directory)!r}: {why}") from error


def _name(now: float) -> str:
    at = datetime.fromtimestamp(now, UTC)
    return f"edges-{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z.jsonl"
