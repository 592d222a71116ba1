"""Inputs of the analysis: which files there are, what they are told to be, and what is no input."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsubd.mesh.edges import LATER, write_csv, write_jsonl, write_parquet
from pubsubd.topology.cleaning import check
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import prepare
from pubsubd.topology.reading import Inputs, read_inputs, read_nodes
from pubsubd.topology.scratch import Scratch
from tests.rows import row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(40)
GRAPHML = b"""<graphml><graph edgedefault="directed"><node id="a"/><node id="i"/><node id="alone"/>
<edge source="a" target="i"/></graph></graphml>"""


def written(write: Any, **more: Any) -> bytes:
    file = io.BytesIO()
    write([row(**more)], file)
    return file.getvalue()


def put(folder: Path, **files: bytes) -> Path:
    """Write files whose names have two underscores for dots."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def arcs(inputs: Inputs) -> list[tuple[str, str, str | None]]:
    """Return the ending of the file, and the arc, of all rows that are good."""
    rows = check(inputs).where("reason is null").select("file", "src", "dst").collect()
    found = [(Path(row[0]).name.partition(".")[2], row[1], row[2]) for row in rows]
    return sorted(found, key=str)


Read = Callable[[Path], Inputs]


@pytest.fixture
def read(spark: SparkSession, tmp_path: Path) -> Iterator[Read]:
    """Read what is at a path; what is made for that stays as long as the test takes."""
    with Scratch(tmp_path / "out") as scratch:
        yield lambda path: read_inputs(
            spark, prepare(Job([str(path)], tmp_path / "out"), scratch, print)
        )


def refused(read: Read, path: Path) -> str:
    with pytest.raises(TopologyError) as caught:
        read(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_format_of_a_folder_is_told_by_its_content(read: Read, tmp_path: Path) -> None:
    put(
        tmp_path / "all",
        x__jsonl=written(write_jsonl),
        x__json__gz=gzip.compress(written(write_jsonl, dst="c")),
        x__csv=written(write_csv, dst="d"),
        x__parquet=written(write_parquet, dst="e"),
        y__csv=b"a,f\r\n",
        x__edges=b"# a comment\na\tg\t0.5\n",
        x__txt__gz=gzip.compress(b"a h\n"),
        x__graphml=GRAPHML,
        x__txt__bz2=bz2.compress(b"a j\n"),
        z__csv=b"id,source,target\n1,a,k\n",
        unknown__log=b"a b\n",
        picture__png=PNG,
    )
    inputs = read(tmp_path / "all")
    assert inputs.ignored == 2
    assert arcs(inputs) == [
        ("csv", "a", "d"),
        ("csv", "a", "f"),
        ("csv", "a", "k"),
        ("edges", "a", "g"),
        ("graphml", "a", "i"),
        ("graphml", "alone", None),
        ("json.gz", "a", "c"),
        ("jsonl", "a", "b"),
        ("parquet", "a", "e"),
        ("txt.bz2", "a", "j"),
        ("txt.gz", "a", "h"),
    ]


def test_names_with_spaces_signs_and_other_scripts_are_no_globs_and_come_back_as_they_are(
    read: Read, tmp_path: Path
) -> None:
    name = "x [1]{2}*?%41+é 日.txt"
    path = put(tmp_path / "some") / name
    path.write_text("a b\n")
    lists = read(path.parent).lists
    assert lists is not None
    assert [row["file"] for row in lists.collect()] == [str(path)]


def test_parquet_needs_all_columns_and_takes_them_in_any_order_and_type_that_fits(
    read: Read, tmp_path: Path
) -> None:
    whole = pq.read_table(io.BytesIO(written(write_parquet)))
    pq.write_table(whole.drop_columns(["state", "bytes"]), tmp_path / "less.parquet")
    assert refused(read, tmp_path / "less.parquet").endswith("lacks the columns state, bytes")
    nested = whole.set_column(0, "ts", pa.array([[1]]))
    pq.write_table(nested, tmp_path / "nested.parquet")
    assert refused(read, tmp_path / "nested.parquet").endswith("columns are of other types")
    turned = whole.select(whole.column_names[::-1])
    place = turned.column_names.index("bytes")
    small = turned.set_column(place, "bytes", pa.array([7], pa.int32())).drop_columns(list(LATER))
    folder = put(tmp_path / "good")
    pq.write_table(whole, folder / "a.parquet")
    pq.write_table(small, folder / "b.parquet")
    parquet = read(folder).parquet
    assert parquet is not None
    rows = parquet.orderBy("bytes").collect()
    assert [(row["src"], row["bytes"], row["rtt_ms"], row["version"]) for row in rows] == [
        ("a", 7, 0.25, None),
        ("a", 99, 0.25, "0.1.0"),
    ]


def test_a_node_list_has_a_name_a_line_and_maybe_an_address_and_domains(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = b"# names\n\nb\r\na  10.0.0.1:9014 site=ber rack=7\nc,h:1,x\na\nbad\xff\n  d\n"
    (tmp_path / "nodes").write_bytes(data)
    rows = read_nodes(spark, str(tmp_path / "nodes")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        ("a", "10.0.0.1:9014", "site=ber rack=7"),
        ("b", None, None),
        ("c", "h:1", None),
        ("d", None, None),
    ]
