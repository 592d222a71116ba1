"""The line protocol, as a session speaks it: a rim around the broker, which does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pubsubd import wire
from pubsubd.broker import Broker
from pubsubd.errors import ProtocolError
from pubsubd.outbox import Pieces


class LineTalk:
    """One connection of the line protocol; see :class:`pubsubd.session.Talk`."""

    __slots__ = ("_broker", "_timeout", "max_pending", "peer", "receive")

    end_of_frame = staticmethod(wire.end_of_frame)
    count_frames = staticmethod(wire.count_frames)
    farewell = staticmethod(wire.error_frame)

    def __init__(
        self,
        broker: Broker,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None],
    ) -> None:
        self._broker = broker
        self._timeout = broker.limits.command_timeout
        self.max_pending = broker.limits.max_pending
        self.peer = broker.join(label, send, end)
        self.receive = partial(broker.receive, self.peer)

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
        """Return why it ends now, if half a command has come and nothing since ``heard``."""
        if not self.peer.halfway or now - heard <= self._timeout:
            return None
        text = f"{self._timeout:g} s of silence in the middle of a command"
        return ProtocolError("command-timeout", text)

    def leave(self) -> Iterator[None]:
        """Forget the peer, in steps of bounded work: iterate to the end."""
        return self._broker.leave(self.peer)
