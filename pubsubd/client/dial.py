"""Connections to a daemon, made and given up."""

from __future__ import annotations

import socket
import struct

import trio

from pubsubd.client.faults import ConnectError, reason

CONNECT_TIMEOUT = 10.0
"""Seconds that one attempt to connect may take."""

_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


async def dial(host: str, port: int, unix: str | None) -> trio.abc.Stream:
    """Return a connection to a daemon.

    Raises:
        ConnectError: there is none to be had, or none within CONNECT_TIMEOUT.
    """
    where = unix if unix is not None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
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


def abandon(stream: trio.abc.Stream) -> None:
    """Make closing reset the connection.

    A daemon that only saw the end of our commands would go on delivering, as it does after
    ``nc -N``, until it notices that nobody is there.
    """
    if isinstance(stream, trio.SocketStream) and stream.socket.family != socket.AF_UNIX:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
