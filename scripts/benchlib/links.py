"""Blocking connections to a server: handshake, subscribing, pings.

For everything that is not throughput. Each wait is bounded.

Over WebSocket, what is expected and read is what `WebSocketWire.read` makes of the
messages, not the bytes themselves: there are frames around them, whose borders a
server chooses, and in JSON there are ids and times that nobody knows beforehand.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from .hubwires import WebSocketWire
from .protocols import Want, Wire
from .websocket import FrameError, Frames, PayloadCounter, accepts, upgrade

PATIENCE_SECONDS = 20.0
_SPARE = bytearray(1 << 20)
_numbers = itertools.count(100_001)  # one width


class BenchError(Exception):
    """A run that was not correct, or a server that could not be measured."""


class Address(Protocol):
    """What a link needs to know of a server."""

    @property
    def name(self) -> str: ...
    @property
    def wire(self) -> Wire: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> bool: ...


class Link:
    """One connection to `server`, greeted and ready for commands."""

    def __init__(self, server: Address) -> None:
        self.server = server
        self.wire = server.wire.of(f"@(bench/{next(_numbers):05})")  # all of one length
        self.wants: list[Want] = []
        self._ahead = b""
        self.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.wire.greets:
            self.read_until(b"\r\n")
        self._greet()

    def _greet(self) -> None:
        if self.wire.hello:
            self.send(self.wire.hello)
            self.expect(self.wire.welcome)
        else:
            self.check_ping()

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; raises BenchError when the server closes or says nothing."""
        pieces = [self._ahead]
        missing = size - len(self._ahead)
        while missing > 0:
            piece = self._receive(min(missing, 1 << 20))
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        self._ahead = data[size:]
        return data[:size]

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and including the first `mark`."""
        data = self._ahead
        while mark not in data:
            data += self._receive(1 << 16)
        end = data.index(mark) + len(mark)
        self._ahead = data[end:]
        return data[:end]

    def _receive(self, size: int) -> bytes:
        try:
            data = self.socket.recv(size)
        except TimeoutError:
            raise BenchError(f"{self.server.name}: silent for {PATIENCE_SECONDS:.0f} s") from None
        except ConnectionError as error:
            raise BenchError(f"{self.server.name}: connection lost: {error}") from None
        if not data:
            raise BenchError(f"{self.server.name}: closed the connection")
        return data

    def expect(self, data: bytes) -> None:
        """Read as many bytes as `data` has; raises BenchError unless they are `data`."""
        got = self.read(len(data))
        if got != data:
            at = next(i for i, pair in enumerate(zip(got, data, strict=True)) if pair[0] != pair[1])
            near = slice(max(0, at - 20), at + 60)
            raise BenchError(
                f"{self.server.name}: received {got[near]!r} instead of {data[near]!r}"
                f" ({at} bytes into {len(data)})"
            )

    def check_ping(self) -> None:
        """Send a ping and expect its answer, and nothing before it."""
        self.send(self.wire.ping)
        self.expect(self.wire.pong_subscribed if self.wants else self.wire.pong)

    def subscribe(self, wants: Sequence[Want]) -> None:
        """Make the subscriptions and wait until they are in force."""
        first = len(self.wants)
        self.wants.extend(wants)
        for start in range(0, len(wants), 200):
            # In small groups: a server that answers each must not be written to
            # without bound while its answers are not read.
            group = list(enumerate(wants[start : start + 200], first + start))
            self.send(b"".join(self.wire.subscribe(i, want) for i, want in group))
            self.expect(b"".join(self.wire.subscribed(i, want) for i, want in group))
        self.check_ping()

    def settle(self) -> None:
        """Answer what the server asks by itself soon after the start, if it does."""
        if self.wire.late_ping:
            self.expect(self.wire.late_ping)
            self.send(self.wire.late_pong)

    def decode(self, data: bytes) -> bytes:
        """What is compared with what is expected: here, the bytes received."""
        return data

    def weigh(self, data: bytes, decoded: bytes) -> int:
        """What `counter` counts for `data`, which was decoded to `decoded`."""
        return len(data)

    def send_some(self, data: memoryview) -> int:
        """Send what goes without waiting; raises BlockingIOError if nothing does."""
        return self.socket.send(data)

    def receive_some(self, size: int) -> bytes:
        """At most `size` bytes, without waiting; empty at the end, BlockingIOError before."""
        return self.socket.recv(size)

    def closed(self) -> bool:
        """Whether the server has closed the connection, after all it sent was received."""
        with contextlib.suppress(BlockingIOError):
            return not self.socket.recv(1, socket.MSG_PEEK)
        return False

    def counter(self) -> Callable[[], int]:
        """A function that receives once, without waiting, and returns how much it was.

        Nothing of it is kept: the kernel counts and drops it (MSG_TRUNC).
        """
        return partial(self.socket.recv_into, _SPARE, len(_SPARE), socket.MSG_TRUNC)

    def wait_in_kernel(self) -> None:
        """Block without Python's own poll before each call; bounded by the kernel."""
        wait_in_kernel(self.socket)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def reset(self) -> None:
        """Vanish: an orderly close could be taken for one that still listens."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class WebSocketLink(Link):
    """The same over WebSocket; `server.wire` is a `WebSocketWire`."""

    wire: WebSocketWire

    def __init__(self, server: Address) -> None:
        self._frames: Frames | None = None  # until the upgrade, it is HTTP
        super().__init__(server)

    def _open(self) -> None:
        self.send(upgrade(self.server.port, self.wire.path, self.wire.subprotocol))
        head = self.read_until(b"\r\n\r\n")
        if not accepts(head):
            raise BenchError(f"{self.server.name}: no WebSocket: {head[:200]!r}")
        self._frames = Frames(self.wire.opcode)
        self._ahead = self.decode(self._ahead)
        super()._open()

    def _receive(self, size: int) -> bytes:
        while not (data := self.decode(super()._receive(1 << 16))):
            pass
        return data

    def decode(self, data: bytes) -> bytes:
        if self._frames is None:
            return data
        try:
            messages = self._frames.feed(data)
        except FrameError as error:
            raise BenchError(f"{self.server.name}: {error}") from None
        return b"".join([self.wire.read(message) for message in messages])

    def weigh(self, data: bytes, decoded: bytes) -> int:
        return len(decoded) if self.wire.coalesced else len(data)

    def counter(self) -> Callable[[], int]:
        """As `Link.counter`; of a server that chooses the borders of frames, without them."""
        if self.wire.coalesced:
            return partial(PayloadCounter().take, self.socket)
        return super().counter()


class TlsLink(Link):
    """The same over TLS; the server's certificate is not looked at.

    What nats says first, it says before the handshake.
    """

    RECORDS = 1 << 16  # bytes: a send of a few records, as one that stops must be repeated whole

    socket: ssl.SSLSocket

    def _open(self) -> None:
        if self.wire.greets:
            self.read_until(b"\r\n")
        self.socket = TLS.wrap_socket(self.socket)
        self._greet()

    def send_some(self, data: memoryview) -> int:
        try:
            return self.socket.send(data[: self.RECORDS])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def receive_some(self, size: int) -> bytes:
        try:
            return self.socket.recv(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None

    def closed(self) -> bool:
        return False  # its counter has told

    def counter(self) -> Callable[[], int]:
        """As `Link.counter`, but it takes all: of what is left in OpenSSL, epoll tells nothing."""
        receive, spare = self.socket.recv_into, _SPARE

        def count() -> int:
            total = 0
            try:
                while got := receive(spare):
                    total += got
            except ssl.SSLWantReadError:
                return total
            raise BenchError(f"{self.server.name}: closed a subscriber's connection")

        return count


def wait_in_kernel(sock: socket.socket) -> None:
    """Let a socket block without Python's own poll before each call; bounded by the kernel."""
    bound = struct.pack("ll", int(PATIENCE_SECONDS), 0)
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)


def tls_context() -> ssl.SSLContext:
    """That of a client which takes any certificate, and never resumes a session."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


TLS = tls_context()


def connect(server: Address) -> Link:
    """A connection of the kind that the server, and its wire, ask for."""
    if server.tls:
        return TlsLink(server)
    return WebSocketLink(server) if isinstance(server.wire, WebSocketWire) else Link(server)
