"""An AsyncAPI 3.0 document of what is spoken over WebSocket.

It is written from the daemon's side: an operation that receives is a message of a client's.
"""

from __future__ import annotations

from typing import Any

from pubsubd import __version__
from pubsubd.hub.schema import signal, synap
from pubsubd.hub.schema.definitions import definitions
from pubsubd.hub.schema.parts import Schema

_WS = "0.1.0"  # version of the binding

_PUSHED = {
    "publication": ["daemon_publication"],
    "message": ["daemon_message", "daemon_broadcast"],
    "displaced": ["daemon_hub_disconnect"],
    "close_reason": ["daemon_hub_error"],
    "registration_lost": ["daemon_hub_registration_lost"],
    "synap": ["daemon_pubsub_message"],
    "envelope": ["daemon_envelope"],
}
"""Operation -> messages that come without a request."""


def asyncapi() -> Schema:
    """Return the document."""
    spoken, others = definitions("#/components/schemas/")
    server = {
        "host": "127.0.0.1:9015",
        "protocol": "ws",
        "protocolVersion": "13",
        "bindings": {"ws": {}},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "pubsubd hub port",
            "version": __version__,
            "description": "JSON that is bridged with the line protocol; see pubsubd-hub(7).",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": server
            | {
                "description": "One JSON text a message. On the same port, without WebSocket, one a"
                " line."
            },
            "guarded": server
            | {
                "description": "A daemon that asks for a login; a token may come in hub:connect"
                " as well.",
                "security": [
                    {"$ref": "#/components/securitySchemes/bearer"},
                    {"$ref": "#/components/securitySchemes/basic"},
                    {"$ref": "#/components/securitySchemes/query"},
                ],
            },
        },
        "channels": _channels(list(spoken)),
        "operations": _operations(),
        "components": {
            "messages": {
                name: {
                    "name": name,
                    "title": schema["description"],
                    "payload": {"$ref": f"#/components/schemas/{name}"},
                }
                for name, schema in spoken.items()
            },
            "schemas": spoken | others,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "query": {"type": "httpApiKey", "name": "access_token", "in": "query"},
            },
        },
    }


def _channels(names: list[str]) -> dict[str, Any]:
    messages = {name: {"$ref": f"#/components/messages/{name}"} for name in names}
    connected = "daemon_pubsub_connected"
    first = {connected: messages.pop(connected)}
    return {
        "hub": {
            "address": "/ws",
            "description": "All dialects; each message is recognised by its shape.",
            "messages": messages,
            "bindings": {"ws": {"method": "GET", "bindingVersion": _WS}},
        },
        "synap": {
            "address": "/pubsub/ws",
            "description": "As /ws, and subscribed from the start to the topics in the query.",
            "messages": messages | first,
            "bindings": {
                "ws": {
                    "method": "GET",
                    "query": {
                        "type": "object",
                        "required": ["topics"],
                        "properties": {
                            "topics": {
                                "type": "string",
                                "description": "topics and wildcards, with commas between them",
                            }
                        },
                    },
                    "bindingVersion": _WS,
                }
            },
        },
    }


def _operations() -> dict[str, Any]:
    """Return the operations: requests with their answers, and messages that come unasked."""
    found = {}
    for request, replies in signal.ANSWERS.items():
        key = request.replace(":", "_")
        found[key] = _asked(f"client_{key}", [*map(_daemon, replies), "daemon_hub_error"])
    for command in synap.COMMANDS:
        key = command.replace(".", "_")
        found[key] = _asked(f"client_{key}", [f"daemon_{key}", "daemon_pubsub_failure"])
    found["ping"] = _asked("client_ping", ["daemon_pong"])
    for name in ("client__subscribe", "client__unsubscribe", "client_envelope"):
        found[name.removeprefix("client_")] = _operation("receive", [name])
    for key, names in _PUSHED.items():
        found[f"push_{key}"] = _operation("send", names)
    found["push_connected"] = _operation("send", ["daemon_pubsub_connected"], "synap")
    return found


def _asked(request: str, replies: list[str]) -> dict[str, Any]:
    reply = _operation("send", replies)
    del reply["action"]
    return _operation("receive", [request]) | {"reply": reply}


def _operation(action: str, names: list[str], channel: str = "hub") -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names],
    }


def _daemon(reply: str) -> str:
    return f"daemon_{reply.replace(':', '_')}"
