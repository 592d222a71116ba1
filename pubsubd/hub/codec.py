"""Messages of the hub port as the data of line frames, and back.

A JSON publication travels as compact JSON, ``{"type","from","payload"}``, to which Synap adds
``"id"`` and ``"metadata"``. Anything else came from the line port as text or bytes and becomes a
``pubsub:message`` with ``{"name","data"}`` or ``{"name","dataBase64"}``; published again in that
form, it becomes the text or bytes that it was. So a round trip restores what was sent, either way.

Invariants:

- Text or bytes that :func:`to_line` writes as such, :func:`from_line` does not take for an object
  of the above form. So nobody can make up a ``from`` by sending text that looks like a message.
- All data is read strictly, whoever has sent it (once, if another worker has taken it in):
  :attr:`Message.payload` and :attr:`Message.metadata` are legal JSON, in one line, and can be put
  into a larger text.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pubsubd.hub.strict import JsonError, read

PLAIN = "pubsub:message"
"""The type of a message that has none of its own."""

_encode = msgspec.json.Encoder().encode
_DATA = b'"data'
_SPACE = b" \t\r\n"

MAYBE_JSON = _SPACE + b"{"
"""What data begins with that may be a JSON object."""


class Message(Struct, gc=False):
    """A message that is delivered.

    Attributes:
        name: the topic.
        type: its type.
        payload: its payload, a JSON text.
        sender: the address of who sent it, bare or wrapped.
        id: its identifier, if it has one.
        metadata: an object, as a JSON text, if it has one.
    """

    name: bytes
    type: str
    payload: bytes
    sender: str
    id: str | None = None
    metadata: bytes | None = None


class _Inner(Struct, rename={"sender": "from"}):
    type: str
    payload: Raw
    sender: Any = None
    id: Any = None
    metadata: Raw = Raw(b"")


class _Plain(Struct, forbid_unknown_fields=True, rename={"base64": "dataBase64"}):
    name: str
    data: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


_decode_inner = msgspec.json.Decoder(_Inner).decode
_decode_plain = msgspec.json.Decoder(_Plain).decode


def to_line(
    name: bytes,
    type: str,  # noqa: A002  (it is called so everywhere)
    sender: str,
    payload: bytes,
    id: str | None = None,  # noqa: A002
    metadata: bytes | None = None,
) -> bytes:
    """Return the data of the line frame for a publication.

    Args:
        name: its topic.
        type: its type.
        sender: the sender's address.
        payload: its payload, a legal JSON text, as :func:`~pubsubd.hub.strict.read` returns it.
        id: its identifier.
        metadata: an object, as a JSON text.
    """
    if type == PLAIN and metadata is None and _DATA in payload:
        plain = _to_plain(name, payload)
        if plain is not None:
            return plain
    head = b'{"type":%b,"from":%b,"payload":%b' % (_encode(type), _encode(sender), payload)
    if id is not None:
        head += b',"id":%b' % _encode(id)
    if metadata is not None:
        head += b',"metadata":%b' % metadata
    return head + b"}"


def known(
    name: bytes,
    type: str,  # noqa: A002
    sender: str,
    payload: bytes,
    id: str | None = None,  # noqa: A002
    metadata: bytes | None = None,
) -> Message | None:
    """Return the message that :func:`from_line` makes of what :func:`to_line` returns for it.

    None if that has to be read to tell: it may be text or bytes.
    """
    if type == PLAIN and metadata is None and _DATA in payload:
        return None
    return Message(name, type, payload, sender, id, metadata)


def _to_plain(name: bytes, payload: bytes) -> bytes | None:
    """Return the text or bytes that a payload stands for; None if it stands for none."""
    try:
        plain = _decode_plain(payload)
    except msgspec.DecodeError:
        return None
    if plain.name.encode() != name or (plain.data is UNSET) == (plain.base64 is UNSET):
        return None
    if isinstance(plain.data, str):
        data = plain.data.encode()
    else:
        assert isinstance(plain.base64, str)
        try:
            data = base64.b64decode(plain.base64, validate=True)
        except ValueError:
            return None
        if base64.b64encode(data).decode() != plain.base64:
            return None
    return data if _read(data) is None else None


def from_line(name: bytes, data: bytes, sender: str, trusted: bool) -> Message:
    """Return the message that the data of a line frame is.

    Args:
        name: its topic.
        data: the frame's data.
        sender: the sender's address.
        trusted: whether :func:`to_line` has made it, so that the sender in it is true.
    """
    inner = _read(data)
    if inner is not None:
        metadata = bytes(inner.metadata)
        return Message(
            name,
            inner.type,
            bytes(inner.payload),
            inner.sender if trusted and isinstance(inner.sender, str) else sender,
            inner.id if isinstance(inner.id, str) else None,
            metadata if metadata.startswith(b"{") else None,
        )
    if payload := with_text(before_text(name), data):
        return Message(name, PLAIN, payload, sender)
    plain = {"name": name.decode(), "dataBase64": base64.b64encode(data).decode()}
    return Message(name, PLAIN, _encode(plain), sender)


def before_text(name: bytes) -> bytes:
    """Return the payload of a message of the line port up to its text."""
    return b'{"name":%b,"data":' % _encode(name.decode())


def with_text(before: bytes, data: bytes) -> bytes:
    """Return that payload for data that is text; nothing if it is not."""
    try:
        text = _encode(data.decode())
    except UnicodeDecodeError:
        return b""
    return b"".join((before, text, b"}"))


def _read(data: bytes) -> _Inner | None:
    """Return the object that data is, if it is one with the keys of a message."""
    if not data or data[0] not in MAYBE_JSON or not data.lstrip(_SPACE).startswith(b"{"):
        return None
    try:
        return _decode_inner(read(data)[1])
    except (JsonError, msgspec.ValidationError):
        return None
