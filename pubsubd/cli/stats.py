"""``pubsubd stats``: the daemon's counters, as a table or as it sends them, and their rates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import trio
from rich import box
from rich.table import Table
from rich.text import Text

from pubsubd.cli.answers import warn_silent
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import while_read
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import folded, show
from pubsubd.cli.watching import can_redraw, keep_drawing, watches
from pubsubd.client import Client

_RATED = ("messages_in", "messages_out", "bytes_in", "bytes_out")

_Stats = dict[str, Any]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@watches
@connects
def command(target: Target, as_json: bool, watch: float | None) -> None:
    """Show the daemon's counters.

    With --watch, also what has come and gone per second: on a terminal in the table, and
    otherwise as one line per interval.
    """
    trio.run(_show, target, as_json, watch)


async def _show(target: Target, as_json: bool, watch: float | None) -> None:
    async with target.connect() as client:
        if watch is None:
            stats = await _ask(client)
            if as_json:
                echo(json.dumps(stats))
            else:
                warn_silent(stats.pop("silent", []))
                show(_table(stats))
        elif as_json or not can_redraw():
            async with while_read():
                await _print_lines(client, watch, as_json)
        else:
            await _keep_drawing(client, watch)


async def _ask(client: Client) -> _Stats:
    found: _Stats = json.loads(await client.request("//pubsubd/stats"))
    return found


async def _print_lines(client: Client, seconds: float, as_json: bool) -> None:
    """Print a line per interval, for ever; the first one when the first interval is over."""
    before = await _ask(client)
    while True:
        await trio.sleep(seconds)
        now = await _ask(client)
        found = rates(before, now)
        if as_json:
            echo(json.dumps({**now, "rates": found}))
        else:
            time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            shown = " ".join(f"{key}_s={rate}" for key, rate in found.items())
            echo(
                f"time={time} connections={now['connections']} {shown}"
                f" backlog_bytes={now['backlog_bytes']}"
            )
        before = now


async def _keep_drawing(client: Client, seconds: float) -> None:
    before: _Stats | None = None

    async def draw(_width: int) -> Table:
        nonlocal before
        now = await _ask(client)
        now.pop("silent", None)  # which of the table is for a moment only
        table = folded(_table(now, {} if before is None else rates(before, now)))
        before = now
        return table

    await keep_drawing(draw, seconds)


def rates(before: _Stats, now: _Stats) -> dict[str, float]:
    """Return what was counted per second from one snapshot to the next, by the daemon's clock."""
    seconds = max(now["uptime_s"] - before["uptime_s"], 0.001)  # its resolution
    return {key: round((now[key] - before[key]) / seconds, 1) for key in _RATED}


def _table(stats: _Stats, per_second: Mapping[str, float] | None = None) -> Table:
    """Return the counters, and beside them their rates if there are any."""
    table = Table(box=box.SIMPLE, show_header=per_second is not None)
    table.add_column(style="cyan")
    table.add_column("total", justify="right")
    if per_second is not None:
        table.add_column("a second", justify="right")
    for key, value in stats.items():
        if isinstance(value, dict):
            for code, count in value.items():
                table.add_row(Text(visible(f"{key}: {code}")), Text(_readable(key, count)))
        else:
            rate = (per_second or {}).get(key)
            more = [] if rate is None else [f"{rate:,.1f}"]
            table.add_row(Text(visible(key)), Text(_readable(key, value)), *more)
    return table


def _readable(key: str, value: Any) -> str:
    if key == "uptime_s":
        return str(timedelta(seconds=int(value)))
    if isinstance(value, int) and key != "pid":
        return f"{value:,}"
    return visible(str(value))
