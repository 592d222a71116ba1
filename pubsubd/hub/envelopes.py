"""Envelopes, ``{type, id, payload}``: relayed to all others that have asked for ``type:id``.

There are no answers and no errors: what cannot be used is ignored, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pubsubd.hub.codec import PLAIN, Message, to_line
from pubsubd.hub.messages import Incoming, Topic
from pubsubd.hub.render import Form
from pubsubd.hub.topics import TopicError, check_envelope_topic

if TYPE_CHECKING:
    from pubsubd.hub.connection import HubConnection

_decode_topic = msgspec.json.Decoder(Topic).decode


def handle(talk: HubConnection, message: Incoming) -> None:
    """Carry out one envelope."""
    assert isinstance(message.type, str)
    if not _carry_out(talk, message.type, message):
        talk.hub.ignored += 1


def _carry_out(talk: HubConnection, kind: str, message: Incoming) -> bool:
    if kind in ("__subscribe", "__unsubscribe"):
        return _subscribe(talk, message, kind == "__subscribe")
    hub = talk.hub
    if kind.startswith("__") or not isinstance(message.id, str) or not talk.may("publish"):
        return False
    name = check_envelope_topic(f"{kind}:{message.id}")
    if name is None or not kind:
        return False
    try:
        hub.synap.check_publishing(name, talk.peer.permission)
    except TopicError:
        return False
    payload = bytes(message.payload)
    data = to_line(name, kind, talk.sender, payload)
    if len(data) > talk.peer.terms.limits.max_payload:
        return False
    note = None if kind == PLAIN else Message(name, kind, payload, talk.sender)
    hub.broker.enqueue(talk.peer, name, data, echo=False, note=note)
    hub.topics.note(name, hub.clock())
    return True


def _subscribe(talk: HubConnection, message: Incoming, on: bool) -> bool:
    try:
        topic = _decode_topic(message.payload).topic
    except msgspec.DecodeError:
        return False
    name = check_envelope_topic(topic)
    if name is None:
        return False
    if not on:
        talk.holdings.remove(name, Form.ENVELOPE)
        return True
    hub = talk.hub
    most = talk.peer.terms.limits.max_subscriptions
    if not talk.may("subscribe") or len(talk.holdings) >= most:
        return False
    try:
        hub.synap.check_name(name, talk.peer.permission)
    except TopicError:
        return False
    talk.holdings.add(name, Form.ENVELOPE)
    return True
