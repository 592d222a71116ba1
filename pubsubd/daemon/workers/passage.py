"""The way of a link of the mesh that has come in at a worker which has no part in the mesh.

The first worker takes part, and the link is its. What comes of the other daemon is passed on to it
through a pair of sockets, and the other way round; nothing is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.protocol.errors import GOODBYE
from pubsubd.protocol.limits import QUIET
from pubsubd.routing.outbox import Pieces
from pubsubd.siblings.internal import InternalEnd


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


class PassageEnd(InternalEnd):
    """The end at the first worker; see :class:`pubsubd.transport.protocol.ConnectionProtocol`."""

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
    def wanted(self) -> int:
        """Bytes to read at once."""
        return self.peer.wanted

    def receive(self, data: bytes) -> bool:
        """Pass output on."""
        if data:
            self._passage.peer.send(data)
        return False

    def leaving(self) -> tuple[Callable[[], Iterable[None]], ...]:
        """Return what lets the other end go, too."""
        return (self._leave,)

    def _leave(self) -> tuple[()]:
        self._passage.peer.end(GOODBYE, "")
        return ()
