"""What clients say over WebSocket: the peers' own protocols in frames, and JSON.

As in ``protocols``, all that is sent is built beforehand. What is received cannot be:
JSON messages hold ids and times, and a server may put several commands into one
frame. So each wire reads a message into the part that is known beforehand, and
that is compared, field by field, before the clock runs. The bytes of a JSON message
vary, their number does not, so that counting them is as exact as it is for the
line protocols.

A message read is one line that tells all of it: a publication ``name length
payload``, an answer its type and what it is about. One that is not as it should be
is left as it came, and so found to be different from what is expected.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

from .protocols import Mqtt, Nats, Want, Wire
from .websocket import BINARY, TEXT, client_frame

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"msg_[0-9a-f]{32}|" + _UUID.pattern)


def compact(value: Any) -> bytes:
    """JSON without spaces, as browsers write it."""
    return json.dumps(value, separators=(",", ":")).encode()


def named_id(*parts: bytes) -> str:
    """An id in the form of a random one that is always the same for the same `parts`."""
    digest = hashlib.md5(b" ".join(parts), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest, version=4))


def publication(name: bytes, payload: bytes) -> bytes:
    """How a received publication is told."""
    return b"%b %d %b\n" % (name, len(payload), payload)


class WebSocketWire(Wire):
    """A protocol that is spoken in WebSocket messages.

    What is sent is whole frames; what is received is told as `read` reads it. With
    `coalesced`, a server chooses how much goes into a frame, and `read` changes nothing.
    """

    path = "/"
    subprotocol = ""
    opcode = TEXT
    coalesced = False

    def read(self, message: bytes) -> bytes:
        """What is known beforehand of a message that was received."""
        raise NotImplementedError


class Tunnel(WebSocketWire):
    """A binary protocol in binary frames: those of nats and MQTT.

    Both let a frame hold several commands. Publishers were found to gain nothing by
    that where each message goes to many, so each message has a frame, as in JSON.
    """

    opcode = BINARY

    def __init__(self, inner: Wire, subprotocol: str = "", coalesced: bool = False) -> None:
        self.inner = inner
        self.subprotocol = subprotocol
        self.coalesced = coalesced
        self.greets = inner.greets
        self.hello, self.welcome = self.frame(inner.hello), inner.welcome
        self.ping, self.pong = self.frame(inner.ping), inner.pong
        self.pong_subscribed = inner.pong_subscribed
        self.late_ping = inner.late_ping
        self.late_pong = self.frame(inner.late_pong) if inner.late_pong else b""

    @staticmethod
    def frame(data: bytes) -> bytes:
        return client_frame(BINARY, data)

    def read(self, message: bytes) -> bytes:
        return message

    def supports(self, want: Want) -> bool:
        return self.inner.supports(want)

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return self.frame(self.inner.publish(name, payload))

    def subscribe(self, index: int, want: Want) -> bytes:
        return self.frame(self.inner.subscribe(index, want))

    def subscribed(self, index: int, want: Want) -> bytes:
        return self.inner.subscribed(index, want)

    def unsubscribe(self, index: int, want: Want) -> bytes:
        return self.frame(self.inner.unsubscribe(index, want))

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return self.inner.deliver(index, want, name, payload)


class Json(WebSocketWire):
    """JSON messages; exact names only."""

    ping = client_frame(TEXT, b'{"type":"ping"}')
    pong = pong_subscribed = b"pong\n"

    def supports(self, want: Want) -> bool:
        return want.kind == "exact"

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return publication(name, payload)

    def read(self, message: bytes) -> bytes:
        told = None
        try:
            value = json.loads(message)
            told = "pong" if value == {"type": "pong"} else self.tell(value)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass
        return (message if told is None else told.encode()) + b"\n"

    def tell(self, value: Any) -> str | None:
        """The line that tells a message, or None if it is not as it should be.

        May raise as a message of another shape makes it.
        """
        raise NotImplementedError


def _told(name: str, payload: Any) -> str | None:
    if not isinstance(payload, str) or not isinstance(name, str):
        return None
    return f"{name} {len(payload.encode())} {payload}"


class Hub(Json):
    """Signal Hub's ``hub:*``, as its existing clients speak it: all keys, wrapped addresses.

    A connection introduces itself and registers an address of its own.
    """

    path = "/ws"
    TYPE = "bench:message"

    def __init__(self, me: str = "@(bench/nobody)") -> None:
        self._me = me
        capabilities = ["send", "receive", "discover"]
        metadata = {
            "protocolVersion": "0.1.0",
            "capabilities": capabilities,
            "clientMetadata": {"agent": "bench"},
        }
        connect = named_id(b"connect", me.encode())
        self.hello = self.request("hub:connect", None, connect, metadata=metadata)
        self.hello += self.registration(me, capabilities)
        self.welcome = b"hub:connected %b\n" % connect.encode() + self.registered(me)

    def of(self, me: str) -> Hub:
        return type(self)(me)

    def request(self, kind: str, payload: Any, id_: str, **more: Any) -> bytes:
        """A message to the hub, in its frame."""
        message = {
            "id": id_,
            "from": self._me,
            "to": "@(cloudflare/signal-hub)",
            "type": kind,
            "payload": payload,
            "pattern": "tell",
            "correlationId": None,
            "timestamp": 1_764_000_000_000,
            "metadata": {},
            "ttl": None,
            "signature": None,
        }
        return client_frame(TEXT, compact(message | more))

    def registration(self, address: str, capabilities: Sequence[str]) -> bytes:
        """The request that registers an actor."""
        payload = {"actorAddress": address, "capabilities": capabilities, "metadata": {}}
        return self.request("hub:register", payload, named_id(b"register", address.encode()))

    def registered(self, address: str) -> bytes:
        """The answer to `registration`."""
        text = address.encode()
        return b"hub:registered %b %b\n" % (text, named_id(b"register", text).encode())

    def publish(self, name: bytes, payload: bytes) -> bytes:
        message = {"topic": name.decode(), "type": self.TYPE, "data": payload.decode()}
        return self.request("hub:publish", message, named_id(name, payload))

    def published(self, receivers: int, name: bytes, payload: bytes) -> bytes:
        id_ = named_id(name, payload)
        return b"hub:published %b %d %b\n" % (name, receivers, id_.encode())

    def subscribe(self, index: int, want: Want) -> bytes:
        payload = {"topic": want.text.decode(), "durable": False}
        return self.request("hub:subscribe", payload, named_id(want.text))

    def subscribed(self, index: int, want: Want) -> bytes:
        return b"hub:subscribed %b %b\n" % (want.text, named_id(want.text).encode())

    def tell(self, value: Any) -> str | None:
        if value["to"] != self._me or value["pattern"] != "tell":
            return None
        if not _UUID.fullmatch(value["id"]):
            return None
        kind, payload, metadata = value["type"], value["payload"], value["metadata"]
        if metadata and metadata.get("publication") is True:
            if not value["from"] or value["correlationId"] is not None:
                return None
            return self._tell_publication(kind, metadata["topic"], payload)
        request = value["correlationId"]
        if not isinstance(payload, dict):
            return None
        if kind == "hub:connected":
            return f"{kind} {request}"
        if kind == "hub:registered":
            return f"{kind} {payload['actorAddress']} {request}"
        if kind == "hub:subscribed":
            return f"{kind} {payload['topic']} {request}"
        if kind == "hub:published":
            return f"{kind} {payload['topic']} {payload['subscriberCount']} {request}"
        return None

    def _tell_publication(self, kind: str, topic: str, payload: Any) -> str | None:
        return _told(topic, payload) if kind == self.TYPE else None


class HubFromLine(Hub):
    """The same where the publications come from the line port."""

    def _tell_publication(self, kind: str, topic: str, payload: Any) -> str | None:
        if kind != "pubsub:message" or payload.keys() != {"name", "data"}:
            return None
        return _told(payload["name"], payload["data"]) if payload["name"] == topic else None


class Envelopes(Json):
    """``{type, id, payload}``: the name is the type, the id always ``1``; no answers."""

    @staticmethod
    def _envelope(kind: str, id_: str, payload: Any) -> bytes:
        return client_frame(TEXT, compact({"type": kind, "id": id_, "payload": payload}))

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return self._envelope(name.decode(), "1", payload.decode())

    def subscribe(self, index: int, want: Want) -> bytes:
        return self._envelope("__subscribe", "", {"topic": want.text.decode() + ":1"})

    def tell(self, value: Any) -> str | None:
        if value.keys() != {"type", "id", "payload"} or value["id"] != "1":
            return None
        return _told(value["type"], value["payload"])


class EnvelopesFromLine(Envelopes):
    """The same where the publications come from the line port, under names without a colon."""

    def subscribe(self, index: int, want: Want) -> bytes:
        return self._envelope("__subscribe", "", {"topic": want.text.decode()})

    def tell(self, value: Any) -> str | None:
        if value.keys() != {"type", "id", "payload"} or value["id"]:
            return None
        kind, payload = value["type"], value["payload"]
        whole = payload.keys() == {"name", "data"} and payload["name"] == kind
        return _told(kind, payload["data"]) if whole else None


class Synap(Json):
    """Synap's commands as messages, and what it pushes."""

    path = "/ws"

    @staticmethod
    def _command(command: str, id_: str, payload: Any) -> bytes:
        message = {"command": command, "request_id": id_, "payload": payload}
        return client_frame(TEXT, compact(message))

    def publish(self, name: bytes, payload: bytes) -> bytes:
        message = {"topic": name.decode(), "payload": payload.decode()}
        return self._command("pubsub.publish", named_id(name, payload), message)

    def published(self, receivers: int, name: bytes, payload: bytes) -> bytes:
        return b"published %b %d %b\n" % (name, receivers, named_id(name, payload).encode())

    def subscribe(self, index: int, want: Want) -> bytes:
        payload = {"topics": [want.text.decode()]}
        return self._command("pubsub.subscribe", named_id(want.text), payload)

    def subscribed(self, index: int, want: Want) -> bytes:
        return b"subscribed %b %b\n" % (want.text, named_id(want.text).encode())

    def tell(self, value: Any) -> str | None:
        if value.get("type") == "message":
            if not _NAME.fullmatch(value["message_id"]) or value["payload"] != value["message"]:
                return None
            return _told(value["topic"], value["payload"])
        if value["success"] is not True or value["error"] is not None:
            return None
        request, payload = value["request_id"], value["payload"]
        if "message_id" in payload:
            return f"published {payload['topic']} {payload['subscribers_matched']} {request}"
        return f"subscribed {' '.join(payload['topics'])} {request}"


class Minimal(Json):
    """What ``minimal.py`` speaks beside ``hub:*``: the least that is acknowledged JSON."""

    def publish(self, name: bytes, payload: bytes) -> bytes:
        message = {
            "type": "publish",
            "id": named_id(name, payload),
            "topic": name.decode(),
            "data": payload.decode(),
        }
        return client_frame(TEXT, compact(message))

    def published(self, receivers: int, name: bytes, payload: bytes) -> bytes:
        return b"published %d %b\n" % (receivers, named_id(name, payload).encode())

    def subscribe(self, index: int, want: Want) -> bytes:
        return client_frame(TEXT, compact({"type": "subscribe", "topic": want.text.decode()}))

    def subscribed(self, index: int, want: Want) -> bytes:
        return b"subscribed %b\n" % want.text

    def tell(self, value: Any) -> str | None:
        kind = value["type"]
        if kind == "message":
            return _told(value["topic"], value["data"])
        if kind == "published":
            return f"{kind} {value['receivers']} {value['id']}"
        return f"{kind} {value['topic']}" if kind == "subscribed" else None


NATS = Tunnel(Nats(), coalesced=True)
MQTT = Tunnel(Mqtt(), subprotocol="mqtt")
HUB, HUB_FROM_LINE, ENVELOPES, ENVELOPES_FROM_LINE, SYNAP, MINIMAL = (
    Hub(),
    HubFromLine(),
    Envelopes(),
    EnvelopesFromLine(),
    Synap(),
    Minimal(),
)
