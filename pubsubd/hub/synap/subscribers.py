"""Who is subscribed by Synap's commands, connected or not.

Strategy: a subscriber is a peer of the broker like any other. On a connection it is that
connection's peer, and the connection holds its topics, once in the router however many dialects
have asked for them. One that was made by an HTTP request has no connection to push to: it gets a peer
of its own that is nowhere, so that it counts where subscribers are counted and costs nothing where
messages are delivered. A connection that subscribes with its id takes it over, with its topics.

Invariants:

- ``subscriber.connection.subscriber is subscriber`` for each one that has a connection, and
  ``subscribers[subscriber.id] is subscriber`` for each one there is.
- One without a connection is in ``_detached``, in the order of when it was last named, and has a
  topic at least; its topics stand in the table for it. The topics of one with a connection are the
  connection's to hold and release there.
- ``wildcards`` counts the patterns of all subscribers, ``detached_topics`` the topics of those in
  ``_detached``.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.hub.ids import new_id
from pubsubd.hub.synap.requests import invalid, shown
from pubsubd.hub.topics import ForbiddenError, TopicError, TopicTable
from pubsubd.protocol.limits import HubLimits
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.targets import CopyTargets, Targets
from pubsubd.routing.wildcards import Pattern

MAX_TOPICS = 10_000
"""Topics of one subscriber."""

MAX_DETACHED_TOPICS = 1_000
"""Topics of one that has no connection: a connection may take them all over at once."""

MAX_ID = 256
"""Characters of a subscriber's id."""

_AT_ONCE = 200  # topics taken back at once, 1 ms
_FEW = 8  # patterns that the router is told of one by one

Topics = dict[str, bytes | Pattern]
"""Topics as they were given, in order -> the name or the pattern that each of them is."""


class SynapConnection(Protocol):
    """What is asked of a connection.

    Attributes:
        peer: receives what the subscriber of the connection is to get.
        sender: what the daemon knows it by.
        subscriber: None until it has subscribed; written here only.
    """

    peer: Peer
    sender: str
    subscriber: Subscriber | None

    def check_patterns(self, count: int) -> None:
        """Raise :class:`TopicError` if it may not have so many more patterns."""

    def hold(self, name: bytes) -> None:
        """Subscribe ``name`` in the router and in the table of topics."""

    def release(self, name: bytes) -> None:
        """Undo :meth:`hold`."""

    def hold_pattern(self, pattern: Pattern) -> None:
        """Subscribe ``pattern`` in the router."""

    def release_pattern(self, pattern: Pattern) -> None:
        """Undo :meth:`hold_pattern`."""


class Subscriber:
    """Somebody with topics, connected or not.

    Attributes:
        id: the client's, or ``sub-`` and a random UUID.
        topics: what it subscribes.
        peer: the broker's peer that receives.
        connection: that it has; None if it has none.
        touched: when a command last named it, by the clock.
    """

    __slots__ = ("connection", "id", "peer", "topics", "touched")

    def __init__(
        self, id_: str, peer: Peer, connection: SynapConnection | None, touched: float
    ) -> None:
        self.id = id_
        self.topics: Topics = {}
        self.peer = peer
        self.connection = connection
        self.touched = touched


class Subscribers(dict[str, Subscriber]):
    """All subscribers, connected or not, by their ids, and what they hold.

    Args:
        broker: whose router they are subscribed in.
        table: the topics of this port.
        limits: of this port.
        clock: seconds that only go forward.

    Attributes:
        wildcards: patterns that they subscribe.
        other_wildcards: patterns that are subscribed on this port in other dialects, for the
            limit to count them as well; the owner's.
        detached_topics: topics of those without a connection.
    """

    def __init__(
        self, broker: Broker, table: TopicTable, limits: HubLimits, clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self.wildcards = 0
        self.other_wildcards = 0
        self.detached_topics = 0
        self._broker = broker
        self._router = broker.router
        self._table = table
        self.limits = limits
        self._clock = clock
        self._detached: OrderedDict[str, Subscriber] = OrderedDict()
        self._nowhere: WeakKeyDictionary[Targets, int] = WeakKeyDictionary()

    def count_nowhere(self, targets: Targets | CopyTargets) -> int:
        """Return how many of those who get a message are without a connection."""
        if not self._detached:
            return 0
        if isinstance(targets, CopyTargets):
            return self.count_nowhere(targets.direct) + self.count_nowhere(targets.copies)
        count = self._nowhere.get(targets)
        if count is None:  # it never changes: one that finds a connection becomes another peer
            count = sum(peer.enqueue is _discard for peer in targets.members)
            self._nowhere[targets] = count
        return count

    # Whose topics

    def find(self, id_: str, who: str | None) -> Subscriber | None:
        """Return the subscriber with that id, if there is one.

        Args:
            id_: of the subscriber.
            who: names it; None for one who has not logged in.

        Raises:
            ForbiddenError: it is somebody else's.
        """
        subscriber = self.get(id_)
        if subscriber is not None and subscriber.peer.identity != who:
            raise ForbiddenError(f"subscriber {shown(id_)} is another user's")
        return subscriber

    def choose(
        self, id_: str | None, connection: SynapConnection | None, who: str | None
    ) -> Subscriber | None:
        """Return who is meant by one who subscribes; None if it has to be made, and can be.

        Raises:
            SynapError: it cannot have that id, or there are too many subscribers.
            ForbiddenError: it is somebody else's.
        """
        if id_ is not None and not 0 < len(id_) <= MAX_ID:
            raise invalid(f"'subscriber_id' must have 1 to {MAX_ID} characters")
        own = connection.subscriber if connection is not None else None
        if own is not None and id_ is not None and id_ != own.id:
            raise invalid(f"This connection is subscriber {shown(own.id)} already")
        subscriber = own or (self.find(id_, who) if id_ is not None else None)
        if subscriber is None:
            limits = self.limits
            if len(self) >= limits.max_subscribers:
                raise invalid(f"over {limits.max_subscribers} subscribers")
            if connection is None and len(self._detached) >= limits.max_detached:
                raise invalid(f"over {limits.max_detached} subscribers without a connection")
        elif connection is not None and subscriber.connection not in (None, connection):
            raise invalid(f"Subscriber {shown(subscriber.id)} is connected elsewhere")
        return subscriber

    def make(
        self, id_: str | None, connection: SynapConnection | None, who: str | None
    ) -> Subscriber:
        """Return a new subscriber of ``who``, which has to be given a topic."""
        id_ = f"sub-{new_id()}" if id_ is None else id_
        if connection is not None:
            peer = connection.peer
        else:
            peer = Peer(0, f"synap/{id_}", _discard)
            peer.identity, peer.enqueue = who, _discard
        subscriber = self[id_] = Subscriber(id_, peer, connection, self._clock())
        if connection is not None:
            connection.subscriber = subscriber
        else:
            self._detached[id_] = subscriber
        return subscriber

    def attach(self, subscriber: Subscriber, connection: SynapConnection) -> None:
        """Let a connection have a subscriber that has had none, with its topics."""
        nowhere, subscriber.peer = subscriber.peer, connection.peer
        subscriber.connection, connection.subscriber = connection, subscriber
        del self._detached[subscriber.id]
        self.detached_topics -= len(subscriber.topics)
        with self._changing(subscriber.topics.values()):
            for topic in subscriber.topics.values():
                if isinstance(topic, bytes):
                    connection.hold(topic)
                    self._table.release(topic)
                else:
                    connection.hold_pattern(topic)
            for _ in self._router.forget(nowhere):
                pass

    def touch(self, subscriber: Subscriber) -> None:
        """Take note that a command has named it."""
        subscriber.touched = self._clock()
        if subscriber.connection is None:
            self._detached.move_to_end(subscriber.id)

    def drop(self, connection: SynapConnection) -> None:
        """Forget the subscriber of a connection that ends.

        What it holds in the router and in the table is the connection's to let go of.
        """
        subscriber, connection.subscriber = connection.subscriber, None
        if subscriber is not None:
            subscriber.connection = None
            del self[subscriber.id]
            self.wildcards -= _count_patterns(subscriber.topics.values())

    def expire(self, now: float) -> int:
        """Forget topics of those without a connection that nobody has named for long.

        Returns:
            How many topics, 200 at most; it costs nothing when there are none.
        """
        count = 0
        while self._detached and count < _AT_ONCE:
            subscriber = next(iter(self._detached.values()))
            if now - subscriber.touched <= self.limits.detached_idle:
                break
            texts = list(islice(subscriber.topics, _AT_ONCE - count))
            self._remove(subscriber, texts)
            count += len(texts)
        return count

    # What they hold

    def add(self, subscriber: Subscriber, topics: Topics) -> Steps[None]:
        """Give a subscriber topics, after :meth:`check_limits`, in steps."""
        texts = list(topics)
        for at in range(0, len(texts), _AT_ONCE):
            if at and self._broker.turn.over():
                yield
                if self.get(subscriber.id) is not subscriber:
                    return  # it has left meanwhile
            some = {text: topics[text] for text in texts[at : at + _AT_ONCE]}
            with self._changing(some.values()):
                for text, topic in some.items():
                    if text not in subscriber.topics:
                        self._hold(subscriber, topic)
                        subscriber.topics[text] = topic

    def remove(self, subscriber: Subscriber, texts: Sequence[str]) -> Steps[int]:
        """Take topics from a subscriber, in steps, and return how many there were.

        One that has no connection and none left is forgotten.
        """
        count = 0
        for at in range(0, len(texts), _AT_ONCE):
            if at and self._broker.turn.over():
                yield
            if self.get(subscriber.id) is not subscriber:
                break  # it has left meanwhile
            count += self._remove(subscriber, texts[at : at + _AT_ONCE])
        return count

    def _remove(self, subscriber: Subscriber, texts: Sequence[str]) -> int:
        topics = {text: subscriber.topics[text] for text in texts if text in subscriber.topics}
        with self._changing(topics.values()):
            for text, topic in topics.items():
                self._release(subscriber, topic)
                del subscriber.topics[text]
        if subscriber.connection is None and not subscriber.topics:
            del self[subscriber.id], self._detached[subscriber.id]
        return len(topics)

    def _changing(self, topics: Collection[bytes | Pattern]) -> AbstractContextManager[None]:
        """Return what lets the router forget its answers once, where it would take long."""
        many = _count_patterns(topics) > _FEW
        return self._router.many() if many else contextlib.nullcontext()

    def check_limits(
        self, subscriber: Subscriber | None, connection: SynapConnection | None, topics: Topics
    ) -> None:
        """Raise :class:`SynapError` if one may not have these topics as well.

        Args:
            subscriber: who it is; None for one that is to be made.
            connection: that it has, or is to have.
            topics: that it has not.
        """
        old = subscriber.topics if subscriber is not None else {}
        of_connection = connection or (subscriber.connection if subscriber is not None else None)
        most = MAX_DETACHED_TOPICS if of_connection is None else MAX_TOPICS
        if len(old) + len(topics) > most:
            without = " without a connection" if of_connection is None else ""
            raise invalid(f"over {most} topics of one subscriber{without}")
        patterns = _count_patterns(topics.values())
        try:
            self.check_names([topic for topic in topics.values() if isinstance(topic, bytes)])
            self.check_patterns(patterns)
            if of_connection is not None:
                if subscriber is not None and subscriber.connection is None:
                    patterns += _count_patterns(old.values())
                of_connection.check_patterns(patterns)
                return
        except TopicError as error:
            raise invalid(error.text) from None
        most = self.limits.max_detached_topics
        if self.detached_topics + len(topics) > most:
            raise invalid(f"over {most} topics of subscribers without a connection")
        most = self.limits.max_connection_wildcards
        if patterns and _count_patterns(old.values()) + patterns > most:
            raise invalid(f"over {most} wildcard subscriptions of one subscriber")

    def check_names(self, names: Collection[bytes]) -> None:
        """Raise :class:`TopicError` if the limits let nobody else subscribe all of these."""
        self._check_total(len(names))
        most = self.limits.max_topic_subscribers
        new = 0
        for name in names:
            topic = self._table.get(name)
            if topic is None or not topic.subscribers:
                new += 1
            elif topic.subscribers >= most:
                raise TopicError(f"over {most} subscribers of topic {shown(name)}")
        if new > max(self._table.room, 0):
            raise TopicError(f"over {self.limits.max_topics} topics")

    def check_patterns(self, count: int) -> None:
        """Raise :class:`TopicError` if the limits let nobody subscribe so many more patterns."""
        self._check_total(count)
        most = self.limits.max_wildcards
        if count and self.wildcards + self.other_wildcards + count > most:
            raise TopicError(f"over {most} wildcard subscriptions")

    def _check_total(self, count: int) -> None:
        most = self._broker.terms.limits.max_subscriptions_total
        if self._router.subscriptions + count > most:
            raise TopicError("no more subscriptions of all connections together")

    def _hold(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        connection = subscriber.connection
        if connection is None:
            self.detached_topics += 1
        if isinstance(topic, bytes):
            if connection is not None:
                connection.hold(topic)
            else:
                self._table.hold(topic, self._clock())
                self._router.subscribe_name(subscriber.peer, topic)
            return
        self.wildcards += 1
        if connection is not None:
            connection.hold_pattern(topic)
        else:
            self._router.subscribe_pattern(subscriber.peer, topic)

    def _release(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        connection = subscriber.connection
        if connection is None:
            self.detached_topics -= 1
        if isinstance(topic, bytes):
            if connection is not None:
                connection.release(topic)
            else:
                self._table.release(topic)
                self._router.unsubscribe_name(subscriber.peer, topic)
            return
        self.wildcards -= 1
        if connection is not None:
            connection.release_pattern(topic)
        else:
            self._router.unsubscribe_pattern(subscriber.peer, topic)


def _count_patterns(topics: Iterable[bytes | Pattern]) -> int:
    return sum(1 for topic in topics if isinstance(topic, Pattern))


def _discard(_data: bytes | Pieces) -> None:
    """Take what is put or sent to a peer that is nowhere."""
