"""How many cores a daemon may use, by what the kernel says about its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsubd.settings.cores import usable_cores


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine have 8 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    return


def _cores(tmp_path: Path, group: str, quotas: dict[str, str]) -> int:
    process, groups = tmp_path / "cgroup", tmp_path / "groups"
    process.write_text(f"1:cpu:/elsewhere\n0::{group}\n")
    for path, quota in quotas.items():
        (groups / path).mkdir(parents=True, exist_ok=True)
        (groups / path / "cpu.max").write_text(quota)
    return usable_cores(process, groups)


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, 8),
        ({"a/b": "max 100000\n"}, 8),
        ({"a/b": "300000 100000\n"}, 3),
        ({"a/b": "250000 100000\n"}, 3),
        ({"a/b": "20000 100000\n"}, 1),
        ({"a/b": "9000000 100000\n"}, 8),
        ({"a": "200000 100000\n", "a/b": "max 100000\n"}, 2),
        ({"a": "400000 100000\n", "a/b": "100000 50000\n"}, 2),
        ({"a/b": "what is this?\n", "a": "500000 100000\n"}, 5),
        ({"a/c": "100000 100000\n"}, 8),
    ],
)
def test_no_more_than_the_quotas_of_its_groups(
    tmp_path: Path, quotas: dict[str, str], cores: int
) -> None:
    assert _cores(tmp_path, "/a/b", quotas) == cores


def test_in_a_container_the_group_may_be_seen_at_the_top_only(tmp_path: Path) -> None:
    assert _cores(tmp_path, "/docker/0123", {"": "400000 100000\n"}) == 4


def test_a_group_above_what_is_mounted_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert _cores(tmp_path, "/../a", {"b": "max 100000\n"}) == 8
    assert _cores(tmp_path, "/../a", {"": "300000 100000\n"}) == 3


def test_without_control_groups_all_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "no", tmp_path / "nor") == 8
