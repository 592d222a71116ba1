"""Traces: the way of a name through the mesh, and who would receive it, as ``//pubsubd/trace``.

A probe goes the way of a batch of that name: each daemon asks its own router, and passes the probe
on to the same next hops. It answers with a *hop*, its account of itself, by the link that the probe
came by. So do those before it, until the hop is where the probe began. A probe is never delivered.

Clocks of machines differ, so nobody's time is compared with another's: each daemon measures how
long the answers of its next hops take, without the time that these have worked.

Invariants:

- A daemon passes on each probe once. If it comes again, which it does while batches go over all
  links, the daemon only answers that it has had it.
- A hop is taken only for a probe that is remembered, and only from a daemon that was passed it.
- What is remembered of others' probes is bounded by their count, and of one's own by bytes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial

import msgspec

from pubsubd.broker.broker import Broker
from pubsubd.broker.connections import Scope
from pubsubd.broker.peer import Peer
from pubsubd.broker.rate import Bucket
from pubsubd.broker.trace import TRACE, Hop, Receiving, Request, find_receiving, read_request
from pubsubd.broker.turn import Steps
from pubsubd.broker.unsent import Waited
from pubsubd.mesh.forwarding import TTL, Forwarding
from pubsubd.mesh.link import Link
from pubsubd.mesh.remotes import Group
from pubsubd.mesh.state import State
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import KIB
from pubsubd.routing.targets import CopyTargets, Targets

MAX_TRACES = 16
"""Traces that a daemon makes for its clients at once."""

MAX_PROBES = 1_024
"""Probes that are remembered, some 500 bytes each; the oldest is forgotten for a new one."""

PROBES = 200
"""Probes a second that are taken from one link; bursts may have five times as many."""

KEPT = 15.0
"""Seconds for which a probe is remembered; longer than anybody waits for its hops."""

MAX_HOP = 8 * KIB
"""Bytes of a hop; larger ones are dropped."""

ROOM = 1024 * KIB
"""Bytes of the hops of one trace; more are counted."""

MAX_HOPS = 4_096
"""Hops that one trace waits for or has had; one that comes twice or names more is dropped."""

MAX_NAMED = 100
"""Daemons that are named of those that have no part in a trace, for each reason."""

_PROBE = re.compile(
    rb"probe (([A-Za-z0-9._:\-]{1,64})@([0-9]{1,18}) [0-9]{1,18}) ([0-9]{1,3}) "
    rb"(open|ruled|counts) ([^ \r\n]{1,1024})"
).fullmatch
Look = Callable[..., Generator[Waited | None, None, tuple[Receiving, Targets | CopyTargets]]]
"""Called as :func:`find_receiving` without the first two arguments; yields what it waits for."""

_HOP = re.compile(
    rb"hop ([A-Za-z0-9._:\-]{1,64}@[0-9]{1,18} [0-9]{1,18}) (-|[0-9]{1,9}\.[0-9]{3}) "
).match


_Crossing = tuple[str | None, str | None]
"""A link that a probe crosses: the daemon before it, and the one behind it."""


class _Probe:
    """A probe that has been here.

    Attributes:
        key: its origin and number, as in the text of probes.
        name: what the origin has published it as, or as what it travels.
        shows: whose connections are listed: ``open``, ``ruled`` or ``counts``.
        arrival: the link that it came by; None if it began here.
        links: how many it has crossed.
        began: when it came.
        sent: id of a next hop -> when the probe was passed on to it.
    """

    def __init__(
        self, key: bytes, name: bytes, shows: bytes, arrival: Link | None, links: int, began: float
    ) -> None:
        self.key, self.name, self.shows = key, name, shows
        self.arrival, self.links, self.began = arrival, links, began
        self.sent: dict[str, float] = {}


class _Trace:
    """A trace that a client waits for.

    Attributes:
        probe: its probe.
        scope: the connections that who asks may see; None for all.
        timeout: seconds that hops are waited for.
        travels_as: the name under which it crosses links; None if it crosses none.
        hops: the accounts that have come.
        awaited: those that have been named but have not come, as daemons before them and daemons.
        came: those that have come, which may be before the one that names them.
        size: bytes of those that have.
        left_out: how many were too much.
        answer: what the asker is told, once it is there.
        done: called then.
    """

    def __init__(self, probe: _Probe, scope: Scope | None, timeout: float) -> None:
        self.probe, self.scope, self.timeout = probe, scope, timeout
        self.answer = b""
        self.done: Callable[[], None] = lambda: None
        self.travels_as: bytes | None = None
        self.hops: list[Hop] = []
        self.awaited: set[_Crossing] = set()
        self.came: set[_Crossing] = set()
        self.size = self.left_out = 0


class Traces:
    """The traces of this daemon's clients, and its part in those of others.

    Args:
        state: of the mesh.
        broker: the daemon's.
        forwarding: knows the next hops.
        wake: called with the time when :meth:`working` is to be called.

    Attributes:
        due: when a trace of a client's ends.
        look: finds who receives a name here, in steps; see :func:`find_receiving`.
    """

    def __init__(
        self, state: State, broker: Broker, forwarding: Forwarding, wake: Callable[[float], None]
    ) -> None:
        self._state, self._broker, self._forwarding, self._wake = state, broker, forwarding, wake
        self._number = 0
        self._probes: dict[bytes, _Probe] = {}
        self._traces: dict[bytes, _Trace] = {}
        self._jobs: deque[Generator[Waited | None, None, None]] = deque()
        self.look: Look = partial(find_receiving, broker.router, broker.peers)
        self._rates: dict[str, Bucket] = {}
        broker.requests[TRACE] = self.request

    @property
    def due(self) -> float:
        """When the next trace ends; at once if there is work."""
        if self._jobs:
            return self._state.now()
        ends = [one.probe.began + one.timeout for one in self._traces.values()]
        return min(ends, default=float("inf"))

    @property
    def remembered(self) -> int:
        """How many probes are remembered."""
        return len(self._probes)

    # Of this daemon's clients

    def request(self, asker: Peer, data: bytes) -> Steps[bytes]:
        """Return the answer to ``//pubsubd/trace``, in steps.

        Raises:
            ProtocolError: it is no request, or not allowed.
        """
        read_request(asker, data, self._broker.reserved)
        return self._wait(self.start(data, self._broker.connections.scope(asker)))

    def start(self, data: bytes, scope: Scope | None) -> _Trace:
        """Begin a trace that has been checked.

        Args:
            data: of the request.
            scope: the connections that who asks may see; None for all.

        Raises:
            ProtocolError: ``rate-limited``, there are too many.
        """
        request = msgspec.json.decode(data, type=Request)
        if len(self._traces) >= MAX_TRACES:
            raise ProtocolError("rate-limited", f"{MAX_TRACES} traces are under way")
        state, access = self._state, self._broker.access
        self._number += 1
        key = b"%b@%d %d" % (state.node.encode(), state.incarnation, self._number)
        shows = b"counts"
        if scope is None:
            shows = b"ruled" if access.acl.rules or access.identifies else b"open"
        probe = _Probe(key, request.name.encode(), shows, None, 0, state.now())
        trace = self._traces[key] = _Trace(probe, scope, request.timeout)
        self._add(self._begin(trace))
        return trace

    def _wait(self, trace: _Trace) -> Steps[bytes]:
        delivery = self._broker.delivery
        while not trace.answer:
            delivery.on_wait(trace)
            delivery.turn.end()
            yield
        return trace.answer

    def _begin(self, trace: _Trace) -> Generator[Waited | None, None, None]:
        """Find where the name goes from here, and send the probe there."""
        probe, name = trace.probe, trace.probe.name
        receiving, targets = yield from self.look(
            name, relayed=False, listed=True, scope=trace.scope
        )
        group = _far(targets)
        if isinstance(targets, CopyTargets) and isinstance(targets.copies.far, Group):
            group, name = targets.copies.far, targets.copy_name
        links: Sequence[Link] = ()
        if group is not None:
            trace.travels_as = name
            links = self._forwarding.find_next_hops(self._state.node, group, None)
        for link in links:
            self._pass_on(probe, name, TTL, link)
        self._probes[probe.key] = probe
        self._take_hop(trace, self._describe(probe, receiving), 0)

    def _take_hop(self, trace: _Trace, hop: Hop, size: int) -> None:
        crossing = (hop.came_from, hop.node)
        trace.came.add(crossing)
        trace.awaited.discard(crossing)
        trace.size += size
        if trace.size > ROOM:
            trace.left_out += 1
        else:
            trace.hops.append(hop)
            trace.awaited.update({(hop.node, node) for node in hop.next} - trace.came)
        if not trace.awaited:
            self._finish(trace)

    def _finish(self, trace: _Trace) -> None:
        """Answer with what has come."""
        del self._traces[trace.probe.key]
        trace.answer = msgspec.json.encode(self._answer(trace))
        trace.done()

    def _answer(self, trace: _Trace) -> dict[str, object]:
        state, probe = self._state, trace.probe
        adverts, reached = state.table.adverts, state.table.hops
        took = state.now() - probe.began
        unanswered = [
            {
                "node": node,
                "from": one.node,
                "version": (adverts[node].version or None) if node in adverts else None,
            }
            for one in trace.hops
            for node in one.next
            if (one.node, node) in trace.awaited
        ]
        named = {one.node for one in trace.hops} | {str(one["node"]) for one in unanswered}
        others = sorted(adverts.keys() - named)
        away = [node for node in others if node not in reached]
        unasked = [node for node in others if node in reached]
        return {
            "name": probe.name.decode(),
            "travels_as": None if trace.travels_as is None else trace.travels_as.decode(),
            "node": state.node,
            "took_ms": round(took * 1000, 3),
            "receivers": sum(one.receivers for one in trace.hops),
            "hops": sorted(trace.hops, key=lambda one: (one.links, one.node)),
            "left_out": trace.left_out,
            "unanswered": unanswered,
            "waited": trace.timeout if unanswered else None,
            "not_asked": {"count": len(unasked), "daemons": unasked[:MAX_NAMED]},
            "unreachable": {"count": len(away), "daemons": away[:MAX_NAMED]},
        }

    # Of other daemons

    def take(self, link: Link, data: bytes) -> None:
        """Take a probe or a hop from ``link``.

        Raises:
            Unfinished: finding the next hops takes longer than this turn; it is to be taken again.
        """
        if (probe := _PROBE(data)) is not None:
            self._take_probe(link, probe)
        elif (hop := _HOP(data)) is not None:
            self._relay_hop(link, hop.group(1), hop.group(2), data[hop.end() :])
        else:
            self._state.counters.broken += 1

    def _take_probe(self, link: Link, probe: re.Match[bytes]) -> None:
        state = self._state
        key, node, incarnation, left, shows, name = probe.groups()
        now, links = state.now(), TTL - int(left) + 1
        if key in self._probes:
            again = Hop(node=state.node, came_from=link.node, links=links, again=True)
            self._send_hop(link, key, again)
            return
        origin = state.table.adverts.get(node.decode())
        if origin is None or origin.node == state.node or origin.incarnation != int(incarnation):
            state.counters.unknown_origin += 1
            return
        if not name.startswith(wire.FORWARD) or not wire.is_utf8(name):
            state.counters.broken += 1
            return
        rate = self._rates.get(link.node)
        if rate is None:
            if len(self._rates) > len(state.links) + 100:
                self._rates.clear()
            rate = self._rates[link.node] = Bucket(60 * PROBES, 5 * PROBES)
        if rate.take(now):
            state.counters.refused["trace"] += 1
            return
        route = self._broker.router.learn_relayed(b"\n" + wire.header(name, 0), name, 0)
        next_hops = self._forwarding.find_next_hops(origin.node, _far(route.targets), link)
        while len(self._probes) >= MAX_PROBES:
            del self._probes[next(iter(self._probes))]
        taken = self._probes[key] = _Probe(key, name, shows, link, links, now)
        if int(left) > 1:
            for next_hop in next_hops:
                self._pass_on(taken, name, int(left) - 1, next_hop)
        self._add(self._account(taken))

    def _account(self, probe: _Probe) -> Generator[Waited | None, None, None]:
        """Answer a probe with the account of this daemon."""
        # The origin vouches for the rights of who asks, but has no users if it is open.
        listed = probe.shows == b"ruled" or (
            probe.shows == b"open" and not self._broker.access.identifies
        )
        receiving, _ = yield from self.look(probe.name, relayed=True, listed=listed, scope=None)
        if probe.arrival is not None:
            self._send_hop(probe.arrival, probe.key, self._describe(probe, receiving))

    def _send_hop(self, link: Link, key: bytes, hop: Hop) -> None:
        self._say(link, b"hop %b - %b" % (key, msgspec.json.encode(hop)))

    def _relay_hop(self, link: Link, key: bytes, rtt: bytes, data: bytes) -> None:
        probe = self._probes.get(key)
        if probe is None or len(data) > MAX_HOP:
            self._state.counters.broken += probe is not None
            return
        sent = probe.sent.get(link.node)
        if sent is None:
            self._state.counters.broken += 1
            return
        if rtt == b"-":
            rtt = b"%.3f" % min((self._state.now() - sent) * 1000, 1e8)
        if probe.arrival is not None:
            self._say(probe.arrival, b"hop %b %b %b" % (key, rtt, data))
        elif (trace := self._traces.get(key)) is not None:
            try:
                hop = msgspec.json.decode(data, type=Hop)
            except (ValueError, RecursionError):
                self._state.counters.broken += 1
                return
            known = len(trace.came) + len(trace.awaited)
            if (hop.came_from, hop.node) in trace.came or known + len(hop.next) > MAX_HOPS:
                self._state.counters.broken += 1
                return
            hop.rtt_ms = max(0.0, round(float(rtt) - hop.took_ms, 3))
            self._take_hop(trace, hop, len(data))

    # Of both

    def _describe(self, probe: _Probe, receiving: Receiving) -> Hop:
        return Hop(
            node=self._state.node,
            came_from=None if probe.arrival is None else probe.arrival.node,
            links=probe.links,
            receivers=receiving.receivers,
            refused=receiving.refused,
            connections=receiving.connections,
            listed=receiving.listed,
            next=sorted(probe.sent),
            took_ms=round((self._state.now() - probe.began) * 1000, 3),
        )

    def _pass_on(self, probe: _Probe, name: bytes, left: int, link: Link) -> None:
        probe.sent[link.node] = self._state.now()
        self._say(link, b"probe %b %d %b %b" % (probe.key, left, probe.shows, name))

    def _say(self, link: Link, data: bytes) -> None:
        """Send something over a link, unless it has ended; an error ends that link alone."""
        if self._state.links.get(link.node) is not link:
            return
        try:
            link.say(TRACE, data)
        except Exception as error:  # noqa: BLE001  (the other links get theirs)
            self._broker.faults.end(link.peer, error)

    def _add(self, job: Generator[Waited | None, None, None]) -> None:
        self._jobs.append(job)
        self._wake(self._state.now())

    def working(self) -> Steps[None]:
        """Do what there is to do, in steps, and end traces whose time is over."""
        while self._jobs:
            job = self._jobs.popleft()
            try:
                for waited in job:
                    if waited is not None:  # it goes on when that is there
                        waited.done = partial(self._add, job)
                        break
                    yield
            except Exception as error:  # noqa: BLE001  (it is that trace's alone)
                self._broker.faults.note(error, "mesh")
        now = self._state.now()
        for trace in list(self._traces.values()):
            if now >= trace.probe.began + trace.timeout:
                self._finish(trace)
        for key, probe in list(self._probes.items()):
            if now < probe.began + KEPT:
                break
            del self._probes[key]


def _far(targets: object) -> Group | None:
    """Return the other daemons among the receivers of a name."""
    direct = targets.direct if isinstance(targets, CopyTargets) else targets
    far = direct.far if isinstance(direct, Targets) else None
    return far if isinstance(far, Group) else None
