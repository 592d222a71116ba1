"""Where messages go in the mesh, without I/O.

Messages for other daemons leave as batches of whole frames, which stay whole all the way. All
frames of a batch are wanted by the same daemons, so its first one tells where it goes on: down the
tree of its origin, along the branches that lead to those daemons. While the graph is changing,
batches go over all links for a while instead, behind the advert of the change.

Invariants:

- A batch is taken once: its number goes through the window of its origin's life first.
- A batch never goes back over the link that it came by, nor in again by way of the router.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from pubsubd.broker import Broker
from pubsubd.limits import MAX_LINE, READ_SIZE
from pubsubd.mesh.link import MAX_BATCH, RELAY, Link
from pubsubd.mesh.remotes import Group, Outbound, Remote
from pubsubd.mesh.state import State
from pubsubd.mesh.window import Window
from pubsubd.outbox import Pieces
from pubsubd.targets import Receiver

TTL = 255
"""Links that a batch crosses at most."""

FLOOD = 1.0
"""Seconds after a change of the graph in which batches go over all links, and longer if news takes
long through the mesh."""


class Forwarding:
    """What this daemon sends, passes on and takes.

    Attributes:
        outbound: what was put for other daemons.
        general: whether others believe that more is wanted here than is.
    """

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self.outbound = Outbound()
        self._unsettled = float("-inf")
        self.general = False
        self._sequence = 0
        self._windows: dict[bytes, Window] = {}
        self._groups: WeakValueDictionary[frozenset[str], Group] = WeakValueDictionary()
        self._routes: dict[tuple[str, Group], tuple[Link, ...]] = {}
        self._flood_until = float("-inf")
        broker.router.bundle = self._bundle
        broker.outbound = self.outbound.runs
        broker.ship = self._ship

    def forget_ways(self) -> None:
        """Forget where batches go: the links have changed."""
        self._routes.clear()

    def flood(self) -> None:
        """Send batches over all links for a while: the graph has changed."""
        self._routes.clear()
        self._flood_until = self._state.now() + FLOOD + self._state.spread

    def look_closely(self) -> None:
        """Look through all that comes for a while: others may not know yet what is wanted here."""
        self._unsettled = self._state.now() + FLOOD + self._state.spread

    def forget(self, node: str) -> None:
        """Forget what has come of a daemon."""
        for origin in [key for key in self._windows if key.startswith(node.encode() + b"@")]:
            del self._windows[origin]

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
        """Return the links by which a batch of ``origin`` for ``group`` goes on."""
        if self._state.now() < self._flood_until:
            return [one for one in self._state.links.values() if one.ready and one is not arrival]
        if group is None:
            return []
        key = origin, group
        ways = self._routes.get(key)
        if ways is None:
            branches = self._state.table.branches(origin)
            nodes = {branches[node] for node in group.nodes if node in branches}
            ways = tuple(
                self._state.links[node] for node in sorted(nodes) if node in self._state.links
            )
            self._routes[key] = ways
        return [one for one in ways if one.ready and one is not arrival]

    def _ship(self) -> None:
        """Send what was put for other daemons."""
        runs = self.outbound.runs[:]
        self.outbound.runs.clear()
        group: Group | None = None
        chunks: list[bytes] = []
        size = 0
        for whose, run in runs:
            if whose is not group or size >= READ_SIZE:
                if group is not None:
                    self._originate(group, chunks, size)
                group, chunks, size = whose, [], 0
            chunks += run.parts if isinstance(run, Pieces) else (run,)
            size += run.size if isinstance(run, Pieces) else len(run)
        if group is not None:
            self._originate(group, chunks, size)

    def _originate(self, group: Group, chunks: list[bytes], size: int) -> None:
        count, group.messages = group.messages, 0
        ways = self._ways(self._state.node, group, None)
        if size > MAX_BATCH - MAX_LINE:
            self._state.counters.dropped += 1
        elif ways:
            self._sequence += 1
            self._state.counters.originated += 1
            origin = b"%b@%d" % (self._state.node.encode(), self._state.life)
            frame = _batch(origin, self._sequence, TTL, count, chunks, size)
            for link in ways:
                link.send(frame, count)

    def relay(self, link: Link, data: bytes) -> bool:
        """Take a batch that has come by ``link``; whether work is left for :meth:`go_on`."""
        counters = self._state.counters
        try:
            end = data.index(b"\n", 0, 200)
            name, *numbers = data[:end].decode("ascii").split(" ")
            node, life = name.split("@")
            if not all(one.isdigit() and len(one) <= 18 for one in (*numbers, life)):
                raise ValueError
            sequence, ttl, count = map(int, numbers)
            header = self._broker.match_header(b"\n" + data[end + 1 : end + 1 + MAX_LINE])
            if header is None:
                raise ValueError
        except ValueError:
            counters.broken += 1
            return False
        origin = name.encode()
        link.messages_in += count
        counters.received += 1
        window = self._windows.get(origin)
        if window is None:
            advert = self._state.table.adverts.get(node)
            if node == self._state.node:
                counters.duplicates += 1
                return False
            if advert is None or str(advert.life) != life:
                counters.unknown_origin += 1
                return False
            window = self._windows[origin] = Window()
        if not window.take(sequence):
            counters.duplicates += 1
            return False
        router = self._broker.router
        key, first, digits = header.group(0, 1, 2)
        route = router.relays.get(key) or router.learn_relayed(key, first, int(digits))
        targets = route.targets
        group = targets.far if isinstance(targets.far, Group) else None
        frames = data[end + 1 :]
        if ttl > 1:
            ways = self._ways(node, group, link)
            if ways:
                counters.relayed += 1
                batch = _batch(origin, sequence, ttl - 1, count, [frames], len(frames))
                for way in ways:
                    way.send(batch, count)
        else:
            counters.expired += 1
        near = len(targets.peers) > (group is not None)
        if near or self.general or self._state.now() < self._unsettled:
            return self._deliver(link, frames)
        return False

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
            link.renew_inner()
        return False


def _batch(
    origin: bytes, sequence: int, ttl: int, count: int, chunks: list[bytes], size: int
) -> Pieces:
    """Return the frame of a batch of ``count`` messages."""
    head = b"%b %d %d %d\n" % (origin, sequence, ttl, count)
    start = b"pub %b %d %b" % (RELAY, len(head) + size, head)
    return Pieces([start, *chunks, b"\n"])
