"""Answers that are drawn again and again, each over the last one."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click
import trio
from rich.console import RenderableType
from rich.live import Live

from pubsubd.cli.terminal import console
from pubsubd.cli.values import some_seconds

_INTERVAL = "2"


def watches(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option to repeat; ``function`` gets the seconds as ``watch``, None for once."""
    return click.option(
        "--watch",
        "-w",
        type=some_seconds,
        is_flag=False,
        flag_value=_INTERVAL,
        metavar="[SECONDS]",
        help=f"Repeat until Ctrl-C, every {_INTERVAL} seconds or at this interval.",
    )(function)


def can_redraw() -> bool:
    """Return whether standard output is a terminal on which something can be replaced."""
    return sys.stdout.isatty() and not console().is_dumb_terminal


async def keep_drawing(draw: Callable[[int], Awaitable[RenderableType]], seconds: float) -> None:
    """Draw for ever, on the alternate screen of the terminal.

    Args:
        draw: returns what to show, given the width of the terminal.
        seconds: from one answer to the next request.
    """
    shown = await draw(console().width)  # an error is told on the screen that stays
    with drawing(shown) as live:
        while True:
            await trio.sleep(seconds)
            live.update(await draw(live.console.width), refresh=True)


def drawing(first: RenderableType = "") -> Live:
    """Return the alternate screen of the terminal, for a ``with``, with a first picture."""
    # Nothing else is printed meanwhile, and what stands in for stdout would not tell its encoding.
    screen = console()
    return Live(first, console=screen, auto_refresh=False, screen=True, redirect_stdout=False)
