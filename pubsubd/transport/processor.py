"""How long this process was ready to run and had no processor: then a long turn was not its doing.

The kernel counts it (``/proc/self/schedstat``, its second number). To read that costs too much for
each read of a connection, so it is noted about once a second, and asked for when a turn seems to
have taken long.
"""

from __future__ import annotations

_FILE = "/proc/self/schedstat"  # of the first thread, in which the loop runs


def read_delay() -> float:
    """Return the seconds since this process was started; infinity where nobody counts them.

    Raises nothing.
    """
    try:
        with open(_FILE, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return float("inf")


class Delay:
    """The seconds without a processor since the last :meth:`note`."""

    def __init__(self) -> None:
        self._noted = read_delay()

    def note(self) -> None:
        """Count from now on."""
        self._noted = read_delay()

    def since(self) -> float:
        """Return the seconds; infinity where nobody counts them."""
        now = read_delay()
        return now - self._noted if now < float("inf") else now
