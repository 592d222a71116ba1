"""The whole analysis in a session of the tests': what it writes, the same each time."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import random
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import networkx as nx
import pytest

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.exporting import check_one_mesh
from pubsubd.topology.formats.tables import Columns
from pubsubd.topology.hypothetical import suppose
from pubsubd.topology.job import run_in
from pubsubd.topology.parameters import Job, Outcome
from pubsubd.topology.report import schema
from pubsubd.topology.store import changed
from pubsubd.topology.tables import read_table
from tests import topologies
from tests.unit.topology.test_snapshot import expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "advice",
    "articulation",
    "bridges",
    "churn",
    "curves",
    "daemon_history",
    "daemons",
    "events",
    "gone",
    "histograms",
    "link_history",
    "metrics",
    "minimum_cut",
    "rejects",
}
FILES = {f"{name}.{ending}" for name in TABLES for ending in ("csv", "parquet")}
FILES |= {"report.html", "report.json"}

LISTED = {
    name: topologies.SMALL[name]
    for name in (
        "empty",
        "self-loops only",
        "both directions",
        "two cliques and a bridge",
        "three components",
        "loops among links",
    )
}
"""Graphs that can be lists; the unit tests try all of them."""


def write_lists(directory: Path) -> Path:
    """Write a list for each of these graphs."""
    directory.mkdir()
    for name, arcs in LISTED.items():
        lines = "".join(f"{src}\t{dst}\n" for src, dst in arcs)
        (directory / f"{name}.txt").write_text(f"# {name}\n{lines}")
    return directory


def row(minute: float, observer: str, src: str, dst: str, **more: Any) -> str:
    """Return a line as a daemon exports it, some minutes after midnight."""
    told = {
        "ts": f"2026-11-28T{int(minute) // 60:02d}:{int(minute) % 60:02d}:00.000Z",
        "mesh": "m",
        "observer": observer,
        "src": src,
        "dst": dst,
        "state": "up",
        "since": "2026-11-27T12:00:00.000Z",
        "rtt_ms": 1.5,
        "messages": 10 * int(minute),
        "bytes": 160 * int(minute),
    }
    return json.dumps(told | more)


SITES = {"a": "left", "b": "left", "c": "middle", "d": "right", "e": "right"}


def write_exports(directory: Path) -> Path:
    """Write three hours of a line of five daemons, of which the last one leaves in the third."""
    directory.mkdir()
    links = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    for minute in range(0, 180, 10):
        lines = []
        for src, dst in links:
            for observer in (src, dst):
                if minute < 150 or "e" not in {src, dst}:
                    lines.append(row(minute, observer, src, dst, site=SITES[observer]))
                elif observer == "d":
                    since = "2026-11-28T02:25:30.000Z"
                    lines.append(row(minute, "d", src, dst, state="down", since=since))
        (directory / f"edges-{minute:03d}.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def analyse(
    spark: SparkSession, inputs: Path, out: Path, size: float = 0, **parameters: Any
) -> Outcome:
    """Analyse what is small, unless another ``size`` is given."""
    return run_in(spark, Job([str(inputs)], out, **parameters), lambda _: None, size)


def metrics_of(out: Path) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for one in read_table(out, "metrics").to_pylist():
        found.setdefault(one["mesh"], {})[one["name"]] = one["value"]
    return found


def digests(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())
    }


def test_every_list_of_a_folder_is_a_mesh_and_networkx_finds_the_same(
    tmp_path: Path, spark: SparkSession
) -> None:
    lists = write_lists(tmp_path / "lists")
    outcome = analyse(spark, lists, tmp_path / "out", math.inf)
    found = metrics_of(tmp_path / "out")
    assert set(found) == {name for name, arcs in LISTED.items() if arcs}
    for name, metrics in found.items():
        for metric, value in expected(LISTED[name]).items():
            assert metrics[metric] == pytest.approx(value, rel=1e-6, abs=1e-6), (name, metric)
    assert outcome.conditions == {"partition", "spof"}
    rejects = read_table(tmp_path / "out", "rejects").to_pylist()
    assert {one["reason"] for one in rejects} == {"self-loop"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_what_is_spread_over_all_workers_is_the_same_as_on_one_in_every_time_zone(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = tmp_path / "exports.jsonl"
    links = ("ab", "bc", "ca")  # of which a few rounds are enough
    ends = [row(at, end, *link) for at in range(0, 60, 10) for link in links for end in link]
    exports.write_text("\n".join(ends) + "\n")
    ended = datetime(2026, 11, 28, 1, tzinfo=UTC)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        analyse(spark, exports, tmp_path / "one", until=ended)
        analyse(spark, exports, tmp_path / "all", until=ended, local_edges=0)
    finally:
        monkeypatch.undo()
        time.tzset()
    one, spread = (
        {
            (row["window"], row["name"]): row["value"]
            for row in read_table(tmp_path / name, "metrics").to_pylist()
        }
        for name in ("one", "all")
    )
    assert {window for window, _ in spread} == {datetime(2026, 11, 28, tzinfo=UTC)}
    computed = {key: value for key, value in spread.items() if value is not None}
    assert len(computed) > 30
    for key, value in computed.items():
        assert value == pytest.approx(one[key], abs=1e-9), key


def test_the_history_tells_who_left_and_when(once: tuple[Path, Outcome]) -> None:
    out, outcome = once
    events = [
        (one["kind"], one["src"], one["dst"], f"{one['at']:%H:%M:%S}")
        for one in read_table(out, "events").to_pylist()
        if one["kind"] in {"link-down", "daemon-left"}
    ]
    assert sorted(events) == [
        ("daemon-left", "e", None, "02:25:30"),
        ("link-down", "d", "e", "02:25:30"),
    ]
    churn = read_table(out, "churn").to_pylist()
    assert [(one["daemons"], one["links"], one["left"]) for one in churn] == [
        (5, 4, 0),
        (5, 4, 0),
        (4, 3, 1),
    ]
    series = [one for one in read_table(out, "metrics").to_pylist() if one["name"] == "daemons"]
    assert [one["value"] for one in series] == [5, 5, 4]
    assert outcome.conditions == {"left", "spof"}
    report = json.loads((out / "report.json").read_text())
    jsonschema.validate(report, schema())
    (mesh,) = report["meshes"]
    assert mesh["mesh"] == "m"
    assert mesh["verdict"].startswith("e has been gone since 2026-11-28 02:25:30 UTC, lost by d. ")
    assert mesh["incident"]["new_bridges"] == {"total": 0, "items": []}
    assert (mesh["coverage"]["exporters"], mesh["coverage"]["named"]) == (4, 5)
    (gone,) = read_table(out, "gone").to_pylist()
    assert (gone["id"], gone["detail"], f"{gone['last_seen']:%H:%M}") == ("e", "lost by d", "02:20")
    chronic = [(one["id"], one["windows"]) for one in mesh["chronic"]["items"]]
    assert chronic == [("b", 3), ("c", 3), ("d", 2)]
    html = (out / "report.html").read_text()
    assert "02:25:30" in html


def test_what_if_changes_the_latest_window_and_nothing_before(
    tmp_path: Path, spark: SparkSession, once: tuple[Path, Outcome]
) -> None:
    """Without d, and with a third link of a, b and c; told as JSON and to Prometheus alone."""
    nodes = tmp_path / "nodes"
    nodes.write_text("a\nb\nc\nd\n")
    outcome = run_in(
        spark,
        Job(
            [str(once[0].parent / "exports")],
            json="-",
            textfile=tmp_path / "mesh.prom",
            nodes=nodes,
            without=[("d",)],
            added=[("c", "a")],
        ),
        lambda _: None,
        0,
    )
    assert not outcome.conditions
    assert outcome.summary[0].startswith("Hypothetical: without d, with c - a. m: 3 daemons, 3 li")
    assert outcome.json is not None
    report = json.loads(outcome.json)
    assert report["hypothetical"] == {"without": [["d"]], "with": [["c", "a"]]}
    (mesh,) = report["meshes"]
    assert [mesh[one]["bridges"]["value"] for one in ("before", "metrics")] == [3, 0]
    assert [value for _, value in mesh["series"]["daemons"]] == [5, 5, 3]
    assert 'pubsubd_topology_bridges{mesh="m"} 0.0' in (tmp_path / "mesh.prom").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"mesh.prom", "nodes"}


@pytest.mark.parametrize(
    ("without", "added", "error"),
    [
        ([("e",)], [], "no mesh has a daemon e at the end of its latest window"),
        ([("a", "c")], [], "no mesh has a link of a and c at the end of its latest window"),
        ([("a",)], [("a", "c")], "a is to be without, and cannot be linked"),
    ],
)
def test_what_is_not_there_cannot_be_supposed_away(
    spark: SparkSession, without: list[Any], added: list[Any], error: str
) -> None:
    rows = [("m", 1, "a", "b"), ("m", 1, "b", "c"), ("m", 0, "e", "a")]
    arcs = spark.createDataFrame(rows, "mesh string, window int, src string, dst string")
    with pytest.raises(TopologyError, match=f"^{error}$"):
        suppose(arcs, without, added)


def test_a_daemon_that_loses_its_last_link_still_exists(spark: SparkSession) -> None:
    rows = [("m", 1, "a", "b"), ("m", 1, "b", "a"), ("m", 0, "a", "b")]
    arcs = spark.createDataFrame(rows, "mesh string, window int, src string, dst string")
    found = suppose(arcs, [("a", "b")], []).collect()
    assert sorted(map(tuple, found), key=str) == [
        ("m", 0, "a", "b"),
        ("m", 1, "a", None),
        ("m", 1, "b", None),
    ]
    found = suppose(arcs, [("b",)], []).collect()
    assert sorted(map(tuple, found), key=str) == [("m", 0, "a", "b"), ("m", 1, "a", None)]


def test_sites_and_round_trips_are_those_of_the_latest_window(once: tuple[Path, Outcome]) -> None:
    (mesh,) = json.loads((once[0] / "report.json").read_text())["meshes"]
    (sites,) = mesh["failure_domains"]
    assert (sites["kind"], sites["domains"], sites["placed"]) == ("site", 3, 4)
    assert sites["parting"] == {
        "total": 1,
        "items": [
            {"name": "middle", "daemons": 1, "cut_off": 1, "pieces": 2, "links": [["a", "d"]]}
        ],
    }
    trips = mesh["round_trips"]
    assert (trips["links"], trips["measured"], trips["why"]) == (3, 3, None)
    assert trips["mean"] == pytest.approx(1.5 * (3 * 1 + 2 * 2 + 1 * 3) / 6)
    assert trips["slowest"][0]["hops"] == 3


@pytest.mark.parametrize(("size", "codegen"), [(math.inf, "FALLBACK"), (30e6, "NO_CODEGEN")])
def test_the_same_input_makes_the_same_bytes(
    tmp_path: Path, spark: SparkSession, once: tuple[Path, Outcome], size: float, codegen: str
) -> None:
    """Shuffled, and in several partitions: through files, with each setting in its other form.

    What is less than infinite is kept in this process, and not adaptive.
    """
    exports = write_exports(tmp_path / "exports")
    shuffle_lines(exports)
    settings = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.codegen.factoryMode": codegen,
        "spark.sql.codegen.wholeStage": str(codegen == "FALLBACK").lower(),
    }
    os.chdir(tmp_path)
    with changed(spark, settings):
        analyse(spark, Path("exports"), tmp_path / "out", size)
        # They are put back.
        assert {name: spark.conf.get(name) for name in settings} == settings
    assert digests(tmp_path / "out") == digests(once[0])


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Path, Outcome]:
    """The report of the exports as they are, and its outcome."""
    directory = tmp_path_factory.mktemp("once")
    write_exports(directory / "exports")
    before = Path.cwd()
    os.chdir(directory)
    try:
        graphs = [directory / f"mesh.{ending}" for ending in ("graphml", "gexf", "json", "dot")]
        return directory / "out", analyse(spark, Path("exports"), directory / "out", export=graphs)
    finally:
        os.chdir(before)


@pytest.fixture(autouse=True)
def back(tmp_path: Path) -> Iterator[None]:
    """Go back to where the tests run."""
    before = Path.cwd()
    yield
    os.chdir(before)


def shuffle_lines(directory: Path) -> None:
    """Put the rows into other files and another order."""
    files = sorted(directory.iterdir())
    lines = [line for file in files for line in file.read_text().splitlines()]
    random.Random(7).shuffle(lines)
    for number, file in enumerate(files):
        file.write_text("".join(f"{line}\n" for line in lines[number :: len(files)]))


def test_a_bad_row_is_counted_and_kept_and_nothing_else_is_lost(
    tmp_path: Path, spark: SparkSession
) -> None:
    exports = write_exports(tmp_path / "exports")
    last = exports / "edges-170.jsonl"
    cut = row(171, "a", "a", "b")[:80]
    last.write_bytes(last.read_bytes() + b"\xff\xfe{}\n" + cut.encode())
    analyse(spark, exports, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["rejects"] == {"json": 1, "utf8": 1}
    with (tmp_path / "out" / "rejects.csv").open(encoding="utf-8", newline="") as file:
        assert [one["reason"] for one in csv.DictReader(file)] == ["json", "utf8"]
    assert [one["value"] for one in daemons(tmp_path / "out")] == [5, 5, 4]
    with pytest.raises(TopologyError, match=r"^--strict: 2 rows rejected \(1 json, 1 utf8\)$"):
        analyse(spark, exports, tmp_path / "strict", strict=True)
    assert not (tmp_path / "strict").exists(), "nothing was written"


def daemons(out: Path) -> list[dict[str, Any]]:
    return [one for one in read_table(out, "metrics").to_pylist() if one["name"] == "daemons"]


def test_a_failure_leaves_the_earlier_report_alone(tmp_path: Path, spark: SparkSession) -> None:
    lists = tmp_path / "ring.txt"
    lists.write_text("a b\nb c\nc a\n")
    analyse(spark, lists, tmp_path / "out")
    before = digests(tmp_path / "out")
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing\n")
    with pytest.raises(TopologyError, match=r"^there is nothing to analyse: there are no rows$"):
        analyse(spark, empty, tmp_path / "out")
    with pytest.raises(TopologyError, match="none of 3 rows is of the mesh and the time"):
        analyse(spark, lists, tmp_path / "out", mesh="other")
    assert digests(tmp_path / "out") == before


def test_listed_daemons_exist_and_have_addresses(tmp_path: Path, spark: SparkSession) -> None:
    inputs = write_exports(tmp_path / "inputs")
    (inputs / "ring.txt").write_text("a b\nb c\nc a\nc d\n")
    nodes = tmp_path / "nodes"
    lines = ["a site=x 10.0.0.1:9014", "b", "c site=y", "d 10.0.0.4:9014, as=1"]
    nodes.write_text("\n".join([*lines, "alone 10.0.0.9:9014", "e 10.0.0.5:9014", ""]))
    outcome = analyse(spark, inputs, tmp_path / "out", nodes=nodes)
    found = metrics_of(tmp_path / "out")
    ring = found["ring"]
    assert (ring["daemons"], ring["isolated"], ring["components"]) == (6, 2, 3)
    assert outcome.conditions == {"left", "partition", "spof"}
    assert "--peer 10.0.0." in (tmp_path / "out" / "report.html").read_text()
    # Where daemons tell of themselves, one that is listed and not there is gone, and no part.
    assert found["m"]["daemons"] == 4
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (mesh,) = (one for one in report["meshes"] if one["mesh"] == "m")
    gone = [(one["id"], one["since"], one["address"]) for one in mesh["incident"]["gone"]["items"]]
    assert gone == [
        ("e", "2026-11-28T02:25:30.000Z", "10.0.0.5:9014"),
        ("alone", None, "10.0.0.9:9014"),
    ]
    advised = {
        end for plan in mesh["advice"].values() for one in plan["items"] for end in one.items()
    }
    assert not {("on", "e"), ("to", "e"), ("on", "alone"), ("to", "alone")} & advised
    domains = {one["mesh"]: one["failure_domains"] for one in report["meshes"]}
    assert [
        (kind["kind"], [(one["name"], one["cut_off"]) for one in kind["parting"]["items"]])
        for kind in domains["ring"]
    ] == [("site", [("y", 1)]), ("as", [])]
    assert [kind["domains"] for kind in domains["m"]] == [4, 1]


def test_a_file_that_vanishes_is_told_and_an_error_if_strict(
    tmp_path: Path, spark: SparkSession
) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "stays.txt").write_text("a b\nb c\nc a\n")
    gone = lists / "vanishes.txt"

    def vanish(stage: str) -> None:
        if stage == "reading":
            gone.unlink()

    told = f"1 file has vanished while the inputs were read: {gone}"
    for strict in (False, True):
        gone.write_text("x y\n")
        job = Job([str(lists)], tmp_path / "out", strict=strict)
        if strict:
            with pytest.raises(TopologyError, match=f"^--strict: {told}$"):
                run_in(spark, job, vanish)
        else:
            assert run_in(spark, job, vanish).notes == (told,)
            assert set(metrics_of(tmp_path / "out")) == {"stays"}


def test_graphs_in_foreign_formats_and_lists_are_meshes_beside_each_other(
    tmp_path: Path, spark: SparkSession
) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    graph = nx.barbell_graph(4, 2)
    graph.add_node("alone")
    nx.write_graphml(graph, inputs / "one.graphml")
    nx.write_gml(graph, inputs / "two.gml")
    (inputs / "three.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    (inputs / "four.csv").write_text("".join(f"x;{a};{b}\n" for a, b in graph.edges) + "x;a;\n")
    (inputs / "five.csv").write_text(
        "id,source,target\n" + "".join(f"x,{a},{b}\n" for a, b in graph.edges)
    )
    (inputs / "notes.txt").write_text("Two words\nand three more\n")
    job = Job([str(inputs)], tmp_path / "out", columns=Columns("2", "3"))
    outcome = run_in(spark, job, lambda _: None)
    found = metrics_of(tmp_path / "out")
    assert {
        (name, one["daemons"], one["links"], one["components"], one["bridges"])
        for name, one in found.items()
    } == {(name, 11, 15, 2, 3) for name in ("one", "two", "three")} | {
        (name, 10, 15, 1, 3) for name in ("four", "five")
    }
    assert {one["reciprocity"] for one in found.values()} == {0, 1}
    (note,) = outcome.notes
    assert note.startswith(f"left out: {inputs}/notes.txt: it is no list of links")
    (rejected,) = read_table(tmp_path / "out", "rejects").to_pylist()
    assert rejected == {"file": f"{inputs}/four.csv", "reason": "short", "line": "x;a;"}


def test_a_list_with_many_bad_rows_is_none_unless_lenient(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Its beginning, which is looked at before, is good."""
    lists = tmp_path / "long.txt"
    good = "".join(f"{number % 9} {number % 5} 2.5\n" for number in range(20_000))
    lists.write_text(good + "alone\n" * 4_000)
    with pytest.raises(TopologyError, match="4,000 of its 24,000 rows are no links: --lenient"):
        analyse(spark, lists, tmp_path / "out")
    graph = tmp_path / "graph.json"
    columns = Columns("1", "2", "3")
    analyse(spark, lists, tmp_path / "out", lenient=True, columns=columns, export=[graph])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["rejects"]["short"] == 4_000
    links = json.loads(graph.read_text())["links"]
    assert len(links) == 30
    assert {link["cost"] for link in links} == {2.5}


def test_the_latest_window_is_written_as_a_graph(once: tuple[Path, Outcome]) -> None:
    folder = once[0].parent
    graph = nx.read_graphml(folder / "mesh.graphml")
    assert {frozenset(ends) for ends in graph.edges} == set(map(frozenset, ("ab", "bc", "cd")))
    states = {name: values["state"] for name, values in graph.nodes(data=True)}
    assert states == dict.fromkeys("abcd", "up") | {"e": "gone"}
    points = {name for name, values in graph.nodes(data=True) if values.get("articulation")}
    assert points == set(nx.articulation_points(graph))
    assert {values["degree"] for _, values in graph.nodes(data=True) if "degree" in values} == {
        1,
        2,
    }
    for _, _, link in graph.edges(data=True):
        assert (link["bridge"], link["one_sided"], link["rtt_ms"]) == (True, False, 1.5)
        assert link["messages"] > 0
    assert nx.is_isomorphic(graph, nx.read_gexf(folder / "mesh.gexf"))
    assert len(json.loads((folder / "mesh.json").read_text())["links"]) == 3
    drawn = subprocess.run(
        ["dot", "-Tsvg", folder / "mesh.dot"], capture_output=True, check=True, text=True
    )
    assert (drawn.stdout.count('class="edge"'), drawn.stderr) == (3, "")


def test_a_graph_has_one_mesh() -> None:
    check_one_mesh([{"mesh": "m", "window": 1}, {"mesh": "m", "window": 2}])
    with pytest.raises(TopologyError, match=r"there are 2 \(m, n\): choose one with --mesh"):
        check_one_mesh([{"mesh": "n"}, {"mesh": "m"}])
