"""Topics: subscribing, publishing, and what there is."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from pubsubd.hub import messages as m
from pubsubd.hub.codec import PLAIN, Message, to_line
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import Form, dress
from pubsubd.hub.signal.base import (
    RefusedError,
    Signal,
    checked_type,
    key_of,
    read_payload,
    shown,
    text_of,
)
from pubsubd.hub.topics import TopicError, check_hub_topic
from pubsubd.protocol.limits import ANSWER
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.wildcards import Pattern

_KNOWN = 64  # kinds of publications that are remembered for one connection
_SHORT = 1_024  # bytes of what tells them apart
_FRAME = 100  # bytes of one topic in an answer, besides its name
_ACKS = {True: "hub:published", False: "hub:delivery_ack"}  # in dialect A, and in B

_encode = msgspec.json.Encoder().encode


def subscribe(signal: Signal, message: m.Incoming, payload: m.Subscribe) -> None:
    """Subscribe a topic, or a wildcard over topics."""
    talk, hub = signal.talk, signal.talk.hub
    topic = payload.topic or ""
    subscription = signal.topics.get(topic)
    if subscription is not None and signal.is_over(topic, subscription):
        signal.drop_topic(topic)
        subscription = None
    if subscription is None:
        held = signal.parse_topic(topic)
        most = talk.peer.terms.limits.max_subscriptions
        if len(talk.holdings) >= most:
            raise RefusedError("internal_error", f"over {most} subscriptions")
        if isinstance(held, Pattern):
            hub.synap.check_pattern(held)
            talk.holdings.check_patterns(1, Form.HUB)
        else:
            hub.synap.check_name(held, talk.peer.permission)
        given = payload.actor_address or text_of(message.sender)
        actor = hub.registry.get(key_of(given), hub.ticks()) if given else None
        if actor is None or actor.owner is not talk:
            actor = signal.latest_actor()
        subscription = signal.add_topic(topic, held, actor)
    subscribed = m.Subscribed(topic=topic, subscription_id=subscription.id, subscribed_at=hub.now())
    signal.reply(message, "hub:subscribed", subscribed)


def unsubscribe(signal: Signal, message: m.Incoming, payload: m.Subscribe) -> None:
    """Undo a subscription, which is named by its topic or its id."""
    wanted = payload.topic or payload.subscription_id or ""
    if not wanted:
        raise TopicError("topic is required")
    topics = signal.topics
    topic = wanted
    if topic not in topics:
        topic = next((name for name, one in topics.items() if one.id == wanted), wanted)
    if topic in topics:
        signal.drop_topic(topic)
    at = signal.talk.hub.now()
    signal.reply(message, "hub:unsubscribed", m.Unsubscribed(topic=topic, unsubscribed_at=at))


def publish(signal: Signal, message: m.Incoming, payload: m.Publish) -> None:
    """Publish to a topic."""
    talk, hub = signal.talk, signal.talk.hub
    data, kind = payload.data, payload.type
    if kind is None and bytes(payload.message):
        data = payload.message
        kind = read_payload(data, m.Typed).type
    # Hot path: scripts/bench hub-fan-100 ws-one-acked. A client says the same of many messages.
    key = payload.topic, kind, message.sender, talk.peer.permission
    known = signal.publications.get(key)
    if known is None:
        known = _prepare(signal, message, payload.topic, kind)
        if len(known[3]) <= _SHORT:
            if len(signal.publications) >= _KNOWN:
                signal.publications.clear()
            signal.publications[key] = known
    name, head, sender, ack = known
    text = bytes(data) or b"null"
    plain = kind == PLAIN  # what may have come from the line port, and goes back to it as it was
    line = to_line(name, PLAIN, sender, text) if plain else b"%b%b}" % (head, text)
    most = signal.talk.peer.terms.limits.max_payload
    if len(line) > most:
        details = {"actualSize": len(line), "maxSize": most}
        raise RefusedError("message_too_large", f"{len(line)} bytes, over {most}", details)
    note = None if plain else Message(name, kind or "", text, sender)
    count = hub.broker.enqueue(talk.peer, name, line, note=note)
    hub.topics.note(name, hub.clock())
    correlation = message.id if signal.dialect == "A" else UNSET
    if not isinstance(correlation, str):
        correlation = message.correlation_id
    now = hub.now()
    talk.put(
        ack
        % (
            new_id().encode(),
            count,
            count,
            b"true" if count else b"false",
            now,
            _encode(correlation) if isinstance(correlation, str) else b"null",
            now,
        )
    )


def _prepare(
    signal: Signal, message: m.Incoming, topic: str | None, kind: str | None
) -> tuple[bytes, bytes, str, bytes]:
    """Return what is the same for all messages of a type that are published to a topic.

    That is the name; how the line data begins; the sender; and the acknowledgement, with gaps for
    its id, two counts, whether it was delivered, the time, the correlation and the time again.
    """
    limits = signal.talk.hub.limits
    name = check_hub_topic(topic, limits.any_topic, limits.topic_length)
    signal.talk.hub.synap.check_publishing(name, signal.talk.peer.permission)
    kind = checked_type(kind)
    sender = signal.sender_of(message)
    head = to_line(name, kind, sender, b"null").removesuffix(b"null}")
    to = text_of(message.sender) or signal.address
    fixed = [dress(m.HUB, signal.wrapped), to, _ACKS[signal.dialect == "A"], topic]
    ack = (
        b'{"id":"%%b","from":%b,"to":%b,"type":%b,"payload":{"topic":%b,"subscriberCount":%%d,'
        b'"deliveredCount":%%d,"delivered":%%b,"timestamp":%%d},"correlationId":%%b,'
        b'"timestamp":%%d,"metadata":{},"pattern":"tell","ttl":null,"signature":null}'
    ) % tuple(_encode(one).replace(b"%", b"%%") for one in fixed)
    return name, head, sender, ack


def list_topics(signal: Signal, message: m.Incoming, payload: m.Discover) -> None:
    """List the topics of this port, in steps: who receives each of them may have to be found."""
    limit, offset = signal.page(payload)
    signal.talk.step = _list_topics(signal, message, limit, offset)


def _list_topics(signal: Signal, message: m.Incoming, limit: int, offset: int) -> Iterator[None]:
    hub, rights = signal.talk.hub, signal.talk.peer.permission
    over, room = hub.broker.turn.over, ANSWER
    names, total = hub.topics.page(offset, limit)
    looked, found = 0, []
    for name in names:
        if over():
            yield
        if name in hub.topics and (rights is None or rights.may_receive(name)):
            while True:
                try:
                    found.append(_summary(signal, name))
                    break
                except Unfinished:  # who receives it takes more than a turn to find out
                    yield
                if name not in hub.topics:
                    break
            room -= len(name) + _FRAME
        looked += 1
        if room < 0:
            break
    signal.reply(
        message,
        "hub:topic_list",
        m.TopicList(
            topics=found,
            count=len(found),
            total=total,
            offset=offset,
            limit=limit,
            has_more=offset + looked < total,
        ),
    )


def topic_info(signal: Signal, message: m.Incoming, payload: m.Subscribe) -> None:
    """Tell what is known of a topic."""
    hub, rights = signal.talk.hub, signal.talk.peer.permission
    name = check_hub_topic(payload.topic, hub.limits.any_topic, hub.limits.topic_length)
    if name not in hub.topics or not (rights is None or rights.may_receive(name)):
        raise RefusedError("internal_error", f"Topic {shown(payload.topic or '')} not found")
    signal.reply(message, "hub:topic_info", _summary(signal, name))


def _summary(signal: Signal, name: bytes) -> m.TopicSummary:
    hub = signal.talk.hub
    topic = hub.topics.get(name)
    assert topic is not None
    return m.TopicSummary(
        topic=name.decode(),
        subscriber_count=hub.broker.count_receivers(name),
        message_count=topic.message_count,
        created_at=hub.date(int(topic.created_at * 1000)),
    )
