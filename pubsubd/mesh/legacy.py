"""Legacy peers: dialled daemons that know the original three commands and no hello.

This daemon subscribes its interests under ``//fwd/`` there with ``sub`` and ``unsub``. The commands
of a legacy peer are taken as a client's, except that it does not get back what it has sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pubsubd.broker.faults import Faults
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.mesh.interests import generalising

_STEP = 256  # substrings looked at between two looks at the clock


class LegacyPeers:
    """The legacy peers of a daemon.

    Args:
        faults: ends a peer for an unexpected exception.

    Attributes:
        peers: number -> peer.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.peers: dict[int, Peer] = {}
        self._asked: dict[int, frozenset[bytes]] = {}

    def add(self, peer: Peer) -> None:
        """Add a peer."""
        peer.link, peer.echo = None, False
        self.peers[peer.number] = peer

    def drop(self, peer: Peer) -> None:
        """Remove a peer that has left, if it is here."""
        self.peers.pop(peer.number, None)
        self._asked.pop(peer.number, None)

    def asking(self, near: Mapping[bytes, int], far: Set[bytes]) -> Steps[None]:
        """Subscribe the interests of all others at each of them, in steps.

        Args:
            near: interest -> how many of this daemon's peers have it, legacy peers included.
            far: interests of other daemons.
        """
        for peer in list(self.peers.values()):
            interests = set()
            for number, one in enumerate((*near, *far)):
                if _is_for_others(one, peer, near, far):
                    interests.add(one)
                if number % _STEP == 0:
                    yield
            wanted = frozenset((yield from generalising(interests)))
            asked = self._asked.get(peer.number, frozenset())
            commands = [b"unsub %b\n" % one for one in sorted(asked - wanted)]
            commands += [b"sub %b\n" % one for one in sorted(wanted - asked)]
            if commands and peer.number in self.peers:
                self._asked[peer.number] = wanted
                try:
                    peer.send(b"".join(commands))
                except Exception as error:  # noqa: BLE001  (it is that peer's alone)
                    self._faults.end(peer, error)


def _is_for_others(one: bytes, peer: Peer, near: Mapping[bytes, int], far: Set[bytes]) -> bool:
    """Return whether anybody but ``peer`` has the interest ``one``."""
    return one in far or near.get(one, 2) > 1 or one not in peer.substrings
