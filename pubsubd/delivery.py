"""What is put to whom, and sent at the end, without I/O.

Strategy: a *run* of frames that go to the same peers is one chunk, put once to each of them. At the
end of a read, each peer that was given anything is sent all of it as one piece.

Invariant: nothing but whole frames, of which every byte is checked, is put to a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pubsubd import wire
from pubsubd.acl import OUTSIDE
from pubsubd.errors import ProtocolError
from pubsubd.gate import Refusals
from pubsubd.peer import Peer
from pubsubd.routing import Router
from pubsubd.stats import Counters
from pubsubd.targets import Denied, Fork, Route, Targets

AUTH = b"//pubsubd/auth"
"""The request that logs in."""


class Delivery:
    """The receivers, and what they are given.

    Attributes:
        router: who wants what.
        counters: what has happened.
        notes: the chunk that was put together last, and what is known of the messages in it.
        outbound: what was put for other daemons and is not sent; ``ship`` sends it. The mesh's.
        speaker: whose input is being worked off, or was last; None if it is the daemon itself.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.router = Router()
        self.counters = Counters()
        self.speaker: Peer | None = None
        self.notes: tuple[bytes, list[object]] = (b"", [])
        self.outbound: Sequence[object] = ()
        self.ship: Callable[[], None] = lambda: None
        self._touched: list[Targets | Fork | Denied] = []
        self._run = _Run(self.router.nobody)

    def put(
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
        self.speaker = peer
        frame = b"pub %b %d %b\n" % (name, len(data), data)
        targets = self.router.receivers(name)
        run = self._run
        if (
            targets is not run.targets
            or targets.special
            or (None if echo else peer) is not run.spared
        ):
            self.end_run()
            run.targets, run.spared = targets, None if echo else peer
            run.count = _count(targets)
            if run.spared is not None and isinstance(targets, Targets):
                run.count -= run.spared in targets.peers
            run.header = wire.header(name, len(data))
        run.frames.append(frame)
        run.notes.append(note)
        self.counters.messages_in += 1
        return run.count

    def end_run(self) -> None:
        """Put the frames that have been kept together to those who get them."""
        run = self._run
        if not run.frames:
            return
        targets, frames, spared = run.targets, run.frames, run.spared
        count = len(frames)
        chunk = frames[0] if count == 1 else b"".join(frames)
        frames.clear()
        self.notes = chunk, run.notes
        run.notes = []
        route = NO_ROUTE
        if targets.special:  # one frame at a time
            route = Route(targets, len(run.header) + 1, len(chunk))
        before = len(spared.fresh) if spared is not None else 0
        self.deliver(targets, route, chunk, 0, len(chunk), count)
        if spared is not None and len(spared.fresh) > before:
            del spared.fresh[before:]
            self.counters.messages_out -= count

    def count_receivers(self, name: bytes) -> int:
        """Return how many peers get ``name``, or its copy."""
        return _count(self.router.receivers(name))

    def flush(self) -> None:
        """Send what was put."""
        self.end_run()
        if self._touched:
            self.send()

    def publish(self, name: bytes, data: bytes) -> None:
        """Send a message under one of the daemon's own names to those who want it."""
        speaker, self.speaker = self.speaker, None
        frame = wire.frame(name, data)
        targets = self.router.targets_of_own(name)
        self.deliver(targets, NO_ROUTE, frame, 0, len(frame), 1)
        self.send()
        self.speaker = speaker  # it may be in the middle of something

    def deliver(
        self,
        targets: Targets | Fork | Denied,
        route: Route,
        buf: bytes,
        start: int,
        stop: int,
        count: int,
    ) -> None:
        """Put the run of ``count`` frames at ``buf[start:stop]`` to its receivers."""
        if isinstance(targets, Fork):
            self.deliver(targets.direct, route, buf, start, stop, count)
            rest = route.width - 1  # all frames of such a run have one header
            size = route.length - route.width
            head = wire.header(targets.copy_name, size)
            frames = range(start + rest, stop, (stop - start) // count)
            copies = b"".join([head + buf[at : at + size] + b"\n" for at in frames])
            self.deliver(targets.copies, route, copies, 0, len(copies), count)
        elif targets.puts and count:
            chunk = buf[start:stop]
            for put in targets.puts:
                put(chunk)
            if not targets.pending:
                self._touched.append(targets)
            targets.pending += count
        elif isinstance(targets, Denied):
            assert self.speaker is not None
            self.deny(self.speaker, buf[start + 4 : buf.index(b" ", start + 4)], count)
            self.counters.messages_in -= count  # as who has put them counts them

    def deny(self, peer: Peer, name: bytes, count: int = 1) -> None:
        """Refuse messages of a peer, the first of which has that name, for lack of rights.

        They are counted one by one, and told by :meth:`tell_refusals`.
        """
        assert peer.gate is not None
        self.counters.errors[peer.gate.code] += count
        if peer.refusals is None:
            peer.refusals = Refusals()
        peer.refusals.add(peer.gate.code, name, count)

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
        self.deliver(self.router.only(peer), NO_ROUTE, frame, 0, len(frame), 1)

    def send(self) -> None:
        """Hand each touched peer what was put to it, as one piece.

        Peers that were given the same chunks are given the same bytes object. Chunks are told
        apart by their ids: all of them existed before the first one can go away.
        """
        counters = self.counters
        joined: dict[tuple[int, ...], bytes] = {}
        for targets in self._touched:
            counters.messages_out += targets.pending * len(targets.peers)
            if targets.far is not None:
                targets.far.count(targets.pending)
            targets.pending = 0
            for peer in targets.peers:
                fresh = peer.fresh
                if not fresh:
                    continue
                if len(fresh) == 1:
                    data = fresh[0]
                else:
                    ids = tuple(map(id, fresh))
                    data = joined.get(ids) or joined.setdefault(ids, b"".join(fresh))
                fresh.clear()
                counters.bytes_out += len(data)
                peer.send(data)
        self._touched.clear()
        if self.outbound:
            self.ship()


class _Run:
    """Messages put one after the other that go to the same peers.

    Attributes:
        targets: these peers.
        spared: the one of them that does not get them, if there is one.
        frames: the messages.
        notes: what is known of each of them.
        count: how many peers get them.
        header: of the last one.
    """

    __slots__ = ("count", "frames", "header", "notes", "spared", "targets")

    def __init__(self, targets: Targets | Fork) -> None:
        self.targets = targets
        self.spared: Peer | None = None
        self.frames: list[bytes] = []
        self.notes: list[object] = []
        self.count = 0
        self.header = b""


NO_ROUTE = Route(Targets(()), 0, 0)


def _count(targets: Targets | Fork) -> int:
    if isinstance(targets, Fork):
        return len(targets.direct.peers) + len(targets.copies.peers)
    return len(targets.peers)
