"""Messages of the hub client, as types.

Invariants:

- A message of another client is marked by the hub as ``forwarded``; an unmarked one is the hub's
  own. So nobody can forge an answer, or an end, by its type.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from pubsubd.client.faults import DaemonError, DisconnectedError, printable

HUB = "@(cloudflare/signal-hub)"
"""The hub's own address."""

VERSION = "0.1.0"
"""The version of the dialect."""

RAW = "pubsub:message"
"""The type of messages that were published on the line port, as text or bytes."""

PING = b'{"type":"ping"}'
"""Answered by ``{"type":"pong"}`` when everything before it is carried out."""


class HubMessage(NamedTuple):
    """A message as it was received.

    Attributes:
        topic: the one it was published to; None if it was sent to this actor, or to all of them.
        type: its kind.
        data: its JSON value.
        sender: the address of its sender, for which the hub vouches.
        id: its identifier.
        correlation_id: the identifier of the message that it answers; of an ask, its own.
        metadata: added by the sender and the hub.
        broadcast: whether it was sent to all actors.
    """

    topic: str | None
    type: str
    data: Any
    sender: str
    id: str
    correlation_id: str | None
    metadata: dict[str, Any]
    broadcast: bool

    @property
    def raw(self) -> bytes | None:
        """The bytes that were published on the line port; None of any other message."""
        if self.type != RAW or not isinstance(self.data, dict):
            return None
        text, coded = self.data.get("data"), self.data.get("dataBase64")
        if isinstance(text, str):
            return text.encode()
        try:
            return base64.b64decode(coded, validate=True) if isinstance(coded, str) else None
        except ValueError:
            return None


def raw_payload(topic: str, data: bytes) -> dict[str, str]:
    """Return a payload that arrives at the line port as this text or these bytes."""
    try:
        return {"name": topic, "data": data.decode()}
    except UnicodeDecodeError:
        return {"name": topic, "dataBase64": base64.b64encode(data).decode()}


class Delivered(NamedTuple):
    """An ask that has reached its actor.

    Attributes:
        message_id: of the ask; the :attr:`HubMessage.correlation_id` of what answers it.
        at: when, in epoch milliseconds.
    """

    message_id: str
    at: int


class Actor(Struct, frozen=True, rename="camel"):
    """An actor that is registered.

    Attributes:
        address: as ``@(python/worker-1)``.
        capabilities: what it says that it can do.
        metadata: what it says of itself.
        registered_at: when, in epoch milliseconds.
        expires_at: until when, unless it is renewed, in epoch milliseconds.
    """

    address: str
    capabilities: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    registered_at: int | None = None
    expires_at: int | None = None


class Actors(Struct, frozen=True, rename="camel"):
    """Some of the actors that there are: those from ``offset`` on.

    Attributes:
        actors: these.
        total: how many there are in all, if the hub tells.
        has_more: whether there are more behind these.
    """

    actors: list[Actor]
    total: int | None = None
    has_more: bool = False


class Topic(Struct, frozen=True, rename="camel"):
    """A topic of the hub port.

    Attributes:
        topic: its name.
        subscriber_count: connections that receive it.
        message_count: messages it has had from the hub port.
        created_at: in epoch milliseconds.
    """

    topic: str
    subscriber_count: int = 0
    message_count: int = 0
    created_at: int = 0


class Topics(Struct, frozen=True, rename="camel"):
    """Some of the topics that there are: those from ``offset`` on, as :class:`Actors`."""

    topics: list[Topic]
    total: int | None = None
    has_more: bool = False


class Connected(Struct, rename="camel"):
    """``hub:connected``; the interval in milliseconds."""

    max_message_size: int = 1024 * 1024
    heartbeat_interval: float = 30_000


class Registered(Struct, rename="camel"):
    """``hub:registered``, in epoch milliseconds."""

    expires_at: float


class Published(Struct, rename="camel"):
    """``hub:published``."""

    subscriber_count: int


class Broadcast(Struct, rename="camel"):
    """``hub:broadcast_ack``."""

    delivered_count: int


class Acknowledged(Struct, rename="camel"):
    """``hub:delivery_ack``."""

    message_id: str
    delivered_at: int


class Refreshed(Struct, rename="camel"):
    """``hub:token_refreshed``, in epoch milliseconds."""

    token: str
    expires_at: int


class Subscribed(Struct, rename="camel"):
    """``hub:subscribed``."""

    subscription_id: str


class Outgoing(Struct, rename={"sender": "from", "correlation_id": "correlationId"}):
    """Any message that goes out: all keys of the dialect."""

    id: str
    sender: str
    type: str
    payload: Any
    timestamp: int
    metadata: Mapping[str, Any]
    to: str = HUB
    pattern: str = "tell"
    correlation_id: str | None = None
    ttl: None = None
    signature: None = None


class Incoming(Struct, rename={"sender": "from", "correlation_id": "correlationId"}):
    """Any message that comes in."""

    type: str
    id: str = ""
    sender: str = ""
    payload: Any = None
    correlation_id: str | None = None
    timestamp: float | None = None
    metadata: dict[str, Any] | None = None

    @property
    def forwarded(self) -> bool:
        """Whether it comes from another client, not from the hub itself."""
        return self.metadata is not None and self.metadata.get("forwarded") is True


_decode = msgspec.json.Decoder(Incoming).decode


def decode(text: bytes) -> Incoming:
    """Parse a message.

    Raises:
        DisconnectedError: it is none.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DisconnectedError(f"the peer does not speak this protocol: {exc}") from exc


def to_program(message: Incoming) -> HubMessage:
    """Return another client's message as the program gets it."""
    metadata = message.metadata or {}
    # The rest of the metadata is the sender's in what was sent, and only the hub's in what was
    # published; and of what was sent the hub always tells its original identifier.
    published = metadata.get("publication") is True and "originalMessageId" not in metadata
    topic = metadata.get("topic") if published else None
    return HubMessage(
        topic if isinstance(topic, str) else None,
        message.type,
        message.payload,
        message.sender,
        message.id,
        message.correlation_id,
        metadata,
        metadata.get("broadcast") is True,
    )


class _Fault(Struct):
    code: str = "internal_error"
    message: str = ""
    details: dict[str, Any] | None = None


class _Unknown(Struct, rename="camel"):
    message: str = ""
    actor_address: str = ""


class _End(Struct):
    reason: str = "disconnected"
    message: str = ""


def error_of(message: Incoming) -> DaemonError | None:
    """Return the error in an answer, if it is one."""
    if message.type == "hub:error":
        fault = convert(message.payload, _Fault)
        return DaemonError(printable(fault.code), printable(fault.message), fault.details)
    if message.type == "hub:unknown_actor":
        unknown = convert(message.payload, _Unknown)
        details = {"actorAddress": unknown.actor_address}
        return DaemonError("unknown_actor", printable(unknown.message), details)
    return None


def end_of(message: Incoming) -> DaemonError:
    """Return the reason of a ``hub:disconnect``."""
    end = convert(message.payload, _End)
    return DaemonError(printable(end.reason), printable(end.message))


Shape = TypeVar("Shape", bound=Struct)


def convert(payload: Any, shape: type[Shape]) -> Shape:
    """Return a payload as the type that it should have.

    Raises:
        DisconnectedError: it has another one.
    """
    try:
        return msgspec.convert(payload if payload is not None else {}, shape)
    except msgspec.ValidationError as exc:
        text = f"the peer does not speak this protocol: {shape.__name__}: {exc}"
        raise DisconnectedError(text) from exc
