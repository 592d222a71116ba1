"""Messages from one actor to another, and to all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from pubsubd.broker.actor_messages import ActorMessage
from pubsubd.broker.peer import Peer
from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import canonical
from pubsubd.hub.alike import Alike
from pubsubd.hub.federation import Federation, Reach
from pubsubd.hub.handover import Halves, encode, put, write
from pubsubd.hub.ids import IDS, new_id
from pubsubd.hub.render import dress
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import (
    RefusedError,
    checked_type,
    key_of,
    read_metadata,
    read_object,
    shown,
    text_of,
)

SEND, BROADCAST = b"//pubsubd/send", b"//pubsubd/broadcast"
"""Names that a client must have the right to publish, where rights are limited."""

_GUARDED = ("authToken", "renewalToken", "jwt")  # metadata that is never passed on
_MARKS = ("broadcast", "publication", "topic")  # and metadata that only the hub sets


class _Single:
    """A message to one actor.

    Attributes:
        target: the actor, as the sender has called it.
        key: its address.
        id: of the message, as it is delivered.
        sender: the address of the sender.
    """

    __slots__ = ("_delivery", "id", "key", "sender", "target")

    def __init__(self, signal: Signal, message: m.Incoming, payload: m.Send) -> None:
        self.target, self.key = _receiver(message, payload)
        self._delivery = _delivery(signal, message, payload, {})
        self.id, self.sender = self._delivery.id, self._delivery.sender

    def write(self, to: str, wrapped: bool) -> bytes:
        """Return it as a JSON text for its receiver, with addresses in that one's form."""
        return write(self._delivery, to, wrapped)

    def write_elsewhere(self) -> bytes:
        """Return it as a JSON text for the daemon of its receiver."""
        return encode(self._delivery)


class Outline:
    """Messages to one actor that differ in their data, their id and their time alone.

    It is the one of them that :meth:`begin` was called for.

    Args:
        signal: the sender.
        message: one of them.
        payload: of that one.

    Attributes:
        target, key, sender: as of :class:`_Single`.

    Raises:
        RefusedError: they are not legal.
    """

    __slots__ = (
        "_claimed",
        "_correlated",
        "_data",
        "_delivery",
        "_dressed",
        "_forms",
        "_id",
        "_now",
        "_original",
        "key",
        "sender",
        "target",
    )

    def __init__(self, signal: Signal, message: m.Incoming, payload: m.Send) -> None:
        self.target, self.key = _receiver(message, payload)
        self._delivery = _delivery(signal, message, payload, {})
        ask = message.pattern == "ask" and bool(text_of(message.id))
        self._correlated = ask and text_of(message.correlation_id) is None  # it is the id then
        self._forms: dict[bool | None, Alike] = {}
        claimed = text_of(message.sender)
        self._claimed = None if claimed is None else key_of(claimed)
        self._original = encode(text_of(message.id) or "")[1:-1]
        self._data = self._id = b""
        self._now = 0
        self.sender = ""
        self._dressed: dict[bool | None, bytes] = {}  # the sender, as between quotes

    def begin(self, signal: Signal, message: m.Incoming, data: bytes, id_: bytes) -> None:
        """Be the message that has this data and, unless it is empty, this id."""
        self._id = next(IDS)
        self._data = data
        if id_:
            self._original = id_
        sender = signal.connection.sender
        if self._claimed not in (None, sender):  # it may be another one of its addresses
            sender = signal.sender_of(message)
        if sender != self.sender:
            self.sender = sender
            self._dressed = {}
        self._now = signal.connection.hub.now()

    @property
    def id(self) -> str:
        """Of the message, as it is delivered."""
        return self._id.decode()

    def write(self, to: str, wrapped: bool) -> bytes:
        """As of :class:`_Single`."""
        return self._write(wrapped, to.encode())

    def write_elsewhere(self) -> bytes:
        """As of :class:`_Single`."""
        return self._write(None, b"")

    def _write(self, wrapped: bool | None, to: bytes) -> bytes:
        form = self._forms.get(wrapped)
        if form is None:
            form = Alike(self._delivery, correlated=self._correlated, wrapped=wrapped)
            self._forms[wrapped] = form
        sender = self._dressed.get(wrapped)
        if sender is None:
            dressed = self.sender if wrapped is None else dress(self.sender, wrapped)
            sender = self._dressed[wrapped] = encode(dressed)[1:-1]
        original = self._original
        return form.write(self._id, sender, to, self._data, original, self._now, original)


def send(signal: Signal, message: m.Incoming, payload: m.Send | Outline) -> None:
    """Deliver a message to one actor."""
    # Hot path: scripts/bench mesh-send.
    connection = signal.connection
    hub, federation = connection.hub, connection.hub.federation
    if connection.peer.permission is not None:
        _check_right(signal, SEND)
    one = payload if isinstance(payload, Outline) else _Single(signal, message, payload)
    hub.broker.delivery.flush()  # what was published before stays before it
    actor = hub.registry.get_any(one.key)
    if actor is not None and actor.expires_at <= hub.ticks():
        actor = None
    if actor is None and federation is not None:
        node = federation.directory.find(one.key)
        if node is not None:
            _send_elsewhere(signal, message, federation, node, one)
            return
    address = "" if actor is None else actor.address
    if actor is None or not put(hub, actor, one.write(address, address.startswith("@("))):
        _tell_unknown(signal, message, one.target)
    elif message.pattern == "ask" and signal.dialect == "A":
        ack = r.DeliveryAck(message_id=text_of(message.id) or one.id, delivered_at=hub.now())
        signal.reply(message, "hub:delivery_ack", ack)


def _receiver(message: m.Incoming, payload: m.Send) -> tuple[str, str]:
    """Return the actor that a message is for, as the sender calls it, and its address."""
    target = payload.to or text_of(message.to) or ""
    key = canonical(target)
    if key is None:
        raise RefusedError("internal_error", "to is required" if not target else "to is no address")
    return target, key


@dataclass(slots=True)
class _Sent:
    """A message to an actor of another daemon, whose sender is told what has become of it.

    Attributes:
        signal: the sender.
        message: as it has come.
        target: the actor, as the sender has called it.
        ident: of the message, for the acknowledgement of an ask in dialect A.
    """

    signal: Signal
    message: m.Incoming
    target: str
    ident: str

    @property
    def peer(self) -> Peer:
        """The sender's connection."""
        return self.signal.connection.peer

    def __call__(self, at: int | None) -> None:
        """Tell the sender what there is to tell."""
        signal, message = self.signal, self.message
        if signal.connection.left or self.peer.ending is not None:
            return
        if at is None:
            try:
                _tell_unknown(signal, message, self.target)
            except RefusedError as error:
                signal.error(error.code, error.text, error.details, message)
        elif message.pattern == "ask" and signal.dialect == "A":
            ack = r.DeliveryAck(message_id=self.ident, delivered_at=at)
            signal.reply(message, "hub:delivery_ack", ack)


def _send_elsewhere(
    signal: Signal, message: m.Incoming, federation: Federation, node: str, one: _Single | Outline
) -> None:
    """Send a message to an actor of another daemon.

    What becomes of it matters for an ask; in B also for a tell, if the actor is not there.
    """
    ask, sent = message.pattern == "ask", None
    if ask or signal.dialect != "A":
        asked = msgspec.structs.replace(message)  # those like it are read into the same one
        sent = _Sent(signal, asked, one.target, text_of(message.id) or one.id)
    pair = one.sender, one.key
    if not federation.send(node, ActorMessage(pair, one.write_elsewhere(), ask, sent)):
        text = f"too many messages to the daemon {federation.shown(node)} are under way"
        raise RefusedError("rate_limited", text, {"retryAfter": 1})


def _tell_unknown(signal: Signal, message: m.Incoming, target: str) -> None:
    """Tell that an actor is not there: always in dialect B, and in A if somebody asks."""
    in_a = signal.dialect == "A"
    if not in_a:
        text = f"Actor {shown(target)} not registered or disconnected"
        raise RefusedError("unknown_actor", text, {"targetActor": target[:256]})
    if message.pattern == "ask":
        text = f"Actor not registered: {shown(target)}"
        unknown = r.UnknownActor(actor_address=target[:256], message=text)
        signal.reply(message, "hub:unknown_actor", unknown)


def broadcast(signal: Signal, message: m.Incoming, payload: m.Broadcast) -> None:
    """Deliver a message to all actors, in steps: to those of all daemons, in a mesh."""
    _check_right(signal, BROADCAST)
    delivery = _delivery(signal, message, payload, {"broadcast": True})
    signal.connection.hub.broker.delivery.flush()  # what was published before stays before it
    capability = read_metadata(message.metadata, m.BroadcastMetadata).target_capability
    reach = signal.reach(payload.scope)
    signal.connection.step = _broadcast(
        signal, message, delivery, capability, payload.exclude_self, reach
    )


def _check_right(signal: Signal, name: bytes) -> None:
    """Raise ForbiddenError if sending to actors is not allowed."""
    signal.connection.hub.policy.check_publishing(name, signal.connection.peer.permission)


def _broadcast(
    signal: Signal,
    message: m.Incoming,
    delivery: r.Delivery,
    capability: str | None,
    exclude: bool,
    reach: Reach | None,
) -> Iterator[None]:
    hub = signal.connection.hub
    delivered = failed = 0
    halves = Halves(delivery)
    for key in hub.registry.keys(capability):
        if hub.broker.delivery.turn.over():
            yield
        actor = hub.registry.get(key, hub.ticks())
        if actor is None or (exclude and actor.connection is signal.connection):
            continue
        if halves.hand(hub, actor):
            delivered += 1
        else:
            failed += 1
        connection = actor.connection
        if connection.peer.outbox.size > connection.max_pending // 2:
            yield  # it may have to be waited for

    def done(more: int, lost: int, unanswered: list[str]) -> None:
        if signal.connection.left or signal.connection.peer.ending is not None:
            return
        sent, not_sent = delivered + more, failed + lost
        signal.reply(
            message,
            "hub:broadcast_ack",
            r.BroadcastAck(
                message_id=text_of(message.id) or delivery.id,
                delivered_count=sent,
                failed_count=not_sent,
                recipient_count=sent + not_sent,
                success_count=sent,
                failure_count=not_sent,
                unanswered=unanswered if reach and reach.here is not None else UNSET,
            ),
        )

    if reach is None:
        done(0, 0, [])
    else:
        reach.broadcast(signal.connection, delivery, capability, done)


def _delivery(
    signal: Signal, message: m.Incoming, payload: m.Send, more: dict[str, Any]
) -> r.Delivery:
    """Return the delivery for all receivers, without its ``to``."""
    kind = checked_type(payload.type)
    metadata = read_object(message.metadata)
    if metadata:
        for guarded in (*_GUARDED, *_MARKS):
            metadata.pop(guarded, None)
    original = text_of(message.id) or ""
    metadata |= {"forwarded": True, **more, "originalMessageId": original}
    data = payload.data if bytes(payload.data) else message.payload
    correlation = text_of(message.correlation_id)
    if correlation is None and message.pattern == "ask":
        correlation = original or None
    return r.Delivery(
        id=new_id(),
        sender=signal.sender_of(message),
        to="",
        type=kind,
        payload=data,
        pattern=text_of(message.pattern) or "tell",
        correlation_id=correlation,
        timestamp=signal.connection.hub.now(),
        metadata=metadata,
    )
