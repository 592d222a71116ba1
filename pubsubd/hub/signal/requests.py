"""Table of Signal Hub's requests, and the handling of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from pubsubd.hub import messages as m
from pubsubd.hub.search import PatternError
from pubsubd.hub.signal import lifecycle, messaging, pubsub, registration
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import RefusedError, error_code, read_payload, shown, text_of
from pubsubd.hub.templates import CarryOut, CarryOutAll, Sample, Template, Values
from pubsubd.hub.topics import TopicError

_encode = msgspec.json.Encoder().encode

Carry = Callable[[Signal, m.Incoming, Any], None]

REQUESTS: dict[str, tuple[Carry, type[Struct], str]] = {
    "hub:connect": (lifecycle.connect, m.Connect, ""),
    "hub:heartbeat": (lifecycle.heartbeat, m.Heartbeat, ""),
    "hub:disconnect": (lifecycle.disconnect, m.Nothing, ""),
    "hub:register": (registration.register, m.Register, "receive"),
    "hub:unregister": (registration.unregister, m.Unregister, ""),
    "hub:renew": (registration.renew, m.Renew, ""),
    "hub:discover": (registration.discover, m.Discover, "discover"),
    "hub:list_actors": (registration.list_actors, m.Discover, "discover"),
    "hub:send": (messaging.send, m.Send, "send"),
    "hub:broadcast": (messaging.broadcast, m.Broadcast, "broadcast"),
    "hub:subscribe": (pubsub.subscribe, m.Subscribe, "subscribe"),
    "hub:publish": (pubsub.publish, m.Publish, "publish"),
    "hub:unsubscribe": (pubsub.unsubscribe, m.Unsubscribe, ""),
    "hub:list_topics": (pubsub.list_topics, m.Discover, "discover"),
    "hub:topic_info": (pubsub.topic_info, m.TopicInfo, "discover"),
    "hub:queue_stats": (lifecycle.queue_stats, m.Nothing, ""),
    "hub:metrics": (lifecycle.metrics, m.Nothing, ""),
    "hub:refresh_token": (lifecycle.refresh_token, m.Token, ""),
}
"""Type -> function, type of the payload, and the capability that a token must have for it."""


def handle(signal: Signal, message: m.Incoming, payload: Any = None) -> None:
    """Carry out one message whose type begins with ``hub:``.

    Args:
        signal: of the connection that has sent it.
        message: it.
        payload: what carries it out takes, if that has been read.
    """
    kind = message.type
    assert isinstance(kind, str)
    if not signal.connection.again:
        signal.processed += 1
        signal.connection.hub.processed += 1
    if message.sender != signal.address:
        signal.meet(message.sender)
    try:
        entry = REQUESTS.get(kind)
        if entry is None:
            raise RefusedError("internal_error", f"Unknown message type: {shown(kind)}")
        carry_out, type_, action = entry
        signal.admit(kind, message, action)
        if payload is None:
            payload = read_payload(message.payload, type_)
        carry_out(signal, message, payload)
    except RefusedError as error:
        signal.refuse(error, message)
    except (TopicError, PatternError) as error:
        signal.error(error_code(error), str(error), message=message)


def remember(signal: Signal, message: m.Incoming, sample: Sample) -> Template | None:
    """Return the template of a hub:publish or hub:send."""
    try:
        if message.type == "hub:publish":
            return _remember_publish(signal, message, sample)
        return _remember_send(signal, message, sample)
    except RefusedError:
        return None


def _remember_publish(signal: Signal, message: m.Incoming, sample: Sample) -> Template | None:
    payload = read_payload(message.payload, m.Publish)
    key = "data" if bytes(payload.data) else "message"

    def publish(data: bytes, id_: bytes, time: int) -> None:
        _fill(message, id_, time)
        setattr(payload, key, Raw(data))
        handle(signal, message, payload)

    def publish_all(found: list[Values]) -> int:
        return pubsub.publish_all(signal, message, payload, found)

    of_data = getattr(payload, key)
    together = publish_all if key == "data" else None
    return _template(message, sample, key, of_data, publish, together)


def _remember_send(signal: Signal, message: m.Incoming, sample: Sample) -> Template | None:
    payload = read_payload(message.payload, m.Send)
    outline = messaging.Outline(signal, message, payload)

    def send(data: bytes, id_: bytes, time: int) -> None:
        # Hot path: scripts/bench mesh-send.
        if id_:
            message.id = id_.decode()
        if time:
            message.timestamp = float(time)
        outline.begin(signal, message, data, id_)
        handle(signal, message, outline)

    return _template(message, sample, "data", payload.data, send)


def _fill(message: m.Incoming, id_: bytes, time: int) -> None:
    """Make a message the one that has this id and time; empty and 0 if it has none."""
    if id_:
        message.id = id_.decode()
    if time:
        message.timestamp = float(time)


def _template(
    message: m.Incoming,
    sample: Sample,
    key: str,
    data: Raw,
    carry_out: CarryOut,
    carry_out_all: CarryOutAll | None = None,
) -> Template | None:
    return sample.template(
        (key, bytes(data)),
        ("id", _encode(text_of(message.id))),
        ("timestamp", message.timestamp),
        carry_out,
        carry_out_all,
    )
