"""Handshakes of daemons, without I/O: from a new connection to a link or a legacy peer."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.mesh.adverts import MAX_LINKS
from pubsubd.mesh.hello import HELLO, WELCOME, Hello, check_proof, new_nonce, parse_hello, prove
from pubsubd.mesh.link import DialerHandshake, Link, Owner
from pubsubd.mesh.state import State
from pubsubd.protocol.errors import ProtocolError

MAX_GREETINGS = 1_000
"""Unfinished hellos of other daemons; of more, the oldest is ended."""

ANSWER_TIME = 5.0
"""Seconds without an answer until a peer is taken for a legacy one."""

GREETING_TIME = 15.0
"""Seconds for all of a hello."""


class Handshakes:
    """The connections whose handshake is not finished.

    Args:
        state: the daemon's.
        broker: the daemon's.
        owner: what the links belong to.
        linked: called with a new link.
        left: called with a link that has ended.
        legacy: called with a peer that was dialled and knows three commands and no hello.

    Attributes:
        withdrawn: until when no links are made, because another daemon has this one's id.
    """

    def __init__(
        self,
        state: State,
        broker: Broker,
        owner: Owner,
        *,
        linked: Callable[[Link], None],
        left: Callable[[Link], None],
        legacy: Callable[[Peer], None],
    ) -> None:
        self._state = state
        self._broker = broker
        self._owner = owner
        self._linked, self._left, self._legacy = linked, left, legacy
        self.withdrawn = float("-inf")
        # number -> since when, the peer, and how far it has come: as the dialler, or dialled.
        self._greetings: dict[int, tuple[float, Peer, DialerHandshake | tuple[Hello, Hello]]] = {}
        broker.requests[HELLO] = self._hello

    def sweep(self, now: float) -> None:
        """End handshakes that have taken too long; called each heartbeat."""
        for number, (begun, _, greeting) in list(self._greetings.items()):
            if number not in self._broker.peers:
                self._greetings.pop(number, None)
            elif isinstance(greeting, DialerHandshake) and not greeting.answered:
                if now - begun > ANSWER_TIME:
                    greeting.give_up()
            elif now - begun > GREETING_TIME:
                self._give_up(number, f"the hello was not finished in {GREETING_TIME:g} s")

    def _give_up(self, number: int, text: str) -> None:
        _, peer, _ = self._greetings.pop(number)
        self._state.refuse("bad-hello", text, peer.label)
        peer.end("bad-hello", text)

    def _mine(self) -> Hello:
        state = self._state
        return Hello(state.config.mesh, state.node, state.incarnation, state.start, new_nonce())

    def greet(
        self,
        peer: Peer,
        address: str,
        ended: Callable[[ProtocolError | None], None] = lambda _refusal: None,
        found: Callable[[str], None] = lambda _node: None,
    ) -> None:
        """Say hello to a daemon that was dialled.

        Args:
            peer: the new connection.
            address: what was dialled.
            ended: called once the connection has left, with the reason if it was refused.
            found: called with the id of the daemon, once that is known.
        """
        refusal: list[ProtocolError] = []

        def gone() -> None:
            try:
                self._greetings.pop(peer.number, None)
                if isinstance(peer.link, Link):
                    self._left(peer.link)
            finally:
                ended(refusal[-1] if refusal else None)

        def admit(theirs: Hello) -> None:
            found(theirs.node)
            self._admit(theirs, dialled=True)

        def linked(theirs: Hello, data: bytes) -> None:
            self._admit(theirs, dialled=True)  # there may be another link by now
            begun, *_ = self._greetings.pop(peer.number)
            link = self._link(peer, theirs, dialled=True, address=address)
            link.wait(self._state.now() - begun)
            link.receive(data)

        def legacy(data: bytes) -> None:
            self._greetings.pop(peer.number, None)
            self._legacy(peer)
            while self._broker.receive(peer, data):
                data = b""

        def refused(error: ProtocolError) -> None:
            self._greetings.pop(peer.number, None)
            refusal.append(error)
            self._state.refuse(error.code, error.text, address)

        peer.gone = gone
        greeting = DialerHandshake(
            peer,
            self._mine(),
            self._state.config.secret,
            admit=admit,
            linked=linked,
            legacy=legacy,
            refused=refused,
        )
        peer.link = greeting
        self._greetings[peer.number] = self._state.now(), peer, greeting

    def _hello(self, peer: Peer, data: bytes) -> bytes | None:
        """Answer a hello of a daemon that has dialled this one."""
        try:
            rights, secret = peer.permission, self._state.config.secret
            if secret is None and rights is not None and not rights.may_publish(HELLO):
                text = "the mesh has no secret, so a hello needs the right to publish it"
                raise ProtocolError(rights.code, text)  # or a link would get round all rules
            pending = self._greetings.get(peer.number)
            if not data.startswith(b"proof "):
                if pending is not None:
                    raise ProtocolError("bad-hello", "a second hello")
                theirs, _ = parse_hello(data, 6)
                self._admit(theirs, dialled=False)
                mine = self._mine()
                proof = prove(self._state.config.secret, "acceptor", theirs, mine)
                self._make_room()
                self._greetings[peer.number] = self._state.now(), peer, (theirs, mine)
                return mine.text() + b" " + proof.encode()
            if pending is None or isinstance(pending[2], DialerHandshake):
                raise ProtocolError("bad-hello", "a proof without a hello")
            del self._greetings[peer.number]
            theirs, mine = pending[2]
            proof = data[6:].decode("utf-8", "replace")
            check_proof(proof, self._state.config.secret, "dialler", theirs, mine)
            self._admit(theirs, dialled=False)
        except ProtocolError as error:
            self._state.refuse(error.code, error.text, peer.label)
            raise
        link = self._link(peer, theirs, dialled=False, address=peer.label)
        link.wait(2 * (self._state.now() - pending[0]))
        return WELCOME

    def _make_room(self) -> None:
        """End the oldest unfinished hello of another daemon if there are too many."""
        if len(self._greetings) >= MAX_GREETINGS:
            for number, (_, _, greeting) in self._greetings.items():
                if not isinstance(greeting, DialerHandshake):
                    self._give_up(number, f"{MAX_GREETINGS} hellos at once are not finished")
                    return

    def _admit(self, theirs: Hello, *, dialled: bool) -> None:
        """Raise ProtocolError if this connection must not become a link to that daemon."""
        state, node = self._state, theirs.node
        if theirs.mesh != state.config.mesh:
            text = f"this is mesh {state.config.mesh}, not {theirs.mesh}"
            raise ProtocolError("other-mesh", text)
        if node == state.node and theirs.start == state.start:
            raise ProtocolError("self-link", f"{node} has dialled itself")
        if state.now() < self.withdrawn:
            text = f"{state.node} has withdrawn: another daemon has its id"
            raise ProtocolError("duplicate-node", text)
        link = state.links.get(node)
        if link is None and not dialled and len(state.links) >= MAX_LINKS:
            raise ProtocolError("too-many-connections", f"{MAX_LINKS} links are there already")
        if self._is_here(node, theirs.start, link):
            raise ProtocolError("duplicate-node", f"another daemon here has the id {node}")
        # Of two links one way, the newer one stays: who dials knows whether the older is of use.
        # Of two links both ways, the one that the daemon with the lower id has dialled.
        if (
            link is not None
            and link.start == theirs.start
            and (dialled if link.dialled == dialled else (state.node < node) != dialled)
        ):
            raise ProtocolError("duplicate-link", f"there is a link to {node} already")

    def _is_here(self, node: str, start: int, link: Link | None) -> bool:
        """Return whether a daemon with that id, but another start, is in the mesh."""
        state = self._state
        if node == state.node:
            return True
        if link is not None:
            alive = state.now() - link.heard < state.config.heartbeat * 1.5
            return link.start != start and alive
        known = state.table.adverts.get(node)
        return known is not None and known.start != start and node in state.table.hops

    def _link(self, peer: Peer, theirs: Hello, *, dialled: bool, address: str) -> Link:
        """Make a connection a link, and end the link that it replaces."""
        old = self._state.links.get(theirs.node)
        link = Link(
            self._owner, peer, theirs, dialled=dialled, address=address, since=self._state.wall()
        )
        peer.link = link
        self._broker.access.trust(peer)
        self._state.links[theirs.node] = link
        if not dialled:
            peer.gone = lambda: self._left(link)
        if old is not None:
            old.peer.end("duplicate-link", f"another link to {theirs.node} replaces it")
        self._state.emit({"event": "link-up", "node": theirs.node, "peer": address})
        self._linked(link)
        return link
