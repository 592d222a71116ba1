"""Which topics are legal in which dialect, and what is remembered of each topic of this port.

A topic is a line name, whichever dialect it came through; the dialects differ in what more they
ask of one, and in how they spell wildcards.

Strategy of :class:`TopicTable`: topics that nobody subscribes stand in the order of their last
use. So the one to forget, because it is idle or because there is no more room, is always the first
of them. The topics with the most messages are found among a few candidates; whether a topic becomes
one is told by one comparison a message.

Invariants:

- A topic is in ``_idle`` if and only if it has no subscribers; ``_bytes`` is what the names of
  these take.
- Every topic with more than ``_bar`` messages is in ``_top``, which has 64 at most.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from heapq import nlargest
from itertools import islice

from msgspec import Struct

from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from pubsubd.routing.wildcards import Pattern

NAME = 128
"""Bytes of a name that there is room for, on average, of topics that nobody subscribes."""

TOP = 10
"""Topics that :meth:`TopicTable.top` can tell at most."""

_CANDIDATES = 64  # for them; when there are more, the better half is kept
_EXPIRE = 1_000  # topics forgotten in one call: about 1 ms
_FORGOTTEN = 100  # topics forgotten for one that comes

_HUB_RULE = "^[a-zA-Z0-9/_-]+$"
_is_hub_topic = re.compile(r"[a-zA-Z0-9/_-]+").fullmatch
_is_hub_pattern = re.compile(r"[a-zA-Z0-9/_+#-]+").fullmatch


class TopicError(PubsubdError):
    """A topic that cannot be used.

    Attributes:
        text: why, in one line for a person; anything quoted in it is escaped already.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ForbiddenError(TopicError):
    """A topic that one has no right to."""


def check_hub_topic(
    topic: object, any_name: bool, max_length: int, *, publishing: bool = True
) -> bytes:
    """Return the name of a ``hub:*`` topic; raise :class:`TopicError` unless it is legal.

    Args:
        topic: as it came, None if it did not.
        any_name: whether it may be any name of the line protocol.
        max_length: characters.
        publishing: whether it must not be one of the daemon's own names.
    """
    text = _check_hub_text(topic, max_length)
    if not any_name and not _is_hub_topic(text):
        raise TopicError(f"topic {_shown(text)} must match {_HUB_RULE}")
    return _check_name(text, publishing)


def hub_pattern(topic: object, any_name: bool, max_length: int) -> Pattern | None:
    """Return the pattern that a ``hub:*`` topic is, or None if it is a name.

    It is one if a level of it, between slashes, is ``+`` or ``#``. Raises :class:`TopicError`
    unless it is legal; of names nothing is checked but that and the length.
    """
    text = _check_hub_text(topic, max_length)
    levels = text.split("/")
    if "+" not in levels and "#" not in levels:
        return None
    if not any_name and not _is_hub_pattern(text):
        raise TopicError(f"topic {_shown(text)} must match {_HUB_RULE}, besides + and #")
    _check_name(text, publishing=False)
    try:
        return Pattern.slashes(text)
    except ValueError as error:
        raise TopicError(str(error)) from None


def check_synap_topic(topic: str, *, publishing: bool = True) -> bytes:
    """Return the name of a Synap topic; raise :class:`TopicError` unless it is legal."""
    if not topic:
        raise TopicError("Topic cannot be empty")
    return _check_name(topic, publishing)


def synap_pattern(topic: str) -> Pattern | None:
    """Return the pattern that a Synap topic is, or None if it is a name.

    It is one if it has a ``*``, or if a level of it, between dots, is ``#``. Raises
    :class:`TopicError` unless it is legal.
    """
    levels = topic.split(".")
    if "*" not in topic and "#" not in levels:
        return None
    if "#" in levels[:-1]:
        raise TopicError("# wildcard must be at the end of pattern")
    _check_name(topic, publishing=False)
    try:
        return Pattern.dots(topic)
    except ValueError as error:
        raise TopicError(str(error)) from None


def check_envelope_topic(topic: str) -> bytes | None:
    """Return the name of an envelope's topic, or None unless it is legal and not the daemon's."""
    try:
        return _check_name(topic, publishing=True)
    except TopicError:
        return None


def _check_hub_text(topic: object, max_length: int) -> str:
    if topic is None or topic == "":
        raise TopicError("topic is required")
    if not isinstance(topic, str):
        raise TopicError("topic must be a string")
    if len(topic) > max_length:
        raise TopicError(f"topic has {len(topic)} characters, over {max_length}")
    return topic


def _check_name(text: str, publishing: bool) -> bytes:
    try:
        name = text.encode()
        wire.check_name(name, "topic")
    except UnicodeEncodeError:
        raise TopicError(f"topic {_shown(text)} is not Unicode") from None
    except ProtocolError as error:
        raise TopicError(error.text) from None
    if publishing and name.startswith(wire.OWN):
        raise TopicError(f"topic {_shown(text)} is one of the daemon's own")
    return name


def _shown(text: str) -> str:
    return f"'{wire.escape(text, 64)}'"


class Topic(Struct, gc=False):
    """What is remembered of a topic. Times in seconds that only go forward.

    Attributes:
        created_at: when it was first published or subscribed.
        used: when it was last published while nobody subscribed it, or unsubscribed.
        message_count: messages published to it on this port.
        subscribers: who subscribes it by its exact name on this port.
    """

    created_at: float
    used: float
    message_count: int = 0
    subscribers: int = 0


class TopicTable:
    """The topics that are published or, by their exact name, subscribed on this port.

    What is published is never refused: a new topic takes the place of the one that nobody
    subscribes and that has not been used for longest, or of several with shorter names; if all
    are subscribed, it is not remembered. Whether there is :attr:`room` for one more that is
    subscribed, the caller checks.

    Args:
        max_topics: how many are remembered.
        idle: seconds after which one is forgotten that nobody uses.
    """

    def __init__(self, max_topics: int, idle: float) -> None:
        self._max = max_topics
        self._patience = idle
        self._topics: dict[bytes, Topic] = {}
        self._idle: OrderedDict[bytes, Topic] = OrderedDict()
        self._bytes = 0
        self._top: dict[bytes, Topic] = {}
        self._bar = 0
        self._now = 0.0

    def resize(self, max_topics: int, idle: float) -> None:
        """Let other limits hold; topics over them are forgotten as others come, or in time."""
        self._max, self._patience = max_topics, idle

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: bytes) -> bool:
        return name in self._topics

    def get(self, name: bytes) -> Topic | None:
        """Return what is known of a topic, None if there is no such."""
        return self._topics.get(name)

    @property
    def room(self) -> int:
        """How many topics more can be subscribed; negative after too many were."""
        return self._max - len(self._topics) + len(self._idle)

    def note(self, name: bytes, now: float) -> None:
        """Take note of a message to a topic."""
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
        topic.message_count += 1
        if topic.message_count > self._bar and name not in self._top:
            self._nominate(name, topic)

    def hold(self, name: bytes, now: float) -> None:
        """Take note of a subscriber of a topic, who is to :meth:`release` it."""
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
            if now - topic.used <= self._patience:
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
