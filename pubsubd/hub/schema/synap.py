"""Synap's messages, whole: commands, their answers, what is pushed, and HTTP's bodies."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from pubsubd.hub.messages import WORD
from pubsubd.hub.schema.parts import (
    ANY,
    INTEGER,
    NULL,
    OBJECT_OR_NULL,
    TEXT,
    Refs,
    Schema,
    has,
    record,
    summary,
)
from pubsubd.hub.synap import requests


class Published(Struct):
    """Answer to pubsub.publish."""

    message_id: str
    topic: str
    subscribers_matched: int


class Subscribed(Struct):
    """Answer to pubsub.subscribe."""

    subscriber_id: str
    topics: list[str]
    subscription_count: int


class Unsubscribed(Struct):
    """Answer to pubsub.unsubscribe: the number of topics that were ended."""

    unsubscribed: int


class Topics(Struct):
    """Answer to pubsub.topics: some of them, and how many there are."""

    topics: list[str]
    count: int
    daemon: str | UnsetType = UNSET


class TopicInfo(Struct):
    """Answer to pubsub.info; ``created_at`` in epoch seconds."""

    topic: str
    subscriber_count: int
    message_count: int
    created_at: int
    daemon: str | UnsetType = UNSET


class TopTopic(Struct):
    """One of the topics with the most messages."""

    topic: str
    subscribers: int
    messages: int


class Stats(Struct):
    """Answer to pubsub.stats."""

    total_topics: int
    total_subscribers: int
    total_wildcard_subscriptions: int
    messages_published: int
    messages_delivered: int
    slow_consumers_dropped: int
    delivery_failures: int
    avg_delivery_latency_ms: float
    top_topics: list[TopTopic]
    daemon: str | UnsetType = UNSET


COMMANDS: dict[str, tuple[type[Struct], type[Struct]]] = {
    "pubsub.publish": (requests.Publish, Published),
    "pubsub.subscribe": (requests.Subscribe, Subscribed),
    "pubsub.unsubscribe": (requests.Unsubscribe, Unsubscribed),
    "pubsub.topics": (requests.List, Topics),
    "pubsub.info": (requests.Info, TopicInfo),
    "pubsub.stats": (requests.Nothing, Stats),
}
"""Command -> its payload, and that of its answer."""

TYPES = [kind for kinds in COMMANDS.values() for kind in kinds]
"""All types of payloads."""

_TOPIC: Schema = {"type": "string", "minLength": 1, "pattern": WORD}
_VALUES: list[Schema] = [{"required": [key]} for key in ("payload", "data", "message")]

_NEEDED: dict[str, Schema] = {
    "pubsub.publish": {"properties": {"topic": _TOPIC}, "required": ["topic"], "anyOf": _VALUES},
    "pubsub.subscribe": {
        "properties": {
            "topics": {"items": _TOPIC, "minItems": 1, "maxItems": 1_000},
            "subscriber_id": {"minLength": 1, "maxLength": 256},
        },
        "required": ["topics"],
    },
    "pubsub.unsubscribe": {"properties": {"topics": {"maxItems": 1_000}}},
    "pubsub.info": {"properties": {"topic": _TOPIC}, "required": ["topic"]},
}
"""Command -> what more its payload has to be."""


def commands(refs: Refs) -> dict[str, Schema]:
    """Return the commands by their definitions' names."""
    found = {}
    for name, (kind, _) in COMMANDS.items():
        payload: Schema = {"allOf": [refs[kind], _NEEDED.get(name, {})]}
        needed = ["command", "payload"]
        if "required" not in _NEEDED.get(name, {}):
            payload = {"anyOf": [payload, NULL]}
            needed = ["command"]
        found[f"client_{name.replace('.', '_')}"] = record(
            summary(kind),
            {"command": {"const": name}, "request_id": ANY, "payload": payload},
            needed=needed,
        )
    return found


def answers(refs: Refs) -> dict[str, Schema]:
    """Return the answers to commands by name; an answer does not say which command it is for."""
    found = {
        f"daemon_{name.replace('.', '_')}": _answer(summary(kind), True, refs[kind], NULL)
        for name, (_, kind) in COMMANDS.items()
    }
    return found | {
        "daemon_pubsub_failure": _answer("A command that was refused", False, NULL, TEXT)
    }


def pushes() -> dict[str, Schema]:
    """Return the messages that come without a command, by name."""
    return {
        "daemon_pubsub_connected": record(
            "The first message of /pubsub/ws",
            {
                "type": {"const": "connected"},
                "subscriber_id": TEXT,
                "topics": {"type": "array", "items": TEXT},
                "subscription_count": INTEGER,
            },
            closed=True,
        ),
        "daemon_pubsub_message": record(
            "A message on a topic; its timestamp is in epoch seconds",
            {
                "type": {"const": "message"},
                "message_id": TEXT,
                "topic": TEXT,
                "payload": ANY,
                "message": ANY,
                "metadata": OBJECT_OR_NULL,
                "timestamp": INTEGER,
            },
            closed=True,
        ),
    }


def over_http(refs: Refs) -> dict[str, Schema]:
    """Return the bodies that only HTTP has, by name; others are payloads of commands."""
    health = ("status", "service", "version", "timestamp")
    publish = refs[requests.Publish]
    return {
        "http_publish": {
            "description": "The body of POST /pubsub/{topic}/publish",
            "allOf": [publish, {"anyOf": _VALUES}],
        },
        "http_subscribe": {
            "description": "The body of POST /pubsub/subscribe",
            "allOf": [refs[requests.Subscribe], _NEEDED["pubsub.subscribe"]],
        },
        "http_unsubscribe": {
            "description": "The body of POST /pubsub/unsubscribe",
            "allOf": [refs[requests.Unsubscribe], has("subscriber_id")],
        },
        "http_health": record("What GET /health answers", dict.fromkeys(health, TEXT), closed=True),
        "http_error": record("Why a request was refused", {"error": TEXT}, closed=True),
    }


def _answer(description: str, success: Any, payload: Schema, error: Schema) -> Schema:
    return record(
        description,
        {
            "success": {"const": success},
            "request_id": ANY,
            "payload": payload,
            "error": error,
        },
        closed=True,
    )
