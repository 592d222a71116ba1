"""Speakers at another worker who wait for slow consumers of this one, without I/O.

What comes of a speaker after it has filled a consumer is kept, in order, until that consumer has
room; whatever else the link brings goes on. The other worker is told, and does not read the speaker
meanwhile. So a slow consumer holds up who publishes to it, and nobody else, as within one worker.

Invariants:

- A speaker that waits is in ``Waiting.speakers``, and has all that has come of it since.
- ``Waiting._size`` is the number of bytes that are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from pubsubd.broker.peer import Peer
from pubsubd.protocol.limits import MIB
from pubsubd.routing.outbox import Hold
from pubsubd.siblings import frames

MAX_KEPT = 64 * MIB
"""Bytes that are kept of speakers that wait; beyond that, the link is not read. What one had sent
before it knew is less than a MiB, but there may be many."""

_APART = 64  # reads whose speakers are kept apart after one of them has filled somebody

Begin = Callable[[], Iterator[None]]


class Owner(Protocol):
    """The part of :class:`~pubsubd.siblings.arrivals.Arrivals` that this needs."""

    def say(self, kind: int, data: bytes = b"") -> None:
        """Send a frame that is no batch."""

    def forgive(self, error: Exception) -> None:
        """Go on without messages that have failed."""


class Consumer(Protocol):
    """A connection that may be filled."""

    peer: Peer


class Siblings(Protocol):
    """The part of :class:`~pubsubd.siblings.siblings.Siblings` that this needs."""

    relieve: Callable[[Speaker], None]
    hold_up: Callable[[Hold], None]


class Speaker:
    """One that waits: all that it has filled is to be waited for, then :meth:`work` called, again
    and again until it is :attr:`done`, and :meth:`go_on` at the end.

    Attributes:
        number: of its connection.
        consumers: what it has filled, and nobody waits for yet.
    """

    __slots__ = ("_awaited", "_kept", "_owner", "_waiting", "_work", "consumers", "number")

    def __init__(self, waiting: Waiting, owner: Owner, number: int) -> None:
        self._waiting = waiting
        self._owner = owner
        self.number = number
        self.consumers: list[object] = []
        self._awaited: list[object] = []  # those that :meth:`take` has returned
        self._kept: deque[tuple[int, Begin]] = deque()  # bytes, and what begins to deliver them
        self._work: Iterator[None] | None = None  # what is left of the present delivery

    def keep(self, size: int, begin: Begin) -> None:
        """Keep something of it."""
        self._kept.append((size, begin))

    def keep_rest(self, work: Iterator[None]) -> None:
        """Keep what is left of the delivery in which it has filled a consumer."""
        self._work = work

    def take(self) -> list[object]:
        """Return what it has filled: it is waited for."""
        self._relieve()
        self._awaited, self.consumers = self.consumers, []
        return self._awaited

    def _relieve(self) -> None:
        self._waiting.filled.difference_update(self._awaited)
        self._awaited = []

    def go_on(self) -> None:
        """Let it go on."""
        self._relieve()
        self._waiting.go_on(self)

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for or to deliver."""
        return not (self.consumers or self._kept or self._work)

    def tell(self) -> None:
        """Tell the other worker that it waits; to be said again while it does."""
        self._owner.say(frames.WAIT, b"%d" % self.number)

    def work(self, over: Callable[[], bool]) -> None:
        """Deliver what has come of it until it fills a consumer or the turn is over."""
        self._relieve()
        while not self.consumers:
            if self._work is None:
                if not self._kept:
                    return
                size, begin = self._kept.popleft()
                self._waiting.note(-size)
                self._work = begin()
            try:
                for _ in self._work:
                    if self.consumers or over():
                        return
            except Exception as error:  # noqa: BLE001  (see there)
                self._owner.forgive(error)
            self._work = None
            if over():
                return


class Waiting:
    """The speakers at one other worker that wait.

    Args:
        owner: the link.
        siblings: all links.

    Attributes:
        speakers: number -> speaker.
        filled: consumers that some of them wait for.
        apart: reads, from the next one, whose speakers are kept apart: else nobody knows which of
            them fills a consumer.
    """

    def __init__(self, owner: Owner, siblings: Siblings) -> None:
        self._owner, self._siblings = owner, siblings
        self.speakers: dict[int, Speaker] = {}
        self.filled: set[Consumer] = set()
        self.apart = 0
        self._size = 0
        self._room: Hold | None = None  # what the link waits for

    def strain(self, number: int, consumer: Consumer) -> None:
        """Let a speaker wait for a consumer that is filled."""
        self.keep_apart()
        speaker = self.speakers.get(number)
        if speaker is None:
            speaker = self.speakers[number] = Speaker(self, self._owner, number)
            speaker.tell()
            self._siblings.relieve(speaker)
        speaker.consumers.append(consumer)
        self.filled.add(consumer)

    def keep_apart(self) -> None:
        """Let speakers be kept apart for a while."""
        self.apart = _APART

    def keep(self, number: int, size: int, begin: Begin) -> None:
        """Keep so many bytes of a speaker that waits, and what begins to deliver them."""
        self.speakers[number].keep(size, begin)
        self.note(size)
        if self._size > MAX_KEPT:
            self.finish()

    def finish(self) -> None:
        """Let the link wait until nothing is kept that is too much, or needs to be in the end."""
        if self.speakers and self._room is None:
            self._room = Hold()
            self._siblings.hold_up(self._room)

    def note(self, more: int) -> None:
        """Count bytes that are kept."""
        self._size += more

    def go_on(self, speaker: Speaker) -> None:
        """Let a speaker go on."""
        del self.speakers[speaker.number]
        try:
            self._owner.say(frames.GO_ON, b"%d" % speaker.number)
        finally:
            if self._room is not None and not self.speakers:
                room, self._room = self._room, None
                room.release()
