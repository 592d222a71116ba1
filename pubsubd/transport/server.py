"""State that all connections of a daemon share: the broker, the log, and the end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NoReturn, Protocol
from weakref import WeakKeyDictionary

import trio

from pubsubd.access.checks import Checks
from pubsubd.broker.broker import Broker
from pubsubd.broker.logins import FailedLogin, origin
from pubsubd.broker.peer import Peer
from pubsubd.broker.unsent import Unsent, Waited
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import LOOK_OUT, TURN, Limits
from pubsubd.routing.outbox import Hold
from pubsubd.transport.checker import Checker
from pubsubd.transport.crowd import Crowd
from pubsubd.transport.lane import Lane
from pubsubd.transport.processor import Delay
from pubsubd.transport.tasks import Tasks, guarded
from pubsubd.transport.tls_handshakes import TlsHandshakes

log = logging.getLogger("pubsubd")

MAX_USER = 128
"""Characters of a user's name in the log and in events; the subject of a token may have more."""

_BARE = ("event", "peer", "reason")  # that need no quotes
_LITTLE = TURN / 10  # seconds that it takes to send what is left of little
_IN_A_TURN = 64  # connections looked at by a sweep before others have theirs

OnBackpressure = Callable[[Peer, int], None]
"""Called when a peer is cut or loses messages for being slow, with the bytes it had waiting."""


class Member(Protocol):
    """A connection as the server sees it.

    Attributes:
        leaving: whether nothing is read any more but what the peer says after the end.
    """

    leaving: bool

    def end(self, code: str, text: str) -> None:
        """Let the connection end, for a reason that its peer is told."""

    def interrupt(self) -> None:
        """Make the connection's task stop waiting, because it has to end."""

    def check(self) -> None:
        """Notice, about once a second, what no input tells."""


class Consumer(Protocol):
    """A connection whose backlog a publisher may have to wait for."""

    async def wait_relief(self, begun: float) -> None:
        """Wait until the backlog is small, or is given up on."""


class Filled(Consumer, Protocol):
    """The connection of a consumer."""

    peer: Peer


class _Waiting:
    """A send to many receivers, or an answer, which whoever has caused it waits for."""

    def __init__(self, waited: Waited) -> None:
        self.pressed: set[Consumer] = set()
        self._done = trio.Event()
        waited.done = self._done.set

    async def wait_relief(self, begun: float) -> None:
        """Wait until it is done, and for those whom it has filled more than half."""
        await self._done.wait()
        for consumer in self.pressed:
            await consumer.wait_relief(begun)


class Server:
    """State that all connections of a daemon share.

    Attributes:
        clock: of the loop: seconds, as :func:`trio.current_time` says them.
        tasks: the daemon's own.
        checker: checks passwords.
        lane: where turns that take long wait for one another.
        handshakes: where those shake hands that speak TLS.
        connections: those that run.
        now: the trio time at which the last :meth:`sweep` began, for those whom it looks at.
        crowd: where those who have much to say wait for one another.
        latest: the connection that read last.
        changed: by :func:`time.perf_counter`, since when it is that one.
        look_out: seconds for which one looks out for input, see
            :data:`~pubsubd.protocol.limits.LOOK_OUT`.
        pressed: connections that the present read has filled more than half.
        writers: connections that have a backlog which a task sends.
        draining: whether the daemon is ending; then ``drain_deadline`` is the trio time by
            which that has to be done.
        siblings: the connections to other workers of this daemon.
        without: returns the seconds without a processor since the last sweep, or for longer.
        behind: returns what has to come before much more is caused for these; None for nothing.
        statistics: calls what it is given with the statistics of the daemon, now or later.
        on_close: called when a connection has ended.
        on_event: called with each event that is published, as ``//pubsubd/events`` has it.
        on_read_out: called, after :meth:`drain`, when only siblings may have input left.
    """

    def __init__(
        self, limits: Limits, nursery: trio.Nursery, on_backpressure: OnBackpressure | None = None
    ) -> None:
        self.limits = limits
        self.clock = trio.lowlevel.current_clock().current_time
        self.broker = Broker(limits, self.clock)
        self.broker.access.failed = self._report_login
        self.nursery = nursery
        self.tasks = Tasks(nursery, self.broker.faults, self.publish_event)
        access = self.broker.access
        self.checker = Checker(nursery, Checks(access.suspect), self.broker.faults)
        self.lane = Lane()
        self.handshakes = TlsHandshakes(self.lane)
        self._fed = trio.Event()  # there is something unsent
        self._fed_little = trio.Event()  # it is little
        self._sendings: WeakKeyDictionary[Unsent, _Waiting] = WeakKeyDictionary()
        self.broker.delivery.on_unsent = self._note_unsent
        self.broker.delivery.on_wait = self._note_wait
        self.on_backpressure = on_backpressure
        self.statistics: Callable[[Callable[[bytes], None]], None] = self._tell_statistics
        self.connections: set[Member] = set()
        self.pressed: list[Consumer] = []
        self.now = self.clock()
        self.crowd = Crowd()
        self.latest: Member | None = None
        self.changed = 0.0
        self.look_out = LOOK_OUT
        self.writers = 0
        self.draining = False
        self.drain_deadline = float("inf")
        self.siblings: set[Member] = set()
        self._delay = Delay()
        self.without = self._delay.since
        self.behind: Callable[[], Hold | None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None
        self.on_event: Callable[[dict[str, object]], None] = lambda _event: None
        self.on_read_out: Callable[[], None] | None = None
        self._reading_out: set[Member] = set()
        self._all_read_out = trio.Event()
        self._empty = trio.Event()
        self._lines: dict[int, tuple[float, float]] = {}  # level -> how many count, and when

    def start(self) -> None:
        """Start the tasks that connections rest on."""
        self.tasks.start("lane", self.lane.run)
        self.tasks.start("handshakes", self.handshakes.run)
        self.tasks.start("deliver", self._deliver)
        self.tasks.start("deliver little", self._deliver_little)

    def press(self, consumer: Filled) -> None:
        """Let whoever speaks wait for a consumer that is more than half full."""
        speaker = self.broker.delivery.speaker
        if speaker is None or speaker.strain is None:
            self.pressed.append(consumer)
        elif self.limits.slow_consumer == "throttle":
            speaker.strain(consumer)

    def _note_unsent(self, unsent: Unsent) -> None:
        self._sendings[unsent] = _Waiting(unsent)
        self.pressed.append(self._sendings[unsent])
        (self._fed_little if unsent.little else self._fed).set()

    def _note_wait(self, waited: Waited) -> None:
        self.pressed.append(_Waiting(waited))

    async def _deliver(self) -> NoReturn:
        """Send to receivers that were too many for one turn, a turn in each pass of the loop."""
        broker = self.broker
        while True:
            if not broker.delivery.unsent:
                self._fed = trio.Event()
                await self._fed.wait()
                if not self.lane.enter(TURN):
                    await self.lane.wait(TURN)
            else:
                await self.lane.wait_next(TURN)
            if broker.delivery.unsent:
                self._send_some()

    async def _deliver_little(self) -> NoReturn:
        """Send what is left of little, without waiting for all who take whole turns."""
        unsent = self.broker.delivery.unsent
        while True:
            if not (unsent and unsent[0].little):
                self._fed_little = trio.Event()
                await self._fed_little.wait()
            await self.lane.wait(_LITTLE)
            if unsent and unsent[0].little:
                self._send_some()

    def _send_some(self) -> None:
        broker = self.broker
        broker.delivery.turn.begin()
        self.pressed.clear()
        try:
            unsent = broker.delivery.send_some()
        finally:
            pressed, self.pressed = self.pressed, []
        self._sendings[unsent].pressed.update(pressed)

    def drain(self) -> None:
        """Let all connections finish: carry out what came, deliver it, say goodbye, close."""
        self.draining = True
        self.drain_deadline = trio.current_time() + self.limits.drain_timeout
        self._reading_out = {
            connection for connection in self.connections if not connection.leaving
        }
        for connection in self.connections:
            guarded(self.broker.faults, "drain", connection.interrupt)
        self._note_read_out()

    async def sweep(self) -> None:
        """Let all connections notice what no input tells them; to be called about once a second.

        A timeout is late by the time between two calls, and never early.

        Others have their turns in between: many connections that end at once are much work.
        """
        self.now = trio.current_time()
        self._delay.note()
        for number, connection in enumerate(list(self.connections)):
            if connection in self.connections:
                try:
                    connection.check()
                except Exception as error:  # noqa: BLE001  (as above)
                    self.broker.faults.end(connection, error)
            if number % _IN_A_TURN == _IN_A_TURN - 1:
                await trio.lowlevel.checkpoint()

    def close(self, connection: Member) -> None:
        """Take note that ``connection`` has ended."""
        self.connections.discard(connection)
        self.siblings.discard(connection)
        self.on_close()
        if not self.connections:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait, after :meth:`drain`, until no connection is left."""
        if self.connections:
            self._empty = trio.Event()
        else:
            self._empty.set()
        await self._empty.wait()

    def read_out(self, connection: Member) -> None:
        """Take note, after :meth:`drain`, that ``connection`` has no input left."""
        self._reading_out.discard(connection)
        if self.draining:
            self._note_read_out()
            if not self._reading_out:
                self._all_read_out.set()

    def _note_read_out(self) -> None:
        if self.on_read_out is not None and self._reading_out <= self.siblings:
            say, self.on_read_out = self.on_read_out, None
            say()

    async def wait_all_read_out(self) -> None:
        """Wait, after :meth:`drain`, until no connection has input left."""
        await self._all_read_out.wait()

    def refuse(self, error: ProtocolError) -> None:
        """Count and log that a connection was not let in."""
        self.broker.counters.errors[error.code] += 1
        self.broker.counters.closed[error.code] += 1
        if self.may_log(logging.WARNING):
            log.warning("event=refused reason=%s detail=%s", error.code, json.dumps(error.text))

    def publish_statistics(self) -> None:
        """Send ``//pubsubd/stats`` to those who want it."""
        self.statistics(partial(self._put_out, b"//pubsubd/stats"))

    def _tell_statistics(self, tell: Callable[[bytes], None]) -> None:
        tell(self.broker.describe())

    def report(self, peer: Peer, error: ProtocolError) -> None:
        """Count, log and publish that the daemon ends a connection, and why.

        Not of one that has no number: it is to another worker.
        """
        if not peer.number:
            return
        self.broker.counters.closed[error.code] += 1
        self._tell("closed", peer, error.code, error.text)

    def _report_login(self, failed: FailedLogin) -> None:
        """Log that a login has failed."""
        peer = failed.peer
        told: dict[str, object] = {
            "address": origin(peer),
            "reason": failed.code,
            "connection": peer.number,
            "listener": peer.listener.name or None,
            "user": failed.user,
            "tried": failed.tried,
            "detail": failed.detail or None,
        }
        if self.may_log(logging.WARNING):
            log.warning("event=login %s", _words(told))
        text = "a login has failed" if failed.code == "login-failed" else "a login was not checked"
        self._publish(_about("login-failed", peer, failed.user, failed.code, text))

    def report_drops(self, peer: Peer, count: int) -> None:
        """Log and publish that a slow peer has lost ``count`` messages and can take more again."""
        self._tell("dropped", peer, "slow-consumer", f"{count} messages")

    def _tell(self, event: str, peer: Peer, reason: str, detail: str) -> None:
        told = _about(event, peer, peer.last_identity, reason, detail)
        if self.may_log(logging.WARNING):
            log.warning("%s", _words(told))
        self._publish(told)

    def publish_event(
        self, event: dict[str, object], level: int = logging.INFO, *, asked: bool = False
    ) -> None:
        """Log and publish what has happened to the daemon, or in the mesh.

        What the operator has ``asked`` for is logged however much clients have caused.
        """
        if asked or self.may_log(level):
            words = [f"{key}={json.dumps(event[key])}" for key in event if key != "event"]
            log.log(level, "%s", " ".join((f"event={event['event']}", *words)))
        self._publish(event)

    def publish_quietly(self, event: dict[str, object]) -> None:
        """Publish what has been logged."""
        self._publish(event)

    def _publish(self, event: dict[str, object]) -> None:
        self.put_out(event)
        self.on_event(event)

    def put_out(self, event: dict[str, object]) -> None:
        """Send an event to those who want it, wherever it has happened."""
        self.broker.events.note(event)
        self._put_out(b"//pubsubd/events", json.dumps(event).encode())

    def _put_out(self, name: bytes, data: bytes) -> None:
        with self.unpressed():
            self.broker.delivery.publish(name, data)

    @contextmanager
    def unpressed(self) -> Iterator[None]:
        """Let nobody wait for receivers of what the daemon sends on its own account."""
        pressed, self.pressed = self.pressed, []
        try:
            yield
        finally:
            self.pressed = pressed

    def may_log(self, level: int) -> bool:
        """Let clients cause ten lines a second, and a hundred at once, of each level in the log."""
        if not log.isEnabledFor(level):
            return False
        now = trio.current_time()
        count, at = self._lines.get(level, (0.0, now))
        count = max(0.0, count - (now - at) * 10)
        room = count < 100
        self._lines[level] = count + room, now
        return room


def _about(event: str, peer: Peer, user: str | None, reason: str, detail: str) -> dict[str, object]:
    """Return an event about a connection, as ``//pubsubd/events`` has it."""
    return {
        "event": event,
        "connection": peer.number,
        "peer": peer.label,
        "user": None if user is None else user[:MAX_USER],
        "listener": peer.listener.name or None,
        "reason": reason,
        "detail": detail,
    }


def _words(told: Mapping[str, object]) -> str:
    """Return what is known of an event, as it stands in the log."""
    return " ".join(
        f"{key}={value if key in _BARE else json.dumps(value)}"
        for key, value in told.items()
        if value is not None
    )
