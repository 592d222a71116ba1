"""Edge lists: rows as JSON lines, CSV and Parquet, and the files of an exporter."""

from __future__ import annotations

import csv
import io
import json
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pubsubd.mesh.edges import (
    COLUMNS,
    OPTIONAL,
    EdgesError,
    Exporter,
    write_csv,
    write_jsonl,
    write_parquet,
)
from tests.rows import row

NOW = datetime(2026, 11, 28, 6, 0, 0, 250_000, UTC).timestamp()
NAME = "edges-20261128T060000.250Z.jsonl"

ROWS = [row(), row(observer="b", rtt_ms=None, messages=2**63 - 1), row(state="down", rtt_ms=1.0)]


def written(write: Any, rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    write(iter(rows), file)
    assert not file.closed
    return file.getvalue()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# Formats


def test_a_row_is_one_line_of_json_with_the_columns_in_order() -> None:
    lines = written(write_jsonl, ROWS).splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert all(list(json.loads(line)) == list(COLUMNS) for line in lines)


def test_json_has_the_columns_and_no_others_in_any_order_of_the_row() -> None:
    mixed = dict(reversed(row(more=1).items()))
    assert written(write_jsonl, [mixed]) == written(write_jsonl, [row()])


def test_json_is_ascii_without_controls() -> None:
    hostile = row(mesh="é\x1b[31m\x7f\x9b\n\ud800")
    line = written(write_jsonl, [hostile])
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line) == hostile


def test_csv_has_a_header_and_the_same_columns() -> None:
    text = written(write_csv, ROWS).decode()
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert "\r" not in text
    found = list(csv.DictReader(io.StringIO(text)))
    assert found == [
        {key: "" if value is None else str(value) for key, value in one.items()} for one in ROWS
    ]


def test_csv_quotes_what_would_break_it() -> None:
    hostile = row(mesh='a,"b"\nc')
    (found,) = csv.DictReader(io.StringIO(written(write_csv, [hostile]).decode(), newline=""))
    assert found["mesh"] == hostile["mesh"]


def test_parquet_has_types(parquet: Any) -> None:
    table = parquet.read_table(io.BytesIO(written(write_parquet, ROWS)))
    assert {field.name: str(field.type) for field in table.schema} == {
        name: {"bigint": "int64", "timestamp": "timestamp[ms, tz=UTC]"}.get(kind, kind)
        for name, kind in COLUMNS.items()
    }
    assert {field.name for field in table.schema if field.nullable} == OPTIONAL
    times = {"ts", "since"}
    assert table.to_pylist() == [
        {k: datetime.fromisoformat(v) if k in times else v for k, v in one.items()} for one in ROWS
    ]


@pytest.mark.usefixtures("parquet")
def test_a_time_that_is_none_has_no_place_in_parquet() -> None:
    with pytest.raises(EdgesError, match="'yesterday' is not a time"):
        written(write_parquet, [row(ts="yesterday")])


def test_without_rows_the_columns_are_still_told() -> None:
    assert written(write_jsonl, []) == b""
    assert written(write_csv, []).decode() == ",".join(COLUMNS) + "\n"


def test_an_empty_parquet_file_has_its_columns(parquet: Any) -> None:
    table = parquet.read_table(io.BytesIO(written(write_parquet, [])))
    assert (table.num_rows, table.column_names) == (0, list(COLUMNS))


def test_without_pyarrow_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdgesError, match=r"pip install '\.\[parquet\]'"):
        written(write_parquet, ROWS)


# A directory


def test_a_file_is_named_by_its_time_and_holds_the_rows(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    path = Exporter(directory).write(iter(ROWS), NOW)
    assert path == directory / NAME
    assert path.read_bytes() == written(write_jsonl, ROWS)
    assert files(directory) == [NAME]


def test_names_sort_as_their_times_do(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    times = [NOW + seconds for seconds in (0, 0.001, 0.75, 59.75, 3600, 86_400, 1e8)]
    names = [exporter.write([], now).name for now in times]
    assert names == sorted(set(names))


def test_only_so_many_files_stay(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, keep=3)
    names = [exporter.write([], NOW + number).name for number in range(10)]
    assert files(tmp_path) == names[-3:]


def test_one_file_can_be_all_that_stays(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, keep=1)
    names = [exporter.write([], NOW + number).name for number in range(3)]
    assert files(tmp_path) == names[-1:]


def test_none_at_all_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 files"):
        Exporter(tmp_path, keep=0)


def test_files_of_an_earlier_start_count(tmp_path: Path) -> None:
    for number in range(5):
        Exporter(tmp_path, keep=100).write([], NOW + number)
    last = Exporter(tmp_path, keep=2).write([], NOW + 9)
    assert len(files(tmp_path)) == 2
    assert files(tmp_path)[-1] == last.name


OTHERS = [
    "notes.txt",
    "edges.jsonl",
    "edges-20200101.jsonl",
    "edges-20200101T000000.000Z.jsonl.gz",
    "edges-20200101T000000.000Z.json",
    "my-edges-20200101T000000.000Z.jsonl",
    "edges-20200101T000000.000Z.jsonl\n",
    "edges-2020\uff10101T000000.000Z.jsonl",
    ".edges-20200101T000000.000Z.jsonl",
]


def test_files_with_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in OTHERS:
        (tmp_path / name).write_text("mine")
    exporter = Exporter(tmp_path, keep=1)
    for number in range(3):
        last = exporter.write([], NOW + number)
    assert files(tmp_path) == sorted([*OTHERS, last.name])
    assert {(tmp_path / name).read_text() for name in OTHERS} == {"mine"}


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "edges-20200101T000000.000Z.jsonl").mkdir()
    (tmp_path / "edges-20200102T000000.000Z.jsonl").symlink_to("elsewhere")
    before = files(tmp_path)
    last = Exporter(tmp_path, keep=1).write([], NOW)
    assert files(tmp_path) == [*before, last.name]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("first")
    (tmp_path / NAME.replace("250Z", "251Z")).symlink_to("elsewhere")
    path = Exporter(tmp_path).write(ROWS, NOW)
    assert path.name == NAME.replace("250Z", "252Z")
    assert (tmp_path / NAME).read_text() == "first"
    assert len(files(tmp_path)) == 3


def test_two_daemons_with_one_directory_lose_nothing(tmp_path: Path) -> None:
    paths: list[Path] = []
    start = threading.Barrier(4)

    def write(number: int) -> None:
        exporter = Exporter(tmp_path)
        start.wait()
        paths.extend(exporter.write([row(messages=number)], NOW) for _ in range(50))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 200
    assert files(tmp_path) == sorted(path.name for path in paths)
    found = sorted(json.loads(path.read_bytes())["messages"] for path in paths)
    assert found == [number for number in range(4) for _ in range(50)]


def test_the_file_just_written_stays_when_the_clock_was_turned_back(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, keep=2)
    late = [exporter.write([], NOW + number).name for number in (1, 2)]
    early = exporter.write(ROWS, NOW - 1000)
    assert files(tmp_path) == [early.name, late[-1]]


def test_what_a_crash_left_half_written_is_removed_later(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    left = tmp_path / f".{NAME}.part"
    left.write_text("half")
    soon = exporter.write([], NOW + 60)  # it may be somebody's who is writing it
    assert files(tmp_path) == [left.name, soon.name]
    late = exporter.write([], NOW + 7200)
    assert files(tmp_path) == [soon.name, late.name]


def test_a_file_that_cannot_be_completed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        Exporter(tmp_path).write(ROWS, NOW)
    assert str(caught.value) == (
        f"an edge list cannot be written to {str(tmp_path)!r}: No space left on device"
    )
    assert files(tmp_path) == []


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="an edge list cannot be written to") as caught:
            Exporter(directory).write(ROWS, NOW)
        assert repr(str(directory)) in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_old_file_that_cannot_be_removed_is_told_and_the_new_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Exporter(tmp_path, keep=1)
    exporter.write([], NOW)

    def refuse(_path: Path, **_more: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="old edge lists cannot be removed from"):
        exporter.write(ROWS, NOW + 1)
    assert len(files(tmp_path)) == 2
