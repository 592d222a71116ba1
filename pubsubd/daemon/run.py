"""The daemon: listeners, connections, signals, and how all of it ends.

One nursery holds everything. The first SIGTERM or SIGINT drains: what has been received
is carried out and delivered, every peer is told, and :func:`run` returns. The second one
raises :class:`~pubsubd.protocol.errors.AbortedError` at once. SIGHUP reads the settings again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import trio

from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.traffic import INTERVAL
from pubsubd.broker.turn import finish
from pubsubd.daemon.garbage import Garbage
from pubsubd.daemon.lag import LoopLag
from pubsubd.daemon.live import keep_live
from pubsubd.daemon.ports_file import write_ports
from pubsubd.daemon.reload import Prepared, Reloader, prepare
from pubsubd.daemon.reloading import log_warnings, read_again, reload_on_signal
from pubsubd.daemon.scraping import Scraping
from pubsubd.daemon.signals import open_hangups, open_signals, wait_signal
from pubsubd.daemon.status import Status
from pubsubd.daemon.systemd import Notifier, take_sockets
from pubsubd.daemon.warnings import inherited, warnings
from pubsubd.protocol import wire
from pubsubd.protocol.errors import AbortedError, ConfigError, FailedError
from pubsubd.protocol.limits import MIB
from pubsubd.settings.config import Config, MeshOptions
from pubsubd.transport.accept import (
    Listener,
    Refusal,
    Reserve,
    accept_all,
    raise_descriptors,
    user_name,
)
from pubsubd.transport.addresses import is_loopback, served
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.listen import BoundSocket, describe, listen
from pubsubd.transport.protocol import MakeProtocol
from pubsubd.transport.server import OnBackpressure, Server
from pubsubd.transport.tasks import guarded

if TYPE_CHECKING:
    from pubsubd.hub.port import Hub
    from pubsubd.mesh.dial import Mesher

log = logging.getLogger("pubsubd")

SWEEP = 1.0
"""Seconds between two looks at all connections, at most."""

_SWEEP_LEAST = 0.02
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_ENDS = (signal.SIGTERM, signal.SIGINT)


async def run(
    config: Config,
    *,
    early_signals: Sequence[int] = (),
    reload: Callable[[], Config] | None = None,
    on_backpressure: OnBackpressure | None = None,
    task_status: trio.TaskStatus[dict[str, Any]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until a signal, then drain.

    Args:
        config: what to listen on, and the limits.
        early_signals: signals that came before this was called, if someone caught them.
        reload: returns what SIGHUP is to put into force, or raises ConfigError; None for nothing.
        on_backpressure: called with a slow peer and the bytes it had waiting.
        task_status: ``started`` is called with ``{"line": {"host", "port", "addresses"}, "hub":
            {...}, "unix", "pid"}`` (as far as they are there) once all listeners accept.

    Raises:
        ConfigError: the settings cannot be used.
        OSError: a socket or file cannot be had.
        AbortedError: a second signal came before everything was delivered.
        FailedError: a task without which there is no daemon has failed again and again.
    """
    prepared = prepare(config)
    with contextlib.ExitStack() as stack:
        alone = Alone(config, stack, early_signals, reload, task_status)
        log_warnings(warnings(prepared, inherited(alone.all_bound)))
        await serve(prepared, alone, on_backpressure)


class Place(Protocol):
    """What a daemon stands in: the service manager, or the process that it is a worker of.

    Attributes:
        all_bound: the listening sockets.
        notifier: is told how the daemon is.
    """

    @property
    def all_bound(self) -> Sequence[BoundSocket]:
        """Return the listening sockets."""

    @property
    def notifier(self) -> Notifier:
        """Return what is told how the daemon is."""

    def join(self, reloader: Reloader, scraping: Scraping | None) -> None:
        """Take note of the parts of the daemon, before it serves."""

    async def accept(
        self,
        all_listeners: list[Listener],
        server: Server,
        reserve: Reserve,
        listeners: trio.CancelScope,
        closed: trio.Event,
    ) -> None:
        """Accept connections until ``listeners`` is cancelled; then set ``closed``."""

    async def reload(self, reloader: Reloader, status: Status) -> None:
        """Put other settings into force, whenever somebody wants that."""

    async def begin(self) -> None:
        """Tell that the daemon serves."""

    async def wait_end(self, server: Server) -> None:
        """Wait until it is to end."""

    async def wait_abort(self) -> None:
        """Wait until it is to end at once."""

    def finish(self) -> None:
        """Take note that it has ended."""


class Alone:
    """The place of a daemon that is one process; arguments as for :func:`run`."""

    def __init__(
        self,
        config: Config,
        stack: contextlib.ExitStack,
        early_signals: Sequence[int],
        reload: Callable[[], Config] | None,
        task_status: trio.TaskStatus[dict[str, Any]],
    ) -> None:
        self._config, self._stack = config, stack
        self._early_signals, self._reload = early_signals, reload
        self._task_status = task_status
        self._signals = stack.enter_context(open_signals(*_ENDS))
        self._hangups = stack.enter_context(open_hangups())
        self.notifier = stack.enter_context(contextlib.closing(Notifier()))
        self.all_bound = listen(
            config.all_listeners(), take_sockets(), insecure=config.insecure, stack=stack
        )
        self.accept = accept_all

    def join(self, reloader: Reloader, scraping: Scraping | None) -> None:
        """Let the hub port be part of the mesh's, if there is one."""
        if reloader.hub is not None and reloader.mesher is not None:
            mesh = reloader.mesher.mesh
            reloader.hub.join(mesh.directory, far=(mesh.letters, mesh.streams))

    async def reload(self, reloader: Reloader, status: Status) -> None:
        """Read the settings again at each SIGHUP."""
        reload = self._reload
        read = None if reload is None else partial(read_again, reload, self.all_bound)
        await reload_on_signal(self._hangups, read, reloader, self.notifier, status)

    async def begin(self) -> None:
        """Write the ports file, and tell that the daemon serves."""
        ports = describe(self.all_bound)
        if self._config.ports_file is not None:
            await write_ports(Path(self._config.ports_file), ports, self._stack)
        log.info("event=ready %s", describe_addresses(self.all_bound))
        self.notifier.ready()
        self._task_status.started(ports)

    async def wait_end(self, server: Server) -> None:
        """Wait for the first signal."""
        if not self._early_signals:
            await wait_signal(self._signals)
        log.info("event=draining connections=%d", len(server.connections))
        self.notifier.stopping()

    async def wait_abort(self) -> None:
        """Wait for the second signal."""
        await wait_signal(self._signals)

    def finish(self) -> None:
        """Log that the daemon has ended."""
        log.info("event=stopped")


async def serve(
    prepared: Prepared, place: Place, on_backpressure: OnBackpressure | None = None
) -> None:
    """Serve in a place until it is to end, then drain; arguments and errors as for :func:`run`."""
    config, all_bound = prepared.config, place.all_bound
    limits = replace(config.limits, max_connections=raise_descriptors(config.limits))
    drained = False
    failed: list[FailedError] = []
    keep_memory()
    with contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            server = Server(limits, nursery, on_backpressure)
            server.broker.access.operators = frozenset(map(user_name, (0, os.geteuid())))
            reloader = Reloader(server)
            all_listeners = _open_listeners(all_bound, reloader, config)
            if config.mesh is not None:
                reloader.mesher = _open_mesh(config.mesh, server, all_bound)
            lag, scraping = LoopLag(), None
            if reloader.hub is not None:
                scraping = Scraping(reloader.hub, reloader, lag)
            place.join(reloader, scraping)
            finish(reloader.apply(prepared))
            reserve = Reserve()
            stack.callback(reserve.close)
            listeners, closed = trio.CancelScope(), trio.Event()
            dialling, reloading = trio.CancelScope(), trio.CancelScope()
            start = server.tasks.start
            server.start()
            if reloader.mesher is not None:
                nursery.start_soon(_run_within, dialling, reloader.mesher.run)
            nursery.start_soon(
                _accept,
                partial(place.accept, all_listeners, server, reserve, listeners, closed),
                failed,
                nursery,
            )
            garbage = Garbage(lambda: len(server.connections), collect=_collect)
            sweeps = [garbage.sweep]
            server.broker.totals.lag = lambda: lag.longest
            start("lag", lag.run)
            start("live", partial(keep_live, server))
            if reloader.hub is not None:
                start("hub", partial(_sweep_hub, reloader.hub))
            if scraping is not None:
                start("metrics", scraping.load)
            start("sweep", partial(_sweep, reloader, sweeps))
            start("statistics", partial(_publish_statistics, server))
            start("certificates", reloader.reminders.run)
            start("traffic", partial(_note_traffic, server.broker))
            status = Status(reloader, place.notifier)
            start("manager", status.run)
            start("files", status.watch)
            keep_reloading = partial(place.reload, reloader, status)
            keep_reloading = partial(server.tasks.keep, "reload", keep_reloading)
            nursery.start_soon(_run_within, reloading, keep_reloading)
            stack.enter_context(garbage.keep())
            await place.begin()
            await place.wait_end(server)
            if reloader.hub is not None:
                reloader.hub.ready = False
            nursery.start_soon(_abort, place, nursery.cancel_scope)
            for scope in (listeners, dialling, reloading):
                scope.cancel()
            await closed.wait()
            server.drain()
            await server.wait_empty()
            place.finish()
            drained = True
            nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not drained:
        raise AbortedError("ended by a second signal; what had not been delivered is lost")


# Starting


def _open_listeners(
    all_bound: Sequence[BoundSocket], reloader: Reloader, config: Config
) -> list[Listener]:
    """Return what listens, and let the reloader know what holds there."""
    server, listeners = reloader.server, []
    for bound in all_bound:
        one = bound.config
        state = reloader.listeners.get(one.name)
        if state is None:
            state = reloader.listeners[one.name] = ListenerState(
                one.name, one.limits, one.hub_limits
            )
        if one.protocol == "hub":
            if reloader.hub is None:
                reloader.hub = _make_hub(config, server)
                reloader.hub.line_addresses = _line_addresses(all_bound)
            make, refusal = _hub_listener(reloader.hub, state)
            listeners.append(Listener(bound, state, make, refusal))
        else:
            make = partial(LineProtocol, server.broker, listener=state)
            listeners.append(Listener(bound, state, make, wire.error_frame))
    return listeners


def _make_hub(config: Config, server: Server) -> Hub:
    # Without a hub port, what it stands on is not loaded: 8 MiB and 60 ms.
    from pubsubd.hub.port import Hub  # noqa: PLC0415

    hub = Hub(server.broker, config.hub_limits, clock=server.clock)
    hub.down = server.tasks.down
    return hub


def _line_addresses(all_bound: Sequence[BoundSocket]) -> list[dict[str, str | int | bool]]:
    return [
        {"host": host, "port": port, "tls": bound.config.tls is not None}
        for bound in all_bound
        if bound.config.protocol == "line" and bound.listener.family != socket.AF_UNIX
        for host, port in served(bound.listener)
    ]


def _hub_listener(hub: Hub, state: ListenerState) -> tuple[MakeProtocol, Refusal]:
    from pubsubd.hub.protocol import HubProtocol  # noqa: PLC0415
    from pubsubd.hub.web import refusal  # noqa: PLC0415

    return partial(HubProtocol, hub, listener=state), refusal


def _open_mesh(options: MeshOptions, server: Server, all_bound: Sequence[BoundSocket]) -> Mesher:
    """Return the daemon's part in the mesh.

    Raises:
        ConfigError: it cannot take part like that.
    """
    # Without a mesh, what it stands on is not loaded.
    from pubsubd.mesh.dial import Mesher  # noqa: PLC0415
    from pubsubd.mesh.settings import read_settings  # noqa: PLC0415

    found = [
        address
        for bound in all_bound
        if bound.config.protocol == "line" and bound.listener.family != socket.AF_UNIX
        for address in served(bound.listener)
    ]
    if not found:
        raise ConfigError("a mesh needs a TCP port for the line protocol")
    host, port = min(found, key=lambda one: is_loopback(one[0]))  # one that others reach, if any
    return Mesher(server, read_settings(options, host, port))


async def _accept(
    run: Callable[[], Awaitable[None]], failed: list[FailedError], nursery: trio.Nursery
) -> None:
    """Accept connections; where that is not possible, the daemon ends, to be started again."""
    try:
        await run()
    except* FailedError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, FailedError)
        failed.append(error)
        nursery.cancel_scope.cancel()


async def _run_within(scope: trio.CancelScope, run: Callable[[], Awaitable[object]]) -> None:
    with scope:
        await run()


def describe_addresses(all_bound: Sequence[BoundSocket]) -> str:
    """Return what listens where, as it stands in the log."""
    words: dict[str, list[str]] = {}
    families = dict[str, None]()
    for bound in all_bound:
        shown = words.setdefault(wire.escape(bound.config.name), [])
        if bound.listener.family == socket.AF_UNIX:
            shown.append(wire.escape(os.fsdecode(bound.listener.getsockname())))
            continue
        for host, port in served(bound.listener):
            shown.append(wire.show_address(host, port))
            families["ipv6" if ":" in host else "ipv4"] = None
    told = {"pid": [str(os.getpid())], "families": list(families)} | words
    return " ".join(f"{key}={','.join(values)}" for key, values in told.items() if values)


def keep_memory() -> None:
    """Let glibc keep some memory that was freed, instead of giving it back at once.

    Every read allocates and frees some 256 KiB. By default each of these is taken from the
    kernel anew, page by page, which was measured to cost a third of the time per byte.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 8 * MIB)


def _collect(crowd: bool) -> None:
    """Make a full collection, and give back what a crowd that has left had; glibc would keep it.

    Giving back takes a tenth of a second for 200 MiB, wherever it is done: nobody can allocate.
    """
    gc.collect()
    if crowd:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


# Background


async def _sweep(reloader: Reloader, sweeps: Sequence[Callable[[], None]]) -> None:
    server = reloader.server
    while True:
        await trio.sleep(sweep_interval(reloader.listeners.values()))
        await server.sweep()
        for sweep in sweeps:
            guarded(server.broker.faults, "sweep", sweep)


def sweep_interval(listeners: Iterable[ListenerState]) -> float:
    """Return the seconds between two sweeps: no timeout is late by more than a quarter."""
    shortest = float("inf")
    for one in listeners:
        limits, login = one.limits, one.limits.auth_timeout / 2  # which begins with a sweep, too
        shortest = min(shortest, limits.command_timeout, limits.handshake_timeout, login)
        shortest = min(shortest, one.hub_limits.heartbeat)
    return min(SWEEP, max(shortest / 4, _SWEEP_LEAST))


async def _sweep_hub(hub: Hub) -> NoReturn:
    """Let the hub port let go of what is over; others have their turn in between."""
    while True:
        await trio.sleep(SWEEP)
        for _ in hub.sweep():
            await trio.lowlevel.checkpoint()


async def _publish_statistics(server: Server) -> None:
    while True:
        await trio.sleep(server.limits.stats_interval)
        server.publish_statistics()


async def _note_traffic(broker: Broker) -> NoReturn:
    while True:
        await trio.sleep(INTERVAL)
        broker.totals.note()
        for _ in broker.traffic.note():
            await trio.lowlevel.checkpoint()


# Ending


async def _abort(place: Place, everything: trio.CancelScope) -> None:
    await place.wait_abort()
    everything.cancel()
