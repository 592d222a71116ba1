"""Answers ``GET /metrics``; what makes the metrics is imported when the first scrape comes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from pubsubd.broker.turn import Steps
from pubsubd.daemon.lag import LoopLag

if TYPE_CHECKING:
    from pubsubd.daemon.metrics import Metrics
    from pubsubd.daemon.reload import Reloader
    from pubsubd.hub.port import Hub
    from pubsubd.siblings.kept import Kept

Gather = Callable[[], Steps[dict[int, bytes]]]


class Scraping:
    """Lets the hub port tell the metrics.

    Args:
        hub: the port.
        reloader: has the parts that metrics are of.
        lag: how late the loop is.

    Attributes:
        number: of this worker, from 0, if there are others.
        gather: returns the families of the others by their numbers, each as :meth:`families` makes
            them, in steps; None if this is the only worker.
        kept: what the workers keep of their counters; None if this is the only one.
    """

    def __init__(self, hub: Hub, reloader: Reloader, lag: LoopLag) -> None:
        self._hub, self._reloader, self._lag = hub, reloader, lag
        self.number = 0
        self.gather: Gather | None = None
        self.kept: Kept | None = None
        self._wanted, self._loaded = trio.Event(), trio.Event()
        hub.scrape = self.scrape

    async def load(self) -> None:
        """Import what is needed when somebody asks, in a thread: 4 MiB and 60 ms."""
        await self._wanted.wait()
        module = partial(importlib.import_module, "pubsubd.daemon.metrics")
        await trio.to_thread.run_sync(module, abandon_on_cancel=True)
        self._loaded.set()

    def scrape(self, accept: str) -> Steps[tuple[bytes, str]]:
        """Return all metrics and their content type, in steps, for the Accept header."""
        metrics = yield from self._metrics()
        if self.gather is None:
            return (yield from metrics.render(accept))
        others = yield from self.gather()
        own = yield from metrics.dump()
        return (yield from metrics.render_joined(accept, {self.number: own, **others}))

    def families(self) -> Steps[bytes]:
        """Return the families of this worker, for another one, in steps."""
        metrics = yield from self._metrics()
        return (yield from metrics.dump())

    def _metrics(self) -> Steps[Metrics]:
        self._wanted.set()
        while not self._loaded.is_set():
            yield
        return self._made

    @functools.cached_property
    def _made(self) -> Metrics:
        from pubsubd.daemon.metrics import Metrics, Sources  # noqa: PLC0415

        reloader = self._reloader
        mesh = None if reloader.mesher is None else reloader.mesher.report
        server = reloader.server
        hub, lag, tasks = self._hub, self._lag, server.tasks
        kept = self.number, self.kept
        return Metrics(Sources(server.broker, hub, lag, mesh, reloader, tasks, *kept))
