"""Limits the time of all connections together in one pass of the loop.

trio runs every task that is ready once before it looks for input again. If a hundred connections
each took a full turn in one pass, others would wait for all of these. So whoever is about to do
much, and everybody once a pass has taken a turn's time, enters the lane first, with what their
turn is likely to cost.

Of those who wait, the cheapest go on in one pass, as many as half a turn has room for, and the one
that has waited longest in the next: somebody who was once a little slow does not wait for all who
are busy. Whoever turns out to cost more than was likely makes the pass late, and the rest of those
who were let on wait again.

Between two passes with much there is one without: trio would run who takes a whole turn, and who
has spoken meanwhile, in any order. So a message waits for the turn in which it comes, and seldom
for a second one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from time import perf_counter
from typing import NoReturn

import trio

from pubsubd.protocol.limits import SOON, TURN

_ASIDE = TURN / 2  # seconds of a pass for those who cost little
_FEW = 100


class Lane(trio.abc.Instrument):
    """Lets about as many go on in one pass as take a :data:`~pubsubd.protocol.limits.TURN`, or one.

    Args:
        clock: seconds, as exact as can be had.

    Attributes:
        soon, late: by the clock, when the present pass has taken :data:`SOON
            <pubsubd.protocol.limits.SOON>`, and a turn's time.
        queued: how many wait for a turn, or have just been let on to one.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.soon = self.late = float("inf")
        self.queued = 0
        self._noted = True  # that a pass has begun since the last step of the task
        self._running = False  # without its task, it holds nobody back
        # Seconds that those who are let on are likely to take, in this pass and in the next one.
        self._spent = self._next = 0.0
        self._before = 0.0  # the same, of the pass before this one
        self._numbers = count()
        self._first = -1  # goes on in this pass, whatever others take of it
        self._waiting: dict[int, tuple[trio.Event, float]] = {}
        # Heaps of their numbers and of those that wait no more.
        self._oldest: list[int] = []
        self._cheapest: list[tuple[float, int]] = []
        self._idle: trio.Event | None = None  # while nobody is in the lane

    @property
    def entries(self) -> int:
        """Entries of its heaps; those of who waits no more are removed when they are many."""
        return len(self._oldest) + len(self._cheapest)

    def after_io_wait(self, timeout: float) -> None:
        """Note when a pass begins: trio calls this after it has looked for input."""
        self._noted = True
        self._before, self._spent, self._next = self._spent, self._next, 0.0
        now = self._clock()
        self.soon, self.late = now + SOON, now + TURN

    def enter(self, cost: float) -> bool:
        """Go on at once, if this pass has room, none waits who costs as little, the last had room.

        Args:
            cost: seconds that it is likely to take.
        """
        if not self._running:
            return True
        room, late = TURN, self.late
        if self._waiting:
            if self._cheapest and cost >= self._cheapest[0][0]:
                return False
            room, late = _ASIDE, late - _ASIDE  # the rest is for those who were let on
        if self._spent and self._spent + cost > room:
            return False
        if (cost > _ASIDE and self._before > _ASIDE) or self._clock() > late:
            return False
        self._spent += cost
        return True

    def give_back(self, seconds: float) -> None:
        """Let others have so much of the pass: whoever has entered was done earlier than likely."""
        self._spent = max(0.0, self._spent - seconds)

    async def wait(self, cost: float) -> None:
        """Wait for a pass that has room; always lets others run.

        Args:
            cost: seconds that it is likely to take.
        """
        if not self._running:
            await trio.lowlevel.checkpoint()
            return
        number = next(self._numbers)
        self.queued += 1
        try:
            # Others that were let on with it may have taken more than they were likely to.
            while True:
                if self._idle is not None:
                    self._idle.set()
                    self._idle = None
                turn = trio.Event()
                self._waiting[number] = turn, cost
                heappush(self._oldest, number)
                heappush(self._cheapest, (cost, number))
                await turn.wait()
                if number == self._first or self._clock() <= self.late:
                    return
        finally:
            self._waiting.pop(number, None)
            self.queued -= 1

    async def wait_next(self, cost: float) -> None:
        """Wait for the next pass that has room, for who has had a turn in this one.

        Args:
            cost: seconds that it is likely to take.
        """
        self.queued += 1
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self.queued -= 1
        if not self.enter(cost):
            await self.wait(cost)

    async def run(self) -> NoReturn:
        """Let those who wait go on, pass by pass.

        Raises:
            RuntimeError: it is no longer noted when a pass begins.
        """
        trio.lowlevel.add_instrument(self)
        self._noted = self._running = True
        self._spent = self._next = 0.0
        try:
            while True:
                if not self._noted:
                    raise RuntimeError("trio has dropped the instrument, as it does if one raises")
                self._noted = False
                while self._waiting and self._next + self._cheapest[0][0] <= _ASIDE:
                    self._let_on(heappop(self._cheapest)[1])
                if self._next:
                    await trio.lowlevel.checkpoint()
                while self._waiting and not self._next and self._spent <= _ASIDE:
                    self._first = heappop(self._oldest)
                    self._let_on(self._first)
                self._forget()
                if self._waiting:
                    await trio.lowlevel.checkpoint()
                else:
                    self._idle = trio.Event()
                    await self._idle.wait()
        finally:
            with suppress(KeyError):
                trio.lowlevel.remove_instrument(self)
            self.soon = self.late = float("inf")
            self._running, self._idle = False, None
            for number in list(self._waiting):
                self._let_on(number)

    def _let_on(self, number: int) -> None:
        if number in self._waiting:
            turn, cost = self._waiting.pop(number)
            self._next += cost
            turn.set()

    def _forget(self) -> None:
        """Drop those that wait no more from the heaps, once they are the most of them."""
        if len(self._cheapest) + len(self._oldest) > 4 * len(self._waiting) + _FEW:
            self._oldest = sorted(self._waiting)
            self._cheapest = sorted((cost, at) for at, (_, cost) in self._waiting.items())
