"""The inputs of an analysis, opened by Spark.

What is local is told by its beginning (:mod:`pubsubd.topology.inputs`), what is not by its ending
alone: :data:`~pubsubd.topology.inputs.ENDINGS`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pubsubd.mesh.edge_files import superseded
from pubsubd.mesh.edges import COLUMNS, REQUIRED
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.inputs import ENDINGS, ending_of, find_here, is_remote, local_path

LINES = "file string, line string"
"""Of what is text: where it was found, and the line, whose bytes may be no UTF-8."""


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


def _find(spark: SparkSession, path: str, nodes: bool = False) -> tuple[dict[str, str], list[str]]:
    """Return the files at ``path`` with their formats, and those that are left out."""
    local = local_path(path)
    return (_find_remote(spark, path, nodes), []) if local is None else find_here(local, nodes)


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
        re.sub(r"([][{}*?\\])", r"\\\1", file if is_remote(file) else f"file://{file}")
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
        # Of remote files nobody has looked at each one's columns: those of all are needed.
        merge = is_remote(group[0])
        frame = spark.read.option("mergeSchema", merge).parquet(*_spelled(group))
        _check_columns(group[0], frame.columns)
        columns = [
            (F.col(name) if name in frame.columns else F.lit(None)).try_cast(kind).alias(name)
            for name, kind in COLUMNS.items()
        ]
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
    if is_remote(file):
        return ()
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise TopologyError(f"{file} is not a whole Parquet file") from error
    _check_columns(file, schema.names)
    return tuple(str(schema.field(name).type) if name in schema.names else "" for name in COLUMNS)


def _check_columns(file: str, names: Sequence[str]) -> None:
    if missing := [name for name in REQUIRED if name not in names]:
        raise TopologyError(f"{file} is no edge list: it lacks the columns {', '.join(missing)}")
