"""Folders that are removed when nobody holds them any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.held import held_folder
from pubsubd.topology.run import check_out


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_a_process_that_was_killed_has_left_is_removed_by_the_next_one(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".topology-left"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "file").write_text("x")
    (tmp_path / "report.html").write_text("mine")
    (tmp_path / ".topology-file").write_text("mine")
    with held_folder(".topology-", tmp_path) as path:
        assert names(tmp_path) == {path.name, "report.html", ".topology-file"}
        (path / "file").write_text("x")
    assert names(tmp_path) == {"report.html", ".topology-file"}


def test_what_another_process_holds_stays(tmp_path: Path) -> None:
    with held_folder("a-", tmp_path) as one:
        with held_folder("a-", tmp_path) as other:
            assert names(tmp_path) == {one.name, other.name}
        assert names(tmp_path) == {one.name}
    assert names(tmp_path) == set()


def test_a_failure_removes_it_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), held_folder("a-", tmp_path):
        raise KeyError
    assert names(tmp_path) == set()


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_started(
    tmp_path: Path,
) -> None:
    check_out(tmp_path / "not" / "there")
    assert names(tmp_path) == set()
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        with pytest.raises(TopologyError, match="Not a directory"):
            check_out(tmp_path / out)
    with pytest.raises(TopologyError) as caught:
        check_out(Path("/proc/none"))
    assert str(caught.value) == "--out /proc/none: No such file or directory: /proc"
