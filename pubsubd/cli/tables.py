"""Printing rich tables."""

from __future__ import annotations

from rich.table import Table

from pubsubd.cli.streams import encoded
from pubsubd.cli.terminal import console


def drawn(table: Table) -> bytes:
    """Return ``table`` as it is printed; for those who must not let rich write."""
    output = console()
    with output.capture() as captured:
        output.print(_folded(table))
    return encoded(captured.get())


def show(table: Table) -> None:
    """Print ``table``."""
    console().print(_folded(table))


def _folded(table: Table) -> Table:
    """Let a table that is too wide fold its texts: nothing is left out of them."""
    for column in table.columns:
        column.overflow = "fold"
    return table
