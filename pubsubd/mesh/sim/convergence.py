"""Convergence of a simulated mesh: the tables of all daemons, compared with the graph itself.

A change has *converged* when every required link is up, and the table of every living daemon has
these links, and the interests, of all daemons that can be reached from it. A link is required
between two living daemons of which one dials the other, unless it is cut: the time to dial it again
is part of the time to converge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from pubsubd.mesh.graphs import Edge, Graph, least_edges, neighbours, reach
from pubsubd.mesh.interests import MAX_INTERESTS
from pubsubd.mesh.sim.mail import Mail
from pubsubd.mesh.sim.member import Member
from pubsubd.mesh.sim.results import Change
from pubsubd.mesh.sim.world import World
from pubsubd.protocol import wire

_STEP = 0.01  # seconds between two looks whether all have converged
_WATCH = 1.0  # seconds between two looks whether all still agree


class AdvertBytes:
    """The bytes of adverts that daemons send, by whether all had converged.

    Attributes:
        sent: how many so far.
        times: daemon-seconds.
        sizes: bytes.
    """

    def __init__(self, world: World, daemons: Mapping[str, Member]) -> None:
        self._world = world
        self._daemons = daemons
        self.sent, self._booked_at = 0, 0.0
        self.times = {True: 0.0, False: 0.0}
        self.sizes = {True: 0, False: 0}
        self._ended: tuple[Counter[str], Counter[str]] = Counter(), Counter()

    def book(self, *, converged: bool) -> None:
        """Book what was sent since the last call."""
        living = [daemon.mesh.counters for daemon in self._daemons.values() if daemon.alive]
        sent = self._ended[0]["advert_bytes_out"] + sum(one.advert_bytes_out for one in living)
        self.times[converged] += (self._world.now - self._booked_at) * len(living)
        self.sizes[converged] += sent - self.sent
        self.sent, self._booked_at = sent, self._world.now

    def bury(self, daemon: Member) -> None:
        """Keep the counters of a daemon that ends."""
        _add_counters(daemon, *self._ended)

    def add_up(self) -> tuple[Counter[str], Counter[str]]:
        """Return the counters of all daemons, dead or alive, and their refusals by code."""
        found = Counter(self._ended[0]), Counter(self._ended[1])
        for daemon in self._daemons.values():
            if daemon.alive:
                _add_counters(daemon, *found)
        return found


class Convergence:
    """The truth about a mesh, and whether its daemons agree with it.

    Args:
        world: where they are.
        daemons: id -> daemon.
        graph: pairs of daemons, the first of which dials.
        mail: the messages, which a change makes unstable.
        grace: seconds after converging in which a daemon may still hear something older.

    Attributes:
        converged: whether all agree, as far as has been looked.
        changes: the changes so far.
        parts: id -> the daemons that can be reached from it.
        relapses: how often tables disagreed although nothing had happened.
        adverts: the bytes that the daemons have sent.
    """

    def __init__(
        self, world: World, daemons: Mapping[str, Member], graph: Graph, mail: Mail, grace: float
    ) -> None:
        self._world = world
        self._daemons = daemons
        self._graph = graph
        self._mail = mail
        self._grace = grace
        self.converged = False
        self.changes: list[Change] = []
        self.parts: dict[str, frozenset[str]] = {}
        self.relapses = 0
        self.adverts = AdvertBytes(world, daemons)
        self._truth: dict[str, list[str]] = {}
        self._pending: list[Member] = []  # not seen to agree yet
        self._looking = False
        self._converged_at = 0.0
        self._versions = 0
        self._bytes_before = 0  # advert bytes when the last change began
        self._least: dict[tuple[str, frozenset[str]], list[Edge]] = {}

    def living(self) -> Iterator[Member]:
        """Return the daemons that live."""
        return (daemon for daemon in self._daemons.values() if daemon.alive)

    def begin(self, at: float) -> None:
        """Look for the first time."""
        self.find_truth()
        self._looking = True
        self._world.schedule(at + _STEP, self._look)

    def note_change(self, what: str) -> None:
        """Record a change before it happens."""
        now = self._world.now
        self.adverts.book(converged=self.converged)
        self.converged = False
        last = self.changes[-1] if self.changes else None
        if last is not None and last.at == now:
            what, _, more = last.what.partition(", and ")
            last.what = f"{what}, and {int(more.split(' ')[0] or 0) + 1 if more else 1} more"
        else:
            self.changes.append(Change(now, what))
            self._bytes_before = self.adverts.sent
        self._mail.disturb(now)

    def find_truth(self) -> None:
        """Find the truth after a change, and compare all daemons with it."""
        daemons = self._daemons
        living = [
            (src, dst)
            for src, dst in self._graph
            if daemons[src].alive and daemons[dst].alive and self._world.passable(src, dst)
        ]
        near = neighbours(living)
        alive = [daemon.node for daemon in self.living()]
        self._truth = {node: sorted(near.get(node, ())) for node in alive}
        self.parts = {}
        for node in alive:
            if node not in self.parts:
                part = frozenset(reach(node, self._truth))
                self.parts.update(dict.fromkeys(part, part))
        self._least.clear()
        self._pending = list(self.living())
        if not self._looking and self._world.events:
            self._look_soon()

    def reachable(self, node: str) -> frozenset[str] | set[str]:
        """Return the daemons that can be reached over the links that there are at present."""
        if self.converged:
            return self.parts[node]
        found = {node}
        queue = [node]
        while queue:
            for end in self._daemons[queue.pop()].ends:
                other = end.other.daemon.node
                if other not in found and end.linked and end.other.linked:
                    found.add(other)
                    queue.append(other)
        return found

    def least_edges(self, origin: str, receivers: frozenset[str]) -> list[Edge]:
        """Return the links that a message has to cross on its way to all receivers."""
        edges = self._least.get((origin, receivers))
        if edges is None:
            edges = least_edges(self._truth, origin, receivers)
            self._least[origin, receivers] = edges
        return edges

    def _look_soon(self) -> None:
        self._looking = True
        self._world.schedule(self._world.now + _STEP, self._look)

    def _look(self) -> None:
        """Check for convergence, first at the last daemon that has not converged."""
        while self._pending and self._agrees(self._pending[-1]):
            self._pending.pop()
        if not self._pending:
            self._pending = self._disagreeing()
        if self._pending or not self._linked():
            self._look_soon()
            return
        now = self._world.now
        self._looking = False
        self.adverts.book(converged=self.converged)
        self.converged, self._converged_at = True, now
        self._versions = self._version()
        last = self.changes[-1]
        if last.took is None:
            last.took = round(now - last.at, 3)
            living = sum(1 for _ in self.living())
            last.advert_bytes = (self.adverts.sent - self._bytes_before) / max(living, 1)

    def watch(self) -> None:
        """Look from now on for tables that change although nothing has happened."""
        self._world.schedule(self._world.now + _WATCH, self._watch)

    def _watch(self) -> None:
        if self.converged and self._version() != self._versions:
            self._versions = self._version()
            self._pending = self._disagreeing()
            if self._pending:
                self.adverts.book(converged=self.converged)
                if self._world.now - self._converged_at > self._grace:
                    self.relapses += 1
                else:  # some had not heard of a change yet that was undone meanwhile
                    self.changes[-1].took = None
                self._mail.disturb(self._world.now)
                self.converged = False
                self._look_soon()
        self.watch()

    def _disagreeing(self) -> list[Member]:
        return [daemon for daemon in self.living() if not self._agrees(daemon)]

    def _agrees(self, daemon: Member) -> bool:
        """Return whether a daemon's table is true."""
        if not daemon.alive:
            return True
        graph, adverts = daemon.mesh.table.graph, daemon.mesh.table.adverts
        for node in self.parts[daemon.node]:
            if graph.get(node, []) != self._truth[node] or node not in adverts:
                return False
            asked, reported = self._daemons[node].asked, adverts[node].interests
            reported = tuple(one for one in reported if not one.startswith(wire.HUB))
            if len(asked) <= MAX_INTERESTS and asked != set(reported):
                return False
        return True

    def _linked(self) -> bool:
        """Return whether all required links are up."""
        return all(
            {end.other.daemon.node for end in daemon.ends if end.linked and end.other.linked}
            >= set(self._truth[daemon.node])
            for daemon in self.living()
        )

    def _version(self) -> int:
        return sum(daemon.mesh.table.version for daemon in self.living())


def _add_counters(daemon: Member, counters: Counter[str], refused: Counter[str]) -> None:
    found = asdict(daemon.mesh.counters)
    del found["refused"]  # which asdict() does not copy right
    counters.update(found)
    refused.update(daemon.mesh.counters.refused)
