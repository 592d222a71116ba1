"""The whole analysis in a Spark session: from what daemons have exported to a report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pubsubd.files.whole import write_whole
from pubsubd.topology.assembly import assemble
from pubsubd.topology.cleaning import (
    REJECTS,
    SELF_LOOP,
    check,
    clean,
    drop_repeats,
    rejects,
)
from pubsubd.topology.dealing import ALONE
from pubsubd.topology.distributed.whole import analyse as analyse_spread
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.exporting import check_one_mesh, export_links, read_graph
from pubsubd.topology.exports import write_graph
from pubsubd.topology.formats.links import MOST_REJECTED
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
from pubsubd.topology.hypothetical import latest, suppose
from pubsubd.topology.incident import gone_table
from pubsubd.topology.inputs import check_window
from pubsubd.topology.output import writing
from pubsubd.topology.parameters import Job, Outcome, Stage
from pubsubd.topology.preparing import Prepared, prepare
from pubsubd.topology.reading import Inputs, read_inputs, read_nodes
from pubsubd.topology.report import Report, encode, terminal_summary, write_report
from pubsubd.topology.report.conditions import conditions_of
from pubsubd.topology.report.parts import FULL
from pubsubd.topology.report.textfile import exposition
from pubsubd.topology.scratch import Scratch
from pubsubd.topology.snapshots import (
    GRAPH,
    ROWS,
    analyse_here,
    analyse_whole,
    label,
    list_graphs,
    take_graph,
)
from pubsubd.topology.store import Rows, Store, changed, empty
from pubsubd.topology.tables import Table, write_kinds, write_table

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

HERE = 64 * 2**20
"""Bytes of text up to which rows that are needed again are kept in this process, not in files."""

MOST_ARCS = 2_000_000
"""Arcs of a graph up to which failure domains and round trips are looked at, in this process."""

_SHUFFLED = 8 * 2**20  # bytes of text for a task after a shuffle, where there is little
_TASKS = 32  # a core, that graphs are dealt to: they take very different times
_NAMED = 3  # files that a message names
_FEW, _FEW_ARCS = 64, 20_000  # graphs and their arcs that take less time than to start workers


def run_in(spark: SparkSession, job: Job, stage: Stage, size: float | None = None) -> Outcome:
    """Look at the inputs, analyse them in an existing session, and write the report.

    Args:
        spark: the session.
        job: as :func:`pubsubd.topology.run.run` takes it.
        stage: called with each stage.
        size: about how many bytes of text there are, if that is not to be looked up; see
            :data:`HERE`.

    Raises:
        TopologyError, OSError: as :func:`pubsubd.topology.run.run`.
    """
    with Scratch(job.out) as scratch:
        prepared = prepare(job, scratch, stage)
        prepared.size = prepared.size if size is None else size
        return analyse(spark, job, stage, prepared, scratch)


def analyse(
    spark: SparkSession, job: Job, stage: Stage, prepared: Prepared, scratch: Scratch
) -> Outcome:
    """Analyse inputs in a session, and write the report.

    Raises:
        TopologyError, OSError: as :func:`pubsubd.topology.run.run`.
    """
    here = prepared.size < HERE
    with (
        writing(spark, job.out, scratch.path.resolve()) as (shared, made),
        changed(spark, _of_a_small_job(prepared.size) if here else {}),
    ):
        notes = [f"left out: {file}: {why}" for file, why in sorted(prepared.ignored.items())]
        report = _analyse(spark, job, prepared, Store(spark, shared, here), made, stage, notes)
        stage("writing the report")
        return _write(job, report, made, notes)


def _write(job: Job, report: Report, made: Path, notes: list[str]) -> Outcome:
    """Write what is asked for, everything else before any file is replaced."""
    told = encode(report) if job.json is not None else None
    metrics = exposition(report) if job.textfile is not None else b""
    summary = terminal_summary(report)
    if job.out is not None:
        write_report(report, made)
    if job.textfile is not None:
        write_whole(job.textfile, metrics)
    conditions = frozenset[str]().union(*map(conditions_of, report.meshes))
    if job.json is None or told is None or job.json == "-":
        return Outcome(summary, conditions, tuple(notes), told)
    write_whole(Path(job.json), told)
    return Outcome(summary, conditions, tuple(notes))


def _of_a_small_job(size: float) -> dict[str, str]:
    """Return the settings for few tasks, since each one costs more than its rows."""
    return {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(1 if size < ALONE else 2 + int(size) // _SHUFFLED),
        # What follows from conditions takes longer to find out than it saves, and plans that
        # nobody reads are written down: a tenth of all processor time.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "1",
        # Or one task would read all of a file of some MB.
        "spark.sql.files.openCostInBytes": str(64 * 1024),
        # Or a job would list the files, if there are more than 32.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def _analyse(
    spark: SparkSession,
    job: Job,
    prepared: Prepared,
    store: Store,
    made: Path,
    stage: Stage,
    notes: list[str],
) -> Report:
    stage("reading")
    inputs = read_inputs(spark, prepared, store.here)
    check_window(inputs.files, job.window, job.since)
    nodes = None if prepared.nodes is None else store.keep(read_nodes(spark, prepared.nodes))
    # Counted in passing, by whatever reads the rows first.
    seen = Observation()
    checked = check(inputs).observe(
        seen, F.sum("rows").alias("rows"), F.count("reason").alias("bad")
    )
    if inputs.text and not store.here:  # to parse it once is worth more than the room it takes
        checked = store.keep(checked)

    cut = partial(clean, window=job.window, mesh=job.mesh, since=job.since, until=job.until)
    history = None
    parts = []
    if inputs.told:
        stage("reconciling what daemons told")
        rows = checked.where(~F.col("listed")).transform(cut).transform(drop_repeats)
        history = make_history(rows, job.window, _stale(job), store.keep)
        parts.append(history.arcs)
    if inputs.listed:
        parts.append(checked.where("listed").transform(cut).transform(list_arcs))
    arcs = store.compute(reduce(DataFrame.union, parts))
    if nodes is not None and inputs.listed:
        arcs = store.compute(store.frame(arcs).transform(add_nodes(nodes)))
    before = None
    if job.without or job.added:
        before = latest(store.frame(arcs))
        arcs = store.compute(suppose(store.frame(arcs), job.without, job.added))
    graphs = list_graphs(arcs)
    bad = store.keep(rejects(checked)) if seen.get["bad"] else None
    notes += _tell_vanished(prepared, job)
    if bad is not None and not job.lenient:
        _check_lists(checked, bad)
    counts = _count(seen.get["rows"] or 0, bad, job)
    if not graphs:
        raise TopologyError(f"there is nothing to analyse: {_why_nothing(counts)}")
    if job.export:
        check_one_mesh(graphs)
    stage("writing the history")
    for table in _tables_of(history, bad):
        write_table(table, store, made)

    stage(f"analysing {len(graphs):,} graph{'s' if len(graphs) > 1 else ''}")
    facts = _state_facts(job, store, arcs, graphs, stage)
    write_kinds(facts, ROWS, _KINDS, store, made)
    stage("putting the report together")
    listed = None if nodes is None else nodes.toArrow()
    if listed is not None:  # what is supposed to be lost is not missed
        lost = pa.array([one[0] for one in job.without if len(one) == 1], pa.string())
        listed = listed.filter(pc.invert(pc.is_in(listed["id"], lost)))
    was = None if before is None else _measure(job, store, before, stage)
    take_arcs = partial(_take_arcs, arcs, graphs)
    meshes = assemble(made, store.shared.here / "kinds", listed, take_arcs, job.seed, was)
    gone = gone_table((one.mesh, one.incident) for one in meshes if one.incident is not None)
    write_table(Table("gone", gone, ("mesh", "id")), store, made)
    if job.export:
        stage("writing the graph")
        (mesh,) = meshes
        links = export_links(store, arcs, checked, history, mesh.mesh, mesh.window)
        for path in job.export:
            write_graph(path, read_graph(made, links, mesh.mesh, mesh.window))
    return Report(
        made_of=list(job.inputs),
        rows=counts.pop("", 0) + counts.get(SELF_LOOP, 0),
        rejects=counts,
        seed=job.seed,
        meshes=meshes,
        parameters=_parameters(job, inputs),
        without=job.without,
        added=job.added,
    )


def _tables_of(history: History | None, bad: DataFrame | None) -> Iterator[Table]:
    """The tables but those of facts; empty where there is nothing, as for the history of lists."""
    yield Table("rejects", empty(REJECTS) if bad is None else bad, ("file", "reason", "line"))
    for name, schema, keys in (
        ("links", LINKS, (*GRAPH, "src", "dst")),
        ("daemons", DAEMONS, (*GRAPH, "id")),
        ("churn", CHURN, GRAPH),
        ("events", EVENTS, ("mesh", "at", "kind", "src", "dst")),
    ):
        rows = empty(schema) if history is None else getattr(history, name)
        yield Table(_HISTORIES.get(name, name), rows, keys)


def _count(rows: int, bad: DataFrame | None, job: Job) -> dict[str, int]:
    """Count the rejected rows by reason, and the good ones under no reason."""
    found = [] if bad is None else bad.groupBy("reason").count().collect()
    rejected = {row["reason"]: row["count"] for row in sorted(found)}
    faulty = {reason: count for reason, count in rejected.items() if reason != SELF_LOOP}
    if job.strict and faulty:
        total = sum(faulty.values())
        why = ", ".join(f"{count:,} {reason}" for reason, count in faulty.items())
        raise TopologyError(f"--strict: {total:,} row{'s' if total > 1 else ''} rejected ({why})")
    good = rows - sum(rejected.values())
    return ({"": good} if good else {}) | rejected


def _check_lists(checked: DataFrame, bad: DataFrame) -> None:
    """Check that lists are lists.

    Raises:
        TopologyError: over a tenth of the rows of one were rejected.
    """
    faulty = bad.where(F.col("reason") != SELF_LOOP).select("file").distinct()
    rows = (
        checked.where("listed")
        .join(F.broadcast(faulty), "file")
        .groupBy("file")
        .agg(
            F.count("*").alias("rows"),
            F.count(F.nullif("reason", F.lit(SELF_LOOP))).alias("bad"),
        )
    )
    for one in rows.orderBy("file").collect():
        if one["bad"] > MOST_REJECTED * one["rows"]:
            raise TopologyError(
                f"{one['file']}: {one['bad']:,} of its {one['rows']:,} rows are no links:"
                " --lenient leaves them out"
            )


def _tell_vanished(prepared: Prepared, job: Job) -> list[str]:
    """Tell which files are gone by now, so that maybe not all of their rows were read.

    Raises:
        TopologyError: there are some, and that is an error.
    """
    read_in_place = sorted(prepared.files.keys() - prepared.origins.keys())
    gone = [file for file in read_in_place if not Path(file).exists()]
    if not gone:
        return []
    some = ", ".join(gone[:_NAMED]) + (", ..." if len(gone) > _NAMED else "")
    files = "1 file has" if len(gone) == 1 else f"{len(gone):,} files have"
    told = f"{files} vanished while the inputs were read: {some}"
    if job.strict:
        raise TopologyError(f"--strict: {told}")
    return [told]


def _why_nothing(counts: dict[str, int]) -> str:
    good = counts.get("", 0) + counts.get(SELF_LOOP, 0)
    if good:
        rows = "the only row is not" if good == 1 else f"none of {good:,} rows is"
        return f"{rows} of the mesh and the time asked for"
    bad = sum(counts.values())
    if bad == 1:
        return "the only row was rejected"
    return f"all of {bad:,} rows were rejected" if bad else "there are no rows"


def _state_facts(
    job: Job, store: Store, arcs: Rows, graphs: list[dict[str, Any]], stage: Stage
) -> Rows:
    """Return the facts of all graphs."""
    large = [one for one in graphs if one["arcs"] > job.local_edges]
    if isinstance(arcs, pa.Table) and not large and _is_little(graphs):
        return analyse_here(arcs, graphs, job.seed)
    frame, spark = store.frame(arcs), store.spark
    is_large = reduce(Column.__or__, map(_is_of, large), F.lit(False))
    tasks = min(len(graphs), _TASKS * spark.sparkContext.defaultParallelism)
    facts = analyse_whole(frame.where(~is_large), job.seed, tasks)
    for one in large:
        stage(f"analysing {one['arcs']:,} arcs of {one['mesh']}, spread over all workers")
        table = analyse_spread(frame.where(_is_of(one)).select("src", "dst"), job.seed)
        named = label(table, one["mesh"], one["window"])
        facts = facts.union(spark.createDataFrame(named, facts.schema))
    # Computed, since to sort is to compute twice: Spark looks at a sample first.
    return store.compute(facts)


def _measure(job: Job, store: Store, arcs: DataFrame, stage: Stage) -> pa.Table:
    """Return the metrics of graphs: rows as :func:`_state_facts` has them."""
    rows = store.compute(arcs)
    graphs = list_graphs(rows)
    stage(f"analysing what was reported: {len(graphs):,} graph{'s' if len(graphs) > 1 else ''}")
    facts = _state_facts(job, store, rows, graphs, stage)
    if isinstance(facts, pa.Table):
        return facts.filter(pc.field("kind") == "metric")
    return facts.where(F.col("kind") == "metric").toArrow()


def _is_little(graphs: list[dict[str, Any]]) -> bool:
    """Tell whether workers, which take seconds to start, would save no time."""
    return len(graphs) == 1 or (
        len(graphs) <= _FEW and sum(one["arcs"] for one in graphs) <= _FEW_ARCS
    )


def _take_arcs(
    arcs: Rows, graphs: list[dict[str, Any]], mesh: str, window: datetime | None
) -> pa.Table | str:
    """Return the arcs of a graph, or the reason why they stay where they are."""
    largest = sorted(graphs, key=lambda one: -one["arcs"])
    meshes = list(dict.fromkeys(one["mesh"] for one in largest))[:FULL]
    (graph,) = (one for one in graphs if (one["mesh"], one["window"]) == (mesh, window))
    if mesh not in meshes:
        return f"not computed for more than the {FULL} largest meshes"
    if graph["arcs"] > MOST_ARCS:
        return f"not computed for more than {MOST_ARCS:,} arcs"
    if isinstance(arcs, pa.Table):
        return take_graph(arcs, graph)
    return arcs.where(_is_of(graph)).select("src", "dst").toArrow()


def _is_of(graph: dict[str, Any]) -> Column:
    """Select the rows of ``graph``."""
    window = F.col("window").eqNullSafe(F.lit(graph["window"]))
    return (F.col("mesh") == F.lit(graph["mesh"])) & window


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
        "files_left_out": inputs.ignored,
    }
