"""``pubsubd sub``: messages on standard output.

Everything that has come is written at once, and the next is read when it is written: a slow reader
of our output slows the daemon down, or is cut off, as any slow consumer.
"""

from __future__ import annotations

import os
import sys

import click
import trio

from pubsubd.cli.formats import Format, parse_format
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import wait_closed
from pubsubd.cli.values import some_seconds
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import MIB

_LARGEST = 1024 * MIB  # what a daemon delivers is what its own limit allows


def _format(text: str) -> Format:
    try:
        return parse_format(text, terminal=sys.stdout.isatty())
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


@click.command()
@click.argument("substrings", metavar="SUBSTRING...", nargs=-1, required=True)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="End after this many messages."
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    help="End after this time; with status 1 if fewer than --count messages have arrived.",
)
@click.option(
    "--format",
    "form",
    type=_format,
    metavar="FORMAT",
    default="text",
    show_default=True,
    shell_complete=lambda _context, _option, word: [
        form for form in ("text", "raw", "json") if form.startswith(word)
    ],
    help="text, raw, json, or a template with {name}, {data}, {length} or {time}.",
)
@click.option(
    "--reconnect/--no-reconnect",
    default=True,
    show_default=True,
    help="When the connection breaks, reconnect, or end with status 1.",
)
@connects
def command(
    target: Target,
    substrings: tuple[str, ...],
    count: int | None,
    timeout: float | None,
    form: Format,
    reconnect: bool,
) -> None:
    """Print the messages whose names contain a SUBSTRING.

    \b
    Formats:
      text      name, a space, the data and a line end; on a terminal
                control characters are escaped, as in \\x1b
      raw       the data alone, with nothing between two messages
      json      one object per line: time, name, length, and data, or
                data_base64 if the data is not UTF-8
      TEMPLATE  text with {name}, {data}, {length} or {time}, and a line
                end; \\n, \\t and \\\\ are escapes; {{ is a brace

    Times are in UTC, and say when the message was received. Messages published while the
    command reconnects are lost; a line on standard error says so. If the output is closed, as
    by head, the command ends with status 0.

    \b
    Examples:
      pubsubd sub chat/ logs/
      pubsubd sub files/picture --count 1 --format raw >picture.png
      pubsubd sub / --format '{time} {length:>8} {name}'
    """  # noqa: D301  (click wants the character)
    complete = True
    try:
        complete = trio.run(_print, target, substrings, count, timeout, form, reconnect)
    except* BrokenPipeError:
        pass  # the reader has closed our output
    if not complete:
        raise click.ClickException(f"timed out after {timeout:g} s")


async def _print(
    target: Target,
    substrings: tuple[str, ...],
    count: int | None,
    timeout: float | None,  # noqa: ASYNC109  (the command's own meaning)
    form: Format,
    reconnect: bool,
) -> bool:
    """Return whether as many messages as requested have arrived."""
    left = count
    closed = False

    async def notice_closed(scope: trio.CancelScope) -> None:
        nonlocal closed
        await wait_closed()
        closed = True
        scope.cancel()

    with trio.move_on_after(float("inf") if timeout is None else timeout) as scope:
        async with (
            trio.open_nursery() as nursery,
            target.connect(
                reconnect=reconnect,
                max_payload=_LARGEST,
                on_disconnect=_tell_disconnected if reconnect else None,
                on_connect=_tell_connected,
            ) as client,
        ):
            nursery.start_soon(notice_closed, scope)
            await client.subscribe(*substrings)
            if sys.stderr.isatty():
                click.echo("pubsubd: subscribed", err=True)
            while left is None or left > 0:
                messages = (await client.receive())[:left]
                _write(b"".join(map(form, messages)))
                if left is not None:
                    left -= len(messages)
            nursery.cancel_scope.cancel()
    if closed:
        raise BrokenPipeError
    return left is None or left <= 0


def _write(output: bytes) -> None:
    # Not through sys.stdout: a part that could not be written would be tried again at exit.
    view = memoryview(output)
    while view:
        view = view[os.write(1, view) :]


def _tell_disconnected(why: PubsubdError) -> None:
    click.echo(
        f"pubsubd: disconnected: {why}; reconnecting (messages published in the meantime are lost)",
        err=True,
    )


def _tell_connected() -> None:
    click.echo("pubsubd: reconnected", err=True)
