"""Printing rich tables."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table


def show(table: Table) -> None:
    """Print ``table`` as wide as it needs to be where no terminal says how wide it may be."""
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False).print(table)
