"""The hub port of one daemon: its shared state, and what each dialect keeps besides.

:class:`Hub` is what the daemon creates, reloads, sweeps about once a second and reads metrics from.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.turn import Steps
from pubsubd.hub.actors import Actor
from pubsubd.hub.asking import Letters, Passing, Streams
from pubsubd.hub.core import Connection, HubCore
from pubsubd.hub.federation import Directory, Federation
from pubsubd.hub.signal import Signals
from pubsubd.hub.synap import Synap
from pubsubd.protocol.limits import HubLimits


class Hub(HubCore):
    """The hub port of one daemon; arguments as for :class:`~pubsubd.hub.core.HubCore`.

    Attributes:
        synap: the commands of Synap.
        signals: the state of Signal Hub, of each connection that speaks it.
        hosts: names under which browsers may reach this port, besides localhost and addresses.
        origins: web pages that may use it, besides its own; ``*`` for all.
        line_addresses: ``host``, ``port`` and ``tls`` of the line port; the daemon's.
        expiring: registrations that end, and the steps of that.
        ready: whether the daemon's listeners are open; the daemon's.
        down: tasks of the daemon that have failed and are not running again; the daemon's.
        scrape: returns all metrics and their content type, in steps, for the Accept header of a
            request; None for nothing. The daemon's.
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
        super().__init__(broker, limits, listener=listener, clock=clock, wall=wall)
        self.synap = Synap(self)
        self.signals = Signals()
        self.hosts: frozenset[str] = frozenset()
        self.origins: frozenset[str] = frozenset()
        self.line_addresses: Sequence[Mapping[str, str | int | bool]] = ()
        self.ready = True
        self.down: Mapping[str, int] = {}
        self.scrape: Callable[[str], Steps[tuple[bytes, str]]] | None = None
        self.expiring: deque[tuple[Connection, Iterator[None]]] = deque()

    def join(
        self,
        directory: Directory,
        *,
        near: tuple[Letters, Passing] | None = None,
        far: tuple[Letters, Streams] | None = None,
    ) -> None:
        """Be one hub with those of other workers, and of other daemons; as :class:`Federation`."""
        self.federation = Federation(self, directory, near, far)

    def withdraw(self, actor: Actor[Connection], node: str) -> None:
        """End a registration that another daemon has an earlier one of, and tell the client."""
        self.registry.unregister(actor.key)
        signal = self.signals.get(actor.connection)
        if signal is not None:
            self.spare(actor.connection, partial(signal.tell_lost, actor.address, node))
            self.expiring.append((actor.connection, signal.forget(actor)))

    def replace(self, limits: HubLimits, *, hosts: frozenset[str], origins: frozenset[str]) -> None:
        """Let other limits, names and origins hold from now on; what is over a limit stays."""
        self.limits = self.listener.hub_limits = self.policy.limits = limits
        self.hosts, self.origins = hosts, origins
        self.registry.max_actors = limits.max_actors
        self.topics.resize(limits.max_topics, limits.topic_idle)

    @property
    def counts(self) -> dict[str, Callable[[], int]]:
        """Return what other workers count for their limits; see :class:`.policy.Elsewhere`."""
        subscribers = self.synap.subscribers
        return {
            "wildcards": lambda: self.policy.wildcards,
            "subscribers": lambda: len(subscribers),
            "detached": lambda: subscribers.detached,
        }

    @property
    def state(self) -> str:
        """Whether the daemon serves: ``ok``, or ``full``, ``ending`` or ``failing``.

        It is failing while one of its own tasks is down.
        """
        if not self.ready:
            return "ending"
        if self.down:
            return "failing"
        most = self.broker.listener.limits.max_connections
        return "ok" if len(self.broker.peers) < most else "full"

    def sweep(self) -> Iterator[None]:
        """Let go of what has expired, in steps; to be called about once a second."""
        self.forget_batches()
        turn = self.broker.delivery.turn
        turn.begin()
        for expire in (
            self.expire,
            partial(self.topics.expire, self.clock()),
            partial(self.synap.expire, self.clock()),
            self.federation.expire if self.federation is not None else _nothing,
        ):
            while expire():
                if turn.over():
                    self.flush()
                    yield
                    turn.begin()
        self.flush()

    def expire(self, most: int = 1) -> bool:
        """End registrations that have expired, in ``most`` steps at most.

        The subscriptions made under them end with them. Returns whether something may be left.
        """
        expiring = self.expiring
        for _ in range(most):
            if not expiring:
                for actor in self.registry.expire(self.ticks()):
                    signal = self.signals.get(actor.connection)
                    if signal is not None:
                        expiring.append((actor.connection, signal.forget(actor)))
                if not expiring:
                    return False
            connection, steps = expiring[0]
            try:
                next(steps)
            except StopIteration:
                expiring.popleft()
            except Exception as error:  # noqa: BLE001  (it is nobody else's)
                expiring.popleft()
                self.broker.faults.end(connection.peer, error)
            if self.broker.delivery.turn.over():
                break
        return True


def _nothing() -> bool:
    return False
