"""Synap's commands, over lines of JSON."""

from __future__ import annotations

import socket
from typing import Any

from soaklib.wires import compact, frame

from .actors import hub_message, lines
from .attack import attack
from .bounds import CACHES, HUB_PENDING, PAYLOAD, TOPIC, WILDCARD
from .parts import READ, packed, repeated
from .stage import PING, Stage

_EACH = 1_000  # wildcards that one connection may have


def command(name: str, payload: Any) -> bytes:
    """Return a command."""
    return compact({"command": f"pubsub.{name}", "request_id": "r", "payload": payload})


def hold(stage: Stage, texts: list[str], each: int = _EACH) -> list[socket.socket]:
    """Return connections that subscribe so many of the topics each."""
    socks = []
    for first in range(0, len(texts), each):
        sock = stage.hub()
        mine = texts[first : first + each]
        for at in range(0, len(mine), 500):
            stage.order(sock, command("subscribe", {"topics": mine[at : at + 500]}))
        socks.append(stage.hold(sock))
    return socks


def hold_wildcards(stage: Stage, count: int, each: int = _EACH) -> list[socket.socket]:
    """Return connections that subscribe so many wildcards, and so many each."""
    return hold(stage, [f"w.{i}.*" for i in range(count)], each)


def _mix(stage: Stage, count: int, each: int) -> None:
    """Have connections with so many wildcards in all, each in two dialects."""
    for sock in hold_wildcards(stage, count, each):
        sock.sendall(b'{"type":"__subscribe","id":"","payload":{"topic":"mixed"}}\n')


@attack("mixed-wildcards", "max_wildcards", "pubsub.subscribe", table=9_000 * WILDCARD)
def mixed(stage: Stage) -> None:
    """Has 9,000 wildcards in two dialects, and publishes to itself on the line port."""
    _mix(stage, 9_000, 9_000)
    stage.flood(stage.line, repeated(frame(b"mixed", b"")))


@attack(
    "mixed-wildcards-hub",
    "pubsub.publish",
    "max_wildcards",
    "max_connection_wildcards",
    table=9_000 * WILDCARD,
)
def mixed_hub(stage: Stage) -> None:
    """Has 9,000 wildcards in two dialects, and publishes to itself on the hub port."""
    _mix(stage, 9_000, 9_000)
    text = command("publish", {"topic": "w.17.x", "payload": 0})
    stage.flood(stage.hub, repeated(text + b"\n"))


@attack("mixed-wildcards-1000", "max_wildcards", table=9_000 * WILDCARD)
def mixed_of_many(stage: Stage) -> None:
    """Has 1,000 wildcards in two dialects on each of 9 connections, and publishes to all."""
    _mix(stage, 9_000, 1_000)
    stage.flood(stage.line, repeated(frame(b"mixed", b"")))


@attack("synap-publish-new", "pubsub.publish", "max_topics", crowd=True, table=300_000 * TOPIC)
def publish_new(stage: Stage) -> None:
    """Publishes to topics of 1,000 bytes that are never the same."""
    texts = (
        command("publish", {"topic": f"{i:x}".ljust(1_000, "p"), "payload": 0}) + b"\n"
        for i in range(100_000)
    )
    stage.flood(stage.hub, packed(texts))


@attack("synap-publish", "pubsub.publish", crowd=True, each=HUB_PENDING)
def publish(stage: Stage) -> None:
    """Publishes small messages to one topic, as fast as it can."""
    stage.flood(stage.hub, repeated(command("publish", {"topic": "p", "payload": 0}) + b"\n"))


@attack("synap-publish-unread", "pubsub.publish", "max_pending", each=HUB_PENDING)
def publish_unread(stage: Stage) -> None:
    """Publishes small messages, and never reads the answers."""
    said = repeated(command("publish", {"topic": "p", "payload": 0}) + b"\n")
    stage.flood(stage.hub, said, reads=False)


@attack(
    "synap-subscribe-1000", "pubsub.subscribe", "pubsub.unsubscribe", crowd=True, each=1_000 * TOPIC
)
def subscribe(stage: Stage) -> None:
    """Subscribes and unsubscribes 1,000 names in one command, again and again."""
    topics = [f"n{i}" for i in range(1_000)]
    said = lines([command("subscribe", {"topics": topics}), command("unsubscribe", {})])
    stage.flood(stage.hub, repeated(said))


@attack("synap-subscribe-long", "pubsub.subscribe", crowd=True, each=PAYLOAD + 10_000 * TOPIC)
def subscribe_long(stage: Stage) -> None:
    """Subscribes 10,000 names of 1,000 bytes, and leaves, on ever new connections."""
    said = [
        command("subscribe", {"topics": [f"{i:x}".ljust(1_000, "s") for i in range(at, at + 900)]})
        for at in range(0, 9_900, 900)
    ]
    stage.flood(stage.hub, [lines([*said, PING])], once=True)


@attack("synap-wildcards", "pubsub.subscribe", "pubsub.unsubscribe", crowd=True, table=CACHES)
def subscribe_wildcards(stage: Stage) -> None:
    """Subscribes and unsubscribes 1,000 wildcards while 8,000 names are remembered."""
    from .commands import fill_cache  # noqa: PLC0415

    fill_cache(stage)
    topics = [f"c/.{i}.*" for i in range(1_000)]
    said = lines([command("subscribe", {"topics": topics}), command("unsubscribe", {})])
    stage.flood(stage.hub, repeated(said))


@attack("synap-globs", "pubsub.subscribe", "max_wildcards", table=9_000 * WILDCARD)
def globs(stage: Stage) -> None:
    """Publishes new names that come past 9,000 globs with many stars."""
    rows = "abcdefghijklmnopqrstuvwxyz"
    hold(
        stage,
        ["*".join(rows[(i + k * 7) % 26] for k in range(20)) + f"*{i}" for i in range(9_000)],
    )
    body = (rows * 39).encode()[:1_000]
    stage.flood(stage.line, packed(frame(body + b"%x" % i, b"") for i in range(4_000)))


@attack("synap-deep-wildcards", "pubsub.subscribe", "max_wildcards", table=9_000 * WILDCARD)
def deep(stage: Stage) -> None:
    """Publishes new names that come past all places of a deep tree of wildcards."""
    texts = [".".join("*" if i >> k & 1 else "a" for k in range(13)) + ".#" for i in range(8_190)]
    hold(stage, texts)
    stage.flood(stage.line, packed(frame(b"a." * 13 + b"%x" % i, b"") for i in range(200_000)))


@attack("synap-topics", "pubsub.topics", "page", crowd=True, each=HUB_PENDING, table=5_000 * TOPIC)
def topics(stage: Stage) -> None:
    """Lists 1,000 topics with names of 1,000 bytes, again and again."""
    _fill_topics(stage, 5_000)
    stage.flood(stage.hub, repeated(command("topics", {"limit": 1_000}) + b"\n"))


@attack(
    "synap-topics-unread", "pubsub.topics", "max_pending", each=HUB_PENDING, table=5_000 * TOPIC
)
def topics_unread(stage: Stage) -> None:
    """Lists 1,000 topics with names of 1,000 bytes, and never reads it."""
    _fill_topics(stage, 5_000)
    stage.flood(stage.hub, repeated(command("topics", {"limit": 1_000}) + b"\n"), reads=False)


@attack("synap-topics-far", "pubsub.topics", "max_topics", each=HUB_PENDING, table=200_000 * TOPIC)
def topics_far(stage: Stage) -> None:
    """Lists one topic behind 200,000 others."""
    sock = stage.hub()
    topics = stage.scaled(200_000)
    for first in range(0, topics, 2_000):
        texts = [
            b'{"command":"pubsub.publish","payload":{"topic":"%x","payload":0}}' % i
            for i in range(first, first + 2_000)
        ]
        stage.order(sock, *texts)
    stage.hold(sock)
    said = command("topics", {"limit": 1, "offset": topics - 1_000})
    stage.flood(stage.hub, repeated(said + b"\n"))


def _fill_topics(stage: Stage, count: int) -> None:
    sock = stage.hub()
    for first in range(0, count, 500):
        texts = [
            command("publish", {"topic": f"{i:x}".ljust(1_000, "l"), "payload": 0})
            for i in range(first, first + 500)
        ]
        stage.order(sock, *texts)
    stage.hold(sock)


@attack("synap-info", "pubsub.info", crowd=True, each=HUB_PENDING)
def info(stage: Stage) -> None:
    """Asks about one topic, again and again, that 2,000 subscribe by many substrings."""
    stage.crowd(500, stage.line, lambda number: b"sub n\nsub na\nsub nam\nsub %d\n" % number)
    sock = stage.hub()
    stage.order(sock, command("publish", {"topic": "name", "payload": 0}))
    stage.hold(sock)
    stage.flood(stage.hub, repeated(command("info", {"topic": "name"}) + b"\n"))


@attack("synap-stats", "pubsub.stats", crowd=True, each=HUB_PENDING)
def stats(stage: Stage) -> None:
    """Asks for Synap's statistics, again and again."""
    _fill_topics(stage, 500)
    stage.flood(stage.hub, repeated(command("stats", {}) + b"\n"))


@attack("synap-errors", crowd=True, each=HUB_PENDING)
def errors(stage: Stage) -> None:
    """Gives commands that are none, with long names."""
    said = lines([command("x" * 900, {}), command("publish", {}), command("info", {"topic": "?"})])
    stage.flood(stage.hub, repeated(said))


@attack("synap-long-ids", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def long_ids(stage: Stage) -> None:
    """Gives commands with request ids of 900 KB, which the answers repeat."""
    said = compact({"command": "pubsub.stats", "request_id": "i" * 900_000}) + b"\n"
    stage.flood(stage.hub, [said])


@attack("synap-two-dialects", "pubsub.subscribe", "hub:subscribe", crowd=True, each=1_000 * TOPIC)
def two_dialects(stage: Stage) -> None:
    """Subscribes 1,000 names in two dialects, and receives all of them in turn."""
    sock = stage.hub()
    stage.order(sock, command("subscribe", {"topics": [f"t{i}" for i in range(1_000)]}))
    stage.order(sock, *(hub_message("hub:subscribe", {"topic": f"t{i}"}) for i in range(90)))
    stage.hold(sock)
    said = b"".join(frame(b"t%d" % (i % 1_000), b"%d" % i) for i in range(READ // 14))
    stage.flood(stage.line, [said])
