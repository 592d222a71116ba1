"""The place that a report goes to: a directory, or a URL of a file system that Hadoop knows.

A report at a URL is made here and copied there at the end. What the executors write meanwhile goes
there, too, to a folder of its own, since that is what all of them see.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.scratch import PREFIX


@dataclass(frozen=True)
class Shared:
    """A folder that the executors see.

    Attributes:
        here: a directory of this machine.
        url: of the folder: that of ``here``, if no other file system was asked for.
    """

    here: Path
    url: str
    _hadoop: Hadoop | None = None

    def fetch(self, name: str) -> Path:
        """Return the directory of this machine with what executors wrote to the folder ``name``."""
        path = self.here / name
        if self._hadoop is not None:
            self._hadoop.fetch(f"{self.url}/{name}", path)
        return path


class Hadoop:
    """The file system of a URL, as Hadoop sees it.

    Args:
        spark: the session, whose settings (``spark.hadoop.*``) it has.
        url: of a folder.

    Raises:
        TopologyError: the session has no Java here.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        # pyspark has no public way to Hadoop's files.
        known: Any = spark
        if not hasattr(known, "_jvm"):
            raise TopologyError(f"{url}: with Spark Connect, --out has to be a directory")
        self._path = known._jvm.org.apache.hadoop.fs.Path
        settings = known._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path(url).getFileSystem(settings)

    def make(self, url: str) -> None:
        """Make a folder."""
        self._files.mkdirs(self._path(url))

    def remove(self, url: str) -> None:
        """Remove a folder and what is in it."""
        self._files.delete(self._path(url), True)

    def fetch(self, url: str, path: Path) -> None:
        """Copy a folder to this machine."""
        self._files.copyToLocalFile(False, self._path(url), self._path(path.as_uri()), True)

    def put(self, path: Path, url: str) -> None:
        """Copy a file from this machine; one of that name is replaced."""
        self._files.copyFromLocalFile(False, True, self._path(path.as_uri()), self._path(url))


@contextlib.contextmanager
def writing(
    spark: SparkSession, out: Path | str | None, scratch: Path
) -> Iterator[tuple[Shared, Path]]:
    """Give a folder for the executors, and a directory for the report's files.

    The files go to ``out`` when the block is left without a failure.

    Args:
        spark: the session.
        out: an existing directory, or a URL; None for no files.
        scratch: a directory for both; in ``out``, if that is a directory.

    Raises:
        TopologyError: there is no Java here to write to the URL.
        OSError: a file cannot be written.
    """
    files = scratch / "made"
    files.mkdir()
    if not isinstance(out, str):
        yield Shared(scratch, scratch.as_uri()), files
        if out is not None:
            for file in sorted(files.iterdir()):
                file.replace(out / file.name)
        return
    hadoop = Hadoop(spark, out)
    shared = Shared(scratch, f"{out.rstrip('/')}/{PREFIX}{secrets.token_hex(8)}", hadoop)
    hadoop.make(shared.url)
    try:
        yield shared, files
        for file in sorted(files.iterdir()):
            hadoop.put(file, f"{out.rstrip('/')}/{file.name}")
    finally:
        hadoop.remove(shared.url)
