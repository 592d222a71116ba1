"""Forwarding of messages between daemons, without I/O.

Messages for other daemons leave as batches of whole frames, and a batch stays whole all the way.
All frames of a batch have the same receiving daemons, so its first frame decides the next hops:
down the tree of its origin, into the subtrees that have receivers. For a while after a change of
the graph, batches go over all links instead, behind the advert of the change.

Invariants:

- A batch is taken once: its number passes the window of its origin's incarnation first.
- Nothing of a batch is taken, kept or passed on before its header and its first name are checked
  and its next hops are known.
- A batch never goes back over the link that it came by, nor into the mesh again by the router.
- The senders that a batch names are believed only if it is marked as *vouched*: its origin has
  taken the messages in on its hub port, and knows who sent them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast
from weakref import WeakValueDictionary

from pubsubd.broker.broker import Broker
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.link import MAX_BATCH, RELAY, Link
from pubsubd.mesh.remotes import WORK_PER_LINK, Group, Outbound, Remote, Run
from pubsubd.mesh.state import State
from pubsubd.mesh.window import Window
from pubsubd.protocol import wire
from pubsubd.protocol.limits import MAX_LINE, READ_SIZE
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.targets import CopyTargets, Receiver

TTL = 255
"""Links that a batch crosses at most."""

FLOOD = 1.0
"""Seconds after a change of the graph in which batches go over all links, and longer if news takes
long through the mesh."""

VOUCHED = b"vouched"
"""The last word of the head of a batch whose origin vouches for the senders that it names."""

MAX_NEXT_HOPS = 65_536
"""Cached next hops, each for an origin and a group, some 200 bytes."""

MAX_COVERED = 4_096
"""Names of which is remembered whether this daemon is sent them, up to 1 KiB each."""

_JOINED = 2_048  # bytes of a batch up to which it is one piece

_OVER = float("-inf")

_HEAD = re.compile(
    rb"([A-Za-z0-9._:\-]{1,64}@[0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18})( %b)?\n"
    % VOUCHED
).match
"""Match the first line of a batch: origin, sequence, ttl, count, and the mark if it has one."""


class Forwarding:
    """The batches that this daemon sends, passes on and takes.

    Attributes:
        outbound: messages for other daemons that are not sent yet.
        letters: what takes the letters among the messages that are delivered.
        state: of the mesh.
        flood_until: when batches stop to go over all links, after the last change of the graph.
    """

    def __init__(self, state: State, broker: Broker) -> None:
        self.state = state
        self._broker = broker
        self.letters: Letters | None = None
        self.outbound = Outbound(broker.delivery)
        self._unsettled = _OVER
        self._advertised: tuple[bytes, ...] = ()
        self._covered: dict[bytes, bool] = {}  # name -> whether what is advertised covers it
        self._sequence = 0
        self._origin = -1, b""  # this daemon as an origin, and its incarnation
        self._windows: dict[bytes, tuple[str, Window]] = {}  # origin -> its id, and what has come
        self._origins: dict[str, bytes] = {}  # id -> the origin that has a window
        self._groups: WeakValueDictionary[frozenset[str], Group] = WeakValueDictionary()
        self._version = 0  # of the next_hops that the groups remember
        self._known = 0  # about how many these are
        self.flood_until = _OVER
        broker.router.bundle = self._bundle
        broker.delivery.outbound = self.outbound.runs
        broker.delivery.ship = self._ship

    def forget_next_hops(self) -> None:
        """Forget all next hops: the links have changed."""
        self._version += 1
        self._known = 0

    def flood(self) -> None:
        """Send batches over all links for a while: the graph has changed."""
        self.forget_next_hops()
        self.flood_until = self.state.now() + FLOOD + self.state.spread

    def note_advertised(self, interests: tuple[bytes, ...]) -> None:
        """Take note of the interests that this daemon has advertised."""
        if interests != self._advertised:
            self._advertised = interests
            self._covered.clear()

    def _is_covered(self, name: bytes) -> bool:
        """Return whether this daemon is sent messages with that name.

        Nobody here may want them: an exact name is advertised as a substring, and many interests
        as a few that cover them. Others of their batch may be wanted.
        """
        covered = self._covered.get(name)
        if covered is None:
            if len(self._covered) >= MAX_COVERED:
                self._covered.clear()
            covered = any(interest in name for interest in self._advertised)
            self._covered[name] = covered
        return covered

    def look_closely(self) -> None:
        """Look through all batches for a while: others may not know this daemon's interests yet."""
        self._unsettled = self.state.now() + FLOOD + self.state.spread

    def forget(self, node: str) -> None:
        """Forget which batches of a daemon have come."""
        self._windows.pop(self._origins.pop(node, b""), None)

    def _bundle(self, remotes: frozenset[Receiver]) -> Group:
        nodes = frozenset(one.node for one in remotes if isinstance(one, Remote))
        group = self._groups.get(nodes)
        if group is None:
            group = self._groups[nodes] = Group(nodes, self.outbound)
        return group

    @property
    def flooding(self) -> bool:
        """Whether batches go over all links, because the graph has just changed."""
        return self.state.now() < self.flood_until

    def find_next_hops(
        self, origin: str, group: Group | None, arrival: Link | None
    ) -> Sequence[Link]:
        """Return the links over which a batch of ``origin`` for ``group`` goes on.

        Raises:
            Unfinished: finding them takes longer than this turn.
        """
        links = self.state.links
        if self.flood_until != _OVER:
            if self.flooding:
                return [one for one in links.values() if one.ready and one is not arrival]
            self.flood_until = _OVER  # nobody looks at the clock again
        if group is None or (arrival is not None and len(links) < 2):
            return []
        if group.version != self._version:
            group.version = self._version
            group.next_hops.clear()
        next_hops = group.next_hops.get(origin)
        if next_hops is None:
            try:
                branches = self.state.table.subtree(origin, self._broker.delivery.turn.over)
            except Exception as error:  # noqa: BLE001  (over all links it arrives as well)
                self._broker.faults.note(error, "mesh")
                return [one for one in links.values() if one.ready and one is not arrival]
            if branches is None:
                if arrival is not None:
                    raise Unfinished
                return [one for one in links.values() if one.ready]  # who publishes cannot wait
            nodes = {branches[node] for node in group.nodes if node in branches}
            next_hops = tuple(links[node] for node in sorted(nodes) if node in links)
            if self._known >= MAX_NEXT_HOPS:
                self.forget_next_hops()
            self._known += 1
            group.next_hops[origin] = next_hops
        if len(next_hops) == 1 and next_hops[0].ready and next_hops[0] is not arrival:
            return next_hops
        return [one for one in next_hops if one.ready and one is not arrival]

    def _send(self, link: Link, frame: bytes | Pieces, count: int) -> None:
        """Send a batch over one of several links; an error ends that link alone."""
        try:
            link.send(frame, count)
        except Exception as error:  # noqa: BLE001  (the other links get theirs)
            self._broker.faults.end(link.peer, error)

    def _ship(self) -> None:
        """Send all messages for other daemons, as batches."""
        runs = self.outbound.runs[:]
        self.outbound.runs.clear()
        batches = runs
        if len(runs) > 1:
            try:
                batches = _gather(runs)
            except Exception as error:  # noqa: BLE001  (the publishers are not at fault)
                self._broker.faults.note(error, "mesh")  # and each goes alone
        for batch in batches:
            for _ in range(2):  # again, if a mistake of this program's comes between
                try:
                    self._originate(*batch)
                except Exception as error:  # noqa: BLE001  (the publisher is not at fault)
                    self._broker.faults.note(error, "mesh")
                else:
                    break

    def _originate(self, group: Group, frames: bytes | Pieces, vouched: bool) -> None:
        """Send one batch."""
        state = self.state
        size, count = len(frames), group.messages
        next_hops = self.find_next_hops(state.node, group, None)
        group.work = WORK_PER_LINK * (1 + len(next_hops))
        if size > MAX_BATCH - MAX_LINE:
            state.counters.dropped += 1
        elif next_hops:
            self._sequence += 1
            state.counters.originated += 1
            if self._origin[0] != state.incarnation:
                origin = b"%b@%d" % (state.node.encode(), state.incarnation)
                self._origin = state.incarnation, origin
            mark = b" " + VOUCHED if vouched else b""
            frame = _frame(self._origin[1], self._sequence, TTL, count, mark, frames, size)
            for link in next_hops:
                self._send(link, frame, count)
        group.messages = 0

    def relay(self, link: Link, data: bytes) -> bool:
        """Take a batch from ``link``; return whether work is left for :meth:`go_on`.

        Raises:
            Unfinished: finding its next hops takes longer than this turn; nothing has happened
                yet, and it is to be taken again in the next turn.
        """
        # Hot path: scripts/bench mesh-two-16, mesh-send.
        state, counters, letters = self.state, self.state.counters, self.letters
        head = _HEAD(data)
        if head is None:
            counters.broken += 1
            return False
        origin, sequence, ttl, messages, mark = head.groups(b"")
        start = head.end()
        letter, first = 0, None  # where the letter to this daemon begins that it is, or its header
        if messages == b"1" and letters is not None:
            letter = letters.find(data, start)
        if not letter:
            first = self._broker.match_relayed(b"\n" + data[start : start + MAX_LINE])
            if first is None or not _is_forwarded(first[1]):
                counters.broken += 1
                return False
        number, left, count = int(sequence), int(ttl), int(messages)
        node, window = self._windows.get(origin) or self._meet(origin)
        if window is None or (number != window.highest + 1 and window.has(number)):
            counters.duplicates += window is not None or node == state.node
            counters.unknown_origin += window is None and node != state.node
            counters.received += 1
            link.messages_in += count
            return False
        next_hops: Sequence[Link] = ()
        near = False
        if first is not None:
            key, name, digits = first.group(0, 1, 2)
            router = self._broker.router
            route = router.relays.get(key) or router.learn_relayed(key, name, int(digits))
            targets = route.targets
            direct = targets.direct if isinstance(targets, CopyTargets) else targets
            group = direct.far if isinstance(direct.far, Group) else None
            next_hops = self.find_next_hops(node, group, link) if left > 1 else ()
            near = direct is not targets or len(direct.peers) > (group is not None)
            near = near or state.now() < self._unsettled or self._is_covered(name)
        # From here on, it is taken.
        counters.received += 1
        link.messages_in += count
        if window.highest == 0:
            self.forget(node)
            self._windows[origin], self._origins[node] = (node, window), origin
        window.take(number)
        if letter and letters is not None:
            return letters.take_one(node, data, start, letter)
        long = len(data) - start > READ_SIZE
        frames = cast("bytes", memoryview(data)[start:]) if long else data[start:]
        counters.expired += left <= 1
        if next_hops:
            counters.relayed += 1
            frame = _frame(origin, number, left - 1, count, mark, frames, len(frames))
            for next_hop in next_hops:
                self._send(next_hop, frame, count)
        if near:
            link.speak_for(node, mark != b"")
            if long:
                link.unread = memoryview(frames)
                return self.go_on(link)
            return self._deliver(link, frames)
        return False

    def _meet(self, origin: bytes) -> tuple[str, Window | None]:
        """Return the id of an origin without a window, and a new window for it.

        None if the incarnation is not the one that the daemon has advertised.
        """
        node, _, incarnation = origin.decode().rpartition("@")
        advert = self.state.table.adverts.get(node)
        known = (
            advert is not None
            and node != self.state.node
            and str(advert.incarnation) == incarnation
        )
        return node, Window() if known else None

    def go_on(self, link: Link) -> bool:
        """Go on with the last batch of ``link``; return whether work is left of it."""
        frames = b""
        if not link.halted:  # the next part of a long batch, which would be one step as a whole
            frames, link.unread = bytes(link.unread[:READ_SIZE]), link.unread[READ_SIZE:]
        return self._deliver(link, frames)

    def _deliver(self, link: Link, frames: bytes) -> bool:
        """Deliver messages of a batch to this daemon's own subscribers; whether some are left."""
        broker, inner = self._broker, link.inner
        speaker = broker.delivery.speaker
        self.outbound.closed = True
        try:
            link.halted = broker.receive(inner, frames)
        finally:
            self.outbound.closed = False
            broker.delivery.speaker = speaker
        if link.halted or link.unread:
            return True
        if inner.halfway or inner.ending is not None:
            self.state.counters.broken += 1
            link.forget_inner()
        return self.letters is not None and self.letters.work()


def _is_forwarded(name: bytes) -> bool:
    """Return whether a name is legal and goes from daemon to daemon."""
    return name.startswith(wire.FORWARD) and (name.isascii() or wire.is_utf8(name))


def _gather(runs: list[Run]) -> list[Run]:
    """Return batches: what goes to the same daemons one after the other, up to a size."""
    batches: list[tuple[Group, list[bytes], bool]] = []
    size = 0
    for whose, frames, vouched in runs:
        if not batches or size >= READ_SIZE or batches[-1][::2] != (whose, vouched):
            batches.append((whose, [], vouched))
            size = 0
        batches[-1][1].extend(frames.parts if isinstance(frames, Pieces) else (frames,))
        size += len(frames)
    return [(whose, Pieces(parts), vouched) for whose, parts, vouched in batches]


def _frame(
    origin: bytes,
    sequence: int,
    ttl: int,
    count: int,
    mark: bytes,
    frames: bytes | Pieces,
    size: int,
) -> bytes | Pieces:
    """Return the frame of a batch of ``count`` messages, which are ``size`` bytes."""
    head = b"%b %d %d %d%b\n" % (origin, sequence, ttl, count, mark)
    start = b"pub %b %d %b" % (RELAY, len(head) + size, head)
    if isinstance(frames, Pieces):
        return Pieces([start, *frames.parts, b"\n"])
    return b"%b%b\n" % (start, frames) if size <= _JOINED else Pieces([start, frames, b"\n"])
