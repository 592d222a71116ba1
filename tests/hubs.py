"""Hub ports for tests: one without sockets, and clients of a real one.

:class:`Room` runs the real core, broker and all, on a clock of the test. :class:`Socket` and
:class:`Lines` are a WebSocket (by an independent implementation) and a plain socket with a JSON
text a line, both to a daemon that really runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from websockets.sync.client import ClientConnection, connect

from pubsubd.access.identity import Authority
from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Turn
from pubsubd.hub.port import Hub
from pubsubd.hub.protocol import HubProtocol
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import TURN, HubLimits, Limits
from pubsubd.protocol.wire import Decoder
from pubsubd.routing.outbox import Pieces
from tests.daemons import DEADLINE, Daemon
from tests.messages import HUB_A, HUB_B, connect_a, heaviest, message_a, message_b
from tests.rights import say, work

__all__ = [
    "HUB_A",
    "HUB_B",
    "UPGRADE",
    "Lines",
    "Room",
    "Socket",
    "client_frame",
    "connect_a",
    "heaviest",
    "message_a",
    "message_b",
]

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def client_frame(data: bytes, first: int = 0x81, *, key: bytes = b"\x11\x22\x33\x44") -> bytes:
    """Return a masked frame."""
    size = len(data)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 65_536:
        head = bytes([first, 0xFE]) + struct.pack(">H", size)
    else:
        head = bytes([first, 0xFF]) + struct.pack(">Q", size)
    mask = (key * (size // 4 + 1))[:size]
    masked = int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")
    return head + key + masked.to_bytes(size, "big")


class Room:
    """A hub port without sockets, whose time stands still unless the test moves it.

    Attributes:
        now: seconds that only go forward.
        stepped: seconds that the wall clock, which is the same at first, has been set forward.
        heard: name -> bytes that it was sent and :meth:`hears` has not returned yet.
        ended: name -> (code, text), of those that the hub has ended from outside of their input.
        sends, ends: name -> what is called instead with output, or with the reason of an end.
    """

    def __init__(
        self,
        *,
        authority: Authority | None = None,
        line_limits: Limits | None = None,
        max_subscriptions: int = 100_000,
        **limits: Any,
    ) -> None:
        self.now = 1_000_000.0
        self.stepped = 0.0
        self.broker = Broker(line_limits or Limits(), clock=lambda: self.now)
        self.broker.delivery.turn = Turn(clock=lambda: 0.0)  # ends by work and bytes, not by time
        self.broker.access.authority = authority
        self.hub = Hub(
            self.broker,
            HubLimits(**limits),
            listener=ListenerState(
                "hub",
                replace(self.broker.listener.limits, max_subscriptions=max_subscriptions),
                HubLimits(**limits),
                login=authority is not None,
            ),
            clock=lambda: self.now,
            wall=lambda: self.now + self.stepped,
        )
        self.connections: dict[str, HubProtocol] = {}
        self.lines: dict[str, Peer] = {}
        self.ended: dict[str, tuple[str, str]] = {}
        self.heard: dict[str, bytes] = {}
        self.sends: dict[str, Callable[[Any], object]] = {}
        self.ends: dict[str, Callable[[str, str], object]] = {}

    def join(self, *names: str) -> None:
        """Let connections come that speak lines of JSON."""
        for name in names:
            self.heard[name] = b""
            self.connections[name] = HubProtocol(
                self.hub,
                f"127.0.0.1:{40_000 + len(self.heard)}",
                partial(self._send, name),
                partial(self._end, name),
            )

    def join_line(self, *names: str) -> None:
        """Let connections come to the line port."""
        for name in names:
            self.heard[name] = b""
            self.lines[name] = self.broker.join(
                f"127.0.0.1:{40_000 + len(self.heard)}",
                lambda data, name=name: self._take(name, data),  # type: ignore[misc]
            )

    def _take(self, name: str, data: bytes | Pieces) -> None:
        if name not in self.ended:
            said = data if isinstance(data, bytes) else data.whole()
            self.heard[name] += said
            self.broker.counters.bytes_out += len(said)  # as a session counts it

    def _send(self, name: str, data: bytes | Pieces) -> None:
        self.sends.get(name, partial(self._take, name))(data)

    def _end(self, name: str, code: str, text: str) -> None:
        self.ends.get(name, partial(self.end, name))(code, text)

    def end(self, name: str, code: str, text: str) -> None:
        """End a connection as its socket's side does."""
        connection = self.connections[name]
        if connection.peer.ending is None:
            connection.peer.ending = ProtocolError(code, text)
            self.heard[name] += connection.close_reason(connection.peer.ending)
            self.ended[name] = code, text
            self.leave(name)

    def leave(self, name: str) -> None:
        """Let a connection end."""
        for step in self.connections.pop(name).leaving():
            for _ in step():
                pass

    def say_raw(self, name: str, data: bytes) -> None:
        """Let a connection say ``data`` in one read, and take as many turns as it leads to."""
        connection = self.connections.get(name)
        if connection is None:
            say(self.broker, self.lines[name], data)
            return
        while connection.receive(data):
            data = b""
            work(connection.peer)
        if connection.peer.ending is not None and name in self.connections:
            self.ended[name] = connection.peer.ending.code, connection.peer.ending.text
            self.leave(name)

    def say(self, name: str, *messages: Any) -> None:
        """Let a connection say messages in one read."""
        self.say_raw(name, b"".join(json.dumps(one).encode() + b"\n" for one in messages))

    def hears(self, name: str) -> list[Any]:
        """Return what a connection has heard since the last call: messages, or (name, data)."""
        while self.broker.delivery.unsent:  # it was more than one turn could send
            self.broker.delivery.turn.begin()
            self.broker.delivery.send_some()
        heard, self.heard[name] = self.heard[name], b""
        if name in self.lines:
            return list(Decoder(1 << 30).feed(heard))
        return [json.loads(line) for line in heard.splitlines()]

    def ask(self, name: str, message: Any) -> Any:
        """Say one message and return the one that comes back."""
        self.say(name, message)
        (answer,) = self.hears(name)
        return answer

    def connect_a(self, name: str, **metadata: Any) -> str:
        """Let a connection introduce itself in dialect A, and return its address."""
        me = f"@(browser/{name})"
        answer = self.ask(name, message_a("hub:connect", me=me, metadata=connect_a(**metadata)))
        assert answer["type"] == "hub:connected", answer
        return me

    def register_a(self, name: str, *capabilities: str, **more: Any) -> str:
        """Let a connection introduce and register itself in dialect A; return its address."""
        me = self.connect_a(name)
        payload = {"actorAddress": me, "capabilities": list(capabilities) or ["any"]} | more
        answer = self.ask(name, message_a("hub:register", payload, me=me))
        assert answer["type"] == "hub:registered", answer
        return me

    def shorten_turns(self, looks: int) -> None:
        """Let each turn be over when one looks for the ``looks``-th time whether it is."""
        clock = itertools.count(0, TURN / (looks - 0.5))
        turn = Turn(clock=clock.__next__)
        self.broker.delivery.turn = turn

    def turns(self, name: str, *messages: Any) -> list[int]:
        """Let a connection say messages; return how many bytes each turn has made for all."""
        data = b"".join(json.dumps(one).encode() + b"\n" for one in messages)
        made = []
        more = True
        while more:
            more = self.connections[name].receive(data)
            data = b""
            made.append(self.broker.delivery.turn.made)
        return made

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for _ in self.hub.sweep():
            pass


class Socket:
    """A WebSocket to a daemon's hub port, by the package ``websockets``."""

    def __init__(self, daemon: Daemon, path: str = "/ws", **more: Any) -> None:
        host, port = daemon.hub
        self._stack = contextlib.ExitStack()
        self.connection: ClientConnection = self._stack.enter_context(
            connect(
                f"ws://{host}:{port}{path}",
                compression=None,
                max_size=None,
                open_timeout=DEADLINE,
                close_timeout=DEADLINE,
                ping_interval=None,
                max_queue=None,  # or an unread message would hold up the close
                proxy=None,
                **more,
            )
        )

    @property
    def label(self) -> str:
        """What the daemon calls this connection in its logs."""
        host, port = self.connection.local_address[:2]
        return f"{host}:{port}"

    def say(self, *messages: Any) -> None:
        """Send messages, each as a text of its own."""
        for message in messages:
            self.connection.send(json.dumps(message))

    def hear(self) -> Any:
        """Return the next message."""
        return json.loads(self.connection.recv(timeout=DEADLINE))

    def ask(self, message: Any) -> Any:
        """Say one message and return what comes next."""
        self.say(message)
        return self.hear()

    def quiet(self) -> bool:
        """Return whether nothing is under way: what comes next is the answer to a ping."""
        return bool(self.ask({"type": "ping"}) == {"type": "pong"})

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


class Lines:
    """A plain socket to a daemon's hub port, for JSON texts a line, or for anything else."""

    def __init__(self, daemon: Daemon) -> None:
        self.sock = socket.create_connection(daemon.hub, timeout=DEADLINE)
        self.heard = b""

    @property
    def label(self) -> str:
        """What the daemon calls this connection in its logs."""
        host, port = self.sock.getsockname()[:2]
        return f"{host}:{port}"

    def say_raw(self, data: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(data)

    def say(self, *messages: Any) -> None:
        """Send messages in one piece."""
        self.say_raw(b"".join(json.dumps(one).encode() + b"\n" for one in messages))

    def hear_raw(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, or fewer if the connection ends before."""
        while len(self.heard) < size:
            data = self.sock.recv(65_536)
            if not data:
                break
            self.heard += data
        found, self.heard = self.heard[:size], self.heard[size:]
        return found

    def hear_until(self, what: bytes, times: int = 1) -> bytes:
        """Return what comes until it holds something that often."""
        pieces: list[bytes] = []
        while times > 0:
            data = self.sock.recv(65_536)
            assert data, f"closed, {times} times too early"
            # It may have been cut in two.
            end = pieces[-1][1 - len(what) :] if pieces else b""
            times -= (end + data).count(what)
            pieces.append(data)
        found, self.heard = self.heard + b"".join(pieces), b""
        return found

    def hear_rest(self) -> bytes:
        """Return everything until the end of the connection."""
        with contextlib.suppress(ConnectionResetError):
            while data := self.sock.recv(65_536):
                self.heard += data
        found, self.heard = self.heard, b""
        return found

    def hear(self) -> Any:
        """Return the next message."""
        while b"\n" not in self.heard:
            data = self.sock.recv(65_536)
            assert data, f"closed after {self.heard!r}"
            self.heard += data
        line, self.heard = self.heard.split(b"\n", 1)
        return json.loads(line)

    def ask(self, message: Any) -> Any:
        """Say one message and return what comes next."""
        self.say(message)
        return self.hear()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
