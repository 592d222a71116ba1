"""What is said on the hub port, as types: Signal Hub's ``hub:*`` and envelopes.

Reading is lenient in shape and strict in JSON: a field that is absent is UNSET or empty, one of
another type is a fault of that message. What is passed on is kept as :class:`msgspec.Raw`, the
JSON text as it came. (Synap's commands are in :mod:`pubsubd.hub.synap`.)

Field names are those on the wire; ``from`` is spelled ``sender`` in Python.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

HUB = "cloudflare/signal-hub"
"""The hub's own address, in the bare form; in the other one it is ``@(cloudflare/signal-hub)``."""

VERSION_A = "0.1.0"
"""What dialect A calls its version, in ``metadata.protocolVersion`` and ``serverVersion``."""

VERSION_B = "1.0"
"""What dialect B calls its version, in ``payload.version``."""

ABSENT = Raw(b"")
"""Stands for a field that was not sent."""


def _absent() -> Raw:
    """Return :data:`ABSENT`; as a plain default, it could not be shown in a schema."""
    return ABSENT


CODES = (
    "version_mismatch",
    "unauthorized",
    "rate_limited",
    "unknown_actor",
    "message_too_large",
    "message_expired",
    "timeout",
    "internal_error",
    "invalid_token",
)
"""The codes of hub:error."""

# What is asked of values beyond their types is told in schemas, and checked where they are used:
# who breaks it is told so in the protocol's own words.
END = r"(?![\s\S])"
"""The end of a text, in a pattern; ``$`` is for some readers also before a line feed there."""

WORD = rf"^[^ \r\n]*{END}"
"""What holds no space, CR or LF, as a pattern."""

_PART = r"[A-Za-z0-9._:\-]+"
_BARE = rf"{_PART}(/{_PART})+"
Address = Annotated[
    str,
    Meta(extra_json_schema={"maxLength": 256, "pattern": rf"^({_BARE}|@\({_BARE}\)){END}"}),
]
"""``runtime/id``, or ``@(runtime/id)``; see :func:`pubsubd.hub.actors.canonical`."""

Kind = Annotated[
    str,
    Meta(extra_json_schema={"minLength": 1, "maxLength": 256, "pattern": f"^(?!hub:){WORD[1:]}"}),
]
"""The type of a message that is published or sent."""

TopicText = Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": WORD})]
"""A topic or wildcard; which are legal, settings decide as well."""

PatternText = Annotated[str, Meta(extra_json_schema={"maxLength": 1024})]
Capability = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 256})]
Duration = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0})]
Count = Annotated[int, Meta(extra_json_schema={"minimum": 1})]
Offset = Annotated[int, Meta(extra_json_schema={"minimum": 0})]
RawObject = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})]


class Incoming(Struct, gc=False, rename={"sender": "from", "correlation_id": "correlationId"}):
    """Any message that is none of Synap's, before it is known what it is."""

    type: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    sender: str | UnsetType | None = UNSET
    to: str | UnsetType | None = UNSET
    payload: Raw = ABSENT
    pattern: str | UnsetType | None = UNSET
    correlation_id: str | UnsetType | None = UNSET
    timestamp: float | UnsetType | None = UNSET
    metadata: Raw = ABSENT
    ttl: float | UnsetType | None = UNSET


class Topic(Struct):
    """The payload of ``__subscribe`` and ``__unsubscribe``."""

    topic: TopicText


# Requests of hub:*, named after their types: what their payloads are. All fields can be absent as
# far as decoding goes: which one is missing is told in the protocol's own words.


class ConnectMetadata(Struct, rename="camel"):
    """``metadata`` of hub:connect in dialect A; ``capabilities`` are those of the client."""

    protocol_version: str | None = None
    auth_token: str | None = None
    capabilities: list[str] | None = None
    client_metadata: Any = None


class Connect(Struct):
    """hub:connect in dialect B."""

    version: str | None = None
    jwt: str | None = None


class Heartbeat(Struct):
    """hub:heartbeat."""

    timestamp: float | None = None


class Register(Struct, rename="camel"):
    """hub:register; ``ttl`` is in milliseconds, ``ttlSeconds`` in seconds."""

    actor_address: Address | None = None
    capabilities: list[Capability] | None = None
    metadata: RawObject = field(default_factory=_absent)
    ttl: Duration | None = None
    ttl_seconds: Duration | None = None


class Unregister(Struct, rename="camel"):
    """hub:unregister."""

    actor_address: Address | None = None


class Renew(Struct, rename="camel"):
    """hub:renew; also ``metadata`` of one in dialect A, which has the token alone."""

    actor_address: Address | None = None
    renewal_token: str | None = None
    ttl: Duration | None = None
    ttl_seconds: Duration | None = None


class Discover(Struct):
    """hub:discover and hub:list_actors: a glob in dialect A, a regular expression in B."""

    pattern: PatternText | None = None
    capability: str | None = None
    capabilities: list[str] | None = None
    metadata: dict[str, Any] | None = None
    limit: Count | None = None
    offset: Offset | None = None


class Send(Struct, rename="camel"):
    """hub:send and hub:broadcast: without ``data``, the whole object is what is delivered."""

    to: Address | None = None
    type: Kind | None = None
    data: Raw = field(default_factory=_absent)
    exclude_self: bool = False


class BroadcastMetadata(Struct, rename="camel"):
    """``metadata`` of hub:broadcast."""

    target_capability: str | None = None


class Subscribe(Struct, rename="camel"):
    """hub:subscribe, hub:unsubscribe (where either will do) and hub:topic_info."""

    topic: TopicText | None = None
    subscription_id: str | None = None
    actor_address: str | None = None
    durable: bool = False


class Publish(Struct, gc=False):
    """hub:publish: ``type`` and ``data``, or a ``message`` whose ``type`` it is."""

    topic: TopicText | None = None
    type: Kind | None = None
    data: Raw = field(default_factory=_absent)
    message: Raw = field(default_factory=_absent)


class Typed(Struct):
    """The ``message`` of hub:publish in dialect B."""

    type: Kind | None = None


class Token(Struct):
    """hub:refresh_token."""

    token: str | None = None


class Nothing(Struct):
    """A payload of which nothing is read: hub:disconnect, hub:queue_stats, hub:metrics."""


# Replies. Payloads are the union of what both dialects promise.


class Capabilities(Struct, rename="camel"):
    """``capabilities`` of hub:connected in dialect A."""

    max_actors_per_instance: int
    supports_backpressure: bool = True
    supported_content_types: tuple[str, ...] = ("application/json",)


class Connected(Struct, rename="camel"):
    """hub:connected; times in milliseconds, ``capabilities`` in B a list."""

    session_id: str
    server_version: str
    max_message_size: int
    heartbeat_interval: int
    capabilities: Capabilities | list[str]
    actor_identity: str
    server_time: int


class HeartbeatAck(Struct, rename="camel"):
    """hub:heartbeat_ack."""

    timestamp: float | None
    server_time: int


class Disconnected(Struct, rename="camel"):
    """hub:disconnect (A) or hub:disconnect_ack (B), before the close."""

    session_id: str
    acknowledged: bool = True
    cleaned_up: bool = True


class Displaced(Struct):
    """hub:disconnect that was not asked for: another connection has registered the address."""

    reason: Literal["duplicate_connection"]
    message: str


class Registered(Struct, rename="camel"):
    """hub:registered; ``expiresAt`` in epoch milliseconds. In ``metadata`` as well."""

    actor_address: str
    expires_at: int
    renewal_token: str
    version: int


class Unregistered(Struct, rename="camel"):
    """hub:unregistered."""

    actor_address: str
    unregistered_at: int


class Renewed(Struct, rename="camel"):
    """hub:renewed: the new token under both of its names."""

    actor_address: str
    expires_at: int
    renewal_token: str
    new_renewal_token: str
    version: int


class Found(Struct, rename="camel"):
    """One actor in an answer: its address under both of its names, never its renewal token."""

    address: str
    actor_address: str
    capabilities: tuple[str, ...]
    metadata: Raw
    registered_at: int
    expires_at: int


class Discovered(Struct, rename="camel"):
    """hub:discovered, hub:actor_list (A) or hub:discovery_result (B)."""

    actors: list[Found]
    count: int
    total: int
    total_matches: int
    offset: int
    limit: int
    has_more: bool


class DeliveryAck(Struct, rename="camel"):
    """hub:delivery_ack to an ask that was delivered."""

    message_id: str
    delivered_at: int
    status: Literal["delivered"] = "delivered"


class UnknownActor(Struct, rename="camel"):
    """hub:unknown_actor: an ask to nobody, in dialect A."""

    actor_address: str
    message: str


class BroadcastAck(Struct, rename="camel"):
    """hub:broadcast_ack."""

    message_id: str
    delivered_count: int
    failed_count: int
    recipient_count: int
    success_count: int
    failure_count: int


class Subscribed(Struct, rename="camel"):
    """hub:subscribed."""

    topic: str
    subscription_id: str
    subscribed_at: int


class Published(Struct, rename="camel"):
    """hub:published (A) or hub:delivery_ack (B): to how many connections it went.

    Written by :mod:`pubsubd.hub.signal.pubsub` without this, as it is what is sent most.
    """

    topic: str
    subscriber_count: int
    delivered_count: int
    delivered: bool
    timestamp: int


class Unsubscribed(Struct, rename="camel"):
    """hub:unsubscribed."""

    topic: str
    unsubscribed_at: int


class QueueStats(Struct, rename="camel"):
    """hub:queue_stats_response (A) or hub:queue_stats_result (B), of this connection.

    Bytes that wait for it, and the bounds at which publishers wait for it and go on;
    messages carried out, messages refused, and how many a second it has sent since it came.
    """

    queue_depth: int
    processing_rate: float
    pause_threshold: int
    resume_threshold: int
    pending: int
    processed: int
    failed: int
    paused: bool


class Metrics(Struct, rename="camel"):
    """hub:metrics_response: counters of the hub port, and of the daemon's messages in and out."""

    actors: int
    connections: int
    topics: int
    subscriptions: int
    messages_processed: int
    messages_failed: int
    envelopes_ignored: int
    messages_in: int
    messages_out: int
    uptime_seconds: float


class TopicSummary(Struct, rename="camel"):
    """A topic: how many connections get it, and how many messages it has had on this port."""

    topic: str
    subscriber_count: int
    message_count: int
    created_at: int


class TopicList(Struct, rename="camel"):
    """hub:topic_list, the answer to hub:list_topics."""

    topics: list[TopicSummary]
    count: int
    total: int
    offset: int
    limit: int
    has_more: bool


class TokenRefreshed(Struct, rename="camel"):
    """hub:token_refreshed."""

    token: str
    expires_at: int


class Error(Struct, omit_defaults=True):
    """hub:error."""

    code: Annotated[str, Meta(extra_json_schema={"enum": list(CODES)})]
    message: str
    resolution: str = ""
    details: dict[str, Any] = field(default_factory=dict)


class Reply(Struct, rename={"sender": "from", "correlation_id": "correlationId"}):
    """What the hub answers with: all keys of dialect A, whoever asks."""

    id: str
    sender: str
    to: str
    type: str
    payload: Any
    correlation_id: str | None
    timestamp: int
    metadata: Any
    pattern: str = "tell"
    ttl: None = None
    signature: None = None


class Delivery(Struct, rename={"sender": "from", "correlation_id": "correlationId"}):
    """A message of another actor, by hub:send, hub:broadcast or hub:publish."""

    id: str
    sender: str
    to: str
    type: str
    payload: Raw
    pattern: str
    correlation_id: str | None
    timestamp: int
    metadata: dict[str, Any]
    ttl: None = None
    signature: None = None
