"""The daemon: listeners, sessions, signals, and how all of it ends.

One nursery holds everything. The first SIGTERM or SIGINT drains: what has been received
is carried out and delivered, every peer is told, and :func:`run` returns. The second one
raises :class:`~pubsubd.errors.AbortedError` at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import logging
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from pubsubd import wire
from pubsubd.errors import AbortedError, ConfigError
from pubsubd.limits import MIB, HubLimits, Limits
from pubsubd.line import LineTalk
from pubsubd.listen import Door, Refusal, Reserve, accept_all, listen, raise_descriptors
from pubsubd.server import OnBackpressure, Server
from pubsubd.session import MakeTalk

if TYPE_CHECKING:
    from pubsubd.hub.auth import Authority
    from pubsubd.mesh.dial import Mesher

log = logging.getLogger("pubsubd")

_SWEEP = 1.0  # seconds between two looks at all sessions
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """How to take part in a mesh of daemons; see pubsubd-mesh(7).

    Attributes:
        peers: ``HOST:PORT`` of daemons to dial for ever.
        name: of the mesh.
        node: this daemon's id in it; None for its address.
        secret_file: the file with the secret that all daemons of the mesh share; None for none.
        discover: whether to dial daemons that others tell of: ``linked`` those that linked daemons
            do, ``any`` those that any client does; empty for none.
        allow: networks that discovered addresses have to be in, as ``10.0.0.0/8``.
        max_peers: links up to which discovered daemons are dialled.
        advertise: ``HOST:PORT`` by which others can dial this daemon; None for where it listens.
        heartbeat: seconds between two signs of life on a link.
        export: directory for edge lists; None for none.
        export_interval: seconds between two of them.
    """

    peers: tuple[str, ...] = ()
    name: str = "default"
    node: str | None = None
    secret_file: str | None = None
    discover: str = ""
    allow: tuple[str, ...] = ()
    max_peers: int = 8
    advertise: str | None = None
    heartbeat: float = 1.0
    export: str | None = None
    export_interval: float = 60.0


@dataclass(frozen=True, slots=True)
class Config:
    """What to listen on.

    Attributes:
        host: a name or address, all of whose addresses are bound; None for no TCP at all.
        port: of the line protocol; 0 takes a free one.
        hub_port: of the hub port, as ``port``; None for none.
        unix: path of a Unix socket, or None.
        ports_file: where the real addresses are written as JSON once they accept.
        insecure: allow a ``host`` that is not loopback although nobody has to log in.
        limits: see :class:`~pubsubd.limits.Limits`.
        hub_limits: see :class:`~pubsubd.limits.HubLimits`.
        hub_auth: the file with the key that tokens are checked with on the hub port; None where
            none is asked for.
        hub_hosts: names by which browsers may reach the hub port, besides localhost and addresses.
        hub_origins: web pages that may use it, besides its own, as ``https://example.org``.
        mesh: how to take part in a mesh; None for not at all.
    """

    host: str | None = "127.0.0.1"
    port: int = 9014
    hub_port: int | None = 9015
    unix: str | None = None
    ports_file: str | None = None
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)
    hub_limits: HubLimits = field(default_factory=HubLimits)
    hub_auth: str | None = None
    hub_hosts: tuple[str, ...] = ()
    hub_origins: tuple[str, ...] = ()
    mesh: MeshOptions | None = None


async def run(
    config: Config,
    *,
    early_signals: Sequence[int] = (),
    on_backpressure: OnBackpressure | None = None,
    task_status: trio.TaskStatus[dict[str, Any]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until a signal, then drain.

    Args:
        config: what to listen on, and the limits.
        early_signals: signals that came before this was called, if someone caught them.
        on_backpressure: called with a slow peer and the bytes it had waiting.
        task_status: ``started`` is called with ``{"line": {"host", "port"}, "hub": {"host",
            "port"}, "unix", "pid"}`` (as far as they are there) once all listeners accept.

    Raises:
        ConfigError: the settings cannot be used.
        OSError: a socket or file cannot be had.
        AbortedError: a second signal came before everything was delivered.
    """
    authority = _load_key(config)
    limits = dataclasses.replace(config.limits, max_connections=raise_descriptors(config.limits))
    drained = False
    _keep_memory()
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_signals())
        listeners, ports = listen(
            config.host,
            {"line": config.port, "hub": config.hub_port},
            config.unix,
            insecure=config.insecure,
            stack=stack,
        )
        try:
            async with trio.open_nursery() as nursery:
                server = Server(limits, nursery, on_backpressure)
                kinds: dict[str, tuple[MakeTalk, Refusal]] = {
                    "line": (partial(LineTalk, server.broker), wire.error_frame)
                }
                sweeps = [server.sweep]
                if "hub" in ports:
                    kinds["hub"], sweep = _open_hub(config, server, authority)
                    sweeps.append(sweep)
                mesher = _open_mesh(config.mesh, server, ports) if config.mesh else None
                all_doors = [Door(listener, *kinds[name]) for name, listener in listeners]
                reserve = Reserve()
                stack.callback(reserve.close)
                doors, closed = trio.CancelScope(), trio.Event()
                dialling = trio.CancelScope()
                if mesher is not None:
                    nursery.start_soon(_run_mesh, mesher, dialling)
                nursery.start_soon(accept_all, all_doors, server, reserve, doors, closed)
                nursery.start_soon(_sweep, sweeps, min(_SWEEP, limits.command_timeout / 4))
                nursery.start_soon(_publish_statistics, server)
                if config.ports_file is not None:
                    _write_ports(Path(config.ports_file), ports, stack)
                gc.freeze()  # what start-up made stays; no collection has to look at it again
                log.info("event=ready %s", _describe(ports))
                task_status.started(ports)
                if not early_signals:
                    await _wait_signal(signals)
                log.info("event=draining connections=%d", len(server.sessions))
                nursery.start_soon(_abort_on_signal, signals, nursery.cancel_scope)
                doors.cancel()
                dialling.cancel()
                await closed.wait()
                server.drain()
                await server.wait_empty()
                log.info("event=stopped")
                drained = True
                nursery.cancel_scope.cancel()
        finally:
            gc.unfreeze()
    if not drained:
        raise AbortedError("ended by a second signal; what had not been delivered is lost")


# Starting


def _load_key(config: Config) -> Authority | None:
    if config.hub_auth is None:
        return None
    from pubsubd.hub.tokens import load_key  # noqa: PLC0415  (11 MiB that few need)

    return load_key(Path(config.hub_auth))


def _open_hub(
    config: Config, server: Server, authority: Authority | None
) -> tuple[tuple[MakeTalk, Refusal], Callable[[], None]]:
    """Return what serves the hub port, and what is to be called about once a second."""
    # Without a hub port, what it stands on is not loaded: 8 MiB and 60 ms.
    from pubsubd.hub.core import Hub  # noqa: PLC0415
    from pubsubd.hub.session import HubTalk  # noqa: PLC0415
    from pubsubd.hub.web import refusal  # noqa: PLC0415

    hub = Hub(
        server.broker,
        config.hub_limits,
        max_subscriptions=server.limits.max_subscriptions,
        command_timeout=server.limits.command_timeout,
        authority=authority,
        hosts=frozenset((*config.hub_hosts, config.host or "")),
        origins=frozenset(config.hub_origins),
        clock=trio.current_time,
    )
    return (partial(HubTalk, hub), refusal), hub.sweep


def _open_mesh(options: MeshOptions, server: Server, ports: dict[str, Any]) -> Mesher:
    """Return the daemon's part in the mesh.

    Raises:
        ConfigError: it cannot take part like that.
    """
    # Without a mesh, what it stands on is not loaded.
    from pubsubd.mesh.dial import Mesher  # noqa: PLC0415
    from pubsubd.mesh.settings import read_settings  # noqa: PLC0415

    if "line" not in ports:
        raise ConfigError("a mesh needs a TCP port for the line protocol")
    return Mesher(server, read_settings(options, ports["line"]["host"], ports["line"]["port"]))


async def _run_mesh(mesher: Mesher, scope: trio.CancelScope) -> None:
    with scope:
        await mesher.run()


def _write_ports(path: Path, ports: dict[str, Any], stack: contextlib.ExitStack) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
    ) as file:
        json.dump(ports, file)
        file.write("\n")
    Path(file.name).chmod(0o644)
    Path(file.name).rename(path)
    stack.callback(path.unlink, missing_ok=True)


def _describe(ports: dict[str, Any]) -> str:
    words = [f"pid={ports['pid']}"]
    words += [
        f"{kind}={ports[kind]['host']}:{ports[kind]['port']}"
        for kind in ("line", "hub")
        if kind in ports
    ]
    if "unix" in ports:
        words.append(f"unix={wire.escape(ports['unix'])}")
    return " ".join(words)


def _keep_memory() -> None:
    """Let glibc keep some memory that was freed, instead of giving it back at once.

    Every read allocates and frees some 256 KiB. By default each of these is taken from the
    kernel anew, page by page, which was measured to cost a third of the time per byte.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 8 * MIB)


# Background


async def _sweep(sweeps: Sequence[Callable[[], None]], interval: float) -> None:
    while True:
        await trio.sleep(interval)
        for sweep in sweeps:
            sweep()


async def _publish_statistics(server: Server) -> None:
    while True:
        await trio.sleep(server.limits.stats_interval)
        server.publish_statistics()


# Ending


@contextlib.contextmanager
def _signals() -> Iterator[Any]:
    """Receive signals where that is possible: in the main thread."""
    try:
        receiver = trio.open_signal_receiver(*_SIGNALS)
        with receiver as signals:
            yield signals
    except RuntimeError:
        yield None


async def _wait_signal(signals: Any) -> None:
    if signals is None:
        await trio.sleep_forever()
    async for _ in signals:
        return


async def _abort_on_signal(signals: Any, everything: trio.CancelScope) -> None:
    await _wait_signal(signals)
    everything.cancel()
