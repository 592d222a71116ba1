"""Topics of this port: when they came, who subscribes them, which have the most messages.

Strategy: topics without subscribers stand in the order of their last use. So the one to forget,
because it is idle or because there is no more room, is always the first of them. The topics with
the most messages are found among a few candidates; one comparison a message decides whether a topic
becomes a candidate.

Invariants:

- A topic is in ``_idle`` if and only if it has no subscribers; ``_bytes`` is the size of the names
  of these.
- Every topic with more than ``_bar`` messages is in ``_top``, which has 64 at most.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import nlargest
from itertools import islice

from msgspec import Struct

NAME = 128
"""Bytes of a name, on average, that topics without subscribers have room for."""

TOP = 10
"""Topics that :meth:`TopicTable.top` can return at most."""

_CANDIDATES = 64  # for them; when there are more, the better half is kept
_EXPIRE = 1_000  # topics forgotten in one call: about 1 ms
_FORGOTTEN = 100  # topics forgotten for one that comes


class Topic(Struct, gc=False):
    """Record of a topic. Times in monotonic seconds.

    Attributes:
        created_at: when it was first published or subscribed.
        used: when it was last published while nobody subscribed it, or unsubscribed.
        message_count: messages published to it on this port.
        subscribers: connections that subscribe it by its exact name on this port.
    """

    created_at: float
    used: float
    message_count: int = 0
    subscribers: int = 0


class TopicTable:
    """The topics that are published or, by their exact name, subscribed on this port.

    A publication is never refused: a new topic takes the place of the one without subscribers that
    has been unused for longest, or of several with shorter names; if all topics have subscribers,
    the new one is not remembered. Before a new topic is subscribed, the caller checks that there is
    :attr:`room`.

    Args:
        max_topics: the limit of their number.
        idle: seconds after which an unused topic is forgotten.
    """

    def __init__(self, max_topics: int, idle: float) -> None:
        self._max = max_topics
        self._stall_budget = idle
        self._topics: dict[bytes, Topic] = {}
        self._idle: OrderedDict[bytes, Topic] = OrderedDict()
        self._bytes = 0
        self._top: dict[bytes, Topic] = {}
        self._bar = 0
        self._now = 0.0

    def resize(self, max_topics: int, idle: float) -> None:
        """Let other limits hold; topics over them are forgotten as others come, or in time."""
        self._max, self._stall_budget = max_topics, idle

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def candidates(self) -> int:
        """Topics among which those with the most messages are looked for."""
        return len(self._top)

    def __contains__(self, name: bytes) -> bool:
        return name in self._topics

    def get(self, name: bytes) -> Topic | None:
        """Return the record of a topic, None if there is none."""
        return self._topics.get(name)

    @property
    def room(self) -> int:
        """Number of further topics that can be subscribed; negative if there are too many."""
        return self._max - len(self._topics) + len(self._idle)

    def note(self, name: bytes, now: float, count: int = 1) -> None:
        """Count messages to a topic."""
        self._now = now
        topic = self._topics.get(name)
        if topic is None:
            if not self._make_room():
                return
            topic = self._topics[name] = self._idle[name] = Topic(now, now)
            self._bytes += len(name)
        elif not topic.subscribers:
            topic.used = now
            self._idle.move_to_end(name)
        topic.message_count += count
        if topic.message_count > self._bar and name not in self._top:
            self._nominate(name, topic)

    def hold(self, name: bytes, now: float) -> None:
        """Count a subscriber of a topic, until it is released by :meth:`release`."""
        self._now = now
        topic = self._topics.get(name)
        if topic is None:
            self._make_room()
            topic = self._topics[name] = Topic(now, now)
        elif not topic.subscribers:
            del self._idle[name]
            self._bytes -= len(name)
        topic.subscribers += 1

    def release(self, name: bytes, count: int = 1) -> None:
        """Undo :meth:`hold`, ``count`` times."""
        topic = self._topics[name]
        topic.subscribers -= count
        if not topic.subscribers:
            topic.used = self._now
            self._idle[name] = topic
            self._bytes += len(name)

    def page(self, offset: int, limit: int) -> tuple[list[bytes], int]:
        """Return ``limit`` topics, in the order in which they came, and how many there are."""
        total = len(self)
        start = min(max(offset, 0), total)
        return list(islice(self._topics, start, start + min(max(limit, 0), total))), total

    def top(self, count: int = TOP) -> list[tuple[bytes, Topic]]:
        """Return up to ``count`` topics, 10 at most, that have the most messages, best first."""
        if len(self._top) < TOP and self._bar:
            self._elect(nlargest(_CANDIDATES, self._topics.items(), _messages))
        best = nlargest(min(count, TOP), self._top.items(), _messages)
        return [entry for entry in best if _messages(entry)]

    def expire(self, now: float) -> int:
        """Forget topics that have been idle for too long; return how many, 1,000 at most."""
        count = 0
        while self._idle and count < _EXPIRE:
            topic = next(iter(self._idle.values()))
            if now - topic.used <= self._stall_budget:
                break
            self._forget_first()
            count += 1
        return count

    def _make_room(self) -> bool:
        for _ in range(_FORGOTTEN):  # after a limit was lowered, there may be very many
            if len(self._topics) < self._max and self._bytes <= NAME * self._max:
                return True
            if not self._idle:
                return False
            self._forget_first()
        return len(self._topics) < self._max

    def _forget_first(self) -> None:
        name, _ = self._idle.popitem(last=False)
        self._bytes -= len(name)
        del self._topics[name]
        self._top.pop(name, None)

    def _nominate(self, name: bytes, topic: Topic) -> None:
        self._top[name] = topic
        if len(self._top) > _CANDIDATES:
            self._elect(nlargest(len(self._top), self._top.items(), _messages))

    def _elect(self, ranked: list[tuple[bytes, Topic]]) -> None:
        """Keep the first half of the candidates, and set the bar where the others are."""
        kept, rest = ranked[: _CANDIDATES // 2], ranked[_CANDIDATES // 2 :]
        self._top = dict(kept)
        self._bar = _messages(rest[0]) if rest else 0


def _messages(entry: tuple[bytes, Topic]) -> int:
    return entry[1].message_count
