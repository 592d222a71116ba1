"""Traces: what a daemon does with a name, for ``//pubsubd/trace``.

The mesh follows the name to other daemons (:mod:`pubsubd.mesh.trace`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeVar

import msgspec

from pubsubd.broker.connections import Scope, spoken
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.router import Router
from pubsubd.routing.targets import CopyTargets, Denied, Targets

TRACE = b"//pubsubd/trace"

MAX_TIMEOUT = 10.0
TIMEOUT = 2.0
"""Seconds that other daemons are waited for, at most and if the asker does not say."""

MOST_LISTED = 20
"""Connections that are listed."""

_MAX_REQUEST = 2_048  # bytes of the data of a request
_ROOM = 4_096  # bytes of them
_STEP = 256  # connections between two pauses

_Found = TypeVar("_Found")


class Listed(msgspec.Struct):
    """A connection that gets a name; see pubsubd-protocol(7)."""

    connection: int
    user: str | None
    peer: str
    listener: str | None
    dialect: str
    seen: str = msgspec.field(name="as")


class Receiving(msgspec.Struct):
    """What a daemon does with a name.

    Attributes:
        receivers: how many of its connections get it.
        refused: how many others subscribe it, but have no right to receive it.
        connections: how many there are.
        listed: the first :data:`MOST_LISTED` that get it, of those that the asker may see.
    """

    receivers: int
    refused: int
    connections: int
    listed: list[Listed]


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """The data of ``//pubsubd/trace``."""

    name: str
    timeout: float = TIMEOUT


class Hop(msgspec.Struct, omit_defaults=True):
    """The account of one daemon; see pubsubd-protocol(7).

    Attributes:
        node: its id; None for a daemon without a mesh.
        came_from: the daemon that has passed it the probe; None where it began.
        links: how many lie between it and the beginning.
        again: whether it had the probe before, by another way.
        receivers, refused, connections, listed: see :class:`Receiving`.
        next: the daemons that it has passed the probe on to.
        took_ms: milliseconds from the probe to this account.
        rtt_ms: milliseconds of a round trip from the daemon before it, without ``took_ms``.
    """

    node: str | None
    came_from: str | None = msgspec.field(name="from", default=None)
    links: int = 0
    again: bool = False
    receivers: int = 0
    refused: int = 0
    connections: int = 0
    listed: list[Listed] = []
    next: list[str] = []
    took_ms: float = 0.0
    rtt_ms: float | None = None


def find_receiving(
    router: Router,
    peers: Mapping[int, Peer],
    name: bytes,
    *,
    relayed: bool,
    listed: bool,
    scope: Scope | None = None,
) -> Steps[tuple[Receiving, Targets | CopyTargets]]:
    """Return what this daemon does with ``name``, in steps, and where the router sends it.

    Args:
        router: the broker's.
        peers: the broker's.
        name: a legal one.
        relayed: whether it comes from another daemon.
        listed: whether connections are listed.
        scope: which of them the asker may see; None for all.
    """
    targets: Targets | CopyTargets | Denied
    if relayed:
        key = b"\n" + wire.header(name, 0)
        targets = (yield from _retry(lambda: router.learn_relayed(key, name, 0))).targets
    else:
        targets = yield from _retry(lambda: router.receivers(name))
    assert not isinstance(targets, Denied)
    found = yield from _near(targets, name)
    refused = 0
    if router.guarded:
        anybody = yield from _retry(lambda: router.find_unguarded(name, relayed=relayed))
        refused = len((yield from _near(anybody, name))) - len(found)
    shown: list[Listed] = []
    size = 0
    for number in sorted(found)[: 50 * MOST_LISTED] if listed else ():
        peer, seen = found[number]
        if scope is not None and not scope.sees(peer):
            continue
        row = Listed(
            connection=number,
            user=peer.identity,
            peer=peer.label,
            listener=peer.listener.name or None,
            dialect=spoken(peer)[1],
            seen=seen.decode(),
        )
        size += len(msgspec.json.encode(row))
        if len(shown) == MOST_LISTED or size > _ROOM:
            break
        shown.append(row)
    yield
    count = sum(peer.link is None for peer in peers.values())
    return Receiving(len(found), refused, count, shown), targets


def _retry(find: Callable[[], _Found]) -> Steps[_Found]:
    """Return what ``find`` finds, which may take several turns."""
    while True:
        try:
            return find()
        except Unfinished:
            yield


def _near(targets: Targets | CopyTargets, name: bytes) -> Steps[dict[int, tuple[Peer, bytes]]]:
    """Return the connections among the receivers by their numbers, and the name that each sees."""
    parts = [(targets, name)]
    if isinstance(targets, CopyTargets):
        parts = [(targets.direct, name), (targets.copies, targets.copy_name)]
    found: dict[int, tuple[Peer, bytes]] = {}
    for part, seen in parts:
        for done, peer in enumerate(part.members, 1):
            if isinstance(peer, Peer) and peer.link is None:
                found[peer.number] = peer, seen
            if done % _STEP == 0:
                yield
    return found


def read_request(
    asker: Peer, data: bytes, reserved: tuple[bytes, ...] = ()
) -> tuple[Request, bytes]:
    """Return the request in the data of ``//pubsubd/trace``, and its name.

    Args:
        asker: who asks.
        data: of the request.
        reserved: what names begin with that daemons alone publish.

    Raises:
        ProtocolError: ``bad-request`` if it is none; ``not-allowed`` or ``login-required`` if the
            asker may not publish the name.
    """
    try:
        if len(data) > _MAX_REQUEST:
            raise ValueError(f"over {_MAX_REQUEST} bytes")
        request = msgspec.json.decode(data, type=Request)
        if not 0.1 <= request.timeout <= MAX_TIMEOUT:
            raise ValueError(f"timeout is not from 0.1 to {MAX_TIMEOUT:g}")
        name = request.name.encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolError("bad-request", f"//pubsubd/trace: {error}") from None
    try:
        wire.check_name(name)
    except ProtocolError as error:
        raise ProtocolError("bad-request", error.text) from None
    if name.startswith(wire.OWN):
        raise ProtocolError("bad-request", f"{wire.quote(name)} is not published by clients")
    if name.startswith(reserved):
        raise ProtocolError("bad-request", f"{wire.quote(name)} is for daemons alone")
    rights = asker.publish_filter
    if rights is not None and not rights.allows(name):
        raise ProtocolError(rights.code, f"{wire.quote(name)}: no right to publish that")
    return request, name


def trace_here(
    router: Router, peers: Mapping[int, Peer], scope: Scope | None, name: bytes
) -> Steps[bytes]:
    """Return the answer of a daemon that is part of no mesh; see pubsubd-protocol(7).

    Args:
        router: the broker's.
        peers: the broker's.
        scope: the connections that the asker may see; None for all.
        name: a legal one.
    """
    begun = perf_counter()
    found, _ = yield from find_receiving(
        router, peers, name, relayed=False, listed=True, scope=scope
    )
    return describe_trace(name, [found], perf_counter() - begun)


def add_up(parts: Sequence[Receiving]) -> Receiving:
    """Return what several workers do with a name as what one daemon does."""
    return Receiving(
        sum(part.receivers for part in parts),
        sum(part.refused for part in parts),
        sum(part.connections for part in parts),
        [row for part in parts for row in part.listed][:MOST_LISTED],
    )


def describe_trace(
    name: bytes, parts: Sequence[Receiving], took: float, silent: Sequence[int] = ()
) -> bytes:
    """Return the answer to a trace that has not left this daemon.

    Args:
        name: that was traced.
        parts: what was found, by one worker or each of several.
        took: seconds.
        silent: numbers of the workers that have not answered.
    """
    took_ms = round(took * 1000, 3)
    found = add_up(parts)
    hop = Hop(
        node=None,
        receivers=found.receivers,
        refused=found.refused,
        connections=found.connections,
        listed=found.listed,
        took_ms=took_ms,
    )
    nobody: dict[str, object] = {"count": 0, "daemons": []}
    answer: dict[str, object] = {
        "name": name.decode(),
        "travels_as": None,
        "node": None,
        "took_ms": took_ms,
        "receivers": hop.receivers,
        "hops": [hop],
        "left_out": 0,
        "unanswered": [],
        "waited": None,
        "not_asked": nobody,
        "unreachable": nobody,
    }
    if silent:
        answer["silent"] = list(silent)
    return msgspec.json.encode(answer)
