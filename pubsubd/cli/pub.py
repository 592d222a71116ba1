"""``pubsubd pub``: what is given, or what standard input or a file holds, as messages.

Input is read in threads, piece by piece, so that what has been read is sent while the next piece
is waited for, and so that memory stays flat however long the input is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from functools import partial

import click
import trio

from pubsubd.cli.formats import now
from pubsubd.cli.options import Target, connects
from pubsubd.cli.receivers import wait_for_receivers
from pubsubd.cli.values import seconds, show_size, size, some_seconds
from pubsubd.protocol.limits import MIB, READ_SIZE

_Read = Callable[[int], Awaitable[bytes]]
_Fill = Callable[[int, str, bytes], tuple[str, bytes]]


@click.command()
@click.argument("name")
@click.argument("data", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    metavar="PATH",
    help="Read from a file instead of standard input.",
)
@click.option(
    "--lines", is_flag=True, help="Publish each line of the input, without its LF or CR LF."
)
@click.option(
    "--chunk",
    type=size(least=1),
    metavar="SIZE",
    help="Cut the input into messages of this size; the last one may be shorter.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Publish the message this many times.",
)
@click.option(
    "--interval",
    type=seconds,
    metavar="SECONDS",
    default="0",
    show_default=True,
    help="Time from the start of one message to the start of the next.",
)
@click.option(
    "--template",
    is_flag=True,
    help="In NAME and data, replace {n} by the number of the message, and {time} by the time.",
)
@click.option(
    "--wait-for",
    type=click.IntRange(min=1),
    metavar="N",
    help="Publish only when at least N connections would receive NAME.",
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    help="Longest time for --wait-for; then the status is 1.",
)
@click.option(
    "--max-payload",
    type=size(least=1),
    metavar="SIZE",
    default=show_size(MIB),
    show_default=True,
    help="Largest message to publish; the daemon has its own limit.",
)
@connects
def command(
    target: Target,
    name: str,
    data: str | None,
    path: str | None,
    lines: bool,
    chunk: int | None,
    count: int,
    interval: float,
    template: bool,
    wait_for: int | None,
    timeout: float | None,
    max_payload: int,
) -> None:
    """Publish DATA, or standard input, under NAME.

    Without --lines or --chunk, the whole input is one message. Sizes are in bytes, or written as
    64KiB or 8MiB. Status 0 means that the daemon has received everything and passed it on to
    everyone who was subscribed by then.

    \b
    Examples:
      pubsubd pub chat/main hello
      pubsubd pub files/picture --file picture.png
      tail -f log | pubsubd pub logs/web --lines
      pubsubd pub backup --chunk 256KiB <backup.tar
      pubsubd pub chat/main hello --wait-for 1 --timeout 10
      pubsubd pub load/{n} '{"sent": "{time}"}' --template --count 60 --interval 1
    """  # noqa: D301  (click wants the character)
    if data is not None and (path is not None or lines or chunk is not None):
        raise click.UsageError("DATA excludes --file, --lines and --chunk.")
    if lines and chunk is not None:
        raise click.UsageError("--lines and --chunk exclude each other.")
    if count > 1 and (lines or chunk is not None):
        raise click.UsageError("--count excludes --lines and --chunk.")
    if timeout is not None and wait_for is None:
        raise click.UsageError("--timeout is for --wait-for.")
    if chunk is not None and chunk > max_payload:
        raise click.UsageError("--chunk is larger than --max-payload.")

    with ExitStack() as stack:
        fd, title = 0, "standard input"
        if path not in (None, "-"):
            assert path is not None
            fd, title = os.open(path, os.O_RDONLY), click.format_filename(path)
            stack.callback(os.close, fd)
        read = partial(_read, fd)
        if data is not None:
            messages = _repeated(os.fsencode(data), count)
        elif lines:
            messages = _lines(read, max_payload, title)
        elif chunk is not None:
            messages = _chunks(read, chunk)
        else:
            messages = _whole(read, max_payload, title, count)
        fill = fill_in if template else _leave
        wait = (wait_for or 0, timeout)
        trio.run(_publish, target, name, messages, fill, interval, max_payload, wait)


async def _publish(
    target: Target,
    name: str,
    messages: AsyncIterator[bytes],
    fill: _Fill,
    interval: float,
    max_payload: int,
    wait: tuple[int, float | None],
) -> None:
    async with target.connect(max_payload=max_payload) as client:
        if wait[0]:
            await wait_for_receivers(client, fill(1, name, b"")[0], *wait)
        due = trio.current_time()
        number = 0
        async for data in messages:
            number += 1
            if interval:
                await trio.sleep_until(due)
                due = max(due + interval, trio.current_time())
            await client.publish(*fill(number, name, data))
        # Leaving waits until the daemon has carried out everything, and raises if it did not.


def fill_in(number: int, name: str, data: bytes) -> tuple[str, bytes]:
    """Return a name and data with ``{n}`` and ``{time}`` replaced; other braces stay."""
    for field, value in (("{n}", str(number)), ("{time}", now())):
        name = name.replace(field, value)
        data = data.replace(field.encode(), value.encode())
    return name, data


def _leave(_number: int, name: str, data: bytes) -> tuple[str, bytes]:
    return name, data


async def _read(fd: int, most: int) -> bytes:
    # Abandoned when interrupted: nothing can wake a thread that waits for a terminal.
    return await trio.to_thread.run_sync(os.read, fd, most, abandon_on_cancel=True)


async def _repeated(data: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield data


async def _whole(read: _Read, limit: int, title: str, count: int) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    total = 0
    while part := await read(READ_SIZE):
        parts.append(part)
        total += len(part)
        if total > limit:
            raise click.ClickException(
                f"{title} has more than {limit} bytes, the limit for one message; "
                "use --chunk or --lines, or raise --max-payload here and in the daemon"
            )
    data = b"".join(parts)
    for _ in range(count):
        yield data


async def _lines(read: _Read, limit: int, title: str) -> AsyncIterator[bytes]:
    rest = b""
    while part := await read(READ_SIZE):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield _checked_line(line.removesuffix(b"\r"), limit, title)
        _checked_line(rest, limit, title)
    if rest:
        yield rest


def _checked_line(line: bytes, limit: int, title: str) -> bytes:
    if len(line) > limit + 1:  # one more may be a CR
        raise click.ClickException(
            f"a line of {title} has more than {limit} bytes, the limit for one message"
        )
    return line


async def _chunks(read: _Read, length: int) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    missing = length
    while part := await read(min(missing, MIB)):
        parts.append(part)
        missing -= len(part)
        if not missing:
            yield b"".join(parts)
            parts, missing = [], length
    if parts:
        yield b"".join(parts)
