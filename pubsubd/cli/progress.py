"""The current stage of a long command, on standard error: on a terminal one line that ticks."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from pubsubd.cli.streams import echo

_TICK = 1.0  # seconds


class Progress:
    """Shows each stage with the time since the start.

    On a terminal it is one line, drawn anew each second by a thread; elsewhere each stage is a
    line. Meanwhile, all else that is written to standard error has to go elsewhere.

    Args:
        quiet: nothing is shown.
        tick: seconds between two drawings.
        clock: seconds that only go forward.
    """

    def __init__(
        self, quiet: bool, tick: float = _TICK, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet = quiet
        self._tick = tick
        self._clock = clock
        self._began = clock()
        self._terminal = sys.stderr.isatty()
        self._name = ""
        self._drawing = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def stage(self, name: str) -> None:
        """Show that ``name`` begins."""
        if self._quiet:
            return
        self._name = name
        if not self._terminal:
            echo(self._text(), err=True)
            return
        self._draw()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Leave an empty line to what comes next."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            echo("\r\x1b[K", err=True, nl=False)

    def _keep_drawing(self) -> None:
        with contextlib.suppress(OSError):  # whoever shows the next stage is told
            while not self._ended.wait(self._tick):
                self._draw()

    def _draw(self) -> None:
        with self._drawing:
            echo(f"\r\x1b[K{self._text()}", err=True, nl=False)

    def _text(self) -> str:
        return f"{self._clock() - self._began:6.1f} s  {self._name}"
