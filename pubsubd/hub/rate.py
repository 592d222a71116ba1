"""A token bucket: so many at once, so many a minute in the long run."""

from __future__ import annotations

_ONE = 1 - 1e-6  # who has waited as long as told is not to wait for a rounding error


class Bucket:
    """A bucket that is full at first.

    Args:
        per_minute: how quickly it fills; 0 for no limit at all.
        burst: how much it holds, 1 or more.
    """

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, per_minute: float, burst: int) -> None:
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
