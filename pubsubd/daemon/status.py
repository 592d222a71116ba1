"""Messages to the service manager while the daemon serves: that it is alive, and how it is.

The line of ``systemctl status`` also says since when the settings in force are older than the files
they were read from: one that was changed and not reloaded, and one that a reload has refused.
"""

from __future__ import annotations

import trio

from pubsubd.daemon.reload import Reloader
from pubsubd.daemon.systemd import Notifier

_STATUS = 10.0  # seconds between two lines
_PATIENCE = 1.0  # seconds that a disk has to answer


class Status:
    """Tells the service manager about the daemon.

    Args:
        reloader: has the settings in force.
        notifier: sends what is told.

    Attributes:
        older: which file has changed since it was read, and since when; empty if none has.
    """

    def __init__(self, reloader: Reloader, notifier: Notifier) -> None:
        self._reloader = reloader
        self._notifier = notifier
        self._threads = trio.CapacityLimiter(1)
        self.older = ""
        self._rate = 0.0

    async def run(self) -> None:
        """Tell that all is well, from the loop that does the work, and how much that is."""
        watchdog = self._notifier.watchdog
        interval = _STATUS if watchdog is None else min(_STATUS, watchdog / 3)
        counters = self._reloader.server.broker.counters
        counted, at = 0, float("-inf")
        while True:
            self._notifier.alive()
            now = trio.current_time()
            if now - at >= _STATUS:
                self._rate = (counters.messages_in - counted) / (now - at)
                counted, at = counters.messages_in, now
                self.tell()
            await trio.sleep(interval)

    async def watch(self, always: bool = False) -> None:
        """Look at the files now and then: a task of its own, as a disk may not answer.

        Args:
            always: whether to do so although the notifier tells nobody.
        """
        while always or self._notifier.listening:
            await self.look()
            await trio.sleep(_STATUS)

    async def look(self) -> None:
        """Look whether files have changed since they were read."""
        files = self._reloader.files
        with trio.move_on_after(_PATIENCE):
            self.older = await trio.to_thread.run_sync(
                files.describe_change, abandon_on_cancel=True, limiter=self._threads
            )

    def tell(self) -> None:
        """Send the line if it has changed."""
        parts = describe_settings(self.older, failed=self._reloader.failed)
        parts.append(f"{len(self._reloader.server.connections)} connections")
        self._notifier.status(f"{'; '.join(parts)}, {self._rate:.0f} messages/s")


def describe_settings(older: str, *, failed: bool) -> list[str]:
    """Return what is to be said of the settings in force, if anything is.

    Args:
        older: which file has changed since it was read.
        failed: whether settings were read since that had a fault.
    """
    if older:
        why = "a reload has failed, see the log" if failed else "not reloaded"
        return [f"settings in force are older than {older}: {why}"]
    return ["a reload has failed, see the log"] if failed else []
