"""``pubsubd edges``: the links of the mesh, as a table for other programs."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Literal

import click
import msgspec
import trio

from pubsubd.cli.answers import read_answer
from pubsubd.cli.options import Target, connects
from pubsubd.cli.pages import ask_pages
from pubsubd.cli.streams import visible
from pubsubd.client import Client
from pubsubd.mesh.edges import FORMATS, Row

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Edge(msgspec.Struct):
    """A row, as the daemon sends it."""

    ts: str
    mesh: str
    observer: str
    src: str
    dst: str
    state: Literal["up", "down"]
    since: str
    rtt_ms: float | None
    messages: _Count
    bytes: _Count
    address: str | None = None
    version: str | None = None
    site: str | None = None
    rack: str | None = None
    actors: _Count | None = None
    hub_connections: _Count | None = None


class _Edges(msgspec.Struct):
    """The answer to ``//pubsubd/edges``; see pubsubd-mesh(7)."""

    edges: list[_Edge]
    following: int | None = msgspec.field(name="next")


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="jsonl",
    show_default=True,
    help="One JSON object per line, CSV with a header, or Parquet.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to this file instead of standard output.",
)
@connects
def command(target: Target, form: str, output: str | None) -> None:
    """Print the links of the whole mesh, as the daemon knows them.

    Each link has two rows, one from each end.
    """
    output = output or "-"
    terminal = output == "-" and sys.stdout.isatty()
    if terminal and form == "parquet":
        raise click.UsageError("Parquet cannot be shown on a terminal: use --output")
    rows = trio.run(_ask, target)
    if terminal:
        rows = [
            {
                name: visible(value) if isinstance(value, str) else value
                for name, value in row.items()
            }
            for row in rows
        ]
    # Nothing is written before everything is there.
    data = io.BytesIO()
    FORMATS[form](rows, data)
    with click.open_file(output, "wb") as file:
        file.write(data.getvalue())


async def _ask(target: Target) -> list[Row]:
    async with target.connect() as client:
        return await ask_edges(client)


async def ask_edges(client: Client) -> list[Row]:
    """Return all rows that the daemon has, page by page.

    Raises:
        PubsubdError: the answer is not what it should be.
    """
    answer = read_answer(await ask_pages(client, "//pubsubd/edges", ("edges",)), _Edges, "edges")
    return [msgspec.structs.asdict(row) for row in answer.edges]
