"""The input files on this machine: which there are, and what each one is.

Nothing is read but the beginning of each file, which tells its format
(:mod:`pubsubd.topology.formats.recognition`). A file without any content is what its ending says.
What is not local is told by its ending alone: :data:`ENDINGS`; ``.gz`` may follow on all but
Parquet.

Folders are read with those in them, and without the files and folders that are hidden (their names
begin with a dot or an underscore), the files that are not complete yet (``.part``), and exports of
daemons that have been compacted into another file. What else a folder holds is left out and named;
a file that was asked for by its name is never left out. A name of a list in a folder has one of the
endings in :data:`LISTS`.

Pipes are not looked at here; see :mod:`pubsubd.topology.preparing`.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pubsubd.mesh.edge_files import day_of_day, superseded, times_of
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.formats.errors import FormatError, UnevenError
from pubsubd.topology.formats.packing import BROKEN, open_unpacked, packing_of, without_packing
from pubsubd.topology.formats.recognition import PEEKED, Format, Head, Wishes, recognise

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

MESH_ENDINGS = (
    r"(\.(txt|tsv|csv|edges|mtx|net|paj|gml|graphml|gexf|xml|graph|metis|adjlist|json|jsonl|ndjson"
    r"|gz|bz2|xz|zst))+$"
)
"""Endings of a file that are no part of its mesh's name; as a regular expression."""

LONGEST_LINE = 16 * 2**20
"""Most bytes of the first line of a text."""

_HOUR = 3600
_MOMENT = timedelta(minutes=5)
_TABLES = {"list", "table", "arrows", "adjacency"}  # formats that any text may seem to have
_MAGIC = re.compile(r"[*?\[{]")  # what makes a path a glob
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_KINDS = {
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
    stat.S_ISFIFO: "a pipe, which has to be named by itself",
}


@dataclass
class Found:
    """Local files.

    Attributes:
        files: path -> format.
        ignored: path of a file in a folder that is left out -> why.
        untimely: how many files of folders are of another time than was asked for.
    """

    files: dict[str, Format] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    untimely: int = 0


@dataclass(frozen=True)
class Times:
    """The times that were asked for: from ``since`` on, before ``until``; None is no limit."""

    since: datetime | None = None
    until: datetime | None = None

    def may_have(self, name: str) -> bool:
        """Tell whether rows of a file of this name may be of these times."""
        known = times_of(name)
        if known is None:
            return True
        # A name is given a moment after the times of the rows.
        began, over = known[0] - _MOMENT, known[1]
        return (self.since is None or over > self.since) and (
            self.until is None or began < self.until
        )


def is_remote(path: str) -> bool:
    """Tell whether ``path`` is a URL."""
    return _REMOTE.match(path) is not None


def local_path(path: str) -> str | None:
    """Return the path of what is local, without its scheme."""
    if not is_remote(path):
        return path
    address = urlsplit(path)
    return unquote(address.path) if address.scheme.lower() == "file" else None


def find_here(
    path: str,
    wishes: Wishes = Wishes(),  # noqa: B008
    out: Path | None = None,
    times: Times = Times(),
    *,
    nodes: bool = False,
) -> Found:
    """Return the files at ``path``, and those of folders that are left out.

    Args:
        path: a file, folder or glob.
        wishes: how files that are not a daemon's are to be read.
        out: a folder that is no input, though it may be in one: that of the report.
        times: those that were asked for; files of folders that have none of them are left out.
        nodes: it is a node list.

    Raises:
        TopologyError: there is nothing, or no edge list.
    """
    local = Path(path)
    found = Found()
    try:
        if local.is_dir() and not nodes:
            _add_folder(local, found, wishes, out, times)
            return found
        if local.exists():
            form = _tell_nodes(local) if nodes else tell(local, wishes)
            found.files[str(local.absolute())] = form
            return found
        names = sorted(glob.glob(path)) if _MAGIC.search(path) else []
        for name in map(Path, names):
            if name.is_dir():
                _add_folder(name, found, wishes, out, times)
            else:
                found.files[str(name.absolute())] = tell(name, wishes)
    except BROKEN as error:
        raise unreadable(path, error) from error
    if not names:
        what = "nothing matches it" if _MAGIC.search(path) else "there is no such file or folder"
        raise TopologyError(f"{path}: {what}")
    return found


def _add_folder(folder: Path, found: Found, wishes: Wishes, out: Path | None, times: Times) -> None:
    """Add the contents of a folder.

    Raises:
        TopologyError: there is no edge list among it.
    """
    files = sorted(_list_folder(folder, None if out is None else out.resolve()))
    if not files:
        raise TopologyError(f"{folder}: there are no files in it")
    some = [path for path in files if times.may_have(path.name)]
    found.untimely += len(files) - len(some)
    before = len(found.files)
    reasons = []
    for path in some:
        try:
            found.files[str(path.absolute())] = tell(path, replace(wishes, of_folder=True))
        except TopologyError as error:
            if isinstance(error.__cause__, UnevenError) and ending_of(path.name) in LISTS:
                raise  # it is meant to be one
            reasons.append(str(error))
            found.ignored[str(path.absolute())] = str(error).removeprefix(f"{path}: ")
        except FileNotFoundError:
            continue  # daemons delete old exports
        except BROKEN as error:
            raise unreadable(str(path), error) from error
    if some and len(found.files) == before:
        more = f" ({reasons[0]})" if len(files) == 1 and reasons else ""
        raise TopologyError(f"{folder}: none of its {len(files)} files is an edge list{more}")


def _list_folder(folder: Path, out: Path | None) -> Iterator[Path]:
    """Yield the files of a folder and of those in it that may be inputs."""
    for name, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [
            one
            for one in folders
            if not one.startswith((".", "_")) and Path(name, one).resolve() != out
        ]
        for file in set(files) - superseded(files):
            path = Path(name, file)
            if not file.startswith((".", "_")) and not file.endswith(".part") and path.is_file():
                yield path


def _raise(error: OSError) -> None:
    raise error


def days_of_several(files: Iterable[str]) -> list[list[str]]:
    """Return the files of each day that there are several of, in the order of their paths."""
    days: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        name = file.rpartition("/")[2]
        if name.endswith(".parquet") and (day := day_of_day(name)):
            days[day].append(file)
    return [those for those in days.values() if len(those) > 1]


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


def unreadable(path: str, error: Exception) -> TopologyError:
    """Return the error of a file that cannot be read to its end."""
    why = getattr(error, "strerror", None) or str(error) or "it is cut off"
    return TopologyError(f"{path} cannot be read: {why}")


# What a local file is


def tell(path: Path, wishes: Wishes) -> Format:
    """Return the format of a file.

    Raises:
        TopologyError: it is no edge list, or one that Spark cannot read.
        OSError, EOFError, zlib.error, lzma.LZMAError: it cannot be read.
    """
    _check_kind(path)
    _check_name(path)
    ending = ending_of(path.name)
    if ending == "parquet":
        with path.open("rb") as file:
            if file.read(4) == b"PAR1":
                return Format("parquet")
        raise TopologyError(f"{path} is not a Parquet file")
    head = peek(path)
    if not head.whole and b"\n" not in head.data:
        _check_line(path)
    if not head.data.strip():
        return Format(ENDINGS.get(ending, "list"))
    try:
        found = recognise(head, wishes)
    except FormatError as error:
        raise TopologyError(f"{path}: {error}") from error
    if wishes.of_folder and found.name in _TABLES and ending not in LISTS:
        raise TopologyError(f"{path}: its ending is none of an edge list")
    return found


def peek(path: Path) -> Head:
    """Return the beginning of a file, unpacked.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError: it cannot be read.
    """
    with open_unpacked(path) as file:
        start = file.read(PEEKED + 1)
    return Head(start[:PEEKED], len(start) <= PEEKED, without_packing(path.name))


def _check_line(path: Path) -> None:
    """Raise TopologyError if the first line is so long that Spark might have no memory for it."""
    with open_unpacked(path) as file:
        for _ in range(0, LONGEST_LINE, PEEKED):
            chunk = file.read(PEEKED)
            if not chunk or b"\n" in chunk:
                return
    most = LONGEST_LINE // 2**20
    raise TopologyError(f"{path} is no edge list: its first line is longer than {most} MiB")


def _tell_nodes(path: Path) -> Format:
    """Return the format of a node list."""
    _check_kind(path)
    _check_name(path)
    start = peek(path).data
    if b"\0" in start or start.startswith((b"{", b"[", b"PAR1", b"\x89PNG")):
        raise TopologyError(f"{path} is no node list: it is not text with a name a line")
    return Format("list")


def _check_kind(path: Path) -> None:
    mode = path.stat().st_mode
    for is_kind, what in _KINDS.items():
        if is_kind(mode):
            raise TopologyError(f"{path} is {what}, not a file of edge lists")


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


def ending_of(name: str) -> str:
    """Return the ending of a file's name without the dot, and without that of its packing."""
    return without_packing(name).lower().rpartition(".")[2]


def is_packed_for_spark(path: Path) -> bool:
    """Tell whether Spark reads a text as it is packed: not at all, or as gzip with its ending.

    Raises:
        OSError: it cannot be read.
    """
    packed = packing_of(path)
    named = path.name.lower().endswith(".gz")
    return packed is None if not named else packed == "gz" or not os.path.getsize(path)
