"""Simulated daemons and their connections.

A daemon is the real :class:`~pubsubd.broker.broker.Broker` with the real
:class:`~pubsubd.mesh.core.Mesh`; only its surroundings are made up. A connection is a pair of their
peers: the output of one arrives as input of the other after a latency, in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Turn
from pubsubd.broker.unsent import Waited
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.sim.world import World
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.routing.outbox import Pieces


class Daemon:
    """A daemon, dead or alive. Subclasses see what its clients and connections carry.

    Args:
        world: where it runs.
        config: how it takes part in the mesh.

    Attributes:
        node: its id.
        starts: how often it was started.
        started: when, the last time.
        alive: whether it runs. If not, ``broker`` and ``mesh`` are those it had.
        vanished: whether it has ended as by a power cut, so that nothing answers for it.
        ends: its ends of connections, in order.
        skew: seconds that its clock is ahead.
    """

    broker: Broker
    mesh: Mesh

    def __init__(self, world: World, config: MeshConfig) -> None:
        self.world = world
        self.config = config
        self.node = config.node
        self.starts = 0
        self.started = 0.0
        self.skew = 0.0
        self.alive = self.vanished = False
        self.ends: dict[End, None] = {}
        self._clients: dict[str, Peer] = {}
        self._act_at = float("inf")
        self._asleep_until = 0.0

    def run(self, asleep_until: float = 0.0) -> None:
        """Start it; the mesh does nothing of its own accord until ``asleep_until``."""
        world = self.world
        self.alive = self.vanished = False  # not alive until there is something to wake
        self.starts += 1
        self.started = world.now
        self._asleep_until = asleep_until
        self._act_at = float("inf")
        self._clients.clear()
        self.broker = Broker(Limits(), clock=world.clock)
        self._waited: Waited | None = None  # by who has just said something
        self.broker.delivery.on_wait = self._note_wait
        self.broker.delivery.turn = Turn(world.clock)  # the machine's clock would make runs differ
        self.mesh = Mesh(
            self.broker,
            self.config,
            clock=world.clock,
            wall=lambda: world.wall() + self.skew,
            rng=random.Random(world.rng.random()),
            woken=self._wake,
            emit=self.note_event,
        )
        self.alive = True
        self._wake()

    def end(self, *, silent: bool = False) -> None:
        """End it; if ``silent``, its connections are not closed."""
        self.alive, self.vanished = False, silent
        for end in self.ends:
            end.open = False
            if not silent:
                end.hang_up()
        self.ends.clear()

    def say(self, client: str, data: bytes) -> None:
        """Let a client send something; it connects first if it is not there."""
        peer = self.client(client)
        while self.broker.receive(peer, data):
            data = b""
            if (waited := self._waited) is not None:
                self._waited = None
                waited.done = lambda: self.world.schedule(self.world.now, self.say, client, b"")
                return

    def _note_wait(self, waited: Waited) -> None:
        self._waited = waited

    def client(self, client: str) -> Peer:
        """Return the peer that a client is; it connects first if it is not there."""
        if client not in self._clients:
            self._join(client)
        return self._clients[client]

    def leave(self, client: str) -> None:
        """Close the connection of a client."""
        for _ in self.broker.leave(self._clients.pop(client)):
            pass

    def _join(self, client: str) -> None:
        decoder = wire.Decoder(1 << 30)

        def send(data: bytes | Pieces) -> None:
            for name, payload in decoder.feed(_whole(data)):
                self.hear(client, name, payload)

        self._clients[client] = self.broker.join(f"{client} of {self.node}", send)

    def hear(self, client: str, name: bytes, data: bytes) -> None:
        """Take a message that a client has received."""

    def carry(self, end: End, data: bytes) -> None:
        """Take whole frames that are sent over a connection."""

    def note_event(self, event: dict[str, object]) -> None:
        """Take an event, as ``//pubsubd/events`` has it."""

    def _wake(self) -> None:
        """Act when the mesh is due; called whenever that has become earlier."""
        if not self.alive:
            return
        at = max(self.mesh.due, self.world.now, self._asleep_until)
        if at < self._act_at:
            self._act_at = at
            self.world.schedule(at, self._act, at, self.starts)

    def _act(self, at: float, starts: int) -> None:
        if not self.alive or at != self._act_at or starts != self.starts:
            return
        self._act_at = float("inf")
        if self.mesh.due <= self.world.now:
            self.mesh.act()
        self._wake()


class End:
    """One end of a connection: a peer of a daemon.

    Attributes:
        connection: the connection.
        daemon: the daemon that has this end.
        other: the other end.
        open: whether this end has not been closed.
        peer: the broker's side of it.
    """

    __slots__ = ("_arrived", "_reset", "connection", "daemon", "open", "other", "peer")

    other: End

    def __init__(self, connection: Connection, daemon: Daemon, label: str) -> None:
        self.connection = connection
        self.daemon = daemon
        self._arrived = 0.0
        self._reset = False
        self.open = True
        self.peer = daemon.broker.join(label, self._send, self._end)
        daemon.ends[self] = None

    @property
    def linked(self) -> bool:
        """Whether this end is open and is a link, and the other one can hear it."""
        link = self.daemon.mesh.links.get(self.other.daemon.node)
        return (
            self.open and not self.connection.deaf and link is not None and link.peer is self.peer
        )

    def receive(self, data: bytes) -> None:
        """Let the daemon take what has arrived."""
        if self.connection.deaf:
            return
        if not self.open:
            if self.daemon.alive and not self._reset:
                self._reset = True
                self.hang_up()  # the system knows of no such connection
            return
        broker, peer = self.daemon.broker, self.peer
        while broker.receive(peer, data):
            data = b""
        if peer.ending is not None:
            self.close()

    def _send(self, data: bytes | Pieces) -> None:
        if self.open and self.peer.ending is None:
            self._say(_whole(data))

    def _say(self, data: bytes) -> None:
        self.daemon.carry(self, data)
        if not self.connection.deaf:
            self.daemon.world.schedule(self._arrival(), self.other.receive, data)

    def _arrival(self) -> float:
        """Return when what is sent now arrives: after what was sent before."""
        world = self.daemon.world
        self._arrived = max(self._arrived, world.now + world.delay())
        return self._arrived

    def _end(self, code: str, text: str) -> None:
        """Send the reason, then close the connection."""
        if self.open and self.peer.ending is None:
            self.peer.ending = ProtocolError(code, text)
            self._say(wire.error_frame(self.peer.ending))
            self.daemon.world.schedule(self.daemon.world.now, self.close)

    def close(self) -> None:
        """Close this end, and the other one when that arrives there."""
        if not self.open:
            return
        self.open = False
        self.daemon.ends.pop(self, None)
        for _ in self.daemon.broker.leave(self.peer):
            pass
        self.peer.release()
        self.hang_up()
        if self is self.connection.ends[0]:
            self.connection.closed(self.connection.refusal)

    def hang_up(self) -> None:
        """Close the other end once that arrives there."""
        if not self.connection.deaf:
            self.daemon.world.schedule(self._arrival(), self.other.close)


class Connection:
    """A connection of two daemons, the first of which has dialled.

    Args:
        src, dst: the daemons.
        closed: called with any refusal once ``src`` has noticed the end, unless it has ended.

    Attributes:
        ends: of ``src`` and of ``dst``.
        deaf: whether nothing arrives any more, and neither end notices.
        refusal: the reason why the link was refused, if it was.
    """

    def __init__(
        self,
        src: Daemon,
        dst: Daemon,
        closed: Callable[[ProtocolError | None], None] = lambda _refusal: None,
    ) -> None:
        self.closed = closed
        self.deaf = False
        self.refusal: ProtocolError | None = None
        address = f"{dst.config.host}:{dst.config.port}"
        near = End(self, src, address)
        far = End(self, dst, f"{src.config.host}:{40_000 + len(dst.ends)}")
        near.other, far.other = far, near
        self.ends = near, far
        src.mesh.greet(near.peer, address, self._refuse)

    def _refuse(self, refusal: ProtocolError | None) -> None:
        self.refusal = self.refusal or refusal

    def close(self) -> None:
        """Close both ends at once."""
        for end in self.ends:
            end.close()


def _whole(data: bytes | Pieces) -> bytes:
    return data.whole() if isinstance(data, Pieces) else data
