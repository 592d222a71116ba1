"""Turns that take long, one in each pass of the loop: so many who are busy hold nobody up for long.

trio runs every task that is ready once before it looks for input again. If a hundred connections
each took a full turn in one pass, others would wait for all of these. So a connection whose last
turn took long enters the lane before its next one.
"""

from __future__ import annotations

from collections import deque
from typing import NoReturn

import trio


class Lane:
    """Lets one turn a pass go on; the rest wait for theirs, in order."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[trio.lowlevel.Task] = deque()
        self._keeper: trio.lowlevel.Task | None = None  # parked while the lane is free

    def enter(self) -> bool:
        """Take the turn of this pass, if nobody has it or waits for it."""
        if self._taken or self._waiting:
            return False
        self._take()
        return True

    def _take(self) -> None:
        if self._keeper is not None:  # without it, nothing is held back
            self._taken = True
            trio.lowlevel.reschedule(self._keeper)
            self._keeper = None

    async def wait(self) -> None:
        """Wait for a pass in which the turn is ours; always lets others run."""
        if self._keeper is None and not self._taken:
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        self._waiting.append(task)
        if self._keeper is not None:
            self._take()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def run(self) -> NoReturn:
        """Let the next one have its turn, once a pass."""
        try:
            while True:
                self._taken = bool(self._waiting)
                if self._waiting:
                    trio.lowlevel.reschedule(self._waiting.popleft())
                    await trio.lowlevel.checkpoint()
                else:
                    await self._rest()
        finally:
            self._keeper, self._taken = None, False
            while self._waiting:
                trio.lowlevel.reschedule(self._waiting.popleft())

    async def _rest(self) -> None:
        self._keeper = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._keeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
