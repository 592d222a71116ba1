"""The last events of the daemon, for all who look at them, without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

KEPT = 256
"""Events that are kept, of some 500 bytes each."""


class Event(NamedTuple):
    """Something that has happened.

    Attributes:
        id: counts the events since the start, from 1.
        at: seconds since the epoch.
        told: what has happened, as ``//pubsubd/events`` has it.
    """

    id: int
    at: float
    told: dict[str, Any]


class Events:
    """The last :data:`KEPT` events.

    Args:
        wall: returns seconds since the epoch.

    Attributes:
        kept: the events, in order.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._count = 0
        self.kept: deque[Event] = deque(maxlen=KEPT)

    def note(self, told: dict[str, Any]) -> None:
        """Keep an event; ``told`` is not changed any more."""
        self._count += 1
        self.kept.append(Event(self._count, round(self._wall(), 3), told))

    @property
    def last(self) -> int:
        """The id of the last event, 0 if there was none."""
        return self._count
