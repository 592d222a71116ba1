"""The views of ``pubsubd top``: which section each shows, and its rows as cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pubsubd.broker.connections import COLUMNS, ConnectionRow
from pubsubd.cli.columns import CELLS, NARROW, TEXTS
from pubsubd.cli.live_state import DaemonRow, EventRow, LinkRow, LiveState, NameRow
from pubsubd.cli.tables import size

SORTS = ("rate", "backlog", "dropped", "age")
"""The orders of connections."""

MAX_CONNECTIONS = 500
"""Connections that the daemon shows at most."""

MAX_NAMES = 100
"""Names that the daemon shows at most."""


class Choice(NamedTuple):
    """What of a view is wanted.

    Attributes:
        sort: the order of connections.
        match: a text that they contain.
        limit: rows.
    """

    sort: str = "rate"
    match: str = ""
    limit: int = 50


class Column(NamedTuple):
    """A column of a view; ``text`` if it is aligned to the left."""

    title: str
    text: bool = False


class View(NamedTuple):
    """A view.

    Attributes:
        section: what it shows of ``//pubsubd/live``.
        keys: the columns for programs.
        columns: the columns for people: all, and fewer and fewer for narrow terminals.
        request: returns what is wanted of the section.
        rows: returns what is shown, in order, as it came.
        cells: returns the cells of these rows, for all columns.
        about: returns a line above the table.
    """

    section: str
    keys: Sequence[str]
    columns: Sequence[Sequence[Column]]
    request: Callable[[Choice], Any]
    rows: Callable[[LiveState, Choice], list[dict[str, Any]]]
    cells: Callable[[LiveState, Choice], list[list[str]]]
    about: Callable[[LiveState, Choice], str]


_BY: dict[str, Callable[[dict[str, Any]], float]] = {
    "rate": lambda row: -row["messages_in_rate"] - row["messages_out_rate"],
    "backlog": lambda row: -row["backlog_bytes"],
    "dropped": lambda row: -row["dropped"],
    "age": lambda _: 0.0,
}


def _connections(state: LiveState, choice: Choice) -> list[dict[str, Any]]:
    by = _BY[choice.sort]
    rows = state.raw("connections")
    return sorted(rows, key=lambda row: (by(row), row["connection"]))


def _connection_cells(state: LiveState, choice: Choice) -> list[list[str]]:
    now = state.at or time.time()
    known = {row.connection: row for row in state.rows("connections", ConnectionRow)}
    rows = [known[row["connection"]] for row in _connections(state, choice)]
    return [[cell(row, now) for cell in CELLS.values()] for row in rows]


def _about_connections(state: LiveState, choice: Choice) -> str:
    count = state.value("connections", "count", 0)
    matching = state.value("connections", "matching", 0)
    shown = len(state.raw("connections"))
    words = f"{count:,} connection{'s' * (count != 1)}"
    if choice.match:
        words += f', {matching:,} with "{choice.match}"'
    some = f"the first {shown:,} " if shown < matching else ""
    return f"{words}, {some}by {choice.sort}"


def _names(state: LiveState, _choice: Choice) -> list[dict[str, Any]]:
    return sorted(state.raw("names"), key=lambda row: (-row["rate"], row["name"]))


def _name_cells(state: LiveState, choice: Choice) -> list[list[str]]:
    known = {row.name: row for row in state.rows("names", NameRow)}
    rows = [known[row["name"]] for row in _names(state, choice)]
    return [
        [f"{row.rate:,.1f}", f"{row.error:,.1f}" if row.error else "", row.name] for row in rows
    ]


def _about_names(state: LiveState, _choice: Choice) -> str:
    sampled = state.value("names", "sampled", 1)
    words = "the busiest names: messages published per second, of the last seconds"
    return words if sampled > 0.999 else f"{words}, from {100 * sampled:.2g} % of them"


def _events(state: LiveState, _choice: Choice) -> list[dict[str, Any]]:
    return state.raw("events")[::-1]


def _event_cells(state: LiveState, _choice: Choice) -> list[list[str]]:
    return [
        [
            datetime.fromtimestamp(row.at).astimezone().strftime("%H:%M:%S"),
            row.event,
            row.user or row.node or "",
            row.peer or "",
            row.reason or "",
            row.detail or "",
        ]
        for row in reversed(state.rows("events", EventRow))
    ]


def _about_events(state: LiveState, _choice: Choice) -> str:
    words = "events, the last one first"
    return f"{words}; {state.lost:,} are lost" if state.lost else words


def _links(state: LiveState, _choice: Choice) -> list[dict[str, Any]]:
    return sorted(state.raw("links"), key=lambda row: (-(row["messages_rate"] or 0), row["link"]))


def _link_cells(state: LiveState, choice: Choice) -> list[list[str]]:
    known = {row.link: row for row in state.rows("links", LinkRow)}
    rows = [known[row["link"]] for row in _links(state, choice)]
    return [
        [
            row.a,
            row.b,
            "" if row.rtt_ms is None else f"{row.rtt_ms:,.1f} ms",
            "" if row.messages_rate is None else f"{row.messages_rate:,.0f}",
            "" if row.bytes_rate is None else size(round(row.bytes_rate)),
            "bridge" if row.bridge else "",
        ]
        for row in rows
    ]


def _about_links(state: LiveState, _choice: Choice) -> str:
    daemons = state.rows("daemons", DaemonRow)
    words = [f"{len(daemons):,} daemons"]
    if gone := sum(one.hops is None for one in daemons):
        words.append(f"{gone:,} of them cannot be reached")
    if weak := sorted(one.node for one in daemons if one.articulation):
        words.append("without one of these, others are cut off: " + " ".join(weak))
    return ", ".join(words)


def _columns(*titles: str, texts: Sequence[str]) -> list[Column]:
    return [Column(title, title in texts) for title in titles]


_FEW = ("number", "address", "in/s", "out/s")
_EVENT_TEXTS = ("at", "event", "who", "address", "reason", "detail")
_LINK_TEXTS = ("from", "to", "weak")

VIEWS = {
    "connections": View(
        "connections",
        COLUMNS,
        [_columns(*titles, texts=TEXTS) for titles in (tuple(CELLS), NARROW, _FEW)],
        lambda choice: {
            "sort": choice.sort,
            "limit": min(max(choice.limit, 1), MAX_CONNECTIONS),
            "match": choice.match,
        },
        _connections,
        _connection_cells,
        _about_connections,
    ),
    "names": View(
        "names",
        ("name", "rate", "error"),
        [
            _columns(*titles, texts=("name",))
            for titles in (("messages/s", "\u00b1", "name"), ("messages/s", "name"))
        ],
        lambda choice: {"limit": min(max(choice.limit, 1), MAX_NAMES)},
        _names,
        _name_cells,
        _about_names,
    ),
    "events": View(
        "events",
        ("id", "at", "event", "connection", "peer", "user", "listener", "node", "reason", "detail"),
        [
            _columns(*titles, texts=_EVENT_TEXTS)
            for titles in (_EVENT_TEXTS, ("at", "event", "who", "reason"), ("at", "event", "who"))
        ],
        lambda _choice: True,
        _events,
        _event_cells,
        _about_events,
    ),
    "mesh": View(
        "mesh",
        ("link", "a", "b", "rtt_ms", "messages_rate", "bytes_rate", "bridge"),
        [
            _columns(*titles, texts=_LINK_TEXTS)
            for titles in (
                ("from", "to", "round trip", "messages/s", "data/s", "weak"),
                ("from", "to", "round trip", "messages/s", "weak"),
                ("from", "to", "weak"),
            )
        ],
        lambda _choice: True,
        _links,
        _link_cells,
        _about_links,
    ),
}
"""Name -> view."""
