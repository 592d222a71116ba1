"""Registry of actors: registering, renewing and expiring them.

It is a :class:`~pubsubd.hub.catalogue.Catalogue` in the order of registration. A heap orders
registrations by the time at which they may expire. Renewing leaves the entry where it is: when the
entry comes up, it is put back with the new time. Entries of actors that have gone are passed over.

Invariant: ``_heap`` has the ``entry`` of each actor, ``(due, key)`` with ``due <= expires_at``: if
the first entry is not due, no registration has expired. It has not many more than twice as many
entries as there are actors.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

from pubsubd.hub.actors import Actor, ConnectionT, canonical
from pubsubd.hub.catalogue import ALL_DETAILS, Catalogue, RegistryFull
from pubsubd.hub.ids import new_id

_EXPIRED = 1_000  # work of removing actors in one call, as Actor.work counts it
_LOOKED = 2_000  # entries of the heap looked at in one call: 4 ms


class Registry(Catalogue[ConnectionT]):
    """The actors of all connections.

    Args:
        max_actors: the limit of their number.
        max_details: bytes of their metadata and capabilities, as :data:`MAX_DETAILS` counts.
        clock: seconds of processor time, to end the steps of a search by.

    Attributes:
        max_actors, max_details: the limits.
        elsewhere: returns how many actors there are at other workers, for the first of them.
        changed: called with an actor and True when it is registered, or with other details than
            before, and with False when it is gone.
    """

    def __init__(
        self,
        max_actors: int,
        max_details: int = ALL_DETAILS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(dict, max_details, clock)
        self.max_actors = max_actors
        self.elsewhere: Callable[[], int] = lambda: 0
        self.changed: Callable[[Actor[ConnectionT], bool], None] | None = None
        self._by_token: dict[str, Actor[ConnectionT]] = {}
        self._by_connection: dict[ConnectionT, dict[str, Actor[ConnectionT]]] = {}
        self._heap: list[tuple[int, str]] = []
        self._gone: list[
            Actor[ConnectionT]
        ] = []  # expired and removed, but not yet returned by expire()

    def register(
        self,
        address: str,
        capabilities: tuple[str, ...],
        metadata: bytes,
        ttl_ms: int,
        connection: ConnectionT,
        now: int,
    ) -> Actor[ConnectionT]:
        """Register ``address``, which is legal, or register it again.

        The caller makes sure that no other connection holds it; an expired registration makes room.

        Raises:
            RegistryFull: there are ``max_actors`` already, or the details are too many.
        """
        key = canonical(address)
        assert key is not None
        able = dict.fromkeys(capabilities)
        actor = self._actors.get(key)
        if actor is not None and actor.connection is not connection:
            assert actor.expires_at <= now
            self._end(actor)
            actor = None
        if actor is None and len(self._actors) + self.elsewhere() >= self.max_actors:
            self._reap(now)
            if len(self._actors) + self.elsewhere() >= self.max_actors:
                raise RegistryFull(f"there are {self.max_actors} actors, which is the limit")
        size = self._measure(able, metadata, actor.size if actor else 0)
        told = actor is None or (actor.address, actor.capabilities, actor.metadata) != (
            address,
            tuple(able),
            metadata,
        )
        if actor is None:
            actor = self._actors[key] = Actor(address, key, connection, now)
            self._by_connection.setdefault(connection, {})[key] = actor
        else:
            del self._by_token[actor.token]
            actor.address = address
        self._note(actor, able, metadata, size)
        self._extend(actor, now + ttl_ms)
        if told and self.changed is not None:
            self.changed(actor, True)
        return actor

    def get(self, key: str, now: int) -> Actor[ConnectionT] | None:
        """Return an actor whose registration holds."""
        actor = self._actors.get(key)
        return actor if actor is not None and actor.expires_at > now else None

    def renew(self, token: str, ttl_ms: int, now: int) -> Actor[ConnectionT] | None:
        """Let a registration hold longer, with a new token; None if no such token is known."""
        actor = self._by_token.get(token)
        if actor is None or actor.expires_at <= now:
            return None
        del self._by_token[token]
        self._extend(actor, now + ttl_ms)
        return actor

    def unregister(self, key: str) -> Actor[ConnectionT] | None:
        """Remove an actor and return it; None if there is none."""
        actor = self._actors.pop(key, None)
        if actor is None:
            return None
        del self._by_token[actor.token]
        self._details -= actor.size
        self._forget_capabilities(actor)
        owned = self._by_connection[actor.connection]
        del owned[key]
        if not owned:
            del self._by_connection[actor.connection]
        if self.changed is not None:
            self.changed(actor, False)
        return actor

    def of(self, connection: ConnectionT) -> Collection[Actor[ConnectionT]]:
        """Return the actors of a connection, in the order in which it has registered them."""
        return self._by_connection.get(connection, {}).values()

    def latest(self, connection: ConnectionT) -> Actor[ConnectionT] | None:
        """Return the actor that a connection has registered last."""
        return next(reversed(self._by_connection.get(connection, {}).values()), None)

    def is_due(self, now: int) -> bool:
        """Return whether :meth:`expire` has something to do."""
        return bool(self._gone) or bool(self._heap and self._heap[0][0] <= now)

    def expire(self, now: int) -> list[Actor[ConnectionT]]:
        """Remove actors that have expired, as many as take some 2 ms, and return them.

        Actors that had to make room since are among them. An actor that the same connection has
        registered anew meanwhile is not returned.
        """
        if not self.is_due(now):
            return []
        self._reap(now)
        gone, self._gone = self._gone[:_EXPIRED], self._gone[_EXPIRED:]
        held = self._actors.get
        return [
            actor
            for actor in gone
            if (new := held(actor.key)) is None or new.connection is not actor.connection
        ]

    def _expiring(self, now: int) -> Iterator[None]:
        while self._heap and self._heap[0][0] <= now:
            self._reap(now)
            yield

    def _extend(self, actor: Actor[ConnectionT], expires_at: int) -> None:
        actor.expires_at = expires_at
        actor.token = f"tok_{new_id()}"
        self._by_token[actor.token] = actor
        if actor.entry is not None and actor.entry[0] <= expires_at:
            return
        actor.entry = expires_at, actor.key
        heapq.heappush(self._heap, actor.entry)
        if len(self._heap) > 2 * len(self._actors) + 1_000:
            # Once in as many registrations as there are actors: 25 ms if these are 50,000.
            self._heap = [entry for entry in self._heap if self._owning(entry) is not None]
            heapq.heapify(self._heap)

    def _owning(self, entry: tuple[int, str]) -> Actor[ConnectionT] | None:
        """Return the actor whose entry in the heap this is; None if it is nobody's any more."""
        actor = self._actors.get(entry[1])
        return actor if actor is not None and actor.entry is entry else None

    def _reap(self, now: int) -> None:
        """Remove actors that have expired, as many as take some 2 ms."""
        heap, work = self._heap, 0
        for _ in range(_LOOKED):
            if not heap or heap[0][0] > now or work >= _EXPIRED:
                return
            actor = self._owning(heap[0])
            if actor is None:
                heapq.heappop(heap)
            elif actor.expires_at > now:
                actor.entry = actor.expires_at, actor.key
                heapq.heapreplace(heap, actor.entry)
            else:
                heapq.heappop(heap)
                self._end(actor)
                work += actor.work

    def _end(self, actor: Actor[ConnectionT]) -> None:
        self.unregister(actor.key)
        self._gone.append(actor)
