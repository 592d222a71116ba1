"""WebSocket (RFC 6455) as far as a load generator needs it.

Client frames are built beforehand and masked with random keys, as clients must, so
no server gains by a key of zeros and the mask costs nothing while the clock runs.
Of servers only whole, unmasked, uncompressed messages are accepted, one a frame.
"""

from __future__ import annotations

import base64
import hashlib
import random
import socket

TEXT, BINARY, CLOSE = 1, 2, 8

_KEY = base64.b64encode(bytes(range(16)))
_ACCEPT = base64.b64encode(
    hashlib.sha1(_KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
)
_chance = random.Random(9014)
_BUFFER = bytearray(1 << 18)


class FrameError(Exception):
    """A frame that is not to be expected of a server."""


def upgrade(port: int, path: str, subprotocol: str = "") -> bytes:
    """The request that turns HTTP into WebSocket."""
    protocol = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {_KEY.decode()}\r\n"
        f"Sec-WebSocket-Version: 13\r\n{protocol}\r\n"
    ).encode()


def accepts(head: bytes) -> bool:
    """Whether that is the answer to `upgrade` that accepts it, without extensions."""
    status, *lines = head.split(b"\r\n")
    fields = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    return (
        status.startswith(b"HTTP/1.1 101")
        and fields.get(b"sec-websocket-accept") == _ACCEPT
        and b"sec-websocket-extensions" not in fields
    )


def _head(first: int, size: int, masked: int) -> bytes:
    if size < 126:
        return bytes([first, masked | size])
    if size < 65536:
        return bytes([first, masked | 126]) + size.to_bytes(2, "big")
    return bytes([first, masked | 127]) + size.to_bytes(8, "big")


def client_frame(opcode: int, payload: bytes) -> bytes:
    """A whole message as a client sends it: masked."""
    key = _chance.randbytes(4)
    mask = (key * (len(payload) // 4 + 1))[: len(payload)]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return _head(128 | opcode, len(payload), 128) + key + masked.to_bytes(len(payload), "big")


def server_frame(opcode: int, payload: bytes) -> bytes:
    """A whole message as a server sends it."""
    return _head(128 | opcode, len(payload), 0) + payload


def _size_of_head(second: int) -> int:
    return 2 if second < 126 else 4 if second == 126 else 10


class Frames:
    """The messages in a stream of server frames, whatever pieces it comes in.

    All of them are to be of kind `opcode`.
    """

    def __init__(self, opcode: int) -> None:
        self._first = 128 | opcode
        self._data = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete by now; raises FrameError for anything else."""
        data = self._data + data
        messages = []
        at, end = 0, len(data)
        while end - at >= 2:
            first, second = data[at], data[at + 1]
            if first not in {self._first, 128 | CLOSE} or second & 128:
                raise FrameError(f"a frame that begins with {data[at : at + 20]!r}")
            start = at + _size_of_head(second)
            if start > end:
                break
            size = second if second < 126 else int.from_bytes(data[at + 2 : start], "big")
            if start + size > end:
                break
            if first == 128 | CLOSE:
                raise FrameError(f"closed the WebSocket: {data[start : start + size]!r}")
            messages.append(data[start : start + size])
            at = start + size
        self._data = data[at:]
        return messages


class PayloadCounter:
    """Counts the bytes in server frames, without the frames: for a server that puts as much
    into a frame as happens to be there, so that the bytes on the wire differ from run to run.
    """

    def __init__(self) -> None:
        self._left = 0  # bytes missing of the frame under way
        self._head = b""  # of a frame whose head is not complete

    def take(self, sock: socket.socket) -> int:
        """Receive once without waiting; how many bytes of payload that were."""
        size = sock.recv_into(_BUFFER)
        return self.count(memoryview(_BUFFER)[:size])

    def count(self, data: memoryview) -> int:
        """How many bytes of payload are in the next piece of the stream."""
        if self._head:
            data = memoryview(self._head + data)
            self._head = b""
        total = 0
        at, end = 0, len(data)
        while True:
            step = min(self._left, end - at)
            total += step
            at += step
            self._left -= step
            if at == end:
                return total
            start = at + 2
            if start <= end:
                second = data[at + 1]
                start = at + _size_of_head(second)
            if start > end:
                self._head = bytes(data[at:])
                return total
            self._left = second if second < 126 else int.from_bytes(data[at + 2 : start], "big")
            at = start
