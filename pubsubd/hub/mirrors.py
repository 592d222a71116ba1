"""Actors of the other daemons of a mesh, as this one knows them, and lists of the actors of all.

A *mirror* is a catalogue of the actors of one other daemon. So actors are found and listed without
asking anybody.

Invariants:

- ``mirrors[node]`` has the actors of a daemon that the directory has told of, and is not empty.
- ``details`` is the sum of those of the mirrors; at most :data:`~pubsubd.hub.registry.ALL_DETAILS`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw, Struct

from pubsubd.broker.turn import Steps
from pubsubd.hub.actors import Actor, canonical
from pubsubd.hub.catalogue import ALL_DETAILS, MAX_CAPABILITIES, Catalogue, Found, RegistryFull
from pubsubd.hub.strict import ROOM, JsonError, read
from pubsubd.protocol.limits import MIB
from pubsubd.protocol.shards import Shards

MAX_TEXT = 16 * MIB
"""Bytes of a JSON text of another daemon; reading one takes as long as the densest of 1 MiB."""

_FOREVER = 10**15  # milliseconds; a registration at another daemon holds until that tells otherwise
_ALL = 10**9  # more than any registry has
_CHUNK = 2_048  # actors that are sorted at once, in 1 ms
_MERGED = 256  # actors between two pauses


class _Details(Struct):
    """An actor, as daemons tell each other of it."""

    address: str
    capabilities: tuple[str, ...]
    metadata: Raw


_read_details = msgspec.json.Decoder(_Details).decode
_encode = msgspec.json.Encoder().encode


def describe(actor: Actor[Any]) -> bytes:
    """Return the details of an actor, in one line."""
    return _encode(_Details(actor.address, actor.capabilities, Raw(actor.metadata)))


def decode(decoder: Callable[[bytes], Any], data: bytes) -> Any:
    """Return what a JSON text of another daemon is; raise ValueError if it is not that."""
    if len(data) > MAX_TEXT:
        raise ValueError(f"{len(data)} bytes")
    try:
        return decoder(read(data, ROOM)[1])
    except (JsonError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from None


class _Mirror(Catalogue[str]):
    """The actors of another daemon."""

    def __init__(self) -> None:
        super().__init__(Shards)

    def learn(self, actor: Actor[str], capabilities: Iterable[str], metadata: bytes) -> None:
        """Take an actor, or its new details; raise RegistryFull if there is no room."""
        able = dict.fromkeys(capabilities)
        known = self._actors.get(actor.key)
        size = self._measure(able, metadata, 0 if known is None else known.size)
        if known is None:
            known = self._actors[actor.key] = actor
        known.address, known.registered_at = actor.address, actor.registered_at
        self._note(known, able, metadata, size)

    def forget(self, key: str) -> None:
        """Take note that an actor is gone."""
        actor = self._actors.pop(key, None)
        if actor is not None:
            self._details -= actor.size
            self._forget_capabilities(actor)


class Mirrors(dict[str, _Mirror]):
    """Daemon -> its actors.

    Attributes:
        details: bytes of metadata and capabilities of all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.details = 0

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take an actor of another daemon; return False if there is no room for it.

        Args:
            node: the daemon.
            key: the actor.
            since: when it was registered, in milliseconds since the epoch.
            details: as of :func:`describe`.

        Raises:
            ValueError: the details cannot be read.
        """
        told = decode(_read_details, details)
        metadata = bytes(told.metadata)
        if (
            canonical(told.address) != key
            or len(told.capabilities) > MAX_CAPABILITIES
            or metadata[:1] not in (b"{", b"n")
        ):
            raise ValueError(key)
        mirror = self.get(node)
        if mirror is None:
            mirror = self[node] = _Mirror()
        before = mirror.details
        mirror.max_details = ALL_DETAILS - self.details + before
        actor = Actor(told.address, key, node, since)
        actor.expires_at = _FOREVER
        try:
            mirror.learn(actor, told.capabilities, metadata)
        except RegistryFull:
            return False
        finally:
            self.details += mirror.details - before
            if not mirror:
                del self[node]
        return True

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another daemon is gone."""
        mirror = self.get(node)
        if mirror is None:
            return
        before = mirror.details
        mirror.forget(key)
        self.details += mirror.details - before
        if not mirror:
            del self[node]


@dataclass(frozen=True, slots=True)
class FoundInMesh:
    """A page of the actors that were found in the mesh, sorted by address.

    Attributes:
        actors: the daemon of each, None for this one, and the actor.
        total: how many there are in all.
        unanswered: ids of the daemons whose actors are not all known.
    """

    actors: list[tuple[str | None, Actor[Any]]]
    total: int
    unanswered: list[str]


def look(
    registries: Iterable[Catalogue[Any]],
    find: Callable[[Catalogue[Any], int, int], Steps[Found[Any]]],
    limit: int,
    offset: int,
    unanswered: list[str],
) -> Steps[FoundInMesh]:
    """Return a page of the actors of several registries, sorted by address, in steps.

    Args:
        registries: this daemon's, and mirrors.
        find: searches a registry, and returns so many actors after the first few.
        limit: actors to return, after the first ``offset`` of them.
        offset: see ``limit``.
        unanswered: as of the result.
    """
    chunks: list[list[Actor[Any]]] = []
    total = 0
    for registry in registries:
        found: list[Actor[Any]] = (yield from find(registry, _ALL, 0)).actors
        total += len(found)
        for start in range(0, len(found), _CHUNK):
            chunks.append(sorted(found[start : start + _CHUNK], key=attrgetter("key")))
            yield
    page: list[tuple[str | None, Actor[Any]]] = []
    for number, actor in enumerate(heapq.merge(*chunks, key=attrgetter("key"))):
        if number >= offset + limit:
            break
        if number >= offset:
            where = actor.connection
            page.append((where if isinstance(where, str) else None, actor))
        if number % _MERGED == 0:
            yield
    return FoundInMesh(page, total, unanswered)
