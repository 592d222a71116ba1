"""How the cases of the hub port are measured on one server.

As ``runners``, with connections that are WebSockets.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence

from .hubwires import HUB, Hub, Tunnel, WebSocketWire, compact, named_id
from .links import BenchError, Link, connect
from .meter import Meter
from .probe import percentiles
from .protocols import Nats, Want
from .runners import PairRunner, Reading, Runner
from .servers import Door, Fleet, Server
from .traffic import MIB, Plan, Rig
from .websocket import TEXT, Frames, client_frame


class BesideHubRunner(PairRunner):
    """The line port beside a hub port, to which `idle` actors are connected that say nothing."""

    def __init__(self, fleet: Fleet, name: str, plan: Plan, idle: int) -> None:
        self._count = idle
        hub = fleet.get(name, "hub")
        super().__init__(lambda: Rig(fleet.get(name, "no-hub"), plan), lambda: Rig(hub, plan), hub)

    def connect_idle(self) -> Iterator[Link]:
        door = self.server.door(HUB)
        return (connect(door) for _ in range(self._count))


Step = tuple[Link, bytes, Link, bytes]  # who sends what, who receives what for it


class AckRunner(Runner):
    """``median_us`` and ``p99_us`` from before a message is published until it is acknowledged.

    ``cpu_s``: seconds of the server's processor for a million messages.

    The message goes to one subscriber. Where the server acknowledges, that happens
    beside it, and the subscriber's copy is taken when the clock stands. With nats, the
    subscriber answers, as fast as it can: that is its request and reply.
    """

    def __init__(self, server: Server, door: Door, name: bytes, payload: bytes) -> None:
        self.server = server
        self.links: list[Link] = []
        self._steps: list[tuple[Callable[[bytes], int], bytes, Callable[[int], bytes], int]] = []
        self._copy: tuple[Callable[[int], bytes], int] | None = None
        want = Want("exact", name)
        try:
            asking, other = connect(door), connect(door)
            self.links += asking, other
            other.subscribe([want])
            if isinstance(door.wire, Tunnel):
                asking.subscribe([Want("exact", b"reply")])
        except BaseException:
            self.close()
            raise
        wire = asking.wire
        self._due: list[Step]
        if isinstance(wire, Tunnel):
            self._due = _request_and_reply(asking, other, name, payload)
        else:
            answer = wire.published(1, name, payload)
            self._due = [(asking, wire.publish(name, payload), asking, answer)]
            self._copy_due = wire.deliver(0, want, name, payload)

    def settle(self) -> None:
        for link in self.links:
            link.settle()

    def prepare(self, seconds: float) -> None:
        """Learn how many bytes each message is, and compare what it says."""
        for sender, message, receiver, due in self._due:
            sender.send(message)
            size = _expect_alone(receiver, due)
            self._steps.append((sender.socket.send, message, receiver.socket.recv, size))
        if len(self._due) == 1:
            subscriber = self.links[1]
            self._copy = subscriber.socket.recv, _expect_alone(subscriber, self._copy_due)
        for link in self.links:
            link.wait_in_kernel()
        self.run(seconds)

    def _trip(self) -> float:
        started = time.perf_counter()
        for send, message, receive, size in self._steps:
            send(message)
            got = len(receive(size))
            while got < size:
                got += self._more(receive, size - got)
        took = time.perf_counter() - started
        if self._copy is not None:
            receive, size = self._copy
            while size:
                size -= self._more(receive, size)
        return took

    def _more(self, receive: Callable[[int], bytes], size: int) -> int:
        got = len(receive(size))
        if not got:
            raise BenchError(f"{self.server.name}: closed the connection")
        return got

    def run(self, seconds: float) -> Reading:
        times: list[float] = []
        trip, clock = self._trip, time.perf_counter
        meter = Meter(self.server.pid)
        until = clock() + seconds
        while clock() < until:
            times.append(trip())
        took, cores = meter.stop()
        for link in self.links:
            link.check_ping()  # nothing else has come
        cpu_s = cores.server * took / len(times) * 1e6
        return Reading({**percentiles(times), "cpu_s": cpu_s}, cores)

    def close(self) -> None:
        for link in self.links:
            link.close()


def _request_and_reply(asking: Link, other: Link, name: bytes, payload: bytes) -> list[Step]:
    """nats: a request names the subject of its reply."""
    head = b"%b %b %d" % (name, b"reply", len(payload))
    request = Tunnel.frame(b"PUB %b\r\n%b\r\n" % (head, payload))
    arrives = b"MSG %b 1 reply %d\r\n%b\r\n" % (name, len(payload), payload)
    reply = asking.wire.publish(b"reply", b"ok")
    answer = Nats().deliver(0, Want("exact", b"reply"), b"reply", b"ok")
    return [(asking, request, other, arrives), (other, reply, asking, answer)]


def _expect_alone(link: Link, due: bytes) -> int:
    """Read one message, compare it, and return how many bytes it was with its frame."""
    raw = decoded = b""
    while len(decoded) < len(due):
        piece = link.socket.recv(MIB)
        if not piece:
            raise BenchError(f"{link.server.name}: closed the connection")
        raw += piece
        decoded += link.decode(piece)
    if decoded != due:
        raise BenchError(f"{link.server.name}: received {decoded!r} instead of {due!r}")
    return len(raw)


class DiscoverRunner(Runner):
    """``answer_ms``, and ``line_wait_ms``, the longest a ping on the line port waits meanwhile.

    `count` actors are registered, all with one capability, on few connections. A
    question asks for a regular expression, each time another one, that a tenth of the
    addresses match; the answer is a page of 100 of them and their number.
    """

    CONNECTIONS = 10
    PAGE = 100

    def __init__(self, server: Server, count: int) -> None:
        self.server = server
        self._count = count
        self._links: list[Link] = []
        self._numbers = itertools.count()
        self._matching = [{_actor(i) for i in range(k, count, 10)} for k in range(10)]
        try:
            for first in range(self.CONNECTIONS):
                link = connect(server.door(HUB))
                self._links.append(link)
                _register(link, [_actor(i) for i in range(first, count, self.CONNECTIONS)])
            self._line = Link(server)
            self._links.append(self._line)
            # The dialect with regular expressions.
            self._asking = connect(server.door(ASKING))
            self._links.append(self._asking)
        except BaseException:
            self.close()
            raise

    def prepare(self, seconds: float) -> None:
        self._asking.socket.setblocking(False)
        self._line.wait_in_kernel()
        self.run(seconds)

    def run(self, seconds: float) -> Reading:
        times = []
        longest = 0.0
        meter = Meter(self.server.pid)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            took, waited = self._ask(next(self._numbers))
            times.append(took)
            longest = max(longest, waited)
        _, cores = meter.stop()
        times.sort()
        values = {"answer_ms": times[len(times) // 2] * 1e3, "line_wait_ms": longest * 1e3}
        return Reading(values, cores)

    def _ask(self, number: int) -> tuple[float, float]:
        """Ask once, ping until the answer is there; seconds for it, and the longest ping."""
        question = _question(number)
        frames = Frames(TEXT)
        answers: list[bytes] = []
        longest = 0.0
        clock = time.perf_counter
        ping, pong = self._line.wire.ping, len(self._line.wire.pong)
        started = clock()
        self._asking.send(question)
        while not answers:
            sent = clock()
            self._line.send(ping)
            if len(self._line.read(pong)) != pong:
                raise BenchError(f"{self.server.name}: no pong")
            now = clock()
            longest = max(longest, now - sent)
            with contextlib.suppress(BlockingIOError):
                data = self._asking.socket.recv(MIB)
                if not data:
                    raise BenchError(f"{self.server.name}: closed the connection")
                answers = frames.feed(data)
            if now - started > 60:
                raise BenchError(f"{self.server.name}: no answer to hub:discover in 60 s")
        took = clock() - started
        self._check(number, answers)
        return took, longest

    def _check(self, number: int, answers: Sequence[bytes]) -> None:
        answer = json.loads(answers[0])
        payload = answer.get("payload") or {}
        addresses = [actor["actorAddress"] for actor in payload.get("actors") or ()]
        matching = self._matching[number % 10]
        right = (
            len(answers) == 1
            and answer["type"] == "hub:discovery_result"
            and answer["correlationId"] == named_id(b"discover", b"%d" % number)
            and payload["totalMatches"] == len(matching)
            and len(set(addresses)) == len(addresses) == min(self.PAGE, len(matching))
            and matching.issuperset(addresses)
        )
        if not right:
            raise BenchError(f"{self.server.name}: to hub:discover: {answers[0][:300]!r}")

    def close(self) -> None:
        for link in self._links:
            link.close()


def _actor(i: int) -> str:
    return f"@(fleet/sensor-{i:06d})"


def _register(link: Link, addresses: Sequence[str]) -> None:
    wire = link.wire
    assert isinstance(wire, Hub)
    for start in range(0, len(addresses), 100):
        group = addresses[start : start + 100]
        link.send(b"".join([wire.registration(address, ["sense"]) for address in group]))
        # The answer is for the actor that has just been registered.
        link.expect(b"".join([wire.registered(address) for address in group]))


class Asking(WebSocketWire):
    """A connection that asks in the other dialect of ``hub:*``, for its hello alone."""

    path = "/ws"
    hello = client_frame(
        TEXT,
        compact(
            {
                "type": "hub:connect",
                "from": "bench/asking",
                "to": "cloudflare/signal-hub",
                "payload": {"version": "1.0"},
                "correlationId": "c1",
            }
        ),
    )
    welcome = b"hub:connected c1\n"

    def read(self, message: bytes) -> bytes:
        value = json.loads(message)
        return f"{value['type']} {value['correlationId']}\n".encode()


ASKING = Asking()


def _question(number: int) -> bytes:
    payload = {
        "pattern": f"^fleet/sensor-[0-9]+{number % 10}$",
        "capabilities": ["sense"],
        "limit": DiscoverRunner.PAGE,
    }
    message = {
        "type": "hub:discover",
        "from": "bench/asking",
        "to": "cloudflare/signal-hub",
        "payload": payload,
        "correlationId": named_id(b"discover", b"%d" % number),
    }
    return client_frame(TEXT, compact(message))
