"""The daemon's own tasks: one that fails is started again.

Invariant: what a task raises ends that run of it and nothing else; only a task without which there
is no daemon ends it, when it fails again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from pubsubd.broker.faults import Endable, Faults
from pubsubd.protocol.errors import FailedError

PAUSES = (0.1, 30.0)
"""Seconds until a failed task is started again: first, and, doubled each time, at most."""

VITAL_FAILURES = 3
"""Failures within :data:`VITAL_TIME` of a task that the daemon cannot do without, which end it."""

VITAL_TIME = 60.0


class Tasks:
    """The tasks of one daemon.

    Args:
        nursery: where they run.
        faults: where their failures are counted.
        tell: called with an event, as ``//pubsubd/events`` has them, for each failure.

    Attributes:
        down: names of those that have failed and are not running again.
        restarts: how often each has been started again.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        faults: Faults,
        tell: Callable[[dict[str, object]], None] = lambda _event: None,
    ) -> None:
        self._nursery = nursery
        self._faults = faults
        self._tell = tell
        self.down: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()

    def start(
        self, name: str, run: Callable[[], Awaitable[object]], *, vital: bool = False
    ) -> None:
        """Run a task until it returns, again after each failure.

        Args:
            name: what it is called in the log, the events and the metrics.
            run: the task.
            vital: whether the daemon ends when it fails :data:`VITAL_FAILURES` times in a minute.
        """
        self.restarts.setdefault(name, 0)
        self._nursery.start_soon(self.keep, name, run, vital)

    async def keep(
        self, name: str, run: Callable[[], Awaitable[object]], vital: bool = False
    ) -> None:
        """As :meth:`start`, in the task that calls it.

        Raises:
            FailedError: it is vital and has failed too often.
        """
        pause, most = PAUSES
        failures: list[float] = []
        while True:
            begun = trio.current_time()
            try:
                await run()
            except Exception as error:  # noqa: BLE001  (whatever it is, the daemon goes on)
                place = self._faults.note(error, name)
            else:
                return
            now = trio.current_time()
            if now - begun > 2 * most:
                pause = PAUSES[0]
            failures = [at for at in failures if now - at < VITAL_TIME] + [now]
            if vital and len(failures) >= VITAL_FAILURES:
                raise FailedError(f"{name} has failed {len(failures)} times, at {place}")
            self.restarts[name] += 1
            self.down[name] += 1
            try:
                self._report(name, place, pause)
                await trio.sleep(pause)
            finally:
                self.down[name] -= 1
                if not self.down[name]:
                    del self.down[name]
            pause = min(most, 2 * pause)

    def _report(self, name: str, place: str, pause: float) -> None:
        event: dict[str, object] = {
            "event": "task-failed",
            "task": name,
            "detail": f"a fault of the daemon's own, at {place}; started again in {pause:g} s",
        }
        try:
            self._tell(event)
        except Exception as error:  # noqa: BLE001  (as above)
            self._faults.note(error, name)


async def contain(
    faults: Faults, member: Endable, run: Callable[[], Awaitable[None]], tries: int = 1
) -> None:
    """Run a task of a connection, again if it fails; what it raises ends that connection."""
    for _ in range(tries):
        try:
            await run()
        except Exception as error:  # noqa: BLE001  (whatever it is, the others go on)
            faults.end(member, error)
        else:
            return


def guarded(faults: Faults, name: str, call: Callable[[], object], tries: int = 1) -> None:
    """Call ``call``, again if it fails; what it raises is counted and goes no further."""
    for _ in range(tries):
        try:
            call()
        except Exception as error:  # noqa: BLE001  (as above)
            faults.note(error, name)
        else:
            return
