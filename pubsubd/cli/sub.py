"""``pubsubd sub``: messages on standard output.

Everything that has come is written at once, and the next is read when it is written: a slow reader
of our output slows the daemon down, or is cut off, as any slow consumer.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import click
import trio

from pubsubd.cli.dump import MAX_FILES, Dump
from pubsubd.cli.formats import Format, parse_format
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import telling, while_read, write
from pubsubd.cli.streams import echo
from pubsubd.cli.summary import Summary
from pubsubd.cli.tables import show
from pubsubd.cli.values import size, some_seconds
from pubsubd.client import Message


def _format(text: str) -> str:
    try:
        parse_format(text, terminal=False)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None
    return text


@click.command()
@click.argument("substrings", metavar="SUBSTRING...", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Print all messages that are published at the daemon."
)
@click.option(
    "--not",
    "excluded",
    metavar="SUBSTRING",
    multiple=True,
    help="Pass over messages whose names contain this; may be repeated.",
)
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
    shell_complete=lambda _context, _option, word: [
        form for form in ("pretty", "text", "raw", "json") if form.startswith(word)
    ],
    help="pretty, text, raw, json, or a template with {name}, {data}, {length} or {time}."
    "  [default: pretty on a terminal, otherwise text]",
)
@click.option(
    "--summary",
    "summarised",
    is_flag=True,
    help="Print no messages, but at the end a table of the names, with counts and rates.",
)
@click.option(
    "--every",
    type=some_seconds,
    metavar="SECONDS",
    help="Print the --summary at this interval, too.",
)
@click.option(
    "--dump",
    "folder",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write the data of each message to a new file in DIR, and print the file's path.",
)
@click.option(
    "--dump-size",
    "room",
    type=size(least=1),
    metavar="SIZE",
    default="1GiB",
    show_default=True,
    help="End with status 1 when all files of --dump together would be larger than this.",
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
    everything: bool,
    excluded: tuple[str, ...],
    count: int | None,
    timeout: float | None,
    form: str | None,
    summarised: bool,
    every: float | None,
    folder: str | None,
    room: int,
    reconnect: bool,
) -> None:
    """Print the messages whose names contain a SUBSTRING, or --all.

    \b
    Formats:
      pretty    for people, and the default on a terminal: names in
                colour, JSON indented and coloured
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
      pubsubd sub --all --not chat/ --format '{time} {length:>8} {name}'
      pubsubd sub files/picture --count 1 --format raw >picture.png
      pubsubd sub files/ --dump received
      pubsubd sub --all --summary --timeout 10
    """  # noqa: D301  (click wants the character)
    if "" in substrings:
        raise click.UsageError("A SUBSTRING is empty; --all is for all messages.")
    if not substrings and not everything:
        raise click.UsageError("Give a SUBSTRING, or --all for all messages.")
    if "" in excluded:
        raise click.UsageError("--not excludes everything if its SUBSTRING is empty.")
    if every is not None and not summarised:
        raise click.UsageError("--every is for --summary.")
    if form not in (None, "text") and folder is not None and not summarised:
        raise click.UsageError("--dump writes the data as it is, without --format.")
    if form not in (None, "text", "json") and summarised:
        raise click.UsageError("--summary has the formats text and json.")
    terminal = sys.stdout.isatty()
    form = form or ("pretty" if terminal else "text")
    wanted = Wanted(substrings, everything, excluded, count, timeout)
    with ExitStack() as stack:
        output = Output(parse_format(form, terminal=terminal), as_json=form == "json")
        if folder is not None:
            output.dump = stack.enter_context(Dump(folder, count or MAX_FILES, room))
        if summarised:
            output.summary = Summary()
        complete = trio.run(_print, target, wanted, output, every, reconnect)
    if not complete:
        raise click.ClickException(f"timed out after {timeout:g} s")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages to print: ``count`` of them at most, for ``timeout`` seconds at most."""

    substrings: tuple[str, ...]
    everything: bool
    excluded: tuple[str, ...]
    count: int | None
    timeout: float | None

    def among(self, messages: list[Message]) -> list[Message]:
        """Return those of ``messages`` that nothing excludes."""
        if not self.excluded:
            return messages
        return [one for one in messages if not any(text in one.name for text in self.excluded)]


@dataclass(slots=True)
class Output:
    """Output of messages: in a format, unless they are dumped or summarised."""

    form: Format
    as_json: bool
    dump: Dump | None = None
    summary: Summary | None = None

    def take(self, messages: list[Message]) -> None:
        """Print, dump or count messages."""
        if self.summary is not None:
            self.summary.add(messages)
        if self.dump is not None:
            self._dump(self.dump, messages)
        elif self.summary is None:
            write(b"".join(map(self.form, messages)))

    def _dump(self, dump: Dump, messages: list[Message]) -> None:
        paths: list[bytes] = []
        try:
            paths += (os.fsencode(dump.write(message)) + b"\n" for message in messages)
        finally:
            if self.summary is None:
                write(b"".join(paths))

    def report(self, summary: Summary, *, last: bool) -> None:
        """Print a summary."""
        if self.as_json:
            write(summary.as_json(last=last).encode() + b"\n")
        else:
            show(summary.table(last=last))


async def _print(
    target: Target, wanted: Wanted, output: Output, every: float | None, reconnect: bool
) -> bool:
    """Return whether as many messages as requested have arrived."""
    left = wanted.count
    summary = output.summary
    with trio.move_on_after(math.inf if wanted.timeout is None else wanted.timeout):
        async with (
            while_read(),
            target.connect(
                reconnect=reconnect,
                **(telling("messages published") if reconnect else {}),
            ) as client,
        ):
            await client.subscribe(*wanted.substrings, everything=wanted.everything)
            if sys.stderr.isatty():
                echo("pubsubd: subscribed", err=True)
            try:
                async with trio.open_nursery() as nursery:
                    if summary is not None:
                        summary.begin()
                        nursery.start_soon(_end_at_sigterm)
                        if every is not None:
                            nursery.start_soon(_report_every, every, output, summary)
                    while left is None or left > 0:
                        messages = wanted.among(await client.receive())[:left]
                        output.take(messages)
                        if left is not None:
                            left -= len(messages)
                    nursery.cancel_scope.cancel()
            finally:
                if summary is not None:  # after all others: leaving the connection takes a while
                    output.report(summary, last=True)
    return left is None or left <= 0


async def _end_at_sigterm() -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for number in signals:
            raise SystemExit(128 + number)  # as the shell tells it; the summary is printed first


async def _report_every(seconds: float, output: Output, summary: Summary) -> None:
    while True:
        await trio.sleep(seconds)
        output.report(summary, last=False)
