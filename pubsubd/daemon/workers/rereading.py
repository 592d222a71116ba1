"""A reload, as the supervisor sees it: settings are read, and all workers put them into force.

They are read and checked in a process of its own: a disk may be slow, and files large.

Each step is taken by :meth:`Rereading.look`, which is called again and again, and what it rests on
changes last: so a step that has failed is taken again, up to the deadline.

Invariant: ``_process`` is that process while it lives, and else 0.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from pubsubd.daemon.check import check
from pubsubd.daemon.warnings import inherited, warnings
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.load import Settings
from pubsubd.transport.listen import BoundSocket

READ_TIMEOUT = 30.0
"""Seconds that reading the settings, and putting them into force, may take at a reload."""


class Rereading:
    """One reload after the other.

    Args:
        selector: of the supervisor's loop.
        deliver: called with settings and warnings about them; returns the numbers of the workers
            that put these settings into force.
        ended: called when a reload has ended, with what has failed, or nothing.

    Attributes:
        under_way: whether there is one now.
        answers: number of a worker -> what has failed there, or nothing, of those that have put the
            settings into force, or have been asked to.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        deliver: Callable[[Settings, list[str]], set[int]],
        ended: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._deliver, self._ended = deliver, ended
        self.under_way = False
        self._process, self._pipe, self._read = 0, -1, b""
        self._deadline = 0.0
        self._asked: set[int] | None = None  # workers that put settings into force
        self.answers: dict[int, str | None] = {}

    def begin(self, settings: Settings, bound: Sequence[BoundSocket]) -> None:
        """Read the settings again; ``bound`` are the sockets that they are checked with."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            _read_settings(settings, bound, theirs)
        os.close(theirs)
        os.set_blocking(ours, False)
        self.under_way, self._deadline = True, time.monotonic() + READ_TIMEOUT
        self._process, self._pipe, self._read = pid, ours, b""
        self._asked = None
        self._selector.register(ours, selectors.EVENT_READ, self._take)

    def _take(self, pipe: Any) -> None:
        data = os.read(pipe, 1 << 20)
        self._read += data
        if data:
            return
        self._stop_reading()

    def look(self, now: float) -> None:
        """Go on, if something has come; give up what has taken too long."""
        if not self.under_way:
            return
        if now > self._deadline:
            self._stop_reading()
            self._end("the files have not been read, or put into force, in time")
        elif self._process:
            return
        elif self._asked is None:
            self._go_on()
        else:
            answers = {one: self.answers[one] for one in self._asked if one in self.answers}
            for number, error in answers.items():
                if error is not None:
                    self._end(f"worker {number}: {error}")
                    return
            if len(answers) == len(self._asked):
                self._end("")

    def _go_on(self) -> None:
        """Let settings that have been read be put into force."""
        try:
            settings, error, texts = pickle.loads(self._read)
        except Exception:  # noqa: BLE001  (it was killed, and has written nothing)
            settings, error, texts = None, "the process that reads them has ended", []
        if settings is None:
            self._end(error)
        else:
            self.answers.clear()
            asked = self._deliver(settings, texts)
            if not asked:  # those that are started again begin with what holds now
                self._end("")
            self._asked = asked

    def stop(self) -> None:
        """Give it up: the daemon ends."""
        self._stop_reading()
        self.under_way = False

    def _end(self, error: str) -> None:
        self._ended(error)
        self.under_way = False

    def _stop_reading(self) -> None:
        """End the process that reads settings, if it has not ended."""
        if not self._process:
            return
        self._selector.unregister(self._pipe)
        os.close(self._pipe)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self._process = 0


def _read_settings(settings: Settings, bound: Sequence[BoundSocket], pipe: int) -> None:
    """Read and check the settings, and write what comes of it; never returns."""
    try:
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(one, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        result: tuple[Settings | None, str, list[str]]
        try:
            new = settings.reload()
            prepared = check(new.config, bound)
            result = new, "", warnings(prepared, inherited(bound))
        except ConfigError as error:
            result = None, str(error), []
        except Exception as error:  # noqa: BLE001  (whatever it is, the daemon goes on)
            result = None, f"an unexpected failure: {error!r:.200}", []
        with open(pipe, "wb") as file:
            pickle.dump(result, file)
    finally:
        os._exit(0)
