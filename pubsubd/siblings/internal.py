"""What all ends of connections between workers have in common, as ``ConnectionProtocol`` says."""

from __future__ import annotations

from pubsubd.broker.peer import Peer
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import KIB

FULL = 256 * KIB
"""Bytes waiting for another worker from which on publishers wait: behind them waits whatever
anybody else has for it. The little that is on its way besides keeps it busy."""


class InternalEnd:
    """The end of a connection within the daemon: no proxy, no client and no login is behind it.

    Attributes:
        peer: the connection.
    """

    halfway = listening = False
    peer: Peer

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""
        return self.peer.listener.limits.max_pending

    @property
    def full(self) -> int:
        """Bytes waiting for it from which on publishers wait."""
        return min(FULL, self.max_pending // 2)

    def relocate(self, label: str) -> None:
        """Do nothing: there is no proxy between workers."""

    def close_reason(self, _error: ProtocolError) -> bytes:
        """Return nothing: the other worker sees that the connection ends."""
        return b""

    def overdue(self, _now: float, _heard: float) -> ProtocolError | None:
        """Return None: it may be silent for ever."""
        return None

    def rest(self, begun: float, now: float) -> None:
        """Do nothing: no password is checked for it."""

    def end_of_frame(self, chunk: bytes, _offset: int) -> int:
        """Return the end of a chunk."""
        return len(chunk)

    def count_frames(self, _chunk: bytes) -> int:
        """Return 1: a chunk is a frame."""
        return 1
