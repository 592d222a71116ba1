"""Inputs of the analysis before Spark starts: files, folders, globs, pipes; and what is none."""

from __future__ import annotations

import bz2
import gzip
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pubsubd.mesh.edges import COLUMNS
from pubsubd.topology import scratch as scratch_module
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.formats.tables import Columns
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import ARCS, Prepared, mesh_of, prepare
from pubsubd.topology.scratch import Scratch

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(40)
GML = b"graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]\n"


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    with Scratch(tmp_path / "out") as made:
        yield made
    assert not (tmp_path / "out").exists()


def put(folder: Path, **files: bytes) -> Path:
    """Write files whose names have two underscores for dots."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def prepared(scratch: Scratch, *inputs: Path | str, lenient: bool = False) -> Prepared:
    job = Job([str(one) for one in inputs], Path("out"), lenient=lenient)
    return prepare(job, scratch, lambda _: None)


def names(prepared: Prepared) -> list[str]:
    return sorted(Path(prepared.origin(file)).name for file in prepared.files)


def refused(scratch: Scratch, *inputs: Path | str) -> str:
    with pytest.raises(TopologyError) as caught:
        prepared(scratch, *inputs)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_globs_and_urls_of_files_are_read_and_a_file_that_comes_twice_is_read_once(
    scratch: Scratch, tmp_path: Path
) -> None:
    put(tmp_path, one__txt=b"a b\n", two__txt=b"c d\n", other__tsv=b"e f\n")
    paths = [tmp_path / "*.txt", (tmp_path / "one.txt").as_uri(), tmp_path / "o*.t*"]
    assert names(prepared(scratch, *paths)) == ["one.txt", "other.tsv", "two.txt"]
    far = prepared(scratch, "s3a://bucket/edges/", tmp_path / "one.txt")
    assert (far.remote, far.size) == (["s3a://bucket/edges/"], float("inf"))


def test_hidden_and_unfinished_files_of_a_folder_are_left_alone(
    scratch: Scratch, tmp_path: Path
) -> None:
    put(tmp_path, a__txt=b"a b\n", __b__txt=b"a b\n", c__txt__part=b"a b\n", _d=b"a b\n")
    (tmp_path / "folder").mkdir()
    put(tmp_path / "out", earlier__txt=b"a b\n")
    found = prepare(Job([str(tmp_path)], tmp_path / "out"), scratch, print)
    (tmp_path / "out" / "earlier.txt").unlink()
    (tmp_path / "out").rmdir()
    assert (names(found), found.ignored) == (["a.txt"], {})


def test_what_is_not_there_is_told_in_one_line(scratch: Scratch, tmp_path: Path) -> None:
    assert refused(scratch, tmp_path / "no") == f"{tmp_path}/no: there is no such file or folder"
    assert refused(scratch, tmp_path / "*.txt") == f"{tmp_path}/*.txt: nothing matches it"
    assert "no such file" in refused(scratch, f"file://{tmp_path}/gone")
    put(tmp_path, a__txt=b"a b\n")
    job = Job([str(tmp_path / "a.txt")], tmp_path / "out", nodes=tmp_path / "none")
    with pytest.raises(TopologyError, match="no such file"):
        prepare(job, scratch, print)


def test_a_folder_without_edge_lists_is_told_in_one_line(scratch: Scratch, tmp_path: Path) -> None:
    assert refused(scratch, put(tmp_path / "empty")).endswith("there are no files in it")
    pictures = put(tmp_path / "pictures", a__png=PNG, b__txt=PNG, c__txt=b"\x00\x01\x02")
    assert refused(scratch, pictures).endswith("none of its 3 files is an edge list")
    prose = b"Two words\nand three more\nand then there are four\n"
    assert "none of its 1 files" in refused(scratch, put(tmp_path / "prose", readme__txt=prose))
    other = put(tmp_path / "other", package__json=b'{\n "name": "x"\n}\n', list__json=b"[1]\n")
    assert "none of its 2 files" in refused(scratch, other)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.png", PNG, "a picture"),
        ("a.parquet", b"a b\n", "not a Parquet file"),
        ("a.json", b'[{"ts": 1}]', "without links of a mesh"),
        ("a.jsonl", b"a b\n", "not JSON"),
        ("a.csv", b"mesh,ts,observer,src,dst\n", "its columns are not ts,mesh,"),
        ("a.txt.gz", gzip.compress(b"a b\n" * 9)[:-9], "cannot be read"),
        ("_a.txt", b"a b\n", "begins with"),
        ("a:b.txt", b"a b\n", "colon"),
    ],
)
def test_a_file_that_is_no_edge_list_is_told_in_one_line(
    scratch: Scratch, tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert why in refused(scratch, tmp_path / name)


def test_a_file_that_was_asked_for_may_have_any_ending_and_a_line_that_was_cut_off(
    scratch: Scratch, tmp_path: Path
) -> None:
    put(tmp_path, a__log=b"a b\n", b__jsonl=b'{"ts', c__jsonl=b"", d__txt=b"# nothing\n")
    paths = [tmp_path / name for name in ("a.log", "b.jsonl", "c.jsonl", "d.txt")]
    assert len(prepared(scratch, *paths).files) == 4


def test_rows_of_daemons_stay_with_spark_even_if_all_are_bad(
    scratch: Scratch, tmp_path: Path
) -> None:
    header = ",".join(COLUMNS).encode()
    put(tmp_path / "d", a__jsonl=b"{}\n\xff\n" * 9 + b'{"ts": 1}\n', b__csv=header + b"\nx\n")
    assert set(prepared(scratch, tmp_path / "d").files.values()) == {"jsonl", "csv"}


def test_without_a_row_there_is_nothing_to_analyse(scratch: Scratch, tmp_path: Path) -> None:
    put(tmp_path, a__txt=b"# none\n", b__csv=(",".join(COLUMNS) + "\n").encode(), c__json=b"")
    put(tmp_path, d__gml=b"graph [ ]\n", e__txt__bz2=bz2.compress(b"\n"))
    files = [tmp_path / name for name in ("a.txt", "b.csv", "c.json", "d.gml", "e.txt.bz2")]
    assert refused(scratch, *files) == "there is nothing to analyse: there are no rows"


# Copies


def test_foreign_formats_are_converted_and_called_after_their_files(
    scratch: Scratch, tmp_path: Path
) -> None:
    put(tmp_path, mesh__gml__gz=gzip.compress(GML))
    found = prepared(scratch, tmp_path / "mesh.gml.gz")
    ((copy, form),) = found.files.items()
    assert (form, found.origin(copy)) == (ARCS, str(tmp_path / "mesh.gml.gz"))
    (one, _) = pq.read_table(copy).to_pylist()
    assert (one["mesh"], one["file"], one["src"], one["dst"]) == (
        "mesh",
        str(tmp_path / "mesh.gml.gz"),
        "1",
        "2",
    )
    put(tmp_path, bad__gml=GML[:-3])
    told = refused(scratch, tmp_path / "bad.gml")
    assert told == f"{tmp_path}/bad.gml: it ends within the graph"


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("freifunk-ulm.edges.tsv.gz", "freifunk-ulm"),
        ("x.GraphML", "x"),
        ("out.zebra", "out.zebra"),
        (".txt", ".txt"),
    ],
)
def test_a_mesh_is_called_after_its_file(name: str, mesh: str) -> None:
    assert mesh_of(name) == mesh


def test_copies_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, x__gml=GML)
    with Scratch(Path("out")) as made:
        (copy,) = prepared(made, "x.gml").files
        assert Path(copy).is_absolute()
    assert os.listdir(tmp_path) == ["x.gml"]


def test_lists_that_spark_cannot_unpack_are_unpacked(scratch: Scratch, tmp_path: Path) -> None:
    put(tmp_path, a__txt__bz2=bz2.compress(b"a b\n"), b__txt=gzip.compress(b"a b\n"))
    put(tmp_path, c__txt__gz=gzip.compress(b"a b\n"), d__txt__gz=b"a b\n")
    found = prepared(scratch, *(tmp_path / f"{one}" for one in sorted(os.listdir(tmp_path))))
    copies = {Path(found.origin(file)).name: Path(file).name for file in found.files}
    assert copies == {
        "a.txt.bz2": "a.txt",
        "b.txt": "b.txt",
        "c.txt.gz": "c.txt.gz",
        "d.txt.gz": "d.txt",
    }
    assert {Path(file).read_bytes() for file in found.origins} == {b"a b\n"}
    assert str(tmp_path / "c.txt.gz") in found.files


def test_copies_leave_room_on_the_disk(
    scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_module, "SPARED", 2**62)
    put(tmp_path, a__txt__bz2=bz2.compress(b"a b\n"))
    assert refused(scratch, tmp_path / "a.txt.bz2").startswith("a.txt.bz2 does not fit: less than")


# Pipes


@pytest.fixture
def pipe() -> Iterator[tuple[str, int]]:
    """The path of a pipe's end that is read, and the other end."""
    reading, writing = os.pipe()
    yield f"/dev/fd/{reading}", writing
    os.close(reading)


def test_a_pipe_is_read_and_may_have_any_format(
    scratch: Scratch, pipe: tuple[str, int], tmp_path: Path
) -> None:
    path, end = pipe
    os.write(end, GML)
    os.close(end)
    found = prepared(scratch, path)
    ((copy, form),) = found.files.items()
    assert (form, found.origin(copy)) == (ARCS, path.replace("/dev/fd/", "pipe-"))


def test_standard_input_is_called_a_minus(
    scratch: Scratch, pipe: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, end = pipe
    os.write(end, b"a b\n")
    os.close(end)
    saved = os.dup(0)
    os.dup2(int(path.rpartition("/")[2]), 0)
    try:
        found = prepared(scratch, "-")
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    ((copy, form),) = found.files.items()
    assert (form, found.origin(copy), Path(copy).name) == ("list", "stdin", "stdin")
    assert Path(copy).read_bytes() == b"a b\n"
    assert "is named twice" in refused(scratch, path, path.replace("/dev", "/proc/self"))


def test_a_fifo_is_read_as_is_a_list_of_nodes(scratch: Scratch, tmp_path: Path) -> None:
    fifos = [tmp_path / "mesh.txt", tmp_path / "nodes"]
    for fifo in fifos:
        os.mkfifo(fifo)

    def write() -> None:
        for fifo in fifos:
            fifo.write_bytes(b"a b\n")

    writer = threading.Thread(target=write)
    writer.start()
    found = prepare(Job([str(fifos[0])], tmp_path / "out", nodes=fifos[1]), scratch, print)
    writer.join()
    ((copy, _),) = found.files.items()
    assert (Path(copy).name, found.origin(copy)) == ("mesh.txt", str(fifos[0]))
    assert found.nodes is not None
    assert Path(found.nodes).read_bytes() == b"a b\n"
    assert found.nodes != str(fifos[1])


def test_what_a_pipe_has_is_refused_by_its_name_too(
    scratch: Scratch, pipe: tuple[str, int]
) -> None:
    path, end = pipe
    os.write(end, b"digraph { a -> b }\n")
    os.close(end)
    told = refused(scratch, path)
    assert told.startswith(f"{path.replace('/dev/fd/', 'pipe-')}: it looks like Graphviz DOT")


def test_devices_and_closed_descriptors_are_no_inputs(scratch: Scratch, tmp_path: Path) -> None:
    assert refused(scratch, "/dev/null") == "/dev/null is a device, not a file of edge lists"
    assert "Bad file descriptor" in refused(scratch, "/dev/fd/987")
    controller, terminal = os.openpty()
    try:
        assert "is a terminal" in refused(scratch, f"/dev/fd/{terminal}")
        assert "is a device" in refused(scratch, os.ttyname(terminal))
    finally:
        os.close(controller)
        os.close(terminal)
    os.mkfifo(tmp_path / "x.fifo")
    assert "named by itself" in refused(scratch, tmp_path / "*.fifo")


def test_columns_are_for_tables_and_not_for_what_says_its_own(
    scratch: Scratch, tmp_path: Path
) -> None:
    put(tmp_path, a__csv=b"1,a,b\n", b__gml=GML, c__jsonl=b'{"ts": 1}\n')
    inputs = [str(tmp_path / name) for name in ("a.csv", "b.gml", "c.jsonl")]
    job = Job(inputs, tmp_path / "out", columns=Columns("2", "3"))
    found = prepare(job, scratch, print)
    assert sorted(found.files.values()) == [ARCS, ARCS, "jsonl"]
