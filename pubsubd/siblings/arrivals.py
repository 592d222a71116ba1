"""What comes of the clients of another worker, and its delivery to this worker's own receivers.

Strategy: what has been read together is delivered together, as far as it may be. What is for a
single receiver says so, and is handed on as it is. A sender that has filled a consumer here waits
for it, in :mod:`pubsubd.siblings.waiting`, and nobody else does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

from pubsubd.broker.broker import Broker
from pubsubd.broker.delivery import NO_ROUTE, Delivery
from pubsubd.broker.peer import MADE, Peer, discard, stay
from pubsubd.protocol.limits import MAX_LINE
from pubsubd.protocol.wire import find_header_end, parse_header
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.routing.targets import Targets
from pubsubd.siblings import frames
from pubsubd.siblings.interests import Interests
from pubsubd.siblings.waiting import Consumer, Speaker, Waiting

_SPEAKERS = 256  # peers that stand for senders and are kept; each is some 2 KiB
_FEW = 8  # receivers, and pieces, up to which these are sent as they were read
_LOOKS = 64  # at messages, between two looks at the clock
_SENDS = 4  # between two looks at the clock
_DONE = object()


class Link(Protocol):
    """The part of a :class:`~pubsubd.siblings.sibling.Sibling` that this needs."""

    label: str
    messages_in: int

    def say(self, kind: int, data: bytes = b"") -> None:
        """Send a frame that is no batch."""


class Siblings(Protocol):
    """The part of :class:`~pubsubd.siblings.siblings.Siblings` that this needs."""

    broker: Broker
    delivery: Delivery
    closed: bool
    interests: Interests
    relieve: Callable[[Speaker], None]
    hold_up: Callable[[Hold], None]

    def open_letter(self, sibling: Any, letter: bytes) -> Iterator[None]:
        """Take a letter of a sibling."""

    def everybody(self, sibling: Any) -> Targets | None:
        """Return all receivers here if each wants whatever a sibling sends."""

    def owner(self, sibling: Any, number: int) -> Peer | None:
        """Return who gets what a sibling sends for an owner, if that is known."""

    def gained(self, sibling: Any) -> bool:
        """Return whether a sibling may not know yet what somebody here has subscribed."""


class Arrivals:
    """What comes of the clients of one other worker.

    Args:
        link: what it comes over.
        siblings: all links.

    Attributes:
        frames: what was read and not taken.
        number: of the sender of what was taken last; 0 if that is of several, or of none.
        waiting: the senders that wait for a consumer here.
    """

    def __init__(self, link: Link, siblings: Siblings) -> None:
        self._link, self._siblings = link, siblings
        self.frames = frames.Frames()
        self.number = 0
        self.waiting = Waiting(self, siblings)
        self._next: tuple[int, list[memoryview]] | None = None  # the next frame, if it was taken
        self._speakers: dict[tuple[bytes, int, int], Peer] = {}
        self._together: list[tuple[int, memoryview]] = []  # senders, and what each has said first

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self.frames.feed(data)
        if self.waiting.apart and not self.waiting.speakers:
            self.waiting.apart -= 1

    def next(self) -> tuple[int, list[memoryview]] | None:
        """Return the kind and the data of the next frame, or None if it has not come."""
        found, self._next = self._next or self.frames.take(), None
        if found is None:
            self._together = []  # what was read is not kept
        self.number = 0
        return found

    def kept(self, work: Iterator[None]) -> bool:
        """Return whether what is left of a frame is kept, as its sender waits."""
        if self.number not in self.waiting.speakers:
            return False
        self.waiting.speakers[self.number].keep_rest(work)
        return True

    def say(self, kind: int, data: bytes = b"") -> None:
        """Send a frame that is no batch."""
        self._link.say(kind, data)

    def forgive(self, error: Exception) -> None:
        """Go on without messages that have failed."""
        self._speakers.clear()  # one of them may have read half of it
        self._siblings.broker.faults.note(error, self._link.label)

    def take_batch(self, kind: int, views: list[memoryview]) -> Iterator[None] | None:
        """Deliver a batch and those after it that can be delivered together, or keep it.

        What has been read together is delivered together, as far as the senders are the same, or
        nobody here is told who they are by more than the messages: a send for each batch would cost
        more than the rest.
        """
        flags, count, number, label, chunks = frames.open_batch(views)
        parts = frames.open_addressed(chunks) if kind == frames.ADDRESSED else []
        waiting = self.waiting
        if waiting.filled and number not in waiting.speakers:
            for first in _firsts(parts, chunks):
                self._strain(number, first, waiting.filled)
        if number in waiting.speakers:
            if parts:
                chunks = [view for _, _, views in parts for view in views]
            data = b"".join(chunks)
            copied = deque((memoryview(data),))  # what was read is not kept
            parts = [(owner, few, frames.cut(copied, _size(part))) for owner, few, part in parts]

            def begin() -> Iterator[None]:
                inner = self._speak_for(label, flags, number)
                if parts:
                    return self._hand_out(inner, number, count, parts)
                return self._deliver(inner, count, [memoryview(data)], look=True)

            waiting.keep(number, len(data), begin)
            return None
        told = flags & frames.MADE or not (flags or self._siblings.interests.rendering)
        anyone = told and not waiting.apart
        together = [(number, parts, chunks[:1])]
        while (found := self.frames.take()) is not None:
            if found[0] == kind:
                more_flags, more, other, by, rest = frames.open_batch(found[1])
                if more_flags == flags and (anyone or (other == number and by == label)):
                    others = frames.open_addressed(rest) if kind == frames.ADDRESSED else []
                    if other != number:
                        together.append((other, others, rest[:1]))
                    parts = parts + others
                    count += more
                    chunks += rest
                    continue
            self._next = found
            break
        if len(together) > 1:
            number = 0
            self._together = [
                (other, first) for other, its, rest in together for first in _firsts(its, rest)
            ]
        self.number = number
        inner = self._speak_for(label, flags, number)
        if kind == frames.ADDRESSED:
            return self._hand_out(inner, number, count, parts)
        return self._deliver(inner, count, chunks)

    def _hand_out(
        self, inner: Peer, number: int, count: int, parts: list[frames.Part]
    ) -> Iterator[None]:
        """Deliver messages of a sender, of which most are for one receiver each."""
        siblings = self._siblings
        owners = {owner for owner, _, _ in parts}
        mixed = frames.ANYBODY in owners
        if mixed:
            # Where one owner is all that is known, everything is in its order anyway.
            new = len(owners) > 2 and siblings.gained(self._link)
            if number not in self.waiting.speakers and not new:
                chunks = [view for _, _, views in parts for view in views]
                yield from self._deliver(inner, count, chunks)
                return
        else:
            parts = _merge(parts) if len(parts) > 1 else parts
        for done, (owner, few, chunks) in enumerate(parts, 1):
            kept = number in self.waiting.speakers  # and may be older than what was told since
            peer = None if kept or mixed else siblings.owner(self._link, owner)
            if owner == frames.ANYBODY:
                yield from self._deliver(inner, 0, chunks, look=True)
            elif peer is not None:
                self._hand_over(inner, siblings.broker.router.only(peer), chunks, few)
            elif kept or mixed or siblings.gained(self._link):
                yield from self._look_for(inner, owner, b"".join(chunks))
            else:
                yield from self._deliver(inner, few, chunks)
            if done % _SENDS == 0:
                yield

    def _look_for(self, inner: Peer, owner: int, data: bytes) -> Iterator[None]:
        """Deliver what an owner still wants of what was for it.

        Who else wants it has subscribed later, and would get it before what the same sender had
        published earlier for other owners.
        """
        router, interests = self._siblings.broker.router, self._siblings.interests
        at, wanted, seen = 0, list[memoryview](), 0
        while at < len(data):
            stop = find_header_end(data, at)
            name, digits = parse_header(data[at:stop])
            end = stop + int(digits) + 1
            try:
                receivers = router.receivers(name).members
            except Unfinished:
                yield
                continue
            if interests.by_owner.get(owner) in receivers:
                wanted.append(memoryview(data)[at:end])
            at, seen = end, seen + 1
            if at == len(data) or seen == _LOOKS:
                peer = interests.by_owner.get(owner)
                if wanted and peer is not None:
                    self._hand_over(inner, router.only(peer), wanted, len(wanted))
                self._link.messages_in += seen - len(wanted)
                wanted, seen = [], 0
                yield

    def _strain(self, number: int, chunk: memoryview, consumers: Collection[Consumer]) -> None:
        """Let a speaker wait for those of consumers that get the first message of a chunk."""
        router, start = self._siblings.broker.router, bytes(chunk[:MAX_LINE])
        stop = find_header_end(start, 0)
        if number and stop > 0:
            with suppress(Unfinished):
                receivers = router.receivers(parse_header(start[:stop])[0]).members
                for consumer in [one for one in consumers if one.peer in receivers]:
                    self.waiting.strain(number, consumer)

    def _strain_all(self, consumer: Consumer) -> None:
        """Let those wait whose messages, delivered together, have filled a consumer."""
        self.waiting.keep_apart()
        for number, chunk in self._together:
            self._strain(number, chunk, (consumer,))

    def take_letter(self, data: bytes) -> Iterator[None] | None:
        """Take a letter, which is about a message of a client there, or keep it."""
        digits, _, letter = data.partition(b"\n")
        number = int(digits)
        self.number = number
        begin = partial(self._open_letter, number, letter)
        if number in self.waiting.speakers:
            self.waiting.keep(number, len(letter), begin)
            return None
        return begin()

    def _open_letter(self, number: int, letter: bytes) -> Iterator[None]:
        """Take a letter, which is about a message of a sender, or of nobody."""
        delivery, inner = self._siblings.delivery, self._speak_for(b"", 0, number)
        steps = self._siblings.open_letter(self._link, letter)
        while True:
            before, delivery.speaker = delivery.speaker, inner
            try:
                if next(steps, _DONE) is _DONE:
                    return
            finally:
                delivery.speaker = before
            yield

    def _deliver(
        self, inner: Peer, count: int, chunks: list[memoryview], *, look: bool = False
    ) -> Iterator[None]:
        """Deliver messages of a sender to this worker's own receivers.

        Each is to be looked at if they are older than what the other worker has told since.
        """
        siblings = self._siblings
        broker = siblings.broker
        counters, delivery = broker.counters, broker.delivery
        plain = inner.sibling and not broker.router.guarded and delivery.sampler is None
        if plain and not look and (everybody := siblings.everybody(self._link)) is not None:
            self._hand_over(inner, everybody, chunks, count)
            return
        *parts, chunk = cast("list[bytes]", chunks)
        inner.parts += parts  # to be joined with what is left of earlier input, and once
        while True:
            speaker, before = delivery.speaker, counters.messages_in
            siblings.closed, delivery.vouching = True, inner.vouched
            try:
                more = broker.receive(inner, chunk)
            finally:
                siblings.closed, delivery.vouching = False, 0
                delivery.speaker = speaker
                self._link.messages_in += counters.messages_in - before
                counters.messages_in = before  # the other worker has counted them
            if not more:
                return
            chunk = b""
            yield

    def _hand_over(
        self, inner: Peer, everybody: Targets, chunks: list[memoryview], count: int
    ) -> None:
        """Deliver messages, without a look into them, to all who can want any of them."""
        delivery, peers = self._siblings.delivery, everybody.peers
        self._link.messages_in += count
        speaker = delivery.speaker
        delivery.speaker = inner
        try:
            if (
                len(peers) <= _FEW
                and len(chunks) <= _FEW
                and not delivery.unsent
                and not self._siblings.interests.rendering
            ):
                delivery.hand(peers, Pieces(cast("list[bytes]", chunks)), count)
            else:
                chunk = b"".join(chunks)
                delivery.deliver(everybody, NO_ROUTE, chunk, 0, len(chunk), max(count, 1))
                delivery.send()
        finally:
            delivery.speaker = speaker

    def _speak_for(self, label: bytes, flags: int, number: int) -> Peer:
        """Return the peer that stands for a sender: later, messages may be delivered for it.

        The number is 0 if it stands for several.
        """
        inner = self._speakers.get((label, flags, number))
        if inner is None:
            if len(self._speakers) >= _SPEAKERS:
                self._speakers.clear()
            inner = Peer(0, label.decode(), discard, stay)
            inner.relayed, inner.sibling = True, not flags & frames.RELAYED
            inner.strain = partial(self.waiting.strain, number) if number else self._strain_all
            inner.vouched = MADE if flags & frames.MADE else flags & frames.VOUCHED
            self._speakers[label, flags, number] = inner
        return inner


def _firsts(parts: list[frames.Part], chunks: list[memoryview]) -> list[memoryview]:
    """Return what begins with the first message for each receiver, as far as these are known."""
    return [views[0] for _, _, views in parts if views] or chunks[:1]


def _merge(parts: list[frames.Part]) -> list[frames.Part]:
    """Return parts with one for each owner."""
    every: dict[int, tuple[int, list[memoryview]]] = {}
    for owner, count, chunks in parts:
        before, got = every.get(owner, (0, []))
        every[owner] = before + count, got + chunks
    return [(owner, count, chunks) for owner, (count, chunks) in every.items()]


def _size(views: list[memoryview]) -> int:
    return sum(map(len, views))
