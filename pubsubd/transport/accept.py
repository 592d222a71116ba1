"""Accepting connections, and refusing those that are too many."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from pubsubd.broker.listener_state import ListenerState
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.transport.addresses import (
    host_of,
    text_of,
)
from pubsubd.transport.connection import open_connection
from pubsubd.transport.listen import BACKLOG, BoundSocket
from pubsubd.transport.protocol import MakeProtocol
from pubsubd.transport.server import Server
from pubsubd.transport.tasks import guarded
from pubsubd.transport.tls import TlsSocket

_AT_ONCE = 16  # connections accepted before others get their turn

LIMIT = "which is the limit"
"""The end of a sentence about connections that are too many."""

RESERVED = 16
"""Descriptors kept for the daemon itself."""

_CREDENTIALS = struct.Struct("3i")  # process, user and group (unix(7))

Refusal = Callable[[ProtocolError], bytes]
"""Returns what to send to a connection that is not let in."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and what is spoken behind it.

    Attributes:
        bound: the socket.
        state: what holds for connections that come by it.
        make: makes the protocol of a connection.
        refusal: what to send to one that is not let in.
    """

    bound: BoundSocket
    state: ListenerState
    make: MakeProtocol
    refusal: Refusal


def raise_descriptors(limits: Limits) -> int:
    """Allow this process all descriptors it may have; return the connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.max_connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(limits.max_connections, soft - RESERVED))
    return limits.max_connections


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
    all_listeners: list[Listener],
    server: Server,
    reserve: Reserve,
    listeners: trio.CancelScope,
    closed: trio.Event,
) -> None:
    """Accept until ``listeners`` is cancelled; then take those who wait already, and close."""
    with listeners:
        tasks = server.tasks
        async with trio.open_nursery() as nursery:
            for listener in all_listeners:
                accept = partial(_accept, listener, server, reserve)
                nursery.start_soon(tasks.keep, f"accept {listener.bound.config.name}", accept, True)
    for listener in all_listeners:
        if not listener.bound.inherited:  # those who wait there are for the next process
            guarded(
                server.broker.faults, "accept", partial(accept_waiting, listener, server, reserve)
            )
        listener.bound.listener.close()
    closed.set()


async def _accept(listener: Listener, server: Server, reserve: Reserve) -> None:
    while True:
        await trio.lowlevel.wait_readable(listener.bound.listener)
        if not accept_waiting(listener, server, reserve, _AT_ONCE):
            await trio.sleep(0.1)  # out of descriptors: do not spin


def accept_waiting(
    listener: Listener, server: Server, reserve: Reserve, most: int = BACKLOG
) -> bool:
    """Accept the connections that wait; False if the system does not let us."""
    for _ in range(most):
        try:
            sock, address = listener.bound.listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                continue  # that one connection broke off
            reserve.close()
            with contextlib.suppress(OSError):
                sock, address = listener.bound.listener.accept()
                refuse(sock, server, listener, "no descriptors are left")
            reserve.take()
            return False
        try:
            _admit(sock, address, listener, server)
        except Exception as error:  # noqa: BLE001  (whatever it is, only that connection ends)
            server.broker.faults.note(error, "accept")
            sock.close()
    return True


def _admit(sock: socket.socket, address: Any, listener: Listener, server: Server) -> None:
    """Serve a connection, or refuse it if there are too many."""
    limit = server.limits.max_connections
    own = listener.state.limits.max_connections
    if len(server.connections) >= limit or listener.state.connections >= own:
        refuse(sock, server, listener, f"there are {min(limit, own)} connections, {LIMIT}")
        return
    serve_connection(sock, address, listener, server)


def serve_connection(sock: socket.socket, address: Any, listener: Listener, server: Server) -> None:
    """Serve a connection that was accepted."""
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        peer = open_connection(server, sock, "unix", listener.make)
        try:
            server.broker.login(peer, _user(sock))
        except Exception as error:  # noqa: BLE001  (it has a connection by now, which can end)
            server.broker.faults.end(peer, error)
        return
    label, tls = text_of(address), listener.state.tls
    proxied = bool(listener.state.proxies) and host_of(address) in listener.state.proxies
    spoken = sock if tls is None else TlsSocket(sock, tls)
    open_connection(server, spoken, label, listener.make, proxied=proxied)


def _user(sock: socket.socket) -> str:
    """Return the name of the user whose process is at the other end of a Unix socket."""
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return user_name(_CREDENTIALS.unpack(packed)[1])


@functools.lru_cache(1_024)
def user_name(number: int) -> str:
    """Return the name of a user of this machine."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid:{number}"


def refuse(sock: socket.socket, server: Server, listener: Listener, text: str) -> None:
    """Tell who has connected why that is not possible, and close."""
    error = ProtocolError("too-many-connections", text)
    server.refuse(error)
    with sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        if listener.state.tls is None:
            sock.send(listener.refusal(error))
        sock.shutdown(socket.SHUT_WR)
        sock.recv(65536)  # what is unread when a socket closes resets the connection
