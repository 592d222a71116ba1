"""``pubsubd connections``: who is connected, how fast each is, and how slow."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable

import click
import msgspec
import trio

from pubsubd.broker.connections import COLUMNS, MAX_ROWS, ROWS, ConnectionRow
from pubsubd.cli.answers import read_answer
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import adaptive_table, duration, fits, show, size
from pubsubd.cli.terminal import console

_CELLS: dict[str, Callable[[ConnectionRow, float], str]] = {
    "number": lambda row, _: f"{row.connection}",
    "user": lambda row, _: row.user or (f"mesh/{row.node}" if row.node else ""),
    "address": lambda row, _: row.peer,
    "listener": lambda row, _: row.listener or "dialled",
    "speaks": lambda row, _: _spoken(row),
    "subs": lambda row, _: "" if row.subscriptions is None else f"{row.subscriptions:,}",
    "in/s": lambda row, _: f"{row.messages_in_rate:,.0f}",
    "out/s": lambda row, _: f"{row.messages_out_rate:,.0f}",
    "data in/s": lambda row, _: size(round(row.bytes_in_rate)),
    "data out/s": lambda row, _: size(round(row.bytes_out_rate)),
    "dropped": lambda row, _: f"{row.dropped:,}",
    "waiting": lambda row, _: size(row.backlog_bytes),
    "for": lambda row, now: duration(now - row.since),
}
_TEXTS = ("user", "address", "listener", "speaks")
_NARROW = ("number", "user", "address", "in/s", "out/s", "waiting", "for")


class _Answer(msgspec.Struct):
    """The answer to ``//pubsubd/connections``; see pubsubd-protocol(7)."""

    count: int
    connections: list[ConnectionRow]
    following: int | None = msgspec.field(name="next", default=None)


@click.command()
@click.option(
    "--sort",
    type=click.Choice(["age", "backlog", "rate", "dropped"]),
    default="age",
    show_default=True,
    help="Show first the oldest, those with the most bytes waiting, messages a second, or losses.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_ROWS),
    default=ROWS,
    show_default=True,
    metavar="N",
    help="Show N connections at most.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="A table, the daemon's JSON object, a JSON object per line, or CSV with a header.",
)
@connects
def command(target: Target, sort: str, limit: int, form: str) -> None:
    """Show who is connected: users, addresses, traffic, and what waits to be sent.

    Rates are averages of the last 5 to 10 seconds.
    """
    request = json.dumps({"sort": sort, "limit": limit})
    answer = trio.run(_ask, target, request)
    if form == "json":
        echo(json.dumps(json.loads(answer)))
        return
    read = read_answer(answer, _Answer, "connections")
    if form == "jsonl":
        for row in read.connections:
            echo(row.as_json())
    elif form == "csv":
        safe = visible if sys.stdout.isatty() else str  # names are what others have chosen
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in read.connections:
            values = [getattr(row, name) for name in COLUMNS]
            writer.writerow([safe(one) if isinstance(one, str) else one for one in values])
    else:
        _show(read)


async def _ask(target: Target, request: str) -> bytes:
    async with target.connect() as client:
        return await client.request("//pubsubd/connections", request)


def _show(answer: _Answer) -> None:
    """Print a table, with fewer columns on a terminal that is too narrow for all."""
    width = console().width
    now, rows = time.time(), answer.connections
    heads = [head for head in _CELLS if head != "dropped" or any(row.dropped for row in rows)]
    for columns in (heads, _NARROW):
        cells = [[_CELLS[head](row, now) for head in columns] for row in rows]
        if fits(columns, cells, width):
            break
    numbers = [at for at, head in enumerate(columns) if head not in _TEXTS]
    show(*adaptive_table("", columns, cells, width, numbers))
    noun = "connection" if answer.count == 1 else "connections"
    more = f", of which {len(rows):,} are shown" if len(rows) < answer.count else ""
    echo(f"{answer.count:,} {noun}{more}")


def _spoken(row: ConnectionRow) -> str:
    if row.transport in ("line", "none"):
        return row.dialect if row.transport == "line" else ""
    return row.transport if row.dialect == "none" else f"{row.dialect} over {row.transport}"
