"""The way of a link of the mesh that has come in at a worker which has no part in the mesh.

The first worker takes part, and the link is its. What comes of the other daemon is passed on to it
through a pair of sockets, and the other way round; nothing is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.protocol.errors import GOODBYE, ProtocolError
from pubsubd.protocol.limits import QUIET
from pubsubd.routing.outbox import Pieces


class Passage:
    """The end at the other daemon: what its connection says goes to the first worker.

    Args:
        peer: the connection.

    Attributes:
        node: empty: only the first worker knows it.
        messages_in, messages_out, dropped: 0, likewise.
        end: the end at the first worker.
    """

    node = ""
    messages_in = messages_out = dropped = 0

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.end: PassageEnd | None = None
        peer.gone = self._gone

    def make(
        self,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
    ) -> PassageEnd:
        """Return the protocol of the connection to the first worker."""
        self.end = PassageEnd(self, label, send, end)
        return self.end

    def receive(self, data: bytes) -> bool:
        """Pass input on."""
        assert self.end is not None
        if data:
            self.end.peer.send(data)
        return False

    def _gone(self) -> None:
        assert self.end is not None
        self.end.peer.end(GOODBYE, "")


class PassageEnd:
    """The end at the first worker; see :class:`pubsubd.transport.protocol.ConnectionProtocol`."""

    halfway = listening = False
    quiet = QUIET

    def __init__(
        self,
        passage: Passage,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
    ) -> None:
        self._passage = passage
        listener = ListenerState("", passage.peer.listener.limits)
        self.peer = Peer(0, label, send, end, listener)
        self.peer.link = passage

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""
        return self.peer.listener.limits.max_pending

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""
        return self.peer.wanted

    def relocate(self, label: str) -> None:
        """Do nothing: no proxy is between workers."""

    def receive(self, data: bytes) -> bool:
        """Pass output on."""
        if data:
            self._passage.peer.send(data)
        return False

    def close_reason(self, _error: ProtocolError) -> bytes:
        """Return nothing: the first worker sees that it ends."""
        return b""

    def overdue(self, _now: float, _heard: float) -> ProtocolError | None:
        """Return None: the first worker looks after the link."""
        return None

    def rest(self, begun: float, now: float) -> None:
        """Do nothing."""

    def end_of_frame(self, chunk: bytes, _offset: int) -> int:
        """Return the end of a chunk."""
        return len(chunk)

    def count_frames(self, _chunk: bytes) -> int:
        """Return 1."""
        return 1

    def leaving(self) -> tuple[Callable[[], Iterable[None]], ...]:
        """Return what lets the other end go, too."""
        return (self._leave,)

    def _leave(self) -> tuple[()]:
        self._passage.peer.end(GOODBYE, "")
        return ()
