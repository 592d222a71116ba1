"""Messages from one actor to another, and to all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor, canonical
from pubsubd.hub.core import Connection
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import dress
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import (
    RefusedError,
    checked_type,
    read_metadata,
    read_object,
    shown,
    text_of,
)

SEND, BROADCAST = b"//pubsubd/send", b"//pubsubd/broadcast"
"""Names that a client must have the right to publish, where rights are limited."""

_GUARDED = ("authToken", "renewalToken", "jwt")  # metadata that is never passed on
_MARKS = ("broadcast", "publication", "topic")  # and metadata that only the hub sets

encode = msgspec.json.Encoder().encode


def send(signal: Signal, message: m.Incoming, payload: m.Send) -> None:
    """Deliver a message to one actor."""
    _check_right(signal, SEND)
    hub, in_a = signal.connection.hub, signal.dialect == "A"
    target = payload.to or text_of(message.to) or ""
    key = canonical(target)
    if key is None:
        raise RefusedError("internal_error", "to is required" if not target else "to is no address")
    delivery = _delivery(signal, message, payload, {})
    actor = hub.registry.get(key, hub.ticks())
    delivered = actor is not None and _hand(signal, actor, delivery)
    if delivered and message.pattern == "ask" and in_a:
        ack = r.DeliveryAck(message_id=text_of(message.id) or delivery.id, delivered_at=hub.now())
        signal.reply(message, "hub:delivery_ack", ack)
    if delivered:
        return
    text = f"Actor not registered or disconnected: {shown(target)}"
    if not in_a:
        text = f"Actor {shown(target)} not registered or disconnected"
        raise RefusedError("unknown_actor", text, {"targetActor": target[:256]})
    if message.pattern == "ask":
        text = f"Actor not registered: {shown(target)}"
        unknown = r.UnknownActor(actor_address=target[:256], message=text)
        signal.reply(message, "hub:unknown_actor", unknown)


def broadcast(signal: Signal, message: m.Incoming, payload: m.Send) -> None:
    """Deliver a message to all actors, in steps."""
    _check_right(signal, BROADCAST)
    delivery = _delivery(signal, message, payload, {"broadcast": True})
    capability = read_metadata(message.metadata, m.BroadcastMetadata).target_capability
    signal.connection.step = _broadcast(signal, message, delivery, capability, payload.exclude_self)


def _check_right(signal: Signal, name: bytes) -> None:
    """Raise ForbiddenError if sending to actors is not allowed."""
    signal.connection.hub.policy.check_publishing(name, signal.connection.peer.permission)


def _broadcast(
    signal: Signal, message: m.Incoming, delivery: r.Delivery, capability: str | None, exclude: bool
) -> Iterator[None]:
    hub = signal.connection.hub
    delivered = failed = 0
    halves = {wrapped: _halves(delivery, wrapped) for wrapped in (False, True)}
    for key in hub.registry.keys(capability):
        if hub.broker.delivery.turn.over():
            yield
        actor = hub.registry.get(key, hub.ticks())
        if actor is None or (exclude and actor.connection is signal.connection):
            continue
        before, after = halves[actor.address.startswith("@(")]
        if _put(signal, actor, b'%b"%b"%b' % (before, actor.address.encode(), after)):
            delivered += 1
        else:
            failed += 1
        connection = actor.connection
        if connection.peer.outbox.size > connection.max_pending // 2:
            yield  # it may have to be waited for
    signal.reply(
        message,
        "hub:broadcast_ack",
        r.BroadcastAck(
            message_id=text_of(message.id) or delivery.id,
            delivered_count=delivered,
            failed_count=failed,
            recipient_count=delivered + failed,
            success_count=delivered,
            failure_count=failed,
        ),
    )


def _halves(delivery: r.Delivery, wrapped: bool) -> tuple[bytes, bytes]:
    """Return the two parts of a delivery as a JSON text, before its ``to`` and behind it."""
    text = _write(delivery, "", wrapped)
    # Before it are the id and the sender, and no string has a quote that is not escaped.
    before, mark, after = text.partition(b',"to":""')
    return before + mark[:-2], after


def _write(delivery: r.Delivery, to: str, wrapped: bool) -> bytes:
    """Return a delivery as a JSON text, with addresses in the form of its receiver."""
    delivery.to = to
    delivery.sender = dress(delivery.sender, wrapped)
    delivery.metadata["via"] = dress(m.HUB, wrapped)
    return encode(delivery)


def _delivery(
    signal: Signal, message: m.Incoming, payload: m.Send, more: dict[str, Any]
) -> r.Delivery:
    """Return the delivery for all receivers, without its ``to``."""
    kind = checked_type(payload.type)
    metadata = read_object(message.metadata)
    for guarded in (*_GUARDED, *_MARKS):
        metadata.pop(guarded, None)
    original = text_of(message.id) or ""
    metadata |= {"forwarded": True, **more, "originalMessageId": original}
    data = payload.data if bytes(payload.data) else message.payload
    correlation = text_of(message.correlation_id)
    if correlation is None and message.pattern == "ask":
        correlation = original or None
    signal.connection.hub.broker.delivery.flush()  # what was published before stays before it
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


def _hand(signal: Signal, actor: Actor[Connection], delivery: r.Delivery) -> bool:
    """Deliver to an actor, with addresses as it writes them; return whether it took it."""
    wrapped = actor.address.startswith("@(")
    return _put(signal, actor, _write(delivery, actor.address, wrapped))


def _put(signal: Signal, actor: Actor[Connection], text: bytes) -> bool:
    connection = actor.connection
    hub = signal.connection.hub
    if (
        connection.peer.ending is not None
        or connection.left
        or not hub.spare(connection, partial(connection.put, text))
    ):
        return False
    hub.broker.counters.messages_out += 1
    connection.peer.messages_out += 1
    return True
