"""``pubsubd stats``: the daemon's counters, as a table or as it sends them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click
import trio
from rich import box
from rich.table import Table
from rich.text import Text

from pubsubd.cli.options import Target, connects
from pubsubd.cli.tables import show
from pubsubd.protocol.wire import escape


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@connects
def command(target: Target, as_json: bool) -> None:
    """Show the daemon's counters."""
    answer = trio.run(_ask, target)
    if as_json:
        click.echo(json.dumps(json.loads(answer)))
        return
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    for key, value in json.loads(answer).items():
        if isinstance(value, dict):
            for code, count in value.items():
                table.add_row(Text(escape(f"{key}: {code}")), Text(_readable(key, count)))
        else:
            table.add_row(Text(escape(key)), Text(_readable(key, value)))
    show(table)


async def _ask(target: Target) -> bytes:
    async with target.connect() as client:
        return await client.request("//pubsubd/stats")


def _readable(key: str, value: Any) -> str:
    if key == "uptime_s":
        return str(timedelta(seconds=int(value)))
    if isinstance(value, int) and key != "pid":
        return f"{value:,}"
    return escape(str(value))
