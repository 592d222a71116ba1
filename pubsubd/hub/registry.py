"""Registry of actors: registering, renewing, expiring and finding them.

Strategy: a dictionary holds the actors in the order of their registration, and one more for each
capability those that have it, so a search looks only at the actors with the rarest capability that
it asks for. A search runs in steps, over a list of the keys that existed when it began. The clock
ends a step, as a pattern can make an address cost anything from 0.5 µs to 5 ms, and a search whose
matching takes too long in all is given up.

A heap orders registrations by the time at which they may expire. Renewing leaves the entry where it
is: when the entry comes up, it is put back with the new time. Entries of actors that have gone are
passed over.

Invariants:

- ``_by_capability[c]`` has each actor with ``c``, by its key, and exists if there is one.
- ``_heap`` has the ``entry`` of each actor, ``(due, key)`` with ``due <= expires_at``: if the first
  entry is not due, no registration has expired. It has not many more than twice as many entries as
  there are actors.
- ``_details`` is the sum of the actors' ``size``.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from pubsubd.hub.actors import MAX_ADDRESS, Actor, ConnectionT, canonical
from pubsubd.hub.ids import new_id
from pubsubd.hub.search import PatternError, matcher, selector, unwrap
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import KIB, MIB

MAX_DETAILS = 64 * KIB
"""Bytes of one actor's metadata and capabilities, each of which counts as 256 more."""

ALL_DETAILS = 128 * MIB
"""Bytes of the details of all actors; 2.6 KiB each if there are 50,000."""

PER_CAPABILITY = 256
"""Bytes of a set with one actor in it."""

MAX_CAPABILITIES = MAX_DETAILS // PER_CAPABILITY
"""Capabilities of one actor: there is no room for more."""

_STEP = 0.001  # seconds of one step of a search

MATCH_TIME = 0.08
"""Seconds that matching a pattern may take in all."""

_CHUNK = 256  # keys that are looked up at once
_SHORT = 1_024  # bytes of metadata that are looked at without looking at the clock
_EXPIRED = 1_000  # work of removing actors in one call, as Actor.work counts it
_LOOKED = 2_000  # entries of the heap looked at in one call: 4 ms


class RegistryFull(PubsubdError):  # noqa: N818  (it says what is the matter)
    """Too many actors, or too much metadata and too many capabilities of them."""


@dataclass(frozen=True, slots=True)
class Found(Generic[ConnectionT]):
    """A page of the actors that were found, and how many there are in all."""

    actors: list[Actor[ConnectionT]]
    total: int


class Registry(Generic[ConnectionT]):
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
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.max_actors = max_actors
        self.elsewhere: Callable[[], int] = lambda: 0
        self.max_details = max_details
        self.changed: Callable[[Actor[ConnectionT], bool], None] | None = None
        self._details = 0
        self._clock = clock
        self._actors: dict[str, Actor[ConnectionT]] = {}
        self._by_token: dict[str, Actor[ConnectionT]] = {}
        self._by_connection: dict[ConnectionT, dict[str, Actor[ConnectionT]]] = {}
        self._by_capability: dict[str, dict[str, Actor[ConnectionT]]] = {}
        self._heap: list[tuple[int, str]] = []
        self._gone: list[
            Actor[ConnectionT]
        ] = []  # expired and removed, but not yet returned by expire()

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def details(self) -> int:
        """Bytes of the metadata and capabilities of all actors."""
        return self._details

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
        size = len(metadata) + PER_CAPABILITY * len(able)
        if size <= MAX_DETAILS:
            size += sum(len(capability.encode()) for capability in able)
        if size > MAX_DETAILS:
            raise RegistryFull(
                f"metadata and capabilities take {size} bytes, of {MAX_DETAILS} that one actor has"
            )
        actor = self._actors.get(key)
        if actor is not None and actor.connection is not connection:
            assert actor.expires_at <= now
            self._end(actor)
            actor = None
        if actor is None and len(self._actors) + self.elsewhere() >= self.max_actors:
            self._reap(now)
            if len(self._actors) + self.elsewhere() >= self.max_actors:
                raise RegistryFull(f"there are {self.max_actors} actors, which is the limit")
        if self._details + size - (actor.size if actor else 0) > self.max_details:
            raise RegistryFull(
                f"what actors tell about themselves takes {self.max_details} bytes, the limit"
            )
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
        self._details += size - actor.size
        actor.size = size
        self._forget_capabilities(actor, keep=able)
        for capability in able:
            self._by_capability.setdefault(capability, {})[key] = actor
        actor.capabilities = tuple(able)
        actor.metadata = metadata
        actor.version += 1
        self._extend(actor, now + ttl_ms)
        if told and self.changed is not None:
            self.changed(actor, True)
        return actor

    def get(self, key: str, now: int) -> Actor[ConnectionT] | None:
        """Return an actor whose registration holds."""
        actor = self._actors.get(key)
        return actor if actor is not None and actor.expires_at > now else None

    def get_any(self, key: str) -> Actor[ConnectionT] | None:
        """Return an actor, whether its registration holds or has expired."""
        return self._actors.get(key)

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

    def keys(self, capability: str | None = None) -> list[str]:
        """Return the keys of all actors, or of those with a capability."""
        if capability is None:
            return list(self._actors)
        return list(self._by_capability.get(capability, ()))

    def expire(self, now: int) -> list[Actor[ConnectionT]]:
        """Remove actors that have expired, as many as take some 2 ms, and return them.

        Actors that had to make room since are among them. An actor that the same connection has
        registered anew meanwhile is not returned.
        """
        if not self._gone and not (self._heap and self._heap[0][0] <= now):
            return []
        self._reap(now)
        gone, self._gone = self._gone[:_EXPIRED], self._gone[_EXPIRED:]
        held = self._actors.get
        return [
            actor
            for actor in gone
            if (new := held(actor.key)) is None or new.connection is not actor.connection
        ]

    def page(self, offset: int, limit: int, now: int) -> Generator[None, None, Found[ConnectionT]]:
        """Return ``limit`` actors from ``offset`` on, and how many there are.

        In steps, as long as there are expired registrations: these are removed first.
        """
        while self._heap and self._heap[0][0] <= now:
            self._reap(now)
            yield
        total = len(self._actors)
        start = min(offset, total)
        return Found(list(islice(self._actors.values(), start, start + limit)), total)

    def discover(
        self,
        pattern: str,
        *,
        glob: bool,
        capabilities: Sequence[str],
        metadata: dict[str, Any] | None,
        limit: int,
        offset: int,
        now: int,
    ) -> Generator[None, None, Found[ConnectionT]]:
        """Look for actors, in steps of about 1 ms.

        Args:
            pattern: of the canonical address; empty for any.
            glob: whether the pattern is a glob over all of it, in which ``*`` is any text, or a
                regular expression that occurs in it.
            capabilities: that they all have.
            metadata: keys and values that theirs has.
            limit: actors to return, after the first ``offset`` of them.
            offset: see ``limit``.
            now: milliseconds, as at registering.

        Raises:
            PatternError: the pattern is too long, too large, not one, or takes too long to match.
        """
        clock, patience = self._clock, MATCH_TIME
        begun = last = clock()
        matches = matcher(pattern, glob=glob)
        has = selector(metadata) if metadata else None
        wanted = dict.fromkeys(capabilities)
        keys = self._candidates(unwrap(pattern) if glob else "*", wanted)
        found: list[Actor[ConnectionT]] = []
        total = position = 0
        # Hot loop: 50,000 actors are looked at in 30 ms, of which RE2 takes 23.
        while position < len(keys):
            chunk = keys[position : position + _CHUNK]
            position += len(chunk)
            actors = self._holding(chunk, wanted, now)
            # Without looking at the clock, so many that a pattern at its worst takes 5 ms.
            size = max(1, MAX_ADDRESS // max(map(len, chunk)))
            if has is not None and any(len(actor.metadata) > _SHORT for actor in actors):
                size = 1
            for start in range(0, len(actors), size):
                hits = batch = actors[start : start + size]
                if matches is not None:
                    hits = [actor for actor in batch if matches(actor.text)]
                    before, last = last, clock()
                    patience -= last - before
                    if patience < 0:
                        raise PatternError("the pattern takes too long to match")
                if has is not None:
                    hits = [actor for actor in hits if has(actor.metadata)]
                    last = clock()
                if hits:
                    found += hits[max(offset - total, 0) : max(offset + limit - total, 0)]
                    total += len(hits)
                if last - begun >= _STEP:
                    position += chunk.index(batch[-1].key) + 1 - len(chunk)
                    break
            if not actors or (matches is None and has is None):
                last = clock()
            if last - begun >= _STEP:
                yield
                begun = last = clock()
        return Found(found, total)

    def _candidates(self, glob: str, wanted: Collection[str]) -> list[str]:
        """Return the keys of the smallest known set of actors that includes those searched for."""
        if glob and "*" not in glob:
            return [glob]
        if len(wanted) > MAX_CAPABILITIES:
            return []
        fewest = min(self._able(wanted), key=len)
        return list(fewest)

    def _holding(
        self, keys: list[str], wanted: Iterable[str], now: int
    ) -> list[Actor[ConnectionT]]:
        """Return those of some actors that are registered now and have what is wanted."""
        first, *others = self._able(wanted)
        for able in others:
            keys = [key for key in keys if key in able]
        actors = map(first.get, keys)
        return [actor for actor in actors if actor is not None and actor.expires_at > now]

    def _able(self, wanted: Iterable[str]) -> list[dict[str, Actor[ConnectionT]]]:
        """Return the actors with each capability; all actors if none is wanted."""
        nobody: dict[str, Actor[ConnectionT]] = {}
        able = [self._by_capability.get(capability, nobody) for capability in wanted]
        return able or [self._actors]

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

    def _forget_capabilities(self, actor: Actor[ConnectionT], keep: Collection[str] = ()) -> None:
        for capability in actor.capabilities:
            if capability not in keep:
                keys = self._by_capability[capability]
                del keys[actor.key]
                if not keys:
                    del self._by_capability[capability]
