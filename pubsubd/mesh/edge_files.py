"""The files of a directory that edge lists are exported to: their names, and how they are written.

======================================= =====================================================
``edges-<yyyymmdd>T<hhmmss.mmm>Z.jsonl`` one edge list
``edges-<yyyymmdd>T<hh>Z.parquet``       all of an hour
``edges-<yyyymmdd>Z.parquet``            what a day needs, see :mod:`pubsubd.mesh.compaction`
======================================= =====================================================

The last two end with ``.jsonl.gz`` where pyarrow is not installed. All times are UTC. The order of
the names is that of the times, and a file sorts after those that it supersedes.

Invariants:

- A file is there completely or not at all, and is never written over.
- What an hour or a day has is decided by names alone (:func:`superseded`): whoever lists the
  directory sees each row once, whatever is being compacted. So no file gets a name that is
  superseded already; ``-late`` stands in the name of one that would have (a clock was turned back).
- Files with other names are left alone, and so is what is no plain file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from pubsubd.mesh.edges import Row, format_row

STALE = 3600.0
"""Seconds after which a file that is not complete will not be any more."""

PACKED = ("parquet", "jsonl.gz")
"""Endings of the files of hours and days."""

_LIST = re.compile(r"edges-([0-9]{8}T[0-9]{2})[0-9]{4}\.[0-9]{3}Z\.jsonl").fullmatch
_LATE = re.compile(r"edges-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-late\.jsonl").fullmatch
_HOUR = re.compile(r"edges-([0-9]{8}T[0-9]{2})Z\.(?:jsonl\.gz|parquet)").fullmatch
_DAY = re.compile(r"edges-([0-9]{8})Z\.(?:jsonl\.gz|parquet)").fullmatch


def is_ours(name: str) -> bool:
    """Tell whether a file of this name, or of its ``.part``, is one of those above."""
    return any(is_one(whole_name(name)) for is_one in (_LIST, _LATE, _HOUR, _DAY))


def whole_name(name: str) -> str:
    """Return the name that a file has, or gets once it is complete."""
    return name[1 : -len(".part")] if is_part(name) else name


def is_part(name: str) -> bool:
    """Tell whether this is the name of a file that is being written."""
    return name.startswith(".") and name.endswith(".part")


def hour_of_list(name: str) -> str | None:
    """Return the hour of an edge list, as ``20261128T06``; None if the name is of no such file."""
    found = _LIST(name)
    return found[1] if found else None


def hour_of_hour(name: str) -> str | None:
    """Return the hour of a file with all of an hour; None if the name is of no such file."""
    found = _HOUR(name)
    return found[1] if found else None


def day_of_day(name: str) -> str | None:
    """Return the day of a file for a day, as ``20261128``; None if the name is of no such file."""
    found = _DAY(name)
    return found[1] if found else None


def times_of(name: str) -> tuple[datetime, datetime] | None:
    """Return between which times the rows of a file were told; None if its name does not say so."""
    hour, day = hour_of_list(name) or hour_of_hour(name), day_of_day(name)
    text, length = (hour, timedelta(hours=1)) if hour else (f"{day}T00", timedelta(days=1))
    try:
        began = datetime.strptime(f"{text} +0000", "%Y%m%dT%H %z")
        return began, began + length
    except (ValueError, OverflowError):  # of no such file, or none of a daemon
        return None


def superseded(names: Iterable[str]) -> set[str]:
    """Return those of a directory's names whose rows another file of it has."""
    names = list(names)
    days = set(map(day_of_day, names))
    hours = set(map(hour_of_hour, names))
    found = set()
    for name in names:
        hour = hour_of_list(name)
        if (hour and hour in hours) or ((hour := hour or hour_of_hour(name)) and hour[:8] in days):
            found.add(name)
    return found


def packed_name(period: str, ending: str) -> str:
    """Return the name of the file for a day or an hour: ``20261128``, ``20261128T06``."""
    return f"edges-{period}Z.{ending}"


def list_name(now: float) -> str:
    """Return the name of an edge list of ``now``, seconds since the epoch."""
    at = datetime.fromtimestamp(now, UTC)
    return f"edges-{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z.jsonl"


def late_name(name: str) -> str:
    """Return the name that an edge list gets whose hour has been compacted already."""
    return name.replace("Z.jsonl", "Z-late.jsonl")


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """Make the new file ``path``; return whether it was made.

    It is not if there is one of that name, or another process is making one: who has made the
    ``.part`` has the name, until it is renamed or removed.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        file = part.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            if os.path.lexists(path):
                part.unlink()
                return False
            write(file)
            file.flush()
            os.fsync(file.fileno())  # or the name could outlive a power cut without the data
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return True


class Exporter:
    """Edge lists in a directory, each a new file; old files are removed.

    Args:
        directory: made when it is not there.
    """

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    def write(self, rows: Iterable[Row], now: float) -> Path:
        """Write ``rows`` and return the file, named after ``now``, seconds since the epoch.

        A millisecond that another file has already is left to it, and a later one taken.

        Raises:
            OSError: the file could not be written; its text tells which, where and why.
        """
        return self.write_lines(b"".join(map(format_row, rows)), now)

    def write_lines(self, lines: bytes, now: float) -> Path:
        """Write rows as :meth:`write` does that are lines of JSON already.

        Raises:
            OSError: as :meth:`write`.
        """
        with self._failing("an edge list cannot be written to"):
            self._directory.mkdir(parents=True, exist_ok=True)
            while True:
                path = self._directory / self._free_name(now)
                if write_whole(path, lambda file: file.write(lines)):
                    return path
                now += 0.001

    def _free_name(self, now: float) -> str:
        name = list_name(now)
        hour = hour_of_list(name) or ""
        over = (packed_name(one, end) for one in (hour, hour[:8]) for end in PACKED)
        late = any(os.path.lexists(self._directory / one) for one in over)
        return late_name(name) if late else name

    def remove_old(self, now: float, age: float, size: int, spared: Path | None = None) -> None:
        """Remove files whose time was over ``age`` seconds ago, and the oldest above ``size``.

        Args:
            now: seconds since the epoch.
            age: seconds.
            size: bytes of all files together.
            spared: a file that stays, even if the clock was turned back.

        Raises:
            OSError: a file could not be removed.
        """
        oldest = list_name(max(0.0, now - age))
        with self._failing("old edge lists cannot be removed from"):
            files: list[tuple[str, int]] = []
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    name = entry.name
                    if not is_ours(name) or not entry.is_file(follow_symlinks=False):
                        continue
                    with suppress(FileNotFoundError):  # another process was faster
                        about = entry.stat(follow_symlinks=False)
                        if not is_part(name):
                            files.append((name, about.st_size))
                        elif about.st_mtime < now - STALE:  # a crash has left it half written
                            (self._directory / name).unlink()
            total = sum(length for _, length in files)
            for name, length in sorted(files):
                if (name < oldest or total > size) and (spared is None or name != spared.name):
                    (self._directory / name).unlink(missing_ok=True)
                    total -= length

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(f"{what} {str(self._directory)!r}: {why}") from error
