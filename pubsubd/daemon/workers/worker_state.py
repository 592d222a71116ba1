"""What the supervisor knows of one worker.

Invariant: ``WorkerState.open`` is what the worker has told last, and what was passed to it after
that; so no mistake outlasts the next time that it tells.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from pubsubd.daemon.workers.channel import Channel

PAUSES = (0.1, 30.0)
"""Seconds until a worker that has died is started again: first, and, doubled each time, at most."""

LATE = 0.5
"""Seconds after which a worker that has not answered gets no connections while others do."""


SILENT = 30.0
"""Seconds after which a worker that does not answer is killed."""


class WorkerState:
    """A worker, as the supervisor knows it.

    Attributes:
        number: of it, from 0.
        pid: 0 while there is none.
        watch: a descriptor that tells of its end; -1 while there is none.
        channel: to it.
        ready: whether it serves.
        links: how many links to each other worker it has been given.
        open: connections that were passed to it and have not ended, by the name of their listener.
        begun, heard: when it was started, and when it said something.
        asked: when it was asked for an answer, and none has come yet; 0 if it was not.
        pause: seconds until it is started again, should it die.
        start_at: when it is started again.
        messages: that it has received.
        owed: how often it has been given settings without an answer so far.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.watch = -1
        self.channel: Channel | None = None
        self.ready = False
        self.links: Counter[int] = Counter()
        self.open: Counter[str] = Counter()
        self._passed = 0
        self._untold: deque[tuple[int, str]] = deque()  # passed, and it has not told of them
        self.begun = self.heard = self.asked = 0.0
        self.pause = PAUSES[0]
        self.start_at = 0.0
        self.messages = self.owed = 0

    @property
    def alive(self) -> bool:
        """Whether it runs, or has ended and is not buried."""
        return self.pid != 0

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(self.open.values())

    def begin(self, now: float) -> None:
        """Take note that it is started, and has nothing yet."""
        self.forget()
        self.links.clear()
        self.begun = self.heard = now
        self.asked = 0.0
        self.ready, self.messages, self._passed, self.owed = False, 0, 0, 0

    def hear(self, now: float) -> None:
        """Take note that it has said something."""
        self.heard, self.asked = now, 0.0

    def needs_asking(self, now: float) -> bool:
        """Return whether it is to be asked whether it stands still, and note that it is."""
        if self.asked or now - self.heard < LATE:
            return False
        self.asked = now
        return True

    def answered(self) -> bool:
        """Take an answer about settings; return whether these are the last that it was given."""
        self.owed -= 1
        return self.owed == 0

    def stuck(self, now: float) -> bool:
        """Return whether it has said nothing for so long that another is to be started.

        Before it is ready, it may be reading files, and a disk may be slow.
        """
        return self.alive and now - self.heard > (SILENT if self.ready else 2 * SILENT)

    def late(self, now: float) -> bool:
        """Return whether it stands still, as far as is known."""
        return bool(self.asked) and now - self.asked > LATE

    def forget(self) -> None:
        """Take note that all of its connections have ended."""
        self.open.clear()
        self._untold.clear()

    def add(self, name: str) -> int:
        """Count a connection that is passed to it now, and return its number at this worker."""
        self._passed += 1
        self._untold.append((self._passed, name))
        self.open[name] += 1
        return self._passed

    def take_open(self, passed: int, counts: Mapping[str, int]) -> None:
        """Take how many are open, without those that it has been passed after the given one."""
        while self._untold and self._untold[0][0] <= passed:
            self._untold.popleft()
        self.open = Counter(counts)
        self.open.update(name for _, name in self._untold)
