"""The files of an exporter: their names, how they are written, and which are removed."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pubsubd.mesh.edge_files import STALE, Exporter, superseded
from pubsubd.mesh.edges import format_row
from tests.rows import row

NOW = datetime(2026, 11, 28, 6, 0, 0, 250_000, UTC).timestamp()
NAME = "edges-20261128T060000.250Z.jsonl"
HOUR = "edges-20261128T06Z.jsonl.gz"
DAY = "edges-20261128Z.parquet"
AGE, SIZE = 86_400.0, 2**30

ROWS = [row(), row(observer="b", rtt_ms=None)]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_named_by_its_time_and_holds_the_rows(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    path = Exporter(directory).write(iter(ROWS), NOW)
    assert path == directory / NAME
    assert path.read_bytes() == b"".join(map(format_row, ROWS))
    assert files(directory) == [NAME]


def test_names_sort_as_their_times_do(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    times = [NOW + seconds for seconds in (0, 0.001, 0.75, 59.75, 3600, 86_400, 1e8)]
    names = [exporter.write([], now).name for now in times]
    assert names == sorted(set(names))


def test_files_are_removed_when_they_are_too_old(tmp_path: Path) -> None:
    for name in (
        "edges-20261126Z.parquet",
        "edges-20261127Z.jsonl.gz",
        "edges-20261127T05Z.jsonl.gz",
        "edges-20261127T06Z.jsonl.gz",
        "edges-20261127T060000.249Z.jsonl",
        "edges-20261127T060000.251Z-late.jsonl",
        NAME,
    ):
        (tmp_path / name).touch()
    Exporter(tmp_path).remove_old(NOW, AGE, SIZE)
    # An hour and a day stay until all of them is too old.
    assert files(tmp_path) == [
        "edges-20261127T060000.251Z-late.jsonl",
        "edges-20261127T06Z.jsonl.gz",
        "edges-20261127Z.jsonl.gz",
        NAME,
    ]


def test_the_oldest_files_are_removed_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    names = [
        "edges-20261126Z.parquet",
        "edges-20261127T230000.000Z.jsonl",  # superseded by the next one, by name
        "edges-20261127T23Z.jsonl.gz",
        "edges-20261127Z.parquet",
        NAME,
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 100)
    exporter = Exporter(tmp_path)
    exporter.remove_old(NOW, 10 * AGE, 500)
    assert files(tmp_path) == names
    for left in (4, 3, 2, 1):
        exporter.remove_old(NOW, 10 * AGE, 100 * left + 99)
        assert files(tmp_path) == names[-left:]
    exporter.remove_old(NOW, AGE, 1, tmp_path / NAME)  # it was written just now
    assert files(tmp_path) == [NAME]


OTHERS = [
    "notes.txt",
    "edges.jsonl",
    "edges-20200101.jsonl",
    "edges-20200101T000000.000Z.jsonl.gz",
    "edges-20200101T00Z.jsonl",
    "edges-20200101Z.csv",
    "edges-20200101T000000.000Z.json",
    "my-edges-20200101T000000.000Z.jsonl",
    "edges-20200101T000000.000Z.jsonl\n",
    "edges-2020\uff10101T000000.000Z.jsonl",
    ".edges-20200101T000000.000Z.jsonl",
]


def test_files_with_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in OTHERS:
        (tmp_path / name).write_text("mine")
    Exporter(tmp_path).remove_old(NOW, AGE, 1)
    assert files(tmp_path) == sorted(OTHERS)
    assert {(tmp_path / name).read_text() for name in OTHERS} == {"mine"}


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "edges-20200101T000000.000Z.jsonl").mkdir()
    (tmp_path / "edges-20200102T000000.000Z.jsonl").symlink_to("elsewhere")
    before = files(tmp_path)
    Exporter(tmp_path).remove_old(NOW, AGE, 1)
    assert files(tmp_path) == before


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


def test_what_a_crash_left_half_written_is_removed_later(tmp_path: Path) -> None:
    left = [tmp_path / f".{name}.part" for name in (NAME, HOUR, DAY)]
    for path in left:
        path.write_text("half")
        os.utime(path, (NOW, NOW))
    others = [tmp_path / ".edges.part", tmp_path / f".{NAME}"]
    for path in others:
        path.write_text("mine")
        os.utime(path, (NOW, NOW))
    exporter = Exporter(tmp_path)
    exporter.remove_old(NOW + STALE, AGE, SIZE)  # it may be somebody's who is writing it
    assert len(files(tmp_path)) == 5
    exporter.remove_old(NOW + STALE + 1, AGE, SIZE)
    assert files(tmp_path) == sorted(path.name for path in others)


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


def test_an_old_file_that_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Exporter(tmp_path)
    exporter.write([], NOW)

    def refuse(_path: Path, **_more: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="old edge lists cannot be removed from"):
        exporter.remove_old(NOW + AGE + 1, AGE, SIZE)
    assert len(files(tmp_path)) == 1


# Compacted files


@pytest.mark.parametrize(
    "compacted", [HOUR, DAY, HOUR.replace("jsonl.gz", "parquet"), "edges-20261128Z.jsonl.gz"]
)
def test_a_list_whose_time_was_compacted_gets_a_name_that_is_not_superseded(
    tmp_path: Path, compacted: str
) -> None:
    """As after a clock was turned back: nobody would see it otherwise."""
    (tmp_path / compacted).touch()
    path = Exporter(tmp_path).write(ROWS, NOW)
    assert path.name == "edges-20261128T060000.250Z-late.jsonl"
    assert superseded(files(tmp_path)) == set()


def test_each_row_is_in_one_file_that_is_not_superseded() -> None:
    lists = [NAME, "edges-20261128T065959.999Z.jsonl"]
    next_hour = "edges-20261128T070000.000Z.jsonl"
    late = "edges-20261128T060000.250Z-late.jsonl"
    others = [late, next_hour, "edges-20261129T060000.000Z.jsonl", "notes.txt", f".{HOUR}.part"]
    assert superseded([*lists, *others]) == set()
    assert superseded([*lists, *others, HOUR]) == set(lists)
    assert superseded([*lists, *others, HOUR, DAY]) == {*lists, next_hour, HOUR}
    assert superseded([*lists, f".{DAY}.part"]) == set()
