"""How often something has happened at an address of late, without I/O."""

from __future__ import annotations

from collections import OrderedDict

_MINUTE = 60.0

ADDRESSES = 10_000
"""Addresses that are remembered."""


class Throttle:
    """Counts what happens by address, and forgets it steadily, all of it within a minute.

    Args:
        most: how much may happen in a minute.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how much, and when

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, address: str, now: float) -> None:
        """Take note that it has happened once more."""
        self._seen[address] = self._count(address, now) + 1, now
        self._seen.move_to_end(address)
        if len(self._seen) > ADDRESSES:
            self._seen.popitem(last=False)

    def full(self, address: str, now: float) -> bool:
        """Return whether it may not happen once more."""
        return self._count(address, now) > self._most - 1

    def since(self, address: str, now: float) -> float:
        """Return how many seconds ago it has happened last, as far as that is remembered."""
        return now - self._seen[address][1] if address in self._seen else float("inf")

    def _count(self, address: str, now: float) -> float:
        count, at = self._seen.get(address, (0.0, 0.0))
        return max(0.0, count - max(0.0, now - at) * self._most / _MINUTE)
