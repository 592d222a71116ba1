"""Inputs of the analysis: which files there are, what they are told to be, and what is no input."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsubd.mesh.edges import LATER, write_csv, write_jsonl, write_parquet
from pubsubd.topology.cleaning import check
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.reading import Inputs, read_inputs, read_nodes
from tests.rows import row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(40)


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


def names(files: tuple[str, ...]) -> list[str]:
    return [Path(file).name for file in files]


def arcs(inputs: Inputs) -> list[tuple[str, str, str]]:
    """Return the ending of the file, and the arc, of all rows that are good."""
    rows = check(inputs).where("reason is null").select("file", "src", "dst").collect()
    return sorted((row[0].partition(".")[2], row[1], row[2]) for row in rows)


def refused(spark: SparkSession, path: Path | str) -> str:
    with pytest.raises(TopologyError) as caught:
        read_inputs(spark, [str(path)])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_format_of_a_folder_is_told_by_its_content(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(
        tmp_path / "all",
        x__jsonl=written(write_jsonl),
        x__json__gz=gzip.compress(written(write_jsonl, dst="c")),
        x__csv=written(write_csv, dst="d"),
        x__parquet=written(write_parquet, dst="e"),
        y__csv=b"a,f\r\n",
        x__edges=b"# a comment\na\tg\t0.5\n",
        x__txt__gz=gzip.compress(b"a h\n"),
        unknown__log=b"a b\n",
        picture__png=PNG,
    )
    inputs = read_inputs(spark, [str(tmp_path / "all")])
    assert names(inputs.ignored) == ["picture.png", "unknown.log"]
    assert arcs(inputs) == [
        ("csv", "a", "d"),
        ("csv", "a", "f"),
        ("edges", "a", "g"),
        ("json.gz", "a", "c"),
        ("jsonl", "a", "b"),
        ("parquet", "a", "e"),
        ("txt.gz", "a", "h"),
    ]


def test_globs_and_urls_of_files_are_read_and_a_file_that_comes_twice_is_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, one__txt=b"a b\n", two__txt=b"c d\n", other__tsv=b"e f\n")
    paths = [str(tmp_path / "*.txt"), (tmp_path / "one.txt").as_uri(), str(tmp_path / "o*.t*")]
    assert names(read_inputs(spark, paths).files) == ["one.txt", "other.tsv", "two.txt"]


def test_names_with_spaces_signs_and_other_scripts_are_no_globs_and_come_back_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = "x [1]{2}*?%41+é 日.txt"
    (tmp_path / name).write_text("a b\n")
    inputs = read_inputs(spark, [str(tmp_path)])
    assert [row["file"] for row in inputs.lists.collect()] == [str(tmp_path / name)]


def test_hidden_and_unfinished_files_of_a_folder_are_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = written(write_jsonl)
    put(tmp_path, a__jsonl=line, __b__jsonl=line, c__jsonl__part=line, _d=line)
    (tmp_path / ".hidden.jsonl").write_bytes(line)
    (tmp_path / "folder").mkdir()
    inputs = read_inputs(spark, [str(tmp_path)])
    assert (names(inputs.files), inputs.ignored) == (["a.jsonl"], ())


def test_what_is_not_there_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    assert refused(spark, tmp_path / "no") == f"{tmp_path}/no: there is no such file or folder"
    assert refused(spark, tmp_path / "*.txt") == f"{tmp_path}/*.txt: nothing matches it"
    gone = f"file://{tmp_path}/gone"
    assert "no such file" in refused(spark, gone)


def test_a_folder_without_edge_lists_is_told_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert refused(spark, put(tmp_path / "empty")).endswith("there are no files in it")
    pictures = put(tmp_path / "pictures", a__png=PNG, b__txt=PNG, c__txt=b"\x00\x01\x02")
    assert refused(spark, pictures).endswith("none of its 3 files is an edge list")
    prose = b"Two words\nand three more\nand then there are four\n"
    assert "none of its 1 files" in refused(spark, put(tmp_path / "prose", readme__txt=prose))
    other = put(tmp_path / "other", package__json=b'{\n "name": "x"\n}\n', list__json=b"[1]\n")
    assert "none of its 2 files" in refused(spark, other)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.png", PNG, "not text"),
        ("a.parquet", b"a b\n", "not a Parquet file"),
        ("a.parquet", b"PAR1 and no more", "not a whole Parquet file"),
        ("a.json", b'[{"ts": 1}]', "not one row a line"),
        ("a.jsonl", b"a b\n", "not JSON"),
        ("a.csv", b"mesh,ts,observer,src,dst\n", "its columns are not ts,mesh,"),
        ("a.txt", gzip.compress(b"a b\n"), "needs the ending .gz"),
        ("a.txt.gz", b"a b\n", "not gzip"),
        ("a.txt.gz", gzip.compress(b"a b\n" * 9)[:-9], "cannot be read"),
        ("_a.txt", b"a b\n", "begins with"),
        ("a:b.txt", b"a b\n", "colon"),
    ],
)
def test_a_file_that_is_no_edge_list_is_told_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert why in refused(spark, tmp_path / name)


def test_a_file_that_was_asked_for_may_have_any_ending_and_a_line_that_was_cut_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, a__log=b"a b\n", b__jsonl=b'{"ts', c__jsonl=b"", d__txt=b"# nothing\n")
    paths = [str(tmp_path / name) for name in ("a.log", "b.jsonl", "c.jsonl", "d.txt")]
    assert len(read_inputs(spark, paths).files) == 4


def test_parquet_needs_all_columns_and_takes_them_in_any_order_and_type_that_fits(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = pq.read_table(io.BytesIO(written(write_parquet)))
    pq.write_table(whole.drop_columns(["state", "bytes"]), tmp_path / "less.parquet")
    assert refused(spark, tmp_path / "less.parquet").endswith("lacks the columns state, bytes")
    nested = whole.set_column(0, "ts", pa.array([[1]]))
    pq.write_table(nested, tmp_path / "nested.parquet")
    assert refused(spark, tmp_path / "nested.parquet").endswith("columns are of other types")
    turned = whole.select(whole.column_names[::-1])
    place = turned.column_names.index("bytes")
    small = turned.set_column(place, "bytes", pa.array([7], pa.int32())).drop_columns(list(LATER))
    folder = put(tmp_path / "good")
    pq.write_table(whole, folder / "a.parquet")
    pq.write_table(small, folder / "b.parquet")
    rows = read_inputs(spark, [str(folder)]).parquet.orderBy("bytes").collect()
    assert [(row["src"], row["bytes"], row["rtt_ms"], row["version"]) for row in rows] == [
        ("a", 7, 0.25, None),
        ("a", 99, 0.25, "0.1.0"),
    ]


def test_a_node_list_has_a_name_a_line_and_maybe_an_address(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = b"# names\n\nb\r\na  10.0.0.1:9014\nc,h:1,x\na\nbad\xff\n  d\n"
    (tmp_path / "nodes").write_bytes(data)
    rows = read_nodes(spark, str(tmp_path / "nodes")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        ("a", "10.0.0.1:9014"),
        ("b", None),
        ("c", "h:1"),
        ("d", None),
    ]
    with pytest.raises(TopologyError, match="no such file"):
        read_nodes(spark, str(tmp_path / "none"))
