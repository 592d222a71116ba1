"""``pubsubd kill``: end connections."""

from __future__ import annotations

import click
import trio

from pubsubd.broker.connections import ConnectionRow
from pubsubd.cli.answers import read_answer
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo
from pubsubd.client import DaemonError
from pubsubd.protocol.errors import CLOSES
from pubsubd.protocol.wire import escape


@click.command()
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(1))
@connects
def command(target: Target, numbers: tuple[int, ...]) -> None:
    """End connections, by the numbers that "pubsubd connections" and the log show.

    The client is told the reason, killed. One that connects again gets another number.
    """
    if not trio.run(_kill, target, numbers):
        raise click.exceptions.Exit(1)


async def _kill(target: Target, numbers: tuple[int, ...]) -> bool:
    """End connections, and say how it went with each; return whether all are ended."""
    done = True
    async with target.connect() as client:
        for number in numbers:
            try:
                answer = await client.request("//pubsubd/kill", str(number))
            except DaemonError as exc:
                if exc.code in CLOSES:
                    raise
                echo(f"Error: {exc}", err=True)
                done = False
            else:
                echo(f"ended connection {_describe(answer)}")
    return done


def _describe(answer: bytes) -> str:
    row = read_answer(answer, ConnectionRow, "connection")
    user = f"{escape(row.user)} at " if row.user else ""
    return f"{row.connection}: {user}{escape(row.peer)}"
