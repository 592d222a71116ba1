"""A daemon's part in the mesh, without I/O: its links, its adverts, and what others want.

Strategy. Each daemon keeps the table of all adverts (:mod:`pubsubd.mesh.linkstate`). What another
daemon wants is subscribed in the router for it (:mod:`pubsubd.mesh.remotes`), so a local message
costs nothing more unless somebody wants it; :mod:`pubsubd.mesh.forwarding` sends what is wanted.
Nothing here waits: :meth:`Mesh.act` does what is due, and says when it wants to be called again.

Invariants:

- ``links`` has one link for each neighbour, which is used once it was told all that is known.
- Another daemon's interests are subscribed while it can be reached, and only then.
- What is news of a daemon goes to all neighbours but the one it came from; what is not, to none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pubsubd import wire
from pubsubd.broker import Broker
from pubsubd.errors import ProtocolError
from pubsubd.mesh.adverts import Advert, AdvertError, format_advert, parse_advert, read_stamp
from pubsubd.mesh.forwarding import Forwarding
from pubsubd.mesh.interests import generalise
from pubsubd.mesh.link import Link
from pubsubd.mesh.plain import PlainPeers
from pubsubd.mesh.reception import Reception
from pubsubd.mesh.remotes import Remote
from pubsubd.mesh.state import MeshConfig, State
from pubsubd.peer import Peer

MAX_DAEMONS = 10_000
"""Daemons in the table, some 2 KiB each; more are not learned."""

_SETTLE = 0.02  # seconds in which changes of the graph are gathered
_PACE = 0.1  # seconds between two adverts, but for those of links
_PACE_EACH = 5e-6  # seconds more for each substring that is wanted here: some have to be cut
_ADVERT_RATE = 50_000.0  # bytes a second that large adverts may come to
_REFRESH = 10.0  # seconds between two adverts if nothing changes, in a small mesh
_REFRESH_RATE = 3_000.0  # bytes a second that all adverts together may come to for one daemon
_LOST = 60.0  # seconds until new neighbours are not told any more of one that cannot be reached
_FORGET = 300.0  # seconds until a daemon that cannot be reached is forgotten
_SILENT = 2.0  # heartbeats, and a round trip, without input after which a link is given up
_CLAIMS = 3  # adverts of our own id by somebody else within _CLAIM_TIME: it runs twice
_CLAIM_TIME = 10.0
_DOWN = 1_000  # ended links that are remembered for edge lists


@dataclass(slots=True)
class Down:
    """A link that has ended: who, and when by the clock."""

    node: str
    dialled: bool
    at: float
    messages: int
    size: int


class Mesh:
    """The daemon's part in the mesh.

    Args:
        broker: the daemon's.
        config: how to take part.
        clock: seconds that only go forward.
        wall: seconds since the epoch.
        rng: for jitter.
        woken: called whenever :attr:`due` has become earlier.
        tell: called with events, as ``//pubsubd/events`` has them.

    Attributes:
        state: who it is, and what it knows; ``table``, ``links`` and ``counters`` are of it.
        forwarding: where messages go.
        reception: who becomes a neighbour.
        greet: says hello to a daemon that was dialled, see :meth:`Reception.greet`.
        plain: peers that know three commands and no hello.
        down: links that have ended, the last ones.
        remotes: id -> another daemon, which subscribes what it wants while it can be reached.
        due: the time at which :meth:`act` wants to be called.
        hint: takes the data of an advert by a client; None to refuse such ones.
    """

    def __init__(
        self,
        broker: Broker,
        config: MeshConfig,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: random.Random,
        woken: Callable[[], None] = lambda: None,
        tell: Callable[[dict[str, object]], None] = lambda _event: None,
    ) -> None:
        self.state = state = State(config, clock=clock, wall=wall, tell=tell)
        self.broker = broker
        self.table, self.links, self.counters = state.table, state.links, state.counters
        self._rng = rng
        self._woken = woken
        self.forwarding = Forwarding(state, broker)
        self.plain = PlainPeers()
        self.reception = Reception(
            state, broker, self, linked=self._linked, left=self._left, plain=self._meet_plain
        )
        self.greet = self.reception.greet
        self.down: list[Down] = []
        self.hint: Callable[[bytes], None] | None = None
        self.due = float("inf")
        self._advert_number = 0
        self._frames: dict[str, bytes] = {}  # node -> the frame of its advert
        self._advert_bytes = 0
        self.remotes: dict[str, Remote] = {}
        self._wanted: tuple[bytes, ...] = ()  # what the last advert asked for
        self._version = 0
        self._settle_at = self._advert_at = self._plain_at = float("inf")
        self._advertised = float("-inf")
        self._jitter = 1.0
        self._refresh_at = self._beat_at = self._beaten = clock()
        self._unreachable: dict[str, float] = {}
        self._claims: list[float] = []
        broker.router.on_forwarded = self._forwarded
        name = config.mesh.encode()
        broker.reserve((b"//peers/%b/" % name, b"//fwd/peers/%b/" % name), self._forged)
        self._want(clock())

    def now(self) -> float:
        """Return the time, in seconds."""
        return self.state.now()

    def relay(self, link: Link, data: bytes) -> bool:
        """Take a batch that has come by ``link``; whether work is left for :meth:`go_on`."""
        return self.forwarding.relay(link, data)

    def go_on(self, link: Link) -> bool:
        """Go on with a batch; whether work is still left of it."""
        return self.forwarding.go_on(link)

    # Time

    def _want(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._woken()

    def act(self) -> None:
        """Do what is due."""
        now = self.now()
        self.due = float("inf")
        for link in [link for link in self.links.values() if not link.ready]:
            self._introduce(link)
            self._advert_at = now
        if now >= self._settle_at:
            self._settle(now)
        if now >= self._plain_at:
            self._plain_at = float("inf")
            self._ask_plain()
        if now >= self._beat_at:
            self._beat(now)
            self._beat_at = now + self.state.config.heartbeat
        if now >= min(self._advert_at, self._refresh_at):
            # What a refresh costs may have changed since it was planned.
            self._refresh_at = self._advertised + self._refresh_period() * self._jitter
            if now >= min(self._advert_at, self._refresh_at):
                self._advertise(now)
        later = (self._settle_at, self._plain_at, self._advert_at, self._refresh_at, self._beat_at)
        self._want(min(later))

    def _refresh_period(self) -> float:
        """Return the seconds between two adverts if nothing changes."""
        return max(_REFRESH, self._advert_bytes * max(1, len(self.links)) / _REFRESH_RATE)

    def _beat(self, now: float) -> None:
        heartbeat = self.state.config.heartbeat
        late = now - self._beaten > heartbeat * 1.5  # the silence may have been ours
        self._beaten = now
        for link in list(self.links.values()):
            if late or link.peer.busy:
                link.heard = max(link.heard, now)
            elif now - link.heard > _SILENT * heartbeat + (link.rtt_ms or 0.0) / 1000:
                text = f"nothing was heard from {link.node} for {now - link.heard:.3g} s"
                link.peer.end("link-timeout", text)
                self._left(link)
                continue
            link.ping()
        self.reception.sweep(now)
        self.state.measure()
        for node, since in list(self._unreachable.items()):
            if now - since > _FORGET:
                self._forget(node)

    def _forget(self, node: str) -> None:
        del self._unreachable[node]
        self._advert_bytes -= len(self._frames.pop(node, b""))
        self.table.drop(node)
        self.forwarding.forget(node)
        self.remotes.pop(node, None)

    # Links

    def _linked(self, link: Link) -> None:
        """Take note of a new link."""
        self.forwarding.forget_ways()
        self._want(self.now())

    def _introduce(self, link: Link) -> None:
        """Tell a new neighbour all that is known."""
        lost = self.now() - _LOST
        for node, frame in self._frames.items():
            # Of the neighbour itself too, in case it has been here before.
            if node == link.node or self._unreachable.get(node, lost) >= lost:
                self._send_advert(link, frame)
        link.ready = True
        self.forwarding.forget_ways()

    def _left(self, link: Link) -> None:
        """Take note that a link has ended."""
        if self.links.get(link.node) is not link:
            return
        del self.links[link.node]
        self.forwarding.forget_ways()
        self.counters.dropped += link.dropped
        messages, size = link.messages_in + link.messages_out, link.bytes_in + link.bytes_out
        self.down = self.down[1 - _DOWN :]
        self.down.append(Down(link.node, link.dialled, self.state.wall(), messages, size))
        ending = link.peer.ending
        self.state.tell(
            {
                "event": "link-down",
                "node": link.node,
                "peer": link.address,
                "reason": ending.code if ending is not None else "closed",
            }
        )
        self._advert_at = self.now()
        self._want(self._advert_at)

    # Adverts

    def _forwarded(self, news: bool) -> None:
        """Take note that what this daemon's peers want of others has changed.

        It is no news to other daemons if it is only wanted by more or fewer; but a plain peer is
        not asked for what it alone wants.
        """
        now, cost = self.now(), len(self.broker.router.forwarded) * _PACE_EACH
        if self.plain.peers:
            self._plain_at = min(self._plain_at, now + cost)
            self._want(self._plain_at)
        if not news:
            return
        self.forwarding.look_closely()
        size = sum(map(len, self._wanted))
        pace = max(_PACE, cost, size / _ADVERT_RATE)
        self._advert_at = min(self._advert_at, max(now, self._advertised + pace))
        self._want(self._advert_at)

    def _advertise(self, now: float) -> None:
        """Tell all what there is to tell of this daemon."""
        forwarded = self.broker.router.forwarded
        self._wanted = generalise(forwarded.keys())
        self.forwarding.general = any(one not in forwarded for one in self._wanted)
        self._advert_number += 1
        advert = Advert(
            self.state.node,
            self.state.config.host,
            self.state.config.port,
            self.state.life,
            self._advert_number,
            self.state.start,
            tuple(link.report() for link in self.links.values() if link.ready),
            self._wanted,
        )
        data = format_advert(advert)
        self.table.put(advert)
        frame = wire.frame(b"//fwd/peers/%b/%b" % (self._names()), data)
        self.keep(self.state.node, frame)
        for link in self.links.values():
            if link.ready:
                self._send_advert(link, frame)
        self._publish(b"//peers/%b/%b" % (self._names()), data)
        self._advertised, self._advert_at = now, float("inf")
        self._jitter = self._rng.uniform(0.75, 1.0)
        self._refresh_at = now + self._refresh_period() * self._jitter
        self._look()
        self._ask_plain()

    def _names(self) -> tuple[bytes, bytes]:
        return self.state.config.mesh.encode(), self.state.node.encode()

    def _send_advert(self, link: Link, frame: bytes) -> None:
        self.counters.adverts_out += 1
        self.counters.advert_bytes_out += len(frame)
        link.send(frame)

    def keep(self, node: str, frame: bytes) -> None:
        """Keep the frame of a daemon's advert, for new neighbours."""
        self._advert_bytes += len(frame) - len(self._frames.get(node, b""))
        self._frames[node] = frame

    def _publish(self, name: bytes, data: bytes) -> None:
        """Let this daemon's own peers see an advert; the other daemons have it from the links."""
        speaker = self.broker.speaker
        self.forwarding.outbound.closed = True
        self.broker.put(None, name, data)
        self.broker.flush()
        self.forwarding.outbound.closed = False
        self.broker.speaker = speaker

    def advert(self, link: Link, node: str, data: bytes) -> None:
        """Take an advert that has come by ``link``."""
        self.counters.adverts_in += 1
        self.counters.advert_bytes_in += len(data)
        try:
            stamp = read_stamp(data)
            known = self.table.adverts.get(node)
            if known is not None and stamp <= known.stamp:
                if stamp[0] < known.life:  # somebody still believes in an earlier life
                    self._send_advert(link, self._frames[node])
                return
            if known is None and len(self.table.adverts) >= MAX_DAEMONS:
                raise AdvertError(f"there are {MAX_DAEMONS} daemons already")
            advert = parse_advert(node, data)
        except AdvertError as error:
            self.state.refuse("bad-advert", str(error), link.address)
            return
        if node == self.state.node:
            self._claim(advert)
            return
        if known is not None and known.life != advert.life:
            self.forwarding.forget(node)  # what comes of its earlier life is not taken any more
        name = b"//fwd/peers/%b/%b" % (self.state.config.mesh.encode(), node.encode())
        frame = wire.frame(name, data)
        self.keep(node, frame)
        self.table.put(advert)
        self._look()
        for other in self.links.values():
            if other is not link and other.ready:
                self._send_advert(other, frame)
        if known is None or known.interests != advert.interests:
            remote = self.remotes.get(node)
            if remote is not None and node in self.table.hops:
                remote.want(self.broker.router, advert.interests)
                self._ask_plain()
        self._publish(name, data)

    def _claim(self, advert: Advert) -> None:
        """Act on an advert of this daemon's id that is newer than its own.

        It is left from an earlier start, or another daemon has the same id and is alive. Of two
        such, the one that started later withdraws.
        """
        now = self.now()
        self.state.life = max(self.state.life, advert.life) + 1
        self._claims = [at for at in self._claims if now - at < _CLAIM_TIME]
        if advert.start < self.state.start:
            self._claims.append(now)
        if len(self._claims) >= _CLAIMS:
            self._claims.clear()
            self.reception.withdrawn = now + 3 * _CLAIM_TIME
            error = ProtocolError("duplicate-node", f"another daemon has the id {self.state.node}")
            for link in list(self.links.values()):
                self.state.refuse(error.code, error.text, link.address)
                link.peer.end(error.code, error.text)
        self._advert_at = now
        self._want(now)

    def _look(self) -> None:
        """Act on a change of the graph, if there was one."""
        if self.table.version != self._version:
            self._version = self.table.version
            self.forwarding.flood()
            if self._settle_at == float("inf"):
                self._settle_at = self.now() + _SETTLE
                self._want(self._settle_at)

    def _settle(self, now: float) -> None:
        """Let those daemons get what they want that can be reached, and no others."""
        self._settle_at = float("inf")
        hops, router = self.table.hops, self.broker.router
        for node, advert in self.table.adverts.items():
            if node == self.state.node:
                continue
            if node in hops:
                if self._unreachable.pop(node, now) < now - _LOST:  # new neighbours lack it
                    for link in self.links.values():
                        self._send_advert(link, self._frames[node])
                remote = self.remotes.get(node)
                if remote is None:
                    remote = self.remotes[node] = Remote(node)
                remote.want(router, advert.interests)
            else:
                self._unreachable.setdefault(node, now)
                if node in self.remotes:
                    self.remotes[node].want(router, ())
        self._ask_plain()

    def _forged(self, name: bytes, data: bytes) -> None:
        """Refuse an advert by somebody who is not a linked daemon, or take the hint it gives."""
        if self.hint is not None:
            try:
                self.hint(data)
            except AdvertError as error:
                self.counters.refused["bad-address"] += 1
                raise ProtocolError("bad-request", str(error)) from None
            return
        self.counters.refused["forged-advert"] += 1
        text = f"{wire.quote(name)} is for the daemons of this mesh alone"
        raise ProtocolError("forged-advert", text)

    def _ask_plain(self) -> None:
        """Subscribe at plain peers what this daemon's peers and the other daemons want."""
        if self.plain.peers:
            far = {one for remote in self.remotes.values() for one in remote.substrings}
            self.plain.ask(self.broker.router.forwarded, far)

    def _meet_plain(self, peer: Peer) -> None:
        """Take note that a peer knows of no hello."""
        ended = peer.gone

        def gone() -> None:
            self.plain.drop(peer)
            if ended is not None:
                ended()

        peer.gone = gone
        self.plain.add(peer)
        self._ask_plain()
