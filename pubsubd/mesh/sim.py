"""A mesh of many daemons in one process, on a clock of its own: no sockets, no waiting.

Each daemon is the real :class:`~pubsubd.broker.Broker` with the real
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from pubsubd import wire
from pubsubd.broker import Broker
from pubsubd.errors import ProtocolError, PubsubdError
from pubsubd.limits import Limits
from pubsubd.mesh.adverts import Advert, format_advert
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.graphs import Edge, Graph, neighbours, reach
from pubsubd.mesh.interests import MAX_INTERESTS
from pubsubd.mesh.report import Report
from pubsubd.mesh.state import MeshConfig
from pubsubd.outbox import Pieces

EPOCH = 1_767_225_600.0
"""Seconds since the epoch at which a simulation begins: 2026-01-01."""

_STEP = 0.01  # seconds between two looks whether all have converged
_WATCH = 1.0  # seconds between two looks whether all still agree
_GRACE = 1.0  # seconds of peace that a message needs besides its way to be stable
# As the dialler of a daemon has them:
_CONNECT_TIMEOUT = 10.0  # seconds until an address that does not answer is given up
_BACKOFF, _BACKOFF_MAX = 0.5, 30.0  # seconds: the longest wait before a second attempt, and ever
_STEADY = 10.0  # seconds that a link has to last for the waits to begin anew
_RELAY = b"pub //pubsubd/relay "
_MARK = b"sim"  # what the data of a simulated message begins with


class ScriptError(PubsubdError):
    """An action of a simulation that makes no sense, in one line."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is to happen: see :func:`parse_script`."""

    at: float
    verb: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.verb, *self.args))


_ARGS = {
    "kill": (1, 1),
    "vanish": (1, 1),
    "start": (1, 1),
    "kill-random": (1, 1),
    "vanish-random": (1, 1),
    "cut": (2, 2),
    "swallow": (2, 2),
    "heal": (2, 2),
    "subscribe": (2, 2),
    "unsubscribe": (2, 2),
    "publish": (2, 4),
    "skew": (2, 2),
}


def parse_script(text: str) -> list[Action]:
    """Return the actions of a script: ``at <seconds> <action> <arguments>`` a line, ``#`` comments.

    ====================================  ==========================================================
    kill NODE, start NODE                 end a daemon: its connections close; start it, or all
    vanish NODE                           end it as a power cut does: nothing more comes, no close
    kill-random N%, vanish-random N%      so many of those that live
    cut A B, swallow A B, heal A B        close the link, or let it lose all bytes; mend either
    subscribe NODE SUBSTRING              a client of the daemon subscribes; ``unsubscribe`` so too
    publish NODE NAME [TIMES [SECONDS]]   a client publishes, so often, so far apart (1, 0.1)
    skew NODE SECONDS                     its clock is so much ahead of the others, or behind
    ====================================  ==========================================================

    In the place of a NODE may stand ``any``, for one of the living daemons by chance, ``N%``, for
    so many of them, and ``all``. A publisher by chance is another one each time.

    Raises:
        ScriptError: a line that is not like this, by its number.
    """
    actions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            actions.append(_parse_action(words))
        except ScriptError as error:
            raise ScriptError(f"line {number}: {error}") from None
    return sorted(actions, key=lambda action: action.at)


def _parse_action(words: list[str]) -> Action:
    if len(words) < 3 or words[0] != "at":
        raise ScriptError("it is not: at <seconds> <action> <arguments>")
    at, verb, args = _seconds(words[1]), words[2], tuple(words[3:])
    if verb not in _ARGS:
        raise ScriptError(f"{wire.quote(verb.encode())} is none of: {', '.join(_ARGS)}")
    least, most = _ARGS[verb]
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ScriptError(f"{verb} takes {wanted} arguments, not {len(args)}")
    if verb.endswith("-random"):
        _share(args[0])
    if verb in ("subscribe", "unsubscribe", "publish"):
        try:
            wire.check_name(args[1].encode())
        except ProtocolError as error:
            raise ScriptError(error.text) from None
    if verb == "skew":
        _skew(args[1])
    if verb == "publish" and len(args) > 2:
        _times(args[2])
        _seconds(*args[3:])
    return Action(at, verb, args)


def _seconds(text: str = "0.1") -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise ScriptError(f"{wire.quote(text.encode())} is not a number of seconds")
    return found


def _skew(text: str) -> float:
    return -_seconds(text[1:]) if text.startswith("-") else _seconds(text)


def _times(text: str = "1") -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise ScriptError(f"{wire.quote(text.encode())} is not how often to publish")
    return int(text)


def _share(text: str) -> float:
    try:
        found = float(text[:-1]) / 100 if text.endswith("%") else -1.0
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ScriptError(f"{wire.quote(text.encode())} is not a share like 10%")
    return found


# What is simulated


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
        if _RELAY in whole:
            self._sim.count_crossings(self.node, self.other.node, whole)
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
            self._sim.count_delivery(self.key, said)

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


# Results


@dataclass(slots=True)
class Change:
    """Something that has happened to the mesh.

    Attributes:
        at: when.
        what: it, and how much more at the same time.
        took: seconds until all had converged, or None if something else came first.
        advert_bytes: what a daemon has sent of adverts by then, on average.
    """

    at: float
    what: str
    took: float | None = None
    advert_bytes: float | None = None


@dataclass(slots=True)
class Message:
    """A message that was published; see the module for *due* and *stable*."""

    at: float
    origin: str
    due: frozenset[tuple[str, int]]
    least: int
    stable: bool
    crossings: int = 0
    overtaken: int = 0
    got: Counter[tuple[str, int]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What has become of some messages.

    Attributes:
        messages: how many.
        due: deliveries that had to be.
        lost: of these, what did not come, although the daemon is still the same.
        duplicates: deliveries beyond the first.
        overtaken: deliveries after one of a message that was published later at the same daemon.
        crossings: links that messages have crossed, each message and link.
        least: the least that would have done.
    """

    messages: int
    due: int
    lost: int
    duplicates: int
    overtaken: int
    crossings: int
    least: int

    @property
    def excess(self) -> float:
        """Crossings by the least number of them."""
        return self.crossings / self.least if self.least else float(bool(self.crossings)) + 1


@dataclass(frozen=True, slots=True)
class Results:
    """What a simulation has shown. Times in seconds.

    Attributes:
        daemons, links: of the graph; links whoever dialled, and however often.
        living: daemons that run at the end.
        duration, events: how long it was, and how many events.
        changes: what has happened, and how long it took to converge.
        relapses: how often tables disagreed although nothing had happened.
        stable, unstable: deliveries of stable messages, and of the others.
        link_messages: ids of two daemons -> messages that have crossed their link, and the least.
        advert_rate: bytes a second of adverts that a daemon sends, mean over the run.
        advert_rate_most: the same for the daemon that sends most, since its start.
        advert_rate_stable: the mean while everything has converged; None if it never has.
        counters: those of the meshes, added up.
        refused: code -> connections refused.
    """

    daemons: int
    links: int
    living: int
    duration: float
    events: int
    changes: list[Change]
    relapses: int
    stable: Delivery
    unstable: Delivery
    link_messages: dict[Edge, tuple[int, int]]
    advert_rate: float
    advert_rate_most: float
    advert_rate_stable: float | None
    counters: dict[str, int]
    refused: dict[str, int]


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
        messages: what was published, in order.
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
        self.messages: list[Message] = []
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
        self._truth: dict[str, tuple[str, ...]] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._pending: list[Daemon] = []
        self._looking = False
        self._relapses = 0
        self._converged_at = 0.0
        self._versions = 0
        self._grace = _GRACE + self._longest() * latency * (1 + jitter)
        self._least: dict[tuple[str, frozenset[str]], list[Edge]] = {}
        self._recent: deque[Message] = deque()
        self._latest: dict[tuple[tuple[str, int], str], int] = {}
        self._carried: Counter[Edge] = Counter()
        self._minimum: Counter[Edge] = Counter()
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
                    daemon.mesh._keep(other, frame)

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

    def neighbours(self, node: str) -> tuple[str, ...]:
        """Return who has a whole link with a living daemon, in order; nobody if it is dead."""
        return self._truth.get(node, ())

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
        self._truth = {node: tuple(sorted(near.get(node, ()))) for node in alive}
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
        self._disturb()

    def _disturb(self) -> None:
        """Take note that what has been published just now is not stable."""
        while self._recent and self._recent[0].at < self.now - self._grace:
            self._recent.popleft()
        for message in self._recent:
            message.stable = False

    def _look(self) -> None:
        """See whether all have converged: the last one that has not is asked first."""
        while self._pending and self._agrees(self._pending[-1]):
            self._pending.pop()
        if not self._pending:
            self._pending = [d for d in self._living() if not self._agrees(d)]
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
            living = sum(1 for _ in self._living())
            last.advert_bytes = (self._sampled - self._changed_bytes) / max(living, 1)

    def _agrees(self, daemon: Daemon) -> bool:
        """Return whether a daemon's table tells what is true."""
        if not daemon.alive:
            return True
        graph, adverts = daemon.mesh.table.graph, daemon.mesh.table.adverts
        for node in self._parts[daemon.node]:
            if graph.get(node, ()) != self._truth[node] or node not in adverts:
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
            for daemon in self._living()
        )

    def _version(self) -> int:
        return sum(daemon.mesh.table.version for daemon in self._living())

    def _watch(self) -> None:
        """Notice tables that change although nothing has happened."""
        if self.converged and self._version() != self._versions:
            self._versions = self._version()
            self._pending = [d for d in self._living() if not self._agrees(d)]
            if self._pending:
                self._sample()
                if self.now - self._converged_at > self._grace:
                    self._relapses += 1
                else:  # some had not heard of anything yet, and so agreed with what is true again
                    self.changes[-1].took = None
                self._disturb()
                self.converged = False
                self._looking = True
                self.schedule(self.now + _STEP, self._look)
        self.schedule(self.now + _WATCH, self._watch)

    def _living(self) -> Iterator[Daemon]:
        return (daemon for daemon in self.daemons.values() if daemon.alive)

    # What happens

    def kill(self, node: str, *, silent: bool = False) -> None:
        """End a daemon: its connections close, or, if ``silent``, nothing more comes from it."""
        daemon = self._find(node)
        if not daemon.alive:
            raise ScriptError(f"{node} is dead already")
        self._change(f"{'vanish' if silent else 'kill'} {node}")
        self._bury(daemon)
        daemon.end(silent)
        self._look_again()

    def kill_random(self, share: float, *, silent: bool = False) -> list[str]:
        """End this share of the living daemons, at least one; return which."""
        chosen = self._choose(share)
        for node in chosen:
            self.kill(node, silent=silent)
        if chosen:
            verb = "vanish-random" if silent else "kill-random"
            self.changes[-1].what = f"{verb} {share * 100:g}% ({len(chosen)} daemons)"
        return chosen

    def start(self, node: str) -> None:
        """Start a daemon again; it dials its peers, and its client subscribes as before."""
        daemon = self._find(node)
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
        pair = self._find_pair(one, another)
        self._change(f"cut {one} {another}")
        self._cut.add(pair)
        for end in self._ends(pair):
            self.schedule(self.now, end.close)
        self._look_again()

    def swallow(self, one: str, another: str) -> None:
        """Let the link of two daemons lose all that is sent, without telling anybody."""
        pair = self._find_pair(one, another)
        self._change(f"swallow {one} {another}")
        self._swallowed.add(pair)
        for end in self._ends(pair):
            end.deaf = end.other.deaf = True
        self._look_again()

    def heal(self, one: str, another: str) -> None:
        """Let two daemons link again. Connections that have lost bytes stay lost."""
        pair = self._find_pair(one, another)
        self._change(f"heal {one} {another}")
        self._cut.discard(pair)
        self._swallowed.discard(pair)
        self._look_again()

    def subscribe(self, node: str, substring: str) -> None:
        """Let the client of a daemon subscribe."""
        daemon, text = self._find(node), substring.encode()
        if text in daemon.wanted:
            return
        self._change(f"subscribe {node} {substring}")
        daemon.want(daemon.wanted | {text})
        if daemon.alive:
            daemon.say(b"sub %b\n" % text)
        self._look_again()

    def unsubscribe(self, node: str, substring: str) -> None:
        """Undo :meth:`subscribe`."""
        daemon, text = self._find(node), substring.encode()
        if text not in daemon.wanted:
            raise ScriptError(f"{node} does not subscribe {substring}")
        self._change(f"unsubscribe {node} {substring}")
        for message in self._recent:  # may be under way, and is not due any more
            if not message.got[daemon.key]:
                message.due -= {daemon.key}
        daemon.want(daemon.wanted - {text})
        if daemon.alive:
            daemon.say(b"unsub %b\n" % text)
        self._look_again()

    def publish(self, node: str, name: str, size: int = 64) -> None:
        """Let the client of a daemon publish a message of ``size`` bytes or a few more."""
        daemon, text = self._find(node), name.encode()
        if not daemon.alive:
            return
        due = frozenset(
            self.daemons[other].key
            for other in self._reachable(node)
            if self.daemons[other].wants(text, here=other == node)
        )
        quiet = self.converged and not any(one.mesh.forwarding.flooding for one in self._living())
        edges = self._least_edges(node, frozenset(other for other, _ in due))
        message = Message(self.now, node, due, len(edges), quiet)
        self._minimum.update(edges)
        self.messages.append(message)
        self._recent.append(message)
        data = b"%b %d " % (_MARK, len(self.messages) - 1)
        daemon.say(wire.frame(text, data.ljust(size, b".")))

    def act(self, action: Action) -> None:
        """Do what an action of a script says.

        Raises:
            ScriptError: it cannot be done.
        """
        verb, args = action.verb, action.args
        try:
            if verb in ("kill-random", "vanish-random"):
                self.kill_random(_share(args[0]), silent=verb == "vanish-random")
            elif verb in ("cut", "swallow", "heal"):
                getattr(self, verb)(*args)
            elif verb == "publish":
                self._publish(args[0], args[1], _times(*args[2:3]), _seconds(*args[3:]))
            elif verb == "start" and args[0] == "all":
                self.start_all()
            else:
                for node in self._nodes(args[0]):
                    if verb in ("kill", "vanish"):
                        self.kill(node, silent=verb == "vanish")
                    elif verb == "skew":
                        self.daemons[node].skew = _skew(args[1])
                    else:
                        getattr(self, verb)(node, *args[1:])
        except ScriptError as error:
            raise ScriptError(f"at {action.at:g} {action}: {error}") from None

    def play(self, actions: Iterable[Action]) -> None:
        """Schedule the actions of a script.

        Raises:
            ScriptError: one of them names a daemon or link that is not there.
        """
        for action in actions:
            if action.verb in ("cut", "swallow", "heal"):
                self._find_pair(*action.args)
            elif not action.args[0].endswith("%") and action.args[0] not in ("all", "any"):
                self._find(action.args[0])
            self.schedule(action.at, self.act, action)

    def _publish(self, whom: str, name: str, left: int, pause: float) -> None:
        for node in self._nodes(whom):
            self.publish(node, name)
        if left > 1:
            self.schedule(self.now + pause, self._publish, whom, name, left - 1, pause)

    def _nodes(self, whom: str) -> list[str]:
        """Return the daemons that a word of a script stands for."""
        if whom in self.daemons:
            return [whom]
        living = [daemon.node for daemon in self._living()]
        if whom == "all":
            return living
        if whom == "any":
            return [self.rng.choice(living)] if living else []
        if whom.endswith("%"):
            return self._choose(_share(whom))
        return [self._find(whom).node]

    def _choose(self, share: float) -> list[str]:
        living = [daemon.node for daemon in self._living()]
        count = min(len(living), max(1, round(share * len(living)))) if share else 0
        return self.rng.sample(living, count)

    def _find(self, node: str) -> Daemon:
        if node not in self.daemons:
            raise ScriptError(f"there is no daemon {wire.escape(node, 64)}")
        return self.daemons[node]

    def _find_pair(self, one: str, another: str) -> frozenset[str]:
        self._find(one)
        self._find(another)
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

    def _least_edges(self, origin: str, interested: frozenset[str]) -> list[Edge]:
        """Return the edges of the tree of shortest paths that lead to those interested."""
        found = self._least.get((origin, interested))
        if found is None:
            above: dict[str, str] = {origin: origin}
            queue = deque([origin])
            while queue:
                node = queue.popleft()
                for neighbour in self._truth[node]:
                    if neighbour not in above:
                        above[neighbour] = node
                        queue.append(neighbour)
            edges: set[Edge] = set()
            for node in interested:
                while node != origin and (above[node], node) not in edges:
                    edges.add((above[node], node))
                    node = above[node]  # noqa: PLW2901  (up the tree)
            found = [(min(edge), max(edge)) for edge in sorted(edges)]
            self._least[origin, interested] = found
        return found

    def count_crossings(self, src: str, dst: str, chunk: bytes) -> None:
        """Take note of the messages in the batches that ``chunk``, whole frames, carries."""
        link = min(src, dst), max(src, dst)
        at = 0
        while at < len(chunk):
            end = wire.next_frame(chunk, at)
            if chunk.startswith(_RELAY, at):
                inner = chunk.index(b"\n", at) + 1
                while inner < end - 1:
                    after = wire.next_frame(chunk, inner)
                    words = chunk[inner:after].split(b" ", 5)
                    if words[3] == _MARK:
                        self.messages[int(words[4])].crossings += 1
                        self._carried[link] += 1
                    inner = after
            at = end

    def count_delivery(self, key: tuple[str, int], data: bytes) -> None:
        """Take note of what the client of a daemon has received."""
        words = data.split(b" ", 2)
        if words[0] != _MARK:
            return
        number = int(words[1])
        message = self.messages[number]
        message.got[key] += 1
        latest = self._latest.get((key, message.origin), -1)
        if number < latest:
            message.overtaken += 1
        self._latest[key, message.origin] = max(number, latest)

    def _bury(self, daemon: Daemon) -> None:
        """Keep the counters of a daemon that ends."""
        self._gone.update(_numbers(daemon.mesh))
        self._refused.update(daemon.mesh.counters.refused)

    def _sample(self) -> None:
        """Book the advert bytes since the last call, to the time when all had converged or not."""
        sent = self._gone["advert_bytes_out"] + sum(
            daemon.mesh.counters.advert_bytes_out for daemon in self._living()
        )
        living = sum(1 for _ in self._living())
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
        for message in self._recent:
            if message.at > self.now - self._grace:
                message.stable = False
        counters = Counter(self._gone)
        refused = Counter(self._refused)
        living = list(self._living())
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
            stable=self._deliveries([one for one in self.messages if one.stable]),
            unstable=self._deliveries([one for one in self.messages if not one.stable]),
            link_messages={
                edge: (self._carried[edge], self._minimum[edge])
                for edge in sorted(self._carried | self._minimum)
            },
            advert_rate=self._sampled / times if times else 0.0,
            advert_rate_most=max(rates, default=0.0),
            advert_rate_stable=self._bytes[True] / self._times[True] if self._times[True] else None,
            counters=dict(counters),
            refused=dict(refused),
        )

    def _deliveries(self, messages: list[Message]) -> Delivery:
        """Add up what has become of ``messages``."""
        running = {daemon.key for daemon in self._living()}
        lost = 0
        for message in messages:
            if message.stable or message.at <= self.now - self._grace:
                lost += sum(key in running and not message.got[key] for key in message.due)
        return Delivery(
            messages=len(messages),
            due=sum(len(message.due) for message in messages),
            lost=lost,
            duplicates=sum(sum(one.got.values()) - len(+one.got) for one in messages),
            overtaken=sum(message.overtaken for message in messages),
            crossings=sum(message.crossings for message in messages),
            least=sum(message.least for message in messages),
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
