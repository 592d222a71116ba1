"""Replies and deliveries of Signal Hub, as types.

The payload of a reply is the union of what both dialects promise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from pubsubd.protocol.limits import MAX_TOPICS

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


class Capabilities(Struct, rename="camel"):
    """``capabilities`` of hub:connected in dialect A."""

    max_actors_per_instance: int
    max_topics_per_request: int = MAX_TOPICS
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


class RegistrationLost(Struct, rename="camel"):
    """hub:registration_lost, which nobody has asked for: another daemon has an earlier one."""

    actor_address: str
    daemon: str
    message: str


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
    """One actor in an answer: its address under both of its names, never its renewal token.

    In a mesh, ``daemon`` is where it is registered; ``expiresAt`` is known of this daemon's alone,
    and of those of its workers that answer.
    """

    address: str
    actor_address: str
    capabilities: tuple[str, ...]
    metadata: Raw
    registered_at: int
    expires_at: int | None
    daemon: str | UnsetType = UNSET


class Discovered(Struct, rename="camel"):
    """hub:discovered, hub:actor_list (A) or hub:discovery_result (B).

    In a mesh, ``unanswered`` has the ids of daemons whose actors are not all known.
    """

    actors: list[Found]
    count: int
    total: int
    total_matches: int
    offset: int
    limit: int
    has_more: bool
    unanswered: list[str] | UnsetType = UNSET


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
    """hub:broadcast_ack; ``unanswered``, in a mesh, has the ids of daemons that were silent."""

    message_id: str
    delivered_count: int
    failed_count: int
    recipient_count: int
    success_count: int
    failure_count: int
    unanswered: list[str] | UnsetType = UNSET


class Subscribed(Struct, rename="camel"):
    """hub:subscribed."""

    topic: str
    subscription_id: str
    subscribed_at: int


class NotSubscribed(Struct):
    """A topic that a hub:subscribe of several was refused, with what hub:error would say of it."""

    topic: str
    code: str
    message: str


class SubscribedAll(Struct):
    """hub:subscribed after a hub:subscribe of several topics."""

    subscriptions: list[Subscribed]
    refused: list[NotSubscribed]


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
    daemon: str | UnsetType = UNSET


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
    """A topic: how many connections get it, and how many messages it has had on this port.

    ``daemon``, in a mesh, is the id of the daemon that answers, as in other answers about it alone.
    """

    topic: str
    subscriber_count: int
    message_count: int
    created_at: int
    daemon: str | UnsetType = UNSET


class TopicList(Struct, rename="camel"):
    """hub:topic_list, the answer to hub:list_topics."""

    topics: list[TopicSummary]
    count: int
    total: int
    offset: int
    limit: int
    has_more: bool
    daemon: str | UnsetType = UNSET


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
    """An answer of the hub: all keys of dialect A, in both dialects."""

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
