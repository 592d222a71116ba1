"""The hub's part in a mesh of daemons: what it knows of their actors, and does with them.

Strategy. What is registered at other daemons is told to this one as it changes, and kept in
:mod:`pubsubd.hub.mirrors`. A message to an actor goes to the one daemon that has it, which
confirms it. Other requests go to others in letters, and the answers come back in letters; what
waits for them is dropped after :data:`PATIENCE`.

Invariant: ``_waiting`` is in the order of the deadlines, with at most :data:`MAX_WAITING` entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from pubsubd.broker.faults import Endable
from pubsubd.broker.rate import Bucket
from pubsubd.broker.turn import Steps
from pubsubd.hub import mirrors
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor
from pubsubd.hub.alike import Recurring
from pubsubd.hub.catalogue import Catalogue, Found
from pubsubd.hub.handover import Halves, put, write
from pubsubd.hub.interfaces import Connection, FederatedHost
from pubsubd.hub.mirrors import FoundInMesh, Mirrors, decode

PATIENCE = 5.0
"""Seconds after which another daemon that has not answered is taken not to have."""

MAX_WAITING = 10_000
"""Requests to other daemons whose answers are waited for; more are answered as if none came."""

BROADCASTS = 600
"""Broadcasts and displacements a minute that another daemon may ask for in the long run."""

BURST = 100
"""Those that it may ask for at once."""

Answer = Callable[[list[str] | None], None]
"""Called with the words of an answer after its token; None if none came in time."""


class Delivered(Protocol):
    """Takes what has become of a message to an actor of another daemon."""

    @property
    def peer(self) -> Endable:
        """The sender, which ends if this fails."""

    def __call__(self, at: int | None) -> None:
        """Take when it was delivered, in milliseconds since the epoch.

        None if it was not, or if nobody has said so.
        """


_encode = msgspec.json.Encoder().encode


class Letters(Protocol):
    """The letters of the daemon; :class:`pubsubd.mesh.letters.Letters`."""

    kinds: dict[str, Callable[[str, list[str], bytes], Steps[None] | None]]
    after: Callable[[], None]

    def send(self, node: str | None, words: str, body: bytes = b"") -> None:
        """Send a letter to a daemon, or to all."""

    def refuse(self, reason: str) -> None:
        """Count a letter that is not taken."""


class Directory(Protocol):
    """The claims of all daemons; :class:`pubsubd.mesh.directory.Directory`.

    Or those of all workers of this one: :class:`pubsubd.siblings.actors.Actors`.
    """

    @property
    def one_daemon(self) -> bool:
        """Whether these are workers, which are one daemon to their clients."""

    @property
    def node(self) -> str:
        """Id of this daemon."""

    def claim(self, key: str) -> object:
        """Claim an address, or tell its new details."""

    def release(self, key: str) -> None:
        """Withdraw a claim."""

    def find(self, key: str) -> str | None:
        """Return the other daemon at which an address is registered."""

    def disown(self, node: str, key: str) -> None:
        """Take note that another daemon has given an address away."""

    def serve(self, registrar: Federation) -> None:
        """Take part, for this hub."""

    @property
    def others(self) -> list[str]:
        """Ids of the other daemons with a hub that can be reached."""

    @property
    def unsettled(self) -> list[str]:
        """Ids of those of them whose actors are not all known."""


class Streams(Protocol):
    """The messages to actors of other daemons; :class:`pubsubd.mesh.streams.Streams`."""

    deliver: Callable[[str, str, bytes], bool]

    def send(
        self,
        node: str,
        pair: tuple[str, str],
        body: bytes,
        *,
        ask: bool,
        answer: Delivered | None,
    ) -> bool:
        """Send a message to an actor; return False if too many are under way."""


class _Broadcast(Struct):
    """A broadcast, as daemons send it to each other."""

    capability: str | None
    delivery: r.Delivery


class _Displacement(Struct):
    """The request to give an address to a client of another daemon, who is ``user``."""

    key: str
    user: str | None


_read_delivery = msgspec.json.Decoder(r.Delivery).decode
_read_broadcast = msgspec.json.Decoder(_Broadcast).decode
_read_displacement = msgspec.json.Decoder(_Displacement).decode


class _Tally:
    """The answers of all daemons to one request."""

    def __init__(self, nodes: Sequence[str], done: Callable[[int, int, list[str]], None]) -> None:
        self.nodes = dict.fromkeys(nodes)
        self.delivered = self.failed = 0
        self._done = done

    def finish(self) -> None:
        self._done(self.delivered, self.failed, list(self.nodes))


class _Asked(NamedTuple):
    """A request to other daemons.

    Attributes:
        deadline: when it is not waited for any more.
        asker: the connection that waits for the answer; it ends if that cannot be told.
        answer: takes it.
    """

    deadline: float
    asker: Connection
    answer: Answer | _Tally


class Federation:
    """The hub's part in the mesh.

    Args:
        hub: the port.
        directory, letters, streams: of the daemon's mesh.

    Attributes:
        directory: of the daemon's mesh.
        mirrors: daemon -> its actors.
        waiting: requests to other daemons whose answers are waited for.
    """

    def __init__(
        self, hub: FederatedHost, directory: Directory, letters: Letters, streams: Streams
    ) -> None:
        self._hub = hub
        self.directory = directory
        self._letters = letters
        self._streams = streams
        streams.deliver = self._deliver
        self.mirrors = Mirrors()
        self._recurring = Recurring()
        self._serial = 0
        self._waiting: OrderedDict[int, _Asked] = OrderedDict()
        self._buckets: dict[str, Bucket] = {}
        hub.registry.changed = self._changed
        if directory.one_daemon:
            hub.registry.elsewhere = lambda: sum(map(len, self.mirrors.values()))
        letters.after = hub.flush
        letters.kinds.update(
            broadcast=self._take_broadcast,
            delivered=self._take_delivered,
            displace=self._take_displace,
            displaced=self._take_answer,
            kept=self._take_answer,
        )
        directory.serve(self)

    # What the directory asks and says

    @property
    def named(self) -> bool:
        """Whether clients are told which daemon has an actor."""
        return not self.directory.one_daemon

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

    def describe(self, key: str) -> bytes | None:
        """Return the details of an actor of this daemon, in one line."""
        actor = self._hub.registry.get_any(key)
        return None if actor is None else mirrors.describe(actor)

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take an actor of another daemon; see :meth:`Mirrors.learn`."""
        return self.mirrors.learn(node, key, since, details)

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another daemon is gone."""
        self.mirrors.forget(node, key)

    def lose(self, key: str, node: str) -> None:
        """End a registration of this daemon: that at another one is earlier."""
        actor = self._hub.registry.get_any(key)
        if actor is not None:
            self._hub.withdraw(actor, node)

    def look(
        self,
        find: Callable[[Catalogue[Any], int, int], Steps[Found[Any]]],
        limit: int,
        offset: int,
    ) -> Steps[FoundInMesh]:
        """Return a page of the actors of all daemons; see :func:`pubsubd.hub.mirrors.look`."""
        reached = set(self.directory.others)
        others = [mirror for node, mirror in self.mirrors.items() if node in reached]
        registries: list[Catalogue[Any]] = [self._hub.registry, *others]
        return mirrors.look(registries, find, limit, offset, self.directory.unsettled)

    # Asking others

    def _expect(self, asker: Connection, answer: Answer | _Tally) -> int:
        """Return the number of a request that ``answer`` waits for; 0 if too many do already."""
        if len(self._waiting) >= MAX_WAITING:
            return 0
        self._serial += 1
        self._waiting[self._serial] = _Asked(self._hub.clock() + PATIENCE, asker, answer)
        return self._serial

    @property
    def waiting(self) -> int:
        """Number of requests whose answers are waited for."""
        return len(self._waiting)

    def expire(self) -> bool:
        """Answer a request that has waited too long; return whether more may have."""
        if not self._waiting:
            return False
        serial, asked = next(iter(self._waiting.items()))
        if asked.deadline > self._hub.clock():
            return False
        del self._waiting[serial]
        answer = asked.answer
        tell = answer.finish if isinstance(answer, _Tally) else partial(answer, None)
        self._hub.spare(asked.asker, tell)
        return True

    def send(
        self, node: str, pair: tuple[str, str], body: bytes, *, ask: bool, answer: Delivered | None
    ) -> bool:
        """Send a message to an actor of another daemon; return False if too many are under way.

        Args:
            node: the daemon.
            pair: sender and receiver.
            body: the message, a delivery without ``to``.
            ask: whether the sender waits for the answer.
            answer: called with what has become of it; not if False is returned.
        """
        return self._streams.send(node, pair, body, ask=ask, answer=answer)

    def displace(self, node: str, key: str, asker: Connection, answer: Answer) -> None:
        """Ask another daemon to end the registration of an address, for the user of ``asker``.

        The first word of the answer is ``displaced`` if it has, and the address is free then.
        """

        def take(words: list[str] | None) -> None:
            if words is not None and words[0] == "displaced":
                self.directory.disown(node, key)
            answer(words)

        if serial := self._expect(asker, take):
            body = _encode(_Displacement(key, asker.peer.identity))
            self._letters.send(node, f"displace {serial}", body)
        else:
            answer(None)

    def broadcast(
        self,
        asker: Connection,
        delivery: r.Delivery,
        capability: str | None,
        done: Callable[[int, int, list[str]], None],
    ) -> None:
        """Send a message to all actors of the other daemons.

        Args:
            asker: the sender.
            delivery: the message.
            capability: that they must have.
            done: called with how many got it, how many could not, and which daemons do not say.
        """
        others = self.directory.others
        tally = _Tally(others, done)
        if not others or not (serial := self._expect(asker, tally)):
            tally.finish()
            return
        body = _encode(_Broadcast(capability, delivery))
        self._letters.send(None, f"broadcast {serial}", body)

    def _take_answer(self, _node: str, words: list[str], _body: bytes) -> None:
        asked = self._waiting.pop(int(words[1]), None)
        if asked is not None and not isinstance(asked.answer, _Tally):
            self._hub.spare(asked.asker, partial(asked.answer, [words[0], *words[2:]]))

    def _take_delivered(self, node: str, words: list[str], _body: bytes) -> None:
        serial, delivered, failed = map(int, words[1:4])
        asked = self._waiting.get(serial)
        tally = None if asked is None else asked.answer
        if asked is None or not isinstance(tally, _Tally) or node not in tally.nodes:
            return
        del tally.nodes[node]
        tally.delivered += delivered
        tally.failed += failed
        if not tally.nodes:
            del self._waiting[serial]
            self._hub.spare(asked.asker, tally.finish)

    # Asked by others

    def _admit(self, node: str) -> bool:
        """Return whether another daemon may ask for something that is dear, and count it."""
        if self.directory.one_daemon:
            return True
        bucket = self._buckets.get(node)
        if bucket is None:
            if len(self._buckets) >= MAX_WAITING:
                self._buckets.clear()
            bucket = self._buckets[node] = Bucket(BROADCASTS, BURST)
        if bucket.take(self._hub.clock()):
            self._letters.refuse("rate")
            return False
        return True

    def _deliver(self, _node: str, key: str, body: bytes) -> bool:
        """Deliver a message of another daemon to an actor; return whether it took it."""
        # Hot path: scripts/bench mesh-send.
        hub = self._hub
        actor = hub.registry.get(key, hub.ticks())
        to = "" if actor is None else actor.address
        text = self._recurring.write(body, to)
        if text is None:
            delivery = _check(decode(_read_delivery, body))
            self._recurring.note(body, delivery)
            text = write(delivery, to, to.startswith("@("))
        return actor is not None and put(hub, actor, text)

    def _take_displace(self, node: str, words: list[str], body: bytes) -> None:
        serial, wanted = int(words[1]), decode(_read_displacement, body)
        if not self._admit(node):
            return
        actor = self._hub.registry.get(wanted.key, self._hub.ticks())
        if actor is not None and actor.connection.peer.identity != wanted.user:
            self._letters.send(node, f"kept {serial}")
            return
        if actor is not None:
            other = actor.connection
            self._hub.broker.delivery.flush()
            self._hub.registry.unregister(actor.key)
            text = f"{actor.address} was registered by another connection"
            self._hub.spare(other, lambda: other.end("duplicate-connection", text))
        self._letters.send(node, f"displaced {serial}")

    def _take_broadcast(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        serial, wanted = int(words[1]), decode(_read_broadcast, body)
        _check(wanted.delivery)
        if not self._admit(node):
            return None
        return self._broadcasting(node, serial, wanted)

    def _broadcasting(self, node: str, serial: int, wanted: _Broadcast) -> Steps[None]:
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
        self._letters.send(node, f"delivered {serial} {delivered} {failed}")


def _check(delivery: r.Delivery) -> r.Delivery:
    """Return a delivery that another daemon has sent; raise ValueError if none may be so."""
    if delivery.type.startswith("hub:") or not delivery.payload:
        raise ValueError(delivery.type)
    return delivery
