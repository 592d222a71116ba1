"""Days of which compaction has kept only what hours need: the analysis finds the same in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pubsubd.mesh.compaction import compact
from pubsubd.mesh.edge_files import Exporter
from pubsubd.topology.cleaning import check, clean, drop_repeats
from pubsubd.topology.history import make_history
from pubsubd.topology.output import Shared
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import prepare
from pubsubd.topology.reading import read_inputs
from pubsubd.topology.scratch import Scratch
from pubsubd.topology.store import Store
from tests.rows import row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
HOURS = range(21, 26)  # of which the last two are of the next day
EVERY = 600  # seconds
LINKS = ["ab", "bc", "cd", "da", "ac"]


def text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:23] + "Z"


def sessions(rng: random.Random) -> Iterator[tuple[str, float, float]]:
    """Yield links with when they began and ended; d is away for an hour, and a-c ended long ago."""
    ends = MIDNIGHT + 3600 * HOURS.stop
    for link in LINKS:
        at = MIDNIGHT - 86_400.0
        while at < ends:
            until = at + rng.expovariate(1 / 9000)
            if link == "ac":
                until = min(until, MIDNIGHT - 20_000)
            if "d" in link and at < MIDNIGHT + 3600 * 23 < until:
                until = MIDNIGHT + 3600 * 23 - 1000
            yield link, at, until
            at = until + (3600.0 if "d" in link else rng.choice([5.0, 200.0, 900.0]))
            if link == "ac":
                return


def export(folder: Path, mesh: str) -> None:
    """Write what each daemon knows, all of it."""
    rng = random.Random(5)
    told = list(sessions(rng))
    for number in range(HOURS.start * 3600, HOURS.stop * 3600, EVERY):
        for offset, me in enumerate("abcd"):
            now = MIDNIGHT + number + 60 * offset
            if me == "d" and not any("d" in link and at <= now < to for link, at, to in told):
                continue  # it is not running
            rows: list[dict[str, Any]] = []
            for link, at, to in told:
                ends = {"mesh": mesh, "ts": text(now), "src": link[0], "dst": link[1]}
                if at <= now < to:
                    counted = {"messages": int(now - at), "bytes": int(7 * (now - at))}
                    rows += [row(observer=end, since=text(at), **ends, **counted) for end in link]
                elif to <= now and me in link:
                    rows.append(
                        row(observer=me, since=text(int(to)), state="down", rtt_ms=None, **ends)
                    )
            Exporter(folder / me).write(rows, now)


@pytest.mark.usefixtures("parquet")
def test_hours_of_thinned_days_are_those_of_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    for mesh in ("whole", "thinned"):
        export(tmp_path / mesh, mesh)
    for folder in (tmp_path / "thinned").iterdir():
        # The first day is thinned, the next one is in hours.
        compact(folder, 0, MIDNIGHT + 3600 * (HOURS.stop + 1))
        assert list(folder.glob("*.parquet"))
    job = Job([str(tmp_path)], tmp_path / "out")
    inputs = read_inputs(spark, prepare(job, Scratch(job.out), print))
    store = Store(spark, Shared(tmp_path, tmp_path.as_uri()), here=True)
    rows = store.keep(drop_repeats(clean(check(inputs), 3600)))
    counts = {one["mesh"]: one["count"] for one in rows.groupBy("mesh").count().collect()}
    assert counts["thinned"] < counts["whole"] - 100
    history = make_history(rows, 3600, keep=store.keep)
    for frame in (history.links, history.daemons, history.churn, history.events, history.arcs):
        columns = [one for one in frame.columns if one != "first_seen" and "rtt" not in one]
        table = frame.select(*columns).toArrow().to_pylist()
        whole, thinned = (
            sorted(str(list(one.values())[1:]) for one in table if one["mesh"] == mesh)
            for mesh in ("whole", "thinned")
        )
        assert len(whole) >= len(HOURS)
        assert thinned == whole
