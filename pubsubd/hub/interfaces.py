"""The hub port and its connections, as those see them who hand messages over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.hub.actors import Actor
from pubsubd.hub.registry import Registry


class Connection(Protocol):
    """A connection as others see it; it is a :class:`~pubsubd.hub.connection.HubConnection`.

    Attributes:
        peer: the connection as the broker sees it.
        sender: the address it has registered, or where it comes from.
        left: whether it is leaving.
    """

    peer: Peer
    sender: str
    left: bool

    @property
    def lines(self) -> bool:
        """Whether it carries the line protocol."""

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""

    @property
    def spoken(self) -> tuple[str, str]:
        """Transport and dialect, as metrics name them."""

    def put(self, text: bytes) -> None:
        """Queue a JSON text."""

    def flush(self) -> None:
        """Send what is queued, as one piece."""

    def end(self, code: str, text: str) -> None:
        """End the connection, from outside of its input, when its output is sent."""


class Host(Protocol):
    """The hub port; it is a :class:`~pubsubd.hub.port.Hub`.

    Attributes:
        broker: of the daemon.
        registry: the actors.
    """

    broker: Broker
    registry: Registry[Connection]

    @property
    def clock(self) -> Callable[[], float]:
        """Returns monotonic seconds."""

    @property
    def connections(self) -> Mapping[int, Connection]:
        """All connections, by the number of the peer."""

    def now(self) -> int:
        """Return the time in epoch milliseconds."""

    def ticks(self) -> int:
        """Return monotonic milliseconds, by which registrations expire."""

    def flush(self) -> None:
        """Send everything that is queued."""

    def spare(self, connection: Connection, call: Callable[[], object]) -> bool:
        """Do something to a connection; return False if that failed, which ends the connection."""


class FederatedHost(Host, Protocol):
    """The hub port, as its part in a mesh needs it."""

    @property
    def settle(self) -> Callable[[Peer], None]:
        """Holds what goes out to a peer until other workers know what it has led to."""

    def withdraw(self, actor: Actor[Connection], node: str) -> None:
        """End a registration that another daemon has an earlier one of, and tell the client."""
