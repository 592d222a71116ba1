"""A reload of a daemon of several workers, as its supervisor sees it, with a fault in each step."""

from __future__ import annotations

import contextlib
import selectors
import time
from pathlib import Path

import pytest

from pubsubd.daemon.workers.rereading import Rereading
from pubsubd.settings.load import Settings, load
from tests.daemons import DEADLINE


class Reload:
    """One reload, of which some calls fail.

    Attributes:
        delivered: settings that workers were to put into force.
        ended: what was told at the end: nothing, or what has failed.
    """

    def __init__(self, path: Path, *failing: str) -> None:
        path.write_text("max_payload = 1000\n")
        self._path = path
        self._failing = set(failing)
        self.delivered: list[Settings] = []
        self.ended: list[str] = []
        self._selector = selectors.DefaultSelector()
        self.rereading = Rereading(self._selector, self._deliver, self._end)

    def _fail(self, what: str) -> None:
        if what in self._failing:
            self._failing.discard(what)
            raise RuntimeError("on purpose")

    def _deliver(self, settings: Settings, _texts: list[str]) -> set[int]:
        self._fail("deliver")
        self.delivered.append(settings)
        return {0, 1}

    def _end(self, error: str) -> None:
        self._fail("end")
        self.ended.append(error)

    def run(self, **answers: str | None) -> None:
        """Do it, with answers of the workers ``w0`` and ``w1``."""
        self.rereading.begin(load({}, self._path), [])
        until = time.monotonic() + DEADLINE
        while self.rereading.under_way and time.monotonic() < until:
            for key, _ in self._selector.select(0.01):
                key.data(key.fileobj)
            with contextlib.suppress(RuntimeError):
                self.rereading.look(time.monotonic())
            if self.delivered:
                self.rereading.answers |= {int(name[1:]): text for name, text in answers.items()}
        self._selector.close()


@pytest.mark.parametrize("failing", ["", "deliver", "end"])
def test_a_step_of_a_reload_that_has_failed_is_taken_again(tmp_path: Path, failing: str) -> None:
    reload = Reload(tmp_path / "settings", failing)
    reload.run(w0=None, w1=None)
    assert reload.ended == [""]
    (settings,) = reload.delivered
    assert settings.config.limits.max_payload == 1000


@pytest.mark.parametrize("failing", ["", "end"])
def test_a_worker_that_could_not_put_settings_into_force_is_told_of(
    tmp_path: Path, failing: str
) -> None:
    reload = Reload(tmp_path / "settings", failing)
    reload.run(w1="no room")
    assert reload.ended == ["worker 1: no room"]
