"""One ``--peer`` of a simulated daemon: the retries that ``dial`` makes over sockets."""

from __future__ import annotations

from functools import partial

from pubsubd.mesh.sim.daemon import Connection, Daemon
from pubsubd.protocol.errors import ProtocolError

# As the dialler of a daemon has them:
_CONNECT_TIMEOUT = 10.0  # seconds until an address that does not answer is given up
_BACKOFF, _BACKOFF_MAX = 0.5, 30.0  # seconds: the longest wait before a second attempt, and ever
_STEADY = 10.0  # seconds that a link has to last for the waits to begin anew


class Dialler:
    """Dials until there is a link, and again when it has ended."""

    def __init__(self, src: Daemon, dst: Daemon) -> None:
        self._world = src.world
        self._src, self._dst = src, dst
        self._attempts = 0

    def dial(self) -> None:
        """Dial, for the first time since the daemon started."""
        self._attempts = 0
        self._dial(self._src.starts)

    def _dial(self, starts: int) -> None:
        src, dst, world = self._src, self._dst, self._world
        if not src.alive or starts != src.starts:
            return
        if dst.node in src.mesh.links:  # the other one has dialled
            self._attempts = max(self._attempts, 1)
            world.schedule(world.now + _BACKOFF, self._dial, starts)
            return
        trip = world.delay() + world.delay()
        if not dst.vanished and frozenset((src.node, dst.node)) not in world.swallowed_pairs:
            world.schedule(world.now + trip, self._connect, starts)
        else:
            world.schedule(world.now + _CONNECT_TIMEOUT, self._again, starts)

    def _connect(self, starts: int) -> None:
        src, dst, world = self._src, self._dst, self._world
        if not src.alive or starts != src.starts:
            return
        if dst.alive and world.passable(src.node, dst.node):
            Connection(src, dst, partial(self._closed, starts, world.now))
        else:
            self._again(starts)

    def _closed(self, starts: int, begun: float, refusal: ProtocolError | None) -> None:
        if refusal is not None and refusal.code == "self-link":
            return
        if self._world.now - begun > _STEADY:
            self._attempts = 0
        self._again(starts)

    def _again(self, starts: int) -> None:
        longest = min(_BACKOFF_MAX, _BACKOFF * 2 ** min(self._attempts, 10))
        self._attempts += 1
        world = self._world
        world.schedule(world.now + world.rng.uniform(0, longest), self._dial, starts)
