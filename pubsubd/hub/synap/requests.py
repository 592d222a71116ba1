"""Requests to Synap, as types, and their errors, in the words that Synap's clients know.

The payloads are read leniently: unknown fields are ignored. :data:`_FAULTS` has the error for a
field of a wrong type.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert

from pubsubd.hub import strict
from pubsubd.protocol.errors import PubsubdError

_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind", bound=Struct)


class SynapError(PubsubdError):
    """A command that is refused.

    Attributes:
        text: the reason, for the client.
        status: of the answer, where the command came as a REST request.
    """

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


def invalid(text: str) -> SynapError:
    """Return the error for a request that is malformed or over a limit."""
    return SynapError(f"Invalid request: {text}")


class Publish(Struct):
    """pubsub.publish: ``payload``, or ``data``, or ``message``, in that order; any may be null."""

    topic: str | UnsetType = UNSET
    payload: Any = UNSET
    data: Any = UNSET
    message: Any = UNSET
    metadata: dict[str, Any] | None = None


class Subscribe(Struct):
    """pubsub.subscribe."""

    topics: list[str] | UnsetType = UNSET
    subscriber_id: str | None = None


class Unsubscribe(Struct):
    """pubsub.unsubscribe: all topics, unless it says which."""

    subscriber_id: str | None = None
    topics: list[str] | None = None


class List(Struct):
    """pubsub.topics: which part of them."""

    offset: int = 0
    limit: int | None = None


class Info(Struct):
    """pubsub.info."""

    topic: str | UnsetType = UNSET


class Nothing(Struct):
    """pubsub.stats."""


_NO_OBJECT = "'payload' must be an object"
_FAULTS = {
    "topic": "Missing 'topic' field",
    "topics": "'topics' must be an array",
    "topics[": "'topics' must be an array of strings",
    "subscriber_id": "'subscriber_id' must be a string",
    "metadata": "'metadata' must be an object",
    "offset": "'offset' must be an integer",
    "limit": "'limit' must be an integer",
}
_find_field = re.compile(r"`\$\.([a-z_]+)(\[)?").search


def read_payload(payload: object, kind: type[_Kind]) -> _Kind:
    """Return the payload of a command as its type; one that is null has no fields.

    Raises:
        SynapError: it is no object, or a field has a wrong type.
    """
    try:
        return convert({} if payload is None else payload, kind)
    except ValidationError as error:
        field = _find_field(str(error))
        text = _NO_OBJECT if field is None else _FAULTS[field[1] + (field[2] or "")]
        raise invalid(text) from None


def required(value: _Value | UnsetType, field: str) -> _Value:
    """Return the value of a field that must not be missing."""
    if isinstance(value, UnsetType):
        raise invalid(f"Missing '{field}' field")
    return value


def rest(method: str, path: str, body: bytes) -> tuple[str, object] | None:
    """Return the command that a REST request is, and its payload; None if there is no such path.

    Args:
        method: of the request; a HEAD is a GET.
        path: percent-decoded; the topic in it may have slashes.
        body: JSON, of a POST.

    Raises:
        JsonError: the body is none.
        SynapError: the body is no object.
    """
    if method == "POST":
        if path in ("/pubsub/subscribe", "/pubsub/unsubscribe"):
            return f"pubsub.{path[8:]}", strict.decode(body)
        topic = _topic_in(path, "/publish")
        if topic is not None:
            payload = strict.decode(body)
            if not isinstance(payload, dict):
                raise invalid(_NO_OBJECT)
            return "pubsub.publish", {**payload, "topic": topic}
    elif method in ("GET", "HEAD"):
        if path in ("/pubsub/stats", "/pubsub/topics"):
            return f"pubsub.{path[8:]}", {}
        topic = _topic_in(path, "/info")
        if topic is not None:
            return "pubsub.info", {"topic": topic}
    return None


def status(error: SynapError) -> int:
    """Return the HTTP status of the answer to a refused REST request."""
    return error.status


def _topic_in(path: str, action: str) -> str | None:
    """Return ``{topic}``, of ``/pubsub/{topic}`` and ``action``; None if the path is another."""
    head = "/pubsub/"
    if len(path) < len(head) + len(action) or not path.startswith(head):
        return None
    return path[len(head) : -len(action)] if path.endswith(action) else None
