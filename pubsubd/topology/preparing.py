"""Inputs made ready for Spark, before it is started.

Most files are read where they are. Others are copied to the scratch directory first: pipes, since
they can be read once only and by this process only; texts packed in a way that Spark does not read;
and links in foreign formats, converted to Parquet.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.formats.conversion import read_links
from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.packing import BROKEN, MAGIC, open_unpacked
from pubsubd.topology.formats.recognition import Format, Wishes
from pubsubd.topology.inputs import (
    MESH_ENDINGS,
    Times,
    check_window,
    days_of_several,
    find_here,
    is_packed_for_spark,
    local_path,
    peek,
    tell,
    unreadable,
)
from pubsubd.topology.parameters import Job, Stage
from pubsubd.topology.scratch import Scratch

ARCS = "arcs"
"""Format of what was converted: Parquet, :data:`pubsubd.topology.formats.links.ARCS`."""

_SPARK = {"jsonl", "csv", "parquet", "list"}
_UNPACKED = 20  # bytes of text to one that is compressed, as much as repetitive exports are
_LEFT = 3  # times as many rows as one file has, of a day that several daemons have kept
_CHUNK = 1 << 22
_CHECKED = 16  # chunks between two looks at the free disk
_DESCRIPTOR = re.compile(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)|/dev/std(in)|(-)").fullmatch
_PACKING = re.compile(rf"(?i)(?<=.)\.({'|'.join(MAGIC.values())})$")
_MESH_ENDINGS = re.compile(rf"(?i)(?<=.){MESH_ENDINGS}")


@dataclass
class Prepared:
    """Inputs that Spark can read.

    Attributes:
        files: local path -> format: jsonl, csv, parquet, list or :data:`ARCS`.
        remote: URLs that nobody has looked at yet.
        nodes: path or URL of the node list.
        origins: path of a copy -> that of the file it was made of.
        ignored: files of folders that are left out -> why.
        times: those that were asked for.
        size: about how many bytes of text there are; infinity if any input is remote.
    """

    files: dict[str, str] = field(default_factory=dict)
    remote: list[str] = field(default_factory=list)
    nodes: str | None = None
    origins: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    size: float = 0.0

    def origin(self, file: str) -> str:
        """Return the file that the user knows."""
        return self.origins.get(file, file)


def prepare(job: Job, scratch: Scratch, stage: Stage) -> Prepared:
    """Look at the inputs, and copy or convert those that Spark does not read.

    Raises:
        TopologyError: a local input, or the node list, is not there or is of no use; or there are
            no rows in any of the inputs; or :func:`~pubsubd.topology.inputs.check_window` does.
        OSError: a copy cannot be written.
    """
    prepared = Prepared(times=Times(job.since, job.until))
    wishes = Wishes(columns=job.columns, lenient=job.lenient)
    streams: set[str] = set()
    formats: dict[str, Format] = {}
    untimely = 0
    for path in job.inputs:
        if (local := local_path(path)) is None:
            prepared.remote.append(path)
        elif stream := _Stream.of(local):
            copy = stream.copy(scratch, streams, stage)
            prepared.origins[str(copy)] = stream.name
            try:
                formats[str(copy)] = tell(copy, wishes)
            except TopologyError as error:
                raise TopologyError(str(error).replace(str(copy), stream.name)) from error
            except BROKEN as error:
                raise unreadable(stream.name, error) from error
        else:
            out = job.out if isinstance(job.out, Path) else None
            found = find_here(local, wishes, out, prepared.times)
            untimely += found.untimely
            formats |= found.files
            prepared.ignored |= found.ignored
    if job.nodes is not None:
        prepared.nodes = _prepare_nodes(str(job.nodes), scratch, streams, stage)
    check_window(formats, job.window, job.since)
    rows = bool(prepared.remote)
    for name, form in sorted(formats.items()):
        prepared.ignored.pop(name, None)
        rows |= _add(Path(name), form, prepared, scratch, stage, lenient=job.lenient)
    prepared.size -= _repeated(prepared.files)
    if not rows:
        more = " of the time asked for" if untimely else ""
        raise TopologyError(f"there is nothing to analyse: there are no rows{more}")
    if prepared.remote:
        prepared.size = math.inf
    return prepared


def _repeated(files: Iterable[str]) -> float:
    """Return how much of the text is told by several daemons, of days that are read as one."""
    found = 0.0
    for day in days_of_several(files):
        sizes = [os.path.getsize(file) for file in day if os.path.exists(file)]
        # What is left has up to so many rows: see pubsubd.topology.days.
        found += max(0, sum(sizes) - _LEFT * max(sizes, default=0)) * _UNPACKED
    return found


def _prepare_nodes(path: str, scratch: Scratch, streams: set[str], stage: Stage) -> str:
    if (local := local_path(path)) is None:
        return path
    if stream := _Stream.of(local):
        local = str(stream.copy(scratch, streams, stage))
    (name,) = find_here(local, nodes=True).files
    if not is_packed_for_spark(Path(name)):
        name = str(_unpack(Path(name), scratch))
    return name


def _add(
    path: Path, form: Format, prepared: Prepared, scratch: Scratch, stage: Stage, *, lenient: bool
) -> bool:
    """Add a file, or a copy of it that Spark reads, and tell whether it may have a row."""
    origin = prepared.origin(str(path))
    try:
        if form.name not in _SPARK:
            stage(f"converting {origin}")
            links = read_links(path, form, lenient=lenient)
            copy = scratch.place("arcs.parquet")
            links.write(copy, origin, mesh_of(Path(origin).name))
            prepared.files[str(copy)] = ARCS
            prepared.origins[str(copy)] = origin
            prepared.size += path.stat().st_size
            return bool(links.rows)
        if form.name != "parquet" and not is_packed_for_spark(path):
            stage(f"unpacking {origin}")
            path = _unpack(path, scratch)
            prepared.origins[str(path)] = origin
        prepared.files[str(path)] = form.name
        packed = path.suffix.lower() in {".gz", ".parquet"}
        prepared.size += path.stat().st_size * (_UNPACKED if packed else 1)
        return _has_rows(path, form)
    except FormatError as error:
        raise TopologyError(f"{origin}: {error}") from error
    except FileNotFoundError:
        prepared.files[str(path)] = form.name  # told when reading has ended
        return True
    except BROKEN as error:
        raise unreadable(origin, error) from error


def _has_rows(path: Path, form: Format) -> bool:
    """Tell whether there may be a row, good or bad, in a file."""
    if form.name == "parquet":
        return True
    head = peek(path)
    rows = head.rows() if form.name == "list" else [line for line in head.lines if line.strip()]
    return not head.whole or len(rows) > (form.name == "csv")


def mesh_of(name: str) -> str:
    """Return the mesh's name for a file without one: ``freifunk-ulm`` for freifunk-ulm.net.gz."""
    return _MESH_ENDINGS.sub("", name)


# Copies


def _unpack(path: Path, scratch: Scratch) -> Path:
    target = scratch.place(_PACKING.sub("", path.name))
    with open_unpacked(path) as source, target.open("xb") as copy:
        _copy(source, copy, scratch, path.name)
    return target


def _copy(source: BinaryIO, target: BinaryIO, scratch: Scratch, what: str) -> None:
    count = 0
    while chunk := source.read(_CHUNK):
        if count % _CHECKED == 0:
            scratch.check_room(what)
        target.write(chunk)
        count += 1


@dataclass(frozen=True)
class _Stream:
    """An input that can be read once: a pipe, or an open file of this process.

    Attributes:
        path: as it was given.
        descriptor: of the open file, if it is one.
    """

    path: str
    descriptor: int | None

    @classmethod
    def of(cls, path: str) -> _Stream | None:
        """Return the stream at ``path``, or None if a file or nothing is there."""
        if found := _DESCRIPTOR(path):
            return cls(path, int(found[1] or found[2] or 0))
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.stat(path).st_mode):
                return cls(path, None)
        return None

    @property
    def name(self) -> str:
        """The name for people, of which a list gets that of its mesh."""
        if self.descriptor is None:
            return self.path
        return f"pipe-{self.descriptor}" if self.descriptor else "stdin"

    def copy(self, scratch: Scratch, taken: set[str], stage: Stage) -> Path:
        """Copy it to a file, and return that.

        Raises:
            TopologyError: it is a terminal or a device, or was read before, or cannot be read.
        """
        key = self.path if self.descriptor is None else f"/dev/fd/{self.descriptor}"
        if key in taken:
            raise TopologyError(f"{self.path}: it is named twice, and can be read once")
        taken.add(key)
        stage(f"reading {self.name}")
        try:
            with self._open() as source:
                self._check(source)
                target = scratch.place(re.sub(r"^[._]+|:", "", Path(self.name).name) or "pipe")
                with target.open("xb") as copy:
                    _copy(source, copy, scratch, self.path)
        except OSError as error:
            if error.filename not in {None, self.path}:  # the copy
                raise
            raise unreadable(self.path, error) from error
        return target

    def _open(self) -> BinaryIO:
        if self.descriptor is None:
            return open(self.path, "rb")
        return open(os.dup(self.descriptor), "rb")

    def _check(self, source: BinaryIO) -> None:
        mode = os.fstat(source.fileno()).st_mode
        if source.isatty():
            raise TopologyError(f"{self.path} is a terminal: name a file, or use a pipe")
        if stat.S_ISDIR(mode):
            raise TopologyError(f"{self.path} is a folder: name it by its path")
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise TopologyError(f"{self.path} is a device, not a file of edge lists")
