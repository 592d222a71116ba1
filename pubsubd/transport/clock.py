"""The clock of a daemon's loop."""

from __future__ import annotations

from time import perf_counter

import trio


class LoopClock(trio.abc.Clock):
    """The system's clock, and nothing around it: its time is asked for several times a message.

    trio's own adds an offset, by which mistakes are found; that takes five times as long.
    """

    current_time = staticmethod(perf_counter)

    def start_clock(self) -> None:
        """Do nothing: it goes."""

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until then."""
        return deadline - perf_counter()
