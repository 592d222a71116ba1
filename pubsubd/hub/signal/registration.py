"""Actors: registering an address, keeping it, and finding others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import UNSET, Raw

from pubsubd.broker.turn import Steps
from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor, canonical
from pubsubd.hub.catalogue import MAX_CAPABILITIES, Catalogue, Found, RegistryFull
from pubsubd.hub.core import Connection, HubCore
from pubsubd.hub.expiries import find_expiries
from pubsubd.hub.federation import Reach
from pubsubd.hub.mirrors import FoundInMesh
from pubsubd.hub.search import PatternError
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import RefusedError, key_of, read_metadata, shown, text_of
from pubsubd.protocol.limits import ANSWER

_DAEMONS = ("tcp/", "unix/", "http/", "mesh/")  # prefixes of addresses that the daemon gives
_FRAME = 150  # bytes of one actor in an answer, besides its details


def register(signal: Signal, message: m.Incoming, payload: m.Register) -> None:
    """Register an address, or register it again."""
    connection, hub = signal.connection, signal.connection.hub
    given, key = _own_address(signal, message, payload.actor_address)
    capabilities = payload.capabilities or []
    if not capabilities and signal.dialect == "A":
        raise RefusedError("internal_error", "capabilities must be a non-empty array")
    if len(capabilities) > MAX_CAPABILITIES:
        raise RefusedError("internal_error", f"over {MAX_CAPABILITIES} capabilities")
    for text in capabilities:
        if not text or len(text) > 256:
            raise RefusedError("internal_error", "a capability has 1 to 256 characters")
    metadata = bytes(payload.metadata) or b"{}"
    if metadata[:1] not in (b"{", b"n"):
        raise RefusedError("internal_error", "metadata must be an object")
    now = hub.ticks()
    ttl = _ttl(signal, payload.ttl, payload.ttl_seconds)
    existing = hub.registry.get(key, now)
    if existing is not None and existing.connection is not connection:
        _displace(signal, existing)

    def finish() -> None:
        _register(signal, message, given, key, tuple(capabilities), metadata, ttl)

    if existing is None and (node := signal.elsewhere(key)) is not None:
        _displace_elsewhere(signal, message, given, key, node, finish)
    else:
        finish()


def _register(
    signal: Signal,
    message: m.Incoming,
    given: str,
    key: str,
    capabilities: tuple[str, ...],
    metadata: bytes,
    ttl: int,
) -> None:
    """Register an address that nobody else has."""
    connection, hub = signal.connection, signal.connection.hub
    try:
        now = hub.ticks()
        actor = hub.registry.register(given, capabilities, metadata, ttl, connection, now)
    except RegistryFull as error:
        raise RefusedError("internal_error", str(error)) from None
    signal.locate(given)
    connection.sender = key
    registered = r.Registered(
        actor_address=given,
        expires_at=hub.date(actor.expires_at),
        renewal_token=actor.token,
        version=actor.version,
    )
    signal.reply(message, "hub:registered", registered, registered)


def _displace(signal: Signal, actor: Actor[Connection]) -> None:
    """Give an address that is registered to another connection, or refuse that, by the dialect.

    An address of another user is always refused.
    """
    if actor.connection.peer.identity != signal.connection.peer.identity:
        raise RefusedError("unauthorized", f"{actor.address} is registered by another user")
    if signal.dialect != "A":
        raise RefusedError(
            "unknown_actor",
            f"Actor {actor.address} already registered",
            {
                "existingVersion": actor.version,
                "existingExpiresAt": signal.connection.hub.date(actor.expires_at),
                "hint": "Wait for expiration or use different address",
            },
        )
    hub, other = signal.connection.hub, actor.connection
    hub.broker.delivery.flush()
    hub.registry.unregister(actor.key)
    text = f"{actor.address} was registered by another connection"
    hub.spare(other, partial(other.end, "duplicate-connection", text))


def _displace_elsewhere(
    signal: Signal,
    message: m.Incoming,
    given: str,
    key: str,
    node: str,
    finish: Callable[[], None],
) -> None:
    """Do as :func:`_displace` where another daemon has the address, and ``finish`` when it is free.

    The other daemon compares the users, and ends its client's connection.
    """
    hub, connection = signal.connection.hub, signal.connection
    assert hub.federation is not None
    daemon = hub.federation.shown(node)
    named = {"daemon": daemon} if hub.federation.named else {}
    if signal.dialect != "A":
        raise RefusedError(
            "unknown_actor",
            f"Actor {given} already registered",
            named | {"hint": "Wait for expiration or use different address"},
        )

    def answer(words: list[str] | None) -> None:
        if connection.left or connection.peer.ending is not None:
            return
        try:
            if words is None:
                raise RefusedError("timeout", f"the daemon {daemon}, which has {given}, is silent")
            if words[0] != "displaced":
                raise RefusedError("unauthorized", f"{given} is registered by another user")
            if hub.registry.get(key, hub.ticks()) is not None:
                raise RefusedError("unknown_actor", f"Actor {given} already registered")
            finish()
        except RefusedError as error:
            signal.error(error.code, error.text, error.details, message)

    hub.federation.displace(node, key, connection, answer)


def unregister(signal: Signal, message: m.Incoming, payload: m.Unregister) -> None:
    """End a registration of this connection, and what is subscribed under it, in steps."""
    hub = signal.connection.hub
    given = payload.actor_address or text_of(message.sender) or signal.address
    actor = hub.registry.get(key_of(given), hub.ticks())
    if actor is not None:
        if actor.connection is not signal.connection:
            raise RefusedError("unauthorized", f"{given} is another connection's")
        hub.registry.unregister(actor.key)
    signal.connection.step = _unregister(signal, message, given, actor)


def _unregister(
    signal: Signal, message: m.Incoming, given: str, actor: Actor[Connection] | None
) -> Iterator[None]:
    hub = signal.connection.hub
    if actor is not None:
        for _ in signal.forget(actor):
            if hub.broker.delivery.turn.over():
                yield
        hub.settle(actor.connection.peer)  # then it is free wherever its client registers it next
    signal.reply(
        message,
        "hub:unregistered",
        r.Unregistered(actor_address=given, unregistered_at=hub.now()),
    )


def renew(signal: Signal, message: m.Incoming, payload: m.Renew) -> None:
    """Extend a registration, for its renewal token."""
    hub = signal.connection.hub
    token = payload.renewal_token
    if token is None:
        token = read_metadata(message.metadata, m.Renew).renewal_token
    given = payload.actor_address
    known = given is None or hub.registry.get(key_of(given), hub.ticks()) is not None
    if signal.dialect != "A" and not known:
        raise RefusedError("unknown_actor", f"Actor {shown(given or '')} is not registered")
    actor = None
    if token:
        ttl = _ttl(signal, payload.ttl, payload.ttl_seconds)
        actor = hub.registry.renew(token, ttl, hub.ticks())
    if actor is None:
        raise RefusedError("unauthorized", "Invalid renewal token")
    renewed = r.Renewed(
        actor_address=actor.address,
        expires_at=hub.date(actor.expires_at),
        renewal_token=actor.token,
        new_renewal_token=actor.token,
        version=actor.version,
    )
    signal.reply(message, "hub:renewed", renewed, renewed)


def _own_address(signal: Signal, message: m.Incoming, given: str | None) -> tuple[str, str]:
    """Return the address to register, as given and in canonical form."""
    given = given or text_of(message.sender)
    if not given:
        raise RefusedError("internal_error", "actorAddress is required")
    key = canonical(given)
    if key is None:
        raise RefusedError("internal_error", f"{shown(given)} is no address like runtime/id")
    if key == m.HUB or key.startswith(_DAEMONS):
        raise RefusedError("unauthorized", f"{given} is an address of the daemon's own")
    identity = signal.connection.identity
    if identity is not None and identity.actor and canonical(identity.actor) != key:
        raise RefusedError("unauthorized", f"the token is for another actor than {given}")
    return given, key


def _ttl(signal: Signal, ms: float | None, seconds: float | None) -> int:
    limits = signal.connection.hub.limits
    if seconds is not None:
        ms = seconds * 1000
    if ms is None:
        ms = limits.ttl * 1000
    if not ms > 0:
        raise RefusedError("internal_error", "the ttl must be over 0")
    return int(min(ms, limits.max_ttl * 1000))


def discover(signal: Signal, message: m.Incoming, payload: m.Discover) -> None:
    """Find actors, in steps."""
    signal.connection.step = _discover(signal, message, payload)


def _discover(signal: Signal, message: m.Incoming, payload: m.Discover) -> Iterator[None]:
    hub, in_a = signal.connection.hub, signal.dialect == "A"
    try:
        limit, offset = signal.page(payload)
        reach = signal.reach(payload.scope)
        capabilities = list(payload.capabilities or ())
        if payload.capability:
            capabilities.append(payload.capability)

        def find(catalogue: Catalogue[Any], most: int, first: int) -> Steps[Found[Any]]:
            return catalogue.discover(
                payload.pattern or "",
                glob=in_a,
                capabilities=capabilities,
                metadata=payload.metadata,
                limit=most,
                offset=first,
                now=hub.ticks(),
            )

        page = yield from _find(hub, reach, find, limit, offset)
    except PatternError as error:
        signal.error("internal_error", str(error), message=message)
        return
    except RefusedError as error:
        signal.error(error.code, error.text, error.details, message)
        return
    name = "hub:discovered" if in_a else "hub:discovery_result"
    expiries = yield from find_expiries(hub, page)
    _list(signal, message, name, page, limit, offset, reach, expiries)


def _find(
    hub: HubCore,
    reach: Reach | None,
    find: Callable[[Catalogue[Any], int, int], Steps[Found[Any]]],
    limit: int,
    offset: int,
) -> Steps[FoundInMesh]:
    """Return a page of the actors of this daemon, or of all daemons, in steps."""
    if reach is not None:
        return (yield from reach.look(find, limit, offset))
    found = yield from find(hub.registry, limit, offset)
    return FoundInMesh([(None, actor) for actor in found.actors], found.total, [])


def list_actors(signal: Signal, message: m.Incoming, payload: m.Discover) -> None:
    """List all actors, in steps if many registrations have expired, or in a mesh."""
    limit, offset = signal.page(payload)
    reach = signal.reach(payload.scope)
    signal.connection.step = _list_actors(signal, message, limit, offset, reach)


def _list_actors(
    signal: Signal,
    message: m.Incoming,
    limit: int,
    offset: int,
    reach: Reach | None,
) -> Iterator[None]:
    hub = signal.connection.hub

    def find(catalogue: Catalogue[Any], most: int, first: int) -> Steps[Found[Any]]:
        return catalogue.page(first, most, hub.ticks())

    page = yield from _find(hub, reach, find, limit, offset)
    name = "hub:actor_list" if signal.dialect == "A" else "hub:discovery_result"
    expiries = yield from find_expiries(hub, page)
    _list(signal, message, name, page, limit, offset, reach, expiries)


def _list(
    signal: Signal,
    message: m.Incoming,
    name: str,
    page: FoundInMesh,
    limit: int,
    offset: int,
    reach: Reach | None,
    expiries: Mapping[str, int],
) -> None:
    """Answer with as many of the actors as fit."""
    date, room, total = signal.connection.hub.date, ANSWER, page.total
    here = None if reach is None else reach.here
    found: list[r.Found] = []
    for node, actor in page.actors:
        room -= actor.size + 2 * len(actor.address) + _FRAME
        if room < 0 and found:
            break
        found.append(
            r.Found(
                address=actor.address,
                actor_address=actor.address,
                capabilities=actor.capabilities,
                metadata=Raw(actor.metadata),
                registered_at=actor.registered_at if node else date(actor.registered_at),
                expires_at=expiries.get(actor.key) if node else date(actor.expires_at),
                daemon=UNSET if reach is None or here is None else reach.shown(node),
            )
        )
    signal.reply(
        message,
        name,
        r.Discovered(
            actors=found,
            count=len(found),
            total=total,
            total_matches=total,
            offset=offset,
            limit=limit,
            has_more=offset + len(found) < total,
            unanswered=UNSET if here is None else page.unanswered,
        ),
    )
