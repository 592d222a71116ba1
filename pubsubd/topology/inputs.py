"""The input files on this machine: which there are, and what each one is.

Nothing is read but the beginning of each file, which tells what it is:

======= ============================================================================
parquet the first bytes are ``PAR1``
jsonl   the first line begins with ``{`` and has one of the columns' names
csv     the first line is the names of the columns
list    other text, one arc a line; in a folder only with an ending in :data:`LISTS`
        and with the same number of columns in most lines
======= ============================================================================

A file without any content is what its ending says. What is not local is told by its ending alone:
:data:`ENDINGS`. ``.gz`` may follow on all but Parquet.

Folders are read with those in them, and without the files and folders that are hidden (their names
begin with a dot or an underscore), the files that are not complete yet (``.part``), and exports of
daemons that have been compacted into another file. What else a folder holds is left out and named;
a file that was asked for by its name is never left out.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pubsubd.mesh.edge_files import day_of_day, superseded
from pubsubd.mesh.edges import HEADERS, REQUIRED
from pubsubd.topology.errors import TopologyError

LISTS = ("txt", "tsv", "csv", "edges")
"""Endings of bare lists."""

ENDINGS = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "parquet": "parquet",
    **dict.fromkeys(LISTS, "list"),
}
"""Ending, before ``.gz`` -> format. A ``.csv`` that is not local is an export, not a list."""

_HOUR = 3600
_PACKED = 20  # bytes of text to one that is compressed, as much as repetitive exports are
_PEEKED = 65_536  # bytes of a file that tell what it is
_LOOKED_AT = 100  # lines of a list that tell whether it is one
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_MAGIC = re.compile(r"[*?\[{]")  # what makes a path a glob
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def look_here(
    paths: Sequence[str],
    nodes: str | None = None,
    window: int = _HOUR,
    since: datetime | None = None,
) -> float:
    """Check the inputs before Spark has started, and return about how many bytes of text they are.

    That is infinity if any of them is not local.

    Raises:
        TopologyError: a local input, or the node list, is not there or is of no use; or there are
            no rows in any of the inputs; or :func:`check_window` does.
    """
    found: dict[Path, str] = {}
    here = True
    for path in paths:
        if (local := local_path(path)) is None:
            here = False
        else:
            found |= {Path(name): kind for name, kind in find_here(local)[0].items()}
    if nodes is not None and (local := local_path(nodes)) is not None:
        find_here(local, nodes=True)
    check_window(map(str, found), window, since)
    if not here:
        return math.inf
    if not any(_has_rows(path, kind) for path, kind in found.items()):
        raise TopologyError("there is nothing to analyse: there are no rows")
    return float(sum(map(_size, found)))


def _size(path: Path) -> int:
    packed = path.suffix.lower() in {".gz", ".parquet"}
    with contextlib.suppress(OSError):  # it may have been deleted: daemons delete old exports
        return path.stat().st_size * (_PACKED if packed else 1)
    return 0


def _has_rows(path: Path, kind: str) -> bool:
    """Tell whether there may be a row, good or bad, in a file."""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        if kind != "parquet":
            start, whole = _peek(path)
            lines = _lines(start, comments=kind != "list")
            return not whole or len(lines) > (kind == "csv")
    return True


def is_remote(path: str) -> bool:
    """Tell whether ``path`` is a URL."""
    return _REMOTE.match(path) is not None


def local_path(path: str) -> str | None:
    """Return the path of what is local, without its scheme."""
    if not is_remote(path):
        return path
    address = urlsplit(path)
    return unquote(address.path) if address.scheme.lower() == "file" else None


def find_here(path: str, nodes: bool = False) -> tuple[dict[str, str], list[str]]:
    """Return the files at ``path`` with their formats, and those of folders that are left out.

    Args:
        path: a file, folder or glob.
        nodes: it is a node list.

    Raises:
        TopologyError: there is nothing, or no edge list.
    """
    local = Path(path)
    try:
        if local.is_dir() and not nodes:
            return _find_in_folder(local)
        if local.exists():
            return {str(local.absolute()): _tell_nodes(local) if nodes else _tell(local)}, []
        found: dict[str, str] = {}
        ignored: list[str] = []
        names = sorted(glob.glob(path)) if _MAGIC.search(path) else []
        for name in names:
            inner, others = _find_in_folder(Path(name)) if Path(name).is_dir() else _one(Path(name))
            found |= inner
            ignored += others
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    if not names:
        what = "nothing matches it" if _MAGIC.search(path) else "there is no such file or folder"
        raise TopologyError(f"{path}: {what}")
    return found, ignored


def _one(path: Path) -> tuple[dict[str, str], list[str]]:
    return {str(path.absolute()): _tell(path)}, []


def _find_in_folder(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the contents of a folder.

    Raises:
        TopologyError: there is no edge list among it.
    """
    files = sorted(_list_folder(folder))
    if not files:
        raise TopologyError(f"{folder}: there are no files in it")
    found: dict[str, str] = {}
    ignored: list[str] = []
    reason = ""
    for path in files:
        try:
            found[str(path.absolute())] = _tell(path, chosen=False)
        except TopologyError as error:
            ignored.append(str(path.absolute()))
            reason = reason or str(error)
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(str(path), error) from error
    if not found:
        more = f" ({reason})" if len(files) == 1 else ""
        raise TopologyError(f"{folder}: none of its {len(files)} files is an edge list{more}")
    return found, ignored


def _list_folder(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it that may be inputs."""
    for name, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [one for one in folders if not one.startswith((".", "_"))]
        for file in set(files) - superseded(files):
            path = Path(name, file)
            if not file.startswith((".", "_")) and not file.endswith(".part") and path.is_file():
                yield path


def _raise(error: OSError) -> None:
    raise error


def check_window(files: Iterable[str], window: int, since: datetime | None) -> None:
    """Check that the files have what windows of this length need.

    Args:
        files: paths or URLs.
        window: seconds.
        since: when the first window begins; None if there is no limit.

    Raises:
        TopologyError: one has only the hours of a day.
    """
    if window % _HOUR == 0:
        return
    for file in files:
        name = file.rpartition("/")[2]
        if (day := day_of_day(name)) is None:
            continue
        over = datetime.strptime(f"{day} +0000", "%Y%m%d %z") + timedelta(days=1)
        if since is None or since < over:
            raise TopologyError(
                f"{file}: of a day that old only whole hours are kept, so --window has to be a"
                f" number of hours, or --since {over:%Y-%m-%dT%H:%M:%SZ} or later"
            )


def _unreadable(path: str, error: Exception) -> TopologyError:
    why = getattr(error, "strerror", None) or str(error) or "it is cut off"
    return TopologyError(f"{path} cannot be read: {why}")


# What a local file is


def _tell(path: Path, chosen: bool = True) -> str:
    """Return the format of a file.

    Args:
        path: the file.
        chosen: somebody named it, so that anything that can be a list is one.

    Raises:
        TopologyError: it is no edge list, or one that Spark cannot read.
        OSError, EOFError, zlib.error: it cannot be read.
    """
    ending = ending_of(path.name)
    _check_name(path)
    start, whole = _peek(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    if ending == "parquet":
        raise TopologyError(f"{path} is not a Parquet file")
    if _BINARY.search(start):
        raise TopologyError(f"{path} is no edge list: it is not text in UTF-8")
    lines = _lines(start)
    first = lines[0].strip() if lines else ""
    if first.startswith(("{", "[")):
        # One line that was cut off by the end of whoever wrote it has no names yet.
        cut = whole and len(lines) == 1 and ENDINGS.get(ending) == "jsonl"
        if first.startswith("{") and (cut or any(f'"{name}"' in first for name in REQUIRED)):
            return "jsonl"
        raise TopologyError(f"{path} is no edge list: it is JSON, but not one row a line")
    if not first and ending in ENDINGS:
        return ENDINGS[ending]
    names = [name.strip().strip('"') for name in first.split(",")]
    if ",".join(names) in HEADERS:
        return "csv"
    if {"ts", "src", "dst"} <= set(names):
        raise TopologyError(f"{path}: its columns are not {HEADERS[0]}")
    if ENDINGS.get(ending) == "jsonl":
        raise TopologyError(f"{path} is no edge list: it is not JSON, one row a line")
    if chosen or (ending in LISTS and _is_table(lines if whole else lines[:-1])):
        return "list"
    raise TopologyError(f"{path} is no edge list")


def _tell_nodes(path: Path) -> str:
    """Return the format of a node list."""
    _check_name(path)
    start, _ = _peek(path)
    if _BINARY.search(start) or start.startswith((b"{", b"[", b"PAR1")):
        raise TopologyError(f"{path} is no node list: it is not text with a name a line")
    return "list"


def _check_name(path: Path) -> None:
    """Raise TopologyError if Spark would not read a file because of its name."""
    if path.name.startswith((".", "_")) or ":" in path.name:
        raise TopologyError(
            f"{path}: Spark reads no file whose name begins with '.' or '_' or has a colon"
        )
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise TopologyError(
            f"{str(path)!r}: Spark reads no file whose name is not UTF-8"
        ) from error


def _peek(path: Path) -> tuple[bytes, bool]:
    """Return the beginning of a file, decompressed, and whether that is all of it."""
    with path.open("rb") as file:
        start = file.read(_PEEKED + 1)
    packed = start.startswith(b"\x1f\x8b")
    if packed != (path.suffix.lower() == ".gz") and start:
        raise TopologyError(
            f"{path} is compressed: it needs the ending .gz" if packed else f"{path} is not gzip"
        )
    if packed:
        with gzip.open(path) as unpacked:
            start = unpacked.read(_PEEKED + 1)
    return start[:_PEEKED], len(start) <= _PEEKED


def _lines(start: bytes, comments: bool = False) -> list[str]:
    """Return the lines that are not empty, without those that begin with ``#`` if asked to."""
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    return [line for line in text.splitlines() if line.strip() and (comments or line[0] != "#")]


def _is_table(lines: Sequence[str]) -> bool:
    """Return whether most lines have the same number of columns, two or more."""
    counts = [len(re.split(r"[\s,]+", line.strip())) for line in islice(lines, _LOOKED_AT)]
    usual = max(set(counts), key=counts.count, default=0)
    return usual >= 2 and 2 * counts.count(usual) > len(counts)


def ending_of(name: str) -> str:
    """Return the ending of a file's name without the dot, and without ``.gz``."""
    return name.lower().removesuffix(".gz").rpartition(".")[2]
