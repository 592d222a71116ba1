"""Folders as inputs: those of daemons that are exporting, and folders of such folders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pubsubd.mesh.compaction import SETTLED, compact
from pubsubd.mesh.edge_files import Exporter
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.inputs import LONGEST_LINE, find_here
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import prepare
from pubsubd.topology.scratch import Scratch
from tests.rows import row

MIDNIGHT = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Folders of two daemons."""
    for name in ("a", "b"):
        for minute in (0, 30, 60):
            at = MIDNIGHT.timestamp() + 60 * minute
            Exporter(tmp_path / "edges" / name).write([row(observer=name)], at)
    return tmp_path / "edges"


def names(folder: Path) -> list[str]:
    found = find_here(str(folder))
    assert found.ignored == {}
    return [str(Path(path).relative_to(folder)) for path in found.files]


def look(folder: Path, window: int, since: datetime | None = None) -> None:
    job = Job([str(folder)], folder / "out", window=window, since=since)
    prepare(job, Scratch(job.out), print)


def test_the_folders_of_all_daemons_are_one_input(exported: Path) -> None:
    lists = [f"edges-20261128T{time}00.000Z.jsonl" for time in ("0000", "0030", "0100")]
    assert names(exported) == [f"{one}/{name}" for one in "ab" for name in lists]


def test_what_is_hidden_is_left_out(exported: Path) -> None:
    before = names(exported)
    for name in (".git", "_temporary"):
        Exporter(exported / name).write([row()], MIDNIGHT.timestamp())
    (exported / "a" / "edges-20261128T000000.000Z.jsonl.part").touch()
    (exported / "loop").symlink_to(exported)
    assert names(exported) == before


@pytest.mark.usefixtures("parquet")
def test_each_row_is_read_once_while_its_file_is_being_compacted(exported: Path) -> None:
    compact(exported / "a", 0, MIDNIGHT.timestamp() + 7200 + SETTLED)
    assert names(exported)[:2] == ["a/edges-20261128T00Z.parquet", "a/edges-20261128T01Z.parquet"]
    assert len(names(exported)) == 2 + 3
    assert len(list((exported / "a").iterdir())) == 2 + 3


@pytest.mark.usefixtures("parquet")
def test_windows_of_days_that_were_thinned_are_whole_hours(exported: Path) -> None:
    compact(exported / "a", 0, MIDNIGHT.timestamp() + 2 * 86_400)
    for window in (3600, 7200, 86_400):
        look(exported, window)
    for since in (None, MIDNIGHT):
        with pytest.raises(TopologyError, match="--window has to be a number of hours") as caught:
            look(exported, 900, since)
    assert str(caught.value).endswith("or --since 2026-11-29T00:00:00Z or later")
    later = MIDNIGHT.replace(day=29)
    Exporter(exported / "a").write([row()], later.timestamp())
    look(exported, 900, later)


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_of_one_enormous_line_is_told_before_java_starts(tmp_path: Path, more: int) -> None:
    path = tmp_path / "list.txt"
    size = (LONGEST_LINE if more else LONGEST_LINE // 2) + more
    path.write_bytes(b"a b" + b"x" * size + b"\n")
    if more:
        with pytest.raises(TopologyError, match="its first line is longer than 16 MiB"):
            find_here(str(path))
    else:
        find_here(str(path))


def test_files_of_other_times_than_asked_for_are_not_opened(exported: Path) -> None:
    now = MIDNIGHT.timestamp() + 2 * 86_400
    compact(exported / "a", 0, now)
    (exported / "a" / "edges-20261127Z.parquet").write_bytes(b"not one")
    later = row(observer="a", ts="2026-11-30T00:00:00.000Z")
    Exporter(exported / "a").write([later], now)

    def files(since: datetime | None, until: datetime | None) -> set[str]:
        job = Job([str(exported / "a")], exported / "out", since=since, until=until)
        found = prepare(job, Scratch(job.out), print).files
        return {Path(path).name.partition("Z")[0] for path in found}

    day, hour = timedelta(days=1), timedelta(hours=1)
    assert files(MIDNIGHT, None) == {"edges-20261128", "edges-20261130T000000.000"}
    assert files(MIDNIGHT + 2 * day, None) == {"edges-20261130T000000.000"}
    assert files(MIDNIGHT, MIDNIGHT + day) == {"edges-20261128"}
    with pytest.raises(TopologyError, match="there are no rows of the time asked for"):
        files(MIDNIGHT + 2 * day + hour, None)
