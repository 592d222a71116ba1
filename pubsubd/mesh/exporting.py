"""The task that exports edge lists, and has them compacted by a process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

import pubsubd
from pubsubd.mesh.compaction import is_due
from pubsubd.mesh.edge_files import Exporter

log = logging.getLogger("pubsubd")

PERIOD = 1800.0
"""Seconds between two compactions: one packs an hour, and the next one removes its lists."""

QUIET = 3600.0
"""Seconds after which the same failure is told again."""

_PAST = 300.0  # when an hour is over, its last list is written, and its files may be removed


@dataclass(frozen=True, slots=True)
class Export:
    """What to export; pubsubd.conf(5) explains it.

    Attributes:
        directory: where the edge lists go.
        interval: seconds between two of them.
        detail: seconds for which all are kept.
        age: seconds after which they are removed.
        size: bytes of all of them together.
    """

    directory: str
    interval: float = 60.0
    detail: float = 86_400.0
    age: float = 365 * 86_400.0
    size: int = 2**30


class Exporting:
    """The export of a daemon. Nothing that goes wrong with it is more than a warning."""

    def __init__(self, settings: Export, listing: Callable[[], Awaitable[bytes]]) -> None:
        self._settings = settings
        self._listing = listing
        self._changed = trio.Event()
        self._warned: dict[str, float] = {}  # event and reason -> when it was told

    def replace(self, settings: Export) -> None:
        """Go on with other settings, in the same directory."""
        self._settings = settings
        self._changed.set()

    async def run(self) -> None:
        """Export until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_compacting)
            begun = trio.current_time()
            while True:
                self._changed = trio.Event()
                with trio.move_on_at(begun + self._settings.interval) as waiting:
                    await self._changed.wait()
                if waiting.cancelled_caught:
                    begun = trio.current_time()
                    await self._write(self._settings)

    async def _write(self, settings: Export) -> None:
        lines = await self._listing()
        exporter = Exporter(settings.directory)

        def write() -> None:
            now = time.time()
            written = exporter.write_lines(lines, now)
            exporter.remove_old(now, settings.age, settings.size, written)

        try:
            # A file system that does not answer is given up when the daemon ends.
            await trio.to_thread.run_sync(write, abandon_on_cancel=True)
        except OSError as error:
            self._warn("event=export-failed", str(error))

    async def _keep_compacting(self) -> None:
        """Compact at the start, for what an earlier one has left, and then every half hour."""
        while True:
            settings = self._settings
            look = partial(is_due, Path(settings.directory), settings.detail, time.time())
            with suppress(OSError):  # the export tells of it
                if await trio.to_thread.run_sync(look, abandon_on_cancel=True):
                    await self._compact(settings)
            await trio.sleep(PERIOD - (time.time() - _PAST) % PERIOD)

    async def _compact(self, settings: Export) -> None:
        program = (sys.executable, "-P", "-m", "pubsubd.mesh.compaction")
        paths = [str(Path(pubsubd.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        try:
            done = await trio.run_process(
                [*program, settings.directory, str(settings.detail)],
                capture_stderr=True,
                stdout=subprocess.DEVNULL,
                check=False,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
                deliver_cancel=_kill,
            )
        except OSError as error:
            self._warn("event=compaction-failed", f"{sys.executable}: {error.strerror or error}")
            return
        if done.returncode:
            told = done.stderr.decode(errors="replace").splitlines()
            self._warn("event=compaction-failed", told[-1] if told else f"status {done.returncode}")

    def _warn(self, event: str, why: str) -> None:
        """Log a failure, the same one once an hour."""
        now = trio.current_time()
        self._warned = {one: at for one, at in self._warned.items() if now - at < QUIET}
        if (known := f"{event} {why}") not in self._warned:
            self._warned[known] = now
            told = json.dumps(self._settings.directory), json.dumps(why)
            log.warning("%s directory=%s error=%s", event, *told)


async def _kill(process: trio.Process) -> None:
    """End a compaction at once, which may be done at any time; the daemon waits for it."""
    process.kill()
