"""A clock that jumps from event to event, and the wires between daemons.

Everything that happens is an event in one heap, so a run is the same each time for the same seed,
and takes as long as the daemons' own work takes.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

EPOCH = 1_767_225_600.0
"""Seconds since the epoch at which a simulation begins: 2026-01-01."""


class World:
    """Time, chance, and which wires are broken.

    Args:
        seed: of all that is left to chance.
        latency: seconds from one daemon to another, on average.
        jitter: the part of it by which it may be less or more.

    Attributes:
        now: seconds since the start.
        rng: the source of chance.
        events: how many have happened.
        cut_pairs: pairs of daemons that cannot connect.
        swallowed_pairs: pairs of daemons between which all bytes are lost.
    """

    def __init__(self, *, seed: int = 0, latency: float = 0.001, jitter: float = 0.0) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.events = 0
        self.cut_pairs: set[frozenset[str]] = set()
        self.swallowed_pairs: set[frozenset[str]] = set()
        self._latency, self._jitter = latency, jitter
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0

    def clock(self) -> float:
        """Return :attr:`now`."""
        return self.now

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return EPOCH + self.now

    def delay(self) -> float:
        """Return how long something takes from one daemon to another."""
        return self._latency * (1 + self._jitter * (2 * self.rng.random() - 1))

    @property
    def longest_delay(self) -> float:
        """The most that :meth:`delay` returns."""
        return self._latency * (1 + self._jitter)

    def passable(self, src: str, dst: str) -> bool:
        """Return whether the wire between two daemons is whole."""
        pair = frozenset((src, dst))
        return pair not in self.cut_pairs and pair not in self.swallowed_pairs

    def schedule(self, at: float, call: Callable[..., None], *args: Any) -> None:
        """Call ``call`` at a time; calls at the same time keep their order."""
        self._scheduled += 1
        heapq.heappush(self._heap, (at, self._scheduled, call, args))

    @property
    def next_event(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def run_until(self, until: float) -> None:
        """Let time pass."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            at, _, call, args = pop(heap)
            self.now = max(self.now, at)
            self.events += 1
            call(*args)
        self.now = max(self.now, until)
