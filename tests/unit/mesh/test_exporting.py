"""The export of a daemon: when it writes, and what it says when it cannot."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from pubsubd.mesh.exporting import Export, Exporting


class Listings:
    """The lists that an export asks for, and when.

    The clock is moved by hand: an automatic one would not wait for the thread that writes.
    """

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock
        self._begun = trio.current_time()
        self.times: list[int] = []

    async def make(self) -> bytes:
        self.times.append(round(trio.current_time() - self._begun))
        return b""

    async def wait(self, seconds: float, *, due: bool) -> None:
        """Let time pass, and wait for a list if one is due then."""
        wanted = len(self.times) + due
        await trio.testing.wait_all_tasks_blocked()
        self._clock.jump(seconds)
        while len(self.times) < wanted:
            await trio.lowlevel.checkpoint()
        while trio.to_thread.current_default_thread_limiter().borrowed_tokens:
            await trio.lowlevel.checkpoint()  # it is being written
        await trio.testing.wait_all_tasks_blocked()
        assert len(self.times) == wanted


async def test_a_failure_is_told_once_an_hour(
    tmp_path: Path, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    directory = str(tmp_path / "file" / "edges")
    lists = Listings(mock_clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Exporting(Export(directory, interval=600), lists.make).run)
        for _ in range(8):
            await lists.wait(600, due=True)
        nursery.cancel_scope.cancel()
    (first, second) = caplog.records
    assert first.getMessage() == second.getMessage()
    assert first.levelno == logging.WARNING
    why = f"an edge list cannot be written to {directory!r}: Not a directory"
    assert first.getMessage() == f'event=export-failed directory="{directory}" error="{why}"'


async def test_another_interval_counts_from_the_last_list(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    slow = Export(str(tmp_path), interval=100)
    lists = Listings(mock_clock)
    exporting = Exporting(slow, lists.make)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exporting.run)
        await lists.wait(99, due=False)
        await lists.wait(1, due=True)
        await lists.wait(30, due=False)
        exporting.replace(replace(slow, interval=50))
        await lists.wait(19, due=False)
        await lists.wait(1, due=True)
        await lists.wait(20, due=False)
        exporting.replace(replace(slow, interval=10))  # that was over long ago
        await lists.wait(0, due=True)
        nursery.cancel_scope.cancel()
    assert lists.times == [100, 150, 170]
