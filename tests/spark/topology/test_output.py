"""A report at a URL: what executors write meanwhile and its files go there, and nothing else."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsubd.topology.output import writing
from pubsubd.topology.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def url(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A URL of Hadoop's file system of mounts: that of ``far``, a directory."""
    (tmp_path / "far").mkdir()
    host = f"test{secrets.token_hex(4)}"  # Hadoop remembers what it has seen at one
    name = f"fs.viewfs.mounttable.{host}.link./far"
    spark.conf.set(name, (tmp_path / "far").as_uri())
    yield f"viewfs://{host}/far/new/report"
    spark.conf.unset(name)


def scratch(folder: Path) -> Path:
    """Return a new directory of this machine."""
    return Path(tempfile.mkdtemp(dir=folder))


def test_a_report_goes_to_any_file_system_that_hadoop_knows(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    far = tmp_path / "far" / "new" / "report"
    with writing(spark, url, scratch(tmp_path)) as (shared, made):
        store = Store(spark, shared, here=False)
        rows = store.keep(spark.range(6).selectExpr("id", "id % 2 as kind"))
        parts = store.write(rows, ["id"], "table", by="kind")
        assert all(list((parts / f"kind={one}").glob("part-*.parquet")) for one in (0, 1))
        (folder,) = far.iterdir()
        assert folder.name.startswith(".topology-")
        (made / "report.json").write_text("{}")
    # Hadoop's local files have sums beside them, which are hidden.
    assert [path.name for path in far.glob("[!.]*")] == ["report.json"]
    assert not list(far.glob(".topology-*"))
    with writing(spark, url, scratch(tmp_path)) as (_, made):
        (made / "report.json").write_text("[]")
    assert (far / "report.json").read_text() == "[]"


def test_what_fails_leaves_nothing(spark: SparkSession, tmp_path: Path, url: str) -> None:
    def fail() -> None:
        with writing(spark, url, scratch(tmp_path)) as (_, made):
            (made / "report.json").write_text("{}")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list((tmp_path / "far" / "new" / "report").iterdir()) == []
