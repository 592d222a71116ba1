"""Printing rich tables, and what stands in them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pubsubd.cli.streams import echo, visible
from pubsubd.cli.terminal import console
from pubsubd.protocol.limits import KIB

_ROOM = 10  # cells of the last column, whose texts may be wrapped


def show(*shown: RenderableType) -> None:
    """Print tables; not with rich, for which a closed output is a failure."""
    echo(drawn(*shown), nl=False)


def drawn(*shown: RenderableType) -> str:
    """Return tables as they are printed."""
    output = console()
    with output.capture() as captured:
        for one in shown:
            output.print(folded(one) if isinstance(one, Table) else one)
    return captured.get()


def folded(table: Table) -> Table:
    """Let a table that is too wide fold its texts: nothing is left out of them."""
    for column in table.columns:
        column.overflow = "fold"
    return table


def adaptive_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    numbers: Container[int],
) -> list[Table]:
    """Return a table with its title, or nothing without rows.

    Where a terminal is too narrow for it, each row becomes a list of titles and values.
    """
    if not rows:
        return []
    shown = [[Text(visible(cell), overflow="fold") for cell in row] for row in rows]
    if fits(columns, rows, width):
        table = _titled(title)
        for number, column in enumerate(columns):
            table.add_column(
                column,
                style="cyan" if number == 0 else None,
                justify="right" if number in numbers else "left",
                no_wrap=number < len(columns) - 1,
                overflow="fold",
            )
        for row in shown:
            table.add_row(*row)
        return [table]
    table = _titled(title, show_header=False)
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for row in shown:
        for column, cell in zip(columns, row, strict=True):
            if cell:
                table.add_row(column, cell)
        table.add_section()
    return [table]


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table is ``width`` cells wide at most; its last column may be wrapped."""
    *firm, last = zip(columns, *([visible(cell) for cell in row] for row in rows), strict=True)
    needed = sum(_widest(column) for column in firm) + min(_widest(last), _ROOM)
    return needed + 3 * len(columns) + 1 <= width


def _titled(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=title or None,
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE,
        show_header=show_header,
    )


def _widest(column: Iterable[str]) -> int:
    return max(map(cell_len, column))


def count(number: int, noun: str) -> str:
    """Return how many there are: ``no links``, ``1 link``, ``2,000 links``."""
    return f"{f'{number:,}' if number else 'no'} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return seconds as ``3d 4:05:06``."""
    minutes, second = divmod(int(max(seconds, 0.0)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days:,}d " if days else "") + f"{hour}:{minute:02}:{second:02}"


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < KIB:
            break
        value, unit = value / KIB, larger
    return f"{number:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
