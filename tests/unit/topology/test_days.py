"""Days that several daemons have kept, read as one."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pubsubd.mesh.edges import write_parquet
from pubsubd.topology import days
from pubsubd.topology.days import SCHEMA, read_day
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.inputs import days_of_several
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import prepare
from pubsubd.topology.scratch import Scratch
from tests.rows import row

Rows = list[dict[str, Any]]
DAY = "edges-20261128Z.parquet"


def put(folder: Path, rows: Rows) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / DAY
    with path.open("wb") as file:
        write_parquet(rows, file)
    return str(path)


def told(rng: random.Random) -> Rows:
    """A day as one daemon has kept it: rows of three ends, in one or two sessions an hour."""
    rows = []
    for _ in range(60):
        hour, minute, second = rng.randrange(3), rng.choice([0, 1, 59]), rng.randrange(60)
        observer, since = rng.choice("abc"), rng.choice([3, 5])
        other = {"a": "b", "b": "c", "c": "a"}[observer]
        rows.append(
            row(
                ts=f"2026-11-28T{hour:02}:{minute:02}:{second:02}.{rng.randrange(1000):03}Z",
                observer=observer,
                **dict(zip(("src", "dst"), rng.sample([observer, other], 2), strict=True)),
                state=rng.choice(["up", "up", "down"]),
                since=f"2026-11-27T{since:02}:00:00.{rng.randrange(1000):03}Z",
                rtt_ms=rng.choice([None, 0.5, 2.0]),
                messages=rng.randrange(1000),
                bytes=rng.randrange(1000),
                address=rng.choice([None, "10.0.0.1:9014", "10.0.0.2:9014"]),
                version=None,
                actors=None,
            )
        )
    return rows


def ends(rows: Rows) -> dict[Any, Rows]:
    """Rows in their order, by what the analysis groups them by, in whole hours."""
    found = defaultdict(list)
    for one in sorted(rows, key=lambda one: one["ts"]):
        since = str(one["since"])[:19].replace(" ", "T")
        names = (one["mesh"], one["observer"], one["src"], one["dst"], one["state"])
        found[(*names, since, str(one["ts"])[11:13])].append(one)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_of_each_hour_the_first_and_the_last_row_of_all_daemons_stay(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "HELD", 100)  # so that they are merged in several steps
    rng = random.Random(seed)
    several = [told(rng) for _ in range(4)]
    files = [put(tmp_path / f"d{i}", rows) for i, rows in enumerate(several)]
    table = read_day(files)
    assert table.schema == SCHEMA
    found = ends(table.to_pylist())
    every = ends([one for rows in several for one in rows])
    assert found.keys() == every.keys()
    for key, rows in every.items():
        first, last = found[key][0], found[key][-1]
        assert [first["ts"], last["ts"]] == [
            datetime.fromisoformat(rows[place]["ts"]) for place in (0, -1)
        ]
        assert [first["rtt_ms"], last["rtt_ms"]] == [rows[0]["rtt_ms"], rows[-1]["rtt_ms"]]
        for counter in ("messages", "bytes"):
            counts = [one[counter] for one in rows]
            assert last[counter] == max(counts)
            assert first[counter] == (min(counts) if first["ts"] < last["ts"] else max(counts))
        known, kept = (
            [one["address"] for one in some if one["address"]] for some in (rows, found[key])
        )
        assert known[-1:] == kept[-1:]
        assert sum(one["rows"] for one in found[key]) == len(rows)
        assert len(found[key]) <= 3


@pytest.mark.parametrize(
    "fault",
    [
        {"observer": "x"},
        {"src": "a", "dst": "a"},
        {"observer": "", "src": ""},
        {"mesh": ""},
        {"state": "on"},
        {"messages": -1},
        {"rtt_ms": float("nan")},
        {"rtt_ms": -0.5},
        {"since": "1969-12-31T23:59:59.000Z"},
        {"ts": "9999-06-01T00:00:00.000Z"},
    ],
)
def test_a_row_that_something_may_be_wrong_with_stays_as_it_is(
    fault: dict[str, Any], tmp_path: Path
) -> None:
    odd = row(**fault)
    files = [put(tmp_path / one, [row(), odd]) for one in "ab"]
    rows = read_day(files).to_pylist()
    assert [one["file"] for one in rows[:2]] == files
    assert [one["rows"] for one in rows] == [1, 1, 2]
    wrong = {name: value for name, value in fault.items() if name not in ("ts", "since", "rtt_ms")}
    for one in rows[:2]:
        assert {name: one[name] for name in wrong} == wrong


def test_a_file_that_has_vanished_is_left_out(tmp_path: Path) -> None:
    there = put(tmp_path / "a", [row()])
    assert read_day([there, str(tmp_path / "b" / DAY)]).num_rows == 1
    assert read_day([str(tmp_path / "b" / DAY)]).schema == SCHEMA


def test_a_damaged_file_is_told_by_its_name(tmp_path: Path) -> None:
    files = [put(tmp_path / one, [row()]) for one in "ab"]
    damaged = bytearray(Path(files[1]).read_bytes())
    damaged[4:40] = b"x" * 36
    Path(files[1]).write_bytes(damaged)
    with pytest.raises(TopologyError, match=f"^{files[1]} cannot be read: ") as caught:
        read_day(files)
    assert caught.value.__cause__ is None


def test_only_days_of_several_files_are_merged() -> None:
    files = [f"/{one}/edges-2026112{day}Z.parquet" for one in "ab" for day in (7, 8)]
    alone = ["/a/edges-20261129Z.parquet", "/a/edges-20261129Z.jsonl.gz", "/a/x.parquet"]
    assert days_of_several([*alone, *files]) == [files[::2], files[1::2]]


def test_repetitions_do_not_make_a_job_a_large_one(tmp_path: Path) -> None:
    def size(daemons: int) -> float:
        put(tmp_path / f"d{daemons}", [row()])
        return prepare(Job([str(tmp_path)]), Scratch(None), print).size

    sizes = [size(daemons) for daemons in range(5)]
    assert sizes[1] == 2 * sizes[0]
    assert sizes[2] == sizes[3] == sizes[4] == 3 * sizes[0]
