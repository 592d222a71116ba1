"""Listening sockets, and who is let in."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import socket
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from pubsubd.errors import ConfigError, ProtocolError
from pubsubd.limits import Limits
from pubsubd.server import Server
from pubsubd.session import MakeTalk, name_address, open_session, tune

_BACKLOG = 4_096  # connections that may wait to be accepted; the kernel's limit applies too
_AT_ONCE = 64  # connections accepted before others get their turn
_RESERVED = 16  # descriptors kept for the daemon itself


Refusal = Callable[[ProtocolError], bytes]
"""Returns what to send to a connection that is not let in."""


@dataclass(frozen=True, slots=True)
class Door:
    """A listening socket and what is spoken behind it.

    Attributes:
        make: makes the talk of a connection.
        refusal: what to send to one that is not let in.
    """

    listener: socket.socket
    make: MakeTalk
    refusal: Refusal


def listen(
    host: str | None,
    wanted: dict[str, int | None],
    unix: str | None,
    *,
    insecure: bool,
    stack: contextlib.ExitStack,
) -> tuple[list[tuple[str, socket.socket]], dict[str, Any]]:
    """Return listening sockets, each with its name, and their addresses.

    The addresses are ``{name: {"host", "port"}, ..., "unix", "pid"}`` as far as they are there.

    Args:
        host: a name or address, all of whose addresses are bound; None for no TCP at all.
        wanted: name -> port: 0 takes a free one, the same for all addresses; None for no TCP.
        unix: path of a Unix socket, whose name is the first of ``wanted``, or None.
        insecure: whether a host that is not loopback will do.
        stack: closes the sockets and removes the path.

    Raises:
        ConfigError: the host cannot be used, or there is nothing to listen on.
        OSError: an address is taken or not allowed; the message names it.
    """
    listeners: list[tuple[str, socket.socket]] = []
    ports: dict[str, Any] = {"pid": os.getpid()}
    for name, wanted_port in wanted.items():
        port = wanted_port
        if host is None or port is None:
            continue
        for family, address in _resolve(host, port, insecure=insecure):
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listener, (address, port), f"{address}:{port}")
            port = listener.getsockname()[1]  # with port 0, all addresses take the same one
            listeners.append((name, listener))
            ports.setdefault(name, {"host": address, "port": port})
    if unix is not None:
        path = Path(unix)
        _remove_stale(path)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        _bind(listener, unix, unix)
        stack.callback(path.unlink, missing_ok=True)
        listeners.append((next(iter(wanted)), listener))
        ports["unix"] = unix
    if not listeners:
        raise ConfigError("nothing to listen on: neither a host nor a Unix socket")
    for _, listener in listeners:
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    return listeners, ports


def _resolve(host: str, port: int, *, insecure: bool) -> Sequence[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigError(f"cannot resolve {host!r}: {error}") from None
    addresses = list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))
    for _, address in addresses:
        if not insecure and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
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


def raise_descriptors(limits: Limits) -> int:
    """Allow this process all descriptors it may have; return the connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.max_connections + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(limits.max_connections, soft - _RESERVED))
    return limits.max_connections


# Accepting


class Reserve:
    """A descriptor to give up when there are none left, so that a connection can be refused."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self.take()

    def take(self) -> None:
        """Have one again, if there is one to be had."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Give it up."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


async def accept_all(
    all_doors: list[Door],
    server: Server,
    reserve: Reserve,
    doors: trio.CancelScope,
    closed: trio.Event,
) -> None:
    """Accept until ``doors`` is cancelled; then take those who wait already, and close."""
    with doors:
        async with trio.open_nursery() as nursery:
            for door in all_doors:
                nursery.start_soon(_accept, door, server, reserve)
    for door in all_doors:
        _accept_waiting(door, server, reserve)
        door.listener.close()
    closed.set()


async def _accept(door: Door, server: Server, reserve: Reserve) -> None:
    while True:
        await trio.lowlevel.wait_readable(door.listener)
        if not _accept_waiting(door, server, reserve, _AT_ONCE):
            await trio.sleep(0.1)  # out of descriptors: do not spin


def _accept_waiting(door: Door, server: Server, reserve: Reserve, most: int = _BACKLOG) -> bool:
    """Accept the connections that wait; False if the system does not let us."""
    for _ in range(most):
        try:
            sock, address = door.listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                continue  # that one connection broke off
            reserve.close()
            with contextlib.suppress(OSError):
                sock, address = door.listener.accept()
                _refuse(sock, server, door, "no descriptors are left")
            reserve.take()
            return False
        if len(server.sessions) >= server.limits.max_connections:
            limit = server.limits.max_connections
            _refuse(sock, server, door, f"there are {limit} connections, which is the limit")
            continue
        sock.setblocking(False)
        label = "unix"
        if sock.family != socket.AF_UNIX:
            label = name_address(*address[:2])
            tune(sock)
        open_session(server, sock, label, door.make)
    return True


def _refuse(sock: socket.socket, server: Server, door: Door, text: str) -> None:
    error = ProtocolError("too-many-connections", text)
    server.refuse(error)
    with sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(door.refusal(error))
        sock.shutdown(socket.SHUT_WR)
        sock.recv(65536)  # what is unread when a socket closes resets the connection
