"""Envelopes, ``{type, id, payload}``: relayed to all others that have asked for ``type:id``.

There are no answers and no errors: an envelope that cannot be used is ignored, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from pubsubd.hub.codec import PLAIN, known, to_line
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.messages import Incoming, Topic
from pubsubd.hub.render import Form
from pubsubd.hub.templates import Sample, Template, Values
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

    kind = str(message.type)
    if kind.startswith("__"):
        return None
    name = check_envelope_topic(f"{kind}:{message.id}") if isinstance(message.id, str) else None

    def relay_all(found: list[Values]) -> int:
        hub = connection.hub
        if (
            name is None
            or not connection.may("publish")
            or not hub.policy.may_publish(name, connection.peer.permission)
            or not hub.broker.router.remembers(name)
        ):
            return 0
        payloads = [payload for payload, _, _ in found]
        return len(found) if _relay(connection, name, kind, payloads) else 0

    payload = "payload", bytes(message.payload)
    return sample.template(payload, ("", b""), ("", None), relay, relay_all if kind else None)


def _carry_out(connection: HubConnection, kind: str, message: Incoming) -> bool:
    if kind in ("__subscribe", "__unsubscribe"):
        return _subscribe(connection, message, kind == "__subscribe")
    if kind.startswith("__") or not isinstance(message.id, str) or not connection.may("publish"):
        return False
    name = check_envelope_topic(f"{kind}:{message.id}")
    if name is None or not kind:
        return False
    try:
        connection.hub.policy.check_publishing(name, connection.peer.permission)
    except TopicError:
        return False
    return _relay(connection, name, kind, (bytes(message.payload),))


def _relay(connection: HubConnection, name: bytes, kind: str, payloads: Sequence[bytes]) -> bool:
    """Relay envelopes of one name, or none of them if one is too large."""
    # Hot path: scripts/bench hub-fan-100-envelope.
    hub, sender = connection.hub, connection.sender
    if kind == PLAIN:  # it may stand for text or bytes
        texts = [to_line(name, kind, sender, payload) for payload in payloads]
    else:
        head = to_line(name, kind, sender, b"").removesuffix(b"}")
        texts = [head + payload + b"}" for payload in payloads]
    if max(map(len, texts)) > connection.peer.listener.limits.max_payload:
        return False
    notes = [known(name, kind, sender, payload) for payload in payloads]
    hub.broker.delivery.enqueue_all(connection.peer, name, texts, echo=False, notes=notes)
    hub.topics.note(name, hub.clock(), len(texts))
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
