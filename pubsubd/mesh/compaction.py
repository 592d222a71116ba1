"""Compaction of exported edge lists: of each hour that is over one file, later of each day.

``python -m pubsubd.mesh.compaction DIR SECONDS`` is run every half hour by the daemon that exports
to ``DIR``, as a process of the lowest priority: to read a day costs seconds of processor.

- The file of an hour has all its rows, in another order.
- A day that was over ``SECONDS`` ago is thinned (:mod:`pubsubd.mesh.thinning`). Its windows of
  whole hours give the same links, daemons and events as before.

Both are Parquet. They are gzip of JSON lines if pyarrow is not installed, or if a row has anything
that a daemon does not write.

The rules of :mod:`pubsubd.mesh.edge_files` hold, so whoever reads the directory sees each row once.
Files that are superseded stay for :data:`GRACE`, for those who have listed them before. A crash at
any point leaves a ``.part``, or files that the next run removes.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, cast

from pubsubd.mesh.edge_files import (
    day_of_day,
    hour_of_hour,
    hour_of_list,
    is_part,
    late_name,
    packed_name,
    superseded,
    whole_name,
    write_whole,
)
from pubsubd.mesh.edges import (
    EdgesError,
    parse_lines,
    read_parquet_lines,
    write_parquet_tables,
)
from pubsubd.mesh.thinning import thin

GRACE = 1500.0
"""Seconds for which superseded files stay, for those who have listed the directory before."""

SETTLED = 120.0
"""Seconds after which nothing is written to an hour any more."""

CHUNK = 8 * 2**20
"""Bytes of lines that are held and sorted together, so that equal ones are neighbours.

With four times as many, an hour of 500 daemons is 1 % smaller and takes 80 MB of memory more."""

FAILURES = (OSError, EOFError, zlib.error, EdgesError)
"""Failures to read or write a file."""


def compact(directory: Path, detail: float, now: float) -> None:
    """Compact what is due.

    Args:
        directory: of an exporter; nothing happens if another process is compacting it.
        detail: seconds for which all rows of a day are kept after its end.
        now: seconds since the epoch.

    Raises:
        OSError, EOFError, zlib.error, EdgesError: a file cannot be read, written or removed. The
            others were compacted all the same, and no row is lost.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _remove_superseded(directory, now)
        failures = [*_compact_hours(directory, now), *_compact_days(directory, now - detail)]
    finally:
        os.close(handle)
    if failures:
        raise failures[0]


def _names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(one.name for one in entries if one.is_file(follow_symlinks=False))


def _remove_superseded(directory: Path, now: float) -> None:
    names = _names(directory)
    made = {}
    for name in names:
        if period := hour_of_hour(name) or day_of_day(name):
            with suppress(FileNotFoundError):
                made[period] = (directory / name).stat().st_mtime
    for name in superseded(names):
        hour = hour_of_list(name) or hour_of_hour(name) or ""
        if min(made.get(one, now) for one in (hour, hour[:8])) <= now - GRACE:
            (directory / name).unlink(missing_ok=True)


def is_due(directory: Path, detail: float, now: float) -> bool:
    """Tell whether there is anything to compact or to remove.

    Raises:
        OSError: the directory cannot be read.
    """
    names = _names(directory)
    return bool(superseded(names) or _hours(names, now) or _days(names, now - detail))


def _hours(names: Sequence[str], now: float) -> dict[str, list[str]]:
    """Return the hours to compact, with the lists of each."""
    over = f"{datetime.fromtimestamp(now - SETTLED, UTC):%Y%m%dT%H}"
    gone = superseded(names)
    hours: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if (hour := hour_of_list(name)) and hour < over and name not in gone:
            hours[hour].append(name)
    for part in filter(is_part, names):  # of a file system that does not answer
        hours.pop(hour_of_list(whole_name(part)) or "", None)
    return hours


def _compact_hours(directory: Path, now: float) -> Iterator[Exception]:
    names = _names(directory)
    for hour, lists in _hours(names, now).items():
        try:
            _write(directory, hour, names, partial(_lines, directory, lists))
        except FAILURES as error:
            yield error


def _days(names: Sequence[str], until: float) -> dict[str, list[str]]:
    """Return the days to compact, with the files of each."""
    over = f"{datetime.fromtimestamp(max(0.0, until), UTC):%Y%m%d}"
    gone = superseded(names)
    days: dict[str, list[str]] = defaultdict(list)
    for name in names:
        hour = hour_of_hour(name) or hour_of_list(name)
        if hour and hour[:8] < over and name not in gone:
            days[hour[:8]].append(name)
    # Not if an hour could not be compacted.
    return {day: files for day, files in days.items() if not any(map(hour_of_list, files))}


def _compact_days(directory: Path, until: float) -> Iterator[Exception]:
    names = _names(directory)
    for day, files in _days(names, until).items():
        try:
            lines = thin(_lines(directory, files))
            _write(directory, day, names, lambda lines=lines: lines)  # type: ignore[misc]
        except FAILURES as error:
            yield error


def _write(
    directory: Path, period: str, known: Sequence[str], lines: Callable[[], Iterable[bytes]]
) -> None:
    """Write the file of an hour or a day, which supersedes others, all of which are ``known``."""

    def parquet(file: BinaryIO) -> None:
        write_parquet_tables(map(parse_lines, _chunks(lines())), file)

    def jsonl(file: BinaryIO) -> None:
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.writelines(_chunks(lines()))

    try:
        made = write_whole(directory / packed_name(period, "parquet"), parquet)
    except EdgesError:  # pyarrow is not installed, or a row is not a daemon's
        made = write_whole(directory / packed_name(period, "jsonl.gz"), jsonl)
    if made:
        # Or lists would be lost that were written meanwhile, after a clock was turned back.
        for name in superseded(_names(directory)).difference(known):
            with suppress(FileNotFoundError):
                (directory / name).rename(directory / late_name(name))


def _lines(directory: Path, names: Iterable[str]) -> Iterator[bytes]:
    """Yield the lines of files; the last line of a file may lack its end."""
    for name in names:
        if name.endswith(".parquet"):
            yield from read_parquet_lines(directory / name)
            continue
        with _open(directory / name) as file:
            for line in file:
                yield line if line.endswith(b"\n") else line + b"\n"


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines, sorted so that the reports of an end of a link follow each other."""
    held: list[bytes] = []
    size = 0
    for line in chain(lines, [b""]):
        held.append(line)
        size += len(line)
        if size >= CHUNK or (not line and size):
            held.sort(key=_without_time)
            yield b"".join(held)
            held, size = [], 0


def _without_time(line: bytes) -> bytes:
    return line[34:]  # after {"ts": "2026-11-28T06:00:00.000Z"


def main() -> None:
    """Compact a directory; end with a line and status 1 if that failed."""
    directory, detail = Path(sys.argv[1]), float(sys.argv[2])
    with suppress(OSError):  # a service manager may forbid it
        os.nice(19)
    try:
        compact(directory, detail, time.time())
    except FAILURES as error:
        why = getattr(error, "strerror", None) or str(error)
        sys.exit(f"edge lists in {str(directory)!r} cannot be compacted: {why}")


if __name__ == "__main__":
    main()
