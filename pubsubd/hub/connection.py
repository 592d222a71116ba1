"""One connection of the hub port, without I/O: which dialect, what it holds, what it is sent.

Strategy: the first byte tells whether lines of JSON come or HTTP, which may turn into a WebSocket.
From then on each message is told by its shape: a ``command`` is Synap's, a type under ``hub:`` is
Signal Hub's, one under ``__`` or exactly the keys of an envelope is an event target's. Each of
these has a module of its own, and so has what the connection subscribes, for all of them.

Being synchronous buys what it buys the broker: the messages of one turn are worked off without
anything in between, and what they lead to leaves as one piece for each connection. Of what was
read, only a little is parsed at once, so that a turn can end before all of it is.

Invariants:

- Everything due before the end is sent before ``peer.ending`` is set.
- One that is ``left`` takes whatever it is given and throws it away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pubsubd.broker.peer import discard, stay
from pubsubd.hub import envelopes, web
from pubsubd.hub.core import address
from pubsubd.hub.frames import (
    NDJSON,
    WEBSOCKET,
    Closed,
    Framing,
    LineReader,
    Send,
    TooLarge,
    WebSocketReader,
    close_frame,
)
from pubsubd.hub.http import HttpError, HttpReader, Request
from pubsubd.hub.messages import Incoming
from pubsubd.hub.render import Form
from pubsubd.hub.signal import Signal, handle
from pubsubd.hub.strict import JsonError, read
from pubsubd.hub.subscriptions import Subscriptions
from pubsubd.hub.synap import Answer, Subscriber, SynapError
from pubsubd.protocol.errors import HUB_CLOSES, ProtocolError
from pubsubd.protocol.limits import HUB_READ_SIZE, HUB_TURN, WORK_PER_TURN
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.wildcards import Pattern

if TYPE_CHECKING:
    from pubsubd.access.identity import AuthError, Identity, Login
    from pubsubd.broker.listener_state import ListenerState
    from pubsubd.broker.turn import Steps
    from pubsubd.hub.core import Hub
    from pubsubd.protocol.limits import HubLimits

_HTTP_READ = 16_384  # bytes: some 700 of the smallest requests
_SLICE = 8_192  # bytes parsed at once: 1,200 fragments of a byte, 2 ms
_SMALL = 1_024  # bytes of a publication after which one does not look at the clock
_TOGETHER = 255  # of so many, and one
_MANY = 16  # messages in what is parsed at once: these are small
_AT_ONCE = 262_144  # bytes of answers that wait for the end of the turn
_HTTP_IDLE = 60.0  # seconds that an HTTP connection is kept for a further request
_DONE = object()
_EXPIRED = 8  # steps of ending registrations that are over, in one turn
_UNREGISTERED = 500  # work of one step, as Actor.work counts it

_CLOSE_CODES = {
    "bad-json": 1011,
    "internal-error": 1011,
    "slow-consumer": 1013,
    "shutting-down": 1001,
    "command-timeout": 1008,
    "login-timeout": 1008,
    "login-revoked": 1008,
}
"""Reason -> close code of the WebSocket; 1000 for all others."""

_decode_incoming = msgspec.json.Decoder(Incoming).decode
_encode = msgspec.json.Encoder().encode


class HubConnection:
    """One connection of the hub port; see :class:`pubsubd.transport.connection.ConnectionProtocol`.

    Attributes:
        sender: what the daemon calls it: the address it has registered, or where it comes from.
        framing: how a JSON text becomes a frame.
        holdings: what it subscribes.
        signal: its side of Signal Hub, once it has spoken that.
        subscriber: its Synap subscriber, once it has one.
        identity: what its token says, if it is a signed one.
        verdict: on the password of the request that is answered next, once it has been checked.
        out: frames that are to be sent with what the present turn leads to.
        step: a long task for it that is under way, to be iterated; its next message waits.
        again: whether the message that is carried out was begun before: it is counted already.
        left: whether it is leaving.
    """

    __slots__ = (
        "_at",
        "_close",
        "_end",
        "_events",
        "_outer",
        "_reader",
        "_request_since",
        "_send",
        "_size",
        "_unread",
        "again",
        "framing",
        "holdings",
        "hub",
        "identity",
        "left",
        "out",
        "peer",
        "sender",
        "signal",
        "step",
        "subscriber",
        "verdict",
    )

    def __init__(
        self,
        hub: Hub,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
        *,
        terms: ListenerState | None = None,
    ) -> None:
        self.hub = hub
        self.peer = hub.broker.join(label, self._deliver, self.end, terms or hub.terms)
        self.peer.renders = True
        self.sender = address(self.peer)
        self.framing: Framing = NDJSON
        self.signal: Signal | None = None
        self.subscriber: Subscriber | None = None
        self.identity: Identity | None = None
        self.verdict: Login | AuthError | None = None
        # Who it was before a request over HTTP said who sends it.
        self._outer: tuple[Login | None] | None = None
        self.out: list[bytes] = []
        self._size = 0  # bytes of that
        self.again = False
        self.left = False
        self.step: Iterator[None] | None = None
        self._send = send
        self._end = end
        self._reader: LineReader | WebSocketReader | HttpReader | None = None
        self._unread, self._at = b"", 0  # what has come, and how far it is parsed
        self._events: deque[Any] | None = None  # what is parsed and not worked off
        self._close: ProtocolError | None = None
        self._request_since: float | None = None  # since when a request comes, if one does
        self.holdings = Subscriptions(hub, self.peer)
        hub.talks[self.peer.number] = self

    # What the session asks

    @property
    def limits(self) -> HubLimits:
        """What holds for this connection."""
        return self.peer.terms.hub_limits

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""
        return self.peer.terms.hub_limits.max_pending

    @property
    def wanted(self) -> int:
        """Bytes to read at once: few while that may be requests, whose answers cost most."""
        kind = type(self._reader)
        return HUB_READ_SIZE if kind is WebSocketReader or kind is LineReader else _HTTP_READ

    @property
    def halfway(self) -> bool:
        """Whether part of a message has come and the rest has not."""
        return self._reader is not None and self._reader.halfway

    @property
    def listening(self) -> bool:
        """Whether it goes on receiving after it has shut down its sending side, as ``nc -N`` does.

        Over WebSocket it does not: that has a close of its own.
        """
        return type(self._reader) is LineReader and len(self.holdings) > 0

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        """Return where the frame that holds ``offset`` ends, in a chunk of whole frames."""
        if type(self._reader) is HttpReader:
            return len(chunk)
        return self.framing.end_of_frame(chunk, offset)

    def count_frames(self, chunk: bytes) -> int:
        """Return how many frames a chunk holds."""
        return self.framing.count_frames(chunk)

    def overdue(self, now: float, heard: float) -> ProtocolError | None:
        """Return why it ends now, if it has been silent since ``heard`` for too long."""
        peer = self.peer
        asked = peer.terms.login or peer.expires_at is not None
        if asked and type(self._reader) is not HttpReader:
            outside = self.hub.broker.access.overdue(peer, now, self.hub.wall())
            if outside is not None:
                return outside
        if peer.job is not None:
            return None
        limit = self.peer.terms.limits.command_timeout
        if self.halfway:
            if now - heard > limit:
                text = f"{limit:g} s of silence in the middle of a message"
                return ProtocolError("command-timeout", text)
            # Or strangers could hold a body each for as long as they like, byte by byte.
            since = now if self._request_since is None or self.known else self._request_since
            if now - since > limit:
                text = f"a request that is not there after {limit:g} s, and no login"
                return ProtocolError("command-timeout", text)
        elif type(self._reader) is HttpReader:
            if now - heard > _HTTP_IDLE:
                return ProtocolError("goodbye", "")
        elif self.signal is not None and self.signal.expects_heartbeat:
            limit = self.limits.heartbeat
            if now - heard > limit:
                return ProtocolError("heartbeat-timeout", f"no heartbeat for {limit:g} s")
        return None

    def rest(self, begun: float, now: float) -> None:
        """Let no timeout run from ``begun`` to ``now``: a password was checked."""
        self.hub.broker.access.rest(self.peer, begun, now)

    def farewell(self, error: ProtocolError) -> bytes:
        """Return what tells the peer that the connection ends for that reason.

        To those who speak ``hub:*``, and over lines of JSON, a hub:error; over WebSocket a close.
        """
        if error.code == "tls-required":  # most likely to a browser
            body = _encode({"error": f"{error.code}: {error.text}"})
            return HttpReader(0).respond(400, body, close=True)
        kind = type(self._reader)
        told = b""
        if error.code == "duplicate-connection" and self.signal is not None:
            told = self.framing.frame(self.signal.displaced(error.text))
        elif kind is LineReader or self.signal is not None:
            code = "timeout" if error.code.endswith("timeout") else "internal_error"
            code = "unauthorized" if error.code == "login-revoked" else code
            details = {"reason": error.code}
            signal = self.signal or Signal(self)
            text = signal.farewell(code, error.text, details)
            told = self.framing.frame(text)
        if kind is WebSocketReader:
            told += _close(error)
        return told

    def leaving(self) -> Sequence[Callable[[], Iterable[None]]]:
        """Return what forgets the connection, each in steps, as ``ConnectionProtocol`` says."""
        self._send, self._end = discard, stay
        self.left = True
        return (
            self._leave,
            self._unregister,
            self._forget_signal,
            self.holdings.release,
            *self.hub.broker.leaving(self.peer),
        )

    def _leave(self) -> tuple[()]:
        hub = self.hub
        if hub.talks.pop(self.peer.number, None) is None:
            return ()
        if self.halfway and self.peer.ending is None:
            hub.broker.counters.half_frames += 1
        self.step = None
        self._events, self._unread = None, b""
        self.out.clear()
        hub.touched.pop(self, None)
        if self.peer.ending is not None and self.peer.ending.code == "slow-consumer":
            hub.synap.slow_consumers += 1
        hub.synap.drop(self)
        return ()

    def _unregister(self) -> Iterator[None]:
        registry = self.hub.registry
        work = 0
        for actor in list(registry.of(self)):
            if registry.get_any(actor.key) is actor:  # others may have it since
                registry.unregister(actor.key)
                work += actor.work
            if work > _UNREGISTERED:
                work = 0
                yield

    def _forget_signal(self) -> tuple[()]:
        self.signal = None
        return ()

    # Input

    def receive(self, data: bytes) -> bool:
        """Work off what was read; whether work is left that ``receive(b"")`` goes on with."""
        if self.peer.ending is not None:
            return False
        hub = self.hub
        hub.broker.turn.begin()
        hub.broker.counters.bytes_in += len(data)
        hub.broker.speaker = self.peer
        hub.expire(_EXPIRED)  # so that little is said or asked under a registration that is over
        begun, before = hub.clock(), hub.synap.deliveries
        if data:
            self._unread, self._at = self._unread[self._at :] + data, 0
        try:
            more = self._work()
        finally:
            hub.flush()
        if self._request_since is None and type(self._reader) is HttpReader and self.halfway:
            self._request_since = begun
        if hub.synap.deliveries > before:
            hub.synap.delivered(hub.synap.deliveries - before, hub.clock() - begun)
        if self._close is not None and self.peer.ending is None:
            self.peer.ending = self._close
        return more and self.peer.ending is None

    def _work(self) -> bool:
        """Take a turn; whether something is left for a further one."""
        peer, over, index = self.peer, self.hub.broker.turn.over, self.hub.broker.router.index
        events = self._events
        if events is None:
            events = self._events = deque()
        left, budget = HUB_TURN, index.work + WORK_PER_TURN
        counters = self.hub.broker.counters
        published = counters.messages_in
        more = False
        while self._close is None and peer.ending is None:
            if self.step is not None:
                if next(self.step, _DONE) is not _DONE:
                    more = True
                    break
                self.step = None
                self._end_last()
            elif events:
                event = events.popleft()
                left -= 1
                try:
                    if type(event) is bytes:
                        self._take(event)
                        self.again = False
                        if counters.messages_in != published:
                            published = counters.messages_in
                            # Many small publications in one piece cost their receivers less, and
                            # what they may cost here is bounded by their number.
                            if left & _TOGETHER and len(event) <= _SMALL and index.work <= budget:
                                continue
                    else:
                        self._react(event, events)
                        self.again = bool(events) and events[0] is event  # it waits for a job
                except Unfinished:  # whom it goes to takes more than a turn to find out
                    events.appendleft(event)
                    self.again = more = True
                    break
            elif self._at < len(self._unread):
                events.extend(self._read())
                if len(events) >= _MANY:
                    continue  # one looks at the clock after some of these
            else:
                break
            if over() or not left or index.work > budget or peer.job is not None:
                more = True
                break
        if not events:
            self._events = None
        if self._at >= len(self._unread):
            self._unread, self._at = b"", 0
        return more

    def _read(self) -> list[Any]:
        """Parse a little of what has come."""
        reader, at = self._reader, self._at
        if type(reader) is HttpReader:
            events, self._at = reader.take(self._unread, at)
            return events
        data = self._unread[at : at + _SLICE]
        if reader is None:
            if not data.strip():
                self._at += len(data)
                return []
            limits = self.limits
            if data.lstrip()[:1] != b"{":
                self._reader = HttpReader(limits.max_message)
                return self._read()
            reader = self._reader = LineReader(limits.max_message)
        self._at += len(data)
        return reader.receive(data)

    def _react(self, event: Any, events: deque[Any]) -> None:
        """Deal with what is no message."""
        if isinstance(event, Request):
            self._request_since = None
            web.answer(self, event, events)
            self._end_last()
        elif isinstance(event, Send):
            self.put_raw(event.data)
        elif isinstance(event, TooLarge):
            self._refuse_size(event.size)
        elif isinstance(event, Closed):
            self.put_raw(event.reply)
            code = "bad-websocket" if event.code in (1002, 1003, 1007, 1009) else "goodbye"
            self.close(ProtocolError(code, f"{event.code} {event.reason}".strip()))
        elif isinstance(event, HttpError):
            web.refuse(self, event)
        else:
            raise TypeError(event)

    def _end_last(self) -> None:
        """End a connection that is HTTP if its last request has been answered."""
        if type(self._reader) is HttpReader and self._reader.ended:
            self.close(ProtocolError("goodbye", ""))

    def upgrade(self, reader: HttpReader) -> None:
        """Go on as a WebSocket: what has come behind the request is not parsed yet."""
        self._outer = None  # who has asked for it goes on as that
        self.put_raw(reader.accept())
        self.framing = WEBSOCKET
        self._reader = WebSocketReader(self.limits.max_message)

    @property
    def http(self) -> HttpReader:
        """The reader of a connection that is HTTP."""
        assert isinstance(self._reader, HttpReader)
        return self._reader

    def _take(self, raw: bytes) -> None:
        """Carry out one message."""
        try:
            value, raw = read(raw)
        except JsonError as error:
            self._refuse_json(error)
            return
        if type(value) is dict and isinstance(command := value.get("command"), str):
            self._command(command, value)
            return
        try:
            message = _decode_incoming(raw)
        except msgspec.ValidationError:
            self._hub().invalid()
            return
        kind = message.type
        if not isinstance(kind, str):
            self._hub().invalid()
        elif kind.startswith("hub:"):
            handle(self._hub(), message)
        elif kind.startswith("__") or (len(value) == 3 and "id" in value and "payload" in value):
            envelopes.handle(self, message)
        elif kind == "ping" and len(value) == 1:
            self.put(b'{"type":"pong"}')
        else:
            self._hub().unknown(message)

    def _hub(self) -> Signal:
        if self.signal is None:
            self.signal = Signal(self)
        return self.signal

    def _command(self, command: str, value: dict[str, Any]) -> None:
        request = value.get("request_id")
        answer = {"success": True, "request_id": request, "payload": None, "error": None}
        try:
            web.check_command(self, command)
            payload = self.hub.synap.run(
                command, value.get("payload"), self, self.peer.permission, self.peer.identity
            )
            if not isinstance(payload, dict):
                self.step = self._finish(answer, payload)
                return
            answer["payload"] = payload
        except SynapError as error:
            answer["success"], answer["error"] = False, error.text
        self.put(_encode(answer))

    def _finish(self, answer: dict[str, Any], making: Steps[dict[str, Any]]) -> Iterator[None]:
        """Answer a command that takes several turns."""
        try:
            answer["payload"] = yield from making
        except SynapError as error:
            answer["success"], answer["error"] = False, error.text
        self.put(_encode(answer))

    def reply(
        self,
        answer: Answer,
        done: Callable[[dict[str, Any]], None],
        refused: Callable[[SynapError], None],
    ) -> None:
        """Put an answer of Synap's, now or when it is there."""
        if isinstance(answer, dict):
            done(answer)
        else:
            self.step = _reply(answer, done, refused)

    def _refuse_json(self, error: JsonError) -> None:
        if self._speaks_envelopes():
            self.hub.ignored += 1
            return
        details = {"reason": "bad-json"}
        (self.signal or Signal(self)).error("internal_error", f"not JSON: {error.text}", details)
        self.close(ProtocolError("bad-json", error.text), tell=self.framing is WEBSOCKET)

    def _refuse_size(self, size: int) -> None:
        if self._speaks_envelopes():
            self.hub.ignored += 1
            return
        most = self.limits.max_message
        details = {"actualSize": size, "maxSize": most}
        text = f"{size} bytes, over {most}"
        if self.subscriber is not None and self.signal is None:
            text = f"Invalid request: message too large: {text}"
            self.put(
                _encode({"success": False, "request_id": None, "payload": None, "error": text})
            )
        else:
            (self.signal or Signal(self)).error("message_too_large", text, details)

    def _speaks_envelopes(self) -> bool:
        return self.holdings.form is Form.ENVELOPE and self.signal is None

    # The end

    def close(self, error: ProtocolError, *, tell: bool = False) -> None:
        """End the connection when what is put is sent; ``tell``: with a close of the WebSocket."""
        if tell and type(self._reader) is WebSocketReader:
            self.put_raw(_close(error))
        if error.code in HUB_CLOSES:
            self.hub.broker.counters.errors[error.code] += 1
        self._close = error

    def end(self, code: str, text: str) -> None:
        """End the connection, from outside of its input, when what is put is sent."""
        self.flush()
        self._end(code, text)

    # Output

    def put(self, text: bytes) -> None:
        """Put a JSON text, to be sent with what the present read leads to."""
        self.put_raw(self.framing.frame(text))

    def put_raw(self, frames: bytes) -> None:
        """Put whole frames, or what is no JSON."""
        if not frames or self.left:
            return
        hub = self.hub
        hub.broker.turn.made += len(frames)
        if not self.out:
            hub.touched[self] = None
        self.out.append(frames)
        self._size += len(frames)
        if self._size > _AT_ONCE:  # or it could grow past any limit before the turn ends
            self.flush()

    def flush(self) -> None:
        """Send what is put, as one piece."""
        out = self.out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._size = 0
            self.hub.touched.pop(self, None)
            self._send(data)

    def _deliver(self, data: bytes | Pieces) -> None:
        """Take line frames from the broker: the peer's ``send``."""
        signal, form = self.signal, self.holdings.form
        if self.left or (form is Form.HUB and signal is None):
            return
        hub = self.hub
        batch = hub.batch(data if isinstance(data, bytes) else data.whole())
        if self.peer.ending is not None:
            hub.synap.failures += len(batch.messages)
            return
        if form is Form.HUB:
            assert signal is not None
            frames = batch.hub(self.framing, signal.wrapped, signal.to)
        elif form is Form.ENVELOPE:
            frames = batch.envelopes(self.framing)
        elif form is Form.SYNAP:
            frames = batch.synap(self.framing)
        else:
            frames = self._mix(batch)
        if self.out:  # behind what it is answered
            self.put_raw(frames)
        elif frames:  # at once, while it is in the processor's cache
            self._send(frames)

    def _mix(self, batch: Any) -> bytes:
        """Return each message in the form of a dialect that has asked for it."""
        signal = self.signal
        wrapped, to = (signal.wrapped, signal.to) if signal is not None else (False, b"")
        forms = [self.holdings.form_of(name) for name in batch.names]
        return b"".join(
            batch.one(index, form, self.framing, wrapped, to)
            for index, form in enumerate(forms)
            if form is not None
        )

    @property
    def spoken(self) -> tuple[str, str]:
        """What is spoken, as metrics tell it: what carries it, and the dialect."""
        kind = type(self._reader)
        if kind is WebSocketReader:
            transport = "websocket"
        elif kind is LineReader:
            transport = "ndjson"
        else:
            transport = "none" if self._reader is None else "http"
        if self.signal is not None:
            return transport, "hub"
        if self.subscriber is not None:
            return transport, "synap"
        return transport, "envelope" if self.holdings.form is Form.ENVELOPE else "none"

    # What it may do

    @property
    def origin(self) -> str:
        """Where it comes from, as its address while it has registered none."""
        return address(self.peer)

    def enter(self, login: Login) -> None:
        """Let the connection be somebody."""
        self.identity = login.identity
        expires_at = None if login.identity is None else login.identity.expires_at
        self.hub.broker.access.enter(self.peer, login.name, login.credential, expires_at)

    def enter_for_request(self, login: Login) -> None:
        """Let the connection be somebody until :meth:`leave_request`, or for good as WebSocket."""
        peer = self.peer
        before = None
        if peer.identity is not None:
            before = Login(peer.identity, peer.credential, self.identity)
        self._outer = (before,)
        self.enter(login)

    def leave_request(self) -> None:
        """Let the connection be who it was before a request said who sends it."""
        if self._outer is None:
            return
        (before,), self._outer = self._outer, None
        if before is not None:
            self.enter(before)
        else:
            self.identity = None
            self.hub.broker.access.leave(self.peer)

    @property
    def known(self) -> bool:
        """Whether it has said who it is, or need not."""
        return self.peer.identity is not None or not self.peer.terms.login

    def may(self, action: str) -> bool:
        """Return whether it is allowed ``action``: one of a token's capabilities, "" for any token.

        See :meth:`pubsubd.access.identity.Identity.allows`.
        """
        identity = self.identity
        if identity is None:
            return self.known
        if identity.expires_at is not None and identity.expires_at <= self.hub.wall():
            return False
        return identity.allows(action)

    # Subscriptions, as Synap's side asks for them

    def hold(self, name: bytes) -> None:
        """Subscribe a name."""
        self.holdings.add(name, Form.SYNAP)

    def release(self, name: bytes) -> None:
        """Undo :meth:`hold`."""
        self.holdings.remove(name, Form.SYNAP)

    def check_patterns(self, count: int) -> None:
        """Raise TopicError if it may not have so many more wildcards of Synap's."""
        self.holdings.check_patterns(count, Form.SYNAP)

    def hold_pattern(self, pattern: Pattern) -> None:
        """Subscribe a wildcard."""
        self.holdings.add(pattern, Form.SYNAP)

    def release_pattern(self, pattern: Pattern) -> None:
        """Undo :meth:`hold_pattern`."""
        self.holdings.remove(pattern, Form.SYNAP)


def _reply(
    making: Steps[dict[str, Any]],
    done: Callable[[dict[str, Any]], None],
    refused: Callable[[SynapError], None],
) -> Iterator[None]:
    try:
        payload = yield from making
    except SynapError as error:
        refused(error)
    else:
        done(payload)


def _close(error: ProtocolError) -> bytes:
    """Return the close of a WebSocket for that reason."""
    reason = error.text if error.code == "goodbye" else f"{error.code}: {error.text}"
    return close_frame(_CLOSE_CODES.get(error.code, 1000), reason)
