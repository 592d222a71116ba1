"""Where messages go in the mesh, without I/O.

Messages for other daemons leave as batches of whole frames, which stay whole all the way. All
frames of a batch are wanted by the same daemons, so its first one tells where it goes on: down the
tree of its origin, along the branches that lead to those daemons. While the graph is changing,
batches go over all links for a while instead, behind the advert of the change.

Invariants:

- A batch is taken once: its number goes through the window of its origin's life first.
- Nothing of a batch is taken, kept or passed on before its header and its first name were checked,
  and it is known where it goes.
- A batch never goes back over the link that it came by, nor in again by way of the router.
- What a batch says of who has sent its messages is believed only if it is marked as *vouched*: the
  daemon that it is of has taken them in on its hub port, and says who it was.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakValueDictionary

from pubsubd import wire
from pubsubd.broker import Broker
from pubsubd.limits import MAX_LINE, READ_SIZE
from pubsubd.mesh.link import MAX_BATCH, RELAY, Link
from pubsubd.mesh.remotes import WORK_PER_WAY, Group, Outbound, Remote
from pubsubd.mesh.state import State
from pubsubd.mesh.window import Window
from pubsubd.outbox import Pieces
from pubsubd.routing import Unfinished
from pubsubd.targets import Receiver

TTL = 255
"""Links that a batch crosses at most."""

FLOOD = 1.0
"""Seconds after a change of the graph in which batches go over all links, and longer if news takes
long through the mesh."""

VOUCHED = "vouched"
"""The last word of the head of a batch whose origin vouches for the senders that it names."""

MAX_WAYS = 65_536
"""Answers to where batches of an origin for a group go, some 200 bytes each, that are kept."""

_HEAD = 200  # bytes of a batch's first line at most
_DIGITS = 18  # of a number in it


class _Batch(NamedTuple):
    """The head of a batch, and the header of its first message."""

    node: str
    life: str
    sequence: int
    ttl: int
    messages: int
    vouched: bool
    key: bytes
    name: bytes
    size: int
    start: int  # of the messages


class Forwarding:
    """What this daemon sends, passes on and takes.

    Attributes:
        outbound: what was put for other daemons.
        general: whether others believe that more is wanted here than is.
    """

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self.outbound = Outbound(broker)
        self._unsettled = float("-inf")
        self.general = False
        self._sequence = 0
        self._windows: dict[str, tuple[str, Window]] = {}  # node -> its life, and what has come
        self._groups: WeakValueDictionary[frozenset[str], Group] = WeakValueDictionary()
        self._version = 0  # of the ways that the groups remember
        self._known = 0  # about how many these are
        self._flood_until = float("-inf")
        broker.router.bundle = self._bundle
        broker.outbound = self.outbound.runs
        broker.ship = self._ship

    def forget_ways(self) -> None:
        """Forget where batches go: the links have changed."""
        self._version += 1
        self._known = 0

    def flood(self) -> None:
        """Send batches over all links for a while: the graph has changed."""
        self.forget_ways()
        self._flood_until = self._state.now() + FLOOD + self._state.spread

    def look_closely(self) -> None:
        """Look through all that comes for a while: others may not know yet what is wanted here."""
        self._unsettled = self._state.now() + FLOOD + self._state.spread

    def forget(self, node: str) -> None:
        """Forget what has come of a daemon."""
        self._windows.pop(node, None)

    def _bundle(self, remotes: frozenset[Receiver]) -> Group:
        nodes = frozenset(one.node for one in remotes if isinstance(one, Remote))
        group = self._groups.get(nodes)
        if group is None:
            group = self._groups[nodes] = Group(nodes, self.outbound)
        return group

    @property
    def flooding(self) -> bool:
        """Whether batches go over all links, because the graph has just changed."""
        return self._state.now() < self._flood_until

    def _ways(self, origin: str, group: Group | None, arrival: Link | None) -> list[Link]:
        """Return the links by which a batch of ``origin`` for ``group`` goes on.

        Raises:
            Unfinished: that takes longer to find out than this turn has.
        """
        links = self._state.links
        if self._state.now() < self._flood_until:
            return [one for one in links.values() if one.ready and one is not arrival]
        if group is None or (arrival is not None and len(links) < 2):
            return []
        if group.version != self._version:
            group.version = self._version
            group.ways.clear()
        ways = group.ways.get(origin)
        if ways is None:
            branches = self._state.table.branches(origin, self._broker.turn.over)
            if branches is None:
                if arrival is not None:
                    raise Unfinished
                return [one for one in links.values() if one.ready]  # who publishes cannot wait
            nodes = {branches[node] for node in group.nodes if node in branches}
            ways = tuple(links[node] for node in sorted(nodes) if node in links)
            if self._known >= MAX_WAYS:
                self.forget_ways()
            self._known += 1
            group.ways[origin] = ways
        return [one for one in ways if one.ready and one is not arrival]

    def _send(self, link: Link, frame: Pieces, count: int) -> None:
        """Send a batch by one of several links; what goes wrong there ends that link alone."""
        try:
            link.send(frame, count)
        except Exception as error:  # noqa: BLE001  (the other links get theirs)
            self._broker.faults.end(link.peer, error)

    def _ship(self) -> None:
        """Send what was put for other daemons."""
        runs = self.outbound.runs[:]
        self.outbound.runs.clear()
        group: Group | None = None
        vouched = False
        chunks: list[bytes] = []
        size = 0
        for whose, frames, mark in runs:
            if whose is not group or mark is not vouched or size >= READ_SIZE:
                if group is not None:
                    self._originate(group, chunks, size, vouched)
                group, vouched, chunks, size = whose, mark, [], 0
            chunks += frames.parts if isinstance(frames, Pieces) else (frames,)
            size += frames.size if isinstance(frames, Pieces) else len(frames)
        if group is not None:
            self._originate(group, chunks, size, vouched)

    def _originate(self, group: Group, chunks: list[bytes], size: int, vouched: bool) -> None:
        state = self._state
        count, group.messages = group.messages, 0
        ways = self._ways(state.node, group, None)
        group.work = WORK_PER_WAY * (1 + len(ways))
        if size > MAX_BATCH - MAX_LINE:
            state.counters.dropped += 1
        elif ways:
            self._sequence += 1
            state.counters.originated += 1
            head = _head(f"{state.node}@{state.life}", self._sequence, TTL, count, vouched)
            frame = _frame(head, chunks, size)
            for link in ways:
                self._send(link, frame, count)

    def relay(self, link: Link, data: bytes) -> bool:
        """Take a batch that has come by ``link``; whether work is left for :meth:`go_on`.

        Raises:
            Unfinished: where it goes takes longer to find out than this turn has; nothing has
                happened yet, and it is to be taken again in the next turn.
        """
        state, counters, router = self._state, self._state.counters, self._broker.router
        batch = self._read(data)
        if batch is None:
            counters.broken += 1
            return False
        node = batch.node
        life, window = self._windows.get(node, ("", Window()))
        if life != batch.life and node != state.node:
            advert = state.table.adverts.get(node)
            if advert is None or str(advert.life) != batch.life:
                counters.unknown_origin += 1
                self._count(link, batch)
                return False
            window = Window()
        if node == state.node or window.has(batch.sequence):
            counters.duplicates += 1
            self._count(link, batch)
            return False
        route = router.relays.get(batch.key) or router.learn_relayed(
            batch.key, batch.name, batch.size
        )
        targets = route.targets
        group = targets.far if isinstance(targets.far, Group) else None
        ways = self._ways(node, group, link) if batch.ttl > 1 else []
        # From here on, it is ours.
        self._count(link, batch)
        self._windows[node] = batch.life, window
        window.take(batch.sequence)
        frames = data[batch.start :]
        counters.expired += batch.ttl <= 1
        if ways:
            counters.relayed += 1
            origin = f"{node}@{batch.life}"
            head = _head(origin, batch.sequence, batch.ttl - 1, batch.messages, batch.vouched)
            frame = _frame(head, [frames], len(frames))
            for way in ways:
                self._send(way, frame, batch.messages)
        near = len(targets.peers) > (group is not None)
        if near or self.general or state.now() < self._unsettled:
            link.speak_for(node, batch.vouched)
            return self._deliver(link, frames)
        return False

    def _count(self, link: Link, batch: _Batch) -> None:
        link.messages_in += batch.messages
        self._state.counters.received += 1

    def _read(self, data: bytes) -> _Batch | None:
        """Return what the head of a batch and the header of its first message say; None if broken.

        Whatever is taken from it is legal then, the name too.
        """
        end = data.find(b"\n", 0, _HEAD)
        match = self._broker.match_header(b"\n" + data[end + 1 : end + 1 + MAX_LINE])
        if end < 0 or match is None or not data[:end].isascii():
            return None
        key, name, digits = match.group(0, 1, 2)
        words = data[:end].decode().split(" ")
        node, at, life = words[0].partition("@")
        vouched = words[4:] == [VOUCHED]
        numbers = (life, *words[1:4])
        if (
            not at
            or len(words) != 4 + vouched
            or not all(one.isdigit() and len(one) <= _DIGITS for one in numbers)
            or not name.startswith(wire.FORWARD)
            or not (name.isascii() or wire.is_utf8(name))
        ):
            return None
        sequence, ttl, count = map(int, words[1:4])
        return _Batch(node, life, sequence, ttl, count, vouched, key, name, int(digits), end + 1)

    def go_on(self, link: Link) -> bool:
        """Go on with the batch that was the last to come by ``link``; whether work is left."""
        return self._deliver(link, b"")

    def _deliver(self, link: Link, frames: bytes) -> bool:
        """Give a batch's messages to those of this daemon's peers that want them."""
        broker, inner = self._broker, link.inner
        speaker = broker.speaker
        self.outbound.closed = True
        try:
            if broker.receive(inner, frames):
                return True
        finally:
            self.outbound.closed = False
            broker.speaker = speaker
        if inner.halfway or inner.ending is not None:
            self._state.counters.broken += 1
            link.forget_inner()
        return False


def _head(origin: str, sequence: int, ttl: int, count: int, vouched: bool) -> bytes:
    mark = f" {VOUCHED}" if vouched else ""
    return f"{origin} {sequence} {ttl} {count}{mark}\n".encode()


def _frame(head: bytes, chunks: list[bytes], size: int) -> Pieces:
    """Return the frame of a batch with that head and ``size`` bytes of messages."""
    start = b"pub %b %d %b" % (RELAY, len(head) + size, head)
    return Pieces([start, *chunks, b"\n"])
