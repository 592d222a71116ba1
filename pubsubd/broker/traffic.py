"""Rates of messages and bytes of each connection, without I/O.

Strategy: a connection counts once a read and once a send, never a message. Every
:data:`INTERVAL` the counts of all connections are noted. A rate is what came since the note before
the last one, divided by the time since: an average of the last 5 to 10 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubsubd.broker.peer import Counts, Peer
from pubsubd.broker.turn import Steps

INTERVAL = 5.0
"""Seconds between two notes."""

_STEP = 256  # peers between two looks at the clock; some 0.1 ms
_LEAST = 1.0  # seconds that a rate is of, or the first message of a connection would be thousands


class Traffic:
    """The counts of all connections at two moments.

    Args:
        peers: number -> peer, of all that are connected.
        clock: seconds that only go forward.
    """

    def __init__(self, peers: Mapping[int, Peer], clock: Callable[[], float]) -> None:
        self._peers = peers
        self._clock = clock
        self._before = self._last = clock()

    def note(self) -> Steps[None]:
        """Note the counts of all connections, in steps; to be called every :data:`INTERVAL`."""
        self._before, self._last = self._last, self._clock()
        for number, peer in enumerate(list(self._peers.values()), 1):
            counts, (before, last) = count(peer), peer.noted
            if counts != last:
                peer.noted = last, counts
            elif before is not last:
                peer.noted = last, last
            if number % _STEP == 0:
                yield

    def rate(self, peer: Peer) -> tuple[float, float, float, float]:
        """Return messages in and out, and bytes in and out, of a peer a second."""
        seconds = max(self._clock() - max(self._before, peer.joined), _LEAST)
        now, before = count(peer), peer.noted[0]
        # A connection that has become a link begins anew to count messages.
        messages_in, messages_out, bytes_in, bytes_out = (
            max(0, new - old) / seconds for new, old in zip(now, before, strict=True)
        )
        return messages_in, messages_out, bytes_in, bytes_out

    def messages(self) -> Callable[[Peer], float]:
        """Return what tells the messages in and out of peers a second, as they are at present."""
        now, begun = self._clock(), self._before

        def rate(peer: Peer) -> float:
            carried = peer if peer.link is None else peer.link
            new = carried.messages_in + carried.messages_out
            before = peer.noted[0]
            old = before[0] + before[1]
            if new <= old:
                return 0.0
            return (new - old) / max(now - max(begun, peer.joined), _LEAST)

        return rate


def count(peer: Peer) -> Counts:
    """Return what a peer has carried since it connected; of a link, the messages it has relayed."""
    carried = peer if peer.link is None else peer.link
    return carried.messages_in, carried.messages_out, peer.bytes_in, peer.bytes_out
