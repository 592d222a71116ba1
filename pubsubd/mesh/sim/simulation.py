"""A mesh of many daemons in one process, on a clock of its own: no sockets, no waiting.

The correct behaviour is computed beside the daemons from what only the simulation knows: which
daemons live and which links are whole. The results compare the two;
:mod:`pubsubd.mesh.sim.convergence` compares the tables.

- A message is *due* to the clients that subscribe it and can be reached when it is published, over
  the links that there are. It is *stable* if everything has converged by then, nobody floods, and
  nothing changes until it has had the time to arrive everywhere, and a second more. Stable messages
  have to arrive, once each, by the least number of crossings.
- The least number is, for each message, the edges of the tree of shortest paths from its origin
  that lead to a daemon where it is due.

A *cold* start is one of daemons that know nothing of each other. Their first adverts grow with the
square of their number, so for more than some hundred there is a *warm* one: each table is given the
true advert of every daemon first, and links are opened after that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from pubsubd import __version__
from pubsubd.mesh.adverts import Advert, format_advert
from pubsubd.mesh.graphs import Edge, Graph, neighbours
from pubsubd.mesh.report import Report
from pubsubd.mesh.sim.actors import Actors
from pubsubd.mesh.sim.convergence import Convergence
from pubsubd.mesh.sim.daemon import Connection
from pubsubd.mesh.sim.dialler import Dialler
from pubsubd.mesh.sim.mail import Mail
from pubsubd.mesh.sim.member import Member
from pubsubd.mesh.sim.results import Results
from pubsubd.mesh.sim.script import ScriptError
from pubsubd.mesh.sim.world import World
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire

_GRACE = 1.0  # seconds of peace that a message needs besides its way to be stable


class Simulation(World):
    """Daemons, connections and a clock.

    Args:
        graph: pairs of daemons, the first of which dials.
        seed: of all that is left to chance.
        latency: seconds from one daemon to another, on average.
        jitter: the part of it by which it may be less or more.
        heartbeat: of the daemons.
        warm: whether they know each other's adverts at the start; see the module.
        mesh: its name.
        hubs: whether the daemons have hub ports, for :meth:`register`.

    Attributes:
        actors: those of all daemons.
        daemons: id -> daemon.
        convergence: the truth, and whether all tables agree with it.
        mail: the messages and their deliveries.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        seed: int = 0,
        latency: float = 0.01,
        jitter: float = 0.3,
        heartbeat: float = 1.0,
        warm: bool = False,
        mesh: str = "sim",
        hubs: bool = False,
    ) -> None:
        super().__init__(seed=seed, latency=latency, jitter=jitter)
        self.graph = sorted(set(graph))
        grace = _GRACE + _longest_path(self.graph) * self.longest_delay
        self.mail = Mail(grace)
        nodes = sorted({node for edge in self.graph for node in edge})
        self.daemons: dict[str, Member] = {}
        for i, node in enumerate(nodes, 1):
            host = f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"
            config = MeshConfig(node=node, mesh=mesh, host=host, heartbeat=heartbeat)
            self.daemons[node] = Member(self, config, self.mail, hub=hubs)
        self._patience = 2 * heartbeat
        pairs = [(self.daemons[src], self.daemons[dst]) for src, dst in self.graph]
        self._diallers = [(src, Dialler(src, dst)) for src, dst in pairs]
        self.convergence = Convergence(self, self.daemons, self.graph, self.mail, grace)
        self.actors = Actors(self, self.daemons, self.convergence, self._is_settled)
        self.living = self.convergence.living
        self._begin(warm)

    @property
    def converged(self) -> bool:
        """Whether all agree, as far as has been looked."""
        return self.convergence.converged

    def _is_settled(self) -> bool:
        """Return whether all daemons have agreed on the mesh for two heartbeats."""
        last = self.convergence.changes[-1]
        return last.took is not None and self.now > last.at + last.took + self._patience

    def _begin(self, warm: bool) -> None:
        self.convergence.note_change(f"start of {len(self.daemons)} daemons")
        asleep_until = 9 * self.longest_delay + 1e-6 if warm else 0.0
        for daemon in self.daemons.values():
            daemon.run(asleep_until)
        self.convergence.begin(asleep_until)
        for _, dialler in self._diallers:
            dialler.dial()
        if warm:
            self.schedule(asleep_until * 0.9, self._fill_tables, asleep_until)
        self.convergence.watch()

    def _fill_tables(self, asleep_until: float) -> None:
        """Give each table the advert that every daemon will send first, now that links are open.

        The daemons have not been woken yet. When they are, each sends its neighbours this advert,
        which is no news to anybody, so nobody passes it on.
        """
        adverts = []
        for node, daemon in self.daemons.items():
            state, config = daemon.mesh.state, daemon.config
            links = tuple(link.report() for link in daemon.mesh.links.values())
            interests = (*sorted(daemon.asked), *daemon.mesh.letters.interests)
            stamp = (state.incarnation, 1, state.start)
            adverts.append(
                Advert(
                    node,
                    config.host,
                    config.port,
                    *stamp,
                    links,
                    interests,
                    version=__version__,
                    hub=daemon.mesh.directory.report(),
                )
            )
        for daemon in self.daemons.values():
            for advert in adverts:
                daemon.mesh.table.put(advert)
        self.schedule(asleep_until, self._keep_frames, adverts)

    def _keep_frames(self, adverts: list[Advert]) -> None:
        """Keep the frames of all adverts at each daemon, for neighbours that come later."""
        frames = []
        for advert in adverts:
            news = self.daemons[advert.node].mesh.news
            frames.append((advert.node, news.frame(advert.node, format_advert(advert))))
        for daemon in self.daemons.values():
            for node, frame in frames:
                if node != daemon.node:
                    daemon.mesh.news.keep(node, frame)

    def run_until_converged(self, limit: float) -> bool:
        """Let time pass until all have converged, or it is ``limit``; return whether they have."""
        while not self.converged and self.next_event <= limit:
            self.run_until(self.next_event)
        return self.converged

    # Events

    def kill(self, node: str, *, silent: bool = False) -> None:
        """End a daemon: its connections close, or, if ``silent``, nothing more comes from it."""
        daemon = self.find(node)
        if not daemon.alive:
            raise ScriptError(f"{node} is dead already")
        self.convergence.note_change(f"{'vanish' if silent else 'kill'} {node}")
        self.convergence.adverts.bury(daemon)
        daemon.end(silent=silent)
        self.convergence.find_truth()

    def kill_random(self, share: float, *, silent: bool = False) -> list[str]:
        """End this share of the living daemons, at least one; return which."""
        chosen = self.choose(share)
        for node in chosen:
            self.kill(node, silent=silent)
        if chosen:
            verb = "vanish-random" if silent else "kill-random"
            self.convergence.changes[-1].what = f"{verb} {share * 100:g}% ({len(chosen)} daemons)"
        return chosen

    def start(self, node: str) -> None:
        """Start a daemon again; it dials its peers, and its client subscribes as before."""
        daemon = self.find(node)
        if daemon.alive:
            raise ScriptError(f"{node} is running already")
        self.convergence.note_change(f"start {node}")
        daemon.run()
        for src, dialler in self._diallers:
            if src is daemon:
                dialler.dial()
        self.convergence.find_truth()
        self.actors.note_start(daemon)

    def start_all(self) -> None:
        """Start all that are dead."""
        for node, daemon in self.daemons.items():
            if not daemon.alive:
                self.start(node)

    def cut(self, one: str, another: str) -> None:
        """Close the link of two daemons, and let nobody open it."""
        pair = self.find_pair(one, another)
        self.convergence.note_change(f"cut {one} {another}")
        self.cut_pairs.add(pair)
        for connection in self._connections(pair):
            self.schedule(self.now, connection.close)
        self.convergence.find_truth()

    def swallow(self, one: str, another: str) -> None:
        """Let the link of two daemons lose all bytes, so that neither notices."""
        pair = self.find_pair(one, another)
        self.convergence.note_change(f"swallow {one} {another}")
        self.swallowed_pairs.add(pair)
        for connection in self._connections(pair):
            connection.deaf = True
        self.convergence.find_truth()

    def heal(self, one: str, another: str) -> None:
        """Let two daemons link again. Connections that have lost bytes stay lost."""
        pair = self.find_pair(one, another)
        self.convergence.note_change(f"heal {one} {another}")
        self.cut_pairs.discard(pair)
        self.swallowed_pairs.discard(pair)
        self.convergence.find_truth()

    def subscribe(self, node: str, substring: str) -> None:
        """Let the client of a daemon subscribe."""
        daemon, text = self.find(node), substring.encode()
        if text in daemon.subscribed:
            return
        self.convergence.note_change(f"subscribe {node} {substring}")
        daemon.subscribe(daemon.subscribed | {text})
        if daemon.alive:
            daemon.send(b"sub %b\n" % text)
        self.convergence.find_truth()

    def unsubscribe(self, node: str, substring: str) -> None:
        """Undo :meth:`subscribe`."""
        daemon, text = self.find(node), substring.encode()
        if text not in daemon.subscribed:
            raise ScriptError(f"{node} does not subscribe {substring}")
        self.convergence.note_change(f"unsubscribe {node} {substring}")
        self.mail.excuse(daemon.key)  # what may be under way
        daemon.subscribe(daemon.subscribed - {text})
        if daemon.alive:
            daemon.send(b"unsub %b\n" % text)
        self.convergence.find_truth()

    def publish(self, node: str, name: str, size: int = 64) -> None:
        """Let the client of a daemon publish a message of ``size`` bytes or a few more."""
        daemon, text = self.find(node), name.encode()
        if not daemon.alive:
            return
        due = frozenset(
            self.daemons[other].key
            for other in self.convergence.reachable(node)
            if self.daemons[other].receives(text, here=other == node)
        )
        quiet = self.converged and not any(one.mesh.forwarding.flooding for one in self.living())
        interested = frozenset(other for other, _ in due)
        edges = self.convergence.least_edges(node, interested)
        data = self.mail.post(self.now, node, due, edges, stable=quiet, size=size)
        daemon.send(wire.frame(text, data))

    def register(self, count: int, rate: float) -> None:
        """Register actors at random daemons, ``rate`` of which a second go to others."""
        self.actors.register(count, rate, list(self.living()))

    def choose(self, share: float) -> list[str]:
        """Return this share of the living daemons, at least one, by chance."""
        living = [daemon.node for daemon in self.living()]
        count = min(len(living), max(1, round(share * len(living)))) if share else 0
        return self.rng.sample(living, count)

    def find(self, node: str) -> Member:
        """Return a daemon; raise :class:`ScriptError` if there is none."""
        if node not in self.daemons:
            raise ScriptError(f"there is no daemon {wire.escape(node, 64)}")
        return self.daemons[node]

    def find_pair(self, one: str, another: str) -> frozenset[str]:
        """Return two daemons that one dials; raise :class:`ScriptError` if neither does."""
        self.find(one)
        self.find(another)
        if (one, another) not in self.graph and (another, one) not in self.graph:
            raise ScriptError(f"there is no link of {one} and {another}")
        return frozenset((one, another))

    def _connections(self, pair: frozenset[str]) -> list[Connection]:
        """Return all connections between two daemons."""
        ends = [end for node in sorted(pair) for end in self.daemons[node].ends]
        both = [end for end in ends if end.other.daemon.node in pair - {end.daemon.node}]
        return list(dict.fromkeys(end.connection for end in both))

    # Results

    def edges(self) -> list[dict[str, Any]]:
        """Return the rows of the edge list, as one daemon of each connected part has them."""
        rows: list[dict[str, Any]] = []
        for part in sorted(set(self.convergence.parts.values()), key=min):
            rows += Report(self.daemons[min(part)].mesh).edges()
        return rows

    def results(self) -> Results:
        """Return the results so far; the last messages may still be under way."""
        convergence, adverts = self.convergence, self.convergence.adverts
        adverts.book(converged=self.converged)
        self.mail.disturb(self.now)
        counters, refused = adverts.add_up()
        living = list(self.living())
        running = {daemon.key for daemon in living}
        rates = [
            daemon.mesh.counters.advert_bytes_out / (self.now - daemon.started)
            for daemon in living
            if daemon.started < self.now
        ]
        calm, times = adverts.times[True], sum(adverts.times.values())
        pairs = {edge for edge in map(_pair, self.graph) if edge[0] != edge[1]}
        return Results(
            daemons=len(self.daemons),
            links=len(pairs),
            living=len(living),
            duration=self.now,
            events=self.events,
            changes=[replace(one) for one in convergence.changes],
            relapses=convergence.relapses,
            stable=self.mail.add_up(self.now, running, stable=True),
            unstable=self.mail.add_up(self.now, running, stable=False),
            link_messages=self.mail.links,
            advert_rate=adverts.sent / times if times else 0.0,
            advert_rate_most=max(rates, default=0.0),
            advert_rate_stable=adverts.sizes[True] / calm if calm else None,
            counters=dict(counters),
            refused=dict(refused),
            actors=self.actors.results(set(map(frozenset, convergence.parts.values()))),
        )


def _pair(edge: Edge) -> Edge:
    return min(edge), max(edge)


def _longest_path(graph: Graph) -> int:
    """Return a number of links that no shortest path has more of, with few links gone."""
    near = neighbours(graph)
    nodes = sorted({node for edge in graph for node in edge})
    hops = dict.fromkeys(nodes, 0)
    for start in nodes:
        if hops[start]:
            continue
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for other in near.get(node, ()):
                if not hops[other] and other != start:
                    hops[other] = hops[node] + 1
                    queue.append(other)
    return min(len(nodes), 4 * max(hops.values(), default=0))
