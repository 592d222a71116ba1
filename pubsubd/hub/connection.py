"""One connection of the hub port, as dialects use it: its state, its output and its rights.

Its input is read by :class:`~pubsubd.hub.protocol.HubProtocol`; what a dialect remembers of a
connection stays with that dialect.

Invariants:

- ``out`` is sent by the end of the turn, or earlier if much has collected.
- A connection that has ``left`` takes whatever it is given and throws it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wsproto.frame_protocol import CloseReason

from pubsubd.access.identity import AuthError, Identity, Login
from pubsubd.broker.listener_state import ListenerState
from pubsubd.hub.core import HubCore, address
from pubsubd.hub.frames import LINES_IN_WEBSOCKET, NDJSON, WEBSOCKET, Framing, close_frame
from pubsubd.hub.http import HttpReader
from pubsubd.hub.line_reader import LineReader
from pubsubd.hub.render import Batch, Form
from pubsubd.hub.subscriptions import Subscriptions
from pubsubd.hub.templates import UNLIKE, Template
from pubsubd.hub.websocket_reader import WebSocketReader
from pubsubd.protocol.errors import HUB_CLOSES, ProtocolError
from pubsubd.protocol.limits import HubLimits
from pubsubd.routing.outbox import Pieces

CLOSE_CODES = {
    "bad-json": CloseReason.INTERNAL_ERROR,
    "internal-error": CloseReason.INTERNAL_ERROR,
    "slow-consumer": CloseReason.TRY_AGAIN_LATER,
    "shutting-down": CloseReason.GOING_AWAY,
    "command-timeout": CloseReason.POLICY_VIOLATION,
    "login-timeout": CloseReason.POLICY_VIOLATION,
    "login-revoked": CloseReason.POLICY_VIOLATION,
    "killed": CloseReason.POLICY_VIOLATION,
}
"""Reason -> close code of the WebSocket (RFC 6455, 7.4); NORMAL_CLOSURE for all others."""

_AT_ONCE = 262_144  # bytes of answers that wait for the end of the turn


class HubConnection:
    """One connection of the hub port.

    Args:
        hub: the port.
        label: of the connection, in logs.
        send: sends whole frames, now or later, and never waits.
        end: ends the connection from outside of its input, for a code and a text.
        listener: of its listener; None for the hub's own.

    Attributes:
        peer: the connection as the broker sees it.
        sender: the address it has registered, or where it comes from.
        reader: reads its input; None until the first byte shows whether lines or HTTP come.
        framing: how a JSON text becomes a frame.
        lines: whether it carries the line protocol.
        subscriptions: its subscriptions, in all dialects.
        template: of the messages that it publishes; None if they have none.
        unlike: messages that had no template since one was looked for.
        to: its address inside a JSON string, as ``to`` of Signal Hub's messages.
        wrapped: whether addresses are written to it as ``@(runtime/id)``.
        identity: the claims of its token, if that is a signed one.
        verdict: on the password of the request that is answered next, once it has been checked.
        out: frames that are to be sent at the end of the present turn.
        step: a long task for it that is under way, to be iterated; its next message waits.
        again: whether the present message was begun before: it has been counted already.
        closing: why it ends when its output is sent, once it does.
        left: whether it is leaving.
        via: where it comes from itself: behind a proxy, others may send requests over it.
    """

    __slots__ = (
        "_end",
        "_outer",
        "_send",
        "_size",
        "again",
        "closing",
        "framing",
        "hub",
        "identity",
        "left",
        "lines",
        "out",
        "peer",
        "reader",
        "sender",
        "step",
        "subscriptions",
        "template",
        "to",
        "unlike",
        "verdict",
        "via",
        "wrapped",
    )

    def __init__(
        self,
        hub: HubCore,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
        *,
        listener: ListenerState | None = None,
    ) -> None:
        self.hub = hub
        self.peer = hub.broker.join(label, self._deliver, self.end, listener or hub.listener)
        self.peer.render = self._render
        self.via = label
        self.peer.hub = self
        self.sender = address(self.peer)
        self.reader: LineReader | WebSocketReader | HttpReader | None = None
        self.framing: Framing = NDJSON
        self.lines = False
        self.subscriptions = Subscriptions(hub, self.peer)
        self.template: Template | None = None
        self.unlike = UNLIKE
        self.to = b""
        self.wrapped = False
        self.identity: Identity | None = None
        self.verdict: Login | AuthError | None = None
        # Who it was before a request over HTTP said who sends it.
        self._outer: tuple[Login | None] | None = None
        self.out: list[bytes] = []
        self._size = 0  # bytes of that
        self.again = False
        self.closing: ProtocolError | None = None
        self.left = False
        self.step: Iterator[None] | None = None
        self._send = send
        self._end = end
        hub.connections[self.peer.number] = self

    @property
    def limits(self) -> HubLimits:
        """The limits of this connection."""
        return self.peer.listener.hub_limits

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""
        return self.peer.listener.hub_limits.max_pending

    @property
    def full(self) -> int:
        """Bytes waiting for it from which on publishers wait."""
        return self.max_pending // 2

    def relocate(self, label: str) -> None:
        """Note where it comes from, as a proxy says, before anything has come."""
        self.via = label
        self.speak_for(label)

    def speak_for(self, label: str) -> None:
        """Note where its requests come from now."""
        self.peer.label = label
        self.sender = address(self.peer)

    # Transport and dialect

    @property
    def http(self) -> HttpReader:
        """The reader of a connection that is HTTP."""
        assert isinstance(self.reader, HttpReader)
        return self.reader

    def upgrade(
        self, reader: HttpReader, subprotocol: str | None, max_message: int | None = None
    ) -> None:
        """Go on as a WebSocket: input behind the request is not parsed yet."""
        self._outer = None  # the sender of the request stays logged in
        self.put_raw(reader.accept(subprotocol))
        self.framing = WEBSOCKET
        self.reader = WebSocketReader(max_message or self.limits.max_message)

    def speak_lines(self) -> None:
        """Carry the line protocol from now on, see :mod:`pubsubd.hub.lines`."""
        self.framing, self.lines = LINES_IN_WEBSOCKET, True
        self.peer.send, self.peer.render = self._deliver_lines, None

    @property
    def spoken(self) -> tuple[str, str]:
        """Transport and dialect, as metrics name them."""
        kind = type(self.reader)
        if kind is WebSocketReader:
            transport = "websocket"
        elif kind is LineReader:
            transport = "ndjson"
        else:
            transport = "none" if self.reader is None else "http"
        return transport, self.dialect

    @property
    def dialect(self) -> str:
        """The dialect it speaks, as metrics name it."""
        if self.lines:
            return "line"
        return "envelope" if self.subscriptions.form is Form.ENVELOPE else "none"

    # Output

    def put(self, text: bytes) -> None:
        """Queue a JSON text, to be sent at the end of the turn."""
        self.put_raw(self.framing.frame(text))

    def put_alike(self, before: bytes, between: Sequence[bytes], after: bytes) -> None:
        """Queue JSON texts of one length that have the same beginning and end."""
        head, tail = (
            self.framing.head(len(before) + len(between[0]) + len(after)),
            self.framing.tail,
        )
        before, after = head + before, after + tail
        self.put_raw(before + (after + before).join(between) + after)

    def put_raw(self, frames: bytes) -> None:
        """Queue whole frames, or bytes that are no JSON."""
        if not frames or self.left:
            return
        hub = self.hub
        hub.broker.delivery.turn.made += len(frames)
        if not self.out:
            hub.touched[self] = None
        self.out.append(frames)
        self._size += len(frames)
        if self._size > _AT_ONCE:  # or it could grow past any limit before the turn ends
            self.flush()

    def flush(self) -> None:
        """Send what is queued, as one piece."""
        out = self.out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._size = 0
            self.hub.touched.pop(self, None)
            self._send(data)

    def _render(self, data: bytes) -> bool:
        """Render some of what is delivered, or send it if it is rendered: the peer's ``render``."""
        if self.left:
            return True
        batch, form = self.hub.prepare(data), self.subscriptions.form
        if form is not None:
            ready = batch.prepare(form)
        else:
            ready = all(map(batch.prepare, self.subscriptions.forms))
        if ready:
            self._send_messages(batch)
        return ready

    def _deliver(self, data: bytes | Pieces) -> None:
        """Take line frames from the broker: the peer's ``send``."""
        if not self.left:
            chunk = data if isinstance(data, bytes) else data.whole()
            self._send_messages(self.hub.batch(chunk))

    def _send_messages(self, batch: Batch) -> None:
        if self.peer.ending is not None:
            self.hub.undelivered += len(batch.messages)
            return
        form = self.subscriptions.form
        frames: bytes | Pieces
        if form is Form.HUB:
            frames = batch.hub(self.framing, self.wrapped, self.to)
        elif form is Form.ENVELOPE:
            frames = batch.envelopes(self.framing)
        elif form is Form.SYNAP:
            frames = batch.synap(self.framing)
        else:
            frames = self._mix(batch)
        if self.out:  # behind the answers that it is given in this turn
            self.put_raw(frames if isinstance(frames, bytes) else frames.whole())
        elif frames:  # at once, while it is in the processor's cache
            self._send(frames)

    def _deliver_lines(self, data: bytes | Pieces) -> None:
        """Take line frames from the broker, and send them as they are: the peer's ``send``."""
        if self.left or self.peer.ending is not None:
            return
        if isinstance(data, bytes):
            frame: bytes | Pieces = self.framing.frame(data)
        else:
            frame = Pieces([self.framing.head(data.size), *data.parts])
        self.flush()  # what is said before, such as a pong
        self._send(frame)

    def _mix(self, batch: Batch) -> bytes:
        """Return each message in the form of a dialect that has asked for it."""
        forms = [self.subscriptions.form_of(name) for name in batch.names]
        return b"".join(
            batch.one(index, form, self.framing, self.wrapped, self.to)
            for index, form in enumerate(forms)
            if form is not None
        )

    # The end

    def close(self, error: ProtocolError, *, tell: bool = False) -> None:
        """End the connection when its output is sent; ``tell``: with a close of the WebSocket."""
        if tell and type(self.reader) is WebSocketReader:
            self.put_raw(close_for(error))
        if error.code in HUB_CLOSES or error.code == "wrong-port":
            self.hub.broker.counters.errors[error.code] += 1
        self.closing = error

    def end(self, code: str, text: str) -> None:
        """End the connection, from outside of its input, when its output is sent."""
        self.flush()
        self._end(code, text)

    # Rights

    @property
    def origin(self) -> str:
        """Where it comes from, as its address while it has registered none."""
        return address(self.peer)

    def enter(self, login: Login) -> None:
        """Log the connection in."""
        self.identity = login.identity
        expires_at = None if login.identity is None else login.identity.expires_at
        self.hub.broker.access.enter(self.peer, login.name, login.credential, expires_at)

    def enter_for_request(self, login: Login) -> None:
        """Log the connection in until :meth:`leave_request`, or for good as a WebSocket."""
        peer = self.peer
        before = None
        if peer.identity is not None:
            before = Login(peer.identity, peer.credential, self.identity)
        self._outer = (before,)
        self.enter(login)

    def leave_request(self) -> None:
        """Undo :meth:`enter_for_request`."""
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
        """Whether it has logged in, or need not."""
        return self.peer.identity is not None or not self.peer.listener.login

    def may(self, action: str) -> bool:
        """Return whether it is allowed ``action``: one of a token's capabilities, "" for any token.

        See :meth:`pubsubd.access.identity.Identity.allows`.
        """
        identity = self.identity
        if identity is None:
            return not self.peer.listener.login or self.peer.identity is not None  # as `known`
        if identity.expires_at is not None and identity.expires_at <= self.hub.wall():
            return False
        return identity.allows(action)


def close_for(error: ProtocolError) -> bytes:
    """Return the close frame of a WebSocket that ends for that reason."""
    reason = error.text if error.code == "goodbye" else f"{error.code}: {error.text}"
    return close_frame(CLOSE_CODES.get(error.code, CloseReason.NORMAL_CLOSURE), reason)
