"""What carries messages on the hub port: WebSocket frames, and JSON that is hard to read."""

from __future__ import annotations

from benchlib.websocket import TEXT, client_frame
from soaklib.wires import MIB, compact

from .actors import hub_message
from .attack import attack
from .bounds import HUB_PENDING, PAYLOAD, TOPIC
from .parts import repeated
from .stage import PING, Stage

_KEY = b"\x00\x00\x00\x00"  # a mask that changes nothing


def _raw(first: int, payload: bytes = b"") -> bytes:
    """Return a small frame."""
    return bytes((first, 128 | len(payload))) + _KEY + payload


@attack("fragments", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def fragments(stage: Stage) -> None:
    """Sends messages in fragments of one byte."""
    said = _raw(0x01, b"{") + _raw(0x00, b" ") * 40_000 + _raw(0x80, b"}")
    stage.flood(stage.websocket, [said])


@attack("empty-fragments", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def empty_fragments(stage: Stage) -> None:
    """Sends fragments with nothing in them, without an end."""
    first = [_raw(0x01) + _raw(0x00) * 40_000] + [_raw(0x00) * 40_000] * 63
    stage.flood(stage.websocket, first[:1] + first[1:] * 100)


@attack("websocket-pings", crowd=True, each=HUB_PENDING)
def websocket_pings(stage: Stage) -> None:
    """Sends pings of 125 bytes."""
    stage.flood(stage.websocket, repeated(_raw(0x89, b"p" * 125)))


@attack("websocket-pings-unread", "max_pending", each=HUB_PENDING)
def websocket_pings_unread(stage: Stage) -> None:
    """Sends empty pings, and never reads the answers."""
    stage.flood(stage.websocket, repeated(_raw(0x89)), reads=False)


@attack("websocket-pongs", crowd=True)
def websocket_pongs(stage: Stage) -> None:
    """Sends pongs that nobody has asked for."""
    stage.flood(stage.websocket, repeated(_raw(0x8A)))


@attack("websocket-faults", crowd=True)
def websocket_faults(stage: Stage) -> None:
    """Breaks the protocol of WebSockets, on ever new connections."""
    parts = [_raw(0xC1, b"x"), _raw(0x83), b"\x81\x01x", _raw(0x08), _raw(0x88, b"x"), _raw(0x80)]
    stage.flood(stage.websocket, parts, once=True, done=b"\x88", count=max(8, stage.count))


@attack("websocket-large", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def websocket_large(stage: Stage) -> None:
    """Sends messages of 16 MiB, of which nothing may be kept."""
    stage.flood(stage.websocket, [b"\x81\xff" + (16 * MIB).to_bytes(8) + _KEY + b" " * (16 * MIB)])


@attack("app-pings", crowd=True, each=HUB_PENDING)
def app_pings(stage: Stage) -> None:
    """Sends pings of JSON, the smallest of requests."""
    stage.flood(stage.hub, repeated(PING + b"\n"))


@attack("duplicate-keys", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def duplicate_keys(stage: Stage) -> None:
    """Sends as many members as are read, a key twice at the very end, on ever new connections."""
    body = b",".join(b'"k%d":1' % i for i in range(48_000))
    said = b'{"command":"pubsub.publish","payload":{%b,"k1":2}}\n' % body
    stage.flood(stage.hub, [said + PING + b"\n"], once=True, done=b"bad-json")


@attack("escaped-quotes", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def escaped_quotes(stage: Stage) -> None:
    r"""Publishes 1 MiB of \u0022 and digits, which has to be read twice."""
    text = b'"' + b"\\u0022" * 160_000 + b'"'
    said = b'{"command":"pubsub.publish","payload":{"topic":"q","payload":%b}}\n' % text
    stage.flood(stage.hub, [said])


@attack("long-numbers", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def long_numbers(stage: Stage) -> None:
    """Publishes arrays of numbers that may be too large, and floats of 100,000 digits."""
    many = b",".join([b"1844674407370955161"] * 40_000)
    said = b'{"command":"pubsub.publish","payload":{"topic":"q","payload":[%b]}}\n' % many
    one = b'{"command":"pubsub.publish","payload":{"topic":"q","payload":1.%b}}\n' % (
        b"1" * 100_000
    )
    stage.flood(stage.hub, [said, one])


@attack("deep", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def deep(stage: Stage) -> None:
    """Publishes JSON of 190 levels, thousands of them side by side."""
    tower = b"[" * 190 + b"]" * 190
    text = b"[" + b",".join([tower] * 2_600) + b"]"
    said = b'{"command":"pubsub.publish","payload":{"topic":"d","payload":%b}}\n' % text
    stage.flood(stage.hub, [said])


@attack("too-deep", crowd=True)
def too_deep(stage: Stage) -> None:
    """Sends JSON of 500,000 levels, on ever new connections."""
    said = b'{"a":' + b"[" * 500_000 + b"\n"
    stage.flood(stage.hub, [said], once=True, done=b"bad-json")


@attack("wide", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def wide(stage: Stage) -> None:
    """Publishes objects with 60,000 keys."""
    value = {f"k{i}": i for i in range(60_000)}
    said = compact({"command": "pubsub.publish", "payload": {"topic": "w", "payload": value}})
    stage.flood(stage.hub, [said + b"\n"])


@attack("wide-objects", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def wide_objects(stage: Stage) -> None:
    """Publishes arrays of 300,000 empty objects, which take far more room than their text."""
    said = b'{"command":"pubsub.publish","payload":{"topic":"w","payload":[%b]}}\n' % (
        b",".join([b"{}"] * 300_000)
    )
    stage.flood(stage.hub, [said])


@attack("too-large", "max_message", crowd=True, each=PAYLOAD + HUB_PENDING)
def too_large(stage: Stage) -> None:
    """Sends lines of 3 MiB, of which nothing may be kept."""
    stage.flood(stage.hub, [b"{" + b" " * (3 * MIB) + b"\n"])


@attack("envelopes", crowd=True)
def envelopes(stage: Stage) -> None:
    """Sends envelopes, malformed ones and those of others among them."""
    texts = [compact({"type": "chat", "id": f"{i % 50}", "payload": i}) for i in range(500)] + [
        b'{"type":"__what","id":"","payload":{}}',
        b'{"type":"","id":"","payload":0}',
    ]
    said = b"".join(client_frame(TEXT, text) for text in texts)
    stage.flood(stage.websocket, [said])


@attack("envelope-topics", "max_topics", crowd=True, each=PAYLOAD)
def envelope_topics(stage: Stage) -> None:
    """Subscribes and unsubscribes envelopes' topics, ever others."""
    texts = [
        compact({"type": kind, "id": "", "payload": {"topic": f"e{i}:" + "x" * 200}})
        for i in range(2_000)
        for kind in ("__subscribe", "__unsubscribe")
    ]
    stage.flood(stage.websocket, [b"".join(client_frame(TEXT, text) for text in texts)])


@attack("holding-names", "max_subscriptions", each=100_000 * TOPIC)
def holding_names(stage: Stage) -> None:
    """Subscribes 100,000 envelopes' topics on one connection, and leaves with them."""
    parts = [
        b"".join(
            compact({"type": "__subscribe", "id": "", "payload": {"topic": f"h{i}:"}}) + b"\n"
            for i in range(first, first + 5_000)
        )
        for first in range(0, 120_000, 5_000)
    ]
    sock = stage.hub()
    for part in parts:
        stage.say(sock, part + PING + b"\n", b"pong")
    stage.begin()
    stage.close(sock, abruptly=True)
    stage.wait()


@attack("hub-from-json", "hub:publish", crowd=True, each=HUB_PENDING)
def from_json(stage: Stage) -> None:
    """Publishes what looks like the hub's own messages on the line port, to 200 of the hub."""
    stage.crowd(
        200, stage.hub, lambda i: hub_message("hub:subscribe", {"topic": "j"}, f"j/{i}") + b"\n"
    )
    text = compact({"type": "t" * 200, "from": "f" * 900, "payload": {"k": [1] * 100}})
    stage.flood(stage.line, repeated(b"pub j %d %b\n" % (len(text), text)))
