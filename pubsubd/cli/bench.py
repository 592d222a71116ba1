"""``pubsubd bench``: how fast is the daemon that it is pointed at, and what limits it?

First throughput: every publisher sends as fast as it can, but no further ahead of the slowest
subscriber than a window, so that the daemon's slow-consumer policy is not what is measured. Then
latency: one message at a time, from its sending to each subscriber's having it.

Nothing is done per message (:mod:`pubsubd.cli.load`), so that the daemon is what is measured, and
not a client. What limited it is told by the processor time that the daemon and this process have
used: whoever had a core to itself all the time could not do more.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import trio
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pubsubd.cli.cycles import MAX_CYCLES, Plan
from pubsubd.cli.load import WINDOW, Link, Load, patient
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo
from pubsubd.cli.tables import show
from pubsubd.cli.values import size, some_seconds
from pubsubd.client import Client, DaemonError
from pubsubd.client.dial import CONNECT_TIMEOUT
from pubsubd.protocol import wire
from pubsubd.protocol.limits import MIB

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))
_BUSY = 0.85  # of a core: the rest goes to whoever else wants it
_IDLE = 0.1  # of a core, below which this machine has nothing left


@click.command()
@click.option(
    "--publishers",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=1,
    show_default=True,
    help="Connections that publish.",
)
@click.option(
    "--subscribers",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=1,
    show_default=True,
    help="Connections that receive everything.",
)
@click.option(
    "--size",
    "length",
    type=size(),
    metavar="SIZE",
    default="16",
    show_default=True,
    help="Length of the data of a message.",
)
@click.option(
    "--names",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=1,
    show_default=True,
    help="Number of different names to publish, in turn.",
)
@click.option(
    "--duration",
    type=some_seconds,
    metavar="SECONDS",
    default="2",
    show_default=True,
    help="How long to publish to measure throughput.",
)
@click.option(
    "--messages",
    type=click.IntRange(1, 2**32 - 1),
    metavar="N",
    help="Publish so many messages in total instead.",
)
@click.option(
    "--latency-messages",
    type=click.IntRange(0, 10_000_000),
    metavar="N",
    default=2_000,
    show_default=True,
    help="Messages to publish one at a time to measure latency; 0 for none.",
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    default="10",
    show_default=True,
    help="Fail if nothing arrives for this time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@connects
def command(
    target: Target,
    publishers: int,
    subscribers: int,
    length: int,
    names: int,
    duration: float,
    messages: int | None,
    latency_messages: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure a daemon's throughput and latency, and say what limited it.

    The clock runs from the first message sent to the last one received. All connections are of this
    one process, which sends batches that were built before and compares what arrives with what is
    due; the status is 1 if a message is lost, duplicated or out of order. The names are random, so
    other subscriptions rarely match them by accident.
    """
    plan = Plan(publishers, subscribers, length, names)
    if plan.frame * names * publishers > MAX_CYCLES:
        raise click.UsageError(
            f"--publishers, --names and --size make over {MAX_CYCLES // MIB} MiB of messages."
        )
    run, latencies = trio.run(_measure, target, plan, duration, messages, latency_messages, timeout)
    result = {
        "publishers": publishers,
        "subscribers": subscribers,
        "size": length,
        "names": names,
        "messages": run.messages,
        "delivered": run.messages * subscribers,
        "seconds": round(run.seconds, 6),
        "published_per_s": round(run.messages / run.seconds),
        "delivered_per_s": round(run.messages * subscribers / run.seconds),
        "delivered_mib_per_s": round(run.messages * subscribers * length / run.seconds / MIB, 3),
        "daemon_cores": run.daemon and round(run.daemon, 3),
        "bench_cores": round(run.bench, 3),
        "limited_by": limits(run),
        "latency_us": percentiles(latencies),
    }
    if as_json:
        echo(json.dumps(result))
    else:
        _show(result)


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement.

    Attributes:
        messages: that were published.
        seconds: from the first one sent to the last one received.
        daemon: cores that the daemon has kept busy; None if it does not say.
        busiest: the same of its process that has been so most, as it may have several.
        bench: the same of this process.
        idle: cores of this machine that nobody has used; None if the system does not say.
    """

    messages: int
    seconds: float
    daemon: float | None
    busiest: float | None
    bench: float
    idle: float | None


def limits(run: Run) -> list[str]:
    """Return what limited a run: daemon, bench, machine or network, or unknown."""
    busy = [
        who
        for who, cores in (("daemon", run.busiest), ("bench", run.bench))
        if cores is not None and cores >= _BUSY
    ]
    if busy:
        return busy
    if run.idle is not None and run.idle < _IDLE:
        return ["machine"]
    return ["network"] if run.daemon is not None else ["unknown"]


def percentiles(latencies: list[float]) -> dict[str, float]:
    """Return the percentiles (nearest rank) of ``latencies`` in seconds, in µs."""
    if not latencies:
        return {}
    ranked = sorted(latencies)
    found = {
        title: ranked[max(1, math.ceil(share * len(ranked))) - 1] for title, share in _PERCENTILES
    }
    return {title: round(value * 1e6, 1) for title, value in {**found, "max": ranked[-1]}.items()}


async def _measure(
    target: Target,
    plan: Plan,
    duration: float,
    messages: int | None,
    latency_messages: int,
    timeout: float,  # noqa: ASYNC109  (between arrivals)
) -> tuple[Run, list[float]]:
    """Return the run, and the latencies in seconds."""
    connect = target.connector()
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(target.connect())

        async def link(commands: bytes = b"") -> Link:
            stream = await connect()
            stack.push_async_callback(trio.aclose_forcefully, stream)
            made = Link(stream, target.where)
            await patient(CONNECT_TIMEOUT, partial(made.settle, commands), "not all are connected")
            return made

        subscribe = wire.subscription(b"sub", plan.prefix.encode())
        subscribers = [await link(subscribe) for _ in range(plan.subscribers)]
        publishers = [await link() for _ in range(plan.publishers)]
        load = Load(plan, publishers, subscribers)
        async with _progress(load, duration, messages):
            before, own, idle = await _daemon_seconds(control), time.process_time(), _idle_seconds()
            await load.run(duration, messages, timeout)
            own, idle = time.process_time() - own, _since(idle, _idle_seconds())
            seconds = max(load.ended - load.began, 1e-6)
            after = await _daemon_seconds(control)
            used = [after[key] - since for key, since in before.items() if key in after]
        run = Run(
            messages=load.messages,
            seconds=seconds,
            daemon=sum(used) / seconds if used else None,
            busiest=max(used) / seconds if used else None,
            bench=own / seconds,
            idle=idle if idle is None else idle / seconds,
        )
        latencies: list[float] = []
        for number in range(latency_messages):
            latencies += await load.time_one(number, timeout)
    return run, latencies


async def _daemon_seconds(control: Client) -> dict[str, float]:
    """Return the processor time that each process of the daemon has used, of those that tell."""
    try:
        statistics = json.loads(await control.request("//pubsubd/stats"))
    except DaemonError:
        return {}
    alone = {"": statistics["cpu_s"]} if "cpu_s" in statistics else {}
    used: dict[str, float] = statistics.get("workers_cpu_s", alone)
    return used


def _idle_seconds() -> float | None:
    """Return how long all cores of this machine together have been idle, if /proc tells."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _since(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


@asynccontextmanager
async def _progress(load: Load, duration: float, messages: int | None) -> AsyncIterator[None]:
    """Draw on a terminal how far a run has come."""
    if not sys.stderr.isatty():
        yield
        return
    console = Console(stderr=True)
    columns = (TextColumn("throughput"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=messages or duration)

        async def draw() -> None:
            while True:
                await trio.sleep(0.1)
                passed = trio.current_time() - load.began
                progress.update(bar, completed=load.messages if messages else passed)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(draw)
            yield
            nursery.cancel_scope.cancel()


_LIMITS = {
    "daemon": "the daemon: its process, or one of its workers, kept a whole core busy",
    "bench": "this command, which has one core: run several at once to ask more of the daemon",
    "machine": "this machine: all of its cores were busy",
    "network": f"the network, or its delay: at most {WINDOW // MIB} MiB is on its way at once",
    "unknown": "the daemon or the network; the daemon does not say how busy it was",
}


def _show(result: dict[str, Any]) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="cyan")
    table.add_column()
    table.add_row("published", f"{result['published_per_s']:,} messages/s")
    table.add_row("delivered", f"{result['delivered_per_s']:,} messages/s, all that were due")
    table.add_row("", f"{result['delivered_mib_per_s']:,.1f} MiB/s of data")
    table.add_row("measured", f"{result['messages']:,} messages in {result['seconds']:.3f} s")
    for title, cores in (("daemon", result["daemon_cores"]), ("bench", result["bench_cores"])):
        if cores is not None:
            table.add_row(f"{title} used", f"{100 * cores:.0f} % of a core")
    for title, limit in zip(("limited by", "and by"), result["limited_by"], strict=False):
        table.add_row(title, _LIMITS[limit])
    for title, value in result["latency_us"].items():
        table.add_row(f"latency {title}", f"{value:,.1f} \u00b5s")
    show(table)
