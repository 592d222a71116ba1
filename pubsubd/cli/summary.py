"""Messages counted by name, for ``pubsubd sub --summary``.

Whoever publishes chooses the names, so only so many are kept; further ones are counted together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from pubsubd.cli.streams import visible
from pubsubd.client import Message

MAX_NAMES = 10_000
"""Names that are counted one by one: at most 10 MB of them."""

SHOWN = 40
"""Names in a table: those with the most messages."""


class Count:
    """Messages and bytes of data, in all and by the last report."""

    __slots__ = ("bytes", "messages", "reported")

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.reported = (0, 0)

    def add(self, size: int) -> None:
        """Count a message."""
        self.messages += 1
        self.bytes += size

    def rates(self, seconds: float, *, last: bool) -> tuple[float, float]:
        """Return messages and bytes a second since the last report, or of all the time."""
        messages, size = (0, 0) if last else self.reported
        self.reported = (self.messages, self.bytes)
        return (self.messages - messages) / seconds, (self.bytes - size) / seconds


class Summary:
    """Counts by name.

    Attributes:
        names: name -> its messages.
        others: the messages of names that came when there were MAX_NAMES already.
        total: all messages.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.names: dict[str, Count] = {}
        self.others = Count()
        self.total = Count()
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Let the time begin of which the rates are."""
        self._began = self._reported = self._clock()

    def add(self, messages: Iterable[Message]) -> None:
        """Count messages."""
        for name, data in messages:
            count = self.names.get(name)
            if count is None:
                if len(self.names) < MAX_NAMES:
                    count = self.names[name] = Count()
                else:
                    count = self.others
            count.add(len(data))
            self.total.add(len(data))

    def _since(self, *, last: bool) -> float:
        """Return the seconds of which a report tells the rates."""
        now = self._clock()
        began, self._reported = self._began if last else self._reported, now
        return max(now - began, 1e-6)

    def _busiest(self) -> list[tuple[str, Count]]:
        return sorted(self.names.items(), key=lambda entry: (-entry[1].messages, entry[0]))

    def table(self, *, last: bool) -> Table:
        """Return a report; rates are those since the last one, or, in the ``last``, of all time."""
        seconds = self._since(last=last)
        table = Table(box=box.SIMPLE, show_footer=True)
        busiest = self._busiest()
        rest = Count()
        for count in [self.others, *(count for _, count in busiest[SHOWN:])]:
            rest.messages += count.messages
            rest.bytes += count.bytes
            rest.reported = (
                rest.reported[0] + count.reported[0],
                rest.reported[1] + count.reported[1],
            )
            count.rates(seconds, last=last)
        total = _cells(self.total, seconds, last=last)
        table.add_column("name", "total", style="cyan")
        for title, cell in zip(("messages", "bytes", "messages/s", "bytes/s"), total, strict=True):
            table.add_column(title, cell, justify="right")
        for name, count in busiest[:SHOWN]:
            table.add_row(Text(visible(name)), *_cells(count, seconds, last=last))
        if rest.messages:
            table.add_row(Text("other names", "italic"), *_cells(rest, seconds, last=last))
        return table

    def as_json(self, *, last: bool) -> str:
        """Return a report as one JSON object, with all names."""
        seconds = self._since(last=last)
        names = [{"name": name, **_fields(c, seconds, last=last)} for name, c in self._busiest()]
        return json.dumps(
            {
                "seconds": round(self._reported - self._began, 3),
                **_fields(self.total, seconds, last=last),
                "names": names,
                "other_names": _fields(self.others, seconds, last=last),
            }
        )


def _cells(count: Count, seconds: float, *, last: bool) -> tuple[str, str, str, str]:
    messages, size = count.rates(seconds, last=last)
    return f"{count.messages:,}", f"{count.bytes:,}", f"{messages:,.1f}", f"{size:,.0f}"


def _fields(count: Count, seconds: float, *, last: bool) -> dict[str, float]:
    messages, size = count.rates(seconds, last=last)
    return {
        "messages": count.messages,
        "bytes": count.bytes,
        "messages_per_s": round(messages, 3),
        "bytes_per_s": round(size, 3),
    }
