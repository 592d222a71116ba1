"""The bytes that clients of each server send and receive.

Everything the load generator sends or waits for is computed here beforehand, so
that nothing is parsed while the clock runs and a lost, doubled or altered message
shows in the count of bytes. (What these protocols are in WebSocket frames, and the
JSON protocols, is in ``hubwires``.)

A subscription is numbered per connection from 0 (`index`): nats wants a number,
redis counts its confirmations, MQTT numbers its packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Want:
    """What a subscription asks for.

    `kind` is ``exact`` (the one name `text`), ``prefix`` (every name the case uses:
    they all start with `text`) or ``contains`` (the names with `text` in them).
    """

    kind: Literal["exact", "prefix", "contains"]
    text: bytes

    def matches(self, name: bytes) -> bool:
        """Whether a message of `name` is due to this subscription."""
        if self.kind == "exact":
            return name == self.text
        if self.kind == "prefix":
            return name.startswith(self.text)
        return self.text in name


class Wire:
    """The client's side of one protocol, as byte strings."""

    name: str = ""
    greets: bool = False  # the server speaks first, one line
    hello: bytes = b""
    welcome: bytes = b""
    ping: bytes = b""
    pong: bytes = b""
    pong_subscribed: bytes = b""  # the same on a connection with subscriptions
    late_ping: bytes = b""  # what the server asks by itself soon after the start
    late_pong: bytes = b""
    exact: bool = True  # the bytes of a stream are known; otherwise only how many there are

    def of(self, me: str) -> Wire:
        """The same as it is spoken by the connection called `me`."""
        return self

    def supports(self, want: Want) -> bool:
        """Whether the protocol has such a subscription."""
        return want.kind != "contains"

    def publish(self, name: bytes, payload: bytes) -> bytes:
        """The command that publishes one message."""
        raise NotImplementedError

    def published(self, receivers: int, name: bytes, payload: bytes) -> bytes:
        """The answer to `publish` with that many receivers."""
        return b""

    def subscribe(self, index: int, want: Want) -> bytes:
        """The command that makes subscription number `index`."""
        raise NotImplementedError

    def subscribed(self, index: int, want: Want) -> bytes:
        """The answer to `subscribe`."""
        return b""

    def unsubscribe(self, index: int, want: Want) -> bytes:
        """The command that ends subscription number `index`."""
        raise NotImplementedError

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        """A message as the subscriber with that subscription receives it."""
        raise NotImplementedError


class Pubsubd(Wire):
    """``pub``, ``sub`` and ``unsub`` lines; what is delivered is what was published."""

    name = "pubsubd"
    ping = pong = pong_subscribed = b"pub //pubsubd/ping 5 bench\n"

    def supports(self, want: Want) -> bool:
        return True

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return b"pub %b %d %b\n" % (name, len(payload), payload)

    def subscribe(self, index: int, want: Want) -> bytes:
        return b"sub %b\n" % want.text

    def unsubscribe(self, index: int, want: Want) -> bytes:
        return b"unsub %b\n" % want.text

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return self.publish(name, payload)


class Nats(Wire):
    """The nats client protocol, ``verbose`` off; subscription ids count from 1."""

    name = "nats"
    greets = True
    hello = b'CONNECT {"verbose":false,"pedantic":false,"echo":true}\r\nPING\r\n'
    welcome = b"PONG\r\n"
    ping = b"PING\r\n"
    pong = pong_subscribed = b"PONG\r\n"
    # About 2 s after CONNECT the server measures its round trip once.
    late_ping = b"PING\r\n"
    late_pong = b"PONG\r\n"

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (name, len(payload), payload)

    def subscribe(self, index: int, want: Want) -> bytes:
        subject = want.text if want.kind == "exact" else b">"
        return b"SUB %b %d\r\n" % (subject, index + 1)

    def unsubscribe(self, index: int, want: Want) -> bytes:
        return b"UNSUB %d\r\n" % (index + 1)

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return b"MSG %b %d %d\r\n%b\r\n" % (name, index + 1, len(payload), payload)


class Redis(Wire):
    """RESP2: channels for exact names, patterns for the rest."""

    name = "redis"
    ping = b"*1\r\n$4\r\nPING\r\n"
    pong = b"+PONG\r\n"
    pong_subscribed = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"

    @staticmethod
    def _array(*parts: bytes) -> bytes:
        return b"*%d\r\n" % len(parts) + b"".join(
            b"$%d\r\n%b\r\n" % (len(part), part) for part in parts
        )

    @staticmethod
    def _pattern(want: Want) -> bytes:
        return want.text + b"*" if want.kind == "prefix" else b"*" + want.text + b"*"

    def supports(self, want: Want) -> bool:
        return True

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return self._array(b"PUBLISH", name, payload)

    def published(self, receivers: int, name: bytes, payload: bytes) -> bytes:
        return b":%d\r\n" % receivers

    def subscribe(self, index: int, want: Want) -> bytes:
        if want.kind == "exact":
            return self._array(b"SUBSCRIBE", want.text)
        return self._array(b"PSUBSCRIBE", self._pattern(want))

    def subscribed(self, index: int, want: Want) -> bytes:
        if want.kind == "exact":
            verb, text = b"subscribe", want.text
        else:
            verb, text = b"psubscribe", self._pattern(want)
        return b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n:%d\r\n" % (
            len(verb),
            verb,
            len(text),
            text,
            index + 1,
        )

    def unsubscribe(self, index: int, want: Want) -> bytes:
        if want.kind == "exact":
            return self._array(b"UNSUBSCRIBE", want.text)
        return self._array(b"PUNSUBSCRIBE", self._pattern(want))

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        if want.kind == "exact":
            return self._array(b"message", name, payload)
        return self._array(b"pmessage", self._pattern(want), name, payload)


def _varint(number: int) -> bytes:
    """MQTT's remaining length: 7 bits a byte, lowest first (3.1.1, section 2.2.3)."""
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        if not number:
            out.append(low)
            return bytes(out)
        out.append(low | 128)


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


class Mqtt(Wire):
    """MQTT 3.1.1, QoS 0, clean session, no keep-alive, an id given by the broker."""

    name = "mosquitto"
    hello = b"\x10\x0c" + _string(b"MQTT") + b"\x04\x02\x00\x00" + _string(b"")
    welcome = b"\x20\x02\x00\x00"
    ping = b"\xc0\x00"
    pong = pong_subscribed = b"\xd0\x00"

    @staticmethod
    def _packet(first: int, body: bytes) -> bytes:
        return bytes([first]) + _varint(len(body)) + body

    @staticmethod
    def _id(index: int) -> bytes:
        return (index % 65535 + 1).to_bytes(2, "big")

    @staticmethod
    def _filter(want: Want) -> bytes:
        return _string(want.text if want.kind == "exact" else b"#")

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return self._packet(0x30, _string(name) + payload)

    def subscribe(self, index: int, want: Want) -> bytes:
        return self._packet(0x82, self._id(index) + self._filter(want) + b"\x00")

    def subscribed(self, index: int, want: Want) -> bytes:
        return self._packet(0x90, self._id(index) + b"\x00")

    def unsubscribe(self, index: int, want: Want) -> bytes:
        return self._packet(0xA2, self._id(index) + self._filter(want))

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return self.publish(name, payload)


WIRES: dict[str, Wire] = {wire.name: wire for wire in (Pubsubd(), Nats(), Redis(), Mqtt())}
