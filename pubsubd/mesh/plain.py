"""Peers that were dialled and know three commands, and no hello: the original convention alone.

Such a peer is asked, by ``sub`` and ``unsub``, for what is wanted here under ``//fwd/``. What it
publishes and subscribes is taken as a client's, but that it does not get back what it has sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pubsubd.mesh.interests import generalise
from pubsubd.peer import Peer


class PlainPeers:
    """The plain peers of a daemon.

    Attributes:
        peers: number -> peer.
    """

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self._asked: dict[int, frozenset[bytes]] = {}

    def add(self, peer: Peer) -> None:
        """Take a peer for a plain one."""
        peer.link, peer.echo = None, False
        self.peers[peer.number] = peer

    def drop(self, peer: Peer) -> None:
        """Forget a peer that has left, if it was one."""
        self.peers.pop(peer.number, None)
        self._asked.pop(peer.number, None)

    def ask(self, near: Mapping[bytes, int], far: Set[bytes]) -> None:
        """Subscribe at all of them what others want, and nothing else.

        Args:
            near: what this daemon's peers want -> how many of them; the plain ones count too.
            far: what other daemons want.
        """
        for peer in self.peers.values():
            alone = {one for one in peer.substrings if near.get(one) == 1} - far
            wanted = frozenset(generalise((near.keys() | far) - alone))
            asked = self._asked.get(peer.number, frozenset())
            commands = [b"unsub %b\n" % one for one in sorted(asked - wanted)]
            commands += [b"sub %b\n" % one for one in sorted(wanted - asked)]
            if commands:
                self._asked[peer.number] = wanted
                peer.send(b"".join(commands))
