"""Terminals: whether output has colours, and how wide it may be."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def coloured() -> bool:
    """Return whether standard output has colours.

    By no-color.org and bixense.com/clicolors: ``NO_COLOR`` forbids them, ``FORCE_COLOR`` and
    ``CLICOLOR_FORCE`` demand them, unless they are 0; without any, a terminal has them.
    """
    get = os.environ.get
    if get("NO_COLOR"):
        return False
    if any(get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    plain = get("CLICOLOR") == "0" or get("FORCE_COLOR") == "0" or get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def console() -> Console:
    """Return rich's standard output: as wide as it needs to be where no terminal has a width."""
    from rich.console import Console  # noqa: PLC0415  (sub needs none)

    terminal, colours = sys.stdout.isatty(), coloured()
    return Console(
        width=None if terminal else 10_000,
        highlight=False,
        force_terminal=True if colours else None if terminal else False,
        no_color=not colours,
    )
