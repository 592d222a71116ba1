"""Another worker of this daemon: a receiver in the router, and the link that its messages take.

Strategy: it subscribes what its own receivers subscribe, so that a message that it does not want
costs nothing more. What is put for it leaves in one piece, with a frame for each sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Protocol

from pubsubd.access.rules import Permission
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import MADE, Peer, address, stay
from pubsubd.protocol.limits import TURN
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.routing.wildcards import Pattern
from pubsubd.siblings import arrivals, frames
from pubsubd.siblings.interests import follow
from pubsubd.siblings.internal import InternalEnd
from pubsubd.siblings.progress import Progress
from pubsubd.siblings.questions import Questions
from pubsubd.siblings.shares import Shares

AHEAD = 3 * TURN
"""Seconds that it may take for what was sent to it before nobody causes much more."""

_FLAGS = {0: 0, 1: frames.VOUCHED, MADE: frames.VOUCHED | frames.MADE}
_FORGIVEN = frames.BATCH, frames.ADDRESSED, frames.LETTER, frames.ASK, frames.ANSWER
_STEP = 16  # keys followed between two looks at the clock


class Owner(arrivals.Siblings, Protocol):
    """The part of :class:`~pubsubd.siblings.siblings.Siblings` that one of them needs."""

    number: int
    progress: Progress
    clock: Callable[[], float]
    touched: list[Sibling]
    questions: Questions

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
        self._work: Iterator[None] | None = None  # what is left of the present one
        self._counts: dict[bytes, int] = {}  # subscribers there of a name, if several
        self._arrivals = arrivals.Arrivals(self, siblings)
        self.waiting = self._arrivals.waiting
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
        return self._arrivals.frames.wanted

    def receive(self, data: bytes) -> bool:
        """Work off what was read; whether work is left that ``receive(b"")`` goes on with."""
        siblings = self._siblings
        turn = siblings.delivery.turn
        turn.begin()
        if data:
            self._arrivals.feed(data)
            self._received += len(data)
        while self.peer.ending is None:
            if self._work is not None and self._go_on(self._work, turn.over):
                return True
            if turn.over():  # what could not be sent of the last frame must not be overtaken
                return True
            found = self._arrivals.next()
            if found is None:
                done = self._received - self._arrivals.frames.size
                siblings.progress.note(siblings.number, self.number, done)
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
                if self._arrivals.kept(work):
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
        self._arrivals.forgive(error)

    def _take(self, kind: int, views: list[memoryview]) -> Iterator[None] | None:
        siblings = self._siblings
        if kind in (frames.BATCH, frames.ADDRESSED):
            return self._arrivals.take_batch(kind, views)
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
            return self._arrivals.take_letter(data)
        elif kind == frames.TELL:
            name, _, body = data.partition(b"\n")
            return siblings.hear(self, name, body)
        return None

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
