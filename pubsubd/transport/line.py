"""The line protocol, as a connection speaks it: a rim around the broker, which does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import QUIET
from pubsubd.routing.outbox import Pieces


class LineProtocol:
    """The line protocol on one connection.

    See :class:`pubsubd.transport.protocol.ConnectionProtocol`.
    """

    __slots__ = ("_broker", "peer", "receive")

    end_of_frame = staticmethod(wire.end_of_frame)
    count_frames = staticmethod(wire.count_frames)
    close_reason = staticmethod(wire.error_frame)
    quiet = QUIET

    def __init__(
        self,
        broker: Broker,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
        *,
        listener: ListenerState | None = None,
    ) -> None:
        self._broker = broker
        self.peer = broker.join(label, send, end, listener)
        self.receive = partial(broker.receive, self.peer)

    def relocate(self, label: str) -> None:
        """Note where it comes from, as a proxy says."""
        self.peer.label = label

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for it."""
        return self.peer.listener.limits.max_pending

    @property
    def full(self) -> int:
        """Bytes waiting for it from which on publishers wait."""
        return self.max_pending // 2

    @property
    def wanted(self) -> int:
        """Bytes to read at once."""
        return self.peer.wanted

    @property
    def halfway(self) -> bool:
        """Whether part of a command has come and the rest has not."""
        return self.peer.halfway

    @property
    def listening(self) -> bool:
        """Whether it subscribes anything; but a peer that was dialled is dialled again instead."""
        return bool(self.peer.substrings) and self.peer.echo

    def overdue(self, now: float, heard: float) -> ProtocolError | None:
        """Return why it ends now: it has not logged in, or half a command has come.

        The latter if nothing has come since ``heard``. What has been refused to it, and was not
        told because that was too much at once, is told.
        """
        broker, peer = self._broker, self.peer
        if peer.listener.login or peer.expires_at is not None:
            outside = broker.access.overdue(peer, now, broker.wall())
            if outside is not None:
                return outside
        if peer.refusals is not None:
            broker.delivery.tell_refusals(peer)
            broker.delivery.flush()
        timeout = peer.listener.limits.command_timeout
        if peer.job is not None or not peer.halfway or now - heard <= timeout:
            return None
        text = f"{timeout:g} s of silence in the middle of a command"
        return ProtocolError("command-timeout", text)

    def rest(self, begun: float, now: float) -> None:
        """Let no timeout run from ``begun`` to ``now``: a password was checked."""
        self._broker.access.rest(self.peer, begun, now)

    def leaving(self) -> Sequence[Callable[[], Iterable[None]]]:
        """Return what forgets the peer, each in steps, as ``ConnectionProtocol`` says."""
        return self._broker.leaving(self.peer)
