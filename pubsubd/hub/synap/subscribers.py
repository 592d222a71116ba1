"""Who is subscribed by Synap's commands, connected or not.

Strategy: a subscriber is a peer of the broker like any other. On a connection it is that
connection's peer, and the session holds its topics, once in the router however many dialects have
asked for them. One that was made by an HTTP request has no connection to push to: it gets a peer
of its own that is nowhere, so that it counts where subscribers are counted and costs nothing where
messages are delivered. A connection that subscribes with its id takes it over, with its topics.

Invariants:

- ``subscriber.session.subscriber is subscriber`` for each one that has a session, and
  ``subscribers[subscriber.id] is subscriber`` for each one there is.
- One without a session is in ``_detached``, in the order of when it was last named, and has a
  topic at least; its topics stand in the table for it. The topics of one with a session are the
  session's to hold and release there.
- ``wildcards`` counts the patterns of all subscribers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from pubsubd.broker import Broker
from pubsubd.hub.ids import new_id
from pubsubd.hub.synap.requests import invalid, shown
from pubsubd.hub.topics import ForbiddenError, TopicError, TopicTable
from pubsubd.limits import HubLimits
from pubsubd.outbox import Pieces
from pubsubd.peer import Peer
from pubsubd.wildcards import Pattern

MAX_TOPICS = 10_000
"""Topics of one subscriber, so that letting go of them all is a matter of milliseconds."""

MAX_ID = 256
"""Characters of a subscriber's id."""

_EXPIRE = 10  # subscribers forgotten in one call, with up to MAX_TOPICS each

Topics = dict[str, bytes | Pattern]
"""Topics as they were given, in order -> the name or the pattern that each of them is."""


class SynapSession(Protocol):
    """What is asked of a connection.

    Attributes:
        peer: receives what the subscriber of the connection is to get.
        sender: what the daemon knows it by.
        subscriber: None until it has subscribed; written here only.
    """

    peer: Peer
    sender: str
    subscriber: Subscriber | None

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
        session: the connection; None if it has none.
        touched: when a command last named it, by the clock.
    """

    __slots__ = ("id", "peer", "session", "topics", "touched")

    def __init__(self, id_: str, peer: Peer, session: SynapSession | None, touched: float) -> None:
        self.id = id_
        self.topics: Topics = {}
        self.peer = peer
        self.session = session
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
        missed: how often something was put to one without a connection.
    """

    def __init__(
        self, broker: Broker, table: TopicTable, limits: HubLimits, clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self.wildcards = 0
        self.other_wildcards = 0
        self.missed = 0
        self._router = broker.router
        self._table = table
        self.limits = limits
        self._clock = clock
        self._detached: OrderedDict[str, Subscriber] = OrderedDict()

    @property
    def detached(self) -> bool:
        """Whether there are any without a connection."""
        return bool(self._detached)

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
        self, id_: str | None, session: SynapSession | None, who: str | None
    ) -> Subscriber | None:
        """Return who is meant by one who subscribes; None if it has to be made, and can be.

        Raises:
            SynapError: it cannot have that id, or there are too many subscribers.
            ForbiddenError: it is somebody else's.
        """
        if id_ is not None and not 0 < len(id_) <= MAX_ID:
            raise invalid(f"'subscriber_id' must have 1 to {MAX_ID} characters")
        own = session.subscriber if session is not None else None
        if own is not None and id_ is not None and id_ != own.id:
            raise invalid(f"This connection is subscriber {shown(own.id)} already")
        subscriber = own or (self.find(id_, who) if id_ is not None else None)
        if subscriber is None:
            if len(self) >= self.limits.max_subscribers:
                raise invalid(f"over {self.limits.max_subscribers} subscribers")
        elif session is not None and subscriber.session not in (None, session):
            raise invalid(f"Subscriber {shown(subscriber.id)} is connected elsewhere")
        return subscriber

    def make(self, id_: str | None, session: SynapSession | None, who: str | None) -> Subscriber:
        """Return a new subscriber of ``who``, which has to be given a topic."""
        id_ = f"sub-{new_id()}" if id_ is None else id_
        if session is not None:
            peer = session.peer
        else:
            peer = Peer(0, f"synap/{id_}", _discard)
            peer.identity, peer.put = who, self._miss
        subscriber = self[id_] = Subscriber(id_, peer, session, self._clock())
        if session is not None:
            session.subscriber = subscriber
        else:
            self._detached[id_] = subscriber
        return subscriber

    def attach(self, subscriber: Subscriber, session: SynapSession) -> None:
        """Let a connection have a subscriber that has had none, with its topics."""
        nowhere, subscriber.peer = subscriber.peer, session.peer
        subscriber.session, session.subscriber = session, subscriber
        del self._detached[subscriber.id]
        for topic in subscriber.topics.values():
            if isinstance(topic, bytes):
                session.hold(topic)
                self._table.release(topic)
            else:
                session.hold_pattern(topic)
        for _ in self._router.forget(nowhere):
            pass

    def touch(self, subscriber: Subscriber) -> None:
        """Take note that a command has named it."""
        subscriber.touched = self._clock()
        if subscriber.session is None:
            self._detached.move_to_end(subscriber.id)

    def drop(self, session: SynapSession) -> None:
        """Forget the subscriber of a connection that ends.

        What it holds in the router and in the table is the session's to let go of.
        """
        subscriber, session.subscriber = session.subscriber, None
        if subscriber is not None:
            subscriber.session = None
            del self[subscriber.id]
            self.wildcards -= _count_patterns(subscriber.topics.values())

    def expire(self, now: float) -> int:
        """Forget those without a connection that nobody has named for as long as an idle topic.

        Returns:
            How many, 10 at most; it costs nothing when there are none.
        """
        count = 0
        while self._detached and count < _EXPIRE:
            subscriber = next(iter(self._detached.values()))
            if now - subscriber.touched <= self.limits.topic_idle:
                break
            self.remove(subscriber, list(subscriber.topics))
            count += 1
        return count

    # What they hold

    def add(self, subscriber: Subscriber, topics: Topics) -> None:
        """Give a subscriber topics that it does not have, after :meth:`check_limits`."""
        for text, topic in topics.items():
            self._hold(subscriber, topic)
            subscriber.topics[text] = topic

    def remove(self, subscriber: Subscriber, texts: Iterable[str]) -> None:
        """Take topics from a subscriber; one that has no connection and none left is forgotten."""
        for text in texts:
            self._release(subscriber, subscriber.topics.pop(text))
        if subscriber.session is None and not subscriber.topics:
            del self[subscriber.id], self._detached[subscriber.id]

    def check_limits(self, old: int, topics: Topics) -> None:
        """Raise :class:`SynapError` if one who has ``old`` topics may not have these as well."""
        if old + len(topics) > MAX_TOPICS:
            raise invalid(f"over {MAX_TOPICS} topics of one subscriber")
        try:
            self.check_names([topic for topic in topics.values() if isinstance(topic, bytes)])
            self.check_patterns(_count_patterns(topics.values()))
        except TopicError as error:
            raise invalid(error.text) from None

    def check_names(self, names: Collection[bytes]) -> None:
        """Raise :class:`TopicError` if the limits let nobody else subscribe all of these."""
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
        most = self.limits.max_wildcards
        if count and self.wildcards + self.other_wildcards + count > most:
            raise TopicError(f"over {most} wildcard subscriptions")

    def _hold(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        session = subscriber.session
        if isinstance(topic, bytes):
            if session is not None:
                session.hold(topic)
            else:
                self._table.hold(topic, self._clock())
                self._router.subscribe_name(subscriber.peer, topic)
            return
        self.wildcards += 1
        if session is not None:
            session.hold_pattern(topic)
        else:
            self._router.subscribe_pattern(subscriber.peer, topic)

    def _release(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        session = subscriber.session
        if isinstance(topic, bytes):
            if session is not None:
                session.release(topic)
            else:
                self._table.release(topic)
                self._router.unsubscribe_name(subscriber.peer, topic)
            return
        self.wildcards -= 1
        if session is not None:
            session.release_pattern(topic)
        else:
            self._router.unsubscribe_pattern(subscriber.peer, topic)

    def _miss(self, _chunk: bytes) -> None:
        """Take what is put to a peer that is nowhere."""
        self.missed += 1


def _count_patterns(topics: Iterable[bytes | Pattern]) -> int:
    return sum(1 for topic in topics if isinstance(topic, Pattern))


def _discard(_data: bytes | Pieces) -> None:
    """Take what is sent to a peer that is nowhere: large frames, which are not put."""
