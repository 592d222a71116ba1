"""A worker: publishers and healthy subscribers, on every door there is.

It is told ``prime`` (publish until every subscriber has heard of every publisher), ``go``,
``pause`` (write out the runs that are begun), ``finish`` (pause, and wait for what is due),
``collect`` (wait until the daemon has closed all connections), ``mark``, ``unheard`` (streams that
nothing has come of since the mark) and ``report``.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .streams import (
    COPIED,
    PUBLISHED,
    RUN,
    SLOW_COPIED,
    SLOW_PUBLISHED,
    FastReader,
    Flow,
    Runs,
    SlowReader,
    errors,
    mark,
)
from .wires import (
    KIB,
    MIB,
    PATIENCE,
    Address,
    frame,
    hub_subscribe,
    open_websocket,
    over,
    reset_at_end,
    synap_publish,
    synap_subscribe,
)
from .workers import Told

_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_ANSWERS = re.compile(rb'"success":(true|false)')
_QUIET = 30.0  # seconds without anything after which what is missing is lost


@dataclass(frozen=True)
class Pub:
    """A publisher.

    Attributes:
        name: of its stream: ``p..`` for a fast one, ``s..`` for a slow one.
        address: where it connects.
        kind: what it speaks: ``line``, ``ndjson`` or ``ws``.
        rate: messages a second; 0 for as many as go.
        renew: whether it connects again when its connection breaks.
    """

    name: str
    address: Address
    kind: str = "line"
    rate: float = 1000.0
    renew: bool = False


@dataclass(frozen=True)
class Sub:
    """A subscriber to all fast or all slow streams.

    Attributes:
        name: what it is called in reports.
        address, kind, renew: as of a publisher.
        fast: which streams.
        pace: bytes a second that it reads at most; 0 for any number.
        shut: whether it shuts down its sending side once it has subscribed.
    """

    name: str
    address: Address
    kind: str = "line"
    fast: bool = True
    renew: bool = False
    pace: float = 0.0
    shut: bool = False


@dataclass
class Report:
    """What a worker has seen.

    Attributes:
        sent: stream -> the number after the last message written.
        flows: subscriber -> stream -> what has come.
        told: connection -> codes of errors.
        strange: what came that nobody has sent.
        broken: connection -> how often it broke.
        ended: connections that the daemon has closed.
        answers: of the hub port to publishers, refused ones apart.
        refused: of these.
    """

    sent: dict[str, int] = field(default_factory=dict)
    flows: dict[str, dict[str, Flow]] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)
    broken: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    answers: int = 0
    refused: int = 0

    @property
    def published(self) -> int:
        """Messages written, of all streams."""
        return sum(self.sent.values())

    @property
    def delivered(self) -> int:
        """Messages that came as they should, to all subscribers together."""
        return self._sum("received")

    @property
    def lost(self) -> int:
        """Messages left out, those at the end included; what broke connections cost is not."""
        return self._sum("lost") + sum(
            max(0, self.sent.get(name, 0) - flow.next)
            for flows in self.flows.values()
            for name, flow in flows.items()
        )

    @property
    def doubled(self) -> int:
        """Messages that came again."""
        return self._sum("doubled")

    @property
    def late(self) -> int:
        """Messages that came after later ones."""
        return self._sum("late")

    @property
    def changed(self) -> int:
        """Messages that are not what was published, and frames that are of nobody."""
        return self._sum("changed") + len(self.strange)

    @property
    def errors(self) -> list[str]:
        """All codes of errors that came."""
        return [code for codes in self.told.values() for code in codes]

    def samples(self) -> str:
        """Examples of what was not as it should be."""
        found = [
            f"{sub}<{name}: {text}"
            for sub, flows in self.flows.items()
            for name, flow in flows.items()
            for text in flow.samples
        ]
        return "; ".join((found + self.strange)[:4])

    def _sum(self, what: str) -> int:
        return sum(getattr(flow, what) for flows in self.flows.values() for flow in flows.values())


class _End:
    """A connection of the generator's."""

    def __init__(self, name: str, address: Address, kind: str, renew: bool) -> None:
        self.name, self.address, self.kind, self.renew = name, address, kind, renew
        self.sock: socket.socket | ssl.SSLSocket | None = None
        self.broken = 0
        self.again = 0.0
        self.told: list[str] = []

    def connect(self) -> None:
        sock = self.address.connect()
        try:
            heard = open_websocket(sock) if self.kind == "ws" else b""
            self.greet(sock)
            reset_at_end(sock)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        self.sock = sock
        if heard:
            self.hear(heard)

    def greet(self, sock: socket.socket) -> None:
        raise NotImplementedError

    def hear(self, data: bytes) -> None:
        raise NotImplementedError


class _Publisher(_End):
    def __init__(self, plan: Pub) -> None:
        super().__init__(plan.name, plan.address, plan.kind, plan.renew)
        self.fast = plan.name.startswith("p")
        self.number = 0  # the next one
        self.count = RUN if self.fast else 1
        self.interval = self.count / plan.rate if plan.rate else 0.0
        self.due = 0.0
        self.pending = memoryview(b"")
        self.blocked = False
        self.answers = self.refused = 0
        self._runs = Runs(plan.name, PUBLISHED) if self.fast else None
        self._rest = b""

    def greet(self, sock: socket.socket) -> None:
        self.pending, self.blocked = memoryview(b""), False

    def hear(self, data: bytes) -> None:
        data = self._rest + data
        codes, end = errors(data)
        self.told += codes
        for match in _ANSWERS.finditer(data):
            end = max(end, match.end())
            if match[1] == b"true":
                self.answers += 1
            else:
                self.refused += 1
        self._rest = data[max(end, len(data) - 100) :]

    def prime(self) -> bytes:
        number = self.name[1:]
        if self.fast:
            return frame(PUBLISHED + b"z" + number.encode(), b"prime")
        return self._message(f"z{number}", 0)

    def make(self) -> bytes:
        if self._runs is not None:
            return self._runs[self.number // RUN]
        return self._message(self.name, self.number)

    def _message(self, name: str, number: int) -> bytes:
        data = mark(name, number)
        if self.kind == "line":
            return frame(SLOW_PUBLISHED + name.encode(), data)
        topic = SLOW_PUBLISHED.decode() + name
        return over(self.kind, synap_publish(topic, data.decode()))


class _Subscriber(_End):
    def __init__(self, plan: Sub, names: list[str], known: dict[str, Runs]) -> None:
        super().__init__(plan.name, plan.address, plan.kind, plan.renew)
        self.plan = plan
        self.names = [name for name in names if name.startswith("p") == plan.fast]
        self.reader: FastReader | SlowReader
        if plan.fast:
            self.reader = FastReader(self.names, known)
        else:
            self.reader = SlowReader(self.names)
        self.allowed = 0.0  # bytes that its pace lets it read

    def greet(self, sock: socket.socket) -> None:
        if self.kind == "line":
            sock.sendall(b"sub %b\n" % (COPIED if self.plan.fast else SLOW_COPIED))
            if self.plan.shut:
                sock.shutdown(socket.SHUT_WR)
        elif self.kind == "ws":
            sock.sendall(over("ws", hub_subscribe(SLOW_COPIED.decode() + "#")))
        else:
            topics = [SLOW_COPIED.decode() + name for name in self.names]
            topics += [SLOW_COPIED.decode() + "z" + name[1:] for name in self.names]
            sock.sendall(over("ndjson", synap_subscribe(*topics)))

    def hear(self, data: bytes) -> None:
        self.reader.feed(data)


class Traffic:
    """The worker; see the module."""

    def __init__(
        self, told: Told, pubs: list[Pub], subs: list[Sub], also: Sequence[str] = ()
    ) -> None:
        self._told = told
        names = [*(pub.name for pub in pubs), *also]
        known = {name: Runs(name, COPIED) for name in names if name.startswith("p")}
        self._subs = [_Subscriber(sub, names, known) for sub in subs]
        self._pubs = [_Publisher(pub) for pub in pubs]
        self._epoll = select.epoll()
        self._ends: dict[int, _End] = {}
        self._going = False
        self._ended: set[str] = set()
        for end in (*self._subs, *self._pubs):
            self._open(end)
        self._epoll.register(told.fileno(), select.EPOLLIN)
        self._moved = time.monotonic()
        self._slowest = any(sub.plan.pace for sub in self._subs)

    def _open(self, end: _End) -> None:
        end.connect()
        assert end.sock is not None
        self._ends[end.sock.fileno()] = end
        self._epoll.register(end.sock.fileno(), select.EPOLLIN)

    def _drop(self, end: _End) -> None:
        """A connection has ended."""
        assert end.sock is not None
        self._epoll.unregister(end.sock.fileno())
        del self._ends[end.sock.fileno()]
        end.sock.close()
        end.sock = None
        end.broken += 1
        end.again = time.monotonic() + 0.02
        self._ended.add(end.name)
        if isinstance(end, _Publisher):
            if end.pending:
                end.number += end.count  # they may or may not have come
            end.pending = memoryview(b"")
            if end.renew:
                for sub in self._subs:
                    if end.name in sub.reader.flows:
                        sub.reader.flows[end.name].broken = True
        elif end.renew:
            assert isinstance(end, _Subscriber)
            end.reader.break_off()

    def _renew(self, now: float) -> None:
        for end in (*self._subs, *self._pubs):
            if end.sock is None and end.renew and now >= end.again:
                try:
                    self._open(end)
                except OSError:
                    end.again = now + 0.02

    # One turn

    def turn(self, longest: float) -> None:
        """Send what is due, receive what is there; wait for something to do, but not longer."""
        now = time.monotonic()
        wait = min(longest, 0.2)
        if self._going or self._busy:
            for pub in self._pubs:
                if pub.sock is None or pub.blocked:
                    continue
                if not pub.pending and self._going and now >= pub.due:
                    pub.pending = memoryview(pub.make())
                    pub.due = max(pub.due + pub.interval, now - 0.2)
                if pub.pending:
                    self._write(pub)
                if self._going and not pub.blocked:
                    wait = min(wait, max(0.0, pub.due - now))
        if self._slowest:
            wait = min(wait, 0.02)
            for sub in self._subs:
                if sub.plan.pace and sub.sock is not None:
                    self._read_slowly(sub, now)
        for fd, event in self._epoll.poll(wait, 64):
            end = self._ends.get(fd)
            if end is None:
                continue
            if event & select.EPOLLOUT and isinstance(end, _Publisher):
                end.blocked = False
                self._epoll.modify(fd, select.EPOLLIN)
            if event & ~select.EPOLLOUT and not getattr(end, "plan", _ANY).pace:
                self._read(end)
        if len(self._ends) < len(self._subs) + len(self._pubs):
            self._renew(now)

    @property
    def _busy(self) -> bool:
        return any(pub.pending for pub in self._pubs)

    def _write(self, pub: _Publisher) -> None:
        assert pub.sock is not None
        try:
            sent = pub.sock.send(pub.pending)
        except _BLOCKED:
            sent = 0
        except OSError:
            self._read(pub, last=True)
            return
        pub.pending = pub.pending[sent:]
        if pub.pending:
            pub.blocked = True
            self._epoll.modify(pub.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        else:
            pub.number += pub.count

    def _read(self, end: _End, *, last: bool = False) -> None:
        assert end.sock is not None
        try:
            while data := end.sock.recv(MIB):
                self._moved = time.monotonic()
                end.hear(data)
                if not last and not isinstance(end.sock, ssl.SSLSocket):
                    return
        except _BLOCKED:
            if not last:
                return
        except OSError:
            pass
        if end.sock is not None:
            self._drop(end)

    def _read_slowly(self, sub: _Subscriber, now: float) -> None:
        assert sub.sock is not None
        if now < sub.again:
            return
        sub.again = now + 0.05
        try:
            data = sub.sock.recv(max(KIB, int(sub.plan.pace * 0.05)))
        except _BLOCKED:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(sub)
            return
        self._moved = now
        sub.hear(data)

    # What it is told

    def serve(self) -> None:
        """Do what it is told, and its work in between; ends when nobody tells anything more."""
        self._told.answer()
        while True:
            self.turn(0.2)
            if self._told.waiting:
                word, *arguments = self._told.hear()
                self._told.answer(getattr(self, "do_" + word)(*arguments))

    def do_prime(self, patience: float = PATIENCE) -> bool:
        """Publish until every subscriber has heard of every publisher; whether they all have."""
        end, again = time.monotonic() + patience, 0.0
        while True:
            missing = False
            for sub in self._subs:
                numbers = {pub.name[1:] for pub in self._pubs if pub.fast == sub.plan.fast}
                missing |= not numbers <= sub.reader.primed
            if not missing:
                break
            now = time.monotonic()
            if now > end:
                return False
            if now > again:
                again = now + 0.1
                for pub in self._pubs:
                    if pub.sock is not None:
                        pub.sock.setblocking(True)
                        pub.sock.sendall(pub.prime())
                        pub.sock.setblocking(False)
            self.turn(0.02)
        self._settle(0.3)
        return True

    def _settle(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn(0.02)

    def do_go(self) -> None:
        """Begin, or go on."""
        now = time.monotonic()
        for i, pub in enumerate(self._pubs):
            pub.due = now + pub.interval * i / len(self._pubs)
        self._going = True

    def do_pace(self, rate: float) -> None:
        """Let all fast publishers together publish so many messages a second."""
        fast = [pub for pub in self._pubs if pub.fast]
        for pub in fast:
            pub.interval = pub.count * len(fast) / rate if rate else 0.0

    def do_run(self, seconds: float) -> int:
        """Work for some time; returns how many messages have been published until then."""
        self._settle(seconds)
        return sum(pub.number for pub in self._pubs)

    def do_sent(self) -> int:
        """How many messages have been published."""
        return sum(pub.number for pub in self._pubs)

    def do_pause(self, patience: float = PATIENCE) -> bool:
        """Publish no more; returns once all that is begun is written, and whether it is."""
        self._going = False
        until = time.monotonic() + patience
        while self._busy and time.monotonic() < until:
            self.turn(0.01)
        return not self._busy

    def do_finish(self) -> Report:
        """Pause, and wait for all that is due, as long as something of it comes."""
        self.do_pause()
        self._moved = time.monotonic()
        while time.monotonic() < self._moved + _QUIET and not self._complete:
            self.turn(0.05)
        self._settle(0.2)  # what comes now is in surplus
        return self.do_report()

    @property
    def _complete(self) -> bool:
        sent = {pub.name: pub.number for pub in self._pubs}
        return all(
            flow.next >= sent.get(name, 0)
            for sub in self._subs
            if sub.sock is not None
            for name, flow in sub.reader.flows.items()
        )

    def do_collect(self, patience: float = PATIENCE) -> Report:
        """Wait until the daemons have closed all connections."""
        until = time.monotonic() + patience
        while self._ends and time.monotonic() < until:
            self.turn(0.05)
        return self.do_report()

    def do_mark(self) -> None:
        """Look from now on what comes."""
        for sub in self._subs:
            for flow in sub.reader.flows.values():
                flow.heard = False

    def do_unheard(self) -> list[tuple[str, str]]:
        """Subscribers and streams of which nothing has come to them since the mark."""
        return [
            (sub.name, name)
            for sub in self._subs
            for name, flow in sub.reader.flows.items()
            if not flow.heard
        ]

    def do_report(self) -> Report:
        """What there is to tell."""
        report = Report(ended=self._ended)
        for pub in self._pubs:
            report.sent[pub.name] = pub.number
            report.told[pub.name] = pub.told
            report.broken[pub.name] = pub.broken
            report.answers += pub.answers
            report.refused += pub.refused
        for sub in self._subs:
            report.flows[sub.name] = sub.reader.flows
            report.told[sub.name] = sub.reader.told
            report.broken[sub.name] = sub.broken
            report.strange += sub.reader.strange
        return report


class _Any:
    pace = 0.0


_ANY = _Any()


def traffic(told: Told, pubs: list[Pub], subs: list[Sub], also: Sequence[str] = ()) -> None:
    """Publish and receive; see the module.

    ``also`` are streams that others publish, of which the end is not known here.
    """
    Traffic(told, pubs, subs, also).serve()
