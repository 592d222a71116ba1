"""Topics: subscribing, publishing, listing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.codec import PLAIN, Message, to_line
from pubsubd.hub.ids import IDS, new_ids
from pubsubd.hub.listing import Record, find_page, find_records
from pubsubd.hub.render import Form, dress
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import (
    RefusedError,
    checked_type,
    error_code,
    key_of,
    read_payload,
    shown,
    text_of,
)
from pubsubd.hub.templates import Values
from pubsubd.hub.topics import TopicError, check_hub_topic
from pubsubd.protocol.limits import ANSWER, MAX_TOPICS
from pubsubd.routing.wildcards import Pattern

_KNOWN = 64  # kinds of publications that are remembered for one connection
_SHORT = 1_024  # bytes of such a kind's key
_FRAME = 100  # bytes of one topic in an answer, besides its name
_ACKS = {True: "hub:published", False: "hub:delivery_ack"}  # in dialect A, and in B

_encode = msgspec.json.Encoder().encode


def subscribe(signal: Signal, message: m.Incoming, payload: m.Subscribe) -> None:
    """Subscribe a topic, or a wildcard over topics; or several of both."""
    topics = payload.topics
    if topics is None:
        given = payload.actor_address or text_of(message.sender)
        signal.reply(message, "hub:subscribed", _subscribe(signal, payload.topic or "", given))
        return
    if payload.topic is not None:
        raise RefusedError("internal_error", "payload has either topic or topics")
    if len(topics) > MAX_TOPICS:
        raise RefusedError("internal_error", f"over {MAX_TOPICS} topics in one message")
    signal.connection.step = _subscribe_all(signal, message, payload, topics)


def _subscribe_all(
    signal: Signal, message: m.Incoming, payload: m.Subscribe, topics: list[str]
) -> Iterator[None]:
    """Subscribe topics in steps; one that is refused keeps no other from being subscribed."""
    hub = signal.connection.hub
    over = hub.broker.delivery.turn.over
    given = payload.actor_address or text_of(message.sender)
    answer = r.SubscribedAll([], [])
    for topic in topics:
        if over():
            yield
        try:
            answer.subscriptions.append(_subscribe(signal, topic, given))
        except (RefusedError, TopicError) as error:
            code = error_code(error)
            hub.broker.counters.errors[f"hub:{code}"] += 1
            answer.refused.append(r.NotSubscribed(topic, code, str(error)))
    signal.reply(message, "hub:subscribed", answer)


def _subscribe(signal: Signal, topic: str, given: str | None) -> r.Subscribed:
    """Subscribe one topic, under the actor ``given`` if that is one of the connection's.

    Raises:
        RefusedError, TopicError: it must not be subscribed.
    """
    connection, hub = signal.connection, signal.connection.hub
    subscription = signal.topics.get(topic)
    if subscription is not None and signal.is_over(topic, subscription):
        signal.drop_topic(topic)
        subscription = None
    if subscription is None:
        held = signal.parse_topic(topic)
        most = connection.peer.listener.limits.max_subscriptions
        if len(connection.subscriptions) >= most:
            raise RefusedError("internal_error", f"over {most} subscriptions")
        if isinstance(held, Pattern):
            hub.policy.check_patterns(1)
            connection.subscriptions.check_patterns(1, Form.HUB)
        else:
            hub.policy.check_name(held, connection.peer.permission)
        actor = hub.registry.get(key_of(given), hub.ticks()) if given else None
        if actor is None or actor.connection is not connection:
            actor = signal.latest_actor()
        subscription = signal.add_topic(topic, held, actor)
    return r.Subscribed(topic=topic, subscription_id=subscription.id, subscribed_at=hub.now())


def unsubscribe(signal: Signal, message: m.Incoming, payload: m.Unsubscribe) -> None:
    """End a subscription, given by its topic or its id."""
    wanted = payload.topic or payload.subscription_id or ""
    if not wanted:
        raise TopicError("topic is required")
    topics = signal.topics
    topic = wanted
    if topic not in topics:
        topic = next((name for name, one in topics.items() if one.id == wanted), wanted)
    if topic in topics:
        signal.drop_topic(topic)
    at = signal.connection.hub.now()
    signal.reply(message, "hub:unsubscribed", r.Unsubscribed(topic=topic, unsubscribed_at=at))


def publish(signal: Signal, message: m.Incoming, payload: m.Publish) -> None:
    """Publish to a topic."""
    connection = signal.connection
    hub, peer = connection.hub, connection.peer
    data, kind = payload.data, payload.type
    if kind is None and bytes(payload.message):
        data = payload.message
        kind = read_payload(data, m.Typed).type
    # Hot path: scripts/bench hub-fan-100 ws-one-acked. Many messages differ only in their data.
    key = payload.topic, kind, message.sender, peer.permission
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
    most = peer.listener.limits.max_payload
    if len(line) > most:
        details = {"actualSize": len(line), "maxSize": most}
        raise RefusedError("message_too_large", f"{len(line)} bytes, over {most}", details)
    note = None if plain else Message(name, kind or "", text, sender)
    count = hub.broker.delivery.enqueue(peer, name, line, note=note)
    hub.topics.note(name, hub.clock())
    correlation = message.id if signal.dialect == "A" else UNSET
    if not isinstance(correlation, str):
        correlation = message.correlation_id
    now = hub.now()
    connection.put(
        ack
        % (
            next(IDS),
            count,
            count,
            b"true" if count else b"false",
            now,
            _encode(correlation) if isinstance(correlation, str) else b"null",
            now,
        )
    )


def publish_all(
    signal: Signal, message: m.Incoming, payload: m.Publish, found: list[Values]
) -> int:
    """Publish messages that differ in their data, their id and their time alone.

    Returns:
        How many, from the first on; 0 if each has to be published by itself.
    """
    # Hot path: scripts/bench hub-fan-100.
    connection, kind = signal.connection, payload.type
    hub, peer = connection.hub, connection.peer
    signal.meet(message.sender)
    known = signal.publications.get((payload.topic, kind, message.sender, peer.permission))
    if known is None or kind is None or kind == PLAIN or not hub.broker.router.remembers(known[0]):
        return 0
    name, head, sender, ack = known
    lines = [head + data + b"}" for data, _, _ in found]
    if max(map(len, lines)) > peer.listener.limits.max_payload:
        return 0
    count = signal.admit_alike(message, "publish", len(found))
    if not count:
        return 0
    if count < len(found):
        found, lines = found[:count], lines[:count]
    notes = [Message(name, kind, data, sender) for data, _, _ in found]
    receivers = hub.broker.delivery.enqueue_all(peer, name, lines, notes=notes)
    hub.topics.note(name, hub.clock(), count)
    now, delivered = hub.now(), b"true" if receivers else b"false"
    correlation = message.id if signal.dialect == "A" else UNSET
    if found[0][1] and isinstance(correlation, str):
        correlations = [b'"%b"' % id_ for _, id_, _ in found]
    else:
        if not isinstance(correlation, str):
            correlation = message.correlation_id
        text = _encode(correlation) if isinstance(correlation, str) else b"null"
        correlations = [text] * count
    # No JSON text holds a NUL.
    gaps = b"\0", receivers, receivers, delivered, now, b"\0", now
    before, middle, after = (ack % gaps).split(b"\0")
    texts = [id_ + middle + one for id_, one in zip(new_ids(count), correlations, strict=True)]
    connection.put_alike(before, texts, after)
    return count


def _prepare(
    signal: Signal, message: m.Incoming, topic: str | None, kind: str | None
) -> tuple[bytes, bytes, str, bytes]:
    """Return the parts that all messages of a type to a topic have in common.

    That is the name; how the line data begins; the sender; and the acknowledgement, with gaps for
    its id, two counts, whether it was delivered, the time, the correlation and the time again.
    """
    limits = signal.connection.hub.limits
    name = check_hub_topic(topic, limits.any_topic, limits.topic_length)
    signal.connection.hub.policy.check_publishing(name, signal.connection.peer.permission)
    kind = checked_type(kind)
    sender = signal.sender_of(message)
    head = to_line(name, kind, sender, b"null").removesuffix(b"null}")
    to = text_of(message.sender) or signal.address
    fixed = [dress(m.HUB, signal.connection.wrapped), to, _ACKS[signal.dialect == "A"], topic]
    ack = (
        b'{"id":"%%b","from":%b,"to":%b,"type":%b,"payload":{"topic":%b,"subscriberCount":%%d,'
        b'"deliveredCount":%%d,"delivered":%%b,"timestamp":%%d},"correlationId":%%b,'
        b'"timestamp":%%d,"metadata":{},"pattern":"tell","ttl":null,"signature":null}'
    ) % tuple(_encode(one).replace(b"%", b"%%") for one in fixed)
    return name, head, sender, ack


def list_topics(signal: Signal, message: m.Incoming, payload: m.Discover) -> None:
    """List the topics of this port, in steps: the receivers of each may have to be found."""
    limit, offset = signal.page(payload)
    signal.connection.step = _list_topics(signal, message, limit, offset)


def _list_topics(signal: Signal, message: m.Incoming, limit: int, offset: int) -> Iterator[None]:
    hub, rights = signal.connection.hub, signal.connection.peer.permission
    names, total = yield from find_page(hub, offset, limit)
    room, looked, seen = ANSWER, 0, []
    for name in names:
        looked += 1
        if rights is None or rights.may_receive(name):
            seen.append(name)
            room -= len(name) + _FRAME
        if room < 0:
            break
    records = yield from find_records(hub, seen)
    found = [_summary(name, one) for name, one in zip(seen, records, strict=True) if one]
    signal.reply(
        message,
        "hub:topic_list",
        r.TopicList(
            topics=found,
            count=len(found),
            total=total,
            offset=offset,
            limit=limit,
            has_more=offset + looked < total,
            **hub.daemon,
        ),
    )


def topic_info(signal: Signal, message: m.Incoming, payload: m.TopicInfo) -> None:
    """Answer with the record of a topic, in steps."""
    hub = signal.connection.hub
    name = check_hub_topic(payload.topic, hub.limits.any_topic, hub.limits.topic_length)
    signal.connection.step = _tell_topic(signal, message, name)


def _tell_topic(signal: Signal, message: m.Incoming, name: bytes) -> Iterator[None]:
    hub, rights = signal.connection.hub, signal.connection.peer.permission
    record = None
    if rights is None or rights.may_receive(name):
        (record,) = yield from find_records(hub, [name])
    if record is None:
        refused = RefusedError("internal_error", f"Topic {shown(name.decode())} not found")
        signal.refuse(refused, message)
        return
    summary = _summary(name, record)
    summary.daemon = hub.daemon.get("daemon", UNSET)
    signal.reply(message, "hub:topic_info", summary)


def _summary(name: bytes, record: Record) -> r.TopicSummary:
    return r.TopicSummary(
        topic=name.decode(),
        subscriber_count=record.receivers,
        message_count=record.messages,
        created_at=record.created_at,
    )
