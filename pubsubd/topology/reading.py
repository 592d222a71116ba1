"""The inputs of an analysis, opened by Spark.

Local ones were looked at before (:mod:`pubsubd.topology.preparing`); the others are what their
endings say: :data:`~pubsubd.topology.inputs.ENDINGS`.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from pubsubd.mesh.edge_files import superseded
from pubsubd.mesh.edges import COLUMNS, LATER, REQUIRED
from pubsubd.topology.days import read_days
from pubsubd.topology.dealing import ALONE
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.formats.links import ARCS
from pubsubd.topology.inputs import ENDINGS, days_of_several, ending_of, is_remote
from pubsubd.topology.preparing import Prepared

_WRITTEN = {
    "timestamp": "timestamp[ms, tz=UTC]",
    "string": "string",
    "double": "double",
    "bigint": "int64",
}  # types of columns in the files of daemons

LINES = "file string, line string"
"""Of what is text: where it was found, and the line, whose bytes may be no UTF-8."""


@dataclass(frozen=True)
class Inputs:
    """Inputs, by format.

    Attributes:
        jsonl: lines of exports in JSON: :data:`LINES`. As each of these, None if there are none.
        csv: lines of exports in CSV, those with the columns' names among them: :data:`LINES`.
        parquet: rows of exports: ``file``, ``rows`` (how many of the files a row stands for, see
            :mod:`pubsubd.topology.days`), and the columns of an edge list as they were found.
        lists: lines of bare lists: :data:`LINES`.
        arcs: rows of converted files: :data:`pubsubd.topology.formats.links.ARCS`.
        files: the files, sorted.
        ignored: how many files of folders are left out.
    """

    jsonl: DataFrame | None
    csv: DataFrame | None
    parquet: DataFrame | None
    lists: DataFrame | None
    arcs: DataFrame | None
    files: tuple[str, ...]
    ignored: int

    @property
    def text(self) -> bool:
        """True if any input has to be parsed."""
        return any(one is not None for one in (self.jsonl, self.csv, self.lists))

    @property
    def told(self) -> bool:
        """True if any input was exported by daemons."""
        return any(one is not None for one in (self.jsonl, self.csv, self.parquet))

    @property
    def listed(self) -> bool:
        """True if any input has links without times."""
        return self.lists is not None or self.arcs is not None


def read_inputs(spark: SparkSession, prepared: Prepared, here: bool = False) -> Inputs:
    """Return the inputs.

    Local files have to be at the same place for all executors. One that has vanished is left out.

    Args:
        spark: the session.
        prepared: the inputs, looked at.
        here: there is little of them.

    Raises:
        TopologyError: something is not there, or is no edge list.
    """
    formats = dict(prepared.files)
    for url in prepared.remote:
        found = _find_remote(spark, url, nodes=False)
        formats |= {
            file: form
            for file, form in found.items()
            if prepared.times.may_have(file.rpartition("/")[2])
        }
    by_format: dict[str, list[str]] = defaultdict(list)
    for file in sorted(formats):
        by_format[formats[file]].append(file)
    frames: dict[str, DataFrame] = {}
    for name, files in by_format.items():
        frames[name] = _read_there(spark, name, files, prepared, here)
    return Inputs(
        jsonl=frames.get("jsonl"),
        csv=frames.get("csv"),
        parquet=frames.get("parquet"),
        lists=frames.get("list"),
        arcs=frames.get("arcs"),
        files=tuple(sorted(map(prepared.origin, formats))),
        ignored=len(prepared.ignored),
    )


def _read_there(
    spark: SparkSession, name: str, files: Sequence[str], prepared: Prepared, here: bool
) -> DataFrame:
    """Return the rows of the files that are there: daemons delete old exports."""
    while True:
        there = [file for file in files if is_remote(file) or Path(file).exists()]
        if not there:
            raise TopologyError(f"there is nothing to analyse: {files[0]} has vanished")
        try:
            if name == "parquet":
                return _read_parquet(spark, there, here)
            if name == "arcs":
                return _reader(spark).parquet(*_spelled(there)).select(*ARCS.names)
            if prepared.size < ALONE and not any(file.lower().endswith(".gz") for file in there):
                return _read_lines_here(spark, there, prepared.origins)
            return _read_lines(spark, there, prepared.origins)
        except (AnalysisException, FileNotFoundError) as error:
            if isinstance(error, AnalysisException) and "PATH_NOT_FOUND" not in str(error):
                raise
            if all(is_remote(file) or Path(file).exists() for file in there):
                raise


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("ignoreMissingFiles", "true")


def read_nodes(spark: SparkSession, path: str) -> DataFrame:
    """Return the daemons that a node list names: ``id, address, domains``, texts, each id once.

    A line has a name, and words may follow, after tabs, spaces or commas: one with a ``=`` names a
    failure domain, like ``site=ber``, another one is an address (``HOST:PORT``). Lines that begin
    with ``#``, are empty or are not UTF-8 are left out. Of several lines of one daemon the last
    address and the last domains in the order of their bytes are taken.

    Raises:
        TopologyError: it is not there, or is no text.
    """
    files = sorted(_find_remote(spark, path, nodes=True)) if is_remote(path) else [path]
    parts = F.split(F.trim("line"), r"[\s,]+")
    more = F.slice(parts, 2, F.size(parts))
    domains = F.filter(more, lambda word: F.contains(word, F.lit("=")))
    others = F.array_except(more, domains)
    return (
        _read_lines(spark, files, {})
        .where(F.is_valid_utf8("line"))
        .select(
            F.regexp_replace(parts[0], "^\ufeff", "").alias("id"),
            F.nullif(F.get(others, 0), F.lit("")).alias("address"),
            F.nullif(F.array_join(domains, " "), F.lit("")).alias("domains"),
        )
        .where((F.col("id") != "") & ~F.startswith("id", F.lit("#")))
        .groupBy("id")
        .agg(F.max("address").alias("address"), F.max("domains").alias("domains"))
    )


def _find_remote(spark: SparkSession, path: str, nodes: bool) -> dict[str, str]:
    """Return the files at a URL, which is a file, a folder or a glob.

    Raises:
        TopologyError: it is not there, or what it is cannot be told.
    """
    try:
        # It lists files without reading them, as long as nobody asks for their content.
        lister = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        listed = lister.load(path).select("path").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise TopologyError(f"{path}: there is no such file or folder") from error
        raise
    folders: dict[str, set[str]] = defaultdict(set)
    for row in listed:
        folder, slash, name = row["path"].rpartition("/")
        folders[folder + slash].add(name)
    files = sorted(
        folder + name
        for folder, names in folders.items()
        for name in names - superseded(names)
        if not name.endswith(".part")
    )
    if not files:
        raise TopologyError(f"{path}: there are no files in it")
    if nodes:
        return dict.fromkeys(files, "list")
    endings = {file: ending_of(file) for file in files}
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


# What Spark makes of them


def _read_lines_here(
    spark: SparkSession, files: Sequence[str], origins: Mapping[str, str]
) -> DataFrame:
    """Return what :func:`_read_lines` does, read by this process: Spark compiles code to do it."""
    names: list[str] = []
    lines: list[bytes] = []
    for file in files:
        text = Path(file).read_bytes().removeprefix(codecs.BOM_UTF8)
        found = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n").split(b"\n")
        lines += found
        names += [origins.get(file, file)] * len(found)
    texts = pa.array(lines, pa.binary()).view(pa.string())
    return spark.createDataFrame(pa.table({"file": pa.array(names, pa.string()), "line": texts}))


def _read_lines(spark: SparkSession, files: Sequence[str], origins: Mapping[str, str]) -> DataFrame:
    file = _file()
    if copies := {copy: origin for copy, origin in origins.items() if copy in set(files)}:
        known = F.create_map(*(F.lit(one) for pair in copies.items() for one in pair))
        file = F.coalesce(F.try_element_at(known, file), file)
    lines = _reader(spark).text(_spelled(files))
    return lines.select(file.alias("file"), F.col("value").alias("line"))


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
        re.sub(r"([][{}*?\\])", r"\\\1", file if is_remote(file) else f"file://{file}")
        for file in files
    ]


def _read_parquet(spark: SparkSession, files: Sequence[str], here: bool) -> DataFrame:
    """Return the rows of all files, each one read with the types that it has.

    Days that several daemons have kept are read as one each.

    Raises:
        TopologyError: one cannot be read, or lacks a column.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for file in files:
        alike[_types(file)].append(file)
    frames = []
    days = days_of_several(
        file for types, some in alike.items() if _are_ours(types) for file in some
    )
    if days:
        frames.append(read_days(spark, days, here))
    read = {file for day in days for file in day}
    rest = ([file for file in some if file not in read] for some in alike.values())
    for group in filter(None, rest):
        # Of remote files nobody has looked at each one's columns: those of all are needed.
        merge = is_remote(group[0])
        frame = _reader(spark).option("mergeSchema", merge).parquet(*_spelled(group))
        _check_columns(group[0], frame.columns)
        columns = [
            (F.col(name) if name in frame.columns else F.lit(None)).try_cast(kind).alias(name)
            for name, kind in COLUMNS.items()
        ]
        try:
            frames.append(frame.select(_file(), F.lit(1).cast("bigint").alias("rows"), *columns))
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
    if is_remote(file):
        return ()
    try:
        schema = pq.read_schema(file)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise TopologyError(f"{file} is not a whole Parquet file") from error
    _check_columns(file, schema.names)
    return tuple(str(schema.field(name).type) if name in schema.names else "" for name in COLUMNS)


def _are_ours(types: Sequence[str]) -> bool:
    """Tell whether columns of these types were written by a daemon, of this version or earlier."""
    return bool(types) and all(
        found == _WRITTEN[kind] or (not found and name in LATER)
        for found, (name, kind) in zip(types, COLUMNS.items(), strict=True)
    )


def _check_columns(file: str, names: Sequence[str]) -> None:
    if missing := [name for name in REQUIRED if name not in names]:
        raise TopologyError(f"{file} is no edge list: it lacks the columns {', '.join(missing)}")
