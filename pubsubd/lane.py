"""What takes long, a turn's worth in each pass of the loop: many who are busy hold nobody up.

trio runs every task that is ready once before it looks for input again. If a hundred connections
each took a full turn in one pass, others would wait for all of these. So whoever is about to do
much enters the lane before, with what that is likely to cost.

In each pass the one that has waited longest goes on, and beside it those that cost little, the
cheapest first: somebody who was once a little slow does not wait for all who are busy.
"""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import NoReturn

import trio

from pubsubd.limits import TURN

_ASIDE = TURN / 2  # seconds in each pass for those that cost little


class Lane:
    """Lets about as many go on in one pass as take a :data:`~pubsubd.limits.TURN`, or one."""

    def __init__(self) -> None:
        self._spent = 0.0  # seconds that those of this pass are likely to take
        self._waiting: deque[tuple[trio.lowlevel.Task, float]] = deque()
        self._keeper: trio.lowlevel.Task | None = None  # parked while nobody is in the lane

    def enter(self, cost: float) -> bool:
        """Go on at once, if this pass has room for it and nobody waits.

        Args:
            cost: seconds that it is likely to take.
        """
        if self._waiting or (self._spent and self._spent + cost > TURN):
            return False
        if self._keeper is not None:
            self._wake()
        elif not self._spent:
            return True  # the lane has no task: it holds nobody back
        self._spent += cost
        return True

    def _wake(self) -> None:
        assert self._keeper is not None
        trio.lowlevel.reschedule(self._keeper)
        self._keeper = None

    async def wait(self, cost: float) -> None:
        """Wait for a pass that has room; always lets others run."""
        if self._keeper is not None:
            self._wake()
        elif not self._spent and not self._waiting:
            await trio.lowlevel.checkpoint()
            return
        place = trio.lowlevel.current_task(), cost
        self._waiting.append(place)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._waiting.remove(place)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def run(self) -> NoReturn:
        """Let those who wait go on, pass by pass."""
        try:
            while True:
                self._spent = 0.0
                if self._waiting:
                    self._let_on(self._waiting[0])
                room = _ASIDE
                while self._waiting:
                    cheapest = min(self._waiting, key=itemgetter(1))
                    room -= cheapest[1]
                    if room < 0:
                        break
                    self._let_on(cheapest)
                if self._spent:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._rest()
        finally:
            self._keeper, self._spent = None, 0.0
            while self._waiting:
                trio.lowlevel.reschedule(self._waiting.popleft()[0])

    def _let_on(self, place: tuple[trio.lowlevel.Task, float]) -> None:
        self._waiting.remove(place)
        self._spent += place[1]
        trio.lowlevel.reschedule(place[0])

    async def _rest(self) -> None:
        self._keeper = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._keeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
