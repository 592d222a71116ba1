"""Mistakes in this program: counted by place, logged, and kept where they happen.

An exception that nobody expected ends the connection that it belongs to, or one run of a task of
the daemon, and nothing else. The few functions here are what that rests on: who calls foreign code
for somebody (a receiver, a leaving peer, a task) catches what it raises, and hands it to
:meth:`Faults.note` or :meth:`Faults.end`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from traceback import walk_tb
from typing import Protocol

log = logging.getLogger("pubsubd")

_QUIET = 60.0  # seconds between two tracebacks of one place in the log
_PACKAGE = __name__.partition(".")[0]


class Endable(Protocol):
    """Something that a fault can end."""

    @property
    def end(self) -> Callable[[str, str], None]:
        """Closes the connection, for a code and a text."""


class Faults:
    """The faults of one daemon.

    Args:
        clock: seconds that only go forward.

    Attributes:
        counts: how often each place has failed. There are no more places than functions.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._logged: dict[str, float] = {}  # place -> when its traceback was logged

    def note(self, error: BaseException, whose: str = "") -> str:
        """Count ``error``, and log its traceback once per place and minute.

        Args:
            error: what was raised.
            whose: the connection or task that it belongs to, for the log.

        Returns:
            The place: module and function, without the name of the package.
        """
        place = locate(error)
        self.counts[place] += 1
        now = self._clock()
        if now - self._logged.get(place, -_QUIET) >= _QUIET:
            self._logged[place] = now
            log.error("event=fault place=%s whose=%s", place, whose or "-", exc_info=error)
        return place

    def end(self, peer: Endable, error: BaseException) -> None:
        """End the connection that ``error`` belongs to, and no other."""
        place = self.note(error, getattr(peer, "label", ""))
        for _ in range(2):  # what ends it may fail as well
            try:
                peer.end("internal-error", f"a fault of the daemon's own, at {place}")
            except Exception as another:  # noqa: BLE001  (nothing may come back to the caller)
                self.note(another, getattr(peer, "label", ""))
            else:
                return


def locate(error: BaseException) -> str:
    """Return the innermost function of this package that ``error`` came through."""
    place = "unknown"
    while isinstance(error, BaseExceptionGroup):  # of tasks
        error = error.exceptions[0]
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == _PACKAGE:
            place = f"{module.removeprefix(_PACKAGE + '.')}.{frame.f_code.co_qualname}"
    return place
