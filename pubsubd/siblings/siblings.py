"""All other workers of this daemon, as one of its workers knows them, without I/O.

A ``sub`` is in force at all workers before the client can know of it: what goes out to the
connection is held until all siblings have carried out what they were told, see
:meth:`Siblings.settle`. So an acknowledgement means what it means with one worker.

Invariants:

- ``touched`` has each sibling that something was put for and not sent.
- While ``closed`` is set, siblings take nothing: what has come from one is for this worker's own
  receivers.
- A mark that has not come back from all siblings is in ``_marks``, with what waits for it; the last
  of these was sent after everything, unless ``_dirty`` is set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from pubsubd.broker.broker import Broker
from pubsubd.broker.connections import subscriptions
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.protocol.limits import MIB, Limits
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.routing.targets import Receiver, Targets
from pubsubd.siblings import frames
from pubsubd.siblings.interests import Interests
from pubsubd.siblings.progress import Progress
from pubsubd.siblings.questions import Questions
from pubsubd.siblings.shares import Share, gather, unite
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.waiting import Speaker

MAX_PENDING = 64 * MIB
"""Bytes that wait for a sibling; beyond that, batches for it are lost."""

PATIENCE = 2.0
"""Seconds after which output is sent although a sibling has not said that it has caught up."""

LONGEST = 5.0
"""Seconds that a connection waits for a consumer at a sibling that says nothing more."""

PING = b"//pubsubd/ping"

Hear = Callable[[Sibling, bytes], Iterator[None] | None]


class Siblings:
    """The other workers.

    Args:
        broker: this worker's.
        number: this worker's, from 0.
        clock: seconds that only go forward.
        progress: what all workers share.
        woken: called when :meth:`act` is to be called soon.

    Attributes:
        others: number -> sibling, of those with a link.
        touched: those that something was put for.
        closed: whether they take nothing at present.
        interests: what this worker's own receivers subscribe.
        questions: what workers ask each other.
        told: name -> what is called when a sibling tells something under that name.
        open_letter: called with a letter of a sibling, in steps.
        introductions: return frames that tell a new sibling what others have been told.
        farewells: return steps that forget what a sibling has told that is gone.
        changes: tell others what has changed, if anything has.
        draining: whether this worker ends.
        on_out: called when a sibling has nothing more of its clients to send.
        on_lost: called with the number of a worker when the link to it has ended.
        on_gone: each called with the number of a worker whose link has ended.
        on_introduced: called when a sibling has told all its keys.
        woken: see the arguments.
        relieve: called with a speaker of another worker that waits for consumers here.
        hold_up: called with what whoever speaks has to wait for.
    """

    def __init__(
        self,
        broker: Broker,
        number: int,
        clock: Callable[[], float],
        progress: Progress,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.broker, self.delivery = broker, broker.delivery
        self.number = number
        self.clock = clock
        self.progress = progress
        self.woken = woken
        self.others: dict[int, Sibling] = {}
        self.touched: list[Sibling] = []
        self.closed = False
        self.draining = False
        self.on_out: Callable[[Sibling], None] = lambda _sibling: None
        self.on_lost: Callable[[int], None] = lambda _number: None
        self.on_gone: list[Callable[[int], None]] = []
        self.on_introduced: Callable[[], None] = lambda: None
        self.relieve: Callable[[Speaker], None] = lambda _speaker: None
        self.hold_up: Callable[[Hold], None] = lambda _hold: None
        self.told: dict[bytes, Hear] = {}
        self.open_letter: Callable[[Sibling, bytes], Iterator[None]] = lambda *_: iter(())
        self.introductions: list[Callable[[], Iterator[bytes]]] = [self._introduce]
        self.farewells: list[Callable[[Sibling], Iterator[None]]] = []
        self.changes: list[Callable[[], None]] = []
        self.questions = Questions(self.others, self.delivery, clock, woken)
        self.ask = self.questions.ask
        self._marks: OrderedDict[int, tuple[Hold, float]] = OrderedDict()
        self._mark = 0  # the last one that was sent
        self._late = 0  # the last one that some sibling has taken too long for, until it comes back
        self._next: Hold | None = None  # what waits for the next one
        self._dirty = False  # whether something was sent after the last one
        self._introducing: dict[Sibling, Iterator[bytes]] = {}
        self._in_mesh = broker.router.bundle is not None
        self._listener = ListenerState("", Limits(max_pending=MAX_PENDING))
        self.interests = Interests(broker.router, is_sibling, self._subscribed, woken)
        # The marks after which siblings send what is lost no more, or send it to nobody alone; and
        # after which they know what was subscribed.
        self._alike_from = self._owned_from = self._gained_from = 0
        self._others_ship = self.delivery.ship
        self.delivery.outbound = (
            _Either(self.delivery.outbound, self.touched) if self._in_mesh else self.touched
        )
        self.delivery.ship = self._ship_all if self._in_mesh else self.ship
        self.delivery.siblings = self.others.values()
        self.delivery.is_sibling = is_sibling
        broker.router.lent = self._count_keys
        broker.router.unite, broker.router.gather = unite, gather
        broker.requests[PING] = self._ping

    # Links

    def link(
        self,
        number: int,
        _label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
    ) -> Sibling:
        """Return a new sibling, as the protocol of the connection that is the link to it."""
        sibling = Sibling(self, number, send, end, self._listener)
        old = self.others.get(number)
        if old is not None:
            self._forget(old)
            old.peer.end("duplicate-link", f"another link to worker {number} replaces it")
        self.others[number] = sibling
        sibling.marked = self._mark  # it has nothing to catch up with
        every = (introduce() for introduce in self.introductions)
        self._introducing[sibling] = chain.from_iterable(every)
        self.woken()
        return sibling

    def leave(self, sibling: Sibling) -> tuple[()]:
        """Take note that a link has ended."""
        if self.others.get(sibling.number) is sibling:
            self.on_lost(sibling.number)  # first: if one of the two fails, both are done again
            self._forget(sibling)
        return ()

    def _forget(self, sibling: Sibling) -> None:
        del self.others[sibling.number]
        self._introducing.pop(sibling, None)
        with suppress(ValueError):
            self.touched.remove(sibling)
        sibling.out = sibling.left = True
        steps: list[Callable[[], None]] = [
            partial(self.questions.forget, sibling),
            self.note_marked,
            *(partial(forget, sibling.number) for forget in self.on_gone),
            partial(self.on_out, sibling),
            *(partial(sibling.go_on, number) for number in sibling.paused),
        ]
        for forget in steps:
            try:
                forget()
            except Exception as error:  # noqa: BLE001  (the others have to forget it, too)
                self.broker.faults.note(error, sibling.label)

    def leaving(self, sibling: Sibling) -> Iterator[None]:
        """Forget what a sibling has told, in steps."""
        for forget in self.farewells:
            yield from forget(sibling)

    def _introduce(self) -> Iterator[bytes]:
        for lines in self.interests.everything():
            if lines:
                yield frames.frame(frames.WANT, lines)

    @property
    def introduced(self) -> bool:
        """Whether all siblings that there are have told all their keys."""
        return all(one.introduced for one in self.others.values())

    def note_introduced(self) -> None:
        """Take note that a sibling has told all its keys."""
        self.on_introduced()

    def _count_keys(self) -> int:
        shares = (sibling.shares.by_owner.values() for sibling in self.others.values())
        every: Iterator[Receiver] = chain(self.others.values(), chain.from_iterable(shares))
        return sum(map(subscriptions, every))

    # Messages

    def ship(self) -> None:
        """Send what was put for siblings."""
        touched = self.touched[:]
        self.touched.clear()
        for sibling in touched:
            try:
                sibling.ship()
            except Exception as error:  # noqa: BLE001  (it is that link's alone)
                self.broker.faults.end(sibling.peer, error)
        self._dirty = True

    def _ship_all(self) -> None:
        """Send what was put for siblings, and for other daemons of the mesh."""
        if self.touched:
            self.ship()
        self._others_ship()

    def everybody(self, sibling: Sibling) -> Targets | None:
        """Return who gets all that comes from a sibling; None if each message has to be looked at.

        That is so while something may be under way for a subscription that is no more.
        """
        interests = self.interests
        everybody = interests.everybody
        if everybody is None:
            return None
        if interests.lost:
            interests.lost = False
            self._alike_from = self._ask_mark()
        return everybody if sibling.marked >= self._alike_from else None

    def owner(self, sibling: Sibling, number: int) -> Peer | None:
        """Return who gets what a sibling sends for an owner; None if it has to be looked at.

        That is so while something may be under way for a subscription that is no more.
        """
        interests = self.interests
        if interests.left:
            interests.left = False
            self._owned_from = self._ask_mark()
        looked = self.broker.router.guarded or self.delivery.sampler is not None
        if looked or sibling.marked < self._owned_from:
            return None
        return interests.by_owner.get(number)

    def gained(self, sibling: Sibling) -> bool:
        """Return whether a sibling may not know yet what somebody here has subscribed."""
        if self.interests.gained:
            self.interests.gained = False
            self._gained_from = self._ask_mark()
        return sibling.marked < self._gained_from

    def _ask_mark(self) -> int:
        """Let another mark be sent soon, and return its number."""
        if self._next is None:
            self._next = Hold()
            self.woken()
        return self._mark + 1

    # Catching up

    def _subscribed(self, receiver: Receiver) -> None:
        if isinstance(receiver, Peer):
            self.settle(receiver)

    def _ping(self, peer: Peer, data: bytes) -> bytes:
        self.settle(peer)
        return data

    def settle(self, peer: Peer) -> None:
        """Hold what goes out to ``peer`` until siblings have caught up with what was told them."""
        if not self.others:
            return
        held = None
        if self._dirty or self.touched or self.interests.pending:
            if self._next is None:
                self._next = Hold()
                self.woken()
            held = self._next
        elif self._marks:
            held = next(reversed(self._marks.values()))[0]
        for sibling in self.others.values():
            if peer.number in sibling.paused:  # what it has said before may be kept there
                held = sibling.paused[peer.number][0].after(held)
        if held is not None:
            peer.outbox.held = held

    def note_waiting(self, sibling: Sibling, number: int) -> None:
        """Take note that a connection has filled a consumer at a sibling."""
        known = number in sibling.paused
        hold = sibling.pause(number, self.clock() + LONGEST)
        peer = None if known else self.broker.peers.get(number)
        if peer is not None and peer.outbox.held is not None and not peer.outbox.held.over:
            peer.outbox.held = hold.after(peer.outbox.held)
        if len(sibling.paused) == 1:
            self.woken()

    def behind(self) -> Hold | None:
        """Return what has to come before much more is caused for siblings; None for nothing.

        They work off what they are sent while the next of it is made here, for :data:`AHEAD
        <pubsubd.siblings.sibling.AHEAD>`. One that is stuck is not waited for again until it goes
        on.
        """
        now = self.clock()
        if self._late or not any(one.lags(now) for one in self.others.values()):
            return None
        if self._marks:
            return next(iter(self._marks.values()))[0]
        if self._next is None:
            self._next = Hold()
            self.woken()
        return self._next

    def note_marked(self) -> None:
        """Take note that a mark has come back, or that one sibling fewer has to be waited for."""
        least = min((one.marked for one in self.others.values()), default=self._mark)
        if least >= self._late:
            self._late = 0
        while self._marks and next(iter(self._marks)) <= least:
            self._marks.popitem(last=False)[1][0].release()

    def act(self) -> bool:
        """Tell siblings what has changed, and introduce this worker to new ones.

        Returns:
            Whether it is to be called again, when others have had their turns.
        """
        for sibling, pieces in list(self._introducing.items()):
            if (piece := next(pieces, None)) is not None:
                sibling.peer.send(piece)
            else:
                del self._introducing[sibling]
                sibling.say(frames.WANT)  # an empty one is the end of it
        if self.interests.pending:
            self._dirty = True
            self._tell_all(frames.WANT, self.interests.changes())
            if self.interests.pending:
                return True
        for change in self.changes:
            change()
        if self._next is not None:
            held, self._next = self._next, None
            self._mark += 1
            self._marks[self._mark] = held, self.clock() + PATIENCE
            self._dirty = False
            self._tell_all(frames.MARK, b"%d" % self._mark)
            self.note_marked()
        return bool(self._introducing)

    @property
    def due(self) -> float:
        """When :meth:`expire` is to be called."""
        marked = next(iter(self._marks.values()))[1] if self._marks else float("inf")
        paused = (next(iter(one.paused.values()))[1] for one in self.others.values() if one.paused)
        return min(marked, self.questions.due, *paused)

    def expire(self) -> None:
        """Let go what has waited for too long."""
        now = self.clock()
        while self._marks and next(iter(self._marks.values()))[1] <= now:
            self._late, (held, _) = self._marks.popitem(last=False)
            held.release()
        for sibling in self.others.values():
            for number, (_, until) in list(sibling.paused.items()):
                if until <= now:
                    sibling.go_on(number)
        self.questions.expire(now)

    # Everything else

    def tell(self, name: bytes, data: bytes) -> None:
        """Tell all siblings something; what they call is in their :attr:`told`."""
        self._tell_all(frames.TELL, b"%b\n%b" % (name, data))
        self._dirty = True

    def hear(self, sibling: Sibling, name: bytes, data: bytes) -> Iterator[None] | None:
        """Take what a sibling has told."""
        hear = self.told.get(name)
        return None if hear is None else hear(sibling, data)

    def _tell_all(self, kind: int, data: bytes) -> None:
        for sibling in list(self.others.values()):
            try:
                sibling.say(kind, data)
            except Exception as error:  # noqa: BLE001  (it is that link's alone)
                self.broker.faults.end(sibling.peer, error)

    # The end

    def say_out(self) -> None:
        """Tell siblings that nothing more comes of this worker's clients."""
        self._tell_all(frames.OUT, b"")

    def note_out(self, sibling: Sibling) -> None:
        """Take note that a sibling has nothing more of its clients to send."""
        self.on_out(sibling)


class _Either(Sequence[object]):
    """Two sequences of what is to be sent, of which only the lengths are asked for."""

    def __init__(self, one: Sequence[object], other: Sequence[object]) -> None:
        self._one, self._other = one, other

    def __len__(self) -> int:
        return len(self._one) + len(self._other)

    def __getitem__(self, index: Any) -> Any:
        return [*self._one, *self._other][index]


def is_sibling(receiver: object) -> bool:
    """Return whether a receiver is another worker of this daemon, or somebody there."""
    return isinstance(receiver, Sibling | Share)
