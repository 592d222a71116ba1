"""How long a slow consumer may hold others up, without I/O."""

from __future__ import annotations

_SLICES = 10


class StallBudget:
    """A budget of waiting time within a sliding window.

    Args:
        budget: seconds that may be spent in any ``window`` seconds, which count for up to a
            tenth of the window longer.
        window: seconds.
    """

    __slots__ = ("_budget", "_slice", "_spent", "_until")

    def __init__(self, budget: float, window: float) -> None:
        self._budget = budget
        self._slice = window / _SLICES
        self._spent: dict[int, float] = {}  # number of the slice -> seconds
        self._until = float("-inf")

    def left(self, now: float) -> float:
        """Return how many seconds may be spent at ``now``."""
        oldest = int(now / self._slice) - _SLICES - 1
        for number in [number for number in self._spent if number <= oldest]:
            del self._spent[number]
        return self._budget - sum(self._spent.values())

    def spend(self, begun: float, ended: float) -> None:
        """Take note that someone waited from ``begun`` to ``ended``; overlaps count once."""
        begun = max(begun, self._until)
        if ended > begun:
            self._until = ended
            number = int(ended / self._slice)
            self._spent[number] = self._spent.get(number, 0.0) + ended - begun
