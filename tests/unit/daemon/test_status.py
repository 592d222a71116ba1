"""Is the service manager told how the daemon is, and since when its settings are out of date?"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pubsubd.daemon.files import ReadFiles
from pubsubd.daemon.status import Status


class Manager:
    """What a notifier sends, without a socket."""

    listening = True
    watchdog = None

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.news = trio.Event()

    def alive(self) -> None:
        """Nobody asks."""

    def status(self, text: str) -> None:
        if text != [*self.lines, ""][len(self.lines) - 1]:
            self.lines.append(text)
            self.news.set()

    async def next_line(self) -> str:
        await self.news.wait()
        self.news = trio.Event()
        return self.lines[-1]


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Fifty seconds a second: threads look at files meanwhile."""
    return trio.testing.MockClock(rate=50)


async def test_a_file_that_was_changed_and_not_reloaded_is_told(
    clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "pubsubd.toml"
    path.write_text("")
    counters = SimpleNamespace(messages_in=0)
    server = SimpleNamespace(broker=SimpleNamespace(counters=counters), connections=[1, 2])
    reloader: Any = SimpleNamespace(server=server, files=ReadFiles([str(path)]), failed=False)
    manager: Any = Manager()
    status = Status(reloader, manager)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(status.run)
        nursery.start_soon(status.watch)
        assert await manager.next_line() == "2 connections, 0 messages/s"
        os.utime(path, (1_800_000_000, 1_800_000_000))
        older = f"settings in force are older than {path} since 2027-01-15 08:00:00 UTC"
        assert await manager.next_line() == f"{older}: not reloaded; 2 connections, 0 messages/s"
        reloader.failed = True
        why = "a reload has failed, see the log"
        assert await manager.next_line() == f"{older}: {why}; 2 connections, 0 messages/s"
        reloader.files, reloader.failed = ReadFiles([str(path)]), False
        while (line := await manager.next_line()) != "2 connections, 0 messages/s":
            assert line.startswith(older)
        nursery.cancel_scope.cancel()
