"""Registered actors: who there is, until when, and who is found.

Strategy: actors stand in a dictionary in the order of their registration, and by capability in
further ones, so that a search looks at no more actors than have the rarest of the capabilities that
are asked for. A search goes on in steps, over a list of the keys that there were when it began.
Addresses are matched by RE2, whose time is linear in the length of the text whatever the pattern.
Registrations that end stand in a heap; an entry that is not that of the registration any more is
passed over when it comes up.

Invariants:

- ``_by_capability[c]`` has the key of each actor with ``c``, and exists if there is one.
- ``_heap`` has an entry ``(expires_at, key)`` for each actor, and not many more than twice as many.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import re2  # type: ignore[import-untyped]

from pubsubd.errors import PubsubdError
from pubsubd.hub.ids import new_id

MAX_ADDRESS = 256
"""Characters of an address."""

MAX_PATTERN = 1_024
"""Characters of a pattern."""

_MEMORY = 1 << 20  # bytes that RE2 may use for a pattern and its matching
_STEP = 500  # actors looked at in one step of a search: about 0.4 ms
_EXPIRED = 1_000  # actors removed in one call
_PART = r"[A-Za-z0-9._:\-]+"
_is_bare = re.compile(rf"{_PART}(/{_PART})+").fullmatch


class RegistryFull(PubsubdError):  # noqa: N818  (it says what is the matter)
    """There are as many actors as there may be."""


class PatternError(PubsubdError):
    """A pattern that cannot be used."""


def canonical(address: str) -> str | None:
    """Return ``x/y`` for ``x/y`` and for ``@(x/y)``; None if it is no address."""
    if len(address) > MAX_ADDRESS:
        return None
    if address.startswith("@(") and address.endswith(")"):
        address = address[2:-1]
    return address if _is_bare(address) else None


class Actor:
    """A registration. Times in epoch milliseconds.

    Attributes:
        address: as it was registered.
        key: its canonical form.
        capabilities: what it says that it can do.
        metadata: an object, as a JSON text.
        registered_at: when it was registered first.
        expires_at: until when it holds.
        version: how often it was registered.
        token: what renews it.
        owner: the connection that registered it.
    """

    __slots__ = (
        "address",
        "capabilities",
        "expires_at",
        "key",
        "metadata",
        "owner",
        "registered_at",
        "text",
        "token",
        "version",
    )

    def __init__(self, address: str, key: str, owner: object, registered_at: int) -> None:
        self.address = address
        self.key = key
        self.text = key.encode()
        self.owner = owner
        self.registered_at = registered_at
        self.capabilities: tuple[str, ...] = ()
        self.metadata = b"{}"
        self.expires_at = 0
        self.version = 0
        self.token = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of the actors that were found, and how many there are in all."""

    actors: list[Actor]
    total: int


class Registry:
    """The actors of all connections.

    Args:
        max_actors: how many there may be.
    """

    def __init__(self, max_actors: int) -> None:
        self._max = max_actors
        self._actors: dict[str, Actor] = {}
        self._by_token: dict[str, Actor] = {}
        self._by_owner: dict[object, dict[str, Actor]] = {}
        self._by_capability: dict[str, dict[str, None]] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._actors)

    def register(
        self,
        address: str,
        capabilities: tuple[str, ...],
        metadata: bytes,
        ttl_ms: int,
        owner: object,
        now: int,
    ) -> Actor:
        """Register ``address``, which is legal and nobody else's, or register it again.

        Raises:
            RegistryFull: there are ``max_actors`` already.
        """
        key = canonical(address)
        assert key is not None
        actor = self._actors.get(key)
        if actor is None:
            if len(self._actors) >= self._max:
                self.expire(now)
            if len(self._actors) >= self._max:
                raise RegistryFull(f"there are {self._max} actors, which is the limit")
            actor = self._actors[key] = Actor(address, key, owner, now)
            self._by_owner.setdefault(owner, {})[key] = actor
        else:
            assert actor.owner is owner
            self._forget_capabilities(actor)
            del self._by_token[actor.token]
            actor.address = address
        actor.capabilities = tuple(dict.fromkeys(capabilities))
        for capability in actor.capabilities:
            self._by_capability.setdefault(capability, {})[key] = None
        actor.metadata = metadata
        actor.version += 1
        self._extend(actor, now + ttl_ms)
        return actor

    def get(self, key: str, now: int) -> Actor | None:
        """Return an actor whose registration holds."""
        actor = self._actors.get(key)
        return actor if actor is not None and actor.expires_at > now else None

    def renew(self, token: str, ttl_ms: int, now: int) -> Actor | None:
        """Let a registration hold longer, with a new token; None if no such token is known."""
        actor = self._by_token.get(token)
        if actor is None or actor.expires_at <= now:
            return None
        del self._by_token[token]
        self._extend(actor, now + ttl_ms)
        return actor

    def unregister(self, key: str) -> Actor | None:
        """Remove an actor and return it; None if there is none."""
        actor = self._actors.pop(key, None)
        if actor is None:
            return None
        del self._by_token[actor.token]
        self._forget_capabilities(actor)
        owned = self._by_owner[actor.owner]
        del owned[key]
        if not owned:
            del self._by_owner[actor.owner]
        return actor

    def of(self, owner: object) -> Iterable[Actor]:
        """Return the actors of a connection, in the order in which it has registered them."""
        return self._by_owner.get(owner, {}).values()

    def keys(self, capability: str | None = None) -> list[str]:
        """Return the keys of all actors, or of those with a capability."""
        if capability is None:
            return list(self._actors)
        return list(self._by_capability.get(capability, ()))

    def expire(self, now: int) -> list[Actor]:
        """Remove actors whose time is over, 1,000 at most, and return them."""
        expired: list[Actor] = []
        heap = self._heap
        while heap and heap[0][0] <= now and len(expired) < _EXPIRED:
            _, key = heapq.heappop(heap)
            actor = self._actors.get(key)
            if actor is not None and actor.expires_at <= now:
                self.unregister(key)
                expired.append(actor)
        return expired

    def page(self, offset: int, limit: int, now: int) -> tuple[list[Actor], int]:
        """Return ``limit`` actors from ``offset`` on, and how many there are."""
        holding = (actor for actor in self._actors.values() if actor.expires_at > now)
        return list(islice(holding, offset, offset + limit)), len(self._actors)

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
    ) -> Generator[None, None, Found]:
        """Look for actors, in steps of about 1 ms.

        Args:
            pattern: of the canonical address; empty for any.
            glob: whether the pattern is a glob over all of it, in which ``*`` is any text, or a
                regular expression that occurs in it.
            capabilities: that they all have.
            metadata: keys and values that theirs has.
            limit: actors to return, after the first ``offset`` of them.
            offset: see ``limit``.
            now: epoch milliseconds.

        Raises:
            PatternError: the pattern is too long, too large, or not one.
        """
        matches = _matcher(pattern, glob=glob)
        keys = self.keys()
        if capabilities:
            keys = min((self.keys(one) for one in capabilities), key=len)
        wanted = frozenset(capabilities) if len(capabilities) > 1 else None
        found: list[Actor] = []
        total, actors = 0, self._actors
        for start in range(0, len(keys), _STEP):
            if start:
                yield
            for key in keys[start : start + _STEP]:
                actor = actors.get(key)
                if actor is None or actor.expires_at <= now:
                    continue
                if wanted is not None and not wanted.issubset(actor.capabilities):
                    continue
                if matches is not None and not matches(actor.text):
                    continue
                if metadata and not _has(actor, metadata):
                    continue
                if offset <= total < offset + limit:
                    found.append(actor)
                total += 1
        return Found(found, total)

    def _extend(self, actor: Actor, expires_at: int) -> None:
        actor.expires_at = expires_at
        actor.token = f"tok_{new_id()}"
        self._by_token[actor.token] = actor
        if len(self._heap) > 2 * len(self._actors) + 1_000:
            self._heap = [(one.expires_at, one.key) for one in self._actors.values()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (expires_at, actor.key))

    def _forget_capabilities(self, actor: Actor) -> None:
        for capability in actor.capabilities:
            keys = self._by_capability[capability]
            del keys[actor.key]
            if not keys:
                del self._by_capability[capability]


def _matcher(pattern: str, *, glob: bool) -> Callable[[bytes], object] | None:
    """Return what tells whether an address matches; None if any does."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern has {len(pattern)} characters, over {MAX_PATTERN}")
    if glob and pattern:
        if pattern.startswith("@(") and pattern.endswith(")"):
            pattern = pattern[2:-1]
        pattern = "^" + ".*".join(re2.escape(part) for part in re.split(r"\*+", pattern)) + "$"
    if pattern in ("", "^.*$"):
        return None
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        re2.compile(pattern, options)  # tells what is wrong, as the set below does not
        patterns = re2.Set.SearchSet(options)
        patterns.Add(pattern)
        patterns.Compile()
    except re2.error as error:
        raise PatternError(f"the pattern cannot be used: {_text(error)}") from None
    return patterns.Match  # type: ignore[no-any-return]  # half as long as a search takes


def _text(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _has(actor: Actor, wanted: dict[str, Any]) -> bool:
    value = json.loads(actor.metadata)
    if not isinstance(value, dict):
        return False
    missing = object()
    return all(_same(value.get(key, missing), one) for key, one in wanted.items())


def _same(one: object, other: object) -> bool:
    """Compare JSON values, of which true is not 1."""
    return json.dumps(one, sort_keys=True, default=str) == json.dumps(
        other, sort_keys=True, default=str
    )
