"""What the parts of a daemon's mesh share: who it is, its links, the table and the counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pubsubd.mesh.link import Link
from pubsubd.mesh.linkstate import Table

_MOST_SPREAD = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """How a daemon takes part.

    Attributes:
        node: its id, unlike any other's in the mesh.
        mesh: the name of the mesh.
        host, port: where other daemons can dial it.
        secret: what all daemons of the mesh share, if anything.
        heartbeat: seconds between two signs of life on a link.
    """

    node: str
    mesh: str = "default"
    host: str = "127.0.0.1"
    port: int = 9014
    secret: bytes | None = field(default=None, repr=False)
    heartbeat: float = 1.0


@dataclass(slots=True)
class MeshCounters:
    """What has happened since the start; batches, where nothing else is said."""

    originated: int = 0
    received: int = 0
    relayed: int = 0
    duplicates: int = 0
    expired: int = 0
    unknown_origin: int = 0
    broken: int = 0
    dropped: int = 0
    adverts_in: int = 0
    adverts_out: int = 0
    advert_bytes_in: int = 0
    advert_bytes_out: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class State:
    """Who this daemon is in the mesh, and what it knows.

    Attributes:
        now: returns seconds that only go forward.
        wall: returns seconds since the epoch.
        emit: takes events, as ``//pubsubd/events`` has them.
        node: the daemon's id.
        incarnation: see :mod:`pubsubd.mesh.adverts`; ``start`` is the first one.
        table: who is there.
        links: id -> link, of the neighbours.
        counters: what has happened.
        spread: seconds that news may take through the mesh, see :meth:`measure`.
        unreachable: id -> since when it cannot be reached, of those that are known.
        held: bytes of input of all links that are not worked off.
    """

    def __init__(
        self,
        config: MeshConfig,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        emit: Callable[[dict[str, object]], None],
    ) -> None:
        self.config = config
        self.node = config.node
        self.now = clock
        self.wall = wall
        self.emit = emit
        self.start = self.incarnation = int(wall() * 1000)
        self.table = Table(config.node)
        self.links: dict[str, Link] = {}
        self.counters = MeshCounters()
        self.spread = 0.0
        self.unreachable: dict[str, float] = {}
        self.held = 0

    def measure(self) -> None:
        """Find out how long news may take: the longest round trip, for each link of the way.

        A link takes half of its round trip, so there is room for what waits in front of it.
        """
        hops, longest = self.table.hops, self.table.longest
        worst = max([longest.get(node, 0.0) for node in hops])
        self.spread = min(_MOST_SPREAD, max(hops.values()) * worst / 1000)

    def refuse(self, code: str, text: str, address: str) -> None:
        """Count and tell that something was refused."""
        self.counters.refused[code] += 1
        self.emit({"event": "refused", "peer": address, "reason": code, "detail": text})
