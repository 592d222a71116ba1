"""A mesh of many daemons in one process, on a clock of its own: no sockets, no waiting.

Each daemon is the real :class:`~pubsubd.broker.broker.Broker` with the real
:class:`~pubsubd.mesh.core.Mesh`; only what surrounds them is made up. A connection is a pair of
their peers: what one of them is sent arrives as input of the other one after a latency, in order.
Whatever happens is an event in one heap, and the clock jumps from event to event, so a run is the
same each time for the same seed, and takes as long as the daemons' own work takes.

What the daemons should do is computed beside them, plainly, from what is known to nobody but the
simulation: which daemons live and which links are whole. The results compare the two.

- A change has *converged* when there are the links that there have to be, and the table of every
  living daemon tells these, and who subscribes what, for all the daemons that can be reached from
  it. There has to be a link of any two of which one dials the other, which live, and which are not
  cut off: where it has to be dialled again first, that is part of the time.
- A message is *due* to the clients that subscribe it and can be reached when it is published, over
  the links that there are. It is *stable* if everything has converged by then, nobody floods, and
  nothing changes until it has had the time to arrive everywhere, and a second more. Stable messages
  have to arrive, once each, by the least number of crossings.
- The least number is, for each message, the edges of the tree of shortest paths from its origin
  that lead to a daemon where it is due.

A *cold* start is one of daemons that know nothing of each other. What they then tell each other
grows with the square of their number, so for more than some hundred there is a *warm* one: each
table is given the true advert of every daemon first, and links are opened after that.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from pubsubd.mesh.adverts import Advert, format_advert
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.graphs import Edge, Graph, least_edges, neighbours, reach
from pubsubd.mesh.interests import MAX_INTERESTS
from pubsubd.mesh.report import Report
from pubsubd.mesh.sim.daemons import Daemon, Dialler, End
from pubsubd.mesh.sim.mail import Mail
from pubsubd.mesh.sim.results import Change, Results
from pubsubd.mesh.sim.script import (
    ScriptError,
)
from pubsubd.protocol import wire

EPOCH = 1_767_225_600.0
"""Seconds since the epoch at which a simulation begins: 2026-01-01."""

_STEP = 0.01  # seconds between two looks whether all have converged
_WATCH = 1.0  # seconds between two looks whether all still agree
_GRACE = 1.0  # seconds of peace that a message needs besides its way to be stable


class Simulation:
    """Daemons, connections and a clock.

    Args:
        graph: who dials whom.
        seed: of all that is left to chance.
        latency: seconds from one daemon to another, on average.
        jitter: the part of it by which it may be less or more.
        heartbeat: of the daemons.
        warm: whether they know each other's adverts at the start; see the module.
        mesh: its name.

    Attributes:
        now: seconds since the start.
        daemons: id -> daemon.
        changes: what has happened so far.
        converged: whether all agree, as far as has been looked.
        mail: the messages, and what has become of them.
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
    ) -> None:
        self.now = 0.0
        self.heartbeat = heartbeat
        self.mesh = mesh
        self.rng = random.Random(seed)
        self.events = 0
        self.changes: list[Change] = []
        self.converged = False
        self._latency, self._jitter = latency, jitter
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self.graph = sorted(set(graph))
        nodes = sorted({node for edge in self.graph for node in edge})
        self.daemons = {node: Daemon(self, node, i + 1) for i, node in enumerate(nodes)}
        pairs = [(self.daemons[src], self.daemons[dst]) for src, dst in self.graph]
        self._diallers = [(src, Dialler(self, src, dst)) for src, dst in pairs]
        self._cut: set[frozenset[str]] = set()
        self._swallowed: set[frozenset[str]] = set()
        self._truth: dict[str, list[str]] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._pending: list[Daemon] = []
        self._looking = False
        self._relapses = 0
        self._converged_at = 0.0
        self._versions = 0
        self._grace = _GRACE + self._longest() * latency * (1 + jitter)
        self.mail = Mail(self._grace)
        self._least: dict[tuple[str, frozenset[str]], list[Edge]] = {}
        self._gone: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._sampled, self._sampled_at = 0, 0.0
        self._times = {True: 0.0, False: 0.0}  # daemon-seconds by whether all had converged
        self._bytes = {True: 0, False: 0}  # of adverts, likewise
        self._changed_bytes = 0
        self._begin(warm)

    def _begin(self, warm: bool) -> None:
        self._change(f"start of {len(self.daemons)} daemons")
        asleep_until = 9 * self._latency * (1 + self._jitter) + 1e-6 if warm else 0.0
        for daemon in self.daemons.values():
            daemon.run(asleep_until)
        self._look_again()
        self._looking = True
        self.schedule(asleep_until + _STEP, self._look)
        for _, dialler in self._diallers:
            dialler.dial()
        if warm:
            self.schedule(asleep_until * 0.9, self._fill_tables)
            self.schedule(asleep_until, self._keep_frames)
        self.schedule(_WATCH, self._watch)

    def _longest(self) -> int:
        """Return a number of links that no shortest path has more of, with few links gone."""
        near = neighbours(self.graph)
        hops = dict.fromkeys(self.daemons, 0)
        for start in self.daemons:
            if hops[start]:
                continue
            queue = deque([start])
            while queue:
                node = queue.popleft()
                for other in near.get(node, ()):
                    if not hops[other] and other != start:
                        hops[other] = hops[node] + 1
                        queue.append(other)
        return min(len(self.daemons), 4 * max(hops.values(), default=0))

    def _fill_tables(self) -> None:
        """Give each table the advert that every daemon will tell first, now that links are open.

        The daemons have not been woken yet. When they are, each tells its neighbours this advert,
        which is no news to anybody, so nobody passes it on.
        """
        self._first: list[Advert] = []
        for node, daemon in self.daemons.items():
            mesh = daemon.mesh
            links = tuple(link.report() for link in mesh.links.values())
            wanted = tuple(sorted(daemon.asked))
            advert = Advert(
                node, daemon.host, 9014, mesh.state.life, 1, mesh.state.start, links, wanted
            )
            self._first.append(advert)
        for daemon in self.daemons.values():
            for advert in self._first:
                daemon.mesh.table.put(advert)

    def _keep_frames(self) -> None:
        """Let all have the adverts as they have come, for those who link to them later on."""
        frames = {
            advert.node: wire.frame(
                f"//fwd/peers/{self.mesh}/{advert.node}".encode(), format_advert(advert)
            )
            for advert in self._first
        }
        for node, daemon in self.daemons.items():
            for other, frame in frames.items():
                if other != node:
                    daemon.mesh.news.keep(other, frame)

    # Time

    def clock(self) -> float:
        """Return :attr:`now`."""
        return self.now

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return EPOCH + self.now

    def delay(self) -> float:
        """Return how long something takes from one daemon to another."""
        return self._latency * (1 + self._jitter * (2 * self.rng.random() - 1))

    def schedule(self, at: float, call: Callable[..., None], *args: Any) -> None:
        """Call ``call`` when it is ``at``; of two calls at a time, first the one that was first."""
        self._scheduled += 1
        heapq.heappush(self._heap, (at, self._scheduled, call, args))

    def run(self, until: float) -> None:
        """Let it be ``until``."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, call, args = pop(heap)
            self.events += 1
            call(*args)
        self.now = max(self.now, until)

    def run_until_converged(self, limit: float) -> bool:
        """Let time pass until all have converged, up to ``limit``; whether they have."""
        heap = self._heap
        while not self.converged and heap and heap[0][0] <= limit:
            self.run(heap[0][0])
        return self.converged

    # What is known to nobody else

    def answers(self, src: Daemon, dst: Daemon) -> bool:
        """Return whether ``dst`` answers at all, be it by refusing."""
        return not dst.vanished and frozenset((src.node, dst.node)) not in self._swallowed

    def passable(self, src: Daemon, dst: Daemon) -> bool:
        """Return whether the link of two daemons is whole."""
        pair = frozenset((src.node, dst.node))
        return pair not in self._cut and pair not in self._swallowed

    def _reachable(self, node: str) -> frozenset[str] | set[str]:
        """Return the daemons that can be reached over the links that there are at present."""
        if self.converged:
            return self._parts[node]
        found = {node}
        queue = [node]
        while queue:
            for end in self.daemons[queue.pop()].ends:
                if end.other.node not in found and end.linked and end.other.linked:
                    found.add(end.other.node)
                    queue.append(end.other.node)
        return found

    def _look_again(self) -> None:
        """Find out what is true now, and let all be compared with it."""
        living = [
            (src, dst)
            for src, dst in self.graph
            if self.daemons[src].alive
            and self.daemons[dst].alive
            and self.passable(self.daemons[src], self.daemons[dst])
        ]
        near = neighbours(living)
        alive = [node for node, daemon in self.daemons.items() if daemon.alive]
        self._truth = {node: sorted(near.get(node, ())) for node in alive}
        self._parts = {}
        for node in alive:
            if node not in self._parts:
                part = frozenset(reach(node, self._truth))
                self._parts.update(dict.fromkeys(part, part))
        self._least.clear()
        self._pending = [self.daemons[node] for node in alive]
        if not self._looking and self.events:
            self._looking = True
            self.schedule(self.now + _STEP, self._look)

    def _change(self, what: str) -> None:
        """Take note of something that changes what is true."""
        self._sample()
        self.converged = False
        last = self.changes[-1] if self.changes else None
        if last is not None and last.at == self.now:
            what, _, more = last.what.partition(", and ")
            last.what = f"{what}, and {int(more.split(' ')[0] or 0) + 1 if more else 1} more"
        else:
            self.changes.append(Change(self.now, what))
            self._changed_bytes = self._sampled
        self.mail.disturb(self.now)

    def _look(self) -> None:
        """See whether all have converged: the last one that has not is asked first."""
        while self._pending and self._agrees(self._pending[-1]):
            self._pending.pop()
        if not self._pending:
            self._pending = [d for d in self.living() if not self._agrees(d)]
        if self._pending or not self._linked():
            self.schedule(self.now + _STEP, self._look)
            return
        self._looking = False
        self._sample()
        self.converged, self._converged_at = True, self.now
        self._versions = self._version()
        last = self.changes[-1]
        if last.took is None:
            last.took = round(self.now - last.at, 3)
            living = sum(1 for _ in self.living())
            last.advert_bytes = (self._sampled - self._changed_bytes) / max(living, 1)

    def _agrees(self, daemon: Daemon) -> bool:
        """Return whether a daemon's table tells what is true."""
        if not daemon.alive:
            return True
        graph, adverts = daemon.mesh.table.graph, daemon.mesh.table.adverts
        for node in self._parts[daemon.node]:
            if graph.get(node, []) != self._truth[node] or node not in adverts:
                return False
            wanted, told = self.daemons[node].asked, adverts[node].interests
            if len(wanted) <= MAX_INTERESTS and wanted != set(told):
                return False
        return True

    def _linked(self) -> bool:
        """Return whether there is a whole link wherever there has to be one."""
        return all(
            {end.other.node for end in daemon.ends if end.linked and end.other.linked}
            >= set(self._truth[daemon.node])
            for daemon in self.living()
        )

    def _version(self) -> int:
        return sum(daemon.mesh.table.version for daemon in self.living())

    def _watch(self) -> None:
        """Notice tables that change although nothing has happened."""
        if self.converged and self._version() != self._versions:
            self._versions = self._version()
            self._pending = [d for d in self.living() if not self._agrees(d)]
            if self._pending:
                self._sample()
                if self.now - self._converged_at > self._grace:
                    self._relapses += 1
                else:  # some had not heard of anything yet, and so agreed with what is true again
                    self.changes[-1].took = None
                self.mail.disturb(self.now)
                self.converged = False
                self._looking = True
                self.schedule(self.now + _STEP, self._look)
        self.schedule(self.now + _WATCH, self._watch)

    def living(self) -> Iterator[Daemon]:
        """Return the daemons that live."""
        return (daemon for daemon in self.daemons.values() if daemon.alive)

    # What happens

    def kill(self, node: str, *, silent: bool = False) -> None:
        """End a daemon: its connections close, or, if ``silent``, nothing more comes from it."""
        daemon = self.find(node)
        if not daemon.alive:
            raise ScriptError(f"{node} is dead already")
        self._change(f"{'vanish' if silent else 'kill'} {node}")
        self._bury(daemon)
        daemon.end(silent)
        self._look_again()

    def kill_random(self, share: float, *, silent: bool = False) -> list[str]:
        """End this share of the living daemons, at least one; return which."""
        chosen = self.choose(share)
        for node in chosen:
            self.kill(node, silent=silent)
        if chosen:
            verb = "vanish-random" if silent else "kill-random"
            self.changes[-1].what = f"{verb} {share * 100:g}% ({len(chosen)} daemons)"
        return chosen

    def start(self, node: str) -> None:
        """Start a daemon again; it dials its peers, and its client subscribes as before."""
        daemon = self.find(node)
        if daemon.alive:
            raise ScriptError(f"{node} is running already")
        self._change(f"start {node}")
        daemon.run()
        for src, dialler in self._diallers:
            if src is daemon:
                dialler.dial()
        self._look_again()

    def start_all(self) -> None:
        """Start all that are dead."""
        for node, daemon in self.daemons.items():
            if not daemon.alive:
                self.start(node)

    def cut(self, one: str, another: str) -> None:
        """Close the link of two daemons, and let nobody open it."""
        pair = self.find_pair(one, another)
        self._change(f"cut {one} {another}")
        self._cut.add(pair)
        for end in self._ends(pair):
            self.schedule(self.now, end.close)
        self._look_again()

    def swallow(self, one: str, another: str) -> None:
        """Let the link of two daemons lose all that is sent, without telling anybody."""
        pair = self.find_pair(one, another)
        self._change(f"swallow {one} {another}")
        self._swallowed.add(pair)
        for end in self._ends(pair):
            end.deaf = end.other.deaf = True
        self._look_again()

    def heal(self, one: str, another: str) -> None:
        """Let two daemons link again. Connections that have lost bytes stay lost."""
        pair = self.find_pair(one, another)
        self._change(f"heal {one} {another}")
        self._cut.discard(pair)
        self._swallowed.discard(pair)
        self._look_again()

    def subscribe(self, node: str, substring: str) -> None:
        """Let the client of a daemon subscribe."""
        daemon, text = self.find(node), substring.encode()
        if text in daemon.wanted:
            return
        self._change(f"subscribe {node} {substring}")
        daemon.want(daemon.wanted | {text})
        if daemon.alive:
            daemon.say(b"sub %b\n" % text)
        self._look_again()

    def unsubscribe(self, node: str, substring: str) -> None:
        """Undo :meth:`subscribe`."""
        daemon, text = self.find(node), substring.encode()
        if text not in daemon.wanted:
            raise ScriptError(f"{node} does not subscribe {substring}")
        self._change(f"unsubscribe {node} {substring}")
        self.mail.excuse(daemon.key)  # what may be under way
        daemon.want(daemon.wanted - {text})
        if daemon.alive:
            daemon.say(b"unsub %b\n" % text)
        self._look_again()

    def publish(self, node: str, name: str, size: int = 64) -> None:
        """Let the client of a daemon publish a message of ``size`` bytes or a few more."""
        daemon, text = self.find(node), name.encode()
        if not daemon.alive:
            return
        due = frozenset(
            self.daemons[other].key
            for other in self._reachable(node)
            if self.daemons[other].wants(text, here=other == node)
        )
        quiet = self.converged and not any(one.mesh.forwarding.flooding for one in self.living())
        interested = frozenset(other for other, _ in due)
        edges = self._least.get((node, interested))
        if edges is None:
            edges = self._least[node, interested] = least_edges(self._truth, node, interested)
        data = self.mail.post(self.now, node, due, edges, stable=quiet, size=size)
        daemon.say(wire.frame(text, data))

    def choose(self, share: float) -> list[str]:
        """Return this share of the living daemons, at least one, by chance."""
        living = [daemon.node for daemon in self.living()]
        count = min(len(living), max(1, round(share * len(living)))) if share else 0
        return self.rng.sample(living, count)

    def find(self, node: str) -> Daemon:
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

    def _ends(self, pair: frozenset[str]) -> list[End]:
        """Return all ends of the connections between two daemons."""
        return [
            end
            for node in sorted(pair)
            for end in self.daemons[node].ends
            if end.other.node in pair - {node}
        ]

    # What is counted

    def _bury(self, daemon: Daemon) -> None:
        """Keep the counters of a daemon that ends."""
        self._gone.update(_numbers(daemon.mesh))
        self._refused.update(daemon.mesh.counters.refused)

    def _sample(self) -> None:
        """Book the advert bytes since the last call, to the time when all had converged or not."""
        sent = self._gone["advert_bytes_out"] + sum(
            daemon.mesh.counters.advert_bytes_out for daemon in self.living()
        )
        living = sum(1 for _ in self.living())
        self._times[self.converged] += (self.now - self._sampled_at) * living
        self._bytes[self.converged] += sent - self._sampled
        self._sampled, self._sampled_at = sent, self.now

    # Results

    def edges(self) -> list[dict[str, Any]]:
        """Return the rows of the edge list, as one daemon of each connected part has them."""
        rows: list[dict[str, Any]] = []
        for part in sorted(set(self._parts.values()), key=min):
            rows += Report(self.daemons[min(part)].mesh).edges()
        return rows

    def results(self) -> Results:
        """Return what has been seen so far. What was published just now may be under way still."""
        self._sample()
        self.mail.disturb(self.now)
        counters = Counter(self._gone)
        refused = Counter(self._refused)
        living = list(self.living())
        running = {daemon.key for daemon in living}
        for daemon in living:
            counters.update(_numbers(daemon.mesh))
            refused.update(daemon.mesh.counters.refused)
        rates = [
            daemon.mesh.counters.advert_bytes_out / (self.now - daemon.started)
            for daemon in living
            if daemon.started < self.now
        ]
        times = sum(self._times.values())
        pairs = {edge for edge in map(_pair, self.graph) if edge[0] != edge[1]}
        return Results(
            daemons=len(self.daemons),
            links=len(pairs),
            living=len(living),
            duration=self.now,
            events=self.events,
            changes=[replace(one) for one in self.changes],
            relapses=self._relapses,
            stable=self.mail.add_up(self.now, running, stable=True),
            unstable=self.mail.add_up(self.now, running, stable=False),
            link_messages=self.mail.links,
            advert_rate=self._sampled / times if times else 0.0,
            advert_rate_most=max(rates, default=0.0),
            advert_rate_stable=self._bytes[True] / self._times[True] if self._times[True] else None,
            counters=dict(counters),
            refused=dict(refused),
        )


def _pair(edge: Edge) -> Edge:
    return min(edge), max(edge)


def _numbers(mesh: Mesh) -> dict[str, int]:
    """Return the counters of a mesh that are numbers."""
    return {
        counter.name: value
        for counter in fields(mesh.counters)
        if isinstance(value := getattr(mesh.counters, counter.name), int)
    }
