"""Checks passwords in threads, in the order that :mod:`pubsubd.access.checks` has for them."""

from __future__ import annotations

from functools import partial

import trio

from pubsubd.access.checks import AT_A_TIME, Checks
from pubsubd.broker.faults import Faults
from pubsubd.broker.peer import Check
from pubsubd.transport.tasks import contain, guarded

LONGEST_WAIT = 60.0
"""Seconds that a check may wait for its turn; then it is refused."""


class Place:
    """The place of a check in the queue.

    Attributes:
        started: whether it runs or has run.
        done: set when it has run, or is refused.
        error: what it has raised.
    """

    __slots__ = ("address", "check", "done", "error", "started")

    def __init__(self, check: Check) -> None:
        self.check = check
        self.address = check.address
        self.started = False
        self.done = trio.Event()
        self.error: Exception | None = None

    def end(self, _code: str, text: str) -> None:
        """Let it end with a fault."""
        self.error = RuntimeError(text)
        self.done.set()

    def refuse(self) -> None:
        """Let nobody wait for it any more."""
        self.check.refuse()
        self.done.set()


class Checker:
    """Runs checks.

    Args:
        nursery: where tasks for them run.
        checks: has their order.
        faults: where mistakes in what is around them are counted.
    """

    def __init__(self, nursery: trio.Nursery, checks: Checks[Place], faults: Faults) -> None:
        self._nursery = nursery
        self._checks = checks
        self._faults = faults
        self._threads = trio.CapacityLimiter(AT_A_TIME)

    async def run(self, check: Check) -> None:
        """Return when ``check`` was run or refused; raises what it has raised.

        After a cancellation it waits no longer; if it runs already, nobody hears what comes of it.
        """
        place = Place(check)
        try:
            refused = self._checks.add(place)
            if refused is not None:
                refused.refuse()
            self._fill()
            with trio.move_on_after(LONGEST_WAIT):
                await place.done.wait()
            if not place.started:
                place.refuse()
            await place.done.wait()
        finally:
            self._checks.remove(place)
        if place.error is not None:
            raise place.error

    def _fill(self) -> None:
        """Run what may run."""
        while (place := self._checks.take()) is not None:
            place.started = True
            # Again, if it fails before it has begun, as its place has to be given back.
            self._nursery.start_soon(
                contain, self._faults, place, partial(self.carry_out, place), 2
            )

    async def carry_out(self, place: Place) -> None:
        """Make the check of a place, and give the place back."""
        try:
            # Whoever ends the daemon does not wait for it.
            await trio.to_thread.run_sync(
                place.check.run, abandon_on_cancel=True, limiter=self._threads
            )
            place.check.settle()  # first: the next turn depends on it
        except Exception as error:  # noqa: BLE001  (raised where it is waited for)
            place.error = error
        done = partial(self._checks.done, place)
        for step in (done, done, place.done.set, self._fill, self._fill):  # again, if one fails
            guarded(self._faults, "checks", step)
