"""The state that all parts of a daemon's mesh share: id, links, table and counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pubsubd.mesh.link import Link
from pubsubd.mesh.linkstate import Table

TOPICS = ("direct:",)
"""Beginnings of the topics that travel if nothing else is said: of envelopes to one receiver."""

_MOST_SPREAD = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """A daemon's own settings in the mesh.

    Attributes:
        node: its id, unlike any other's in the mesh.
        mesh: the name of the mesh.
        host, port: where other daemons can dial it.
        secret: shared by all daemons of the mesh, if there is one.
        heartbeat: seconds between two signs of life on a link.
        site, rack: its place, as the others are to know it; empty if it does not tell.
        topics: what topics of the hub begin with that other daemons are sent; ``#`` for all.
    """

    node: str
    mesh: str = "default"
    host: str = "127.0.0.1"
    port: int = 9014
    secret: bytes | None = field(default=None, repr=False)
    heartbeat: float = 1.0
    site: str = ""
    rack: str = ""
    topics: tuple[str, ...] = TOPICS


@dataclass(slots=True)
class MeshCounters:
    """Counters since the start: of batches, unless the name says otherwise."""

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
    """The identity of a daemon in the mesh, and its knowledge of the others.

    Attributes:
        now: returns seconds that only go forward.
        wall: returns seconds since the epoch.
        emit: called with events, as ``//pubsubd/events`` has them.
        node: the daemon's id.
        incarnation: see :mod:`pubsubd.mesh.adverts`; ``start`` is the first one.
        table: the adverts of all daemons.
        links: id -> link, of the neighbours.
        counters: see :class:`MeshCounters`.
        spread: seconds that news may take through the mesh, see :meth:`measure`.
        unreachable: id -> since when it cannot be reached, of those that are known.
        held: bytes of unprocessed input of all links.
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
        """Set :attr:`spread`: the longest round trip, for each link of the longest path.

        A link takes half of a round trip; the other half is for what waits in front.
        """
        hops, longest = self.table.hops, self.table.longest
        worst = max([longest.get(node, 0.0) for node in hops])
        self.spread = min(_MOST_SPREAD, max(hops.values()) * worst / 1000)

    def refuse(self, code: str, text: str, address: str) -> None:
        """Count a refusal, and emit it as an event."""
        self.counters.refused[code] += 1
        self.emit({"event": "refused", "peer": address, "reason": code, "detail": text})
