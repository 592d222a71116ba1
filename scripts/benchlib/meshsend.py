"""Messages to actors of another server, one at a time, beside nats' requests and replies."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from tests.messages import connect_a, message_a

from .links import PATIENCE_SECONDS, BenchError, Link, wait_in_kernel
from .meshservers import door, linked, wait_wanted
from .meter import Meter
from .probe import Probe
from .protocols import Want
from .runners import Reading, Runner
from .servers import Fleet, Server

_LINE = b"bench/line"
_LF = 10
_TURN = 100  # messages of one kind before those of the next


class _Actor:
    """A connection to a hub port that has registered an address, in lines of JSON."""

    def __init__(self, server: Server, name: str) -> None:
        self.address = f"@(bench/{name})"
        self._buffer = bytearray(65_536)
        self.socket = socket.create_connection(("127.0.0.1", server.hub_port), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        capabilities = {"capabilities": ["bench"]}
        self.ask("hub:connect", None, metadata=connect_a(**capabilities))
        self.ask("hub:register", {"actorAddress": self.address, **capabilities})

    def message(self, kind: str, payload: Any, **more: Any) -> bytes:
        message = message_a(kind, payload, me=self.address, **more)
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def send(self, to: _Actor, pattern: str) -> bytes:
        payload = {"to": to.address, "type": "bench", "data": "x" * 16}
        return self.message("hub:send", payload, pattern=pattern)

    def ask(self, kind: str, payload: Any, **more: Any) -> Any:
        self.socket.sendall(self.message(kind, payload, **more))
        return json.loads(self.read())

    def read(self) -> bytes:
        """One message."""
        buffer = self._buffer
        got = self.socket.recv_into(buffer)
        while got and buffer[got - 1] != _LF:
            more = self.socket.recv_into(memoryview(buffer)[got:])
            got = more and got + more
        if not got:
            raise BenchError("pubsubd: the hub port has closed the connection")
        return bytes(buffer[:got])


class SendRunner(Runner):
    """``send_us``: from an actor to one at the other end of a link; ``ask_us``: and its answer.

    ``line_us`` is what a message of the line port takes over the same link. With nats, ``ask_us``
    is a request and its reply. Medians, of turns that alternate.
    """

    def __init__(self, fleet: Fleet, name: str) -> None:
        here, there = linked(fleet, name, 2)
        self.server = here
        self._open: list[Any] = []
        self._line: Probe | None = None
        try:
            ways = self._pubsubd if name == "pubsubd" else self._nats
            self._trips: dict[str, Callable[[], float]] = ways(here, there)
        except BaseException:
            self.close()
            raise

    def _pubsubd(self, here: Server, there: Server) -> dict[str, Callable[[], float]]:
        near, far = _Actor(here, "near"), _Actor(there, "far")
        self._open += [near.socket, far.socket]
        self._line = line = Probe(door(here), _LINE, b"x" * 16, door(there))
        self._open.append(line)
        asked, told = near.send(far, "ask"), near.send(far, "tell")
        until = time.monotonic() + PATIENCE_SECONDS
        while True:  # until the actor is known here
            near.socket.sendall(asked)
            if json.loads(near.read())["type"] == "hub:delivery_ack":
                break
            if time.monotonic() > until:
                raise BenchError("pubsubd: the actor of the other daemon is not known")
            time.sleep(0.05)
        far.read()

        def ask() -> float:
            started = time.perf_counter()
            near.socket.send(asked)  # as the probe does; it is far from filling the socket
            near.read()
            took = time.perf_counter() - started
            far.read()
            return took

        def send() -> float:
            started = time.perf_counter()
            near.socket.send(told)
            far.read()
            return time.perf_counter() - started

        return {"send_us": send, "ask_us": ask, "line_us": line.trip}

    def _nats(self, here: Server, there: Server) -> dict[str, Callable[[], float]]:
        near, far = Link(here), Link(there)
        self._open += [near, far]
        request, reply = b"bench.request", b"bench.reply"
        near.subscribe([Want("exact", reply)])
        far.subscribe([Want("exact", request)])
        wait_wanted(near, far, Want("exact", request), request)
        wait_wanted(far, near, Want("exact", reply), reply)
        asked = b"PUB %b %b 16\r\n%b\r\n" % (request, reply, b"x" * 16)
        heard = b"MSG %b 1 %b 16\r\n%b\r\n" % (request, reply, b"x" * 16)
        answered = far.wire.publish(reply, b"y")
        due = near.wire.deliver(0, Want("exact", reply), reply, b"y")

        def ask() -> float:
            started = time.perf_counter()
            near.send(asked)
            far.expect(heard)
            far.send(answered)
            near.expect(due)
            return time.perf_counter() - started

        return {"ask_us": ask}

    def settle(self) -> None:
        for one in self._open:
            if isinstance(one, Probe | Link):
                one.settle()
            if isinstance(one, socket.socket | Link):  # as a probe does
                wait_in_kernel(one if isinstance(one, socket.socket) else one.socket)

    def prepare(self, seconds: float) -> None:
        if self._line is not None:
            wait_wanted(*self._line.links, Want("exact", _LINE), _LINE)
        self.run(seconds)

    def run(self, seconds: float) -> Reading:
        times: dict[str, list[float]] = {metric: [] for metric in self._trips}
        clock = time.perf_counter
        meter = Meter(*self.server.pids)
        until = clock() + seconds
        while clock() < until:
            for metric, trip in self._trips.items():
                times[metric].extend(trip() for _ in range(_TURN))
        _, cores = meter.stop()
        return Reading({metric: median(took) * 1e6 for metric, took in times.items()}, cores)

    def close(self) -> None:
        for one in self._open:
            one.close()
