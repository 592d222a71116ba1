"""A catalogue of actors: finding them by address, capability and metadata, without I/O.

Strategy: a dictionary holds the actors, and one more for each capability those that have it, so a
search looks only at the actors with the rarest capability that it asks for. A search runs in
steps, over a list of the keys that existed when it began. The clock ends a step, as a pattern can
make an address cost anything from 0.5 µs to 5 ms, and a search whose matching takes too long in all
is given up.

Invariants:

- ``_by_capability[c]`` has each actor with ``c``, by its key, and exists if there is one.
- ``_details`` is the sum of the actors' ``size``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from pubsubd.hub.actors import MAX_ADDRESS, Actor, ConnectionT
from pubsubd.hub.search import PatternError, matcher, selector, unwrap
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import KIB, MIB
from pubsubd.protocol.shards import Shards

MAX_DETAILS = 64 * KIB
"""Bytes of one actor's metadata and capabilities, each of which counts as 256 more."""

ALL_DETAILS = 128 * MIB
"""Bytes of the details of all actors; 2.6 KiB each if there are 50,000."""

PER_CAPABILITY = 256
"""Bytes of a set with one actor in it."""

MAX_CAPABILITIES = MAX_DETAILS // PER_CAPABILITY
"""Capabilities of one actor: there is no room for more."""

_STEP = 0.001  # seconds of one step of a search
_GLANCE = 0.000_1  # seconds

MATCH_TIME = 0.2
"""Seconds that matching a pattern may take in all; 50,000 addresses take some 0.03."""

_CHUNK = 256  # keys that are looked up at once
_SHORT = 1_024  # bytes of metadata that are looked at without looking at the clock


class _ProcessorTime:
    """Seconds of processor time of this thread, up to :data:`_GLANCE` ago.

    Asking the system for them takes 1 µs. So they are asked for only if that much time has passed.
    """

    def __init__(self) -> None:
        self._looked, self._seconds = float("-inf"), 0.0

    def __call__(self) -> float:
        now = time.perf_counter()
        if now - self._looked >= _GLANCE:
            self._looked, self._seconds = now, time.thread_time()
        return self._seconds


class RegistryFull(PubsubdError):  # noqa: N818  (it says what is the matter)
    """Too many actors, or too much metadata and too many capabilities of them."""


@dataclass(frozen=True, slots=True)
class Found(Generic[ConnectionT]):
    """A page of the actors that were found, and how many there are in all."""

    actors: list[Actor[ConnectionT]]
    total: int


class Catalogue(Generic[ConnectionT]):
    """Actors, and what they tell about themselves.

    Args:
        table: makes the dictionaries of actors.
        max_details: bytes of their metadata and capabilities, as :data:`MAX_DETAILS` counts.
        clock: seconds of processor time, to end the steps of a search by.

    Attributes:
        max_details: the limit.
    """

    def __init__(
        self,
        table: Callable[[], MutableMapping[str, Actor[ConnectionT]]] = dict,
        max_details: int = ALL_DETAILS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.max_details = max_details
        self._table = table
        self._details = 0
        self._clock = clock or _ProcessorTime()
        self._actors = table()
        self._by_capability: dict[str, MutableMapping[str, Actor[ConnectionT]]] = {}

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def details(self) -> int:
        """Bytes of the metadata and capabilities of all actors."""
        return self._details

    def get_any(self, key: str) -> Actor[ConnectionT] | None:
        """Return an actor, whether its registration holds or has expired."""
        return self._actors.get(key)

    def keys(self, capability: str | None = None) -> list[str]:
        """Return the keys of all actors, or of those with a capability."""
        if capability is None:
            return list(self._actors)
        return list(self._by_capability.get(capability, ()))

    def page(self, offset: int, limit: int, now: int) -> Generator[None, None, Found[ConnectionT]]:
        """Return ``limit`` actors from ``offset`` on, and how many there are, in steps."""
        yield from self._expiring(now)
        total = len(self._actors)
        start = min(offset, total)
        keys = islice(self._actors, start, start + limit)
        return Found([self._actors[key] for key in keys], total)

    def _expiring(self, _now: int) -> Iterable[None]:
        """Remove registrations that have expired, in steps."""
        return ()

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
        actors = first.get_all(keys) if isinstance(first, Shards) else map(first.get, keys)
        return [actor for actor in actors if actor is not None and actor.expires_at > now]

    def _able(self, wanted: Iterable[str]) -> list[MutableMapping[str, Actor[ConnectionT]]]:
        """Return the actors with each capability; all actors if none is wanted."""
        nobody: MutableMapping[str, Actor[ConnectionT]] = {}
        able = [self._by_capability.get(capability, nobody) for capability in wanted]
        return able or [self._actors]

    def _measure(self, able: Collection[str], metadata: bytes, before: int) -> int:
        """Return how much room details take, of which so much was taken before.

        Raises:
            RegistryFull: there is less.
        """
        size = len(metadata) + PER_CAPABILITY * len(able)
        if size <= MAX_DETAILS:
            size += sum(len(capability.encode()) for capability in able)
        if size > MAX_DETAILS:
            raise RegistryFull(
                f"metadata and capabilities take {size} bytes, of {MAX_DETAILS} that one actor has"
            )
        if self._details + size - before > self.max_details:
            raise RegistryFull(
                f"what actors tell about themselves takes {self.max_details} bytes, the limit"
            )
        return size

    def _note(
        self, actor: Actor[ConnectionT], able: Collection[str], metadata: bytes, size: int
    ) -> None:
        """Take the details of an actor."""
        self._details += size - actor.size
        actor.size = size
        self._forget_capabilities(actor, keep=able)
        for capability in able:
            those = self._by_capability.get(capability)
            if those is None:
                those = self._by_capability[capability] = self._table()
            those[actor.key] = actor
        actor.capabilities = tuple(able)
        actor.metadata = metadata
        actor.version += 1

    def _forget_capabilities(self, actor: Actor[ConnectionT], keep: Collection[str] = ()) -> None:
        for capability in actor.capabilities:
            if capability not in keep:
                keys = self._by_capability[capability]
                del keys[actor.key]
                if not keys:
                    del self._by_capability[capability]
