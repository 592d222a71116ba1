"""``pubsubd bench``: how fast is the daemon that it is pointed at?

First throughput: every publisher sends as fast as it can, but no further ahead of the slowest
subscriber than a window, so that the daemon's slow-consumer policy is not what is measured. Then
latency: one message at a time, from the publish call to each subscriber's receiving it.

Publishers and subscribers are tasks of this process and use the package's own client, so the
figures are what a program in Python sees; its own cost is part of them, and may be most of it.
Each message carries its publisher and number where it has room for them, and each subscriber checks
that every publisher's messages come complete and in order.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import trio
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from pubsubd.cli.options import Target, connects
from pubsubd.cli.tables import show
from pubsubd.cli.values import size, some_seconds
from pubsubd.client import Client
from pubsubd.protocol.limits import MIB

_STAMP = struct.Struct(">HI")  # publisher, number
_WINDOW = MIB  # bytes that a publisher may be ahead: far from max_pending, far above one read
_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))


@dataclass(slots=True)
class Bench:
    """The plan and the progress of one measurement."""

    publishers: int
    subscribers: int
    size: int
    names: Sequence[str]
    messages: int
    sent: int = 0
    arrived: list[int] = field(default_factory=list)  # by subscriber
    slowest: int = 0  # the least of them
    moved: trio.Event = field(default_factory=trio.Event)  # set when something has arrived

    @property
    def window(self) -> int:
        """Messages that all publishers together may be ahead of the slowest subscriber."""
        return max(self.publishers, _WINDOW // (self.size + len(self.names[0]) + 16))

    def share(self, publisher: int) -> int:
        """Return how many of the messages this publisher sends."""
        return self.messages // self.publishers + (publisher < self.messages % self.publishers)

    def data(self, publisher: int, number: int) -> bytes:
        """Return the data of a publisher's message."""
        stamp = _STAMP.pack(publisher, number)
        return stamp.ljust(self.size, b".") if self.size >= len(stamp) else b"." * self.size

    def check(self, data: bytes, expected: list[int]) -> None:
        """Raise unless ``data`` is the message that is due from its publisher."""
        if self.size >= _STAMP.size:
            publisher, number = _STAMP.unpack_from(data.ljust(_STAMP.size))
            if publisher >= self.publishers or number != expected[publisher]:
                raise click.ClickException("a message is lost, duplicated or out of order")
            expected[publisher] += 1
        if len(data) != self.size:
            raise click.ClickException(f"a message has {len(data)} bytes, not {self.size}")

    def count(self, subscriber: int, number: int) -> None:
        """Note that ``number`` more messages have arrived."""
        self.arrived[subscriber] += number
        self.slowest = min(self.arrived)
        moved, self.moved = self.moved, trio.Event()
        moved.set()


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
    "--messages",
    type=click.IntRange(1, 2**32 - 1),
    metavar="N",
    default=200_000,
    show_default=True,
    help="Messages to publish in total to measure throughput.",
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
    messages: int,
    latency_messages: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure a daemon's throughput and latency, and check that every message arrives.

    All clients run in this one process; their own cost is part of the figures. The names are
    random, so other subscriptions rarely match them by accident. The status is 1 if a message is
    lost, duplicated or out of order.
    """
    prefix = f"bench/{os.urandom(6).hex()}/"
    bench = Bench(
        publishers=publishers,
        subscribers=subscribers,
        size=length,
        names=[f"{prefix}{number}" for number in range(names)],
        messages=messages,
        arrived=[0] * subscribers,
    )
    seconds, latencies = trio.run(_measure, target, bench, prefix, latency_messages, timeout)
    delivered = messages * subscribers
    result = {
        "publishers": publishers,
        "subscribers": subscribers,
        "size": length,
        "names": names,
        "messages": messages,
        "delivered": delivered,
        "seconds": round(seconds, 6),
        "published_per_s": round(messages / seconds),
        "delivered_per_s": round(delivered / seconds),
        "delivered_mib_per_s": round(delivered * length / seconds / MIB, 3),
        "latency_us": percentiles(latencies),
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        _show(result)


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
    bench: Bench,
    prefix: str,
    latency_messages: int,
    timeout: float,  # noqa: ASYNC109  (between arrivals)
) -> tuple[float, list[float]]:
    """Return the seconds that the messages took and the latencies in seconds."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    async with AsyncExitStack() as stack:

        async def connect() -> Client:
            return await stack.enter_async_context(target.connect(max_payload=max(MIB, bench.size)))

        receivers = [await connect() for _ in range(bench.subscribers)]
        senders = [await connect() for _ in range(bench.publishers)]
        for client in receivers:
            await client.subscribe(prefix)
        progress = stack.enter_context(
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        )
        bar = progress.add_task("throughput", total=bench.messages * bench.subscribers)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(receivers):
                nursery.start_soon(_receive, bench, number, client)
            for number, client in enumerate(senders):
                nursery.start_soon(_publish, bench, number, client)
            await _watch(bench, progress, bar, timeout)
        seconds = trio.current_time() - began
        bar = progress.add_task("latency", total=latency_messages)
        latencies: list[float] = []
        for number in range(latency_messages):
            sender = senders[number % len(senders)]
            with _deadline(timeout, f"{number} of {latency_messages} single messages"):
                latencies += await _one(bench, number, sender, receivers)
            progress.update(bar, completed=number + 1)
    return seconds, latencies


async def _publish(bench: Bench, publisher: int, client: Client) -> None:
    names = bench.names
    for number in range(bench.share(publisher)):
        while bench.sent - bench.slowest >= bench.window:
            await bench.moved.wait()
        bench.sent += 1
        await client.publish(names[number % len(names)], bench.data(publisher, number))
    await client.flush()


async def _receive(bench: Bench, subscriber: int, client: Client) -> None:
    expected = [0] * bench.publishers
    left = bench.messages
    while left:
        messages = await client.receive()
        for message in messages:
            bench.check(message.data, expected)
        left -= len(messages)
        bench.count(subscriber, len(messages))
    if left < 0:
        raise click.ClickException(f"{-left} more messages have arrived than were published")


async def _watch(
    bench: Bench,
    progress: Progress,
    bar: TaskID,
    timeout: float,  # noqa: ASYNC109  (between arrivals)
) -> None:
    """Show how far the subscribers are until they have everything."""
    total = bench.messages * bench.subscribers
    shown = 0.0
    while (done := sum(bench.arrived)) < total:
        if trio.current_time() - shown > 0.1:
            shown = trio.current_time()
            progress.update(bar, completed=done)
        with _deadline(timeout, f"{done} of {total} messages have arrived"):
            await bench.moved.wait()
    progress.update(bar, completed=total)


async def _one(
    bench: Bench, number: int, sender: Client, receivers: Sequence[Client]
) -> list[float]:
    """Publish one message and return the seconds until each receiver had it."""
    data = bench.data(0, number)
    began = trio.current_time()
    await sender.publish(bench.names[number % len(bench.names)], data)
    latencies = []
    for receiver in receivers:
        messages = await receiver.receive()
        latencies.append(trio.current_time() - began)
        if [message.data for message in messages] != [data]:
            raise click.ClickException("a message is lost, duplicated or out of order")
    return latencies


@contextmanager
def _deadline(seconds: float, state: str) -> Iterator[None]:
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise click.ClickException(f"{state}, and nothing more for {seconds:g} s")


def _show(result: dict[str, Any]) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_row("published", f"{result['messages']:,} messages in {result['seconds']:.3f} s")
    table.add_row("", f"{result['published_per_s']:,} messages/s")
    table.add_row("delivered", f"{result['delivered']:,} messages, all that were due")
    table.add_row("", f"{result['delivered_per_s']:,} messages/s")
    table.add_row("", f"{result['delivered_mib_per_s']:,.1f} MiB/s of data")
    for title, value in result["latency_us"].items():
        table.add_row(f"latency {title}", f"{value:,.1f} \u00b5s")
    show(table)
