"""What ``pubsubd top`` draws: totals, a table that fits, and a line for keys and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pubsubd.cli.live_state import LiveState
from pubsubd.cli.streams import visible
from pubsubd.cli.tables import duration, size
from pubsubd.cli.top_views import Choice, Column, View

KEYS = "h help  q quit  c n e m views  r b d a sort  / filter  space freeze  k kill"

HELP = (
    ("c n e m", "connections names events mesh"),
    ("Tab", "the next of these"),
    ("r b d a", "sort: rate backlog drops age"),
    ("/", "filter: type, Enter; Esc ends it"),
    ("Up Down", "select; also PgUp PgDn Home End"),
    ("k", "end the selected connection"),
    ("Space", "freeze, and go on"),
    ("h ?", "this help"),
    ("q", "quit"),
)

_GAP = 2  # cells between two columns
_LEAST = 6  # cells of the last column, which may be cut off
_WIDEST = 44  # cells of any other, beyond which it is cut off


class Frame(NamedTuple):
    """What is drawn.

    Attributes:
        where: the daemon's address.
        state: what it has shown.
        view, choice: what of that is wanted.
        selected: number of the connection that is selected.
        status: what is told besides, such as that there is no connection.
        prompt: the last line, if something is asked; empty for the keys.
        help: whether the keys are explained instead of the table.
    """

    where: str
    state: LiveState
    view: View
    choice: Choice
    selected: int | None = None
    status: str = ""
    prompt: str = ""
    help: bool = False


def draw(frame: Frame, width: int, height: int) -> Group:
    """Return lines that fill a terminal of this size, and no more."""
    lines = heading(frame, width, max(2, height // 4))
    lines.append(_line(_about(frame), "dim"))
    room = height - len(lines) - 1
    body: list[Text | Table] = []
    if frame.help:
        body += [_line(f"{keys:<8} {text}") for keys, text in HELP][:room]
    elif (why := frame.state.refusal(frame.view.section)) is not None:
        body = [_line(why, "red")]
    else:
        body = [table(frame, width, room)]
    used = sum(1 if isinstance(one, Text) else one.row_count + 1 for one in body)
    body += [Text("")] * (room - used)
    return Group(*lines, *body, _bottom(frame))


def heading(frame: Frame, width: int, most: int) -> list[Text]:
    """Return the name of the daemon and its totals, in ``most`` lines."""
    state = frame.state
    totals = state.totals
    title = f"pubsubd {totals.version} at {frame.where}"
    if state.at and totals.since:
        title += f", up {duration(state.at - totals.since)}"
    status = frame.status or (f"every {state.interval:.3g} s" if state.interval else "")
    gap = width - cell_len(visible(title)) - cell_len(visible(status))
    text = Text(visible(title), "bold", no_wrap=True, overflow="ellipsis")
    if status and gap >= _GAP:
        text.append(" " * gap + visible(status), "bold red" if frame.status else "not bold dim")
    lines = [text]
    if frame.status and gap < _GAP:
        lines.append(_line(frame.status, "bold red"))
    if (why := state.refusal("totals")) is not None:
        return [*lines, _line(f"totals: {why}", "red")]
    groups = (
        (
            f"in {totals.messages_in_rate:,.0f}/s {size(totals.bytes_in_rate)}/s",
            f"out {totals.messages_out_rate:,.0f}/s {size(totals.bytes_out_rate)}/s",
            f"waiting {size(totals.backlog_bytes)}",
            f"dropped {totals.dropped:,} ({totals.dropped_rate:,.0f}/s)",
            f"errors {totals.errors:,}",
        ),
        (
            f"connections {totals.connections:,}",
            f"subscriptions {totals.subscriptions:,}",
            f"cpu {100 * totals.cpu:.0f} %",
            f"late {totals.loop_lag_ms:,.1f} ms",
            f"memory {size(totals.rss_bytes)}",
        ),
    )
    packed = [line for facts in groups for line in _packed(facts, width)]
    return lines + [_line(one) for one in packed[: max(1, most - len(lines))]]


def _packed(facts: Sequence[str], width: int) -> list[str]:
    """Return facts in as few lines as they fit into."""
    lines = [facts[0]]
    for fact in facts[1:]:
        longer = f"{lines[-1]}   {fact}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fact)
    return lines


def _about(frame: Frame) -> str:
    if frame.state.refusal(frame.view.section) is not None:
        return ""
    words = frame.view.about(frame.state, frame.choice)
    if missed := frame.state.missed:
        words += f"; {missed:,} updates were missed, because this terminal is too slow"
    return words


def table(frame: Frame, width: int, height: int) -> Table:
    """Return the rows that there is room for, in the columns that there is room for."""
    view, state = frame.view, frame.state
    cells = [[visible(cell) for cell in row] for row in view.cells(state, frame.choice)]
    keys = [row[view.keys[0]] for row in view.rows(state, frame.choice)]
    selected = keys.index(frame.selected) if frame.selected in keys else -1
    first = max(0, selected + 2 - height)  # below the titles, it is the last one at least
    cells = cells[first : first + max(0, height - 1)]
    titles = [column.title for column in view.columns[0]]
    columns = next((one for one in view.columns if _fits(one, titles, cells, width)), None)
    columns = columns or view.columns[-1]
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold cyan")
    for column in columns:
        last = column is columns[-1]
        shown.add_column(
            column.title,
            justify="left" if column.text else "right",
            no_wrap=True,
            overflow="ellipsis",
            max_width=None if last else _WIDEST,
        )
    for at, row in enumerate(cells, first):
        style = "reverse" if at == selected else ""
        shown.add_row(*(Text(row[titles.index(one.title)]) for one in columns), style=style)
    return shown


def _fits(
    columns: Sequence[Column], titles: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> bool:
    needed = 0
    for column in columns:
        at = titles.index(column.title)
        widest = max((cell_len(row[at]) for row in rows), default=0)
        widest = max(cell_len(column.title), widest)
        needed += min(widest, _LEAST if column is columns[-1] and column.text else _WIDEST) + _GAP
    return needed - _GAP <= width


def _bottom(frame: Frame) -> Text:
    return _line(frame.prompt, "bold") if frame.prompt else _line(KEYS, "dim")


def _line(text: str, style: str = "") -> Text:
    return Text(visible(text), style, no_wrap=True, overflow="ellipsis")
