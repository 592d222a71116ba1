"""Signal Hub: who connects, registers, is found, and is sent something."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

from soaklib.wires import KIB, MIB, Address, compact, over

from .attack import attack
from .bounds import ACTOR, DETAILS, HUB_PENDING, PAYLOAD
from .parts import repeated
from .stage import PING, Stage

_RATE = 100  # hub:* messages of a connection at once


def hub_message(kind: str, payload: Any = None, sender: str = "a/b", **more: Any) -> bytes:
    """Return a message of Signal Hub's, in dialect B."""
    return compact({"type": kind, "from": sender, "payload": payload, **more})


def lines(texts: Iterable[bytes]) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def by_rate(text: bytes, count: int = _RATE) -> list[bytes]:
    """Return a part with as many of one message as a connection may send at once."""
    return [lines([text] * count + [PING])]


def register(
    stage: Stage, count: int, metadata: bytes = b"{}", each: int = _RATE, ttl: int = 3_600_000
) -> list[socket.socket]:
    """Register so many actors, on as many connections as the rate asks for."""
    socks = []
    for first in range(0, count, each):
        texts = [
            b'{"type":"hub:register","payload":{"actorAddress":"many/%d","capabilities":["c%d"],'
            b'"ttl":%d,"metadata":%b}}' % (i, i % 7, ttl, metadata)
            for i in range(first, min(first + each, count))
        ]
        sock = stage.hub()
        heard = stage.order(sock, *texts)
        assert b"hub:registered" in heard, heard
        socks.append(stage.hold(sock))
    return socks


@attack("hub-connect", "hub:connect", crowd=True, each=HUB_PENDING)
def connect(stage: Stage) -> None:
    """Connects again and again on one connection, which no rate limits."""
    stage.flood(stage.hub, [lines([hub_message("hub:connect", {"version": "1.0"})] * 2_000)])


@attack("hub-rate-errors", "hub:heartbeat", "rate", crowd=True, each=HUB_PENDING)
def rate_errors(stage: Stage) -> None:
    """Sends heartbeats far over its rate."""
    stage.flood(stage.hub, repeated(hub_message("hub:heartbeat", {}) + b"\n"))


@attack("hub-rate-errors-unread", "rate", "max_pending", each=HUB_PENDING)
def rate_errors_unread(stage: Stage) -> None:
    """Sends heartbeats far over its rate, and never reads the errors."""
    stage.flood(stage.hub, repeated(hub_message("hub:heartbeat", {}) + b"\n"), reads=False)


@attack("hub-small-requests", "hub:heartbeat", "hub:queue_stats", "hub:metrics", crowd=True)
def small_requests(stage: Stage) -> None:
    """Asks for heartbeats, queues and metrics, 100 at a time on ever new connections."""
    texts = [hub_message(f"hub:{kind}") for kind in ("heartbeat", "queue_stats", "metrics")]
    stage.flood(stage.hub, [lines([*texts * 33, PING])], once=True)


@attack("hub-disconnect", "hub:disconnect", crowd=True)
def disconnect(stage: Stage) -> None:
    """Connects and disconnects, over and over."""
    said = lines([hub_message("hub:connect", {"version": "1.0"}), hub_message("hub:disconnect")])
    stage.flood(stage.hub, [said], once=True, done=b"hub:disconnect_ack")


@attack("hub-refresh", "hub:refresh_token", crowd=True)
def refresh(stage: Stage) -> None:
    """Asks for new tokens for what is none, half a megabyte each."""
    text = hub_message("hub:refresh_token", {"token": "eyJ." + "a" * (MIB // 2) + ".b"})
    stage.flood(stage.hub, by_rate(text, 8), once=True)


@attack("hub-register", "hub:register", "max_actors", "max_ttl", table=50_000 * ACTOR)
def register_all(stage: Stage) -> None:
    """Registers as many actors as there may be, and more."""
    stage.begin()
    register(stage, stage.scaled(50_000))
    text = hub_message("hub:register", {"actorAddress": "more/1", "capabilities": ["c"]})
    stage.flood(stage.hub, by_rate(text), once=True)


@attack("hub-register-again", "hub:register", "hub:unregister", "hub:renew", crowd=True)
def register_again(stage: Stage) -> None:
    """Registers, renews and unregisters, 100 at a time on ever new connections."""
    texts = []
    for i in range(33):
        address = {"actorAddress": f"again/{i}", "capabilities": ["c"], "renewalToken": "tok_x"}
        texts += [hub_message(f"hub:{kind}", address) for kind in ("register", "renew")]
        texts.append(hub_message("hub:unregister", {"actorAddress": f"again/{i}"}))
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)


@attack("hub-displace", "hub:register", crowd=True)
def displace(stage: Stage) -> None:
    """Registers one address in dialect A on ever new connections, each of which ends the last."""
    said = lines(
        [
            compact(
                {
                    "type": "hub:connect",
                    "from": "@(a/b)",
                    "to": "@(h/h)",
                    "metadata": {"protocolVersion": "0.1.0", "capabilities": ["c"]},
                }
            ),
            compact(
                {
                    "type": "hub:register",
                    "from": "@(a/b)",
                    "to": "@(h/h)",
                    "payload": {"actorAddress": "@(a/b)", "capabilities": ["c"]},
                }
            ),
        ]
    )
    stage.flood(stage.hub, [said], once=True, done=b"hub:registered", count=max(4, stage.count))


_LARGE = b'{"m":"%b"}' % (b"m" * (60 * KIB))


@attack("hub-list-actors", "hub:list_actors", crowd=True, each=HUB_PENDING, table=DETAILS)
def list_actors(stage: Stage) -> None:
    """Lists 2,000 actors of 60 KiB each, 1,000 at a time."""
    register(stage, 2_000, _LARGE, 20)
    stage.flood(stage.hub, by_rate(hub_message("hub:list_actors", {"limit": 1_000})), once=True)


@attack("hub-list-actors-unread", "hub:list_actors", each=HUB_PENDING, table=DETAILS)
def list_actors_unread(stage: Stage) -> None:
    """Lists 2,000 actors of 60 KiB each, 100 times, and never reads it."""
    register(stage, 2_000, _LARGE, 20)
    said = by_rate(hub_message("hub:list_actors", {"limit": 1_000}))
    stage.flood(stage.hub, said, reads=False)


@attack("hub-discover", "hub:discover", "page", crowd=True, each=HUB_PENDING, table=DETAILS)
def discover(stage: Stage) -> None:
    """Finds 2,000 actors of 60 KiB each, 1,000 at a time."""
    register(stage, 2_000, _LARGE, 20)
    wanted = {"pattern": "many/[0-9]+$", "limit": 1_000}
    stage.flood(stage.hub, by_rate(hub_message("hub:discover", wanted)), once=True)


@attack("hub-discover-details", "hub:discover", crowd=True, each=HUB_PENDING, table=DETAILS)
def discover_details(stage: Stage) -> None:
    """Looks through what 2,000 actors tell about themselves, 60 KiB each, and finds none."""
    register(stage, 2_000, _LARGE, 20)
    wanted = {"limit": 1_000, "metadata": {"m": "x"}}
    stage.flood(stage.hub, by_rate(hub_message("hub:discover", wanted)), once=True)


@attack(
    "hub-discover-50k",
    "hub:discover",
    "max_actors",
    crowd=True,
    each=HUB_PENDING,
    table=50_000 * ACTOR,
)
def discover_among_many(stage: Stage) -> None:
    """Searches 50,000 actors with patterns that are as dear as can be."""
    register(stage, stage.scaled(50_000))
    pattern = "(" + "|".join(f"m[a-z]*{i}?/.*{i}" for i in range(50)) + ")$"
    wanted = {"pattern": pattern, "limit": 1_000}
    stage.flood(stage.hub, by_rate(hub_message("hub:discover", wanted)), once=True)


@attack("hub-list-50k", "hub:list_actors", "max_actors", crowd=True, table=50_000 * ACTOR)
def list_many(stage: Stage) -> None:
    """Lists 50,000 actors from the last page on."""
    actors = stage.scaled(50_000)
    register(stage, actors)
    wanted = {"limit": 1_000, "offset": actors - 1_000}
    stage.flood(stage.hub, by_rate(hub_message("hub:list_actors", wanted)), once=True)


@attack("hub-expire", "hub:register", "ttl", table=50_000 * ACTOR)
def expire(stage: Stage) -> None:
    """Lets 20,000 registrations end at the same moment, with a subscription under each."""
    for first in range(0, stage.scaled(20_000), 50):
        texts = []
        for i in range(first, first + 50):
            where = {"actorAddress": f"e/{i}", "capabilities": ["c"], "ttl": 1_000}
            texts.append(hub_message("hub:register", where))
            texts.append(hub_message("hub:subscribe", {"topic": f"e/{i}"}, f"e/{i}"))
        sock = stage.hub()
        stage.order(sock, *texts)
        stage.hold(sock)
    stage.wait()


@attack("hub-leaving", "hub:register", table=50_000 * ACTOR)
def leaving(stage: Stage) -> None:
    """Leaves with 50,000 registrations, from 500 connections at once."""
    socks = register(stage, stage.scaled(50_000))
    stage.begin()
    for sock in socks:
        stage.close(sock, abruptly=True)
    stage.wait()


def _lazy(stage: Stage) -> socket.socket:
    where = stage.place.hub
    return stage.connect(Address(where.where, where.ca, buffer=4 * KIB))


@attack("hub-send", "hub:send", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def send(stage: Stage) -> None:
    """Sends 900 KB to one actor that reads, on ever new connections."""
    register(stage, 1)
    text = hub_message("hub:send", {"to": "many/0", "type": "t", "data": "d" * 900_000})
    stage.flood(stage.hub, by_rate(text, 20), once=True)


@attack("hub-send-unread", "hub:send", "max_pending", each=PAYLOAD, table=HUB_PENDING)
def send_unread(stage: Stage) -> None:
    """Sends 500 bytes and 900 KB to an actor that never reads."""
    sock = _lazy(stage)
    sock.sendall(
        hub_message("hub:register", {"actorAddress": "lazy/1", "capabilities": ["c"]}) + b"\n"
    )
    texts = [
        hub_message("hub:send", {"to": "lazy/1", "type": "t", "data": "d" * size})
        for size in (500, 900_000)
    ]
    stage.flood(stage.hub, [lines([*texts * 10, PING])], once=True)


@attack(
    "hub-broadcast", "hub:broadcast", crowd=True, each=PAYLOAD + HUB_PENDING, table=10 * HUB_PENDING
)
def broadcast(stage: Stage) -> None:
    """Broadcasts 500 KB to 1,000 actors on 10 connections."""
    register(stage, 1_000)
    text = hub_message("hub:broadcast", {"type": "t", "data": "d" * 500_000})
    stage.flood(stage.hub, by_rate(text, 20), once=True)


@attack("hub-broadcast-unread", "hub:broadcast", each=PAYLOAD, table=20 * HUB_PENDING)
def broadcast_unread(stage: Stage) -> None:
    """Broadcasts to 1,000 actors whose 10 connections never read."""
    for first in range(0, 1_000, 100):
        sock = _lazy(stage)
        for i in range(first, first + 100):
            where = {"actorAddress": f"lazy/{i}", "capabilities": ["c"]}
            sock.sendall(hub_message("hub:register", where) + b"\n")
    text = hub_message("hub:broadcast", {"type": "t", "data": "d" * 500_000})
    stage.flood(stage.hub, by_rate(text, 20), once=True)


@attack("hub-broadcast-50k", "hub:broadcast", "max_actors", table=50_000 * ACTOR)
def broadcast_to_many(stage: Stage) -> None:
    """Broadcasts a little to 50,000 actors on 500 connections."""
    register(stage, stage.scaled(50_000))
    stage.flood(stage.hub, by_rate(hub_message("hub:broadcast", {"type": "t"})), once=True)


@attack("hub-long-from", "hub:publish", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def long_from(stage: Stage) -> None:
    """Publishes with ever other senders of 900 KB."""
    texts = [
        hub_message("hub:publish", {"topic": "t", "type": "t"}, f"{i}/" + "f" * 900_000)
        for i in range(16)
    ]
    stage.flood(stage.hub, [lines([text, PING]) for text in texts], once=False)


@attack("hub-long-ids", "hub:send", crowd=True, each=PAYLOAD + HUB_PENDING)
def long_ids(stage: Stage) -> None:
    """Asks nobody with identifiers of 300 KB, which the answers repeat."""
    long = "i" * 300_000
    text = hub_message("hub:send", {"to": "no/body"}, long, id=long, correlationId=long)
    stage.flood(stage.hub, by_rate(text, 20), once=True)


@attack("hub-unknown", crowd=True, each=HUB_PENDING)
def unknown(stage: Stage) -> None:
    """Sends types that are nobody's."""
    stage.flood(stage.hub, repeated(hub_message("hub:nothing") + b'\n{"type":"x"}\n{}\n'))


@attack("hub-websockets", "hub:register", crowd=True)
def over_websocket(stage: Stage) -> None:
    """Registers with 60 KiB of metadata over WebSocket, on ever new connections."""
    where = {"actorAddress": "ws/1", "capabilities": ["c" * 200] * 50, "metadata": {"m": "m" * 900}}
    text = hub_message("hub:register", where)
    stage.flood(stage.websocket, [over("ws", *[text] * 50, PING)], once=True)
