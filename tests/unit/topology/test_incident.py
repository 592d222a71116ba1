"""What broke in a mesh, as the tables of a run tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsubd.topology import incident
from pubsubd.topology.incident import find_incident, gone_table
from pubsubd.topology.kernel.graph import read
from pubsubd.topology.kernel.snapshot import snapshot
from pubsubd.topology.report import Incident

BEGAN = datetime(2026, 11, 28, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
MOMENT = pa.timestamp("us", "UTC")
TEXT = pa.string()
TABLES = {
    "daemon_history": {
        "mesh": TEXT,
        "window": MOMENT,
        "id": TEXT,
        "present": pa.bool_(),
        "last_seen": MOMENT,
        "address": TEXT,
        "version": TEXT,
    },
    "link_history": {
        "mesh": TEXT,
        "window": MOMENT,
        "src": TEXT,
        "dst": TEXT,
        "state": TEXT,
        "first_seen": MOMENT,
    },
    "churn": {"mesh": TEXT, "window": MOMENT},
    "articulation": {"mesh": TEXT, "window": MOMENT, "id": TEXT},
    "bridges": {"mesh": TEXT, "window": MOMENT, "id": TEXT, "other": TEXT},
    "events": {"mesh": TEXT, "at": MOMENT, "kind": TEXT, "src": TEXT, "dst": TEXT, "detail": TEXT},
}
RING = ["ab", "bc", "cd", "de", "ef", "af"]


class Run:
    """The tables of a run on the mesh ``m``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.window = BEGAN
        self.links: list[str] = []

    def put(self, table: str, **row: Any) -> None:
        self.rows[table].append({"mesh": "m", **row})

    def add(self, links: list[str], down: tuple[str, ...] = (), gone: str = "") -> None:
        """Add a window in which ``links`` are up at the end, and others went down."""
        if self.rows["churn"]:
            self.window += HOUR
        self.links = links
        self.put("churn", window=self.window)
        for link in (*links, *down):
            state = "down" if link in down else "up"
            ends = {"src": link[0], "dst": link[1], "state": state}
            self.put("link_history", window=self.window, **ends, first_seen=self.window)
        for name in sorted(set("".join([*links, *down]))):
            known = {"id": name, "present": name not in gone, "address": f"{name}:1"}
            self.put("daemon_history", window=self.window, **known, last_seen=self.window)
        graph = read(*zip(*links, strict=True))
        facts = snapshot(graph, 0, False)
        for kind, table in (("articulation", "articulation"), ("bridge", "bridges")):
            for row in facts.filter(pa.compute.field("kind") == kind).to_pylist():
                ends = {"id": row["id"], "other": row["other"]}
                self.put(table, window=self.window, **ends)

    def happened(self, minute: float, kind: str, src: str, dst: str = "", detail: str = "") -> None:
        at = BEGAN + timedelta(minutes=minute)
        self.put("events", at=at, kind=kind, src=src, dst=dst or None, detail=detail)

    def find(self, listed: str | None = None) -> Incident:
        made = {}
        for name, columns in TABLES.items():
            made[name] = pa.Table.from_pylist(self.rows[name], schema=pa.schema(columns))
            pq.write_table(made[name], self.folder / f"{name}.parquet")
        graph = read(*zip(*self.links, strict=True))
        facts = snapshot(graph, 0, True)
        nodes = None
        if listed is not None:
            nodes = pa.table({"id": list(listed), "address": [f"{one}:2" for one in listed]})
        return find_incident(self.folder, "m", self.window, facts, made["events"], nodes)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_where_nothing_broke_nothing_is_found(run: Run) -> None:
    run.add(RING)
    assert run.find() == Incident([], [], None, [], [])


def test_a_daemon_of_an_earlier_window_stays_gone_and_is_told_with_who_lost_it(run: Run) -> None:
    run.add(RING)
    run.add(["ab", "bc", "cd", "de"], down=("ef", "af"), gone="f")
    run.add(["ab", "bc", "cd", "de"])
    run.happened(70, "daemon-left", "f", detail="lost by a, e")
    (gone,) = run.find().gone
    assert (gone.id, gone.since, gone.detail) == ("f", BEGAN + 70 * HOUR / 60, "lost by a, e")
    assert (gone.last_seen, gone.address, gone.neighbours) == (BEGAN + HOUR, "f:1", ("a", "e"))
    table = gone_table([("m", run.find())]).to_pylist()
    assert [(row["mesh"], row["id"], row["detail"]) for row in table] == [
        ("m", "f", "lost by a, e")
    ]


def test_of_listed_daemons_each_that_is_not_there_is_gone_and_others_are_retired(run: Run) -> None:
    run.add(RING)
    run.add(["ab", "bc", "cd"], down=("de", "ef", "af"), gone="ef")
    run.happened(70, "daemon-left", "e", detail="lost by d")
    run.happened(80, "daemon-left", "f", detail="lost by a")
    assert [one.id for one in run.find().gone] == ["f", "e"], "the latest first"
    told = [(one.id, one.since is None, one.address) for one in run.find("abcdez").gone]
    assert told == [("e", False, "e:2"), ("z", True, "z:2")]


def test_single_points_are_new_against_the_window_before(run: Run) -> None:
    run.add(RING)
    run.add(["ab", "bc", "cd", "de"], down=("ef", "af"), gone="f")
    found = run.find()
    assert found.compared == BEGAN
    assert sorted(found.new_articulation or ()) == ["b", "c", "d"]
    assert sorted(found.new_bridges or ()) == [tuple(link) for link in ("ab", "bc", "cd", "de")]
    run.add(["ab", "bc", "cd", "de"])
    found = run.find()
    assert (found.new_articulation, found.new_bridges) == ([], [])


def test_the_first_window_is_compared_with_its_beginning_if_that_is_not_too_large(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.add(["ab", "bc", "cd", "de", "dx"], down=("ef", "af"), gone="f")
    found = run.find()
    assert found.compared is None
    assert sorted(found.new_articulation or ()) == ["b", "c"], "d cut off x before"
    assert ("d", "x") not in (found.new_bridges or ())
    monkeypatch.setattr(incident, "COMPARED", 3)
    found = run.find()
    assert (found.new_articulation, found.new_bridges) == (None, None)
    assert found.why == "not compared: the first window has more than 3 links"


def test_a_part_is_cut_off_since_its_last_link_to_another_one_went_down(run: Run) -> None:
    run.add(["ab", "bc", "ac", "de"], down=("cd", "ae", "eg"), gone="g")
    run.happened(10, "link-down", "c", "d")
    run.happened(20, "link-down", "a", "e")
    run.happened(30, "link-down", "e", "g")  # g had no link to the other part
    run.happened(40, "link-down", "a", "b")  # and is up again
    (part,) = run.find().parts
    assert (part.daemons, part.names, part.since) == (2, ["d", "e"], BEGAN + 20 * HOUR / 60)


def test_parts_that_a_daemon_held_together_are_cut_off_since_it_was_lost(run: Run) -> None:
    run.add(["ab", "cd"], down=("ax", "cx"), gone="x")
    run.happened(10, "link-down", "a", "x")
    run.happened(11, "link-down", "c", "x")
    (part,) = run.find().parts
    assert part.since == BEGAN + 11 * HOUR / 60
