"""The daemon: listeners, connections, signals, and how all of it ends.

One nursery holds everything. The first SIGTERM or SIGINT drains: what has been received
is carried out and delivered, every peer is told, and :func:`run` returns. The second one
raises :class:`~pubsubd.protocol.errors.AbortedError` at once. SIGHUP reads the settings again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.traffic import INTERVAL
from pubsubd.broker.turn import Steps, finish
from pubsubd.daemon.garbage import Garbage
from pubsubd.daemon.lag import LoopLag
from pubsubd.daemon.live import keep_live
from pubsubd.daemon.ports_file import write_ports
from pubsubd.daemon.reload import Reloader, prepare
from pubsubd.daemon.reloading import log_warnings, read_again, reload_on_signal
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
    from pubsubd.daemon.metrics import Metrics
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
    limits = replace(config.limits, max_connections=raise_descriptors(config.limits))
    drained = False
    failed: list[FailedError] = []
    _keep_memory()
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(open_signals(*_ENDS))
        hangups = stack.enter_context(open_hangups())
        notifier = stack.enter_context(contextlib.closing(Notifier()))
        all_bound = listen(
            config.all_listeners(), take_sockets(), insecure=config.insecure, stack=stack
        )
        ports = describe(all_bound)
        async with trio.open_nursery() as nursery:
            server = Server(limits, nursery, on_backpressure)
            server.broker.access.operators = frozenset(map(user_name, (0, os.geteuid())))
            reloader = Reloader(server)
            all_listeners = _open_listeners(all_bound, reloader, config)
            if config.mesh is not None:
                reloader.mesher = _open_mesh(config.mesh, server, all_bound)
                if reloader.hub is not None:
                    mesh = reloader.mesher.mesh
                    reloader.hub.join(mesh.directory, mesh.letters, mesh.streams)
            finish(reloader.apply(prepared))
            log_warnings(warnings(prepared, inherited(all_bound)))
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
                partial(accept_all, all_listeners, server, reserve, listeners, closed),
                failed,
                nursery,
            )
            garbage = Garbage(lambda: len(server.connections), collect=_collect)
            sweeps = [garbage.sweep]
            lag = LoopLag()
            server.broker.totals.lag = lambda: lag.longest
            start("lag", lag.run)
            start("live", partial(keep_live, server))
            if reloader.hub is not None:
                start("hub", partial(_sweep_hub, reloader.hub))
                start("metrics", _open_metrics(reloader.hub, reloader, lag))
            start("sweep", partial(_sweep, reloader, sweeps))
            start("statistics", partial(_publish_statistics, server))
            start("certificates", reloader.reminders.run)
            start("traffic", partial(_note_traffic, server.broker))
            status = Status(reloader, notifier)
            start("manager", status.run)
            start("files", status.watch)
            read = None if reload is None else partial(read_again, reload, all_bound)
            keep_reloading = partial(reload_on_signal, hangups, read, reloader, notifier, status)
            keep_reloading = partial(server.tasks.keep, "reload", keep_reloading)
            nursery.start_soon(_run_within, reloading, keep_reloading)
            if config.ports_file is not None:
                await write_ports(Path(config.ports_file), ports, stack)
            stack.enter_context(garbage.keep())
            log.info("event=ready %s", _describe(all_bound))
            notifier.ready()
            task_status.started(ports)
            if not early_signals:
                await wait_signal(signals)
            log.info("event=draining connections=%d", len(server.connections))
            notifier.stopping()
            if reloader.hub is not None:
                reloader.hub.ready = False
            nursery.start_soon(_abort_on_signal, signals, nursery.cancel_scope)
            for scope in (listeners, dialling, reloading):
                scope.cancel()
            await closed.wait()
            server.drain()
            await server.wait_empty()
            log.info("event=stopped")
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

    hub = Hub(server.broker, config.hub_limits, clock=trio.current_time)
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


def _open_metrics(hub: Hub, reloader: Reloader, lag: LoopLag) -> Callable[[], Awaitable[None]]:
    """Let the hub port tell the metrics; return the task that has to run for that."""
    wanted, loaded = trio.Event(), trio.Event()

    async def load() -> None:
        # When somebody asks, in a thread: 4 MiB and 60 ms.
        await wanted.wait()
        module = partial(importlib.import_module, "pubsubd.daemon.metrics")
        await trio.to_thread.run_sync(module, abandon_on_cancel=True)
        loaded.set()

    @functools.cache
    def metrics() -> Metrics:
        from pubsubd.daemon.metrics import Metrics, Sources  # noqa: PLC0415

        mesh = None if reloader.mesher is None else reloader.mesher.report
        server = reloader.server
        return Metrics(Sources(server.broker, hub, lag, mesh, reloader, server.tasks))

    def scrape(accept: str) -> Steps[tuple[bytes, str]]:
        wanted.set()
        while not loaded.is_set():
            yield
        return (yield from metrics().render(accept))

    hub.scrape = scrape
    return load


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


def _describe(all_bound: Sequence[BoundSocket]) -> str:
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


def _keep_memory() -> None:
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


async def _abort_on_signal(signals: Any, everything: trio.CancelScope) -> None:
    await wait_signal(signals)
    everything.cancel()
