"""How far each worker has come with what the others have sent to it: numbers in shared memory.

So a worker knows which others are behind without a message, which would wake both of them.
"""

from __future__ import annotations

import mmap
import time

from pubsubd.siblings.kept import Kept

_SIZE = 8  # bytes of a number


class Progress:
    """The numbers, which processes that are forked off share: bytes since two were linked.

    Args:
        count: of workers.

    Attributes:
        begun: when it was made, on the clock of :func:`time.monotonic`.
        statistics, metrics: what each worker has told last of its counters.
    """

    def __init__(self, count: int) -> None:
        self.begun = time.monotonic()
        self.statistics, self.metrics = Kept(count), Kept(count)
        self._count = count
        self._done = memoryview(mmap.mmap(-1, _SIZE * count * count)).cast("Q")

    def note(self, worker: int, source: int, done: int) -> None:
        """Take note that a worker has worked off so much of what ``source`` has sent to it."""
        self._done[worker * self._count + source] = done

    def done(self, worker: int, source: int) -> int:
        """Return how much it has worked off."""
        return self._done[worker * self._count + source]
