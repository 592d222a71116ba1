"""What all connections of the hub port share: actors, topics, what is on its way.

Strategy: a connection is a peer of the broker. What it publishes is put to the router as a line
frame; what it is to get comes as chunks of line frames, one bytes object for all who get the same.
A chunk is read and put into JSON once, by a :class:`~pubsubd.hub.render.Batch` that all its
receivers share, and what differs between them is spliced in.

While one connection's input is worked off, what that leads to is put, in order, and leaves in one
send a connection when :meth:`Hub.flush` is called.

Invariants:

- A connection is in ``touched`` if and only if its ``out`` is not empty.
- What is done to a connection that does not speak is done by :meth:`Hub.spare`, so that a fault
  ends that one alone.
- ``batches`` holds the chunks it is keyed by, so that an id is never that of another chunk.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from pubsubd.access.identity import Authority
from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.hub import messages
from pubsubd.hub.codec import Message
from pubsubd.hub.registry import Registry
from pubsubd.hub.render import Batch, read_chunk
from pubsubd.hub.synap import Synap
from pubsubd.hub.topics import TopicTable
from pubsubd.protocol.limits import MIB, HubLimits

if TYPE_CHECKING:
    from pubsubd.hub.connection import HubConnection

_KEPT = 16 * MIB  # bytes of renderings beyond which others are not kept
_BATCHES = 8  # chunks whose renderings are kept: receivers of one read have few different ones


class Hub:
    """The hub port of one daemon.

    Args:
        broker: routes what is published here and there.
        limits: of this port.
        terms: of connections that come by no listener; None for the broker's own.
        clock: monotonic seconds.
        wall: seconds since the epoch.

    Attributes:
        terms: of connections that come by no listener.
        connections: those of all connections, by the number of the peer.
        touched: connections that have something to send.
        ignored: envelopes that were malformed.
        processed, failed: ``hub:*`` messages carried out, and refused.
        hosts: names under which browsers may reach this port, besides localhost and addresses.
        origins: web pages that may use it, besides its own; ``*`` for all.
        ready: whether the daemon's listeners are open; the daemon's.
        down: tasks of the daemon that have failed and are not running again; the daemon's.
        scrape: returns all metrics and their content type, in steps, for the Accept header of who
            asks; None for nothing. The daemon's.
    """

    def __init__(
        self,
        broker: Broker,
        limits: HubLimits,
        *,
        terms: ListenerState | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.terms = terms or ListenerState("hub", broker.terms.limits, limits)
        self.hosts: frozenset[str] = frozenset()
        self.origins: frozenset[str] = frozenset()
        self.clock = clock
        self.wall = wall
        self.started = clock()
        self.registry = Registry(limits.max_actors)
        self.topics = TopicTable(limits.max_topics, limits.topic_idle)
        self.synap = Synap(broker, self.topics, limits, clock, wall)
        self.connections: dict[int, HubConnection] = {}
        self.touched: dict[HubConnection, None] = {}
        self.ignored = 0
        self.processed = 0
        self.failed = 0
        self.ready = True
        self.down: Mapping[str, int] = {}
        self.scrape: Callable[[str], Steps[tuple[bytes, str]]] | None = None
        self._batches: dict[int, tuple[bytes, Batch]] = {}
        self._over: deque[tuple[HubConnection, Iterator[None]]] = deque()  # registrations that end

    def replace(self, limits: HubLimits, *, hosts: frozenset[str], origins: frozenset[str]) -> None:
        """Let other limits, names and origins hold from now on; what is over a limit stays."""
        self.limits = self.terms.hub_limits = limits
        self.hosts, self.origins = hosts, origins
        self.registry.max_actors = limits.max_actors
        self.topics.resize(limits.max_topics, limits.topic_idle)
        self.synap.limits = self.synap.subscribers.limits = limits

    @property
    def authority(self) -> Authority | None:
        """What checks signed tokens; None where there are none."""
        return self.broker.access.authority

    @property
    def state(self) -> str:
        """Whether the daemon serves: ``ok``, or ``full``, ``ending`` or ``failing``.

        It is failing while one of its own tasks is down.
        """
        if not self.ready:
            return "ending"
        if self.down:
            return "failing"
        most = self.broker.terms.limits.max_connections
        return "ok" if len(self.broker.peers) < most else "full"

    def now(self) -> int:
        """Return the time in epoch milliseconds."""
        return int(self.wall() * 1000)

    def ticks(self) -> int:
        """Return milliseconds that only go forward, by which it is told what is over."""
        return int(self.clock() * 1000)

    def date(self, ticks: int) -> int:
        """Return which epoch milliseconds :meth:`ticks` are, by the wall clock as it is now."""
        return ticks + self.now() - self.ticks()

    def batch(self, chunk: bytes) -> Batch:
        """Return the renderings of ``chunk``, which comes from the peer that speaks now."""
        known = self._batches.get(id(chunk))
        if known is not None:
            return known[1]
        batches = self._batches
        if len(batches) >= _BATCHES or sum(one.size for _, one in batches.values()) > _KEPT:
            batches.clear()
        noted, notes = self.broker.notes
        if noted is chunk and None not in notes:
            messages = cast("list[Message]", notes)  # who has put them knows them already
        else:
            messages = read_chunk(chunk, *self._identify(self.broker.speaker))
        batch = Batch(messages, self.now())
        batches[id(chunk)] = chunk, batch
        return batch

    def _identify(self, speaker: Peer | None) -> tuple[str, bool]:
        """Return the address of who speaks, and whether to trust the one inside its messages."""
        if speaker is None:  # a request over HTTP, which says so inside, or the daemon itself
            return messages.HUB, True
        connection = self.connections.get(speaker.number)
        if connection is not None and not speaker.relayed:
            return connection.sender, True
        return address(speaker), speaker.vouched  # as the daemon has that took it in

    def flush(self) -> None:
        """Send everything that was put, each connection's in one piece."""
        try:
            self.broker.flush()
        finally:
            for connection in list(self.touched):
                self.spare(connection, connection.flush)

    def spare(self, connection: HubConnection, call: Callable[[], object]) -> bool:
        """Do something to a connection; what is raised ends that one, and is told by False."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  (it is nobody else's)
            self.broker.faults.end(connection.peer, error)
            return False
        return True

    def sweep(self) -> Iterator[None]:
        """Let go of what is over, in steps; to be called about once a second."""
        self._batches.clear()
        self.broker.notes = b"", []
        turn = self.broker.turn
        turn.begin()
        for expire in (
            self.expire,
            partial(self.topics.expire, self.clock()),
            partial(self.synap.expire, self.clock()),
        ):
            while expire():
                if turn.over():
                    yield
                    turn.begin()

    def expire(self, most: int = 1) -> bool:
        """Go on, ``most`` steps at most, with ending registrations that are over.

        The subscriptions made under them end with them. Returns whether something may be left.
        """
        over = self._over
        for _ in range(most):
            if not over:
                for actor in self.registry.expire(self.ticks()):
                    connection = cast("HubConnection", actor.connection)
                    if connection.signal is not None:
                        over.append((connection, connection.signal.forget(actor)))
                if not over:
                    return False
            connection, steps = over[0]
            try:
                next(steps)
            except StopIteration:
                over.popleft()
            except Exception as error:  # noqa: BLE001  (as above)
                over.popleft()
                self.broker.faults.end(connection.peer, error)
            if self.broker.turn.over():
                break
        return True

    def metrics(self) -> messages.Metrics:
        """Return the payload of hub:metrics_response."""
        counters = self.broker.counters
        return messages.Metrics(
            actors=len(self.registry),
            connections=len(self.connections),
            topics=len(self.topics),
            subscriptions=self.broker.router.subscriptions,
            messages_processed=self.processed,
            messages_failed=self.failed,
            envelopes_ignored=self.ignored,
            messages_in=counters.messages_in,
            messages_out=counters.messages_out,
            uptime_seconds=round(self.clock() - self.started, 3),
        )


def address(peer: Peer) -> str:
    """Return what a peer is called that has not registered: where it comes from."""
    if peer.relayed:
        return peer.label
    return f"unix/{peer.number}" if peer.label == "unix" else f"tcp/{peer.label}"
