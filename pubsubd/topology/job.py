"""The whole analysis: from what daemons have exported to a report."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pubsubd.topology.assembly import assemble
from pubsubd.topology.cleaning import (
    REJECTS,
    SELF_LOOP,
    check,
    clean,
    drop_repeats,
    rejects,
)
from pubsubd.topology.distributed.whole import analyse
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.history import (
    CHURN,
    DAEMONS,
    EVENTS,
    LINKS,
    History,
    add_nodes,
    list_arcs,
    make_history,
)
from pubsubd.topology.reading import Inputs, look_here, read_inputs, read_nodes, size_here
from pubsubd.topology.report import Report, terminal_summary, write_report
from pubsubd.topology.settings import BRIEF
from pubsubd.topology.snapshots import GRAPH, ROWS, analyse_whole, label, sizes
from pubsubd.topology.spark import spark_session
from pubsubd.topology.tables import Table, write_kinds, write_table

Stage = Callable[[str], None]
"""Called with the name of each stage that begins."""

_GRAPH = {one: one for one in GRAPH}
_ENDS = {"id": "id", "other": "other"}
_DAEMON = ("degree", "in_degree", "out_degree", "component", "region", "core", "cut_off")
_SHARES = ("clustering", "pagerank", "betweenness", "betweenness_error")
_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    kind: (name, _GRAPH | columns)
    for kind, name, columns in (
        ("metric", "metrics", {one: one for one in ("name", "value", "error", "text")}),
        ("daemon", "daemons", {one: one for one in ("id", *_DAEMON, *_SHARES)}),
        ("articulation", "articulation", {"id": "id", "size": "cut_off"}),
        ("bridge", "bridges", _ENDS | {"size": "cut_off"}),
        ("cut", "minimum_cut", _ENDS),
        ("histogram", "histograms", {"name": "name", "x": "x", "value": "count"}),
        ("curve", "curves", {"name": "name", "x": "removed", "value": "largest"}),
        (
            "advice",
            "advice",
            {one: one for one in ("name", "rank", "id", "other", "value", "error", "text")},
        ),
    )
}
"""Kind of a fact -> the table it goes to, and the columns there."""

_HISTORIES = {"links": "link_history", "daemons": "daemon_history"}
"""A table of the history -> its name, if it is another one."""

_TASKS = 32  # a core, that graphs are dealt to: they take very different times


@dataclass(frozen=True)
class Job:
    """Parameters of a run; pubsubd-topology(1) explains each.

    Durations are seconds. ``mesh``, ``since`` and ``until`` keep a part of the rows, ``nodes`` is
    a file with daemons that exist.
    """

    inputs: Sequence[str]
    out: Path
    master: str | None = None
    window: int = 3600
    since: datetime | None = None
    until: datetime | None = None
    mesh: str | None = None
    nodes: Path | None = None
    stale: int | None = None
    strict: bool = False
    seed: int = 0
    local_edges: int = 10_000_000
    log_file: Path | None = None
    driver_memory: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    Attributes:
        summary: lines for a terminal.
        conditions: those of ``partition``, ``spof`` and ``one-sided`` that hold in the latest
            window of a mesh.
    """

    summary: list[str]
    conditions: frozenset[str]


def run(job: Job, stage: Stage) -> Outcome:
    """Analyse the inputs and write the report to ``job.out``, replacing an earlier one.

    Raises:
        TopologyError: the analysis cannot go on; the message is one line.
        OSError: a file could not be written.
    """
    look_here(job.inputs, None if job.nodes is None else str(job.nodes))
    stage("starting Spark")
    brief = size_here(job.inputs) < BRIEF
    with spark_session(job.master, job.log_file, heap=job.driver_memory, brief=brief) as spark:
        return run_in(spark, job, stage)


def run_in(spark: SparkSession, job: Job, stage: Stage) -> Outcome:
    """Do the same as :func:`run`, in an existing session."""
    job.out.mkdir(parents=True, exist_ok=True)
    with _scratch(job.out) as scratch:
        made = scratch / "made"
        made.mkdir()
        report = _analyse(spark, job, scratch, made, stage)
        stage("writing the report")
        write_report(report, made)
        summary = terminal_summary(report)
        for file in sorted(made.iterdir()):
            file.replace(job.out / file.name)
    return Outcome(summary, _conditions(report))


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A directory beside the report, since the executors have to see both."""
    path = Path(tempfile.mkdtemp(prefix=".topology-", dir=out))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _analyse(spark: SparkSession, job: Job, scratch: Path, made: Path, stage: Stage) -> Report:
    def keep(frame: DataFrame) -> DataFrame:
        """Compute a frame once; what is made of it then has a short plan."""
        path = (scratch / f"kept-{next(numbers)}").resolve().as_uri()
        frame.write.parquet(path)
        return spark.read.schema(frame.schema).parquet(path)

    numbers = itertools.count()
    stage("reading")
    inputs = read_inputs(spark, job.inputs)
    nodes = None if job.nodes is None else keep(read_nodes(spark, str(job.nodes)))
    checked = check(inputs)
    if inputs.text:  # to parse it once is worth more than the room it takes
        checked = keep(checked)
    counts = _count(checked, job)
    bad = rejects(checked) if set(counts) - {""} else spark.createDataFrame([], REJECTS)
    write_table(Table("rejects", bad, ("file", "reason", "line")), scratch, made)

    cut = partial(clean, window=job.window, mesh=job.mesh, since=job.since, until=job.until)
    history = None
    parts = []
    if inputs.told:
        stage("reconciling what daemons told")
        rows = checked.where(~F.col("listed")).transform(cut).transform(drop_repeats)
        history = make_history(rows, job.window, _stale(job), keep)
        parts.append(history.arcs)
    if inputs.lists is not None:
        parts.append(checked.where("listed").transform(cut).transform(list_arcs))
    arcs = reduce(DataFrame.union, parts)
    arcs = keep(arcs if nodes is None else arcs.transform(add_nodes(nodes)))
    graphs = sizes(arcs).collect()
    if not graphs:
        raise TopologyError(f"there is nothing to analyse: {_why_nothing(counts)}")
    stage("writing the history")
    for table in _tables_of(history, spark):
        write_table(table, scratch, made)

    stage(f"analysing {len(graphs):,} graph{'s' if len(graphs) > 1 else ''}")
    # Kept, since to sort is to compute twice: Spark looks at a sample first.
    facts = keep(_state_facts(spark, job, arcs, graphs, stage))
    write_kinds(facts, ROWS, _KINDS, scratch, made)
    stage("putting the report together")
    return Report(
        made_of=list(job.inputs),
        rows=counts.pop("", 0) + counts.get(SELF_LOOP, 0),
        rejects=counts,
        seed=job.seed,
        meshes=assemble(made, scratch / "kinds", None if nodes is None else nodes.toArrow()),
        parameters=_parameters(job, inputs),
    )


def _tables_of(history: History | None, spark: SparkSession) -> Iterator[Table]:
    """The tables of a history; empty where there is none, as for bare lists."""
    for name, schema, keys in (
        ("links", LINKS, (*GRAPH, "src", "dst")),
        ("daemons", DAEMONS, (*GRAPH, "id")),
        ("churn", CHURN, GRAPH),
        ("events", EVENTS, ("mesh", "at", "kind", "src", "dst")),
    ):
        frame = spark.createDataFrame([], schema) if history is None else getattr(history, name)
        yield Table(_HISTORIES.get(name, name), frame, keys)


def _count(checked: DataFrame, job: Job) -> dict[str, int]:
    """Count the rejected rows by reason, and the good ones under no reason."""
    found = checked.groupBy(F.coalesce("reason", F.lit("")).alias("reason")).count().collect()
    counts = {row["reason"]: row["count"] for row in sorted(found)}
    bad = {reason: count for reason, count in counts.items() if reason not in {"", SELF_LOOP}}
    if job.strict and bad:
        total = sum(bad.values())
        why = ", ".join(f"{count:,} {reason}" for reason, count in bad.items())
        raise TopologyError(f"--strict: {total:,} row{'s' if total > 1 else ''} rejected ({why})")
    return counts


def _why_nothing(counts: dict[str, int]) -> str:
    good = counts.get("", 0) + counts.get(SELF_LOOP, 0)
    if good:
        return f"none of {good:,} rows is of the mesh and the time asked for"
    bad = sum(counts.values())
    return f"all of {bad:,} rows were rejected" if bad else "there are no rows"


def _state_facts(
    spark: SparkSession, job: Job, arcs: DataFrame, graphs: list[Row], stage: Stage
) -> DataFrame:
    """Return the facts of all graphs; those of large ones are computed before this returns."""
    large = [one for one in graphs if one["arcs"] > job.local_edges]
    is_large = reduce(Column.__or__, map(_is_of, large), F.lit(False))
    tasks = min(len(graphs), _TASKS * spark.sparkContext.defaultParallelism)
    facts = analyse_whole(arcs.where(~is_large), job.seed, tasks)
    for one in large:
        stage(f"analysing {one['arcs']:,} arcs of {one['mesh']}, spread over all workers")
        table = analyse(arcs.where(_is_of(one)).select("src", "dst"), job.seed)
        named = label(table, one["mesh"], _window_of(one))
        facts = facts.union(spark.createDataFrame(named, facts.schema))
    return facts


def _is_of(graph: Row) -> Column:
    """Select the rows of ``graph``."""
    window = F.col("window").eqNullSafe(F.lit(_window_of(graph)))
    return (F.col("mesh") == F.lit(graph["mesh"])) & window


def _window_of(graph: Row) -> datetime | None:
    """Return a window's start with its time zone: Spark gives it in this machine's, unnamed."""
    window: datetime | None = graph["window"]
    return None if window is None else window.astimezone(UTC)


def _stale(job: Job) -> int:
    return min(300, job.window // 4) if job.stale is None else job.stale


def _parameters(job: Job, inputs: Inputs) -> dict[str, Any]:
    """Return the other parameters that the report depends on."""
    return {
        "window_seconds": job.window,
        "since": None if job.since is None else job.since.isoformat(),
        "until": None if job.until is None else job.until.isoformat(),
        "mesh": job.mesh,
        "stale_seconds": _stale(job),
        "local_edges": job.local_edges,
        "files": len(inputs.files),
        "files_left_out": len(inputs.ignored),
    }


def _conditions(report: Report) -> frozenset[str]:
    found = set()
    for mesh in report.meshes:
        metrics = {
            row["name"]: row["value"]
            for row in mesh.snapshot.filter(pc.field("kind") == "metric").to_pylist()
        }
        if (metrics["components"] or 0) > 1:
            found.add("partition")
        if metrics["articulation_daemons"] or metrics["bridges"]:
            found.add("spof")
        if mesh.one_sided.num_rows:
            found.add("one-sided")
    return frozenset(found)
