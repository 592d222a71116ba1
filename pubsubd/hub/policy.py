"""Rules that hold in every dialect: rights to names, limits of subscriptions, rates of requests.

A dialect asks before it acts, and words a refusal itself.

Invariant: ``wildcards`` counts the patterns that are subscribed on this port, in any dialect, by
subscribers with a connection or without one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pubsubd.access.rules import Permission
from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.hub.topic_table import TopicTable
from pubsubd.hub.topics import ForbiddenError, TopicError, shown
from pubsubd.protocol.limits import HubLimits


class Elsewhere(Protocol):
    """What the clients of other workers of this daemon have."""

    @property
    def topics(self) -> int:
        """Topics that are subscribed there, and not here."""

    def subscribers(self, name: bytes) -> int:
        """Return how many subscribe a topic there."""

    def count(self, what: str) -> int:
        """Return how many ``wildcards``, ``subscribers`` or ``detached`` there are there."""


class Nowhere:
    """There are no other workers."""

    topics = 0

    def subscribers(self, _name: bytes) -> int:
        """Return 0."""
        return 0

    def count(self, _what: str) -> int:
        """Return 0."""
        return 0


class Policy:
    """The rules of one hub port.

    Args:
        broker: its router and its requests are what is limited.
        topics: the topics of this port.
        limits: of this port.

    Attributes:
        limits: of this port; another object after a reload.
        wildcards: patterns subscribed on this port.
        elsewhere: what other workers have, which the limits count, too.
    """

    def __init__(self, broker: Broker, topics: TopicTable, limits: HubLimits) -> None:
        self._broker = broker
        self._topics = topics
        self.limits = limits
        self.wildcards = 0
        self.elsewhere: Elsewhere = Nowhere()

    # Rights

    def may_publish(self, name: bytes, rights: Permission | None) -> bool:
        """Return whether :meth:`check_publishing` would raise nothing."""
        reserved = self._broker.reserved
        return (rights is None or rights.may_publish(name)) and not (
            reserved and name.startswith(reserved)
        )

    def check_publishing(self, name: bytes, rights: Permission | None = None) -> None:
        """Raise :class:`TopicError` if one with these rights must not publish ``name``.

        Nobody may publish a name that is reserved for the daemons of the mesh.
        """
        if rights is not None and not rights.may_publish(name):
            raise self.forbid(name, rights, "publish")
        if self._broker.reserved and name.startswith(self._broker.reserved):
            self._broker.counters.errors["forged-advert"] += 1
            raise TopicError(f"topic {shown(name)} is for the daemons of this mesh alone")

    def check_name(self, name: bytes, rights: Permission | None = None) -> None:
        """Raise :class:`TopicError` if one with these rights must not subscribe ``name``.

        The limits of the port may forbid it as well.
        """
        if rights is not None and not rights.may_receive(name):
            raise self.forbid(name, rights, "receive")
        self.check_names((name,))

    def forbid(self, name: bytes, rights: Permission, action: str) -> ForbiddenError:
        """Count a name that somebody has no right to ``action``, and return the error."""
        self._broker.counters.errors[rights.code] += 1
        return ForbiddenError(f"no right to {action} topic {shown(name)}")

    # Limits

    def check_names(self, names: Collection[bytes]) -> None:
        """Raise :class:`TopicError` if the limits do not allow one more subscriber of each name."""
        self._check_total(len(names))
        most = self.limits.max_topic_subscribers
        new = 0
        for name in names:
            topic = self._topics.get(name)
            subscribers = self.elsewhere.subscribers(name)
            if topic is not None:
                subscribers += topic.subscribers
            if not subscribers:
                new += 1
            elif subscribers >= most:
                raise TopicError(f"over {most} subscribers of topic {shown(name)}")
        if new and new > self._topics.room - self.elsewhere.topics:
            raise TopicError(f"over {self.limits.max_topics} topics")

    def check_patterns(self, count: int) -> None:
        """Raise :class:`TopicError` if the limits do not allow so many more patterns."""
        self._check_total(count)
        most = self.limits.max_wildcards
        if count and self.wildcards + self.elsewhere.count("wildcards") + count > most:
            raise TopicError(f"over {most} wildcard subscriptions")

    def check_own_patterns(self, total: int, whose: str) -> None:
        """Raise :class:`TopicError` if one connection or subscriber may not have so many.

        Args:
            total: its patterns.
            whose: ``connection`` or ``subscriber``, for the error.
        """
        most = self.limits.max_connection_wildcards
        if total > most:
            raise TopicError(f"over {most} wildcard subscriptions of one {whose}")

    def _check_total(self, count: int) -> None:
        most = self._broker.listener.limits.max_subscriptions_total
        if self._broker.router.subscriptions + count > most:
            raise TopicError("no more subscriptions of all connections together")

    # Rates

    def wait_for_request(self, peer: Peer) -> float:
        """Count a request; return in how many seconds it may be made, 0 for now."""
        return self._broker.requests.wait(peer)

    def refuse_request(self, peer: Peer, wait: float) -> str:
        """Count a request that came too early by ``wait`` seconds, and return the error's text."""
        self._broker.counters.errors["rate-limited"] += 1
        rate = peer.listener.limits.request_rate
        return f"Rate limited: over {rate:g} requests a second; try again in {wait:.2g} s"
