"""The subscribers of Synap's commands, connected or not.

Strategy: a subscriber is a peer of the broker like any other. On a connection it is that
connection's peer, and the connection holds its topics, once in the router however many dialects
have asked for them. A subscriber that was made by an HTTP request has no connection to push to: it
gets a peer of its own that is nowhere, so that it counts where subscribers are counted and costs
nothing where messages are delivered. A connection that subscribes with its id takes it over, with
its topics.

Invariants:

- ``subscribers.of(subscriber.connection) is subscriber`` for each one that has a connection, and
  ``subscribers[subscriber.id] is subscriber`` for each one there is.
- A subscriber without a connection is in ``_detached``, in the order of when it was last named, and
  has a topic at least; its topics stand in the table for it. The topics of a subscriber with a
  connection are that connection's to hold and release there.
- ``wildcards`` counts the patterns of all subscribers, and ``policy.wildcards`` includes them;
  ``detached_topics`` counts the topics of those in ``_detached``.
- A fault while the topics of one without a connection change ends it, and nothing of it stays.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from weakref import WeakKeyDictionary

from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.hub.core import HubCore
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import Form
from pubsubd.hub.synap.requests import SynapError, invalid
from pubsubd.hub.synap.subscriber import Subscriber, SynapConnection, Topics, count_patterns
from pubsubd.hub.topics import ForbiddenError, TopicError, shown
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
_FEW = 8  # patterns that are given to the router one by one


class Subscribers(dict[str, Subscriber]):
    """All subscribers, connected or not, by their ids.

    Args:
        hub: the port.

    Attributes:
        wildcards: patterns that they subscribe.
        detached_topics: topics of those without a connection.
    """

    def __init__(self, hub: HubCore) -> None:
        super().__init__()
        self.wildcards = 0
        self.detached_topics = 0
        self._hub = hub
        self._router = hub.broker.router
        self._table = hub.topics
        self._by_connection: dict[SynapConnection, Subscriber] = {}
        self._detached: OrderedDict[str, Subscriber] = OrderedDict()
        self._nowhere: WeakKeyDictionary[Targets, int] = WeakKeyDictionary()

    def count_nowhere(self, targets: Targets | CopyTargets) -> int:
        """Return how many receivers of a message are without a connection."""
        if not self._detached:
            return 0
        if isinstance(targets, CopyTargets):
            return self.count_nowhere(targets.direct) + self.count_nowhere(targets.copies)
        count = self._nowhere.get(targets)
        if count is None:  # it never changes: one that finds a connection becomes another peer
            count = sum(peer.enqueue is _discard for peer in targets.members)
            self._nowhere[targets] = count
        return count

    @property
    def detached(self) -> int:
        """Subscribers without a connection."""
        return len(self._detached)

    def of(self, connection: SynapConnection) -> Subscriber | None:
        """Return the subscriber of a connection, if it has one."""
        return self._by_connection.get(connection)

    # Subscribers

    def find(self, id_: str, who: str | None) -> Subscriber | None:
        """Return the subscriber with that id, if there is one.

        Args:
            id_: of the subscriber.
            who: the user; None for a client that has not logged in.

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
        """Return the subscriber for a subscription; None if it has to be made, and can be.

        Raises:
            SynapError: it cannot have that id, or there are too many subscribers.
            ForbiddenError: it is somebody else's.
        """
        if id_ is not None and not 0 < len(id_) <= MAX_ID:
            raise invalid(f"'subscriber_id' must have 1 to {MAX_ID} characters")
        own = self.of(connection) if connection is not None else None
        if own is not None and id_ is not None and id_ != own.id:
            raise invalid(f"This connection is subscriber {shown(own.id)} already")
        subscriber = own or (self.find(id_, who) if id_ is not None else None)
        if subscriber is None:
            limits, elsewhere = self._hub.limits, self._hub.policy.elsewhere
            if len(self) + elsewhere.count("subscribers") >= limits.max_subscribers:
                raise invalid(f"over {limits.max_subscribers} subscribers")
            detached = self.detached + elsewhere.count("detached")
            if connection is None and detached >= limits.max_detached:
                raise invalid(f"over {limits.max_detached} subscribers without a connection")
        elif connection is not None and subscriber.connection not in (None, connection):
            raise _connected(subscriber)
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
        subscriber = self[id_] = Subscriber(id_, peer, connection, self._hub.clock())
        if connection is not None:
            self._by_connection[connection] = subscriber
        else:
            self._detached[id_] = subscriber
        return subscriber

    def attach(self, subscriber: Subscriber, connection: SynapConnection) -> None:
        """Attach a subscriber without a connection, and its topics, to a connection."""
        old, new = subscriber.topics, dict(subscriber.topics)
        with self._changing(subscriber, new.values()):
            for topic in new.values():
                connection.subscriptions.add(topic, Form.SYNAP)
            for text, topic in new.items():
                if isinstance(topic, bytes):
                    self._table.release(topic)
                del old[text]
            for _ in self._router.forget(subscriber.peer):
                pass
        subscriber.topics, subscriber.peer = new, connection.peer
        subscriber.connection, self._by_connection[connection] = connection, subscriber
        del self._detached[subscriber.id]
        self.detached_topics -= len(new)

    def find_detached(self, id_: str, who: str | None) -> Subscriber:
        """Return a subscriber that there is, as :meth:`find`.

        Raises:
            SynapError: it has a connection.
            ForbiddenError: it is somebody else's.
        """
        subscriber = self.find(id_, who)
        assert subscriber is not None
        if subscriber.connection is not None:
            raise _connected(subscriber)
        return subscriber

    def hand_over(self, subscriber: Subscriber) -> list[str]:
        """Forget a subscriber without a connection, for another worker; return its topics."""
        texts = list(subscriber.topics)
        self._remove(subscriber, texts)
        return texts

    def touch(self, subscriber: Subscriber) -> None:
        """Note that a command has named it."""
        subscriber.touched = self._hub.clock()
        if subscriber.connection is None:
            self._detached.move_to_end(subscriber.id)

    def drop(self, connection: SynapConnection) -> None:
        """Forget the subscriber of a connection that ends.

        The connection releases what it holds in the router and in the table.
        """
        subscriber = self._by_connection.get(connection)
        if subscriber is not None:
            self._count_wildcards(-count_patterns(subscriber.topics.values()))
            subscriber.connection = None
            del self[subscriber.id], self._by_connection[connection]

    def expire(self, now: float) -> int:
        """Forget topics of subscribers without a connection that have not been named for long.

        Returns:
            How many topics, 200 at most; it costs nothing when there are none.
        """
        count = 0
        while self._detached and count < _AT_ONCE:
            subscriber = next(iter(self._detached.values()))
            if now - subscriber.touched <= self._hub.limits.detached_idle:
                break
            texts = list(islice(subscriber.topics, _AT_ONCE - count))
            self._remove(subscriber, texts)
            count += len(texts)
        return count

    # Their topics

    def add(self, subscriber: Subscriber, topics: Topics) -> Steps[None]:
        """Give a subscriber topics, after :meth:`check_limits`, in steps."""
        texts = list(topics)
        for at in range(0, len(texts), _AT_ONCE):
            if at and self._hub.broker.delivery.turn.over():
                yield
                if self.get(subscriber.id) is not subscriber:
                    return  # it has left meanwhile
            some = {text: topics[text] for text in texts[at : at + _AT_ONCE]}
            with self._changing(subscriber, some.values()):
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
            if at and self._hub.broker.delivery.turn.over():
                yield
            if self.get(subscriber.id) is not subscriber:
                break  # it has left meanwhile
            count += self._remove(subscriber, texts[at : at + _AT_ONCE])
        return count

    def _remove(self, subscriber: Subscriber, texts: Sequence[str]) -> int:
        topics = {text: subscriber.topics[text] for text in texts if text in subscriber.topics}
        with self._changing(subscriber, topics.values()):
            for text, topic in topics.items():
                if subscriber.connection is None and isinstance(topic, bytes):
                    self._table.release(topic)
                del subscriber.topics[text]
                self._release(subscriber, topic)
        if subscriber.connection is None and not subscriber.topics:
            del self[subscriber.id], self._detached[subscriber.id]
        return len(topics)

    @contextlib.contextmanager
    def _changing(
        self, subscriber: Subscriber, topics: Collection[bytes | Pattern]
    ) -> Iterator[None]:
        """Change topics of a subscriber in the block.

        The router drops its cached answers once, if there are many.
        """
        many = count_patterns(topics) > _FEW
        with self._router.many() if many else contextlib.nullcontext():
            try:
                yield
            except Exception:
                if subscriber.connection is None:
                    self._abandon(subscriber)
                wildcards = sum(count_patterns(one.topics.values()) for one in self.values())
                self._count_wildcards(wildcards - self.wildcards)
                raise

    def _abandon(self, subscriber: Subscriber) -> None:
        """Forget a subscriber without a connection whose topics are half changed."""
        self.pop(subscriber.id, None)
        self._detached.pop(subscriber.id, None)
        for topic in subscriber.topics.values():
            if isinstance(topic, bytes):
                self._table.release(topic)
        subscriber.topics = {}
        self._router.repair(subscriber.peer)
        self.detached_topics = sum(len(one.topics) for one in self._detached.values())

    def check_limits(
        self, subscriber: Subscriber | None, connection: SynapConnection | None, topics: Topics
    ) -> None:
        """Raise :class:`SynapError` if a subscriber may not have these topics as well.

        Args:
            subscriber: None for one that is to be made.
            connection: that it has, or is to have.
            topics: that it has not.
        """
        old = subscriber.topics if subscriber is not None else {}
        of_connection = connection or (subscriber.connection if subscriber is not None else None)
        most = MAX_DETACHED_TOPICS if of_connection is None else MAX_TOPICS
        if len(old) + len(topics) > most:
            without = " without a connection" if of_connection is None else ""
            raise invalid(f"over {most} topics of one subscriber{without}")
        patterns = count_patterns(topics.values())
        policy = self._hub.policy
        try:
            policy.check_names([topic for topic in topics.values() if isinstance(topic, bytes)])
            policy.check_patterns(patterns)
            if of_connection is not None:
                if subscriber is not None and subscriber.connection is None:
                    patterns += count_patterns(old.values())
                of_connection.subscriptions.check_patterns(patterns, Form.SYNAP)
                return
            most = self._hub.limits.max_detached_topics
            if self.detached_topics + len(topics) > most:
                raise TopicError(f"over {most} topics of subscribers without a connection")
            if patterns:
                policy.check_own_patterns(count_patterns(old.values()) + patterns, "subscriber")
        except TopicError as error:
            raise invalid(error.text) from None

    def _hold(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        if isinstance(topic, Pattern):
            self._count_wildcards(1)
        if subscriber.connection is not None:
            subscriber.connection.subscriptions.add(topic, Form.SYNAP)
            return
        self.detached_topics += 1
        if isinstance(topic, bytes):
            self._router.subscribe_name(subscriber.peer, topic)
            self._table.hold(topic, self._hub.clock())
        else:
            self._router.subscribe_pattern(subscriber.peer, topic)

    def _release(self, subscriber: Subscriber, topic: bytes | Pattern) -> None:
        if isinstance(topic, Pattern):
            self._count_wildcards(-1)
        if subscriber.connection is not None:
            subscriber.connection.subscriptions.remove(topic, Form.SYNAP)
            return
        self.detached_topics -= 1
        if isinstance(topic, bytes):
            self._router.unsubscribe_name(subscriber.peer, topic)
        else:
            self._router.unsubscribe_pattern(subscriber.peer, topic)

    def _count_wildcards(self, change: int) -> None:
        self.wildcards += change
        self._hub.policy.wildcards += change


def _connected(subscriber: Subscriber) -> SynapError:
    return invalid(f"Subscriber {shown(subscriber.id)} is connected elsewhere")


def _discard(_data: bytes | Pieces) -> None:
    """Throw away messages to a peer that is nowhere."""
