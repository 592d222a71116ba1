"""The messages of the hub port as JSON Schemas, and as an AsyncAPI document.

Strategy: the payloads are generated from the types that read and write them; around them stands
what every message of its dialect has. Each message is a definition of its own, named after who
sends it and what it is: ``client hub:publish``, ``hub hub:published``, ``client pubsub.publish``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from pubsubd import __version__
from pubsubd.hub import messages as m
from pubsubd.hub.signal import REQUESTS
from pubsubd.hub.synap import requests as synap

DIALECT = "https://json-schema.org/draft/2020-12/schema"

REPLIES: dict[str, tuple[type[Struct], ...]] = {
    "hub:connected": (m.Connected,),
    "hub:heartbeat_ack": (m.HeartbeatAck,),
    "hub:disconnect": (m.Disconnected, m.Displaced),
    "hub:disconnect_ack": (m.Disconnected,),
    "hub:registered": (m.Registered,),
    "hub:unregistered": (m.Unregistered,),
    "hub:renewed": (m.Renewed,),
    "hub:discovered": (m.Discovered,),
    "hub:discovery_result": (m.Discovered,),
    "hub:actor_list": (m.Discovered,),
    "hub:delivery_ack": (m.DeliveryAck, m.Published),
    "hub:unknown_actor": (m.UnknownActor,),
    "hub:broadcast_ack": (m.BroadcastAck,),
    "hub:subscribed": (m.Subscribed,),
    "hub:published": (m.Published,),
    "hub:unsubscribed": (m.Unsubscribed,),
    "hub:topic_list": (m.TopicList,),
    "hub:topic_info": (m.TopicSummary,),
    "hub:queue_stats_response": (m.QueueStats,),
    "hub:queue_stats_result": (m.QueueStats,),
    "hub:metrics_response": (),
    "hub:token_refreshed": (m.TokenRefreshed,),
    "hub:error": (m.Error,),
}
"""Type -> what its payload may be; any object if there is nothing."""

_NEEDED = {
    "hub:discover": [],
    "hub:publish": ["topic"],
    "hub:refresh_token": ["token"],
    "hub:send": ["type"],
    "hub:broadcast": ["type"],
    "hub:subscribe": ["topic"],
    "hub:topic_info": ["topic"],
}
"""Type -> keys that its payload has to have in either dialect."""

COMMANDS: dict[str, tuple[type[Struct], list[str]]] = {
    "pubsub.publish": (synap.Publish, ["topic"]),
    "pubsub.subscribe": (synap.Subscribe, ["topics"]),
    "pubsub.unsubscribe": (synap.Unsubscribe, []),
    "pubsub.topics": (synap.List, []),
    "pubsub.info": (synap.Info, ["topic"]),
    "pubsub.stats": (synap.Nothing, []),
}
"""Command -> its payload, and the keys that it has to have."""

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_INTEGER = {"type": "integer"}


def json_schema() -> dict[str, Any]:
    """Return one JSON Schema document with a definition for each message, and one for any."""
    messages, payloads = _definitions("#/$defs/")
    return {
        "$schema": DIALECT,
        "$id": "urn:pubsubd:hub",
        "title": "Messages of pubsubd's hub port",
        "description": f"pubsubd {__version__}; see pubsubd-hub(7)",
        "anyOf": [{"$ref": f"#/$defs/{_escape(name)}"} for name in messages],
        "$defs": messages | payloads,
    }


def asyncapi() -> dict[str, Any]:
    """Return an AsyncAPI 3.0 document of what is spoken over WebSocket."""
    messages, payloads = _definitions("#/components/schemas/")
    keys = {name: _key(name) for name in messages}
    from_clients = [name for name in messages if name.startswith("client ")]
    pushed = ["hub synap message", "hub synap connected"]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "pubsubd hub port",
            "version": __version__,
            "description": "JSON over WebSocket, bridged with the line protocol; pubsubd-hub(7).",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:9015",
                "protocol": "ws",
                "description": "One text, or binary, message each. Also, a JSON text a line, TCP.",
            }
        },
        "channels": {
            "hub": {
                "address": "/ws",
                "description": "Every dialect; each message is told by its shape.",
                "messages": {
                    key: {"$ref": f"#/components/messages/{key}"} for key in keys.values()
                },
                "bindings": {"ws": {"method": "GET"}},
            },
            "synap": {
                "address": "/pubsub/ws",
                "description": "Synap's stream: topics are in the query.",
                "messages": {
                    keys[name]: {"$ref": f"#/components/messages/{keys[name]}"} for name in pushed
                },
                "bindings": {
                    "ws": {
                        "method": "GET",
                        "query": {
                            "type": "object",
                            "required": ["topics"],
                            "properties": {"topics": {"type": "string"}},
                        },
                    }
                },
            },
        },
        "operations": {
            "say": {
                "action": "receive",
                "channel": {"$ref": "#/channels/hub"},
                "messages": [_in("hub", keys[name]) for name in from_clients],
            },
            "hear": {
                "action": "send",
                "channel": {"$ref": "#/channels/hub"},
                "messages": [
                    _in("hub", keys[name]) for name in messages if name not in from_clients
                ],
            },
            "push": {
                "action": "send",
                "channel": {"$ref": "#/channels/synap"},
                "messages": [_in("synap", keys[name]) for name in pushed],
            },
        },
        "components": {
            "messages": {
                keys[name]: {
                    "name": name.partition(" ")[2],
                    "title": schema["description"],
                    "payload": {"$ref": f"#/components/schemas/{keys[name]}"},
                }
                for name, schema in messages.items()
            },
            "schemas": {keys[name]: schema for name, schema in messages.items()} | payloads,
        },
    }


def _definitions(place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schemas of all messages, and those of their payloads, which they refer to."""
    types: list[type[Struct]] = [entry[1] for entry in REQUESTS.values()]
    types += [kind for kinds in REPLIES.values() for kind in kinds]
    types += [kind for kind, _ in COMMANDS.values()]
    types += [m.Topic, m.ConnectMetadata]
    types = list(dict.fromkeys(types))
    found, payloads = msgspec.json.schema_components(types, ref_template=place + "{name}")
    refs = dict(zip(types, found, strict=True))
    messages: dict[str, Any] = {
        f"client {name}": _request(name, kind, refs[kind])
        for name, (_, kind, _) in REQUESTS.items()
    }
    messages["client hub:connect"]["properties"]["metadata"] = {
        "anyOf": [refs[m.ConnectMetadata], {"type": "null"}]
    }
    messages |= {
        f"hub {name}": _reply(name, kinds, [refs[kind] for kind in kinds])
        for name, kinds in REPLIES.items()
    }
    messages["hub delivery"] = _delivery()
    messages |= {
        f"client {name}": _command(name, kind, refs[kind], needed)
        for name, (kind, needed) in COMMANDS.items()
    }
    messages |= _synap_answers()
    messages |= _envelopes(refs[m.Topic])
    messages["client ping"] = _object("a sign of life", {"type": {"const": "ping"}}, closed=True)
    messages["hub pong"] = _object("the answer to a ping", {"type": {"const": "pong"}}, closed=True)
    return messages, payloads


def _request(name: str, kind: type[Struct], payload: dict[str, Any]) -> dict[str, Any]:
    needed = _NEEDED.get(name)
    whole: dict[str, Any] = {"anyOf": [payload, {"type": "null"}]}
    if needed:
        whole = {"allOf": [payload, {"type": "object", "required": needed}]}
    schema = _object(
        _first_line(kind),
        {
            "type": {"const": name},
            "id": _TEXT_OR_NULL,
            "from": _TEXT_OR_NULL,
            "to": _TEXT_OR_NULL,
            "payload": whole,
            "pattern": {"enum": ["tell", "ask", "request", "notify", None]},
            "correlationId": _TEXT_OR_NULL,
            "timestamp": _NUMBER_OR_NULL,
            "metadata": {"type": ["object", "null"]},
            "ttl": _NUMBER_OR_NULL,
            "signature": True,
        },
    )
    schema["required"] = ["type", "payload"] if needed else ["type"]
    return schema


def _reply(
    name: str, kinds: tuple[type[Struct], ...], refs: list[dict[str, Any]]
) -> dict[str, Any]:
    return _object(
        _first_line(kinds[0]) if kinds else f"{name}: counters of the hub",
        _keys_of_a({"const": name}, {"anyOf": refs} if refs else {"type": "object"}),
        closed=True,
    )


def _delivery() -> dict[str, Any]:
    keys = _keys_of_a({"type": "string", "minLength": 1}, True)
    keys["pattern"] = {"enum": ["tell", "ask", "request", "notify"]}
    keys["metadata"] = {
        "type": "object",
        "properties": {
            "forwarded": {"const": True},
            "via": _TEXT,
            "topic": _TEXT,
            "publication": {"const": True},
            "broadcast": {"const": True},
            "originalMessageId": _TEXT,
        },
        "required": ["forwarded", "via"],
    }
    return _object("a message of another actor, or on a topic", keys, closed=True)


def _keys_of_a(kind: dict[str, Any], payload: Any) -> dict[str, Any]:
    return {
        "id": {"type": "string", "format": "uuid"},
        "from": _TEXT,
        "to": _TEXT,
        "type": kind,
        "payload": payload,
        "pattern": {"const": "tell"},
        "correlationId": _TEXT_OR_NULL,
        "timestamp": _INTEGER,
        "metadata": {"type": "object"},
        "ttl": {"type": "null"},
        "signature": {"type": "null"},
    }


def _command(
    name: str, kind: type[Struct], payload: dict[str, Any], needed: list[str]
) -> dict[str, Any]:
    schema = _object(
        _first_line(kind),
        {
            "command": {"const": name},
            "request_id": True,
            "payload": {"allOf": [payload, {"type": "object", "required": needed}]}
            if needed
            else {"anyOf": [payload, {"type": "null"}]},
        },
    )
    schema["required"] = ["command", "payload"] if needed else ["command"]
    return schema


def _synap_answers() -> dict[str, Any]:
    common = {"request_id": True}
    return {
        "hub synap success": _object(
            "a command that was carried out",
            {"success": {"const": True}, **common, "payload": {"type": "object"}}
            | {"error": {"type": "null"}},
            closed=True,
        ),
        "hub synap failure": _object(
            "a command that was refused",
            {"success": {"const": False}, **common, "payload": {"type": "null"}, "error": _TEXT},
            closed=True,
        ),
        "hub synap connected": _object(
            "the first message of /pubsub/ws",
            {
                "type": {"const": "connected"},
                "subscriber_id": _TEXT,
                "topics": {"type": "array", "items": _TEXT},
                "subscription_count": _INTEGER,
            },
            closed=True,
        ),
        "hub synap message": _object(
            "a message on a topic, as Synap pushes it",
            {
                "type": {"const": "message"},
                "message_id": _TEXT,
                "topic": _TEXT,
                "payload": True,
                "message": True,
                "metadata": {"type": ["object", "null"]},
                "timestamp": _INTEGER,
            },
            closed=True,
        ),
    }


def _envelopes(topic: dict[str, Any]) -> dict[str, Any]:
    control = {
        f"client {kind}": _object(
            f"an envelope that asks to {kind.strip('_')}",
            {"type": {"const": kind}, "id": _TEXT, "payload": topic},
            closed=True,
        )
        for kind in ("__subscribe", "__unsubscribe")
    }
    kind = {"type": "string", "minLength": 1, "not": {"pattern": "^(__|hub:)"}}
    keys = {"type": kind, "id": _TEXT, "payload": True}
    return control | {
        "client envelope": _object("an envelope, whose topic is type:id", keys, closed=True),
        "hub envelope": _object("an envelope of another connection", dict(keys), closed=True),
    }


def _object(
    description: str, properties: dict[str, Any], *, closed: bool = False
) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    if closed:
        schema["additionalProperties"] = False
    return schema


def _first_line(kind: type[Struct]) -> str:
    return (kind.__doc__ or kind.__name__).strip().partition("\n")[0].rstrip(".").replace("``", "")


def _escape(name: str) -> str:
    """Return a definition's name as it stands in a reference (RFC 6901, RFC 3986)."""
    return name.replace(" ", "%20")


def _key(name: str) -> str:
    """Return a name as AsyncAPI allows it for a component."""
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)


def _in(channel: str, key: str) -> dict[str, str]:
    return {"$ref": f"#/channels/{channel}/messages/{key}"}
