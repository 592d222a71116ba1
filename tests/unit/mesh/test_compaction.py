"""Compaction of edge lists: each row is there once, whenever somebody looks and whatever fails."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pubsubd.mesh import compaction
from pubsubd.mesh.compaction import GRACE, SETTLED, compact, is_due
from pubsubd.mesh.edge_files import Exporter, superseded
from pubsubd.mesh.edges import COLUMNS, REQUIRED, EdgesError, read_parquet_lines
from tests.rows import row

MIDNIGHT = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86_400.0
ALL = 1e9  # seconds: no day is thinned
ENDINGS = ("parquet", "jsonl.gz")


@pytest.fixture(params=ENDINGS, autouse=True)
def ending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What files of hours and days end with: with and without pyarrow."""
    if request.param == "jsonl.gz":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    elif importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    ending: str = request.param
    return ending


def text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:23] + "Z"


def export(directory: Path, at: float, links: int = 2) -> Path:
    rows = [row(ts=text(at), src=f"n{number}", messages=int(at)) for number in range(links)]
    return Exporter(directory).write(rows, at)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def seen(directory: Path, listed: list[str] | None = None) -> Counter[str]:
    """Return the lines that somebody finds who reads the files of a list of the directory."""
    names = files(directory) if listed is None else listed
    found: Counter[str] = Counter()
    for name in sorted(set(names) - superseded(names)):
        if name.endswith("parquet"):
            found += Counter(line.rstrip() for line in read_parquet_lines(directory / name))
        elif not name.startswith("."):
            data = (directory / name).read_bytes()
            found += Counter((gzip.decompress(data) if name.endswith("gz") else data).splitlines())
    return found


def packed(directory: Path, period: str = "2026*T*") -> list[Path]:
    """The files of hours."""
    return sorted(one for end in ENDINGS for one in directory.glob(f"edges-{period}Z.{end}"))


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    """Lists of an hour, and of the beginning of the next."""
    for minute in (0, 20, 40, 59, 60):
        export(tmp_path, MIDNIGHT + 60 * minute)
    return tmp_path


def set_age(path: Path, now: float, age: float) -> None:
    os.utime(path, (now - age, now - age))


def test_the_lists_of_an_hour_become_a_file_and_are_removed_later(hour: Path, ending: str) -> None:
    before = seen(hour)
    now = MIDNIGHT + HOUR + SETTLED
    compact(hour, ALL, now - 1)  # a slow disk may still be writing one
    assert len(files(hour)) == 5
    compact(hour, ALL, now)
    made = hour / f"edges-20261128T00Z.{ending}"
    assert len(files(hour)) == 6
    assert seen(hour) == before
    for age, left in ((GRACE - 1, 6), (GRACE, 2)):
        set_age(made, now, age)
        compact(hour, ALL, now)
        assert len(files(hour)) == left
        assert seen(hour) == before
    assert files(hour) == [made.name, "edges-20261128T010000.000Z.jsonl"]


def test_nothing_is_due_until_an_hour_is_over_and_after_it_is_done(hour: Path) -> None:
    now = MIDNIGHT + HOUR + SETTLED
    assert not is_due(hour, ALL, now - 1)
    assert is_due(hour, ALL, now)
    compact(hour, ALL, now)
    assert is_due(hour, ALL, now)  # the lists have to be removed
    set_age(packed(hour)[0], now, GRACE)
    compact(hour, ALL, now)
    assert not is_due(hour, ALL, now)
    assert is_due(hour, 0, MIDNIGHT + DAY + HOUR)


def test_who_has_listed_the_directory_before_finds_all_files(hour: Path) -> None:
    before, listed = seen(hour), files(hour)
    compact(hour, 0, MIDNIGHT + 2 * DAY)
    assert seen(hour, listed) == before


def test_an_hour_is_left_alone_while_a_list_of_it_is_being_written(hour: Path, ending: str) -> None:
    part = hour / ".edges-20261128T005959.999Z.jsonl.part"
    part.touch()
    compact(hour, 0, MIDNIGHT + 2 * DAY)
    assert f"edges-20261128T00Z.{ending}" not in files(hour)
    part.rename(hour / part.name[1:-5])
    compact(hour, ALL, MIDNIGHT + 2 * DAY)
    assert f"edges-20261128T00Z.{ending}" in files(hour)


def test_a_list_that_appears_while_its_hour_is_compacted_is_not_lost(
    hour: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compaction.write_whole

    def write(path: Path, how: Any) -> bool:
        if path.name == f"edges-20261128T00Z.{ending}":
            export(path.parent, MIDNIGHT + 7 * 60)  # a clock was turned back
        return real(path, how)

    monkeypatch.setattr(compaction, "write_whole", write)
    compact(hour, ALL, MIDNIGHT + DAY / 2)
    assert "edges-20261128T000700.000Z-late.jsonl" in files(hour)
    assert sum(seen(hour).values()) == 2 * 6


def days(directory: Path) -> Path:
    for hours in range(0, 30, 3):
        export(directory, MIDNIGHT + HOUR * hours)
    return directory


def test_rows_of_an_earlier_version_lack_columns(tmp_path: Path, ending: str) -> None:
    old = {name: value for name, value in row().items() if name in REQUIRED}
    line = json.dumps(old).encode() + b"\n"
    Exporter(tmp_path).write_lines(line, MIDNIGHT)
    compact(tmp_path, 0, MIDNIGHT + 4 * DAY)
    assert files(tmp_path)[-1] == f"edges-20261128Z.{ending}"
    (one,) = map(json.loads, seen(tmp_path))
    assert {name: one.get(name) for name in COLUMNS} == dict.fromkeys(COLUMNS) | old


def test_a_day_that_is_old_enough_becomes_a_file(tmp_path: Path, ending: str) -> None:
    now = MIDNIGHT + 4 * DAY
    before = seen(days(tmp_path))
    compact(tmp_path, 3 * DAY + 1, now)
    assert not packed(tmp_path, "20261128")
    compact(tmp_path, 3 * DAY, now)
    (path,) = packed(tmp_path, "20261128")
    assert path.name == f"edges-20261128Z.{ending}"
    assert seen(tmp_path) == before
    assert superseded(files(tmp_path)) >= {
        f"edges-20261128T{at:02d}Z.{ending}" for at in range(0, 24, 3)
    }


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(row(since="yesterday")).encode(),
        json.dumps(row(messages=1.5)).encode(),
        json.dumps(row(observer=None)).encode(),
        json.dumps(row(version="\xe4"), ensure_ascii=False).encode("latin-1"),
        json.dumps(row()).encode()[:-9],
    ],
)
def test_hours_that_parquet_does_not_take_are_kept_as_json_lines(
    tmp_path: Path, line: bytes
) -> None:
    Exporter(tmp_path).write_lines(line + b"\n", MIDNIGHT)
    before = seen(tmp_path)
    compact(tmp_path, ALL, MIDNIGHT + 4 * DAY)
    assert [one.name for one in packed(tmp_path)] == ["edges-20261128T00Z.jsonl.gz"]
    assert seen(tmp_path) == before


def test_a_large_hour_is_compacted_piece_by_piece(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So memory does not grow with it."""
    monkeypatch.setattr(compaction, "CHUNK", 1000)
    for minute in range(9):
        export(tmp_path, MIDNIGHT + 60 * minute, 7)
    before = seen(tmp_path)
    compact(tmp_path, ALL, MIDNIGHT + DAY)
    assert packed(tmp_path)
    assert seen(tmp_path) == before
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_metadata(packed(tmp_path)[0]).num_row_groups > 9


def test_an_hour_in_parquet_waits_while_pyarrow_is_not_installed(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ending != "parquet":
        pytest.skip("about Parquet")
    before = seen(days(tmp_path))
    compact(tmp_path, ALL, MIDNIGHT + 4 * DAY)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(EdgesError, match="Parquet needs pyarrow"):
            compact(tmp_path, 0, MIDNIGHT + 4 * DAY)
    compact(tmp_path, 0, MIDNIGHT + 4 * DAY)
    assert len(packed(tmp_path, "202611[0-9][0-9]")) == 2
    assert seen(tmp_path) == before


def crash_at(step: int) -> Iterator[pytest.MonkeyPatch]:
    """Make the system call fail that comes as number ``step`` of those that change files."""
    calls = iter(range(1000))

    def failing(real: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            if next(calls) == step:
                raise KeyboardInterrupt  # nothing else is done, as at a crash
            return real(*words, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "unlink")):
            patch.setattr(owner, name, failing(getattr(owner, name)))
        yield patch


@pytest.mark.parametrize("step", range(0, 40, 3))
def test_a_crash_at_any_point_is_healed_by_the_next_run(
    tmp_path: Path, step: int, ending: str
) -> None:
    days(tmp_path)
    before = seen(tmp_path)
    now = MIDNIGHT + 3 * DAY
    for _ in crash_at(step):
        try:
            compact(tmp_path, ALL, now)
            for path in packed(tmp_path):
                set_age(path, now, GRACE)
            compact(tmp_path, ALL, now)
        except KeyboardInterrupt:
            assert seen(tmp_path) == before
    for path in tmp_path.glob(".*.part"):
        set_age(path, now, HOUR + 1)
    Exporter(tmp_path).remove_old(now, 10 * DAY, 2**30)
    for _ in range(2):
        compact(tmp_path, ALL, now)
        for path in packed(tmp_path):
            set_age(path, now, GRACE)
    compact(tmp_path, ALL, now)
    assert seen(tmp_path) == before
    assert {name.partition(".")[2] for name in files(tmp_path)} == {ending}


def test_one_file_that_cannot_be_read_costs_no_other(tmp_path: Path, ending: str) -> None:
    days(tmp_path)
    (tmp_path / f"edges-20261127T00Z.{ending}").write_bytes(b"no such file")
    with pytest.raises((OSError, EdgesError), match=r"gzip|edges-20261127T00Z\.parquet: "):
        compact(tmp_path, 0, MIDNIGHT + 3 * DAY)
    assert len(list(tmp_path.glob("edges-2026112[89]Z.*"))) == 2
    assert not list(tmp_path.glob("edges-20261127Z.*"))


def test_two_processes_do_not_compact_at_the_same_time(hour: Path) -> None:
    import fcntl  # noqa: PLC0415

    handle = os.open(hour, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    compact(hour, ALL, MIDNIGHT + DAY)
    assert len(files(hour)) == 5
    os.close(handle)
    compact(hour, ALL, MIDNIGHT + DAY)
    assert len(files(hour)) == 7


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "edges-20261128T06Z.jsonl", ".edges.jsonl"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "edges-20261128T000000.000Z.jsonl").mkdir()
    before = files(tmp_path)
    compact(tmp_path, 0, MIDNIGHT + 10 * DAY)
    assert files(tmp_path) == before


def test_a_fault_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "none"), "60"])
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with pytest.raises(SystemExit) as end:
        compaction.main()
    assert str(end.value) == (
        f"edge lists in {str(tmp_path / 'none')!r} cannot be compacted: No such file or directory"
    )
