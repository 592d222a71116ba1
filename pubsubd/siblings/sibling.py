"""Another worker of this daemon: a receiver in the router, and the link that its messages take.

Strategy: it subscribes what its own receivers subscribe, so that a message that it does not want
costs nothing more. What is put for it leaves in one piece, with a frame for each sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Protocol, cast

from pubsubd.access.rules import Permission
from pubsubd.broker.broker import Broker
from pubsubd.broker.delivery import NO_ROUTE, Delivery
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import MADE, Peer, address, discard, stay
from pubsubd.protocol.limits import MAX_LINE, TURN
from pubsubd.protocol.wire import find_header_end, parse_header
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.routing.targets import Targets
from pubsubd.routing.wildcards import Pattern
from pubsubd.siblings import frames
from pubsubd.siblings.interests import Interests, follow
from pubsubd.siblings.internal import InternalEnd
from pubsubd.siblings.progress import Progress
from pubsubd.siblings.questions import Questions
from pubsubd.siblings.shares import Shares
from pubsubd.siblings.waiting import Consumer, Speaker, Waiting

AHEAD = 3 * TURN
"""Seconds that it may take for what was sent to it before nobody causes much more."""

_SPEAKERS = 256  # peers that stand for senders and are kept; each is some 2 KiB
_FLAGS = {0: 0, 1: frames.VOUCHED, MADE: frames.VOUCHED | frames.MADE}
_FORGIVEN = frames.BATCH, frames.ADDRESSED, frames.LETTER, frames.ASK, frames.ANSWER
_FEW = 8  # receivers, and pieces, up to which these are sent as they were read
_LOOKS = 64  # at messages, between two looks at the clock
_SENDS = 4  # between two looks at the clock
_DONE = object()
_STEP = 16  # keys followed between two looks at the clock


class Owner(Protocol):
    """The part of :class:`~pubsubd.siblings.siblings.Siblings` that one of them needs."""

    number: int
    broker: Broker
    delivery: Delivery
    progress: Progress
    clock: Callable[[], float]
    touched: list[Sibling]
    closed: bool
    interests: Interests
    questions: Questions
    relieve: Callable[[Speaker], None]
    hold_up: Callable[[Hold], None]

    def note_waiting(self, sibling: Sibling, number: int) -> None:
        """Take note that a connection has filled a consumer at a sibling."""

    def note_marked(self) -> None:
        """Take note that a sibling has caught up with a mark."""

    def note_out(self, sibling: Sibling) -> None:
        """Take note that a sibling has nothing more of its clients to send."""

    def note_introduced(self) -> None:
        """Take note that a sibling has told all its keys."""

    def hear(self, sibling: Sibling, name: bytes, data: bytes) -> Iterator[None] | None:
        """Take what a sibling tells under a name."""

    def open_letter(self, sibling: Sibling, letter: bytes) -> Iterator[None]:
        """Take a letter of a sibling."""

    def everybody(self, sibling: Sibling) -> Targets | None:
        """Return all receivers here if each wants whatever a sibling sends."""

    def owner(self, sibling: Sibling, number: int) -> Peer | None:
        """Return who gets what a sibling sends for an owner, if that is known."""

    def gained(self, sibling: Sibling) -> bool:
        """Return whether a sibling may not know yet what somebody here has subscribed."""

    def leave(self, sibling: Sibling) -> Iterable[None]:
        """Take note that a link has ended."""

    def leaving(self, sibling: Sibling) -> Iterable[None]:
        """Forget what a sibling has told, in steps."""


class Sibling(InternalEnd):
    """Another worker. It speaks the protocol of a connection, as ``ConnectionProtocol`` says.

    Args:
        siblings: all of them, to one of which this belongs.
        number: of the other worker.
        send: sends bytes to it, now or later, and never waits.
        end: ends the link, for a code and a text.
        listener: has the limits that hold for the link.

    Attributes:
        peer: the connection that the link is.
        node: its label, for answers that name it.
        introduced: whether all keys of the other worker have come.
        out: whether nothing more comes of its clients.
        left: whether the link has ended.
        messages_in: received so far.
        shares: the receivers there that are alone with a key.
        enqueue: takes messages of this worker's own clients, for :meth:`ship` to send.
        waiting: of the other worker's clients, those that wait for a consumer here.
        paused: of this worker's, those that wait for one there: number -> what they wait for, and
            until when.
    """

    remote = False
    render: Callable[[bytes], bool] | None = None
    permission: Permission | None = None

    def __init__(
        self,
        siblings: Owner,
        number: int,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
        listener: ListenerState,
    ) -> None:
        self._siblings = siblings
        self.number = number
        self.label = self.node = f"worker/{number}"
        self.end = stay
        self.peer = Peer(0, self.label, send, end, listener, siblings.clock())
        self.peer.link = self
        self.substrings: set[bytes] = set()
        self.names: set[bytes] | None = None
        self.patterns: set[Pattern] | None = None
        self.pending: list[bytes] = []  # stays empty: what is put goes to the runs
        self.messages_in = self._messages_out = self._dropped = 0
        self.introduced = self.out = self.left = False
        self._shipped = 0  # messages, so far
        # Bytes: sent, and received; those that were sent when it was looked at how far it is.
        self._sent = self._received = self._looked = 0
        self._looked_at = 0.0
        siblings.progress.note(siblings.number, number, 0)
        self.marked = 0  # the last mark that has come back
        # What was taken: speaker, whether it is vouched for, and frames; for each in turn.
        self._taken: list[tuple[Peer | None, int, list[bytes]]] = []
        self.enqueue = self._taker()
        self.shares = Shares(self, siblings, self._taken)
        self._frames = frames.Frames()
        self._next: tuple[int, list[memoryview]] | None = None  # the next frame, if it was taken
        self._work: Iterator[None] | None = None  # what is left of the present one
        self._counts: dict[bytes, int] = {}  # subscribers there of a name, if several
        self._speakers: dict[tuple[bytes, int, int], Peer] = {}
        self.waiting = Waiting(self, siblings)
        self._number = 0  # of the speaker of the present frame, if it is one's
        self._together: list[tuple[int, memoryview]] = []  # speakers, and what each has said first
        self.paused: dict[int, tuple[Hold, float]] = {}

    def subscribers(self, name: bytes) -> int:
        """Return how many receivers there get ``name``, at least, if it wants that."""
        return self._counts.get(name, 1)

    # Out

    def _taker(self) -> Callable[[bytes], None]:
        """Return what takes runs of this worker's own clients; called for each.

        A run may be a single message, so this takes half the time of a method, and leaves
        :meth:`ship` nothing to do for each.
        """
        siblings, delivery = self._siblings, self._siblings.delivery
        touched, taken = siblings.touched, self._taken
        speaker: Peer | None = None
        vouching, put = 0, list[bytes]().append

        def take(chunk: bytes) -> None:
            nonlocal speaker, vouching, put
            if siblings.closed:
                return
            if not taken or delivery.speaker is not speaker or delivery.vouching != vouching:
                if not (taken or self.shares.chosen):
                    touched.append(self)
                speaker, vouching = delivery.speaker, delivery.vouching
                chunks: list[bytes] = []
                taken.append((speaker, vouching, chunks))
                put = chunks.append
            put(chunk)

        return take

    def touch(self) -> None:
        """Take note that something was put for it."""
        self._siblings.touched.append(self)

    def send(self, data: bytes | Pieces) -> None:
        """Take a large frame of this worker's own clients."""
        for part in data.parts if isinstance(data, Pieces) else (data,):
            self.enqueue(part)

    def ship(self) -> None:
        """Send what was taken, in one piece: a batch for each sender."""
        taken, pieces = self._taken[:], list[bytes]()
        self._taken.clear()
        speakers = [speaker for speaker, _, _ in taken]
        if self.shares.chosen:
            speaker, parts = self.shares.speaker, self.shares.parts()
            speakers.append(speaker)
            if taken:
                own = taken.pop(0)[2] if taken[0][:2] == (speaker, 0) else []
                parts.append((frames.ANYBODY, 0, own[:]))
                own.clear()
            pieces = frames.addressed(*self._head(speaker), parts)
        pieces += self._batches(taken)
        self.shares.sent()
        if pieces:
            self._send(frames.together(pieces))
        if self.paused:
            self.hold_up(*speakers)

    def _batches(self, taken: list[tuple[Peer | None, int, list[bytes]]]) -> list[bytes]:
        pieces: list[bytes] = []
        for speaker, vouching, chunks in taken:
            if speaker is None or not speaker.relayed:
                pieces += frames.batch(_FLAGS[vouching], *self._head(speaker), chunks)
            else:
                flags = frames.VOUCHED if vouching or speaker.vouched else 0
                for forwarded, part in groupby(chunks, key=_is_forwarded):
                    # A topic that is the copy's original is for all who want that.
                    relayed = frames.RELAYED if forwarded else 0
                    pieces += frames.batch(flags | relayed, *self._head(speaker), list(part))
            chunks.clear()  # what takes them still has the list
        return pieces

    def hold_up(self, *speakers: Peer | None) -> None:
        """Let those of them wait who have filled a consumer there."""
        for speaker in speakers:
            if speaker is not None and speaker.number in self.paused:
                try:
                    self._siblings.hold_up(self.paused[speaker.number][0])
                except Exception as error:  # noqa: BLE001  (it is told to wait next time)
                    self._siblings.broker.faults.note(error, speaker.label)

    def pause(self, number: int, until: float) -> Hold:
        """Let a connection wait, until a time at most, and return for what."""
        hold = self.paused.pop(number)[0] if number in self.paused else Hold()
        self.paused[number] = hold, until  # the last of them: they stay in the order of their ends
        return hold

    def go_on(self, number: int) -> None:
        """Let a connection go on."""
        if number in self.paused:
            self.paused.pop(number)[0].release()

    def _head(self, speaker: Peer | None) -> tuple[int, int, bytes]:
        label = b"" if speaker is None else address(speaker).encode()
        number = 0 if speaker is None else speaker.number
        count = self._messages_out - self._shipped  # of all batches, told with the first
        self._shipped = self._messages_out
        return count, number, label

    def say(self, kind: int, data: bytes = b"") -> None:
        """Send a frame that is no batch."""
        self._send(frames.frame(kind, data))

    def _send(self, data: bytes | Pieces) -> None:
        peer, counters = self.peer, self._siblings.broker.counters
        before, dropped = peer.bytes_out, self._dropped
        peer.send(data)
        counters.bytes_out -= peer.bytes_out - before  # it has left for no client yet
        if self._dropped == dropped:
            self._sent += len(data)

    def lags(self, now: float) -> bool:
        """Return whether it has not done yet what it was sent :data:`AHEAD` ago."""
        siblings = self._siblings
        if siblings.progress.done(self.number, siblings.number) >= self._looked:
            self._looked, self._looked_at = self._sent, now
        return now > self._looked_at + AHEAD

    @property
    def dropped(self) -> int:
        """Batches that it was too slow for."""
        return self._dropped

    @dropped.setter
    def dropped(self, count: int) -> None:
        self._siblings.broker.counters.dropped += count - self._dropped
        self._dropped = count

    @property
    def messages_out(self) -> int:
        """Messages sent so far, which the daemon's counters do not have."""
        return self._messages_out

    @messages_out.setter
    def messages_out(self, count: int) -> None:
        more = count - self._messages_out
        self._siblings.broker.counters.messages_out -= more
        if not self._siblings.closed:  # else they are not sent
            self._messages_out += more

    # In, as a connection has it

    @property
    def quiet(self) -> float:
        """Seconds without input after which, when this worker ends, the other has said all."""
        return 0.0 if self.out else float("inf")

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""
        return self._frames.wanted

    def receive(self, data: bytes) -> bool:
        """Work off what was read; whether work is left that ``receive(b"")`` goes on with."""
        siblings = self._siblings
        turn = siblings.delivery.turn
        turn.begin()
        if data:
            self._frames.feed(data)
            self._received += len(data)
            if self.waiting.apart and not self.waiting.speakers:
                self.waiting.apart -= 1
        while self.peer.ending is None:
            if self._work is not None and self._go_on(self._work, turn.over):
                return True
            if turn.over():  # what could not be sent of the last frame must not be overtaken
                return True
            found, self._next = self._next or self._frames.take(), None
            if found is None:
                done = self._received - self._frames.size
                siblings.progress.note(siblings.number, self.number, done)
                self._together = []  # what was read is not kept
                return False
            self._kind = found[0]
            try:
                self._work = self._take(*found)
            except Exception as error:  # noqa: BLE001  (see there)
                self._forgive(error)
        return False

    def _go_on(self, work: Iterator[None], over: Callable[[], bool]) -> bool:
        """Go on with a frame until the turn is over; return whether something is left of it."""
        try:
            for _ in work:
                if self._number in self.waiting.speakers:
                    self.waiting.speakers[self._number].keep_rest(work)
                    break
                if over():
                    return True
        except Exception as error:  # noqa: BLE001  (see there)
            self._forgive(error)
        self._work = None
        return False

    def _forgive(self, error: Exception) -> None:
        """Go on without the messages, the question or the answer of a frame that has failed.

        Of anything else the next frames are not right without it: so the link ends, and all is told
        anew on the next one.
        """
        if self._kind not in _FORGIVEN:
            raise error
        self.forgive(error)

    def forgive(self, error: Exception) -> None:
        """Go on without messages that have failed."""
        self._speakers.clear()  # one of them may have read half of it
        self._siblings.broker.faults.note(error, self.label)

    def _take(self, kind: int, views: list[memoryview]) -> Iterator[None] | None:
        siblings = self._siblings
        if kind in (frames.BATCH, frames.ADDRESSED):
            return self._take_batch(kind, views)
        self._number = 0
        data = b"".join(views)
        if kind == frames.WANT:
            return self._follow(data)
        if kind == frames.MARK:
            self.say(frames.MARKED, data)
        elif kind == frames.MARKED:
            self.marked = int(data)
            self._looked = 0  # nothing of what it had been sent is left, whatever else tells
            siblings.note_marked()
        elif kind == frames.OUT:
            self.out = True
            self.waiting.finish()
            siblings.note_out(self)
        elif kind == frames.ASK:
            siblings.questions.take_question(self, data)
        elif kind == frames.ANSWER:
            siblings.questions.take(self, data)
        elif kind == frames.WAIT:
            siblings.note_waiting(self, int(data))
        elif kind == frames.GO_ON:
            self.go_on(int(data))
        elif kind == frames.LETTER:
            return self._take_letter(data)
        elif kind == frames.TELL:
            name, _, body = data.partition(b"\n")
            return siblings.hear(self, name, body)
        return None

    def _take_batch(self, kind: int, views: list[memoryview]) -> Iterator[None] | None:
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
        while (found := self._frames.take()) is not None:
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
        self._number = number
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
            new = len(owners) > 2 and siblings.gained(self)  # else all are in their order anyway
            if number not in self.waiting.speakers and not new:
                chunks = [view for _, _, views in parts for view in views]
                yield from self._deliver(inner, count, chunks)
                return
        else:
            parts = _merge(parts) if len(parts) > 1 else parts
        for done, (owner, few, chunks) in enumerate(parts, 1):
            kept = number in self.waiting.speakers  # and may be older than what was told since
            peer = None if kept or mixed else siblings.owner(self, owner)
            if owner == frames.ANYBODY:
                yield from self._deliver(inner, 0, chunks, look=True)
            elif peer is not None:
                self._hand_over(inner, siblings.broker.router.only(peer), chunks, few)
            elif kept or mixed or siblings.gained(self):
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
                self.messages_in += seen - len(wanted)
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

    def _take_letter(self, data: bytes) -> Iterator[None] | None:
        digits, _, letter = data.partition(b"\n")
        number = int(digits)
        self._number = number
        begin = partial(self._open_letter, number, letter)
        if number in self.waiting.speakers:
            self.waiting.keep(number, len(letter), begin)
            return None
        return begin()

    def _open_letter(self, number: int, letter: bytes) -> Iterator[None]:
        """Take a letter, which is about a message of a sender, or of nobody."""
        delivery, inner = self._siblings.delivery, self._speak_for(b"", 0, number)
        steps = self._siblings.open_letter(self, letter)
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
        if plain and not look and (everybody := siblings.everybody(self)) is not None:
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
                self.messages_in += counters.messages_in - before
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
        self.messages_in += count
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

    def _follow(self, lines: bytes) -> Iterator[None]:
        siblings = self._siblings
        if not lines:
            self.introduced = True
            siblings.note_introduced()
            return
        for number, _ in enumerate(
            follow(siblings.broker.router, self.shares, lines, self._counts), 1
        ):
            if number % _STEP == 0:
                yield

    # The end, as a connection has it

    def leaving(self) -> tuple[Callable[[], Iterable[None]], ...]:
        """Return what forgets it, each in steps, as ``ConnectionProtocol`` says."""
        siblings = self._siblings
        return (
            partial(siblings.leave, self),
            partial(siblings.broker.router.forget, self),
            partial(self.shares.forget, siblings.broker.router),
            partial(siblings.leaving, self),
        )


def _is_forwarded(data: bytes) -> bool:
    """Return whether messages are under names that go from daemon to daemon."""
    return data.startswith(b"pub //fwd/")


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
