"""When Python looks for objects that know only each other.

A full collection looks at all that lives, some 30 µs for each connection, and nothing else happens
meanwhile. Left to itself Python makes one whenever a quarter more has come to live: with 10,000
connections coming at once the daemon was measured to stop five times, for up to 0.3 s. So what is
young is looked through as always, and the rest when most of a crowd has left, or every ten minutes.
How many come and go does not matter, or clients could cause it.

What was there a second ago is not young: a table of a million substrings, or those of twenty
clients with 100,000 each, held up all others for 40 to 70 ms, twice, some time after they came.

What is in a cycle stays until then. A connection that has ended is in none, however it ended: of
2,800 that had spoken each dialect, a collection found nothing.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import trio

_NEVER = 1_000_000  # collections of the middle generation before a full one
_CROWD = 1_000  # connections from which on their leaving is worth a look
_MOST = 3  # how many times as many have to have left at once as stay
_LONGEST = 600.0  # seconds between two full collections


class Garbage:
    """Makes the full collections.

    Args:
        connections: how many there are now.
        collect: makes a full collection; told whether most of a crowd has left.
        clock: the time in seconds.
    """

    def __init__(
        self,
        connections: Callable[[], int],
        *,
        collect: Callable[[bool], object],
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._connections = connections
        self._collect = collect
        self._clock = clock
        self._at = clock()
        self._most = self._before = 0
        self._keeping = False

    @contextlib.contextmanager
    def keep(self) -> Iterator[None]:
        """Make them, instead of Python, as long as the block lasts, if it calls :meth:`sweep`."""
        before = gc.get_threshold()
        gc.set_threshold(before[0], before[1], _NEVER)
        gc.freeze()  # what start-up made stays
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False
            gc.unfreeze()
            gc.set_threshold(*before)

    def sweep(self) -> None:
        """Make one if it is time; to be called about once a second."""
        now, here = self._clock(), self._connections()
        self._most = max(self._most, here)
        leaving, self._before = here < self._before, here
        crowd = not leaving and self._most - here >= max(_CROWD, _MOST * here)
        if crowd or now - self._at >= _LONGEST:
            gc.unfreeze()
            self._collect(crowd)
            self._at, self._most = now, here
        if self._keeping:
            gc.freeze()  # takes no time
