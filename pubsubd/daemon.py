"""The daemon: listeners, sessions, signals, and how all of it ends.

One nursery holds everything. The first SIGTERM or SIGINT drains: what has been received
is carried out and delivered, every peer is told, and :func:`run` returns. The second one
raises :class:`~pubsubd.errors.AbortedError` at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from pubsubd import wire
from pubsubd.errors import AbortedError, ConfigError, ProtocolError
from pubsubd.limits import MIB, Limits
from pubsubd.session import OnBackpressure, Server

log = logging.getLogger("pubsubd")

_BACKLOG = 4_096  # connections that may wait to be accepted; the kernel's limit applies too
_AT_ONCE = 64  # connections accepted before others get their turn
_RESERVED = 16  # descriptors kept for the daemon itself
_KEEPALIVE = (60, 15, 4)  # seconds idle, seconds between probes, probes: a dead host, in 2 minutes
_SWEEP = 1.0  # seconds between two looks at all sessions
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Config:
    """What to listen on.

    Attributes:
        host: a name or address, all of whose addresses are bound; None for no TCP at all.
        port: 0 takes a free one.
        unix: path of a Unix socket, or None.
        ports_file: where the real addresses are written as JSON once they accept.
        insecure: allow a ``host`` that is not loopback although nobody has to log in.
        limits: see :class:`~pubsubd.limits.Limits`.
    """

    host: str | None = "127.0.0.1"
    port: int = 9014
    unix: str | None = None
    ports_file: str | None = None
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)


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
        task_status: ``started`` is called with ``{"line": {"host", "port"}, "unix", "pid"}``
            (the first two as far as they are there) once all listeners accept.

    Raises:
        ConfigError: the settings cannot be used.
        OSError: a socket or file cannot be had.
        AbortedError: a second signal came before everything was delivered.
    """
    limits = dataclasses.replace(config.limits, max_connections=_raise_descriptors(config.limits))
    drained = False
    _keep_memory()
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_signals())
        listeners, ports = _listen(config, stack)
        try:
            async with trio.open_nursery() as nursery:
                server = Server(limits, nursery, on_backpressure)
                reserve = _Reserve()
                stack.callback(reserve.close)
                doors, closed = trio.CancelScope(), trio.Event()
                nursery.start_soon(_accept_all, listeners, server, reserve, doors, closed)
                nursery.start_soon(_sweep, server)
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


# Listening


def _listen(
    config: Config, stack: contextlib.ExitStack
) -> tuple[list[socket.socket], dict[str, Any]]:
    listeners: list[socket.socket] = []
    ports: dict[str, Any] = {"pid": os.getpid()}
    if config.host is not None:
        port = config.port
        for family, address in _resolve(config):
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listener, (address, port), f"{address}:{port}")
            port = listener.getsockname()[1]  # with port 0, all addresses take the same one
            listeners.append(listener)
            ports.setdefault("line", {"host": address, "port": port})
    if config.unix is not None:
        path = Path(config.unix)
        _remove_stale(path)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        _bind(listener, config.unix, config.unix)
        stack.callback(path.unlink, missing_ok=True)
        listeners.append(listener)
        ports["unix"] = config.unix
    if not listeners:
        raise ConfigError("nothing to listen on: neither a host nor a Unix socket")
    for listener in listeners:
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    return listeners, ports


def _resolve(config: Config) -> Sequence[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigError(f"cannot resolve {config.host!r}: {error}") from None
    addresses = list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))
    for _, address in addresses:
        if not config.insecure and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise ConfigError(
                f"{address} is not loopback, and anyone who reaches it could read and publish"
                " everything; --insecure allows that"
            )
    return addresses


def _bind(listener: socket.socket, address: Any, label: str) -> None:
    try:
        listener.bind(address)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {label}: {error.strerror or error}") from None


def _remove_stale(path: Path) -> None:
    """Remove a socket that a daemon left behind; one that is alive answers."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink()
    except OSError:
        return


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
    if "line" in ports:
        words.append(f"line={ports['line']['host']}:{ports['line']['port']}")
    if "unix" in ports:
        words.append(f"unix={wire.escape(ports['unix'])}")
    return " ".join(words)


def _raise_descriptors(limits: Limits) -> int:
    """Allow this process all descriptors it may have; return the connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.max_connections + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(limits.max_connections, soft - _RESERVED))
    return limits.max_connections


def _keep_memory() -> None:
    """Let glibc keep some memory that was freed, instead of giving it back at once.

    Every read allocates and frees some 256 KiB. By default each of these is taken from the
    kernel anew, page by page, which was measured to cost a third of the time per byte.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 8 * MIB)


# Accepting


class _Reserve:
    """A descriptor to give up when there are none left, so that a connection can be refused."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self.take()

    def take(self) -> None:
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


async def _accept_all(
    listeners: list[socket.socket],
    server: Server,
    reserve: _Reserve,
    doors: trio.CancelScope,
    closed: trio.Event,
) -> None:
    """Accept until ``doors`` is cancelled; then take those who wait already, and close."""
    with doors:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(_accept, listener, server, reserve)
    for listener in listeners:
        _accept_waiting(listener, server, reserve)
        listener.close()
    closed.set()


async def _accept(listener: socket.socket, server: Server, reserve: _Reserve) -> None:
    while True:
        await trio.lowlevel.wait_readable(listener)
        if not _accept_waiting(listener, server, reserve, _AT_ONCE):
            await trio.sleep(0.1)  # out of descriptors: do not spin


def _accept_waiting(
    listener: socket.socket, server: Server, reserve: _Reserve, most: int = _BACKLOG
) -> bool:
    """Accept the connections that wait; False if the system does not let us."""
    for _ in range(most):
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                continue  # that one connection broke off
            reserve.close()
            with contextlib.suppress(OSError):
                sock, address = listener.accept()
                _refuse(sock, server, "no descriptors are left")
            reserve.take()
            return False
        if len(server.sessions) >= server.limits.max_connections:
            limit = server.limits.max_connections
            _refuse(sock, server, f"there are {limit} connections, which is the limit")
            continue
        sock.setblocking(False)
        label = "unix"
        if sock.family != socket.AF_UNIX:
            host, port = address[:2]
            label = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
        server.open(sock, label)
    return True


def _keep_alive(sock: socket.socket) -> None:
    idle, interval, count = _KEEPALIVE
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def _refuse(sock: socket.socket, server: Server, text: str) -> None:
    error = ProtocolError("too-many-connections", text)
    server.refuse(error)
    with sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(wire.error_frame(error))
        sock.shutdown(socket.SHUT_WR)
        sock.recv(65536)  # what is unread when a socket closes resets the connection


# Background


async def _sweep(server: Server) -> None:
    while True:
        await trio.sleep(min(_SWEEP, server.limits.command_timeout / 4))
        now = trio.current_time()
        for session in list(server.sessions):
            session.check(now)


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
