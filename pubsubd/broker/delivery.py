"""Queue frames per subscriber; send once per read; without I/O.

Strategy: a *run* of frames that go to the same peers is one chunk, put once to each of them. At the
end of a read, each peer that was given anything is sent all of it as one piece.

Where the receivers are more than a turn can serve, the rest are sent theirs in further turns, by
:meth:`Delivery.send_some`, while others are served. Who has published waits for that.

Invariants:

- Nothing but whole frames, of which every byte is checked, is put to a peer.
- A peer with something in ``pending`` is among the peers of one of ``touched``.
- What a receiver raises ends that receiver: neither the publisher nor other receivers notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from pubsubd.access.rules import OUTSIDE
from pubsubd.broker.counters import Counters
from pubsubd.broker.faults import Faults
from pubsubd.broker.peer import MADE, Peer
from pubsubd.broker.publish_filter import Refusals
from pubsubd.broker.runs import Heads, Run
from pubsubd.broker.turn import Turn
from pubsubd.broker.unsent import Notes, Unsent, Waited
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.router import Router
from pubsubd.routing.targets import CopyTargets, Denied, Receiver, Route, Sink, Targets

AUTH = b"//pubsubd/auth"
"""The request that logs in."""

MAX_UNSENT = 64
"""Sends under way to many receivers, beyond which the daemon's own messages are dropped."""

_WORK = 16  # of a run that is copied or refused; see limits.WORK_PER_TURN
_SENDS = 4  # between two looks at the clock
_AT_ONCE = 128  # messages that are rendered without looking at the clock
_TOGETHER = 2048  # messages that are rendered one step after the other, and sent together


class Sampler(Protocol):
    """Looks through some of the reads."""

    def read(self, peer: Peer | None, data: bytes, count: int) -> None:
        """Take note of frames of ``peer``, among them ``count`` messages."""


class Sibling(Receiver, Protocol):
    """Another worker of this daemon."""

    def subscribers(self, name: bytes) -> int:
        """Return how many receivers there get ``name``, at least, if it wants that."""


class Delivery:
    """The receivers, and what they are given.

    Attributes:
        router: who wants what.
        counters: what has happened.
        faults: mistakes of this program, and what they end.
        turn: how much of the present turn is left.
        unsent: sends to receivers that were too many for one turn; :meth:`send_some` goes on.
        on_unsent: called with each of these when it begins.
        on_wait: called with what the speaker waits for; the rest of its input is worked off then.
        notes: the chunk that was put together last, and what is known of the messages in it.
        siblings: the other workers of this daemon, as receivers.
        is_sibling: tells whether a receiver is one of them, or somebody there.
        outbound: what was put for other daemons and is not sent; ``ship`` sends it. The mesh's.
        speaker: whose input is being worked off, or was last; None if it is the daemon itself.
        sampler: is shown reads while somebody looks at the busiest names; else None.
        vouching: whether what is being put names its senders by this daemon's own word: it was
            published on the hub port. :data:`MADE` if it is known of each message what it is.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.router = Router()
        self.counters = Counters()
        self.faults = Faults(clock)
        self.turn = Turn()
        self.unsent: deque[Unsent] = deque()
        self._rendering: Unsent | None = None  # the one that is rendered at present
        self.on_unsent: Callable[[Unsent], None] = lambda _unsent: None
        self.on_wait: Callable[[Waited], None] = lambda _waited: None
        self.speaker: Peer | None = None
        self.sampler: Sampler | None = None
        self.vouching = 0
        self.notes: Notes = (b"", [])
        self.outbound: Sequence[object] = ()
        self.siblings: Collection[Sibling] = ()
        self.is_sibling: Callable[[Receiver], bool] = lambda _receiver: False
        self.ship: Callable[[], None] = lambda: None
        self.touched: list[Targets | CopyTargets | Denied] = []
        self._run = Run(self.router.nobody)

    def enqueue(
        self,
        peer: Peer | None,
        name: bytes,
        data: bytes,
        *,
        echo: bool = True,
        note: object = None,
    ) -> int:
        """Put a message of a peer that does not speak the line protocol; :meth:`flush` sends it.

        Messages that go to the same peers are kept together: they are put to each of them once.

        Args:
            peer: who publishes; None for nobody who is connected.
            name: a legal name that is neither the daemon's own nor reserved.
            data: its payload.
            echo: whether ``peer`` gets it too, if it subscribes it.
            note: what is known of the message besides, for :attr:`notes`.

        Returns:
            How many peers it goes to.
        """
        return self.enqueue_all(peer, name, (data,), echo=echo, notes=(note,))

    def enqueue_all(
        self,
        peer: Peer | None,
        name: bytes,
        texts: Sequence[bytes],
        *,
        echo: bool = True,
        notes: Sequence[object],
    ) -> int:
        """As :meth:`enqueue`, for messages of one name, one after the other.

        Args:
            peer: as there.
            name: as there.
            texts: their payloads.
            echo: as there.
            notes: what is known of each of them.

        Returns:
            How many peers each of them goes to.
        """
        # Hot path: scripts/bench hub-fan-100.
        self.speaker = peer
        targets = self.router.receivers(name)
        run, spared = self._run, None if echo else peer
        if targets is not run.targets or spared is not run.spared or targets.special:
            self.end_run()
            run.targets, run.spared, run.count = targets, spared, _count(targets)
            if spared is not None and isinstance(targets, Targets):
                run.count -= spared in targets.peers
        if targets.special:  # one frame at a time
            for text, note in zip(texts, notes, strict=True):
                self.end_run()
                run.header = wire.header(name, len(text))
                run.frames.append(wire.frame(name, text))
                run.notes.append(note)
        else:
            heads = run.heads
            if heads.name != name:
                heads = run.heads = Heads(name)
            run.frames += [heads[len(text)] + text + b"\n" for text in texts]
            run.notes += notes
        self.counters.messages_in += len(texts)
        return run.count + self._count_more(targets, name) if self.siblings else run.count

    def _count_more(self, targets: Targets | CopyTargets, name: bytes) -> int:
        """Return how many receivers more a message has at other workers, each of which is one."""
        members = (targets.direct if isinstance(targets, CopyTargets) else targets).members
        return sum(one.subscribers(name) - 1 for one in self.siblings if one in members)

    def withhold(self, peer: Peer) -> None:
        """Take back what is put to a peer that does not get what it has published itself."""
        peer.pending.clear()
        count = sum(one.enqueued for one in self.touched if peer in one.peers)
        peer.messages_out -= count
        self.counters.messages_out -= count

    def end_run(self) -> None:
        """Put the frames that have been kept together to those who get them."""
        run = self._run
        if not run.frames:
            return
        targets, frames, spared = run.targets, run.frames, run.spared
        count = len(frames)
        chunk = frames[0] if count == 1 else b"".join(frames)
        route, enqueued = NO_ROUTE, targets.enqueued
        if targets.special:  # it is a single frame
            route = Route(targets, len(run.header) + 1, len(chunk))
            enqueued = _enqueued(targets)
        before = len(spared.pending) if spared is not None else 0
        # Not before: if something has failed until here, they are put by the next call.
        self.notes = chunk, run.notes
        run.frames, run.notes = [], []
        self.vouching = MADE if self.siblings and None not in self.notes[1] else 1
        try:
            self.deliver(targets, route, chunk, 0, len(chunk), count)
        except Exception as error:
            if _enqueued(targets) != enqueued:  # some have been given it
                raise
            # Their publishers may have been told already that it is done.
            self.faults.note(error, "delivery")
            self.deliver(targets, route, chunk, 0, len(chunk), count)
        finally:
            self.vouching = 0
        if spared is not None and len(spared.pending) > before:
            del spared.pending[before:]
            spared.messages_out -= count
            self.counters.messages_out -= count
        if self.sampler is not None:
            self.sampler.read(None, chunk, count)

    @property
    def enqueued_for(self) -> Targets | CopyTargets:
        """Return the receivers of the last message that was given to :meth:`enqueue`."""
        return self._run.targets

    def count_receivers(self, name: bytes) -> int:
        """Return how many peers get ``name``, or its copy; other workers are none."""
        targets = self.router.receivers(name)
        count = _count(targets)
        if self.siblings:
            parts = [targets]
            if isinstance(targets, CopyTargets):
                parts = [targets.direct, targets.copies]
            for part in parts:
                count -= sum(map(self.is_sibling, part.members))
        return count

    def flush(self) -> None:
        """Send what was put."""
        if self._run.frames:
            self.end_run()
        if self.touched:
            self.send()
        elif self.outbound:
            self._ship()

    def publish(self, name: bytes, data: bytes) -> None:
        """Send a message under one of the daemon's own names to those who want it.

        It is dropped while :data:`MAX_UNSENT` sends are under way.
        """
        if len(self.unsent) >= MAX_UNSENT:
            self.counters.dropped += 1
            return
        speaker = self.speaker
        if self.touched:  # what somebody has said so far goes out as theirs
            if speaker is not None and not speaker.echo:
                self.withhold(speaker)
            self.send()
        self.speaker = None
        frame = wire.frame(name, data)
        targets = self.router.targets_of_own(name)
        self.deliver(targets, NO_ROUTE, frame, 0, len(frame), 1)
        self.send()
        self.speaker = speaker  # it may be in the middle of something

    def deliver(
        self,
        targets: Targets | CopyTargets | Denied,
        route: Route,
        buf: bytes,
        start: int,
        stop: int,
        count: int,
    ) -> None:
        """Put the run of ``count`` frames at ``buf[start:stop]`` to its receivers."""
        index = self.router.index
        if isinstance(targets, CopyTargets):
            index.work += _WORK
            rest = route.width - 1  # all frames of such a run have one header
            size = route.length - route.width
            head = wire.header(targets.copy_name, size)
            frames = range(start + rest, stop, (stop - start) // count)
            copies = b"".join([head + buf[at : at + size] + b"\n" for at in frames])
            for part, data in ((targets.direct, buf[start:stop]), (targets.copies, copies)):
                enqueued = part.enqueued
                try:
                    self.deliver(part, route, data, 0, len(data), count)
                except Exception as error:
                    if part.enqueued != enqueued:
                        raise
                    self.faults.note(error, "delivery")  # and again, as in :meth:`end_run`
                    self.deliver(part, route, data, 0, len(data), count)
        elif targets.enqueues and count:
            chunk = buf[start:stop]
            if not targets.enqueued:
                self.touched.append(targets)
            targets.enqueued += count
            others = iter(targets.enqueues)
            try:
                for enqueue in others:
                    enqueue(chunk)
            except Exception as error:  # noqa: BLE001  (it is that receiver's alone)
                self.faults.note(error, "delivery")
                left = enqueue, *others
                for peer, again in zip(targets.peers[-len(left) :], left, strict=True):
                    try:
                        again(chunk)
                    except Exception as another:  # noqa: BLE001  (as above)
                        self.faults.end(peer, another)
            index.work += len(targets.enqueues)
        elif isinstance(targets, Denied):
            index.work += _WORK
            assert self.speaker is not None
            self.deny(self.speaker, buf[start + 4 : buf.index(b" ", start + 4)], count)
            self.counters.messages_in -= count  # as who has put them counts them

    def deny(self, peer: Peer, name: bytes, count: int = 1) -> None:
        """Refuse messages of a peer, the first of which has that name, for lack of rights.

        They are counted one by one, and told by :meth:`tell_refusals`.
        """
        assert peer.publish_filter is not None
        self.counters.errors[peer.publish_filter.code] += count
        if peer.refusals is None:
            peer.refusals = Refusals()
        peer.refusals.add(peer.publish_filter.code, name, count)

    def tell_refusals(self, peer: Peer) -> None:
        """Put one line to a peer about all that has been refused to it and is not told yet."""
        refusals = peer.refusals
        if refusals is None or not refusals.due(self._clock()):
            return
        what, more = wire.quote(refusals.name), refusals.count - 1
        if more:
            what += f" and {more} more"
        if refusals.code == OUTSIDE.code:
            text = f"{what}: pub {AUTH.decode()} <length> <name> <password> comes first"
        else:
            text = f"{what}: no right to publish that"
        refusals.count = 0
        frame = wire.error_frame(ProtocolError(refusals.code, text))
        self.deliver(self.router.only(peer), NO_ROUTE, frame, 0, len(frame), 1)

    def answer(self, peer: Peer, frame: bytes) -> None:
        """Put a frame to one peer, behind what has been refused to it before."""
        if peer.refusals is not None:
            self.tell_refusals(peer)
        self.turn.made += len(frame)
        self.deliver(self.router.only(peer), NO_ROUTE, frame, 0, len(frame), 1)

    def push(self, peer: Peer, frame: bytes) -> None:
        """Send a frame to one peer that has said nothing at present."""
        speaker, self.speaker = self.speaker, None
        try:
            self.answer(peer, frame)
            self.send()
        finally:
            self.speaker = speaker

    def tell(self, peer: Peer, error: ProtocolError) -> None:
        """Put ``error`` to ``peer``; it is sent with what the present read leads to."""
        self.counters.errors[error.code] += 1
        self.answer(peer, wire.error_frame(error))

    def send(self) -> None:
        """Hand each touched peer what was put to it, as one piece."""
        touched = self.touched[:]  # a receiver may have something to say as well
        self.touched.clear()
        messages = out = 0
        for targets in touched:
            handed = targets.handed = targets.enqueued
            targets.enqueued = 0
            messages += handed
            out += handed * len(targets.peers)
            if targets.far is not None:
                try:
                    targets.far.count(handed)
                except Exception as error:  # noqa: BLE001  (it is not the publisher's)
                    self.faults.note(error, "mesh")
        self.counters.messages_out += out
        later: dict[int, tuple[bytes, list[Sink]]] = {}
        try:
            self._send_now(touched, later, messages > _AT_ONCE)
        except Exception as error:  # noqa: BLE001  (nothing that was put is left behind)
            self.faults.note(error, "delivery")
            for targets in touched:
                for peer in targets.peers:
                    if peer.pending:
                        data = b"".join(peer.pending)
                        peer.pending.clear()
                        later.setdefault(id(data), (data, []))[1].append(peer)
        if later:
            rest = list(later.values())
            try:
                self._send_rest(rest)
            except Exception as error:  # noqa: BLE001  (before it sent any of it)
                self.faults.note(error, "delivery")
                self._send_rest(rest)
        if self.outbound:
            self._ship()

    def hand(
        self,
        receivers: Iterable[Sink],
        frames: bytes | Pieces,
        count: int,
        spared: Peer | None = None,
    ) -> None:
        """Send ``count`` messages to a few receivers but ``spared``, ahead of what is put."""
        for receiver in receivers:
            if receiver is not spared:
                receiver.messages_out += count
                self.counters.messages_out += count
                try:
                    receiver.send(frames)
                except Exception as error:  # noqa: BLE001  (it is the receiver's alone)
                    self.faults.end(receiver, error)

    def _ship(self) -> None:
        """Send what was put for other daemons."""
        try:
            self.ship()
        except Exception as error:  # noqa: BLE001  (the publisher is not at fault)
            self.faults.note(error, "mesh")

    def _send_now(
        self,
        touched: list[Targets | CopyTargets | Denied],
        later: dict[int, tuple[bytes, list[Sink]]],
        many: bool,
    ) -> None:
        """Send to as many peers as the turn has time for; fill ``later`` with the others.

        Peers that were given the same chunks are given the same bytes object. These are looked for
        by the first and the last chunk and their number: none goes away before it is compared.

        Args:
            touched: whose peers were given something.
            later: id of what is to be sent -> that, and to whom.
            many: whether who renders messages is to be sent them in pieces, and so later.
        """
        over = self.turn.over
        joined: dict[tuple[int, int, int], tuple[list[bytes], bytes]] = {}
        looks, late = _SENDS, False
        for targets in touched:
            handed, alone = targets.handed, targets.enqueue is not None
            for peer in targets.peers:
                peer.messages_out += handed
                pending = peer.pending
                if not pending:
                    continue
                if len(pending) == 1:
                    data = pending[0]
                elif alone:  # it has a chunk that nobody else was given
                    data = b"".join(pending)
                else:
                    key = id(pending[0]), id(pending[-1]), len(pending)
                    same = joined.get(key)
                    if same is None or same[0] != pending:
                        same = joined[key] = pending[:], b"".join(pending)
                    data = same[1]
                pending.clear()
                renders = peer.render
                if late or (many and renders):
                    later.setdefault(id(data), (data, []))[1].append(peer)
                    continue
                try:
                    peer.send(data)
                except Exception as error:  # noqa: BLE001  (it is the receiver's alone)
                    self.faults.end(peer, error)
                looks -= 1
                if not looks or renders:
                    late, looks = over(), _SENDS

    def _send_rest(self, groups: list[tuple[bytes, list[Sink]]]) -> None:
        """Send to peers while the turn lasts, and in further turns what is left then.

        If further turns cannot be arranged, all is sent at once.
        """
        pieces: deque[tuple[bytes, list[Sink]]] = deque()
        for data, peers in groups:
            plain = [peer for peer in peers if peer.render is None]
            rendering = [peer for peer in peers if peer.render is not None]
            if plain:
                pieces.append((data, plain))
            if rendering:
                pieces.append((data, rendering))
        unsent = Unsent(self.speaker, self.notes, pieces)
        if not self.unsent:  # else renderings of two would be kept
            self._go_on(unsent, self.turn.over)
            if not unsent.pieces:
                return
        try:
            self.on_unsent(unsent)
            self._queue(unsent)
            self.turn.end()  # what comes next must not overtake it
        except Exception as error:  # noqa: BLE001  (who has caused it may wait for it already)
            self.faults.note(error, "delivery")
            self._go_on(unsent, _never)
            unsent.done()

    def _queue(self, unsent: Unsent) -> None:
        """Let it wait: what is little before what is not, and otherwise in order."""
        place = len(self.unsent)
        if unsent.little:
            place = next((at for at, one in enumerate(self.unsent) if not one.little), place)
        self.unsent.insert(place, unsent)

    def _go_on(self, unsent: Unsent, over: Callable[[], bool]) -> None:
        """Render and send, to one peer after the other, until the turn is over."""
        while unsent.pieces and not over():
            data, peers = unsent.pieces[0]
            if not unsent.part:
                stop = self._together(data, unsent.start) if unsent.renders else len(data)
                unsent.part, unsent.start = data[unsent.start : stop], stop
            part, count = unsent.part, len(peers)
            while True:  # one turn a receiver, and a step of rendering for the first ones
                peer, sent = peers[unsent.at], True
                try:
                    if peer.render is None:
                        peer.send(part)
                    else:
                        sent = peer.render(part)
                except Exception as error:  # noqa: BLE001  (it is the receiver's alone)
                    self.faults.end(peer, error)
                if sent:
                    unsent.at += 1
                if unsent.at == count or over():
                    break
            if unsent.at == count:
                unsent.at, unsent.part = 0, b""
                if unsent.start == len(data):
                    unsent.pieces.popleft()
                    unsent.start = 0

    def _together(self, data: bytes, start: int) -> int:
        """Return the end of the messages at ``start`` that are rendered and sent together."""
        if data.count(b"\n", start) <= _TOGETHER:  # each message has one at its end
            return len(data)
        try:
            return wire.skip_frames(data, start, _TOGETHER)
        except Exception as error:  # noqa: BLE001  (they get the rest in one piece)
            self.faults.note(error, "delivery")
            return len(data)

    def send_some(self) -> Unsent:
        """Go on with one of what is :attr:`unsent`, until the turn is over; return it.

        Of those that are rendered one part after the other is sent to all of its receivers, so
        that the renderings of a single one are kept.
        """
        before = self.speaker, self.notes
        unsent = self.unsent.popleft()
        under_way = self._rendering
        if under_way is not None and unsent.renders and unsent is not under_way:
            self.unsent.append(unsent)
            self.unsent.remove(under_way)
            unsent = under_way
        try:
            self.speaker, self.notes = unsent.speaker, unsent.notes
            self._go_on(unsent, self.turn.over)
        finally:
            self.speaker, self.notes = before
            if unsent is under_way:
                self._rendering = None
            if unsent.pieces:
                try:
                    self._queue(unsent)  # the others have theirs first
                except Exception as error:  # noqa: BLE001  (nobody is forgotten)
                    self.faults.note(error, "delivery")
                    self.unsent.append(unsent)
                if unsent.part and unsent.renders:
                    self._rendering = unsent
            else:
                unsent.done()
        return unsent


NO_ROUTE = Route(Targets(()), 0, 0)


def _never() -> bool:
    return False


def _enqueued(targets: Targets | CopyTargets) -> int:
    if isinstance(targets, CopyTargets):
        return targets.direct.enqueued + targets.copies.enqueued
    return targets.enqueued


def _count(targets: Targets | CopyTargets) -> int:
    if isinstance(targets, CopyTargets):
        return len(targets.direct.peers) + len(targets.copies.peers)
    return len(targets.peers)
