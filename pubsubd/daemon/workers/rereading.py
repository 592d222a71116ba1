"""A reload, as the supervisor sees it: settings are read, and all workers put them into force.

They are read and checked in a process of its own: a disk may be slow, and files large.

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
        self._asked: set[int] = set()  # workers that put settings into force

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
        self._selector.register(ours, selectors.EVENT_READ, self._take)

    def _take(self, pipe: Any) -> None:
        data = os.read(pipe, 1 << 20)
        self._read += data
        if data:
            return
        self._stop_reading()
        try:
            settings, error, texts = pickle.loads(self._read)
        except Exception:  # noqa: BLE001  (it was killed, and has written nothing)
            settings, error, texts = None, "the process that reads them has ended", []
        if settings is None:
            self._end(error)
        else:
            self._asked = self._deliver(settings, texts)
            if not self._asked:  # those that are started again begin with what holds now
                self._end("")

    def note(self, number: int, error: str | None) -> None:
        """Take note that a worker has put settings into force, or of why it has not."""
        if number not in self._asked:
            return
        self._asked.discard(number)
        if error is not None:
            self._end(f"worker {number}: {error}")
        elif not self._asked:
            self._end("")

    def look(self, now: float) -> None:
        """Give up what has taken too long."""
        if self.under_way and now > self._deadline:
            self._stop_reading()
            self._end("the files have not been read, or put into force, in time")

    def stop(self) -> None:
        """Give it up: the daemon ends."""
        self._stop_reading()
        self.under_way = False
        self._asked.clear()

    def _end(self, error: str) -> None:
        self.under_way = False
        self._asked.clear()
        self._ended(error)

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
