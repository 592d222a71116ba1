"""Reading of ``hub:*`` messages: payloads, metadata, addresses; and the error for a bad one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from pubsubd.hub.actors import canonical
from pubsubd.hub.topics import ForbiddenError

_json = msgspec.json.decode

Payload = TypeVar("Payload", bound=Struct)


class _Decoders(dict[type[Struct], Callable[[bytes], Struct]]):
    """Decoders of payloads, by their types; made when first needed."""

    def __missing__(self, type_: type[Struct]) -> Callable[[bytes], Struct]:
        self[type_] = decode = msgspec.json.Decoder(type_).decode
        return decode


_DECODERS = _Decoders()


class RefusedError(Exception):
    """A message that is answered with hub:error.

    Attributes:
        closes: whether the connection ends because of it.
    """

    def __init__(
        self,
        code: str,
        text: str,
        details: dict[str, Any] | None = None,
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(text)
        self.closes = closes
        self.code = code
        self.text = text
        self.details = details or {}


def error_code(error: Exception) -> str:
    """Return the code of the hub:error that answers a message."""
    if isinstance(error, RefusedError):
        return error.code
    return "unauthorized" if isinstance(error, ForbiddenError) else "internal_error"


def read_payload(raw: Raw, type_: type[Payload]) -> Payload:
    """Return a payload, absent or null as an empty one; raises RefusedError for another shape."""
    text = bytes(raw)
    if not text or text == b"null":
        return type_()
    try:
        return _DECODERS[type_](text)  # type: ignore[return-value]
    except msgspec.DecodeError as error:
        raise RefusedError("internal_error", f"payload: {error}") from None


def read_metadata(raw: Raw, type_: type[Payload]) -> Payload:
    """Return the known fields of ``metadata``, which is read as empty if it has another shape."""
    text = bytes(raw)
    if text[:1] != b"{":
        return type_()
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.DecodeError:
        return type_()


def read_object(raw: Raw) -> dict[str, Any]:
    """Return a JSON object, an empty one in place of anything else."""
    text = bytes(raw)
    value = _json(text) if text[:1] == b"{" and text != b"{}" else None
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str | None:
    """Return ``value`` if it is a string."""
    return value if isinstance(value, str) else None


def key_of(address: str) -> str:
    """Return the canonical form of an address, empty if it is none."""
    return canonical(address) or ""


def shown(text: str) -> str:
    """Return the beginning of a text that a client has sent."""
    return text if len(text) <= 64 else text[:64] + "..."


def whole(number: float | None) -> float | None:
    """Return a number as an integer if it is one and not huge, so that it is written as one."""
    if number is None or abs(number) >= 2**63:
        return number
    return int(number) if number == int(number) else number


def checked_type(kind: str | None) -> str:
    """Return the type of a message to deliver; raises RefusedError unless it is legal."""
    if not kind:
        raise RefusedError("internal_error", "payload.type is required")
    if len(kind) > 256 or " " in kind or "\r" in kind or "\n" in kind:
        raise RefusedError(
            "internal_error", "payload.type has at most 256 characters, no space, CR or LF"
        )
    if kind.startswith("hub:"):  # or a client could be made to take it for the hub's
        raise RefusedError("internal_error", "payload.type must not begin with hub:")
    return kind
