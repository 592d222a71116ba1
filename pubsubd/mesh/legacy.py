"""Peers that were dialled and know three commands, and no hello: the original convention alone.

Such a peer is asked, by ``sub`` and ``unsub``, for what is wanted here under ``//fwd/``. What it
publishes and subscribes is taken as a client's, but that it does not get back what it has sent.
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
        faults: mistakes of this program, and what they end.

    Attributes:
        peers: number -> peer.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.peers: dict[int, Peer] = {}
        self._asked: dict[int, frozenset[bytes]] = {}

    def add(self, peer: Peer) -> None:
        """Take a peer for a legacy one."""
        peer.link, peer.echo = None, False
        self.peers[peer.number] = peer

    def drop(self, peer: Peer) -> None:
        """Forget a peer that has left, if it was one."""
        self.peers.pop(peer.number, None)
        self._asked.pop(peer.number, None)

    def asking(self, near: Mapping[bytes, int], far: Set[bytes]) -> Steps[None]:
        """Subscribe at all of them what others want, and nothing else, in steps.

        Args:
            near: what this daemon's peers want -> how many of them; the legacy ones count too.
            far: what other daemons want.
        """
        for peer in list(self.peers.values()):
            all_wanted = []
            for number, one in enumerate((*near, *far)):
                if _is_for_others(one, peer, near, far):
                    all_wanted.append(one)
                if number % _STEP == 0:
                    yield
            wanted = frozenset((yield from generalising(set(all_wanted))))
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
    """Return whether somebody else than ``peer`` wants ``one``."""
    return one in far or near.get(one, 2) > 1 or one not in peer.substrings
