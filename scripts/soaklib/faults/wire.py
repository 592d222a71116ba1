"""Connections of the load: what is said, what is waited for, and that one was lost."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import TypeAlias

import trio

from benchlib.websocket import upgrade
from soaklib.wires import KIB, Address, client_context, frame, over

_TOLD = re.compile(rb'//pubsubd/error \d+ ([^\n]{1,80})|"reason":"([a-z-]+)"')
_Stream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"


_LINGER = 2.0  # seconds that the daemon waits for a reason to be read
_REST = 0.5  # seconds in which the rest of one that has ended, with the reason, is read
_GLANCE = 0.3  # seconds that one connection is listened to before the others are looked at

wires: ContextVar[list[Wire]] = ContextVar("wires")
"""The connections of one visit: while one is waited for, another may have ended."""

awaited: ContextVar[bytes] = ContextVar("awaited", default=b"")
"""What a visit has waited for last."""


class LostError(Exception):
    """The daemon has ended a connection that has done nothing to deserve that."""


class WrongError(Exception):
    """The daemon has answered what it should not."""


async def until(seen: Callable[[], object], tick: float = 0.01) -> None:
    """Wait until ``seen()`` is true."""
    while True:
        if seen():
            return
        await trio.sleep(tick)


class Wire:
    """A connection of the load.

    Attributes:
        kind: ``line``, ``ndjson`` or ``ws``: how JSON is framed.
        heard: what has come that nobody has asked for yet.
        doomed: whether the daemon is about to end it, and has a reason.
    """

    def __init__(self, stream: _Stream, kind: str, *, doomed: bool) -> None:
        self._stream = stream
        self.doomed = doomed
        self.kind = kind
        self.heard = b""
        self._label = _label_of(self._raw)
        self._last = b""
        self._pings = 0

    async def say(self, *data: bytes) -> None:
        """Send, over ``ndjson`` and ``ws`` a JSON text each."""
        await self.send(b"".join(data) if self.kind == "line" else over(self.kind, *data))

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise await self._lost("while sending") from error

    async def some(self) -> bytes:
        """Return what comes; raises LostError at the end of the stream."""
        if self.heard:
            data, self.heard = self.heard, b""
            return data
        while True:
            try:
                with trio.move_on_after(_GLANCE) as glance:
                    data = bytes(await self._stream.receive_some(256 * KIB))
            except trio.BrokenResourceError as error:
                raise await self._lost(f"by {error.__cause__!r}") from None
            if glance.cancelled_caught:
                for one in wires.get():
                    if one is not self and one.hung_up and not one.doomed:
                        raise await one._lost("while another one was listened to")
            elif data:
                self._last = (self._last + data)[-2 * KIB :]
                return data
            else:
                raise await self._lost("by its end")

    async def hear(self, *endings: bytes) -> bytes:
        """Return all up to the first of ``endings`` and with it, then go on with the next one."""
        parts = []
        for ending in endings:
            heard = b""
            awaited.set(ending)
            while ending not in heard:
                heard += await self.some()
            stop = heard.index(ending) + len(ending)
            parts.append(heard[:stop])
            self.heard = heard[stop:]
        return b"".join(parts)

    async def ask(self, said: bytes, *endings: bytes) -> bytes:
        """Say something and return what comes, up to the last of ``endings``."""
        await self.say(said)
        return await self.hear(*endings)

    async def ping(self) -> bytes:
        """Wait until all that was said is carried out; return what came before that is told."""
        if self.kind == "line":
            self._pings += 1
            pong = frame(b"//pubsubd/ping", b"-- %d --" % self._pings)
            return await self.ask(pong, pong)
        return await self.ask(b'{"type":"ping"}', b'{"type":"pong"}')

    async def hear_end(self, *reasons: bytes, since: float | None = None) -> bytes:
        """Return all up to the end of the stream, or to a reset.

        Args:
            reasons: of which one is due.
            since: the earliest time at which the daemon may have ended it, on trio's clock. If that
                is long ago, as on a busy machine, it may have given up telling the reason.

        Raises:
            LostError: none of ``reasons`` is in it, and so it has ended for another one.
        """
        heard = b""
        self.doomed = True
        awaited.set(b"the end")
        with contextlib.suppress(LostError):
            while True:
                heard += await self.some()
        if since is not None and trio.current_time() - since > _LINGER:
            return heard
        if reasons and not any(one in heard for one in reasons):
            raise LostError(f"told {heard[-100:]!r}")
        return heard

    async def finish(self) -> None:
        """Shut down the sending side."""
        assert isinstance(self._stream, trio.SocketStream)
        with contextlib.suppress(trio.BrokenResourceError):
            await self._stream.send_eof()

    @property
    def hung_up(self) -> bool:
        """Whether the daemon has ended it, behind all that it may have sent before."""
        if self._raw.socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._raw.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    @property
    def _raw(self) -> trio.SocketStream:
        stream = self._stream
        return stream.transport_stream if isinstance(stream, trio.SSLStream) else stream

    async def _lost(self, how: str) -> LostError:
        """Return why it was ended, as far as that was told, and what the log calls it."""
        unreadable = trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError
        with contextlib.suppress(*unreadable), trio.move_on_after(_REST):
            while data := bytes(await self._stream.receive_some(256 * KIB)):
                self._last = (self._last + data)[-2 * KIB :]
        found = _TOLD.findall(self._last)
        why = (found[-1][0] or found[-1][1]).decode(errors="replace") if found else "told nothing"
        return LostError(f"{why}; {self._label} {how}")

    async def close(self) -> None:
        """Close it with a reset, so that nobody takes it for the end of what is said alone."""
        raw = self._raw
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(raw)


@contextlib.asynccontextmanager
async def opened(
    address: Address,
    kind: str = "line",
    *,
    path: str = "/ws",
    source: str | None = None,
    doomed: bool = False,
) -> AsyncIterator[Wire]:
    """A connection, closed with the block; LostError if it cannot be had."""
    stream: _Stream
    try:
        stream = await _connect(address, source)
    except (OSError, ssl.SSLError, trio.BrokenResourceError) as error:
        raise LostError(f"no connection: {error!r}") from error
    wire = Wire(stream, kind, doomed=doomed)
    wires.get().append(wire)
    try:
        if kind == "ws":
            await wire.send(upgrade(9015, path))
            head = await wire.hear(b"\r\n\r\n")
            if b" 101 " not in head[:20]:
                raise WrongError(f"no WebSocket: {head[:100]!r}")
        yield wire
    finally:
        wires.get().remove(wire)
        with trio.CancelScope(shield=True):
            await wire.close()


def _label_of(stream: trio.SocketStream) -> str:
    """Return its address, as the daemon has it."""
    name = stream.socket.getsockname()
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"


async def _connect(address: Address, source: str | None) -> _Stream:
    family = socket.AF_UNIX if isinstance(address.where, str) else socket.AF_INET
    sock = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        if source is not None:
            await sock.bind((source, 0))
        if address.buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, address.buffer)
        await sock.connect(address.where)
        plain = trio.SocketStream(sock)
        if address.ca is None:
            return plain
        context = client_context(address.ca, address.certificate, address.key)
        secure = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
        await secure.do_handshake()
    except BaseException:
        sock.close()
        raise
    return secure
