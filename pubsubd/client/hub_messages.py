"""The messages of the hub client, as types.

Invariants:

- A message is from another client if the hub has marked it as ``forwarded``. The hub marks all
  such messages, so one without the mark is its own. So no client can forge an answer or a
  disconnection by the type of a message.
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
"""The version of the protocol."""

RAW = "pubsub:message"
"""The type of a message that was published on the line port as text or bytes."""

PING = b'{"type":"ping"}'
"""Answered with ``{"type":"pong"}`` when everything before it has been processed."""


class HubMessage(NamedTuple):
    """A received message.

    Attributes:
        topic: the topic that it was published to; None if it was sent to this actor or to all.
        type: the type of the message.
        data: its JSON value.
        sender: the address of the sender, which the hub guarantees.
        id: its identifier.
        correlation_id: in a reply, the identifier of the message that it answers; in an ask, its
            own identifier.
        metadata: the metadata from the sender and from the hub.
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
        """The bytes, if it was published on the line port as text or bytes; otherwise None."""
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
    """Return a payload that arrives at the line port as text or bytes."""
    try:
        return {"name": topic, "data": data.decode()}
    except UnicodeDecodeError:
        return {"name": topic, "dataBase64": base64.b64encode(data).decode()}


class Delivered(NamedTuple):
    """The confirmation that an ask has reached its actor.

    Attributes:
        message_id: identifier of the ask; the :attr:`HubMessage.correlation_id` of the reply.
        at: time of delivery, in milliseconds since the epoch.
    """

    message_id: str
    at: int


class Actor(Struct, frozen=True, rename="camel"):
    """A registered actor.

    Attributes:
        address: for example ``@(python/worker-1)``.
        capabilities: its capabilities.
        metadata: its metadata.
        registered_at: time of registration, in milliseconds since the epoch.
        expires_at: when the registration ends unless it is renewed, in milliseconds since the
            epoch.
    """

    address: str
    capabilities: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    registered_at: int | None = None
    expires_at: int | None = None


class Actors(Struct, frozen=True, rename="camel"):
    """A page of a list of actors, beginning at ``offset``.

    Attributes:
        actors: the actors on this page.
        total: number of all actors, if the hub reports it.
        has_more: whether there are more after these.
    """

    actors: list[Actor]
    total: int | None = None
    has_more: bool = False


class Topic(Struct, frozen=True, rename="camel"):
    """A topic of the hub port.

    Attributes:
        topic: its name.
        subscriber_count: connections that receive it.
        message_count: messages published to it on the hub port.
        created_at: in milliseconds since the epoch.
    """

    topic: str
    subscriber_count: int = 0
    message_count: int = 0
    created_at: int = 0


class Topics(Struct, frozen=True, rename="camel"):
    """A page of a list of topics, beginning at ``offset``, like :class:`Actors`."""

    topics: list[Topic]
    total: int | None = None
    has_more: bool = False


class Connected(Struct, rename="camel"):
    """``hub:connected``; the interval in milliseconds."""

    max_message_size: int = 1024 * 1024
    heartbeat_interval: float = 30_000
    capabilities: Any = None

    @property
    def max_topics(self) -> int:
        """Topics that one ``hub:subscribe`` may have in ``topics``; 0 if the hub knows no such."""
        found = self.capabilities if isinstance(self.capabilities, dict) else {}
        most = found.get("maxTopicsPerRequest")
        return most if isinstance(most, int) else 0


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


class NotSubscribed(Struct):
    """A topic that the hub refuses."""

    topic: str
    code: str = "internal_error"
    message: str = ""


class SubscribedTopic(Struct, rename="camel"):
    """A topic that the hub accepts."""

    topic: str
    subscription_id: str


class SubscribedAll(Struct):
    """``hub:subscribed``, for several topics."""

    subscriptions: list[SubscribedTopic]
    refused: list[NotSubscribed] = []

    def errors(self) -> list[DaemonError]:
        """Return the errors of the topics that are refused."""
        return [
            DaemonError(printable(one.code), printable(one.message), {"topic": one.topic})
            for one in self.refused
        ]


class Outgoing(Struct, rename={"sender": "from", "correlation_id": "correlationId"}):
    """Any outgoing message, with all keys."""

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
    """Any incoming message."""

    type: str
    id: str = ""
    sender: str = ""
    payload: Any = None
    correlation_id: str | None = None
    timestamp: float | None = None
    metadata: dict[str, Any] | None = None

    @property
    def forwarded(self) -> bool:
        """Whether it is from another client, not from the hub itself."""
        return self.metadata is not None and self.metadata.get("forwarded") is True


_decode = msgspec.json.Decoder(Incoming).decode


def decode(text: bytes) -> Incoming:
    """Return the message in ``text``.

    Raises:
        DisconnectedError: the text is not a message.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DisconnectedError(f"the peer does not speak this protocol: {exc}") from exc


def to_program(message: Incoming) -> HubMessage:
    """Return the program's view of a message from another client."""
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
    """Return the error in an answer, if it is a refusal."""
    if message.type == "hub:error":
        fault = convert(message.payload, _Fault)
        return DaemonError(printable(fault.code), printable(fault.message), fault.details)
    if message.type == "hub:unknown_actor":
        unknown = convert(message.payload, _Unknown)
        details = {"actorAddress": unknown.actor_address}
        return DaemonError("unknown_actor", printable(unknown.message), details)
    return None


def end_of(message: Incoming) -> DaemonError:
    """Return the reason in a ``hub:disconnect`` from the hub."""
    end = convert(message.payload, _End)
    return DaemonError(printable(end.reason), printable(end.message))


Shape = TypeVar("Shape", bound=Struct)


def convert(payload: Any, shape: type[Shape]) -> Shape:
    """Return a payload as a ``shape``.

    Raises:
        DisconnectedError: the payload does not have this shape.
    """
    try:
        return msgspec.convert(payload if payload is not None else {}, shape)
    except msgspec.ValidationError as exc:
        text = f"the peer does not speak this protocol: {shape.__name__}: {exc}"
        raise DisconnectedError(text) from exc
