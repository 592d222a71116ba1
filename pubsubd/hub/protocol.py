"""The input of one hub connection, without I/O: what the transport drives.

Strategy: the first byte shows whether lines of JSON come or HTTP, which may become a WebSocket.
A little of the input is parsed at once, so that a turn can end before all of it is carried out.

Being synchronous buys what it buys the broker: the messages of one turn are carried out without
anything in between, and their output leaves as one piece for each connection.

Invariant: everything due before the end is sent before ``peer.ending`` is set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import discard, stay
from pubsubd.hub import lines
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.dispatch import close_reason, react, take
from pubsubd.hub.http import HttpReader, Request
from pubsubd.hub.line_reader import LineReader
from pubsubd.hub.port import Hub
from pubsubd.hub.websocket_reader import WebSocketReader
from pubsubd.protocol.errors import GOODBYE, ProtocolError
from pubsubd.protocol.limits import HUB_READ_SIZE, HUB_TURN, QUIET, WORK_PER_TURN
from pubsubd.protocol.wire import error_frame
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces

HTTP_IDLE = 60.0
"""Seconds that an HTTP connection is kept for a further request."""

PING = b"\x89\0"
"""A ping without data (RFC 6455, section 5.5.2)."""

_HTTP_READ = 16_384  # bytes: some 700 of the smallest requests
_SLICE = 8_192  # bytes parsed at once: 1,200 fragments of a byte, 2 ms
_PARSING = 0.001  # seconds of parsing before the line protocol is carried out
_SMALL = 1_024  # bytes of a publication after which one does not look at the clock
_LINE_VERBS = (b"pub", b"sub", b"unsub")
_TOGETHER = 1024  # by their weights: one that is alike and little counts 1
_LITTLE = 512  # bytes
_MANY = 16  # messages in what is parsed at once: these are small
_READERS = WebSocketReader, LineReader  # of messages; a union would be made for each message
_DONE = object()
_EXPIRED = 8  # steps of ending expired registrations, in one turn
_UNREGISTERED = 500  # work of one step, as Actor.work counts it


class HubProtocol(HubConnection):
    """One connection of the hub port; see :class:`pubsubd.transport.protocol.ConnectionProtocol`.

    Args:
        hub: the port.
        label: of the connection, in logs.
        send: sends whole frames, now or later, and never waits.
        end: ends the connection from outside of its input, for a code and a text.
        listener: of its listener; None for the hub's own.
    """

    __slots__ = ("_at", "_events", "_ping_at", "_request_since", "_unread")

    quiet = QUIET
    hub: Hub

    def __init__(
        self,
        hub: Hub,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
        *,
        listener: ListenerState | None = None,
    ) -> None:
        self._unread, self._at = b"", 0  # input, and how far it is parsed
        self._events: deque[Any] | None = None  # parsed and not carried out
        self._request_since: float | None = None  # since when a request comes, if one does
        self._ping_at = float("inf")  # when the next ping of a WebSocket is due
        super().__init__(hub, label, send, end, listener=listener)

    # What the transport asks

    @property
    def wanted(self) -> int:
        """Bytes to read at once: few while that may be requests, whose answers cost most."""
        kind = type(self.reader)
        return HUB_READ_SIZE if kind is WebSocketReader or kind is LineReader else _HTTP_READ

    @property
    def unread(self) -> int:
        """Bytes of input that are not parsed yet."""
        return len(self._unread) - self._at

    @property
    def halfway(self) -> bool:
        """Whether part of a message has come and the rest has not."""
        if self.reader is None:
            return False
        return self.reader.halfway or (self.lines and self.peer.halfway)

    @property
    def listening(self) -> bool:
        """Whether it goes on receiving after it has shut down its sending side, as ``nc -N`` does.

        Over WebSocket it does not: that has a close of its own.
        """
        return type(self.reader) is LineReader and len(self.subscriptions) > 0

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        """Return where the frame that holds ``offset`` ends, in a chunk of whole frames."""
        if type(self.reader) is HttpReader:
            return len(chunk)
        return self.framing.end_of_frame(chunk, offset)

    def count_frames(self, chunk: bytes) -> int:
        """Return how many frames a chunk holds."""
        return self.framing.count_frames(chunk)

    def overdue(self, now: float, heard: float) -> ProtocolError | None:
        """Return why it ends now, if it has been silent since ``heard`` for too long.

        A WebSocket that goes on gets a ping now and then, or proxies would take it for idle.
        """
        if type(self.reader) is WebSocketReader:
            self._ping(now)
        peer = self.peer
        if peer.refusals is not None:
            self.hub.broker.delivery.tell_refusals(peer)
            self.hub.flush()
        asked = peer.listener.login or peer.expires_at is not None
        if asked and type(self.reader) is not HttpReader:
            outside = self.hub.broker.access.overdue(peer, now, self.hub.wall())
            if outside is not None:
                return outside
        if peer.job is not None:
            return None
        limit = self.peer.listener.limits.command_timeout
        if self.halfway:
            if now - heard > limit:
                text = f"{limit:g} s of silence in the middle of a message"
                return ProtocolError("command-timeout", text)
            # Or strangers could hold a body each for as long as they like, byte by byte.
            since = now if self._request_since is None or self.known else self._request_since
            if now - since > limit:
                text = f"a request that is not there after {limit:g} s, and no login"
                return ProtocolError("command-timeout", text)
        elif type(self.reader) is HttpReader:
            if now - heard > HTTP_IDLE:
                return ProtocolError(GOODBYE, "")
        elif (signal := self.hub.signals.get(self)) is not None and signal.expects_heartbeat:
            limit = self.limits.heartbeat
            if now - heard > limit:
                return ProtocolError("heartbeat-timeout", f"no heartbeat for {limit:g} s")
        return None

    def _ping(self, now: float) -> None:
        interval = self.limits.ping
        if now >= self._ping_at and interval and not self.peer.outbox.size:
            self.put_raw(PING)
            self.flush()
        if not now < self._ping_at <= now + interval:
            self._ping_at = now + interval

    def rest(self, begun: float, now: float) -> None:
        """Let no timeout run from ``begun`` to ``now``: a password was checked."""
        self.hub.broker.access.rest(self.peer, begun, now)

    def close_reason(self, error: ProtocolError) -> bytes:
        """Return the last frames of a connection that ends for that reason."""
        self.closing = error
        return close_reason(self.hub, self, error)

    @property
    def dialect(self) -> str:
        """The dialect it speaks, as metrics name it."""
        if self in self.hub.signals:
            return "hub"
        if self.hub.synap.subscribers.of(self) is not None:
            return "synap"
        return super().dialect

    # Input

    def receive(self, data: bytes) -> bool:
        """Carry out what was read; return whether ``receive(b"")`` goes on with the rest."""
        if self.peer.ending is not None:
            if self.lines:  # a password that was checked meanwhile was the last one it may try
                lines.end(self)
            return False
        hub = self.hub
        hub.broker.delivery.turn.begin()
        hub.broker.counters.bytes_in += len(data)
        hub.broker.delivery.speaker = self.peer
        begun, before = hub.clock(), hub.synap.deliveries
        if hub.expiring or hub.registry.is_due(int(begun * 1000)):
            hub.expire(_EXPIRED)  # so that little is said or asked under an expired registration
        try:
            if (
                self.template is not None
                and 0 < len(data) <= _SMALL
                and not self._unread
                and not self._events
                and self.step is None
                and self.peer.job is None
            ):
                more = self._take_alone(data)
            else:
                if data:
                    self._unread, self._at = self._unread[self._at :] + data, 0
                more = self._work()
        finally:
            hub.flush()
        if self._request_since is None and type(self.reader) is HttpReader and self.halfway:
            self._request_since = begun
        if hub.synap.deliveries > before:
            hub.synap.delivered(hub.synap.deliveries - before, hub.clock() - begun)
        if self.closing is not None and self.peer.ending is None:
            self.peer.ending = self.closing
        return more and self.peer.ending is None

    def _take_alone(self, data: bytes) -> bool:
        """Carry out a little input, nothing being left of what came before, as :meth:`_work` does.

        It is most likely one message, and like an earlier one.
        """
        reader, template = self.reader, self.template
        assert template is not None
        assert isinstance(reader, _READERS)
        events = reader.receive(data)
        if len(events) == 1 and type(event := events[0]) is bytes:
            try:
                if template.take(event):
                    self.again = False
                    return self.step is not None
            except Unfinished:  # and _work finds out what that means
                self.again = True
        self._events = deque(events) if events else None
        return self._work()

    def _work(self) -> bool:
        """Take a turn; return whether something is left for a further one."""
        hub, peer, over = self.hub, self.peer, self.hub.broker.delivery.turn.over
        index = hub.broker.router.index
        events = self._events
        if events is None:
            events = self._events = deque()
        left, budget = HUB_TURN, index.work + WORK_PER_TURN
        counters = hub.broker.counters
        published, together = counters.messages_in, _TOGETHER
        more = False
        while self.closing is None and peer.ending is None:
            if self.step is not None:
                if next(self.step, _DONE) is not _DONE:
                    more = True
                    break
                self.step = None
                self._end_last()
            elif events:
                count = self._take_some(events, left)
                event = events.popleft()
                left -= count or 1
                try:
                    if type(event) is bytes:
                        if count:
                            together -= count if len(event) <= _LITTLE else 2 * count
                        else:
                            together -= 2 if take(hub, self, event) else 4
                        self.again = False
                        if self.lines:  # the turn was the broker's
                            more = self._waiting
                            break
                        if counters.messages_in != published:
                            published = counters.messages_in
                            # Many small publications in one piece cost their receivers less, and
                            # what they may cost here is bounded by their number.
                            small = len(event) <= _SMALL and index.work <= budget
                            if small and together > 0 and left > 0:
                                continue
                            together = _TOGETHER
                    else:
                        self._react(event, events)
                        self.again = bool(events) and events[0] is event  # it waits for a job
                except Unfinished:  # its receivers take more than a turn to find
                    events.appendleft(event)
                    self.again = more = True
                    break
            elif self._at < len(self._unread):
                events.extend(self._read())
                if len(events) >= _MANY:
                    continue  # one looks at the clock after some of these
            else:
                break
            if over() or left <= 0 or index.work > budget or peer.job is not None:
                more = True
                break
        if not events:
            self._events = None
        if self._at >= len(self._unread):
            self._unread, self._at = b"", 0
        return more

    def _take_some(self, events: deque[Any], most: int) -> int:
        """Carry out events that are alike together; return how many, and remove all but the last.

        None is removed if there are none, or the first one has to be carried out by itself.
        """
        if len(events) == 1 or self.template is None or self.again or self.lines:
            return 0
        count = self.template.take_some(events, most)
        for _ in range(count - 1):
            events.popleft()
        return count

    def _read(self) -> list[Any]:
        """Parse a little of the input."""
        reader, at = self.reader, self._at
        if type(reader) is HttpReader:
            events, self._at = reader.take(self._unread, at)
            return events
        data = self._unread[at : at + _SLICE]
        if reader is None:
            if not data.strip():
                self._at += len(data)
                return []
            limits = self.limits
            if (verb := data.split(b" ", 1)[0].lower()) in _LINE_VERBS:
                text = f"this is the hub port, for JSON; {verb.decode()} goes to the line port"
                self._at = len(self._unread)
                error = ProtocolError("wrong-port", text)
                self.put_raw(error_frame(error))
                self.close(error)
                return []
            if data.lstrip()[:1] != b"{":
                self.reader = HttpReader(limits.max_message)
                return self._read()
            reader = self.reader = LineReader(limits.max_message)
        self._at += len(data)
        return self._join(reader.receive(data)) if self.lines else reader.receive(data)

    def _join(self, found: list[Any]) -> list[Any]:
        """Parse some more, and join what messages hold: the broker reads it at once."""
        reader, clock = self.reader, self.hub.broker.delivery.turn.clock
        assert reader is not None
        until = clock() + _PARSING
        while self._at < len(self._unread) and clock() <= until:
            data = self._unread[self._at : self._at + _SLICE]
            self._at += len(data)
            found += reader.receive(data)
        texts = list(takewhile(lambda event: type(event) is bytes, found))
        return [b"".join(texts), *found[len(texts) :]] if texts else found

    @property
    def _waiting(self) -> bool:
        """Whether something is left to do of the input."""
        left = self.step is not None or self.peer.job is not None or bool(self._events)
        return left or self.unread > 0

    def _react(self, event: Any, events: deque[Any]) -> None:
        """Deal with an event that is no message."""
        if isinstance(event, Request):
            self._request_since = None
            react(self.hub, self, event, events)
            self._end_last()
        else:
            react(self.hub, self, event, events)

    def _end_last(self) -> None:
        """End a connection that is HTTP if its last request has been answered."""
        if type(self.reader) is HttpReader and self.reader.ended:
            self.close(ProtocolError(GOODBYE, ""))

    # The end

    def leaving(self) -> Sequence[Callable[[], Iterable[None]]]:
        """Return the steps that forget the connection, as ``ConnectionProtocol`` asks for them."""
        self._send, self._end = discard, stay
        self.left = True
        return (
            self._leave,
            self._unregister,
            self._forget_signal,
            self.subscriptions.release,
            *self.hub.broker.leaving(self.peer),
        )

    def _leave(self) -> tuple[()]:
        hub = self.hub
        hub.synap.drop(self)
        if hub.connections.pop(self.peer.number, None) is None:
            return ()
        if self.halfway and self.peer.ending is None:
            hub.broker.counters.half_frames += 1
        self.step = None
        self._events, self._unread = None, b""
        self.out.clear()
        hub.touched.pop(self, None)
        if self.peer.ending is not None and self.peer.ending.code == "slow-consumer":
            hub.slow_consumers += 1
        return ()

    def _unregister(self) -> Iterator[None]:
        registry = self.hub.registry
        work = 0
        for actor in list(registry.of(self)):
            if registry.get_any(actor.key) is actor:  # another connection may have it since
                registry.unregister(actor.key)
                work += actor.work
            if work > _UNREGISTERED:
                work = 0
                yield

    def _forget_signal(self) -> tuple[()]:
        self.hub.signals.pop(self, None)
        return ()
