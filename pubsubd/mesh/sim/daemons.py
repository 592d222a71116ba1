"""Simulated daemons, and what surrounds them: the ends of connections, and who dials."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pubsubd.broker.broker import Broker
from pubsubd.broker.turn import Turn
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.link import RELAY
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.routing.outbox import Pieces

if TYPE_CHECKING:
    from pubsubd.mesh.sim.simulation import Simulation

# As the dialler of a daemon has them:
_CONNECT_TIMEOUT = 10.0  # seconds until an address that does not answer is given up
_BACKOFF, _BACKOFF_MAX = 0.5, 30.0  # seconds: the longest wait before a second attempt, and ever
_STEADY = 10.0  # seconds that a link has to last for the waits to begin anew


class End:
    """One end of a connection: a peer of a daemon.

    Attributes:
        node: the daemon's id.
        other: the other end.
        open: whether this end has not been closed.
        deaf: whether nothing comes in any more, and nobody is told; so for both ends.
        then: called once this end is closed, unless its daemon ends.
    """

    __slots__ = (
        "_arrived",
        "_daemon",
        "_reset",
        "_sim",
        "deaf",
        "node",
        "open",
        "other",
        "peer",
        "then",
    )

    other: End

    def __init__(self, sim: Simulation, daemon: Daemon, label: str) -> None:
        self._sim = sim
        self._daemon = daemon
        self.node = daemon.node
        self._arrived = 0.0
        self._reset = False
        self.then: Callable[[], None] | None = None
        self.open = True
        self.deaf = False
        self.peer = daemon.broker.join(label, self._send, self._end)
        daemon.ends[self] = None

    @property
    def linked(self) -> bool:
        """Whether this end is open and is a link, and the other one can hear it."""
        link = self._daemon.mesh.links.get(self.other.node)
        return self.open and not self.deaf and link is not None and link.peer is self.peer

    def receive(self, data: bytes) -> None:
        """Let the daemon take what has arrived."""
        if not self.open or self.deaf:
            if self._daemon.alive and not self.deaf and not self._reset:
                self._reset = True
                self.hang_up()  # the system knows of no such connection
            return
        broker, peer = self._daemon.broker, self.peer
        more = broker.receive(peer, data)
        while more:
            more = broker.receive(peer, b"")
        if peer.ending is not None:
            self.close()

    def _send(self, data: bytes | Pieces) -> None:
        if self.open and self.peer.ending is None:
            self._say(data)

    def _say(self, data: bytes | Pieces) -> None:
        whole = data.whole() if isinstance(data, Pieces) else data
        if RELAY in whole:
            self._sim.mail.count_crossings(self.node, self.other.node, whole)
        if not self.deaf:
            self._sim.schedule(self._arrival(), self.other.receive, whole)

    def _arrival(self) -> float:
        """Return when what is sent now arrives: after what was sent before."""
        self._arrived = max(self._arrived, self._sim.now + self._sim.delay())
        return self._arrived

    def _end(self, code: str, text: str) -> None:
        """Close the connection, for a reason that the other end is told."""
        peer = self.peer
        if self.open and peer.ending is None:
            peer.ending = ProtocolError(code, text)
            self._say(wire.error_frame(peer.ending))
            self._sim.schedule(self._sim.now, self.close)

    def close(self) -> None:
        """Close this end, and the other one when that arrives there."""
        if not self.open:
            return
        self.open = False
        self._daemon.ends.pop(self, None)
        for _ in self._daemon.broker.leave(self.peer):
            pass
        self.peer.release()
        self.hang_up()
        if self.then is not None:
            self.then()

    def hang_up(self) -> None:
        """Tell the other end that this one is closed."""
        if not self.deaf:
            self._sim.schedule(self._arrival(), self.other.close)


class Daemon:
    """A daemon, dead or alive.

    Attributes:
        node: its id.
        starts: how often it was started.
        started: when, the last time.
        alive: whether it runs. If not, ``broker`` and ``mesh`` are those it had.
        vanished: whether it has ended as by a power cut, so that nothing answers for it.
        ends: its ends of connections.
        skew: seconds that its clock is ahead.
        wanted: the substrings that its client subscribes; they outlive it.
        asked: those of them that it asks other daemons for.
    """

    broker: Broker
    mesh: Mesh

    def __init__(self, sim: Simulation, node: str, number: int) -> None:
        self._sim = sim
        self.node = node
        self.host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        self.starts = 0
        self.started = 0.0
        self.skew = 0.0
        self.alive = self.vanished = False
        self.ends: dict[End, None] = {}  # a set in order
        self.want(frozenset())
        self._act_at = float("inf")
        self._asleep_until = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """Tells this run of the daemon from its other ones."""
        return self.node, self.starts

    def run(self, asleep_until: float = 0.0) -> None:
        """Start it; the mesh does nothing of its own accord until ``asleep_until``."""
        sim = self._sim
        self.alive = self.vanished = False  # not alive until there is something to wake
        self.starts += 1
        self.started = sim.now
        self._asleep_until = asleep_until
        self._act_at = float("inf")
        self.broker = Broker(Limits(), clock=sim.clock)
        self.broker.turn = Turn(sim.clock)  # or what happens would depend on the machine
        config = MeshConfig(
            node=self.node, mesh=sim.mesh, host=self.host, port=9014, heartbeat=sim.heartbeat
        )
        self.mesh = Mesh(
            self.broker,
            config,
            clock=sim.clock,
            wall=lambda: sim.wall() + self.skew,
            rng=random.Random(sim.rng.random()),
            woken=self._wake,
        )
        self.alive = True
        self._decoder = wire.Decoder(1 << 30)
        self._client = self.broker.join(f"client of {self.node}", self._hear)
        for substring in sorted(self.wanted):
            self.say(b"sub %b\n" % substring)
        self._wake()

    def end(self, silent: bool) -> None:
        """End it; nobody is told if ``silent``."""
        self.alive, self.vanished = False, silent
        for end in self.ends:
            end.open = False
            if not silent:
                end.hang_up()
        self.ends.clear()

    def want(self, substrings: frozenset[bytes]) -> None:
        """Take note of what its client subscribes from now on."""
        self.wanted = substrings
        self.asked = frozenset(text for text in substrings if text.startswith(wire.FORWARD))

    def wants(self, name: bytes, *, here: bool) -> bool:
        """Return whether its client is to get a message, published here or elsewhere."""
        copy = name if name.startswith(wire.FORWARD) else wire.copy_name(name)
        if here and any(text in name for text in self.wanted):
            return True
        texts = self.wanted if here else self.asked
        return copy is not None and any(text in copy for text in texts)

    def say(self, data: bytes) -> None:
        """Let its client say something."""
        while self.broker.receive(self._client, data):
            data = b""

    def _hear(self, data: bytes | Pieces) -> None:
        whole = data.whole() if isinstance(data, Pieces) else data
        for _, said in self._decoder.feed(whole):
            self._sim.mail.count_delivery(self.key, said)

    def _wake(self) -> None:
        """Take note that the mesh wants to act at another time."""
        if not self.alive:
            return
        at = max(self.mesh.due, self._sim.now, self._asleep_until)
        if at < self._act_at:
            self._act_at = at
            self._sim.schedule(at, self._act, at, self.starts)

    def _act(self, at: float, starts: int) -> None:
        if not self.alive or at != self._act_at or starts != self.starts:
            return
        self._act_at = float("inf")
        if self.mesh.due <= self._sim.now:
            self.mesh.act()
        self._wake()


class Dialler:
    """One ``--peer`` of a daemon: dials until there is a link, and again when it has ended."""

    def __init__(self, sim: Simulation, src: Daemon, dst: Daemon) -> None:
        self._sim = sim
        self._src, self._dst = src, dst
        self._attempts = 0

    def dial(self) -> None:
        """Dial, for the first time since the daemon started."""
        self._attempts = 0
        self._dial(self._src.starts)

    def _dial(self, starts: int) -> None:
        src, dst, sim = self._src, self._dst, self._sim
        if not src.alive or starts != src.starts:
            return
        if dst.node in src.mesh.links:  # the other one has dialled
            self._attempts = max(self._attempts, 1)
            sim.schedule(sim.now + _BACKOFF, self._dial, starts)
            return
        trip = sim.delay() + sim.delay()
        if sim.answers(src, dst):
            sim.schedule(sim.now + trip, self._connect, starts)
        else:
            sim.schedule(sim.now + _CONNECT_TIMEOUT, self._again, starts)

    def _connect(self, starts: int) -> None:
        src, dst, sim = self._src, self._dst, self._sim
        if not src.alive or starts != src.starts:
            return
        if not dst.alive or not sim.passable(src, dst):
            self._again(starts)
            return
        near = End(sim, src, f"{dst.host}:9014")
        far = End(sim, dst, f"{src.host}:{40_000 + len(dst.ends)}")
        near.other, far.other = far, near
        refusals: list[ProtocolError] = []

        def ended(refusal: ProtocolError | None) -> None:
            if refusal is not None:
                refusals.append(refusal)

        near.then = partial(self._closed, starts, sim.now, refusals)
        src.mesh.greet(near.peer, f"{dst.host}:9014", ended)

    def _closed(self, starts: int, begun: float, refusals: list[ProtocolError]) -> None:
        if refusals and refusals[0].code == "self-link":
            return
        if self._sim.now - begun > _STEADY:
            self._attempts = 0
        self._again(starts)

    def _again(self, starts: int) -> None:
        longest = min(_BACKOFF_MAX, _BACKOFF * 2 ** min(self._attempts, 10))
        self._attempts += 1
        self._sim.schedule(self._sim.now + self._sim.rng.uniform(0, longest), self._dial, starts)
