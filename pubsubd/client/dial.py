"""Connecting to a daemon, reconnecting and closing."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from pubsubd.client.faults import ConnectError, lasting, reason
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.wire import show_address
from pubsubd.transport.addresses import NO_INTERFACE, lacks_interface

CONNECT_TIMEOUT = 10.0
"""Seconds that one attempt to connect may take."""

BACKOFF = 0.5
"""Longest wait, in seconds, before the first attempt to reconnect; doubled for each attempt."""

BACKOFF_MAX = 30.0
"""Longest wait, in seconds, between two attempts. All waits are random, from 0 to the longest."""

Connect: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]
"""Returns a connection to a daemon, or raises :class:`ConnectError` or another PubsubdError."""

_FAREWELL = 1.0  # seconds

_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def address(host: str, port: int, unix: str | None = None) -> str:
    """Return the address of a daemon as text."""
    return show_address(host, port) if unix is None else unix


async def dial(host: str, port: int, unix: str | None) -> trio.abc.Stream:
    """Return a connection to a daemon.

    Raises:
        ConnectError: no connection could be made, or none within CONNECT_TIMEOUT.
    """
    where = address(host, port, unix)
    if unix is None and lacks_interface(host):
        raise ConnectError(where, NO_INTERFACE)
    try:
        with trio.fail_after(CONNECT_TIMEOUT):
            if unix is not None:
                return await trio.open_unix_socket(unix)
            stream = await trio.open_tcp_stream(host, port)
    except trio.TooSlowError:
        raise ConnectError(where, f"no answer in {CONNECT_TIMEOUT:g} s") from None
    except OSError as exc:
        cause: BaseException = exc
        # trio tells which addresses failed and keeps why in the cause, in a group if several did.
        while isinstance(cause.__cause__, OSError | BaseExceptionGroup):
            cause = cause.__cause__
            if isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
        raise ConnectError(where, reason(cause)) from cause
    # A peer that vanished without a word would otherwise never be missed.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return stream


async def dial_again(
    connect: Connect, attempt: int, longest: float, note: Callable[[str, Exception], None]
) -> tuple[trio.abc.Stream, int]:
    """Try until there is a connection; return it, and the number of the next attempt.

    Args:
        connect: makes a connection.
        attempt: failed attempts so far, including connections that did not last.
        longest: longest wait in seconds between two attempts.
        note: called with unexpected exceptions from ``connect``; then it is tried again.

    Raises:
        PubsubdError: an error that every further attempt would repeat.
    """
    while True:
        await trio.sleep(random.uniform(0, min(longest, BACKOFF * 2 ** min(attempt, 10))))
        attempt += 1
        try:
            return await connect(), attempt
        except PubsubdError as error:
            if lasting(error):
                raise
        except Exception as error:  # noqa: BLE001  (a program's own function may raise anything)
            note("connect has raised an exception", error)


def abandon(stream: trio.abc.Stream) -> None:
    """Let closing reset the connection.

    After an ordinary close, the daemon would go on delivering, as it does after ``nc -N``, until
    it notices that the client is gone.
    """
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if isinstance(stream, trio.SocketStream) and stream.socket.family != socket.AF_UNIX:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def hang_up(stream: trio.abc.Stream) -> None:
    """Close a connection. With TLS, send the closing alert first, waiting a short time at most."""
    if isinstance(stream, trio.SSLStream):
        with trio.CancelScope(deadline=trio.current_time() + _FAREWELL, shield=True):
            await stream.aclose()
    else:
        await trio.aclose_forcefully(stream)
