"""``pubsubd top --once``: one picture, for people or programs."""

from __future__ import annotations

import csv
import sys

import msgspec

from pubsubd.cli.live_state import NAME, LiveState, requested
from pubsubd.cli.options import Target
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import adaptive_table, show
from pubsubd.cli.terminal import console
from pubsubd.cli.top_screen import Frame, heading
from pubsubd.cli.top_views import VIEWS, Choice
from pubsubd.protocol.errors import PubsubdError


async def show_once(target: Target, name: str, choice: Choice, interval: float, form: str) -> None:
    """Print a view once.

    Args:
        target: the daemon.
        name: of the view.
        choice: what of the view is wanted.
        interval: seconds until the second message, which names need.
        form: ``table``, ``json`` or ``csv``.

    Raises:
        PubsubdError: the view may not be seen, or there is none.
    """
    view, state = VIEWS[name], LiveState()
    wanted = 2 if name == "names" else 1  # names are counted from the first message on
    sections = [("totals", True), (view.section, view.request(choice))]
    async with target.connect() as client:
        state.take(await client.request(NAME, requested(sections, interval)))
        while state.count < wanted:
            message = await anext(client)
            if message.name == NAME:
                state.take(message.data)
    why = state.refusal(view.section)
    if why is not None:
        raise PubsubdError(why)
    rows = view.rows(state, choice)[: choice.limit]
    if form == "json":
        section = {**state.values(view.section), "rows": rows}
        if name == "mesh":
            section["daemons"] = state.raw("daemons")
        shown = {"at": state.at, "totals": state.values("totals"), name: section}
        echo(msgspec.json.encode(shown).decode())
    elif form == "csv":
        safe = visible if sys.stdout.isatty() else str  # names are what others have chosen
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(view.keys)
        for row in rows:
            values = [row.get(key) for key in view.keys]
            writer.writerow([safe(one) if isinstance(one, str) else one for one in values])
    else:
        width = console().width
        columns = [column.title for column in view.columns[0]]
        cells = view.cells(state, choice)[: choice.limit]
        numbers = [at for at, column in enumerate(view.columns[0]) if not column.text]
        frame = Frame(target.where, state, view, choice)
        show(
            *heading(frame, min(width, 100), 9), *adaptive_table("", columns, cells, width, numbers)
        )
        echo(visible(view.about(state, choice)))
