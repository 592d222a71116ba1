"""``pubsubd connections``: who is connected, how fast each is, and how slow."""

from __future__ import annotations

import csv
import json
import sys
import time

import click
import msgspec
import trio

from pubsubd.broker.connections import COLUMNS, MAX_ROWS, ROWS, ConnectionRow
from pubsubd.cli.answers import read_answer, warn_silent
from pubsubd.cli.columns import CELLS, NARROW, TEXTS
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import adaptive_table, fits, show
from pubsubd.cli.terminal import console


class _Answer(msgspec.Struct):
    """The answer to ``//pubsubd/connections``; see pubsubd-protocol(7)."""

    count: int
    connections: list[ConnectionRow]
    following: int | None = msgspec.field(name="next", default=None)
    silent: list[int] = []


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
    warn_silent(read.silent)
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
    heads = [head for head in CELLS if head != "dropped" or any(row.dropped for row in rows)]
    for columns in (heads, NARROW):
        cells = [[CELLS[head](row, now) for head in columns] for row in rows]
        if fits(columns, cells, width):
            break
    numbers = [at for at, head in enumerate(columns) if head not in TEXTS]
    show(*adaptive_table("", columns, cells, width, numbers))
    noun = "connection" if answer.count == 1 else "connections"
    more = f", of which {len(rows):,} are shown" if len(rows) < answer.count else ""
    echo(f"{answer.count:,} {noun}{more}")
