"""State that all connections of the hub port share, whatever they speak.

Strategy: a connection is a peer of the broker. A publication goes to the router as a line frame,
and comes to its receivers as chunks of line frames, one bytes object for all who get the same. A
chunk is read and put into JSON once, by a :class:`~pubsubd.hub.render.Batch` that all its
receivers share; what differs between them is spliced in.

The output of a turn is collected, in order, and leaves in one send a connection when
:meth:`HubCore.flush` is called.

Invariants:

- A connection is in ``touched`` if and only if its ``out`` is not empty.
- Whatever is done to a connection other than the one that speaks is done by
  :meth:`HubCore.spare`, so that a fault ends that connection alone.
- ``batches`` holds the chunks it is keyed by, so that an id is never that of another chunk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import cast

from pubsubd.access.identity import Authority
from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer, address
from pubsubd.broker.turn import Steps
from pubsubd.hub import messages, replies
from pubsubd.hub.codec import Message
from pubsubd.hub.federation import Federation
from pubsubd.hub.interfaces import Connection
from pubsubd.hub.policy import Policy
from pubsubd.hub.registry import Registry
from pubsubd.hub.render import Batch, read_chunk
from pubsubd.hub.topic_table import TopicTable
from pubsubd.protocol.limits import MIB, HubLimits

__all__ = ["Connection", "HubCore", "address"]

_KEPT = 16 * MIB  # bytes of renderings beyond which others are not kept
_NOTHING = b"", Batch((), 0)
_BATCHES = 8  # chunks whose renderings are kept: receivers of one read have few different ones


Ask = Callable[[bytes, bytes], Steps[list[bytes]]]
"""Called with the name of a question and its data; returns the answers, in steps."""


class HubCore:
    """The shared state of one hub port.

    Args:
        broker: routes publications here and in the mesh.
        limits: of this port.
        listener: of connections that come by no listener; None for the broker's own.
        clock: monotonic seconds.
        wall: seconds since the epoch.

    Attributes:
        listener: of connections that come by no listener.
        registry: the actors.
        topics: the topics of this port.
        policy: rules that hold in every dialect.
        federation: its part in the mesh, or among the workers of the daemon; None if it is alone.
        settle: holds what goes out to a peer until other workers know what it has led to.
        federation: its part in the mesh; None if the daemon has no part in one.
        elsewhere: asks all other workers of the daemon; None if there are none.
        connections: all connections, by the number of the peer.
        touched: connections that have something to send.
        ignored: envelopes that were malformed.
        processed, failed: ``hub:*`` messages carried out, and refused.
        undelivered: messages that could not be delivered to a connection.
        slow_consumers: connections of this port that were cut because they were too slow.
    """

    def __init__(
        self,
        broker: Broker,
        limits: HubLimits,
        *,
        listener: ListenerState | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.listener = listener or ListenerState("hub", broker.listener.limits, limits)
        self.clock = clock
        self.wall = wall
        self.started = clock()
        self.registry: Registry[Connection] = Registry(limits.max_actors)
        self.topics = TopicTable(limits.max_topics, limits.topic_idle)
        self.policy = Policy(broker, self.topics, limits)
        self.federation: Federation | None = None
        self.settle: Callable[[Peer], None] = lambda _peer: None
        self.elsewhere: Ask | None = None
        self.connections: dict[int, Connection] = {}
        self.touched: dict[Connection, None] = {}
        self.ignored = 0
        self.processed = 0
        self.failed = 0
        self.undelivered = 0
        self.slow_consumers = 0
        self._batches: dict[int, tuple[bytes, Batch]] = {}
        self._prepared: tuple[bytes, Batch] = _NOTHING

    @property
    def authority(self) -> Authority | None:
        """The check of signed tokens; None where there are none."""
        return self.broker.access.authority

    @property
    def daemon(self) -> dict[str, str]:
        """What answers about this daemon alone have more in a mesh: its id, as ``daemon``."""
        if self.federation is None or not self.federation.named:
            return {}
        return {"daemon": self.federation.directory.node}

    # Time

    def now(self) -> int:
        """Return the time in epoch milliseconds."""
        return int(self.wall() * 1000)

    def ticks(self) -> int:
        """Return monotonic milliseconds, by which registrations expire."""
        return int(self.clock() * 1000)

    def date(self, ticks: int) -> int:
        """Return which epoch milliseconds :meth:`ticks` are, by the wall clock as it is now."""
        return ticks + self.now() - self.ticks()

    # Output

    def batch(self, chunk: bytes) -> Batch:
        """Return the renderings of ``chunk``, which comes from the peer that speaks now."""
        if self._prepared[0] is chunk:
            return self._prepared[1]
        known = self._batches.get(id(chunk))
        if known is not None:
            return known[1]
        batches = self._batches
        if len(batches) >= _BATCHES or sum([one.size for _, one in batches.values()]) > _KEPT:
            batches.clear()
        noted, notes = self.broker.delivery.notes
        if noted is chunk and None not in notes:
            messages = cast("Iterable[Message]", notes)  # the publisher knows them already
        else:
            messages = read_chunk(chunk, *self._identify(self.broker.delivery.speaker))
        batch = Batch(messages, self.now())
        batches[id(chunk)] = chunk, batch
        return batch

    def prepare(self, chunk: bytes) -> Batch:
        """Return the renderings of ``chunk``, and keep them until others are prepared."""
        if self._prepared[0] is not chunk:
            self._prepared = chunk, self.batch(chunk)
        return self._prepared[1]

    def forget_batches(self) -> None:
        """Let go of all renderings, but of what is being sent."""
        self._batches.clear()
        if not self.broker.delivery.unsent:
            self._prepared = _NOTHING
        self.broker.delivery.notes = b"", []

    def _identify(self, speaker: Peer | None) -> tuple[str, int]:
        """Return the address of the speaker, and how far to trust its messages; see `Peer`."""
        if speaker is None:  # a request over HTTP, which says so inside, or the daemon itself
            return messages.HUB, 1
        connection = self.connections.get(speaker.number)
        if connection is not None and not speaker.relayed and not connection.lines:
            return connection.sender, 1
        return address(speaker), speaker.vouched  # as the daemon has that took it in

    def flush(self) -> None:
        """Send everything that is queued, each connection's in one piece."""
        try:
            self.broker.delivery.flush()
        finally:
            if self.touched:
                for connection in list(self.touched):
                    try:
                        connection.flush()
                    except Exception as error:  # noqa: BLE001  (it is nobody else's)
                        self.broker.faults.end(connection.peer, error)

    def spare(self, connection: Connection, call: Callable[[], object]) -> bool:
        """Do something to a connection; return False if that failed, which ends the connection."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  (it is nobody else's)
            self.broker.faults.end(connection.peer, error)
            return False
        return True

    def metrics(self) -> replies.Metrics:
        """Return the payload of hub:metrics_response."""
        counters = self.broker.counters
        return replies.Metrics(
            actors=len(self.registry),
            connections=len(self.connections),
            topics=len(self.topics),
            subscriptions=self.broker.router.own_subscriptions,
            messages_processed=self.processed,
            messages_failed=self.failed,
            envelopes_ignored=self.ignored,
            messages_in=counters.messages_in,
            messages_out=counters.messages_out,
            uptime_seconds=round(self.clock() - self.started, 3),
        )
