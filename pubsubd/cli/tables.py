"""Printing rich tables."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table


def drawn(table: Table) -> bytes:
    """Return ``table`` as it is printed; for those who must not let rich write."""
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get().encode()


def show(table: Table) -> None:
    """Print ``table`` as wide as it needs to be where no terminal says how wide it may be."""
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False).print(table)
