"""Envelopes, ``{type, id, payload}``: relayed to all others that have asked for ``type:id``.

There are no answers and no errors: an envelope that cannot be used is ignored, and counted.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from pubsubd.hub.codec import PLAIN, Message, to_line
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.messages import Incoming, Topic
from pubsubd.hub.render import Form
from pubsubd.hub.templates import Sample, Template
from pubsubd.hub.topics import TopicError, check_envelope_topic

_decode_topic = msgspec.json.Decoder(Topic).decode


def handle(connection: HubConnection, message: Incoming) -> None:
    """Carry out one envelope."""
    assert isinstance(message.type, str)
    if not _carry_out(connection, message.type, message):
        connection.hub.ignored += 1


def remember(connection: HubConnection, message: Incoming, sample: Sample) -> Template | None:
    """Return the template of a relayed envelope."""

    def relay(data: bytes, _id: bytes, _time: int) -> None:
        message.payload = Raw(data)
        handle(connection, message)

    if str(message.type).startswith("__"):
        return None
    return sample.template(("payload", bytes(message.payload)), ("", b""), ("", None), relay)


def _carry_out(connection: HubConnection, kind: str, message: Incoming) -> bool:
    if kind in ("__subscribe", "__unsubscribe"):
        return _subscribe(connection, message, kind == "__subscribe")
    hub = connection.hub
    if kind.startswith("__") or not isinstance(message.id, str) or not connection.may("publish"):
        return False
    name = check_envelope_topic(f"{kind}:{message.id}")
    if name is None or not kind:
        return False
    try:
        hub.policy.check_publishing(name, connection.peer.permission)
    except TopicError:
        return False
    payload = bytes(message.payload)
    data = to_line(name, kind, connection.sender, payload)
    if len(data) > connection.peer.listener.limits.max_payload:
        return False
    note = None if kind == PLAIN else Message(name, kind, payload, connection.sender)
    hub.broker.delivery.enqueue(connection.peer, name, data, echo=False, note=note)
    hub.topics.note(name, hub.clock())
    return True


def _subscribe(connection: HubConnection, message: Incoming, on: bool) -> bool:
    try:
        topic = _decode_topic(message.payload).topic
    except msgspec.DecodeError:
        return False
    name = check_envelope_topic(topic)
    if name is None:
        return False
    if not on:
        connection.subscriptions.remove(name, Form.ENVELOPE)
        return True
    hub = connection.hub
    most = connection.peer.listener.limits.max_subscriptions
    if not connection.may("subscribe") or len(connection.subscriptions) >= most:
        return False
    try:
        hub.policy.check_name(name, connection.peer.permission)
    except TopicError:
        return False
    connection.subscriptions.add(name, Form.ENVELOPE)
    return True
