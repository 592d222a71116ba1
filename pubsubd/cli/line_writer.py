"""Writes lines to a descriptor in a thread of its own, so that nobody waits for their reader.

A pipe that is not read, a terminal that is stopped or a disk that does not answer would hold up the
whole daemon. A non-blocking descriptor would be no help: the flag belongs to the open file, which
other programs share, and files block all the same. Nor would asking first whether there is room:
another writer may take it.

Invariants:

- :meth:`LineWriter.put` waits for nothing but a few steps of the thread in memory.
- Lines are written in order, each by one call if the descriptor takes it whole.
- Each line is written or counted as lost, and the count is written as soon as there is room.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from pubsubd.cli.streams import write_all

ROOM = 1024 * 1024
"""Bytes of lines that may wait. After a loss, others are taken again when half of it is free."""

PATIENCE = 1.0
"""Seconds that the end of the daemon waits for the reader of its last lines."""

_PAUSE = 0.1  # seconds until it goes on after a fault, which may come again at once


class LineWriter:
    """Writes lines to ``descriptor``.

    Args:
        descriptor: where they go; it stays open.
        tell_lost: returns the line that says how many were lost; called in the thread, too.
        room: bytes of lines that may wait.

    Attributes:
        lost: lines that were lost so far.
    """

    def __init__(
        self, descriptor: int, tell_lost: Callable[[int], bytes], *, room: int = ROOM
    ) -> None:
        self._descriptor = descriptor
        self._tell_lost = tell_lost
        self.room = room
        self._lines: deque[tuple[bytes, int]] = deque()  # and of how many lost ones each tells
        self._size = 0
        self.lost = 0
        self._lost = 0  # those that are not told yet
        self._writing = False
        self._changed = threading.Condition()
        # A daemon thread: it may be stuck in a write when the process ends.
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes) -> None:
        """Let a line be written, or count it as lost if too much waits already."""
        with self._changed:
            room = self.room // 2 if self._lost else self.room
            if self._size + len(line) > room:
                self._lost += 1
                self.lost += 1
                return
            self._append_lost()
            self._append(line, 0)
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Lines that wait to be written, without the one that is being written."""
        return len(self._lines)

    def close(self, seconds: float) -> None:
        """Wait until all lines are written, for so many seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._lines or self._writing), seconds)

    def _append(self, line: bytes, count: int) -> None:
        self._lines.append((line, count))
        self._size += len(line)

    def _append_lost(self) -> None:
        if self._lost:
            self._append(self._tell_lost(self._lost), self._lost)
            self._lost = 0

    def _run(self) -> None:
        while True:
            try:
                self._write()
            except Exception:  # noqa: BLE001  (there has to be a log, of this most of all)
                with self._changed:
                    self._lost += 1
                    self.lost += 1
                time.sleep(_PAUSE)

    def _write(self) -> NoReturn:
        """Write lines for ever."""
        written = True
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                line, count = self._lines.popleft()
                self._size -= len(line)
                if written and self._size <= self.room // 2:
                    self._append_lost()
                self._writing = True
            try:
                write_all(self._descriptor, line)
                written = True
            except OSError:  # the disk is full, or the reader has gone
                with self._changed:
                    self._lost += count or 1
                    self.lost += not count
                written = False


def write_in_time(descriptor: int, data: bytes, seconds: float) -> None:
    """Write ``data``, and give up after so many seconds, or if it cannot be written."""

    def write() -> None:
        with contextlib.suppress(OSError):
            write_all(descriptor, data)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(seconds)
