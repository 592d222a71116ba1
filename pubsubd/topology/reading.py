"""The inputs of an analysis, found and opened: the one module that knows of files.

Nothing is read here but the beginning of each local file, which tells what it is:

======= ============================================================================
parquet the first bytes are ``PAR1``
jsonl   the first line begins with ``{`` and has one of the columns' names
csv     the first line is the names of the columns
list    other text, one arc a line; in a folder only with an ending in :data:`LISTS`
        and with the same number of columns in most lines
======= ============================================================================

A file without any content is what its ending says. What is not local is told by its ending alone:
:data:`ENDINGS`. ``.gz`` may follow on all but Parquet.

Folders are read without those in them, and without the files that are hidden (their names begin
with a dot or an underscore) or are not complete yet (``.part``). What else a folder holds is left
out and named in :attr:`Inputs.ignored`; a file that was asked for by its name is never left out.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pubsubd.mesh.edges import COLUMNS
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

LINES = "file string, line string"
"""Of what is text: where it was found, and the line, whose bytes may be no UTF-8."""

_PACKED = 20  # bytes of text to one that is compressed, as much as repetitive exports are
_PEEKED = 65_536  # bytes of a file that tell what it is
_LOOKED_AT = 100  # lines of a list that tell whether it is one
_HEADER = ",".join(COLUMNS)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_MAGIC = re.compile(r"[*?\[{]")  # what makes a path a glob
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Inputs:
    """Inputs, by format.

    Attributes:
        jsonl: lines of exports in JSON: :data:`LINES`. As each of these, None if there are none.
        csv: lines of exports in CSV, those with the columns' names among them: :data:`LINES`.
        parquet: rows of exports: ``file``, and the columns of an edge list as they were found.
        lists: lines of bare lists: :data:`LINES`.
        files: the files, sorted.
        ignored: files of folders that are left out, sorted.
    """

    jsonl: DataFrame | None
    csv: DataFrame | None
    parquet: DataFrame | None
    lists: DataFrame | None
    files: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def text(self) -> bool:
        """True if any input has to be parsed."""
        return any(one is not None for one in (self.jsonl, self.csv, self.lists))

    @property
    def told(self) -> bool:
        """True if any input was exported by daemons."""
        return any(one is not None for one in (self.jsonl, self.csv, self.parquet))


def read_inputs(spark: SparkSession, paths: Sequence[str]) -> Inputs:
    """Return the inputs at ``paths``.

    Args:
        spark: where it is read.
        paths: files, folders and globs, local or as URLs that Spark takes (``s3a://``,
            ``hdfs://``, ``file://``). Local ones have to be at the same place for all executors.

    Raises:
        TopologyError: something is not there, or is no edge list.
    """
    formats: dict[str, str] = {}
    ignored: set[str] = set()
    for path in paths:
        found, others = _find(spark, path)
        formats |= found
        ignored |= set(others)
    by_format: dict[str, list[str]] = defaultdict(list)
    for file in sorted(formats):
        by_format[formats[file]].append(file)
    frames: dict[str, DataFrame] = {}
    for name, files in by_format.items():
        read = _read_parquet if name == "parquet" else _read_lines
        frames[name] = read(spark, files)
    return Inputs(
        jsonl=frames.get("jsonl"),
        csv=frames.get("csv"),
        parquet=frames.get("parquet"),
        lists=frames.get("list"),
        files=tuple(sorted(formats)),
        ignored=tuple(sorted(ignored - formats.keys())),
    )


def size_here(paths: Sequence[str]) -> float:
    """Return about how many bytes of text there are, before Spark is there to look.

    What is not local may be any number: infinity.
    """
    total = 0.0
    for path in paths:
        if _REMOTE.match(path):
            return math.inf
        named = [Path(one) for one in glob.glob(path)] or [Path(path)]
        for one in named:
            for file in one.iterdir() if one.is_dir() else [one]:
                with contextlib.suppress(OSError):  # it is told when it is read
                    packed = file.suffix.lower() in {".gz", ".parquet"}
                    total += file.stat().st_size * (_PACKED if packed else 1)
    return total


def read_nodes(spark: SparkSession, path: str) -> DataFrame:
    """Return the daemons that a node list names: ``id string, address string``, each id once.

    A line has a name, and an address (``HOST:PORT``) may follow, after a tab, space or comma.
    Lines that begin with ``#``, are empty or are not UTF-8 are left out. Of several addresses the
    last in the order of their bytes is taken.

    Raises:
        TopologyError: it is not there, or is no text.
    """
    formats, _ = _find(spark, path, nodes=True)
    parts = F.split(F.trim("line"), r"[\s,]+", 3)
    return (
        _read_lines(spark, sorted(formats))
        .where(F.is_valid_utf8("line"))
        .select(
            F.regexp_replace(parts[0], "^\ufeff", "").alias("id"),
            F.nullif(F.get(parts, 1), F.lit("")).alias("address"),
        )
        .where((F.col("id") != "") & ~F.startswith("id", F.lit("#")))
        .groupBy("id")
        .agg(F.max("address").alias("address"))
    )


# Which files there are


def look_here(paths: Sequence[str], nodes: str | None) -> None:
    """Check local inputs, so that their faults are reported before Spark has started.

    Raises:
        TopologyError: as :func:`read_inputs` and :func:`read_nodes`.
    """
    for path in paths:
        if (local := _local(path)) is not None:
            _find_here(local, nodes=False)
    if nodes is not None and (local := _local(nodes)) is not None:
        _find_here(local, nodes=True)


def _local(path: str) -> str | None:
    """Return the path of what is local, without its scheme."""
    if not _REMOTE.match(path):
        return path
    address = urlsplit(path)
    return unquote(address.path) if address.scheme.lower() == "file" else None


def _find(spark: SparkSession, path: str, nodes: bool = False) -> tuple[dict[str, str], list[str]]:
    """Return the files at ``path`` with their formats, and those that are left out."""
    local = _local(path)
    return (_find_remote(spark, path, nodes), []) if local is None else _find_here(local, nodes)


def _find_here(path: str, nodes: bool) -> tuple[dict[str, str], list[str]]:
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
    files = [
        path
        for path in sorted(folder.iterdir())
        if not path.name.startswith((".", "_")) and not path.name.endswith(".part")
        if path.is_file()
    ]
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


def _find_remote(spark: SparkSession, path: str, nodes: bool) -> dict[str, str]:
    """Return the files at a URL, which is a file, a folder or a glob.

    Raises:
        TopologyError: it is not there, or what it is cannot be told.
    """
    try:
        # It lists files without reading them, as long as nobody asks for their content.
        listed = spark.read.format("binaryFile").load(path).select("path").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise TopologyError(f"{path}: there is no such file or folder") from error
        raise
    files = sorted(row["path"] for row in listed if not row["path"].endswith(".part"))
    if not files:
        raise TopologyError(f"{path}: there are no files in it")
    if nodes:
        return dict.fromkeys(files, "list")
    endings = {file: _ending(file) for file in files}
    found = {
        file: "csv" if ending == "csv" else ENDINGS[ending]
        for file, ending in endings.items()
        if ending in ENDINGS
    }
    if not found:
        raise TopologyError(
            f"{path}: no file has an ending of an edge list ({', '.join(sorted(ENDINGS))})"
        )
    return found


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
    ending = _ending(path.name)
    _check_name(path)
    start, whole = _peek(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    if ending == "parquet":
        raise TopologyError(f"{path} is not a Parquet file")
    if _BINARY.search(start):
        raise TopologyError(f"{path} is no edge list: it is not text in UTF-8")
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    first = lines[0].strip() if lines else ""
    if first.startswith(("{", "[")):
        # One line that was cut off by the end of whoever wrote it has no names yet.
        cut = whole and len(lines) == 1 and ENDINGS.get(ending) == "jsonl"
        if first.startswith("{") and (cut or any(f'"{name}"' in first for name in COLUMNS)):
            return "jsonl"
        raise TopologyError(f"{path} is no edge list: it is JSON, but not one row a line")
    if not first and ending in ENDINGS:
        return ENDINGS[ending]
    names = [name.strip().strip('"') for name in first.split(",")]
    if names == list(COLUMNS):
        return "csv"
    if {"ts", "src", "dst"} <= set(names):
        raise TopologyError(f"{path}: its columns are not {_HEADER}")
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


def _is_table(lines: Sequence[str]) -> bool:
    """Return whether most lines have the same number of columns, two or more."""
    counts = [len(re.split(r"[\s,]+", line.strip())) for line in islice(lines, _LOOKED_AT)]
    usual = max(set(counts), key=counts.count, default=0)
    return usual >= 2 and 2 * counts.count(usual) > len(counts)


def _ending(name: str) -> str:
    """Return the ending of a file's name without the dot, and without ``.gz``."""
    return name.lower().removesuffix(".gz").rpartition(".")[2]


# What Spark makes of them


def _read_lines(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    return spark.read.text(_spelled(files)).select(_file(), F.col("value").alias("line"))


def _file() -> Column:
    """The file that a row is of: its path if it is local, else its URL."""
    path = F.col("_metadata.file_path")
    # It is a URL; a plus is one there.
    plain = F.when(~F.contains(path, F.lit("%")), path).otherwise(
        F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    )
    return F.regexp_replace(plain, "^file:(//)?", "").alias("file")


def _spelled(files: Iterable[str]) -> list[str]:
    """Return ``files`` as Spark takes them: it sees globs in what are names."""
    return [
        re.sub(r"([][{}*?\\])", r"\\\1", file if _REMOTE.match(file) else f"file://{file}")
        for file in files
    ]


def _read_parquet(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Return the rows of all files, each one read with the types that it has.

    Raises:
        TopologyError: one cannot be read, or lacks a column.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for file in files:
        alike[_types(file)].append(file)
    frames = []
    for group in alike.values():
        frame = spark.read.parquet(*_spelled(group))
        _check_columns(group[0], frame.columns)
        columns = [F.col(name).try_cast(kind).alias(name) for name, kind in COLUMNS.items()]
        try:
            frames.append(frame.select(_file(), *columns))
        except AnalysisException as error:
            raise TopologyError(
                f"{group[0]} is no edge list: its columns are of other types"
            ) from error
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.union(frame)
    return rows


def _types(file: str) -> tuple[str, ...]:
    """Return the types of a file's columns, so that only files with the same are read together."""
    if _REMOTE.match(file):
        return ()
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise TopologyError(f"{file} is not a whole Parquet file") from error
    _check_columns(file, schema.names)
    return tuple(str(schema.field(name).type) for name in COLUMNS)


def _check_columns(file: str, names: Sequence[str]) -> None:
    if missing := [name for name in COLUMNS if name not in names]:
        raise TopologyError(f"{file} is no edge list: it lacks the columns {', '.join(missing)}")
