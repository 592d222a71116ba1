"""The load generator: pre-built bytes out, bytes counted in, never ahead by more than a window.

One process, one epoll, plain non-blocking sockets. What a run may cost here is a
send for many messages and a receive for many messages; nothing is parsed and
nothing is looked at per message, so the generator costs every server the same.

Invariants:

- A run ends between two blobs of each publisher, and only when as many bytes have
  arrived as the protocol's frames add up to; then a ping on every connection must
  be answered by exactly the pong. So a lost message stops the run, a doubled one
  or an error line makes it fail.
- Received bytes are dropped by the kernel (MSG_TRUNC): counted, not copied. Their
  content is compared, byte for byte, before the first run (`Rig.verify`); of JSON,
  field by field, and the number of bytes is then the one to come out each time.
- What has been published and not yet received, in published bytes, is less than
  `Plan.window` plus one send. For a fan-out this bounds each subscriber's share.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from .hubwires import WebSocketWire
from .links import PATIENCE_SECONDS, Address, BenchError, Link, connect
from .meter import Cores, Meter
from .protocols import Want, Wire
from .servers import Server

KIB, MIB = 1 << 10, 1 << 20

Message = tuple[bytes, bytes]  # name, payload
_FRESH_NAME = b"n%010d"  # one width, so that all frames of a case have one length


@dataclass(frozen=True)
class Plan:
    """What is published and who wants it.

    `messages` is one blob's worth, repeated for as long as a run takes; each of
    `publishers` connections sends all of it. With `fresh`, the names of the
    messages are replaced by names that never occur twice. `subscribers` has the
    subscriptions of each connection. `window`: bytes, or messages of which each is
    acknowledged, if it says so.
    """

    messages: tuple[Message, ...]
    subscribers: tuple[tuple[Want, ...], ...]
    publishers: int = 1
    fresh: bool = False
    window: int = MIB
    window_messages: int = 0


@dataclass(frozen=True)
class Sample:
    """One run: messages published, seconds, and who used the processor."""

    messages: int
    seconds: float
    cores: Cores

    @property
    def rate(self) -> float:
        """Messages published a second."""
        return self.messages / self.seconds

    @property
    def cpu_s(self) -> float:
        """Seconds of the server's processor for a million messages published."""
        return self.cores.server * self.seconds / self.messages * 1e6


class Load:
    """A plan in the bytes of one protocol; of another one on the subscribers' side, if given.

    Attributes: `size` of a blob in bytes; `messages` in it; `streams`, what each
    subscriber receives for the first blob; `answer`, what the publisher does.
    """

    def __init__(self, plan: Plan, wire: Wire, subscribers_wire: Wire | None = None) -> None:
        self.messages = len(plan.messages)
        self._plan = plan
        self._wire = subscribers_wire or wire
        self._next_fresh = 0
        self._first_is_fresh = plan.fresh
        if plan.fresh:
            stand_in = _FRESH_NAME % 0
            frames = (wire.publish(stand_in, payload) for _, payload in plan.messages)
            self._template = b"".join(
                frame.replace(b"%", b"%%").replace(stand_in, _FRESH_NAME) for frame in frames
            )
            named = [(_FRESH_NAME % i, payload) for i, (_, payload) in enumerate(plan.messages)]
            self._blob = memoryview(self._fresh_blob())
        else:
            named = list(plan.messages)
            self._blob = memoryview(b"".join(wire.publish(*message) for message in named))
        self.size = len(self._blob)
        receivers = [0] * len(named)
        built: dict[tuple[Want, ...], tuple[bytes, list[int]]] = {}
        self.streams: list[bytes] = []
        for wants in plan.subscribers:
            if wants not in built:
                built[wants] = self._stream(wants, named)
            stream, due = built[wants]
            self.streams.append(stream)
            for i in due:
                receivers[i] += 1
        self.answer = b"".join(
            wire.published(count, *message) for count, message in zip(receivers, named, strict=True)
        )

    def _stream(self, wants: tuple[Want, ...], named: list[Message]) -> tuple[bytes, list[int]]:
        first: dict[bytes, int | None] = {}
        frames: list[bytes] = []
        due: list[int] = []
        for i, (name, payload) in enumerate(named):
            if name not in first:
                hits = (index for index, want in enumerate(wants) if want.matches(name))
                first[name] = next(hits, None)
            index = first[name]
            if index is not None:
                frames.append(self._wire.deliver(index, wants[index], name, payload))
                due.append(i)
        return b"".join(frames), due

    def _fresh_blob(self) -> bytes:
        start = self._next_fresh
        self._next_fresh += self.messages
        return self._template % tuple(range(start, self._next_fresh))

    def blobs(self, messages: int) -> Iterator[memoryview]:
        """The blobs to send: for ever the same, or enough fresh ones for `messages`."""
        if not self._plan.fresh:
            return repeat(self._blob)
        if self._first_is_fresh:  # the one whose content gets compared
            self._first_is_fresh = False
            return iter([self._blob])
        count = max(1, min(messages // self.messages, 256 * MIB // self.size))
        return iter([memoryview(self._fresh_blob()) for _ in range(count)])


@dataclass
class _Publisher:
    link: Link
    send: Callable[[memoryview], int]
    blobs: Iterator[memoryview]
    view: memoryview | None = None
    offset: int = 0
    writable: bool = True
    done: bool = False


class Rig:
    """The connections of one plan to one server, kept over all its runs.

    They go to `publish_to` and `subscribe_at`, the server's line port unless given.
    """

    def __init__(
        self,
        server: Server,
        plan: Plan,
        publish_to: Address | None = None,
        subscribe_at: Address | None = None,
    ) -> None:
        self.server = server
        self.plan = plan
        self.closed = False
        self._last_rate = 0.0
        # What is counted for one blob at each subscriber, and at the publisher.
        self._weights: list[int] = []
        self._answer_weight = 0
        self._links: list[Link] = []
        try:
            self._subscribers = self._open(subscribe_at or server, plan.subscribers)
            self._publishers = self._open(publish_to or server, [()] * plan.publishers)
            heard = self._subscribers[0].wire
            # One for all, unless each publisher has its address in what it says.
            wires = dict.fromkeys(link.wire for link in self._publishers)
            self._loads = {wire: Load(plan, wire, heard) for wire in wires}
            self.load = self._loads[self._publishers[0].wire]
        except BaseException:
            self.close()
            raise

    def _open(self, door: Address, wants: Sequence[Sequence[Want]]) -> list[Link]:
        """A connection with each of these subscriptions.

        Several at a time: mosquitto looks after WebSockets ten times a second if none is busy.
        """

        def open_one(wants: Sequence[Want]) -> Link:
            link = connect(door)
            self._links.append(link)
            if wants:
                link.subscribe(wants)
            return link

        with ThreadPoolExecutor(25 if isinstance(door.wire, WebSocketWire) else 1) as pool:
            return list(pool.map(open_one, wants))

    @property
    def ends(self) -> tuple[Link, Link]:
        """The first publisher's connection and the first subscriber's."""
        return self._publishers[0], self._subscribers[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of a message as it is published, and as `verify` has seen it arrive."""
        return self.load.size // self.load.messages, self._weights[0] // self.load.messages

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        for link in self._links:
            link.close()

    def settle(self) -> None:
        """Let the server ask what it asks by itself, so that no run is disturbed by it."""
        for link in (*self._subscribers, *self._publishers):
            link.settle()

    def verify(self) -> None:
        """Publish one blob from each publisher in turn and compare all that is received."""
        for publisher in self._publishers if not self.plan.fresh else self._publishers[:1]:
            self._verify_one(publisher, next(self._loads[publisher.wire].blobs(0)))
        self._check_quiet()

    def _verify_one(self, publisher: Link, blob: memoryview) -> None:
        links = [*self._subscribers, publisher]
        streams = [*self.load.streams, self.load.answer]
        got = [bytearray() for _ in links]
        weights = [0] * len(links)
        sent = 0
        for link in links:
            link.socket.setblocking(False)
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until and any(
            len(have) < len(stream) for have, stream in zip(got, streams, strict=True)
        ):
            with contextlib.suppress(BlockingIOError):
                if sent < len(blob):
                    sent += publisher.send_some(blob[sent : sent + 64 * KIB])
            for i, (link, have) in enumerate(zip(links, got, strict=True)):
                with contextlib.suppress(BlockingIOError):
                    piece = link.receive_some(MIB)
                    if not piece:
                        raise BenchError(f"{self.server.name}: closed the connection")
                    decoded = link.decode(piece)
                    have.extend(decoded)
                    weights[i] += link.weigh(piece, decoded)
        for link, have, stream in zip(links, got, streams, strict=True):
            if have != stream if link.wire.exact else len(have) != len(stream):
                pairs = enumerate(zip(have, stream, strict=False))
                at = next((i for i, (a, b) in pairs if a != b), min(len(have), len(stream)))
                raise BenchError(
                    f"{self.server.name}: {len(have)} bytes of {len(stream)}, different from"
                    f" byte {at}: {bytes(have[at : at + 60])!r}"
                )
        *self._weights, self._answer_weight = weights

    def _check_quiet(self) -> None:
        """Nothing may be under way or in surplus: a ping is answered by just its pong."""
        for link in (*self._publishers, *self._subscribers):
            link.socket.settimeout(PATIENCE_SECONDS)
            link.check_ping()

    def run(self, seconds: float, tick: Callable[[], None] | None = None) -> Sample:
        """Publish for `seconds`, receive everything, check the counts.

        The clock runs from the first send to the last byte received. `tick` is
        called about once a millisecond.
        """
        room = int(max(self._last_rate, 20_000) * seconds * 1.3 / len(self._publishers))
        publishers = [
            _Publisher(link, link.send_some, self._loads[link.wire].blobs(room))
            for link in self._publishers
        ]
        meter = Meter(*self.server.pids)
        blobs = self._pump(publishers, time.perf_counter() + seconds, tick)
        sample = Sample(blobs * self.load.messages, *meter.stop())
        self._last_rate = sample.rate
        self._check_quiet()
        return sample

    def _pump(
        self, publishers: list[_Publisher], until: float, tick: Callable[[], None] | None
    ) -> int:
        """The hot loop; returns how many blobs have been sent and received in full."""
        epoll = select.epoll()
        by_fd: dict[int, _Publisher] = {}
        counters: dict[int, Callable[[], int]] = {}
        counts: dict[int, int] = {}
        for link in self._subscribers:
            link.socket.setblocking(False)
            fd = link.socket.fileno()
            counters[fd] = link.counter()
            counts[fd] = 0
            epoll.register(fd, select.EPOLLIN)
        for publisher in publishers:
            publisher.link.socket.setblocking(False)
            fd = publisher.link.socket.fileno()
            by_fd[fd] = publisher
            counts[fd] = 0
            epoll.register(fd, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

        size, window = self.load.size, self.plan.window
        out_size, answer_size = sum(self._weights), self._answer_weight
        in_per_out = size / out_size
        in_per_answer = 0.0
        if self.plan.window_messages:
            window = size * self.plan.window_messages // self.load.messages
            in_per_answer = size / answer_size
        clock = time.perf_counter
        blobs = sent = received = answers = 0
        patience = clock() + PATIENCE_SECONDS
        stopping = False
        while True:
            now = clock()
            if tick is not None:
                tick()
            if not stopping and now >= until:
                stopping = True
            # Out: whoever may, up to the window.
            starved = True
            working = False
            for publisher in publishers[:]:
                if publisher.done:
                    continue
                working = True
                if not publisher.writable or sent - received * in_per_out >= window:
                    continue
                if in_per_answer and sent - answers * in_per_answer >= window:
                    continue
                if stopping and not publisher.offset:
                    publisher.done = True
                    continue
                if publisher.view is None:
                    publisher.view = next(publisher.blobs, None)
                    if publisher.view is None:
                        publisher.done = True
                        continue
                try:
                    count = publisher.send(publisher.view[publisher.offset :])
                except BlockingIOError:
                    publisher.writable = False
                    continue
                starved = False
                publishers.remove(publisher)  # the others come first now: what frees the window may
                publishers.append(publisher)  # be in step with our rounds, and always find the same
                sent += count
                publisher.offset += count
                if publisher.offset == size:
                    blobs += 1
                    publisher.view = None
                    publisher.offset = 0
            if not working and received >= blobs * out_size and answers >= blobs * answer_size:
                break
            # In: count and drop.
            wait = 0.0 if not starved else 0.001 if tick is not None else 0.5
            events = epoll.poll(wait)
            if events:
                patience = now + PATIENCE_SECONDS
            elif now > patience:
                raise BenchError(self._complaint(blobs, counts))
            for fd, event in events:
                if fd in counters:
                    count = counters[fd]()
                    if not count:
                        self._check_open(fd)
                    received += count
                    counts[fd] += count
                    continue
                publisher = by_fd[fd]
                if event & select.EPOLLOUT:
                    publisher.writable = True
                if event & ~select.EPOLLOUT:
                    count = self._read_answers(publisher)
                    answers += count
                    counts[fd] += count
        epoll.close()
        for fd, weight in zip(counters, self._weights, strict=True):
            if counts[fd] != blobs * weight:
                raise BenchError(self._complaint(blobs, counts))
        if answers != blobs * answer_size:
            raise BenchError(self._complaint(blobs, counts))
        return blobs

    def _check_open(self, fd: int) -> None:
        """A piece without payload may be part of a frame's head, or the end."""
        for link in self._subscribers:
            if link.socket.fileno() == fd and link.closed():
                raise BenchError(f"{self.server.name}: closed a subscriber's connection")

    def _read_answers(self, publisher: _Publisher) -> int:
        """Take all that waits for a publisher: confirmations, where there are any."""
        total = 0
        while True:
            try:
                data = publisher.link.receive_some(256 * KIB)
            except BlockingIOError:
                return total
            if not data:
                raise BenchError(f"{self.server.name}: closed a publisher's connection")
            if not self.load.answer:
                raise BenchError(f"{self.server.name}: told a publisher {data[:200]!r}")
            total += len(data)

    def _complaint(self, blobs: int, counts: dict[int, int]) -> str:
        expected = [blobs * weight for weight in self._weights]
        got = list(counts.values())[: len(expected)]
        worst = max(range(len(expected)), key=lambda k: abs(got[k] - expected[k]))
        return (
            f"{self.server.name}: subscriber {worst} received {got[worst]} bytes"
            f" of {expected[worst]}, all subscribers {sum(got)} of {sum(expected)}"
        )
