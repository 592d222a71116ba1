"""From one actor to another, and to all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pubsubd.hub import messages as m
from pubsubd.hub.ids import new_id
from pubsubd.hub.registry import Actor, canonical
from pubsubd.hub.render import dress
from pubsubd.hub.signal.base import (
    RefusedError,
    Signal,
    checked_type,
    read_metadata,
    read_object,
    shown,
    text_of,
)

if TYPE_CHECKING:
    from pubsubd.hub.session import HubTalk

SEND, BROADCAST = b"//pubsubd/send", b"//pubsubd/broadcast"
"""Names that one must have the right to publish, where rights are limited."""

_BATCH = 100  # receivers of a broadcast in one step
_GUARDED = ("authToken", "renewalToken", "jwt")  # metadata that no other client gets to see
_MARKS = ("broadcast", "publication", "topic")  # and what only the hub says of a message

_encode = msgspec.json.Encoder().encode


def send(signal: Signal, message: m.Incoming, payload: m.Send) -> None:
    """Hand a message to one actor."""
    _check_right(signal, SEND)
    hub, in_a = signal.talk.hub, signal.dialect == "A"
    target = payload.to or text_of(message.to) or ""
    key = canonical(target)
    if key is None:
        raise RefusedError("internal_error", "to is required" if not target else "to is no address")
    delivery = _delivery(signal, message, payload, {})
    actor = hub.registry.get(key, hub.ticks())
    delivered = actor is not None and _hand(signal, actor, delivery)
    if delivered and message.pattern == "ask" and in_a:
        ack = m.DeliveryAck(message_id=text_of(message.id) or delivery.id, delivered_at=hub.now())
        signal.reply(message, "hub:delivery_ack", ack)
    if delivered:
        return
    text = f"Actor not registered or disconnected: {shown(target)}"
    if not in_a:
        text = f"Actor {shown(target)} not registered or disconnected"
        raise RefusedError("unknown_actor", text, {"targetActor": target[:256]})
    if message.pattern == "ask":
        text = f"Actor not registered: {shown(target)}"
        unknown = m.UnknownActor(actor_address=target[:256], message=text)
        signal.reply(message, "hub:unknown_actor", unknown)


def broadcast(signal: Signal, message: m.Incoming, payload: m.Send) -> None:
    """Hand a message to all actors, in steps."""
    _check_right(signal, BROADCAST)
    delivery = _delivery(signal, message, payload, {"broadcast": True})
    capability = read_metadata(message.metadata, m.BroadcastMetadata).target_capability
    signal.talk.step = _broadcast(signal, message, delivery, capability, payload.exclude_self)


def _check_right(signal: Signal, name: bytes) -> None:
    """Raise ForbiddenError if sending to actors is not allowed."""
    signal.talk.hub.synap.check_publishing(name, signal.talk.peer.permission)


def _broadcast(
    signal: Signal, message: m.Incoming, delivery: m.Delivery, capability: str | None, exclude: bool
) -> Iterator[None]:
    hub = signal.talk.hub
    keys = iter(hub.registry.keys(capability))
    delivered = failed = 0
    while batch := list(islice(keys, _BATCH)):
        now = hub.ticks()
        for key in batch:
            actor = hub.registry.get(key, now)
            if actor is None or (exclude and actor.owner is signal.talk):
                continue
            if _hand(signal, actor, delivery):
                delivered += 1
            else:
                failed += 1
        yield
    signal.reply(
        message,
        "hub:broadcast_ack",
        m.BroadcastAck(
            message_id=text_of(message.id) or delivery.id,
            delivered_count=delivered,
            failed_count=failed,
            recipient_count=delivered + failed,
            success_count=delivered,
            failure_count=failed,
        ),
    )


def _delivery(
    signal: Signal, message: m.Incoming, payload: m.Send, more: dict[str, Any]
) -> m.Delivery:
    """Return what the receivers get, but for its ``to``."""
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
    signal.talk.hub.broker.flush()  # what was published before stays before it
    return m.Delivery(
        id=new_id(),
        sender=signal.sender_of(message),
        to="",
        type=kind,
        payload=data,
        pattern=text_of(message.pattern) or "tell",
        correlation_id=correlation,
        timestamp=signal.talk.hub.now(),
        metadata=metadata,
    )


def _hand(signal: Signal, actor: Actor, delivery: m.Delivery) -> bool:
    """Put a delivery to an actor, as it writes addresses; False if it cannot take it."""
    talk = cast("HubTalk", actor.owner)
    if talk.peer.ending is not None or talk.left:
        return False
    wrapped = actor.address.startswith("@(")
    delivery.to = actor.address
    delivery.sender = dress(delivery.sender, wrapped)
    delivery.metadata["via"] = dress(m.HUB, wrapped)
    hub = signal.talk.hub
    if not hub.spare(talk, partial(talk.put, _encode(delivery))):
        return False
    hub.broker.counters.messages_out += 1
    return True
