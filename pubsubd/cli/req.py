"""``pubsubd req``: a request, and the answers to it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable

import click
import trio

from pubsubd.cli import names
from pubsubd.cli.options import LARGEST, Target, connects
from pubsubd.cli.output import write
from pubsubd.cli.pretty import pretty_json
from pubsubd.cli.receivers import wait_for_receivers
from pubsubd.cli.streams import echo, encoded
from pubsubd.cli.terminal import coloured
from pubsubd.cli.values import some_seconds
from pubsubd.client import Client, DaemonError
from pubsubd.client.faults import printable
from pubsubd.protocol.wire import check_name, escape

_ADVERTISED = 2.0  # seconds: longer than an idle daemon waits between two adverts, however large
_LOOK = 0.05  # seconds between two looks whether an advert was sent


@click.command()
@click.argument("name")
@click.argument("data", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    metavar="PATH",
    help="Read the data from a file; - is standard input.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Wait for this many answers.",
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    default="5",
    show_default=True,
    help="Longest time to wait for them; then the status is 1.",
)
@click.option(
    "--wait-for",
    type=click.IntRange(min=1),
    metavar="N",
    help="Send the request only when at least N connections would receive it.",
)
@click.option(
    "--inbox",
    metavar="TEXT",
    help="Let the answers go to names that begin with //reply/TEXT/, for access rules.",
)
@click.option("--raw", is_flag=True, help="Print the data of the answers and nothing else.")
@connects
def command(
    target: Target,
    name: str,
    data: str | None,
    path: str | None,
    count: int,
    timeout: float,
    wait_for: int | None,
    inbox: str | None,
    raw: bool,
) -> int:
    """Send a request with DATA to NAME, and print the answer.

    Somebody has to answer requests to NAME, as "pubsubd reply NAME" does. If nobody would
    receive the request, or the answer is an error, the status is 1. Across a mesh, NAME begins
    with two slashes.

    \b
    Examples:
      pubsubd req time
      pubsubd req //sum --file numbers --timeout 60
    """  # noqa: D301  (click wants the character)
    check_name(os.fsencode(name), "name")
    if data is not None and path is not None:
        raise click.UsageError("DATA excludes --file.")
    if path is not None:
        with click.open_file(path, "rb") as file:
            content = file.read(LARGEST + 1)
    else:
        content = os.fsencode(data or "")
    shown = _raw if raw else _for_terminal if sys.stdout.isatty() else _line
    return trio.run(
        _ask, target, names.plain(name), content, count, timeout, wait_for, inbox, shown
    )


async def _ask(
    target: Target,
    name: str,
    data: bytes,
    count: int,
    timeout: float,  # noqa: ASYNC109  (the command's own meaning)
    wait_for: int | None,
    inbox: str | None,
    shown: Callable[[bytes], bytes],
) -> int:
    """Return the exit status."""
    identifier = names.new_id(inbox)
    request, answer = names.request(name, identifier), names.answer(identifier)
    far = name.startswith("//")  # others may be at other daemons
    if far:
        answer = names.copy(answer)
    status, left, found = 0, count, False
    async with target.connect() as client:
        with trio.move_on_after(timeout) as scope:
            await client.subscribe(answer)
            across = await _find_receivers(client, request, wait_for) and far
            found = True
            if across:
                await _wait_advertised(client)
            await client.publish(request, data)
            while left:
                for message in await client.receive():
                    if left and message.name == answer:
                        write(shown(message.data))
                    elif left and message.name == f"{answer}/error":
                        code, _, text = printable(message.data).partition(" ")
                        echo(f"pubsubd: {code}: {text}", err=True)
                        status = 1
                    else:
                        continue
                    left -= 1
    if scope.cancelled_caught:
        came = f"{count - left} of {count} answers" if left < count else "no answer"
        if not found:
            came = f"fewer than {wait_for or 1} would receive the request"
        raise click.ClickException(f"timed out after {timeout:g} s: {came}")
    return status


async def _find_receivers(client: Client, request: str, least: int | None) -> bool:
    """Return whether there may be other daemons among those who would receive the request.

    Raises:
        ClickException: nobody would receive it.
    """
    try:
        found = await wait_for_receivers(client, request, least or 0, None)
    except DaemonError as exc:
        if least is not None or exc.code not in ("not-allowed", "login-required"):
            raise
        return True
    if not found["count"]:
        shown = escape(request.rpartition("/req/")[0])
        raise click.ClickException(
            f'nobody answers requests to {shown} ("pubsubd reply {shown} ...")'
        )
    receivers = found["receivers"]
    return len(receivers) < found["count"] or any(one["connection"] is None for one in receivers)


async def _wait_advertised(client: Client) -> None:
    """Wait until the daemon has told the others what was subscribed; the request comes behind."""
    needed = 0
    while True:
        try:
            told = json.loads(await client.request("//pubsubd/advertised"))
        except DaemonError as exc:
            if exc.code != "no-mesh":  # it is not allowed, or the daemon is of an earlier version
                await trio.sleep(_ADVERTISED)
            return
        needed = needed or told["needed"]
        if told["sent"] >= needed:
            return
        await trio.sleep(_LOOK)


def _raw(data: bytes) -> bytes:
    return data


def _line(data: bytes) -> bytes:
    return data if data.endswith(b"\n") else data + b"\n"


def _for_terminal(data: bytes) -> bytes:
    pretty = pretty_json(data, shutil.get_terminal_size().columns, colours=coloured())
    if pretty is not None:
        return encoded(f"{pretty}\n")
    lines = data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    shown = ["\t".join(map(escape, line.split("\t"))) for line in lines]
    return encoded("\n".join([*shown, ""]))
