"""``pubsubd explain``: who would receive a name, and because of which subscription."""

from __future__ import annotations

import json
from typing import Any

import click
import trio
from rich import box
from rich.table import Table
from rich.text import Text

from pubsubd.cli.answers import warn_silent
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import show


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@connects
def command(target: Target, name: str, as_json: bool) -> None:
    """Show who would receive a message published as NAME, and which subscriptions match.

    Nothing is published. If a connection would receive only the forwarded copy, the copy's name
    is shown.
    """
    answer = json.loads(trio.run(_ask, target, name))
    if as_json:
        echo(json.dumps(answer))
        return
    warn_silent(answer.get("silent", []))
    receivers, count = answer["receivers"], answer["count"]
    if receivers:
        table = Table(box=box.SIMPLE)
        table.add_column("connection", justify="right")
        table.add_column("peer", style="cyan")
        table.add_column("receives it as")
        table.add_column("because of", style="green")
        for receiver in receivers:
            table.add_row(
                "" if receiver["connection"] is None else str(receiver["connection"]),
                Text(visible(receiver["peer"])),
                Text(visible(receiver["as"])),
                Text(_reasons(receiver)),
            )
        show(table)
    more = f", of which {len(receivers)} are listed" if len(receivers) < count else ""
    noun = "connections" if count > 1 else "connection"
    if any(receiver["connection"] is None for receiver in receivers):
        noun = "connections and daemons"
    echo(f"{count or 'no'} {noun} would receive {visible(answer['name'])}{more}")


def _reasons(receiver: dict[str, Any]) -> str:
    """Return the subscriptions that match, one line for each kind."""
    substrings = [visible(text) for text in receiver["substrings"] if text]
    everything = "" in receiver["substrings"]
    lines = [" ".join(substrings), "(everything)" if everything else ""]
    if receiver.get("exact"):
        lines.append("(exact) " + visible(receiver["as"]))
    if patterns := receiver.get("patterns"):
        lines.append("(wildcard) " + " ".join(map(visible, patterns)))
    return "\n".join(filter(None, lines))


async def _ask(target: Target, name: str) -> bytes:
    async with target.connect() as client:
        return await client.request("//pubsubd/explain", name.encode("utf-8", "surrogatepass"))
