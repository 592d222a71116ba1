"""Limits the time and bytes of one connection before others are served.

A count of commands says nothing of what they cost: a request can have ten thousand rows. So a turn
ends by the clock, and by the bytes that it has made. Both are looked at where cost arises: after
each uncommon command, each receiver and each step of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Generic, TypeVar

from pubsubd.protocol.limits import BYTES_PER_TURN, TURN
from pubsubd.protocol.steps import Steps, finish

__all__ = ["SHARE", "Shared", "Steps", "Turn", "finish"]

SHARE = 20
"""How many times as long as it takes to make a shared answer, it holds."""

_MOST = 1.0  # seconds that one holds

Value = TypeVar("Value")


class Turn:
    """The turn that is being taken.

    Attributes:
        clock: returns seconds, as exact as can be had.
        made: bytes of answers made in it.
        length: seconds that the next one lasts; those after it last a
            :data:`~pubsubd.protocol.limits.TURN` again.
    """

    __slots__ = ("_until", "clock", "length", "made")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._until = 0.0
        self.made = 0
        self.length = TURN

    def begin(self) -> None:
        """Begin a turn."""
        self._until = self.clock() + self.length
        self.made = 0
        if self.length != TURN:
            self.length = TURN

    def end(self) -> None:
        """Let it be over."""
        self._until = float("-inf")

    def over(self) -> bool:
        """Return whether it has taken too long or made too much."""
        return self.clock() > self._until or self.made > BYTES_PER_TURN


class Shared(Generic[Value]):
    """An answer that is made once, in steps, for all who ask for it within a moment.

    It holds for :data:`SHARE` times as long as making it has taken, and for a second at most: so
    making it takes a small part of the time, however often it is asked for.

    Args:
        make: makes it.
        clock: seconds that only go forward.
        cost: seconds, to measure by what making it takes.
    """

    def __init__(
        self,
        make: Callable[[], Steps[Value]],
        clock: Callable[[], float],
        cost: Callable[[], float] = perf_counter,
    ) -> None:
        self._make = make
        self._clock = clock
        self._cost = cost
        self._making: Steps[Value] | None = None
        self._taken = 0.0
        self._made: tuple[Value, float] | None = None  # and until when it holds

    def get(self) -> Steps[Value]:
        """Return the answer, in steps: whoever waits for it goes on with making it."""
        while self._made is None or self._clock() >= self._made[1]:
            if self._making is None:
                self._making, self._taken = self._make(), 0.0
            making, begun = self._making, self._cost()
            try:
                next(making)
            except StopIteration as done:
                self._taken += self._cost() - begun
                until = self._clock() + min(_MOST, SHARE * self._taken)
                self._made, self._making = (done.value, until), None
                break
            except BaseException:
                self._making = None
                raise
            self._taken += self._cost() - begun
            yield
        return self._made[0]
