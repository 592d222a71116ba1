"""Rates: a token bucket for what is refused beyond a rate, and a pace for what is made to wait."""

from __future__ import annotations

_ONE = 1 - 1e-6  # who has waited as long as told is not to wait for a rounding error


class Bucket:
    """A bucket that is full at first.

    Args:
        per_minute: how quickly it fills; 0 for no limit at all.
        burst: how much it holds, 1 or more.

    Attributes:
        limited: whether there is a rate, so that :meth:`take` may refuse.
    """

    __slots__ = ("_at", "_burst", "_level", "_rate", "limited")

    def __init__(self, per_minute: float, burst: int) -> None:
        self.limited = per_minute > 0
        self._rate = per_minute / 60
        self._burst = float(burst)
        self._level = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take one at ``now`` seconds: 0.0 if there is one, else the seconds until there is."""
        rate = self._rate
        if not rate:
            return 0.0
        level = min(self._burst, self._level + max(now - self._at, 0.0) * rate)
        self._at = now
        if level >= _ONE:
            self._level = level - 1
            return 0.0
        self._level = level
        return (1 - level) / rate

    def take_all(self, count: int, now: float) -> int:
        """Take up to ``count``; return how many there were."""
        taken = 0 if self._rate else count
        while taken < count and not self.take(now):
            taken += 1
        return taken


class Pace:
    """How far somebody is ahead of a rate, which is waited for.

    As much as is due in a second may come at once.
    """

    __slots__ = ("_ahead", "_at")

    def __init__(self) -> None:
        self._ahead = 0.0  # seconds
        self._at = 0.0

    def spend(self, amount: float, rate: float, now: float) -> float:
        """Take note of ``amount`` at ``now``; return the seconds to wait before more may come.

        Args:
            amount: bytes or messages.
            rate: of these, a second; 0 for any.
            now: seconds that only go forward.
        """
        if not rate:
            self._ahead = 0.0
            return 0.0
        self._ahead = max(0.0, self._ahead - (now - self._at)) + amount / rate
        self._at = now
        return max(0.0, self._ahead - 1.0)
