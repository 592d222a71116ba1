"""How late the loop is: a task that wants to wake at certain times, and takes note of when it does.

While the loop is busy with one connection, all others wait, and so does this task: how late it
wakes is how long a message that comes at any moment may have to wait before it is looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import NoReturn

import trio

INTERVAL = 0.25
"""Seconds between two measurements."""

RECENT = 2.0
"""Seconds for which a measurement is one of the latest."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds: the upper bounds of the classes that are told apart; one more has all above them."""


class LoopLag:
    """The histogram, and the task that fills it.

    Args:
        clock: the time in seconds, by which trio's timeouts are.

    Attributes:
        counts: measurements in each class of :data:`BUCKETS`, and in the one above them.
        total: seconds, of all of them together.
        latest: the last few measurements, of :data:`RECENT` seconds together.
    """

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0
        self.latest: deque[float] = deque(maxlen=round(RECENT / INTERVAL))

    def note(self, late: float) -> None:
        """Take note of one measurement, in seconds."""
        self.counts[bisect_left(BUCKETS, late)] += 1
        self.total += late
        self.latest.append(late)

    @property
    def longest(self) -> float:
        """The longest of the :attr:`latest`, in seconds."""
        return max(self.latest, default=0.0)

    async def run(self) -> NoReturn:
        """Measure until cancelled.

        A loop that was held up is measured once for that, and not again for each time that
        was missed.
        """
        while True:
            due = self._clock() + INTERVAL
            await trio.sleep_until(due)
            self.note(max(0.0, self._clock() - due))
