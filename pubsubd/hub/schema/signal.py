"""The messages of Signal Hub, whole: requests, replies and what is delivered."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.schema.parts import (
    ANY,
    INTEGER,
    NULL,
    NUMBER_OR_NULL,
    OBJECT_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    Refs,
    Schema,
    has,
    record,
    summary,
)
from pubsubd.hub.signal import REQUESTS

ANSWERS: dict[str, tuple[str, ...]] = {
    "hub:connect": ("hub:connected",),
    "hub:heartbeat": ("hub:heartbeat_ack",),
    "hub:disconnect": ("hub:disconnect", "hub:disconnect_ack"),
    "hub:register": ("hub:registered",),
    "hub:unregister": ("hub:unregistered",),
    "hub:renew": ("hub:renewed",),
    "hub:discover": ("hub:discovered", "hub:discovery_result"),
    "hub:list_actors": ("hub:actor_list", "hub:discovery_result"),
    "hub:send": ("hub:delivery_ack", "hub:unknown_actor"),
    "hub:broadcast": ("hub:broadcast_ack",),
    "hub:subscribe": ("hub:subscribed",),
    "hub:publish": ("hub:published", "hub:delivery_ack"),
    "hub:unsubscribe": ("hub:unsubscribed",),
    "hub:list_topics": ("hub:topic_list",),
    "hub:topic_info": ("hub:topic_info",),
    "hub:queue_stats": ("hub:queue_stats_response", "hub:queue_stats_result"),
    "hub:metrics": ("hub:metrics_response",),
    "hub:refresh_token": ("hub:token_refreshed",),
}
"""Request -> what it can be answered with, besides hub:error; where there are two, by dialect, or
by whether an actor was found."""

REPLIES: dict[str, tuple[type[Struct], ...]] = {
    "hub:connected": (r.Connected,),
    "hub:heartbeat_ack": (r.HeartbeatAck,),
    "hub:disconnect": (r.Disconnected, r.Displaced),
    "hub:disconnect_ack": (r.Disconnected,),
    "hub:registered": (r.Registered,),
    "hub:unregistered": (r.Unregistered,),
    "hub:registration_lost": (r.RegistrationLost,),
    "hub:renewed": (r.Renewed,),
    "hub:discovered": (r.Discovered,),
    "hub:discovery_result": (r.Discovered,),
    "hub:actor_list": (r.Discovered,),
    "hub:delivery_ack": (r.DeliveryAck, r.Published),
    "hub:unknown_actor": (r.UnknownActor,),
    "hub:broadcast_ack": (r.BroadcastAck,),
    "hub:subscribed": (r.Subscribed, r.SubscribedAll),
    "hub:published": (r.Published,),
    "hub:unsubscribed": (r.Unsubscribed,),
    "hub:topic_list": (r.TopicList,),
    "hub:topic_info": (r.TopicSummary,),
    "hub:queue_stats_response": (r.QueueStats,),
    "hub:queue_stats_result": (r.QueueStats,),
    "hub:metrics_response": (r.Metrics,),
    "hub:token_refreshed": (r.TokenRefreshed,),
    "hub:error": (r.Error,),
}
"""Reply -> what its payload may be."""

TYPES: list[type[Struct]] = [
    *(entry[1] for entry in REQUESTS.values()),
    *(kind for kinds in REPLIES.values() for kind in kinds),
    m.ConnectMetadata,
    m.BroadcastMetadata,
]
"""All types of payloads and metadata."""


def _addressed(key: str) -> Schema:
    """Return the schema of messages with an address in ``from`` or ``to``."""
    return {"required": [key], "properties": {key: msgspec.json.schema(m.Address)}}


_MAJOR_A, _MAJOR_B = (version.partition(".")[0] for version in (m.VERSION_A, m.VERSION_B))

_MESSAGE_WITH_TYPE: Schema = {
    "properties": {
        "payload": {
            "properties": {
                "type": NULL,
                "message": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {"type": msgspec.json.schema(m.Kind)},
                },
            },
            "required": ["message"],
        }
    }
}

_NEEDED: dict[str, list[Schema]] = {
    "hub:connect": [
        {
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": {
                        "protocolVersion": {"type": "string", "pattern": rf"^{_MAJOR_A}(\.|$)"},
                        "capabilities": {"type": "array", "minItems": 1},
                    },
                    "required": ["protocolVersion", "capabilities"],
                }
            },
            "required": ["metadata"],
        },
        {
            "properties": {
                "payload": {
                    "type": "object",
                    "properties": {
                        "version": {"type": "string", "pattern": rf"^{_MAJOR_B}(\.|$)"},
                    },
                    "required": ["version"],
                },
                "metadata": {"properties": {"protocolVersion": NULL}},
            },
            "required": ["payload"],
        },
    ],
    "hub:register": [has("payload", "actorAddress"), _addressed("from")],
    "hub:renew": [has("payload", "renewalToken"), has("metadata", "renewalToken")],
    "hub:send": [
        {"allOf": [has("payload", "type"), has("payload", "to")]},
        {"allOf": [has("payload", "type"), _addressed("to")]},
    ],
    "hub:broadcast": [has("payload", "type")],
    "hub:subscribe": [has("payload", "topic"), has("payload", "topics")],
    "hub:publish": [
        {"allOf": [has("payload", "topic"), has("payload", "type")]},
        {"allOf": [has("payload", "topic"), _MESSAGE_WITH_TYPE]},
    ],
    "hub:unsubscribe": [has("payload", "topic"), has("payload", "subscriptionId")],
    "hub:topic_info": [has("payload", "topic")],
    "hub:refresh_token": [has("payload", "token")],
}
"""Request -> of which at least one has to hold."""

_ADDRESS: Schema = {"type": "string", "pattern": "/"}
_UUID: Schema = {"type": "string", "format": "uuid"}
_PATTERN: Schema = {"enum": ["tell", "ask", "request", "notify"]}
_TRUE: Schema = {"const": True}


def requests(refs: Refs) -> dict[str, Schema]:
    """Return the requests by their definitions' names."""
    found = {}
    for name, (_, kind, _) in REQUESTS.items():
        metadata = {
            "hub:connect": {"anyOf": [refs[m.ConnectMetadata], NULL]},
            "hub:broadcast": {"anyOf": [refs[m.BroadcastMetadata], NULL]},
        }.get(name, OBJECT_OR_NULL)
        schema = record(
            summary(kind),
            {
                "type": {"const": name},
                "id": TEXT_OR_NULL,
                "from": TEXT_OR_NULL,
                "to": TEXT_OR_NULL,
                "payload": {"anyOf": [refs[kind], NULL]},
                "pattern": {"enum": [*_PATTERN["enum"], None]},
                "correlationId": TEXT_OR_NULL,
                "timestamp": NUMBER_OR_NULL,
                "metadata": metadata,
                "ttl": NUMBER_OR_NULL,
                "signature": ANY,
            },
            needed=["type"],
        )
        needed = _NEEDED.get(name, [])
        if len(needed) == 1:
            schema["allOf"] = needed
        elif needed:
            schema["anyOf"] = needed
        found[f"client_{name.replace(':', '_')}"] = schema
    return found


def replies(refs: Refs) -> dict[str, Schema]:
    """Return the replies, and hub:error and hub:disconnect where nobody has asked, by name."""
    found = {}
    for name, kinds in REPLIES.items():
        metadata: Schema = {"type": "object", "maxProperties": 0}
        if name in ("hub:registered", "hub:renewed"):
            metadata = refs[kinds[0]]
        elif name == "hub:connected":
            metadata = record("who the client is", {"actorIdentity": TEXT}, closed=True)
        payload = refs[kinds[0]] if len(kinds) == 1 else {"anyOf": [refs[kind] for kind in kinds]}
        found[f"daemon_{name.replace(':', '_')}"] = record(
            summary(kinds[0]),
            _keys_of_a({"const": name}, payload, metadata) | {"pattern": {"const": "tell"}},
            closed=True,
        )
    return found


def deliveries() -> dict[str, Schema]:
    """Return the deliveries of other clients' messages, by name."""
    forwarded = {"forwarded": _TRUE, "via": _ADDRESS}
    publication = record(
        "of a publication",
        {"topic": TEXT, "publication": _TRUE} | forwarded,
        closed=True,
    )
    sent = record("the sender's, and more", forwarded | {"originalMessageId": TEXT})
    spread = record("the sender's, and more", sent["properties"] | {"broadcast": _TRUE})
    return {
        "daemon_publication": record(
            "a message on a topic, by hub:publish, another dialect or the line port",
            _keys_of_a(TEXT, ANY, publication)
            | {"pattern": {"const": "tell"}, "correlationId": NULL},
            closed=True,
        ),
        "daemon_message": record(
            "a message of another actor, by hub:send", _keys_of_a(TEXT, ANY, sent), closed=True
        ),
        "daemon_broadcast": record(
            "a message to all actors, by hub:broadcast", _keys_of_a(TEXT, ANY, spread), closed=True
        ),
    }


def _keys_of_a(kind: Schema, payload: Schema, metadata: Schema) -> dict[str, Schema]:
    """Return the keys of dialect A, which all that the daemon sends has."""
    return {
        "id": _UUID,
        "from": TEXT,
        "to": TEXT,
        "type": kind,
        "payload": payload,
        "pattern": _PATTERN,
        "correlationId": TEXT_OR_NULL,
        "timestamp": INTEGER,
        "metadata": metadata,
        "ttl": NULL,
        "signature": NULL,
    }
