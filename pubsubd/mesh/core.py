"""A daemon's part in the mesh, without I/O: its links, its timers, and the parts they drive.

Strategy. Each daemon keeps the table of all adverts (:mod:`pubsubd.mesh.linkstate`). The interests
of another daemon are subscribed in the router for it (:mod:`pubsubd.mesh.remotes`), so a local
message that no other daemon subscribes costs nothing more; :mod:`pubsubd.mesh.forwarding` sends
the others. Nothing here waits: :meth:`Mesh.act` does what is due and sets :attr:`Mesh.due` to the
time of its next call. Work that is longer than a turn is done in steps, and due at once.

Invariants:

- ``links`` has one link for each neighbour. It is used once it has carried all known adverts.
- Another daemon's interests are subscribed while it can be reached, and only then.
- A newer advert goes to all neighbours but the one that sent it; any other advert goes to none.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.mesh.advertising import CLAIM_TIME, Advertising
from pubsubd.mesh.adverts import AdvertError
from pubsubd.mesh.directory import Directory
from pubsubd.mesh.forwarding import Forwarding
from pubsubd.mesh.handshakes import Handshakes
from pubsubd.mesh.legacy import LegacyPeers
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.link import MAX_BATCH, Link
from pubsubd.mesh.news import News
from pubsubd.mesh.remote_interests import RemoteInterests
from pubsubd.mesh.state import MeshConfig, State
from pubsubd.mesh.streams import Streams
from pubsubd.mesh.trace import Traces
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import MIB

MAX_HELD = 4 * MAX_BATCH
"""Bytes of unprocessed input of all links; a link that takes it above that is closed."""

_PACE_EACH = 5e-6  # seconds more between adverts for each interest: some have to be cut

FORGET = 300.0
"""Seconds until a daemon that cannot be reached is forgotten."""

SILENT = 2.0
"""Heartbeats, and a round trip, without input after which a link is closed."""

KEPT_DOWN = 1_000
"""Ended links that are remembered for edge lists."""

_STEP = 16  # links looked at between two looks at the clock
_CROWDED = 0.05  # seconds until a new neighbour with a full outbox is looked at again


@dataclass(slots=True)
class Down:
    """A link that has ended, with the time since the epoch."""

    node: str
    dialled: bool
    at: float
    messages: int
    size: int


def claim_names(
    broker: Broker, mesh: str, topics: Iterable[str], refuse: Callable[[bytes, bytes], None]
) -> None:
    """Keep the names of a mesh for its daemons, and let others have copies that go to these.

    Args:
        broker: the daemon's.
        mesh: its name.
        topics: what topics of the hub begin with that other daemons are sent; ``#`` for all.
        refuse: called with the name and the data of what a client publishes under such a name.
    """
    name = mesh.encode()
    broker.reserve(
        (
            b"//peers/%b/" % name,
            b"//fwd/peers/%b/" % name,
            b"//hub/%b/" % name,
            b"//hub-topics/%b/" % name,
        ),
        refuse,
        (b"%b%b/" % (wire.HUB, name), b"%b%b/" % (wire.TOPICS, name)),
    )
    starts = ("" if one == "#" else one for one in topics)
    broker.router.copies.carry(name, tuple(one.encode() for one in starts))


class Mesh:
    """A daemon's part in the mesh.

    Args:
        broker: the daemon's.
        config: how to take part.
        clock: seconds that only go forward.
        wall: seconds since the epoch.
        rng: for jitter.
        woken: called whenever :attr:`due` has become earlier.
        emit: called with events, as ``//pubsubd/events`` has them.

    Attributes:
        state: shared by all parts; ``table``, ``links`` and ``counters`` are its.
        forwarding: batches of messages.
        handshakes: connections that are not links yet.
        greet: says hello to a daemon that was dialled, see :meth:`Handshakes.greet`.
        legacy: peers that know three commands and no hello.
        down: the last links that have ended.
        news: the adverts as they are sent to neighbours.
        remote_interests: the subscriptions of other daemons; ``remotes`` are its.
        letters: what the hubs of daemons tell each other.
        streams: messages to actors of other daemons.
        directory: where addresses are registered.
        advertising: adverts sent and received.
        traces: the ways of names through the mesh.
        due: when :meth:`act` is to be called.
        hint: takes the data of a client's advert; None to refuse those.
        now: returns the time, in seconds.
        relay: takes a batch from a link, see :meth:`Forwarding.relay`.
        over: whether the present turn is over.
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
        emit: Callable[[dict[str, object]], None] = lambda _event: None,
    ) -> None:
        self.state = state = State(config, clock=clock, wall=wall, emit=emit)
        self.broker = broker
        self.now = clock
        self.over = broker.delivery.turn.over
        self.table, self.links, self.counters = state.table, state.links, state.counters
        self._woken = woken
        self.forwarding = Forwarding(state, broker)
        self.relay = self.forwarding.relay
        self.legacy = LegacyPeers(broker.faults)
        self.handshakes = Handshakes(
            state, broker, self, linked=self._linked, left=self._left, legacy=self._meet_legacy
        )
        self.greet = self.handshakes.greet
        self.down: deque[Down] = deque(maxlen=KEPT_DOWN)
        self.hint: Callable[[bytes], None] | None = None
        self.due = float("inf")
        self._acting: Steps[None] | None = None
        self.news = News(state, broker, self.forwarding.outbound)
        self.remote_interests = RemoteInterests(state, broker, self.news.announce)
        self.remotes = self.remote_interests.remotes
        self.letters = Letters(state, broker)
        self.forwarding.letters = self.letters
        self.streams = Streams(state, broker.faults, self.letters, self._wake_at)
        self.directory = Directory(
            state,
            self.letters,
            wake=self._wake_at,
            advertise=lambda: self.advertising.links_changed(),  # noqa: PLW0108  (made below)
        )
        self.advertising = Advertising(
            state,
            broker,
            self.forwarding,
            self.news,
            self.remote_interests,
            self.directory,
            rng=rng,
            wake=self._wake_at,
            withdraw=self._withdraw,
        )
        self.traces = Traces(state, broker, self.forwarding, self._wake_at)
        self._introduce_at = self._legacy_at = float("inf")
        self._beat_at = self._beaten = clock()
        broker.router.on_forwarded = self._forwarded
        claim_names(broker, config.mesh, config.topics, self._forged)
        self._wake_at(clock())

    def trace(self, link: Link, data: bytes) -> None:
        """Take a part of a trace from ``link``."""
        self.traces.take(link, data)

    def go_on(self, link: Link) -> bool:
        """Go on with a batch; return whether work is left of it."""
        return self.forwarding.go_on(link)

    def hold(self, link: Link, more: int) -> None:
        """Count ``more`` bytes of unprocessed input of ``link``, or fewer if it is negative."""
        self.state.held += more
        if more > 0 and self.state.held > MAX_HELD:
            text = f"input of links that waits is over {MAX_HELD // MIB} MiB"
            link.peer.end("payload-too-large", text)

    # Time

    def _wake_at(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._woken()

    def act(self) -> None:
        """Do what is due, up to the end of the turn."""
        self.broker.delivery.turn.begin()
        self.due = float("inf")
        if self._acting is None:
            self._acting = self._act()
        try:
            for _ in self._acting:
                if self.over():
                    self._wake_at(self.now())
                    return
        except BaseException:
            self._acting = None
            self._wake_at(self.now())
            raise
        self._acting = None
        if not self.remote_interests.settled or self.news.unpublished:
            self._wake_at(self.now())
        advertising = min(self.advertising.settle_at, self.advertising.due)
        letters = min(self.directory.due, self.streams.due)
        own = min(self._introduce_at, self._legacy_at, self._beat_at)
        self._wake_at(min(own, advertising, letters, self.traces.due))

    def _act(self) -> Steps[None]:
        """Do what is due now, in steps; work that becomes due meanwhile waits for the next call."""
        self._introduce_at = float("inf")
        for link in list(self.links.values()):
            if not link.ready:
                yield from self._introducing(link)
        now = self.now()
        if now >= self._beat_at:
            self._beat_at = now + self.state.config.heartbeat
            yield from self._beating(now)
        if self.now() >= self.advertising.settle_at:
            self.advertising.settle_at = float("inf")
            try:
                yield from self._finding_paths()
                self.remote_interests.reconcile_all()
                self.directory.note_all()
            except Exception:
                self.advertising.settle_at = now  # all of it again
                raise
        yield from self.remote_interests.reconciling()
        yield from self.news.publishing()
        try:
            yield from self.directory.acting()
            yield from self.streams.acting()
            while self.letters.work():  # of links that have ended
                yield
        except Exception as error:  # noqa: BLE001  (links and adverts are not concerned)
            self.broker.faults.note(error, "mesh")
            self.directory.retry()
        if self.remote_interests.changed or self.now() >= self._legacy_at:
            yield from self._asking_legacy()
        yield from self.traces.working()
        if (yield from self.advertising.advertise()) and self.legacy.peers:
            self._legacy_at = min(self._legacy_at, self.now())

    def _beating(self, now: float) -> Steps[None]:
        heartbeat = self.state.config.heartbeat
        late = now - self._beaten > heartbeat * 1.5  # the silence may have been ours
        self._beaten = now
        for number, link in enumerate(list(self.links.values()), 1):
            if late or link.peer.busy:
                link.heard = max(link.heard, now)
            elif now - link.heard > SILENT * heartbeat + (link.rtt_ms or 0.0) / 1000:
                text = f"nothing was heard from {link.node} for {now - link.heard:.3g} s"
                link.peer.end("link-timeout", text)
                self._left(link)
                continue
            try:
                link.ping()
            except Exception as error:  # noqa: BLE001  (it is that link's alone)
                self.broker.faults.end(link.peer, error)
            if number % _STEP == 0:
                yield
        self.handshakes.sweep(now)
        self.state.measure()
        for node, since in list(self.state.unreachable.items()):
            if now - since > FORGET and node in self.state.unreachable:
                self.news.forget(node)
                self.table.drop(node)
                self.forwarding.forget(node)
                yield from self.remote_interests.forgetting(node)

    # Links

    def _linked(self, link: Link) -> None:
        """Begin to use a new link."""
        self.forwarding.forget_next_hops()
        self._wake_at(self.now())

    def _introducing(self, link: Link) -> Steps[None]:
        """Send a new neighbour all known adverts, in steps, as fast as it takes them."""
        while not self.news.introduce(link):
            if link.crowded:
                self._introduce_at = self.now() + _CROWDED
                return
            yield
        link.ready = True
        self.forwarding.forget_next_hops()
        self.advertising.links_changed()

    def _left(self, link: Link) -> None:
        """Remove a link that has ended; further calls for it do nothing."""
        link.release()
        if self.links.get(link.node) is not link:
            return
        self.forwarding.forget_next_hops()
        self.advertising.links_changed()
        self._wake_at(self.now())
        del self.links[link.node]  # if something has failed before, all of it is done again
        self.counters.dropped += link.dropped
        messages, size = link.messages_in + link.messages_out, link.bytes_in + link.bytes_out
        self.down.append(Down(link.node, link.dialled, self.state.wall(), messages, size))
        reason, detail = _why(link)
        self.state.emit(
            {
                "event": "link-down",
                "node": link.node,
                "peer": link.address,
                "reason": reason,
                "detail": detail,
            }
        )

    # Adverts

    def _forwarded(self, news: bool) -> None:
        """Act on a change of this daemon's own interests.

        Other daemons need not know how many peers share an interest (then it is no ``news``). A
        legacy peer does: it is not asked for what nobody else subscribes.
        """
        now, cost = self.now(), len(self.broker.router.forwarded) * _PACE_EACH
        if self.legacy.peers:
            self._legacy_at = min(self._legacy_at, now + cost)
            self._wake_at(self._legacy_at)
        if news:
            self.advertising.interests_changed(cost)

    def advert(self, link: Link, node: str, data: bytes) -> None:
        """Take an advert from ``link``."""
        self.advertising.take(link, node, data)

    def _withdraw(self) -> None:
        """End all links and make none for a while: another daemon has this one's id."""
        self.handshakes.withdrawn = self.now() + 3 * CLAIM_TIME
        error = ProtocolError("duplicate-node", f"another daemon has the id {self.state.node}")
        for link in list(self.links.values()):
            self.state.refuse(error.code, error.text, link.address)
            link.peer.end(error.code, error.text)

    def _finding_paths(self) -> Steps[None]:
        """Find the daemons that can be reached, and the tree of this one, in steps."""
        while not self.table.find_hops(self.over):
            yield
        while self.table.large and self.table.subtree(self.state.node, self.over) is None:
            yield

    def _forged(self, name: bytes, data: bytes) -> None:
        """Refuse what only daemons say, or take an advert of a client as a hint whom to dial."""
        if self.hint is not None and b"/peers/" in name[: len(b"//fwd/peers/")]:
            try:
                self.hint(data)
            except AdvertError as error:
                self.counters.refused["bad-address"] += 1
                raise ProtocolError("bad-request", str(error)) from None
            return
        self.counters.refused["forged-advert"] += 1
        text = f"{wire.quote(name)} is for the daemons of this mesh alone"
        raise ProtocolError("forged-advert", text)

    # Legacy peers

    def _asking_legacy(self) -> Steps[None]:
        """Subscribe the interests of all others at legacy peers, in steps."""
        self.remote_interests.changed, self._legacy_at = False, float("inf")
        if not self.legacy.peers:
            return
        far: set[bytes] = set()
        for remote in list(self.remotes.values()):
            far.update(one for one in remote.substrings if not one.startswith(wire.HUB))
            if self.over():
                yield
        yield from self.legacy.asking(self.broker.router.forwarded, far)

    def _meet_legacy(self, peer: Peer) -> None:
        """Take a peer that knows no hello for a legacy peer."""
        ended = peer.gone

        def gone() -> None:
            try:
                self.legacy.drop(peer)
            finally:
                if ended is not None:
                    ended()

        peer.gone = gone
        self.legacy.add(peer)
        self._legacy_at = self.now()
        self._wake_at(self._legacy_at)


def _why(link: Link) -> tuple[str, str]:
    """Return why a link has ended: a code, and a text."""
    peer = link.peer
    if peer.ending is not None:
        return peer.ending.code, peer.ending.text
    if link.farewell:
        return "closed", f"the other daemon: {link.farewell}"
    if peer.lost:
        return "lost", f"the connection broke: {peer.lost}"
    return "closed", "the other daemon has closed it without a reason"
