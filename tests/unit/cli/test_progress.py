"""The line that shows how far a long command is."""

from __future__ import annotations

import io
import itertools
import sys
import threading

import pytest

from pubsubd.cli.progress import Progress


class Screen(io.StringIO):
    """A terminal that tells when enough has been drawn on it."""

    def __init__(self, wanted: int, terminal: bool = True) -> None:
        super().__init__()
        self.wanted, self.terminal = wanted, terminal
        self.full = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("\r") >= self.wanted:
            self.full.set()
        return written


def test_the_time_on_a_terminal_ticks_while_a_stage_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(wanted=3)
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress(False, tick=0.001, clock=itertools.count().__next__)
    progress.stage("reading")
    assert screen.full.wait(10)
    progress.end()
    drawn = screen.getvalue().split("\r\x1b[K")
    assert drawn[:4] == ["", "   1.0 s  reading", "   2.0 s  reading", "   3.0 s  reading"]
    assert drawn[-1] == ""


def test_elsewhere_each_stage_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(wanted=1, terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress(False, clock=itertools.count().__next__)
    progress.stage("reading")
    progress.stage("writing")
    progress.end()
    assert screen.getvalue() == "   1.0 s  reading\n   2.0 s  writing\n"
