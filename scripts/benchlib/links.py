"""Blocking connections to a server: handshake, subscribing, pings.

For everything that is not throughput. Each wait is bounded.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Protocol

from .protocols import Want, Wire

PATIENCE_SECONDS = 20.0


class BenchError(Exception):
    """A run that was not correct, or a server that could not be measured."""


class Address(Protocol):
    """What a link needs to know of a server."""

    name: str
    wire: Wire
    port: int


class Link:
    """One connection to `server`, greeted and ready for commands."""

    def __init__(self, server: Address) -> None:
        self.server = server
        self.wire = server.wire
        self.wants: list[Want] = []
        self._ahead = b""
        self.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.wire.greets:
                self.read_until(b"\r\n")
            if self.wire.hello:
                self.send(self.wire.hello)
                self.expect(self.wire.welcome)
            else:
                self.check_ping()
        except BaseException:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; raises BenchError when the server closes or says nothing."""
        pieces = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(pieces[0])
        while missing:
            piece = self._receive(min(missing, 1 << 20))
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

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

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def reset(self) -> None:
        """Vanish: an orderly close could be taken for one that still listens."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
