"""The interface between a connection and the protocol that is spoken on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pubsubd.broker.peer import Peer
from pubsubd.protocol.errors import ProtocolError
from pubsubd.routing.outbox import Pieces


class ConnectionProtocol(Protocol):
    """A protocol on one connection, without I/O.

    Attributes:
        peer: the connection as the broker sees it.
    """

    peer: Peer

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""

    @property
    def full(self) -> int:
        """Bytes waiting for it from which on publishers wait until it has taken some."""

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""

    @property
    def halfway(self) -> bool:
        """Whether part of a command has come and the rest has not."""

    @property
    def listening(self) -> bool:
        """Whether something is still due to it after it has shut down its sending side."""

    @property
    def quiet(self) -> float:
        """Seconds without input after which, when the daemon ends, it has said all."""

    def relocate(self, label: str) -> None:
        """Note where it comes from, as a proxy says."""

    def receive(self, data: bytes) -> bool:
        """Work off what was read; whether work is left that ``receive(b"")`` goes on with.

        Sets ``peer.ending`` once the connection has to be closed, when all that is due to it,
        the reason included, is sent.
        """

    def close_reason(self, error: ProtocolError) -> bytes:
        """Return what tells the peer that the connection ends for that reason."""

    def overdue(self, now: float, heard: float) -> ProtocolError | None:
        """Return why it ends now, if it has been silent since ``heard`` for too long."""

    def rest(self, begun: float, now: float) -> None:
        """Let no timeout run from ``begun`` to ``now``: a password was checked."""

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        """Return where the frame that holds ``offset`` ends, in a chunk of whole frames."""

    def count_frames(self, chunk: bytes) -> int:
        """Return how many frames a chunk holds."""

    def leaving(self) -> Sequence[Callable[[], Iterable[None]]]:
        """Return what forgets the peer: each in steps of bounded work, to be iterated to the end.

        One that fails is called again, and goes on where it had come.
        """


MakeProtocol = Callable[
    [str, Callable[[bytes | Pieces], None], Callable[[str, str], None]], ConnectionProtocol
]
"""Makes the protocol of a new connection.

Called with its label, with what sends whole frames (now or later, never waiting), and with what
ends it from outside of ``receive``, for a code and a text.
"""
