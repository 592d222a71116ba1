"""From real daemons to the report: what broke, and when."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubsubd import __version__
from pubsubd.topology.job import run_in
from pubsubd.topology.parameters import Job
from pubsubd.topology.tables import read_table
from tests.daemons import wait_until
from tests.meshes import Mesh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Two rings of five; what the rings say to each other goes through e.
EDGES = ["ab", "bc", "cd", "da", "ae", "be", "ef", "eg", "fg", "gh", "hi", "ij", "jf"]
EXPORTS = 10

ALL_TIME = 10**10  # seconds: one window, whatever the time of day is


def test_the_report_names_the_daemon_that_was_killed_and_when(
    tmp_path: Path, spark: SparkSession
) -> None:
    exported = tmp_path / "exported"
    lists: dict[Path, list[dict[str, Any]]] = {}

    def exports() -> Iterable[list[dict[str, Any]]]:
        for path in {*exported.glob("edges-*")} - {*lists}:
            lists[path] = [json.loads(line) for line in path.read_text().splitlines()]
        return lists.values()

    def whole() -> bool:
        return sum(len(rows) == 2 * len(EDGES) for rows in exports()) >= 2 * EXPORTS

    def told() -> bool:
        rows = itertools.chain.from_iterable(exports())
        lost = Counter(row["observer"] for row in rows if row["state"] != "up")
        return all(lost[name] >= EXPORTS for name in "abfg")

    mesh = Mesh(tmp_path / "mesh", EDGES, heartbeat=10)  # a busy machine is silent for seconds
    try:
        mesh.start(None, "--export-edges", str(exported), "--export-interval", "0.2")
        mesh.wait_settled()
        wait_until(whole, "lists with all links")
        before = datetime.now(UTC)
        mesh.kill("e")
        wait_until(told, "lists of all who have lost a link")
        after = datetime.now(UTC)
    finally:
        mesh.stop()

    healthy = run_in(
        spark, Job([str(exported)], tmp_path / "healthy", window=ALL_TIME, until=before), print, 0
    )
    assert healthy.conditions == {"spof"}
    points = read_table(tmp_path / "healthy", "articulation").to_pylist()
    assert [(row["id"], row["cut_off"]) for row in points] == [("e", 4)]

    broken = run_in(spark, Job([str(exported)], tmp_path / "broken", window=ALL_TIME), print, 0)
    assert broken.conditions == {"left", "partition"}
    assert broken.summary[1].startswith("  incident    e has been gone since ")
    assert ", lost by " in broken.summary[1]
    assert re.search("Cut off from the largest part: a, b, c and 1 more, since ", broken.summary[2])
    (gone,) = read_table(tmp_path / "broken", "gone").to_pylist()
    assert (gone["id"], gone["version"]) == ("e", __version__)
    assert gone["address"].startswith("127.")
    (churn,) = read_table(tmp_path / "broken", "churn").to_pylist()
    assert (churn["left"], churn["lost_links"]) == (1, 4)
    events = read_table(tmp_path / "broken", "events").to_pylist()
    lost = [row for row in events if row["at"] >= before - timedelta(seconds=1)]
    assert {(row["kind"], row["src"], row["dst"]) for row in lost} == {
        ("link-down", "a", "e"),
        ("link-down", "b", "e"),
        ("link-down", "e", "f"),
        ("link-down", "e", "g"),
        ("daemon-left", "e", None),
    }
    assert all(row["at"] <= after for row in lost)
    daemons = read_table(tmp_path / "broken", "daemons").to_pylist()
    parts = {row["id"]: row["component"] for row in daemons}
    assert parts == dict.fromkeys("fghij", 0) | dict.fromkeys("abcd", 1)
    assert any("partition" in line and "2" in line for line in broken.summary)
