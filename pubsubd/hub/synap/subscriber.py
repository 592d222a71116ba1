"""One subscriber of Synap, and the connection it may have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pubsubd.broker.peer import Peer
from pubsubd.hub.subscriptions import Subscriptions
from pubsubd.routing.wildcards import Pattern

Topics = dict[str, bytes | Pattern]
"""Topics as they were given, in order -> the name or the pattern that each of them is."""


class SynapConnection(Protocol):
    """A connection that commands come by, as Synap needs it.

    Attributes:
        peer: receives the messages of the connection's subscriber.
        sender: the address it has registered, or where it comes from.
        subscriptions: its subscriptions, in all dialects.
    """

    peer: Peer
    sender: str
    subscriptions: Subscriptions

    def may(self, action: str) -> bool:
        """Return whether it is allowed ``action``."""

    def put_alike(self, before: bytes, between: Sequence[bytes], after: bytes) -> None:
        """Queue JSON texts of one length that have the same beginning and end."""


class Subscriber:
    """A client with topics, connected or not.

    Attributes:
        id: the client's, or ``sub-`` and a random UUID.
        topics: its subscriptions.
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


def count_patterns(topics: Iterable[bytes | Pattern]) -> int:
    """Return how many topics are patterns."""
    return sum(1 for topic in topics if isinstance(topic, Pattern))
