"""``pubsubd mesh-sim``: a mesh of many daemons, simulated in one process."""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pubsubd.cli.streams import echo
from pubsubd.cli.tables import show
from pubsubd.cli.values import seconds, some_seconds
from pubsubd.mesh import graphs
from pubsubd.mesh.sim import (
    ActorResults,
    Delivery,
    Player,
    Results,
    ScriptError,
    Simulation,
    parse_script,
)

_WARM = 200  # from this many daemons on, a cold start takes long
_BUSIEST = 5  # links that are shown


@click.command()
@click.argument("graph_file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--line", type=click.IntRange(2), metavar="N", help="A line of N daemons.")
@click.option("--ring", type=click.IntRange(3), metavar="N", help="A ring of N daemons.")
@click.option("--tree", type=click.IntRange(2), metavar="N", help="A binary tree of N daemons.")
@click.option(
    "--regular", type=click.IntRange(2), metavar="N", help="N daemons with D random links each."
)
@click.option(
    "--small-world",
    type=click.IntRange(3),
    metavar="N",
    help="A ring of N daemons with D links each to the nearest; a tenth lead to random ones.",
)
@click.option(
    "--degree",
    type=click.IntRange(1),
    metavar="D",
    default=4,
    show_default=True,
    help="Links per daemon, for --regular and --small-world.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random numbers.")
@click.option(
    "--latency",
    type=seconds,
    metavar="SECONDS",
    default=0.01,
    show_default=True,
    help="Time from one daemon to another, varied at random by up to 30 %.",
)
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The events to simulate.  [default: a tenth of the daemons fails and comes back]",
)
@click.option(
    "--duration",
    type=some_seconds,
    metavar="SECONDS",
    help="How long to simulate.  [default: 60, or 10 more than the script]",
)
@click.option(
    "--heartbeat",
    type=some_seconds,
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time between two heartbeats on a link.",
)
@click.option(
    "--warm/--cold",
    default=None,
    help="Start with daemons that know each other, or not.  [default: warm from 200 daemons on]",
)
@click.option(
    "--edges",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="At the end, write the links as JSON lines, as a daemon exports them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(
    graph_file: str | None,
    degree: int,
    seed: int,
    latency: float,
    script: str | None,
    duration: float | None,
    heartbeat: float,
    warm: bool | None,
    edges: str | None,
    as_json: bool,
    **shapes: int | None,
) -> None:
    """Simulate a mesh, and report how it behaves.

    The daemons run the real code; only their sockets and their clock are simulated. The links come
    from GRAPH_FILE, with one "src dst" per line or the JSON lines that daemons export, or from one
    of --line, --ring, --tree, --regular and --small-world.

    A script has one action per line:

    \b
      at 1 subscribe n1 //fwd/x/      or 10% of the daemons, or all
      at 2 publish n3 //x/y 100 0.05  100 messages, 0.05 s apart
      at 10 kill n5                   vanish: its connections stay open
      at 12 kill-random 10%           vanish-random: likewise
      at 12 cut n1 n2                 swallow: the link stays open, but loses all bytes
      at 20 heal n1 n2
      at 20 start n5
      at 1 actors 10000 100           100 a second go to other daemons

    For each event, the report says how long it took until all living daemons agreed on the true
    state of the mesh. A message is stable if they agreed when it was published and for a second
    after; stable messages must arrive exactly once.
    """  # noqa: D301  (click wants the character)
    graph = _graph(graph_file, shapes, degree, seed)
    if script is not None:
        try:
            actions = parse_script(Path(script).read_text(encoding="utf-8"))
        except (ScriptError, UnicodeDecodeError) as error:
            raise click.ClickException(f"{script}, {error}") from None
        length = duration or max([action.at for action in actions], default=0.0) + 10
    else:
        length = duration or 60.0
        actions = parse_script(_default_script(length))
    simulation = Simulation(
        graph,
        seed=seed,
        latency=latency,
        heartbeat=heartbeat,
        warm=len({node for edge in graph for node in edge}) >= _WARM if warm is None else warm,
        hubs=any(action.verb == "actors" for action in actions),
    )
    Player(simulation).play(actions)
    begun = time.monotonic()
    with _undisturbed(), _progress(length) as bar:
        while simulation.now < length:
            simulation.run_until(min(length, simulation.now + length / 100))
            bar(simulation.now)
    results = simulation.results()
    took = time.monotonic() - begun
    if edges is not None:
        rows = "".join(json.dumps(row) + "\n" for row in simulation.edges())
        Path(edges).write_text(rows, encoding="utf-8")
    if as_json:
        echo(json.dumps(_plain(results) | {"seed": seed, "took": round(took, 3)}))
    else:
        _show(results, took)


def _graph(file: str | None, shapes: dict[str, int | None], degree: int, seed: int) -> graphs.Graph:
    """Return the requested graph."""
    chosen = {shape: count for shape, count in shapes.items() if count is not None}
    if len(chosen) + (file is not None) != 1:
        names = ", ".join(f"--{shape.replace('_', '-')}" for shape in shapes)
        raise click.UsageError(f"give one graph: a GRAPH_FILE, or one of {names}")
    if file is not None:
        return graphs.read_graph(file)
    rng = random.Random(seed)
    [(shape, count)] = chosen.items()
    if shape == "regular":
        return graphs.regular(count, degree, rng)
    if shape == "small_world":
        return graphs.small_world(count, rng, degree)
    made: graphs.Graph = getattr(graphs, shape)(count)
    return made


def _default_script(length: float) -> str:
    """Return the default script: half of the messages are sent before anything fails."""
    pause = length / 600
    return f"""
        at 0 subscribe 10% //fwd/sim/
        at {length / 12} publish any //sim/x 500 {pause}
        at {length / 4} kill-random 10%
        at {length * 5 / 12} start all
    """


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable garbage collection: hundreds of megabytes are alive, and almost none is garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _progress(length: float) -> Iterator[Any]:
    """Show the progress of the simulated clock, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _now: None
        return
    columns = (TextColumn("simulating"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=length)
        yield lambda now: progress.update(task, completed=now)


def _plain(results: Results) -> dict[str, Any]:
    """Return the results as JSON has them."""
    plain = asdict(results)
    plain["link_messages"] = [
        {"nodes": list(nodes), "messages": messages, "least": least}
        for nodes, (messages, least) in results.link_messages.items()
    ]
    for name, delivery in (("stable", results.stable), ("unstable", results.unstable)):
        plain[name]["excess"] = round(delivery.excess, 4)
    return plain


def _show(results: Results, took: float) -> None:
    echo(
        f"{results.daemons:,} daemons with {results.links:,} links; {results.living:,} daemons are"
        f" alive at the end\n{results.duration:g} s simulated in {took:.1f} s:"
        f" {results.events:,} events"
    )
    table = Table(box=box.SIMPLE)
    table.add_column("at", justify="right")
    table.add_column("event", style="cyan")
    table.add_column("converged after", justify="right")
    if results.actors is not None:
        table.add_column("actors known after", justify="right")
    table.add_column("adverts sent by a daemon", justify="right")
    for change in results.changes:
        known = "" if change.actors_known is None else f"{change.actors_known:.1f} s"
        table.add_row(
            f"{change.at:g} s",
            Text(change.what),
            "not before the next event or the end"
            if change.took is None
            else f"{change.took:.2f} s",
            *([known] if results.actors is not None else []),
            "" if change.advert_bytes is None else _kilobytes(change.advert_bytes),
        )
    show(table)
    _show_deliveries(results.stable, results.unstable)
    if results.actors is not None:
        _show_actors(results.actors)
    busiest = sorted(results.link_messages.items(), key=lambda item: -item[1][0])[:_BUSIEST]
    table = Table(box=box.SIMPLE)
    table.add_column("busiest links", style="cyan")
    table.add_column("messages", justify="right")
    table.add_column("fewest possible", justify="right")
    for (one, another), (messages, least) in busiest:
        table.add_row(f"{one} - {another}", f"{messages:,}", f"{least:,}")
    if busiest:
        show(table)
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_row("adverts sent by a daemon", f"{_kilobytes(results.advert_rate)}/s")
    if results.advert_rate_stable is not None:
        table.add_row("while all agreed", f"{_kilobytes(results.advert_rate_stable)}/s")
    table.add_row("by the busiest daemon", f"{_kilobytes(results.advert_rate_most)}/s")
    for name, count in results.counters.items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    for code, count in sorted(results.refused.items()):
        table.add_row(f"refused: {code}", f"{count:,}")
    if results.relapses:
        table.add_row("disagreed without cause", f"{results.relapses:,} times")
    show(table)


def _show_deliveries(stable: Delivery, unstable: Delivery) -> None:
    table = Table(box=box.SIMPLE)
    table.add_column("messages", style="cyan")
    table.add_column("stable", justify="right")
    table.add_column("others", justify="right")
    rows = (
        ("published", "messages"),
        ("deliveries due", "due"),
        ("lost", "lost"),
        ("delivered twice", "duplicates"),
        ("out of order", "overtaken"),
        ("links crossed", "crossings"),
        ("fewest possible", "least"),
    )
    for title, name in rows:
        table.add_row(title, *(f"{getattr(one, name):,}" for one in (stable, unstable)))
    table.add_row("ratio", *(f"{one.excess:.3f}" for one in (stable, unstable)))
    show(table)


def _show_actors(actors: ActorResults) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    for title, count in (
        ("actors", actors.actors),
        ("registrations", actors.changes),
        ("looked up at another daemon", actors.looked_up),
        ("not found there", actors.not_found),
        ("not known at the end", actors.missing),
        ("known where they are not", actors.ghosts),
        ("letters", actors.letters),
    ):
        table.add_row(title, f"{count:,}")
    show(table)


def _kilobytes(size: float) -> str:
    return f"{size / 1000:,.1f} kB"
