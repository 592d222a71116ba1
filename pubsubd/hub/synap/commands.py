"""Commands of Synap, without I/O.

A command is checked completely before any of it is carried out, so a refused command has changed
nothing. A publication is queued in the broker, whose ``flush`` sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import UNSET, Struct
from msgspec.json import encode

from pubsubd.access.rules import Permission
from pubsubd.broker.turn import Steps
from pubsubd.hub.codec import known, to_line
from pubsubd.hub.core import HubCore
from pubsubd.hub.ids import new_id, new_ids
from pubsubd.hub.listing import find_page, find_records
from pubsubd.hub.sums import Statistics, count_topics, find_statistics
from pubsubd.hub.synap.elsewhere import LOOK, SUBSCRIBE, TAKE, UNSUBSCRIBE, Elsewhere, Wish
from pubsubd.hub.synap.requests import (
    Info,
    List,
    Nothing,
    Publish,
    Subscribe,
    SynapError,
    Unsubscribe,
    invalid,
    read_payload,
    required,
)
from pubsubd.hub.synap.subscriber import Subscriber, SynapConnection, Topics
from pubsubd.hub.synap.subscribers import Subscribers
from pubsubd.hub.templates import Sample, Template, Values
from pubsubd.hub.topic_table import TOP
from pubsubd.hub.topics import (
    ForbiddenError,
    TopicError,
    check_synap_topic,
    synap_pattern,
)
from pubsubd.protocol import wire
from pubsubd.protocol.limits import ANSWER
from pubsubd.routing.wildcards import Pattern

TYPE = "pubsub:message"
"""The type of a message published by Synap, which has no types."""

HTTP = "http"
"""The sender of a message that was published over HTTP."""

MAX_TOPICS_AT_ONCE = 1_000
"""Topics in one command."""

_READ = 64  # topics read at once

Answer = dict[str, Any] | Steps[dict[str, Any]]
"""The payload of an answer, or the steps in which it comes."""


class Synap:
    """The commands, and counts of them.

    Args:
        hub: the port.

    Attributes:
        subscribers: id -> subscriber.
        elsewhere: those of other workers.
        published: messages, by pubsub.publish.
        deliveries: connections that these went to, all together.
    """

    def __init__(self, hub: HubCore) -> None:
        self.subscribers = Subscribers(hub)
        self.elsewhere = Elsewhere(hub, self.subscribers, self._carry_out, self._receive)
        self.published = 0
        self.deliveries = 0
        self._hub = hub
        self._waited = 0.0  # seconds, of all deliveries that were timed
        self._timed = 0

    def run(
        self,
        command: str,
        payload: object,
        connection: SynapConnection | None,
        rights: Permission | None = None,
        who: str | None = None,
    ) -> Answer:
        """Carry out a command and return the payload of its answer, or the steps in which it comes.

        Args:
            command: for example ``pubsub.publish``.
            payload: its payload, as :func:`pubsubd.hub.strict.decode` returns it.
            connection: by which it came; None if it was an HTTP request.
            rights: of the client; None for all.
            who: the user; None for a client that has not logged in.

        Raises:
            SynapError: nothing of it is carried out.
            Unfinished: nothing of it is, as its receivers take more than a turn to find.
        """
        entry = COMMANDS.get(command)
        if entry is None:
            raise SynapError(f"Unknown command: {wire.escape(command, 64)}")
        carry_out, kind = entry
        try:
            answer = carry_out(self, read_payload(payload, kind), connection, rights, who)
            if isinstance(answer, dict):
                return answer
            next(answer)
        except StopIteration as done:  # it takes one step only
            return cast("dict[str, Any]", done.value)
        except TopicError as error:
            raise _in_words(error) from None
        return _go_on(answer)

    @property
    def wildcards(self) -> int:
        """Patterns that the subscribers have."""
        return self.subscribers.wildcards

    def delivered(self, count: int, seconds: float) -> None:
        """Count ``count`` deliveries that took ``seconds`` each, from read to socket."""
        self._timed += count
        self._waited += count * seconds

    def drop(self, connection: SynapConnection) -> None:
        """Forget the subscriber of a connection that ends; see :meth:`Subscribers.drop`."""
        self.subscribers.drop(connection)

    def expire(self, now: float) -> int:
        """Forget subscribers that have expired; see :meth:`Subscribers.expire`."""
        return self.subscribers.expire(now)

    def remember(
        self,
        payload: object,
        id_: object,
        sample: Sample,
        connection: SynapConnection,
        answer: Callable[[str, Callable[[], Answer]], None],
    ) -> Template | None:
        """Return the template of a pubsub.publish.

        Args:
            payload: of the command.
            id_: of the request.
            sample: the message.
            connection: by which it came.
            answer: answers a request of that id, by what it is given.
        """
        try:
            read = read_payload(payload, Publish)
            topic = required(read.topic, "topic")
            name = check_synap_topic(topic)
        except (SynapError, TopicError):
            return None
        fields = ("payload", "data", "message")
        key = next((key for key in fields if getattr(read, key) is not UNSET), None)
        if key is None or not isinstance(id_, str):
            return None
        metadata = None if read.metadata is None else encode(read.metadata)
        peer = connection.peer

        def publish(data: bytes, request: bytes, _time: int) -> None:
            answer(
                request.decode() or id_,
                lambda: self.publish(name, topic, data, metadata, connection, peer.permission),
            )

        def publish_all(found: list[Values]) -> int:
            return self._publish_all(name, topic, encode(id_), metadata, connection, found)

        data = key, encode(getattr(read, key))
        return sample.template(data, ("request_id", encode(id_)), ("", None), publish, publish_all)

    # Commands

    def _publish(
        self,
        payload: Publish,
        connection: SynapConnection | None,
        rights: Permission | None,
        _who: str | None,
    ) -> dict[str, Any]:
        topic = required(payload.topic, "topic")
        value = payload.payload
        if value is UNSET:
            value = payload.data if payload.data is not UNSET else payload.message
        if value is UNSET:
            raise invalid("Missing 'payload' or 'data' field")
        name = check_synap_topic(topic)
        metadata = None if payload.metadata is None else encode(payload.metadata)
        return self.publish(name, topic, encode(value), metadata, connection, rights)

    def publish(
        self,
        name: bytes,
        topic: str,
        payload: bytes,
        metadata: bytes | None,
        connection: SynapConnection | None,
        rights: Permission | None,
    ) -> dict[str, Any]:
        """Publish, and return the payload of the answer.

        Args:
            name: the topic, which is legal.
            topic: the same, as it came.
            payload: of the message, as a JSON text.
            metadata: of the message, the same.
            connection: by which it came; None if it was an HTTP request.
            rights: of the client; None for all.

        Raises:
            SynapError: it is not published.
        """
        # Hot path: scripts/bench hub-fan-100-synap.
        hub, broker = self._hub, self._hub.broker
        try:
            hub.policy.check_publishing(name, rights)
        except TopicError as error:
            raise _in_words(error) from None
        peer, sender = (None, HTTP) if connection is None else (connection.peer, connection.sender)
        id_ = "msg_" + new_id().replace("-", "")
        message = name, TYPE, sender, payload, id_, metadata
        data = to_line(*message)
        most = broker.listener.limits.max_payload
        if len(data) > most:
            raise invalid(f"message too large: {len(data)} bytes, over {most}")
        count = broker.delivery.enqueue(peer, name, data, note=known(*message))
        hub.topics.note(name, hub.clock())
        self._count(1, count)
        return {"message_id": id_, "topic": topic, "subscribers_matched": count}

    def _publish_all(
        self,
        name: bytes,
        topic: str,
        request: bytes,
        metadata: bytes | None,
        connection: SynapConnection,
        found: list[Values],
    ) -> int:
        """Publish messages that differ in their data and the id of their request, and answer them.

        Returns:
            How many; 0 if each has to be published by itself.
        """
        # Hot path: scripts/bench hub-fan-100-synap.
        hub, broker, peer = self._hub, self._hub.broker, connection.peer
        sender = connection.sender
        payloads = [payload for payload, _, _ in found]
        ids = [b"msg_" + id_.replace(b"-", b"") for id_ in new_ids(len(found))]
        notes = [
            known(name, TYPE, sender, payload, id_.decode(), metadata)
            for payload, id_ in zip(payloads, ids, strict=True)
        ]
        if (
            None in notes  # it may be text or bytes
            or not connection.may("publish")
            or not broker.router.remembers(name)
            or not hub.policy.may_publish(name, peer.permission)
        ):
            return 0
        head = to_line(name, TYPE, sender, b"").removesuffix(b"}")
        middle = b',"id":"'
        end = b'"}' if metadata is None else b'","metadata":%b}' % metadata
        texts = [
            head + payload + middle + id_ + end for payload, id_ in zip(payloads, ids, strict=True)
        ]
        if max(map(len, texts)) > broker.listener.limits.max_payload:
            return 0
        count = broker.delivery.enqueue_all(peer, name, texts, notes=notes)
        hub.topics.note(name, hub.clock(), len(texts))
        self._count(len(texts), count)
        requests = [b'"%b"' % id_ if id_ else request for _, id_, _ in found]
        middle = b',"payload":{"message_id":"'
        answers = [one + middle + id_ for one, id_ in zip(requests, ids, strict=True)]
        after = b'","topic":%b,"subscribers_matched":%d},"error":null}' % (encode(topic), count)
        connection.put_alike(b'{"success":true,"request_id":', answers, after)
        return len(found)

    def _count(self, messages: int, receivers: int) -> None:
        """Count messages that were queued last, and to how many each goes."""
        if self.subscribers.detached_topics:
            targets = self._hub.broker.delivery.enqueued_for
            receivers -= self.subscribers.count_nowhere(targets)
        self.published += messages
        self.deliveries += messages * receivers

    def _subscribe(
        self,
        payload: Subscribe,
        connection: SynapConnection | None,
        rights: Permission | None,
        who: str | None,
    ) -> Steps[dict[str, Any]]:
        texts = required(payload.topics, "topics")
        if not texts:
            raise invalid("At least one topic required")
        _check_number(texts)
        topics = yield from self._read_topics(texts, rights)
        id_, kind = payload.subscriber_id, SUBSCRIBE if connection is None else LOOK
        if connection is None or self.subscribers.of(connection) is None:
            found = yield from self.elsewhere.ask(kind, id_, who, texts)
            if found is not None:
                return found
        return (yield from self._subscribe_here(id_, texts, topics, connection, who))

    def _read_topics(self, texts: list[str], rights: Permission | None) -> Steps[Topics]:
        """Return the topics of a subscription, in steps."""
        over, topics = self._hub.broker.delivery.turn.over, Topics()
        for text in texts:
            topics[text] = topic = _read_topic(text)
            if rights is not None and isinstance(topic, bytes) and not rights.may_receive(topic):
                raise self._hub.policy.forbid(topic, rights, "receive")
            if len(topics) % _READ == 0 and over():
                yield
        return topics

    def _subscribe_here(
        self,
        id_: str | None,
        texts: list[str],
        topics: Topics,
        connection: SynapConnection | None,
        who: str | None,
    ) -> Steps[dict[str, Any]]:
        subscribers = self.subscribers
        subscriber = subscribers.choose(id_, connection, who)
        if subscriber is not None:
            topics = {text: topics[text] for text in topics if text not in subscriber.topics}
        subscribers.check_limits(subscriber, connection, topics)
        if subscriber is None:
            subscriber = subscribers.make(id_, connection, who)
        elif connection is not None and subscriber.connection is None:
            subscribers.attach(subscriber, connection)
        subscribers.touch(subscriber)
        yield from subscribers.add(subscriber, topics)
        return {
            "subscriber_id": subscriber.id,
            "topics": texts,
            "subscription_count": len(subscriber.topics),
        }

    def _unsubscribe(
        self,
        payload: Unsubscribe,
        connection: SynapConnection | None,
        _rights: Permission | None,
        who: str | None,
    ) -> Steps[dict[str, Any]]:
        id_, texts = payload.subscriber_id, payload.topics
        if texts is not None:
            _check_number(texts)
        if id_ is not None:
            found = yield from self.elsewhere.ask(UNSUBSCRIBE, id_, who, texts)
            if found is not None:
                return found
            subscriber = self.subscribers.find(id_, who)
        elif connection is not None:
            subscriber = self.subscribers.of(connection)
        else:
            raise invalid("Missing 'subscriber_id' field")
        return (yield from self._unsubscribe_here(subscriber, texts))

    def _unsubscribe_here(
        self, subscriber: Subscriber | None, texts: Sequence[str] | None
    ) -> Steps[dict[str, Any]]:
        if subscriber is None:
            return {"unsubscribed": 0}
        if texts is None:
            texts = list(subscriber.topics)
        else:
            texts = [text for text in dict.fromkeys(texts) if text in subscriber.topics]
        self.subscribers.touch(subscriber)
        return {"unsubscribed": (yield from self.subscribers.remove(subscriber, texts))}

    # For other workers

    def _carry_out(self, wish: Wish) -> Steps[dict[str, Any]]:
        """Carry out what another worker was told, which has checked it."""
        try:
            if wish.kind in (LOOK, TAKE):
                found = self.subscribers.find_detached(wish.id, wish.who)
                texts = self.subscribers.hand_over(found) if wish.kind == TAKE else []
                return {"topics": texts}
            if wish.kind == UNSUBSCRIBE:
                subscriber = self.subscribers.find(wish.id, wish.who)
                return (yield from self._unsubscribe_here(subscriber, wish.topics))
            texts = list(wish.topics or ())
            topics = yield from self._read_topics(texts, None)
            return (yield from self._subscribe_here(wish.id, texts, topics, None, wish.who))
        except TopicError as error:
            raise _in_words(error) from None

    def _receive(self, id_: str, who: str | None, texts: list[str]) -> Steps[None]:
        """Take over a subscriber of another worker, which has no connection."""
        topics = yield from self._read_topics(texts, None)
        subscriber = self.subscribers.find(id_, who) or self.subscribers.make(id_, None, who)
        yield from self.subscribers.add(subscriber, topics)

    def _list(
        self,
        payload: List,
        _session: SynapConnection | None,
        rights: Permission | None,
        _who: str | None,
    ) -> Steps[dict[str, Any]]:
        most = self._hub.limits.page
        limit = most if payload.limit is None else min(payload.limit, most)
        names, total = yield from find_page(self._hub, payload.offset, limit)
        found: list[str] = []
        room = ANSWER
        for name in names:
            if rights is None or rights.may_receive(name):
                found.append(name.decode())
            room -= len(name) + 8
            if room < 0:
                break
        return {"topics": found, "count": total, **self._hub.daemon}

    def _info(
        self,
        payload: Info,
        _session: SynapConnection | None,
        rights: Permission | None,
        _who: str | None,
    ) -> Steps[dict[str, Any]]:
        text = required(payload.topic, "topic")
        name = check_synap_topic(text, publishing=False)
        record = None
        if rights is None or rights.may_receive(name):
            (record,) = yield from find_records(self._hub, [name])
        if record is None:
            raise SynapError(f"Invalid request: Topic '{wire.escape(text, 256)}' not found", 404)
        return {
            "topic": text,
            "subscriber_count": record.receivers,
            "message_count": record.messages,
            "created_at": record.created_at // 1000,
            **self._hub.daemon,
        }

    def count(self) -> Statistics:
        """Return what was counted at this worker."""
        counts = {
            "subscribers": len(self.subscribers),
            "wildcards": self.wildcards,
            "published": self.published,
            "deliveries": self.deliveries,
            "slow": self._hub.slow_consumers,
            "failures": self._hub.undelivered,
            "waited": self._waited,
            "timed": self._timed,
        }
        return Statistics(counts, [name.decode() for name, _ in self._hub.topics.top()])

    def _stats(
        self,
        _payload: Nothing,
        _session: SynapConnection | None,
        rights: Permission | None,
        _who: str | None,
    ) -> Steps[dict[str, Any]]:
        topics = yield from count_topics(self._hub)
        found = yield from find_statistics(self._hub, self.count())
        names = [one.encode() for one in dict.fromkeys(found.top)]
        if rights is not None:
            names = [name for name in names if rights.may_receive(name)]
        records = yield from find_records(self._hub, names)
        known = [(name, one) for name, one in zip(names, records, strict=True) if one]
        known.sort(key=lambda entry: entry[1].messages, reverse=True)
        counts = found.counts
        latency = counts["waited"] / counts["timed"] if counts["timed"] else 0.0
        return {
            "total_topics": topics,
            "total_subscribers": counts["subscribers"],
            "total_wildcard_subscriptions": counts["wildcards"],
            "messages_published": counts["published"],
            "messages_delivered": counts["deliveries"],
            "slow_consumers_dropped": counts["slow"],
            "delivery_failures": counts["failures"],
            "avg_delivery_latency_ms": round(latency * 1_000, 6),
            "top_topics": [
                {"topic": name.decode(), "subscribers": one.receivers, "messages": one.messages}
                for name, one in known[:TOP]
            ],
            **self._hub.daemon,
        }


COMMANDS: dict[str, tuple[Callable[..., Answer], type[Struct]]] = {
    "pubsub.publish": (Synap._publish, Publish),
    "pubsub.subscribe": (Synap._subscribe, Subscribe),
    "pubsub.unsubscribe": (Synap._unsubscribe, Unsubscribe),
    "pubsub.topics": (Synap._list, List),
    "pubsub.info": (Synap._info, Info),
    "pubsub.stats": (Synap._stats, Nothing),
}


def _go_on(making: Steps[dict[str, Any]]) -> Steps[dict[str, Any]]:
    yield
    try:
        return (yield from making)
    except TopicError as error:
        raise _in_words(error) from None


def _in_words(error: TopicError) -> SynapError:
    """Return the error about a topic in Synap's words."""
    if isinstance(error, ForbiddenError):
        return SynapError(f"Unauthorized: {error.text}", 403)
    return SynapError(f"Invalid value: {error.text}")


def connected(subscriber: Subscriber) -> dict[str, Any]:
    """Return the first frame of ``/pubsub/ws``."""
    return {
        "type": "connected",
        "subscriber_id": subscriber.id,
        "topics": list(subscriber.topics),
        "subscription_count": len(subscriber.topics),
    }


def _check_number(texts: list[str]) -> None:
    if len(texts) > MAX_TOPICS_AT_ONCE:
        raise invalid(f"over {MAX_TOPICS_AT_ONCE} topics in one command")


def _read_topic(text: str) -> bytes | Pattern:
    return synap_pattern(text) or check_synap_topic(text, publishing=False)
