"""The hub's part among those of all daemons of a mesh, and of all workers of this daemon.

Strategy. What is registered elsewhere is told to this hub as it changes, and kept in
:mod:`pubsubd.hub.mirrors`. A message to an actor goes to the one that has it, which confirms it.
Other requests go to others in letters, see :mod:`pubsubd.hub.asking`.

Other workers are *near*, other daemons *far*. One worker has the links to other daemons. It is the
way of the others to these, the *gate*: what they ask of a daemon, it asks for them; and what a
daemon asks of this one, it asks its siblings, and answers for all. What has come from a worker goes
to daemons only, and the other way round, so nothing goes in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pubsubd.broker.actor_messages import ActorMessage, Send
from pubsubd.broker.rate import Bucket
from pubsubd.broker.turn import Steps
from pubsubd.hub import mirrors
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor
from pubsubd.hub.alike import Recurring
from pubsubd.hub.asking import (
    MAX_WAITING,
    Answer,
    Asking,
    Broadcast,
    Displacement,
    Done,
    Letters,
    Passing,
    Streams,
    read_broadcast,
    read_delivery,
    read_displacement,
    read_near_broadcast,
    read_near_delivery,
)
from pubsubd.hub.catalogue import Catalogue, Found
from pubsubd.hub.handover import Halves, put, write
from pubsubd.hub.interfaces import Connection, FederatedHost
from pubsubd.hub.mirrors import FoundInMesh, Mirrors
from pubsubd.hub.render import dress
from pubsubd.protocol.steps import Later

PATIENCE = 5.0
"""Seconds after which another daemon that has not answered is taken not to have."""

MORE_PATIENCE = PATIENCE + 2.0
"""Seconds that another worker has, which may have to wait for daemons first."""

BROADCASTS = 600
"""Broadcasts and displacements a minute that another daemon may ask for in the long run."""

BURST = 100
"""Those that it may ask for at once."""


class Directory(Protocol):
    """The claims of all daemons: :class:`pubsubd.mesh.directory.Directory`.

    Or those of all workers, and of daemons: :class:`pubsubd.siblings.actors.Actors`.
    """

    @property
    def named(self) -> bool:
        """Whether clients are told which daemon has an actor."""

    @property
    def node(self) -> str:
        """Id of this daemon, or of this worker without a mesh."""

    def claim(self, key: str) -> object:
        """Claim an address, or tell its new details."""

    def release(self, key: str) -> None:
        """Withdraw a claim."""

    def find(self, key: str) -> str | None:
        """Return the other daemon or worker at which an address is registered."""

    def find_near(self, key: str) -> str | None:
        """Return the other worker at which an address is registered."""

    def disown(self, node: str, key: str) -> None:
        """Take note that another one has given an address away."""

    def serve(self, registrar: Federation) -> None:
        """Take part, for this hub."""

    @property
    def siblings(self) -> Sequence[str]:
        """The other workers."""

    @property
    def gate(self) -> str | None:
        """The one of them that has the links to other daemons, if one has."""

    @property
    def others(self) -> list[str]:
        """Ids of the other daemons with a hub that can be reached."""

    @property
    def unsettled(self) -> list[str]:
        """Ids of daemons whose actors are not all known."""


def is_near(node: str) -> bool:
    """Return whether a node is a worker; the id of a daemon has no slash."""
    return "/" in node


class _Passed(Later):
    """What becomes of a message of a daemon that another worker has been given."""

    def __call__(self, at: int | None) -> None:
        self.done(at is not None)


class Federation:
    """The hub's part in the mesh.

    Args:
        hub: the port.
        directory: of the daemon's mesh, or of its workers.
        near: what is sent to the other workers, if there are any.
        far: what is sent to other daemons, if this worker has links.

    Attributes:
        directory: of the daemon's mesh.
        send: sends a message to an actor elsewhere.
        mirrors: daemon or worker -> its actors.
        named: whether clients are told which daemon has an actor.
        shared: whether there are other workers.
    """

    def __init__(
        self,
        hub: FederatedHost,
        directory: Directory,
        near: tuple[Letters, Passing] | None,
        far: tuple[Letters, Streams] | None,
    ) -> None:
        self._hub = hub
        self.directory = directory
        self.named = directory.named
        self.shared = near is not None
        self.mirrors = Mirrors()
        self._recurring = Recurring()
        self._buckets: dict[str, Bucket] = {}
        self._near = self._far = None
        hub.registry.changed = self._changed
        if near is not None:
            patience = MORE_PATIENCE if self.named else PATIENCE
            self._near, self._near_streams = Asking(hub, near[0], patience), near[1]
            near[1].deliver = self._deliver_near
            near[1].pass_on = self._pass_on
            near[0].kinds.update(
                broadcast=self._take_near_broadcast, displace=self._take_near_displace
            )
            hub.registry.elsewhere = self._count_near
        if far is not None:
            self._far, self._far_streams = Asking(hub, far[0], PATIENCE), far[1]
            far[1].deliver = self._deliver_here if near is None else self._deliver
            far[0].kinds.update(
                broadcast=self._take_far_broadcast, displace=self._take_far_displace
            )
        # Without other workers it is always a daemon.
        self.send: Send = self._send if self._near is not None else self._far_streams.send
        self._asking = [one for one in (self._near, self._far) if one is not None]
        directory.serve(self)

    # What the directory asks and says

    @property
    def connections(self) -> int:
        """Number of connections of the hub port."""
        return len(self._hub.connections)

    def _changed(self, actor: Actor[Connection], there: bool) -> None:
        if there:
            self.directory.claim(actor.key)
            self._hub.settle(actor.connection.peer)
        else:
            self.directory.release(actor.key)

    def describe(self, key: str, node: str | None = None) -> bytes | None:
        """Return the details of an actor of this worker, or of another one, in one line."""
        catalogue = self._hub.registry if node is None else self.mirrors.get(node)
        actor = None if catalogue is None else catalogue.get_any(key)
        return None if actor is None else mirrors.describe(actor)

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take an actor of another daemon or worker; see :meth:`Mirrors.learn`."""
        return self.mirrors.learn(node, key, since, details)

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another daemon or worker is gone."""
        self.mirrors.forget(node, key)

    def lose(self, key: str, node: str) -> None:
        """End a registration of this worker: that at another one is earlier."""
        actor = self._hub.registry.get_any(key)
        if actor is not None:
            self._hub.withdraw(actor, self.shown(node))

    def _count_near(self) -> int:
        """Return how many actors there are at other workers."""
        return sum(len(self.mirrors.get(node, ())) for node in self.directory.siblings)

    def shown(self, node: str) -> str:
        """Return what a daemon or worker is called to clients."""
        return self.directory.node if self.named and is_near(node) else node

    def look(
        self,
        find: Callable[[Catalogue[Any], int, int], Steps[Found[Any]]],
        limit: int,
        offset: int,
        *,
        across: bool,
    ) -> Steps[FoundInMesh]:
        """Return a page of the actors of this daemon, or of all.

        Args:
            find: see :func:`pubsubd.hub.mirrors.look`.
            limit: see there.
            offset: see there.
            across: whether those of all other daemons are wanted, too.
        """
        directory = self.directory
        reached = {*directory.siblings, *(directory.others if across else ())}
        others = [mirror for node, mirror in self.mirrors.items() if node in reached]
        registries: list[Catalogue[Any]] = [self._hub.registry, *others]
        unsettled = directory.unsettled if across else []
        return mirrors.look(registries, find, limit, offset, unsettled)

    # Asking others

    @property
    def waiting(self) -> int:
        """Number of requests whose answers are waited for."""
        return sum(one.waiting for one in self._asking)

    def expire(self) -> bool:
        """Answer a request that has waited too long; return whether more may have."""
        return any(one.expire() for one in self._asking)

    def _send(self, node: str, message: ActorMessage) -> bool:
        """Send a message to an actor of a daemon or worker, see :data:`Send`."""
        if is_near(node):
            return self._near_streams.send(node, message)
        if self._far is not None:
            return self._far_streams.send(node, message)
        gate = self.directory.gate
        return gate is not None and self._near_streams.send_on(gate, message)

    def displace(self, node: str, key: str, asker: Connection, answer: Answer) -> None:
        """Ask another one to end the registration of an address, for the user of ``asker``.

        The first word of the answer is ``displaced`` if it has, and the address is free then.
        """
        self._ask_for(node, Displacement(key, asker.peer.identity), asker, answer)

    def _ask_for(
        self, node: str, wanted: Displacement, asker: Connection | None, answer: Answer
    ) -> None:
        """Do as :meth:`displace`, for a client of this worker, or of another one or a daemon."""

        def take(words: list[str] | None) -> None:
            if words is not None and words[0] == "displaced":
                self.directory.disown(node, wanted.key)
            answer(words)

        near = self._near is not None and (self._far is None or is_near(node))
        asking = self._near if near else self._far
        to = node if not near or is_near(node) else self.directory.gate
        if asking is None or to is None:
            answer(None)
        else:
            asking.displace(to, wanted, asker, take)

    def broadcast(
        self, message: Broadcast, asker: Connection | None, done: Done, *, near: bool, far: bool
    ) -> None:
        """Send a message to all actors elsewhere.

        Args:
            message: it.
            asker: the sender, if it is connected here.
            done: called with how many got it, how many could not, and which daemons do not say.
            near: whether those of other workers are meant.
            far: whether those of other daemons are.
        """
        directory, gate = self.directory, self.directory.gate
        message.delivery.sender = dress(message.delivery.sender, False)
        sent = lost = 0
        silent, waiting = dict[str, None](), 1

        def add(delivered: int, failed: int, nodes: list[str]) -> None:
            nonlocal sent, lost, waiting
            sent += delivered
            lost += failed
            silent.update(dict.fromkeys(map(self.shown, nodes)))
            if far and gate in nodes:
                silent.update(dict.fromkeys(directory.others))
            waiting -= 1
            if not waiting:
                done(sent, lost, sorted(silent))

        if near and self._near is not None:
            waiting += 1
            self._near.broadcast(directory.siblings, message, asker, add, gate if far else None)
        if far and self._far is not None:
            waiting += 1
            self._far.broadcast(directory.others, message, asker, add)
        add(0, 0, [])

    # Asked by others

    def _admit(self, node: str) -> bool:
        """Return whether another daemon may ask for something that is dear, and count it."""
        bucket = self._buckets.get(node)
        if bucket is None:
            if len(self._buckets) >= MAX_WAITING:
                self._buckets.clear()
            bucket = self._buckets[node] = Bucket(BROADCASTS, BURST)
        if bucket.take(self._hub.clock()):
            assert self._far is not None
            self._far.letters.refuse("rate")
            return False
        return True

    def _deliver_near(self, key: str, body: bytes) -> bool:
        """Deliver a message of another worker."""
        return self._deliver_here("", key, body, read=read_near_delivery)

    def _deliver_here(
        self,
        _node: str,
        key: str,
        body: bytes,
        _ask: bool = False,
        read: Callable[[bytes], r.Delivery] = read_delivery,
    ) -> bool:
        """Deliver a message to an actor of this worker; return whether it took it."""
        # Hot path: scripts/bench mesh-send.
        hub = self._hub
        actor = hub.registry.get(key, hub.ticks())
        to = "" if actor is None else actor.address
        text = self._recurring.write(body, to)
        if text is None:
            delivery = read(body)
            self._recurring.note(body, delivery)
            text = write(delivery, to, to.startswith("@("))
        return actor is not None and put(hub, actor, text)

    def _deliver(self, _node: str, key: str, body: bytes, ask: bool) -> bool | Later:
        """Deliver a message of another daemon, or let the worker do so that has the actor.

        If nobody waits for the answer, it counts as delivered when that worker is sent it.
        """
        sibling = None
        if self._hub.registry.get(key, self._hub.ticks()) is None:
            sibling = self.directory.find_near(key)
        if sibling is None:
            return self._deliver_here("", key, body)
        if self._recurring.write(body, "") is None:  # else it is as legal as an earlier one
            self._recurring.note(body, read_delivery(body))
        passed: Any = _Passed() if ask else None
        sent = self._near_streams.send(sibling, ActorMessage(("", key), body, ask, passed))
        return passed if sent and ask else sent

    def _pass_on(self, message: ActorMessage) -> bool:
        """Pass a message of another worker on to an actor of a daemon, or deliver it.

        Returns:
            Whether it goes on; if not, ``answer`` is not called.
        """
        key = message.pair[1]
        node = self.directory.find(key)
        if node is not None and not is_near(node):
            return self.send(node, message)
        if not self._deliver_near(key, message.body):
            return False
        if message.answer is not None:
            message.answer(self._hub.now())
        return True

    def _take_near_displace(self, node: str, words: list[str], body: bytes) -> None:
        assert self._near is not None
        self._displace(self._near.letters, node, words, body)

    def _take_far_displace(self, node: str, words: list[str], body: bytes) -> None:
        assert self._far is not None
        if self._admit(node):
            self._displace(self._far.letters, node, words, body)

    def _displace(self, letters: Letters, node: str, words: list[str], body: bytes) -> None:
        """Give an address to a client elsewhere, or ask the one on the other side who has it."""
        hub, wanted = self._hub, read_displacement(body)

        def answer(found: list[str] | None) -> None:
            if found is not None:
                letters.send(node, f"{found[0]} {int(words[1])}")

        actor = hub.registry.get(wanted.key, hub.ticks())
        if actor is None:
            where = self.directory.find(wanted.key) if self._near and self._far else None
            if where is not None and is_near(where) != is_near(node):
                self._ask_for(where, wanted, None, answer)
                return
        elif actor.connection.peer.identity != wanted.user:
            answer(["kept"])
            return
        else:
            other = actor.connection
            hub.broker.delivery.flush()
            hub.registry.unregister(actor.key)
            text = f"{actor.address} was registered by another connection"
            hub.spare(other, lambda: other.end("duplicate-connection", text))
        answer(["displaced"])

    def _take_near_broadcast(self, node: str, words: list[str], body: bytes) -> Steps[None]:
        assert self._near is not None
        letters, far = self._near.letters, words[2:] == ["on"]

        def done(delivered: int, failed: int, silent: list[str]) -> None:
            letters.send(node, " ".join(("delivered", words[1], f"{delivered} {failed}", *silent)))

        return self._broadcasting(read_near_broadcast(body), done, near=False, far=far)

    def _take_far_broadcast(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        assert self._far is not None
        letters, serial, wanted = self._far.letters, int(words[1]), read_broadcast(body)
        if not self._admit(node):
            return None

        def done(delivered: int, failed: int, silent: list[str]) -> None:
            if not silent:  # else this daemon has not answered
                letters.send(node, f"delivered {serial} {delivered} {failed}")

        return self._broadcasting(wanted, done, near=True, far=False)

    def _broadcasting(self, wanted: Broadcast, done: Done, *, near: bool, far: bool) -> Steps[None]:
        """Deliver a broadcast to the actors of this worker, and of those on the other side."""
        hub, halves = self._hub, Halves(wanted.delivery)
        over = hub.broker.delivery.turn.over
        delivered = failed = 0
        for key in hub.registry.keys(wanted.capability):
            if over():
                yield
            actor = hub.registry.get(key, hub.ticks())
            if actor is None:
                continue
            if halves.hand(hub, actor):
                delivered += 1
            else:
                failed += 1
            connection = actor.connection
            if connection.peer.outbox.size > connection.max_pending // 2:
                hub.broker.delivery.turn.end()  # it may have to be waited for
                yield
        self.broadcast(
            wanted,
            None,
            lambda more, lost, silent: done(delivered + more, failed + lost, silent),
            near=near,
            far=far,
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a request of a client goes: to all workers of this daemon, at least.

    Attributes:
        federation: the hub's part in the mesh.
        across: whether it goes to other daemons, too.
    """

    federation: Federation
    across: bool

    @property
    def here(self) -> str | None:
        """Id of this daemon, if answers name daemons."""
        federation = self.federation
        return federation.directory.node if self.across and federation.named else None

    def shown(self, node: str | None) -> str:
        """Return the id of the daemon of an actor; None stands for this worker."""
        federation = self.federation
        return federation.directory.node if node is None else federation.shown(node)

    def look(
        self,
        find: Callable[[Catalogue[Any], int, int], Steps[Found[Any]]],
        limit: int,
        offset: int,
    ) -> Steps[FoundInMesh]:
        """Return a page of actors, as :meth:`Federation.look`."""
        return self.federation.look(find, limit, offset, across=self.across)

    def broadcast(
        self, asker: Connection, delivery: r.Delivery, capability: str | None, done: Done
    ) -> None:
        """Send a message to all actors elsewhere who have a capability, if it is not None."""
        message = Broadcast(capability, delivery)
        self.federation.broadcast(message, asker, done, near=True, far=self.across)
