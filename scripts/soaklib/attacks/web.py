"""HTTP on the hub port: every path that is served."""

from __future__ import annotations

import contextlib
from typing import Any

from benchlib.websocket import client_frame
from pubsubd.hub.console import files
from pubsubd.hub.web import ABOUT
from soaklib.wires import MIB, compact, frame

from .attack import attack
from .bounds import DEEP_WILDCARD, HUB_PENDING, PAYLOAD, SUBSCRIBER, TOPIC
from .parts import repeated
from .stage import Stage

CONSOLE = (*files(), ABOUT)
"""Paths of the console."""

_END = b"GET /nothing/at/all HTTP/1.1\r\nHost: localhost\r\n\r\n"
_ENDED = b"no such path"


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """Return a request without a body."""
    more = "".join(f"{header}\r\n" for header in headers)
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


def post(path: str, value: Any) -> bytes:
    """Return a request with JSON."""
    body = value if isinstance(value, bytes) else compact(value)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@attack("metrics", "/metrics", crowd=True, each=HUB_PENDING)
def metrics(stage: Stage) -> None:
    """Asks for the metrics, pipelined."""
    stage.flood(stage.hub, repeated(get("/metrics")))


@attack("metrics-unread", "/metrics", "max_pending", each=HUB_PENDING)
def metrics_unread(stage: Stage) -> None:
    """Asks for the metrics, pipelined, and never reads them."""
    stage.flood(stage.hub, repeated(get("/metrics")), reads=False)


@attack("metrics-of-2000", "/metrics", each=HUB_PENDING)
def metrics_of_many(stage: Stage) -> None:
    """Asks for the metrics of 2,000 connections of both ports."""
    stage.crowd(1_000, stage.line, lambda _: b"sub x\n")
    stage.crowd(1_000, stage.hub, lambda _: b'{"type":"ping"}\n')
    stage.flood(stage.hub, repeated(get("/metrics")))


@attack("metrics-anew", "/metrics", "request_rate", crowd=True, each=HUB_PENDING)
def metrics_anew(stage: Stage) -> None:
    """Asks for the metrics 500 times, and does it again on a new connection."""
    said = get("/metrics") * 500 + _END
    stage.flood(stage.hub, [said], once=True, done=_ENDED, count=max(4, stage.count))


@attack("line-over-websocket", "/line", crowd=True, each=HUB_PENDING)
def line_over_websocket(stage: Stage) -> None:
    """Speaks the line protocol over a WebSocket: commands of a few bytes, split anywhere."""
    said = b"sub x\nunsub x\npub x 1 y\nbad\n" * 1_000
    parts = [client_frame(2, said[at : at + 7]) for at in range(0, len(said), 7)]
    stage.flood(stage.line_websocket, [b"".join(parts)])


@attack("health", "/health", "/healthz", "/readyz", crowd=True, each=HUB_PENDING)
def health(stage: Stage) -> None:
    """Asks for its health, pipelined."""
    said = b"".join(get(path) for path in ("/health", "/healthz", "/readyz"))
    stage.flood(stage.hub, repeated(said))


@attack("console", *CONSOLE, crowd=True, each=HUB_PENDING)
def console(stage: Stage) -> None:
    """Asks for all files of the console, pipelined."""
    stage.flood(stage.hub, repeated(b"".join(map(get, CONSOLE))))


@attack("console-unread", *CONSOLE, "max_pending", each=HUB_PENDING)
def console_unread(stage: Stage) -> None:
    """Asks for all files of the console, pipelined, and never reads them."""
    stage.flood(stage.hub, repeated(b"".join(map(get, CONSOLE))), reads=False)


@attack("not-found", crowd=True, each=HUB_PENDING)
def not_found(stage: Stage) -> None:
    """Asks for what is not there, or not so, pipelined."""
    said = get("/nothing") + get("/metrics", method="PUT") + get("/", method="OPTIONS")
    said += get("/ws") + get("/", "Origin: http://evil.example") + get("/api/v1/command")
    stage.flood(stage.hub, repeated(said))


@attack("refused-hosts", crowd=True, each=HUB_PENDING)
def refused_hosts(stage: Stage) -> None:
    """Asks under a name that is not served."""
    said = b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    stage.flood(stage.hub, repeated(said))


@attack("upgrades", "/ws", crowd=True)
def upgrades(stage: Stage) -> None:
    """Opens WebSockets and closes them, over and over."""
    said = get(
        "/ws",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==",
        "Sec-WebSocket-Version: 13",
    )
    stage.flood(stage.hub, [said], once=True, done=b"\r\n\r\n", count=max(8, stage.count))


@attack("upgrades-topics", "/pubsub/ws", crowd=True)
def upgrades_topics(stage: Stage) -> None:
    """Opens WebSockets that subscribe 1,000 topics by their query, over and over."""
    topics = ",".join(f"q{i}.%2A" if i % 5 == 0 else f"q{i}" for i in range(1_000))
    said = get(
        f"/pubsub/ws?topics={topics}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==",
        "Sec-WebSocket-Version: 13",
    )
    stage.flood(stage.hub, [said], once=True, done=b"subscription_count", count=max(8, stage.count))


@attack("wide-queries", crowd=True, each=HUB_PENDING)
def wide_queries(stage: Stage) -> None:
    """Asks with queries of thousands of fields, and paths that are all escapes."""
    said = get("/pubsub/ws?" + "&".join(f"{i:x}=" for i in range(3_000)))
    said += get("/pubsub/" + "%41" * 5_000 + "/info")
    stage.flood(stage.hub, repeated(said))


@attack("long-heads", crowd=True)
def long_heads(stage: Stage) -> None:
    """Sends heads of 16 KiB in hundreds of headers, on ever new connections."""
    said = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 2_600 + b"\r\n"
    stage.flood(stage.hub, [said], once=True, done=b"</html>", count=max(8, stage.count))


@attack("chunks", "/pubsub/{topic}/publish", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def chunks(stage: Stage) -> None:
    """Sends bodies in chunks of one byte."""
    head = (
        "POST /pubsub/c/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    said = head.encode() + b"1\r\n \r\n" * 100_000 + b"0\r\n\r\n"
    stage.flood(stage.hub, [said])


@attack("bodies-held", "max_message", "command_timeout", table=200 * PAYLOAD)
def bodies_held(stage: Stage) -> None:
    """Holds all but the last byte of a body of 1 MiB, on 200 connections."""
    said = post("/api/v1/command", b" " * MIB)[:-1]
    for _ in range(200):
        sock = stage.hub()
        stage.say(sock, said)
        stage.hold(sock)
    stage.wait()


@attack("rest-publish", "/pubsub/{topic}/publish", crowd=True, each=HUB_PENDING)
def rest_publish(stage: Stage) -> None:
    """Publishes over HTTP, pipelined, to ever other topics."""
    said = b"".join(post(f"/pubsub/r{i}/publish", {"payload": i}) for i in range(2_000))
    stage.flood(stage.hub, [said])


@attack("rest-command", "/api/v1/command", crowd=True, each=HUB_PENDING)
def rest_command(stage: Stage) -> None:
    """Gives commands over HTTP, pipelined."""
    said = b"".join(
        post("/api/v1/command", {"command": f"pubsub.{name}", "payload": {"topic": "a", "data": 1}})
        for name in ("publish", "stats", "info", "topics", "nothing")
    )
    stage.flood(stage.hub, repeated(said))


@attack("rest-lists", "/pubsub/topics", "/pubsub/stats", "/pubsub/{topic}/info", crowd=True)
def rest_lists(stage: Stage) -> None:
    """Lists 1,000 topics with names of 1,000 bytes over HTTP, pipelined."""
    for first in range(0, 1_000, 100):
        sock = stage.hub()
        said = (
            post(f"/pubsub/{i:x}".ljust(1_000, "l") + "/publish", {"payload": 0})
            for i in range(first, first + 100)
        )
        stage.say(sock, b"".join(said) + _END, _ENDED)
        stage.hold(sock)
    said = b"".join(get(f"/pubsub/{name}") for name in ("topics", "stats", "0/info"))
    stage.flood(stage.hub, repeated(said))


@attack(
    "rest-wildcards",
    "/pubsub/subscribe",
    "pubsub.subscribe",
    "max_wildcards",
    "max_subscribers",
    "topic_idle",
    crowd=True,
    table=10_000 * DEEP_WILDCARD,
)
def rest_wildcards(stage: Stage) -> None:
    """Subscribes wildcards of 32 globs over HTTP, which are kept without a connection."""
    requests = []
    for first in range(0, 10_000, 50):
        topics = [
            ".".join(f"{i:x}{k:x}*" if k % 2 else f"{i:x}{k:x}" for k in range(32))[:1_000]
            for i in range(first, first + 50)
        ]
        requests.append(post("/pubsub/subscribe", {"topics": topics}))
    stage.flood(stage.hub, requests)


@attack(
    "rest-subscribe",
    "/pubsub/subscribe",
    "max_subscribers",
    "max_topics",
    "max_detached_topics",
    crowd=True,
    table=100_000 * SUBSCRIBER,
)
def rest_subscribe(stage: Stage) -> None:
    """Subscribes 1,000 names of 1,000 bytes over HTTP, again and again, without a connection."""
    requests = []
    for first in range(0, 60_000, 900):
        topics = [f"{i:x}".ljust(1_000, "k") for i in range(first, first + 900)]
        requests.append(post("/pubsub/subscribe", {"topics": topics}))
    stage.flood(stage.hub, requests)


@attack(
    "rest-subscribers",
    "/pubsub/subscribe",
    "max_subscribers",
    "max_topic_subscribers",
    "max_detached",
    "detached_idle",
    crowd=True,
    table=100_000 * SUBSCRIBER,
)
def rest_subscribers(stage: Stage) -> None:
    """Makes as many subscribers without a connection as there may be."""
    said = b"".join(post("/pubsub/subscribe", {"topics": [f"n{i}"]}) for i in range(2_000))
    stage.flood(stage.hub, [said])


@attack("rest-unsubscribe", "/pubsub/unsubscribe", crowd=True, table=10_000 * TOPIC)
def rest_unsubscribe(stage: Stage) -> None:
    """Subscribes and unsubscribes 10,000 topics of a subscriber without a connection."""
    said = []
    for first in range(0, 10_000, 1_000):
        topics = [f"u{i}" for i in range(first, first + 1_000)]
        said.append(post("/pubsub/subscribe", {"topics": topics, "subscriber_id": "u"}))
    said.append(post("/pubsub/unsubscribe", {"subscriber_id": "u"}))
    stage.flood(stage.hub, [b"".join(said)])


@attack("take-over", "/pubsub/subscribe", "pubsub.subscribe", crowd=True, table=1_000 * TOPIC)
def take_over(stage: Stage) -> None:
    """Makes a subscriber of 1,000 topics over HTTP, and takes it over, again and again."""
    topics = [f"o{i}" for i in range(1_000)]
    made = post("/pubsub/subscribe", {"topics": topics, "subscriber_id": "o"})
    own = stage.hold(stage.hub())
    take = compact(
        {
            "command": "pubsub.subscribe",
            "request_id": "r",
            "payload": {"topics": ["o1"], "subscriber_id": "o"},
        }
    )

    def make() -> None:
        with contextlib.suppress(OSError):
            own.send(made)

    stage.chore(0.02, make)
    stage.flood(stage.hub, [take + b'\n{"type":"ping"}\n'], once=True)


def _detached(stage: Stage, count: int) -> None:
    """Have a topic subscribed by so many without a connection."""
    one = post("/pubsub/subscribe", {"topics": ["away"]})
    for _ in range(0, count, 200):  # on connections of their own, as requests are limited
        sock = stage.hub()
        stage.say(sock, one * 200 + _END, _ENDED)
        stage.hold(sock)


@attack("detached-8000", "pubsub.publish", "max_topic_subscribers", table=8_000 * SUBSCRIBER)
def detached(stage: Stage) -> None:
    """Publishes to 8,000 subscribers that have no connection."""
    _detached(stage, 8_000)
    said = compact({"command": "pubsub.publish", "payload": {"topic": "away", "payload": 0}})
    stage.flood(stage.hub, repeated(said + b"\n"))


@attack("detached-lines", "max_topic_subscribers", table=8_000 * SUBSCRIBER)
def detached_lines(stage: Stage) -> None:
    """Publishes on the line port, two names in turn, to 8,000 that have no connection."""
    _detached(stage, 8_000)
    stage.flood(stage.line, repeated(frame(b"away", b"") + frame(b"there", b"")))
