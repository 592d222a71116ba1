"""Messages that come to the hub port, as types: Signal Hub's ``hub:*`` and envelopes.

Reading is lenient in shape and strict in JSON: a field that is absent is UNSET or empty, one of
another type is a fault of that message. A value that is passed on is kept as :class:`msgspec.Raw`,
the JSON text as it came. (Synap's commands are in :mod:`pubsubd.hub.synap.requests`, the answers in
:mod:`pubsubd.hub.replies`.)

Field names are those on the wire; ``from`` is spelled ``sender`` in Python.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from pubsubd.protocol.limits import MAX_TOPICS

HUB = "cloudflare/signal-hub"
"""The hub's own address, in the bare form; in the other one it is ``@(cloudflare/signal-hub)``."""

VERSION_A = "0.1.0"
"""Version of dialect A, in ``metadata.protocolVersion`` and ``serverVersion``."""

VERSION_B = "1.0"
"""Version of dialect B, in ``payload.version``."""

ABSENT = Raw(b"")
"""Stands for a field that was not sent."""


def _absent() -> Raw:
    """Return :data:`ABSENT`; as a plain default, it could not be shown in a schema."""
    return ABSENT


# Schemas show what values must hold beyond their types; the code that uses a value checks it, so
# that errors come in the protocol's own words.
END = r"(?![\s\S])"
"""The end of a text, in a pattern; ``$`` is for some readers also before a line feed there."""

WORD = rf"^[^ \r\n]*{END}"
"""Pattern of a text without space, CR or LF."""

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
Scope = Annotated[str, Meta(extra_json_schema={"enum": ["local", "mesh"]})]
"""Whether actors of this daemon are meant, or those of all daemons of the mesh."""

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


# Payloads of hub:* requests, named after the types of these. Decoding lets any field be absent, so
# that the error for a missing one comes in the protocol's own words.


class ConnectMetadata(Struct, rename="camel"):
    """``metadata`` of hub:connect in dialect A; ``capabilities`` are those of the client."""

    protocol_version: str | None = None
    auth_token: str | None = None
    capabilities: list[str] | None = None
    client_metadata: Any = None


class Connect(Struct):
    """hub:connect in dialect B; a token, or a user and a password."""

    version: str | None = None
    jwt: str | None = None
    user: str | None = None
    password: str | None = None


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
    scope: Scope | None = None


class Send(Struct, rename="camel"):
    """hub:send and hub:broadcast: without ``data``, the whole object is what is delivered."""

    to: Address | None = None
    type: Kind | None = None
    data: Raw = field(default_factory=_absent)
    exclude_self: bool = False


class Broadcast(Send):
    """hub:broadcast, as hub:send."""

    scope: Scope | None = None


class BroadcastMetadata(Struct, rename="camel"):
    """``metadata`` of hub:broadcast."""

    target_capability: str | None = None


TopicTexts = Annotated[list[TopicText], Meta(extra_json_schema={"maxItems": MAX_TOPICS})]


class Subscribe(Struct, rename="camel"):
    """hub:subscribe: one topic, or several at once."""

    topic: TopicText | None = None
    topics: TopicTexts | None = None
    actor_address: str | None = None
    durable: bool = False


class Unsubscribe(Struct, rename="camel"):
    """hub:unsubscribe, where either will do."""

    topic: TopicText | None = None
    subscription_id: str | None = None


class TopicInfo(Struct):
    """hub:topic_info."""

    topic: TopicText | None = None


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
