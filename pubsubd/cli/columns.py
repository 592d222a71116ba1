"""Columns of connections, as tables for people have them."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.connections import ConnectionRow
from pubsubd.cli.tables import duration, size

CELLS: dict[str, Callable[[ConnectionRow, float], str]] = {
    "number": lambda row, _: f"{row.connection}",
    "user": lambda row, _: row.user or (f"mesh/{row.node}" if row.node else ""),
    "address": lambda row, _: row.peer,
    "listener": lambda row, _: row.listener or "dialled",
    "speaks": lambda row, _: _spoken(row),
    "subs": lambda row, _: "" if row.subscriptions is None else f"{row.subscriptions:,}",
    "in/s": lambda row, _: f"{row.messages_in_rate:,.0f}",
    "out/s": lambda row, _: f"{row.messages_out_rate:,.0f}",
    "data in/s": lambda row, _: size(round(row.bytes_in_rate)),
    "data out/s": lambda row, _: size(round(row.bytes_out_rate)),
    "dropped": lambda row, _: f"{row.dropped:,}",
    "waiting": lambda row, _: size(row.backlog_bytes),
    "for": lambda row, now: duration(now - row.since),
}
TEXTS = ("user", "address", "listener", "speaks")
NARROW = ("number", "user", "address", "in/s", "out/s", "waiting", "for")


def _spoken(row: ConnectionRow) -> str:
    if row.transport in ("line", "none"):
        return row.dialect if row.transport == "line" else ""
    return row.transport if row.dialect == "none" else f"{row.dialect} over {row.transport}"
