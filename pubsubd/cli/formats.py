"""Output formats of ``pubsubd sub``: a message in, bytes out."""

from __future__ import annotations

import base64
import json
import re
import shutil
import string
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from pubsubd.cli.pretty import CYAN, RESET, pretty_json
from pubsubd.cli.streams import encoded
from pubsubd.cli.terminal import coloured
from pubsubd.client import Message
from pubsubd.protocol.wire import escape

Format: TypeAlias = Callable[[Message], bytes]

FIELDS = ("name", "data", "length", "time")


def parse_format(text: str, *, terminal: bool) -> Format:
    """Return the format that ``text`` names or spells; raise :class:`ValueError`.

    For a ``terminal``, names and data are escaped, and so is what it cannot show; ``raw`` alone is
    raw everywhere. ``pretty`` is for people everywhere.
    """
    if text == "pretty":
        return _pretty(colours=coloured())
    if text == "text":
        return _text_for_terminal if terminal else _text
    if text == "raw":
        return _raw
    if text == "json":
        return _json
    return _template(text, terminal=terminal)


def now() -> str:
    """Return the time in UTC, in ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(message: Message) -> bytes:
    return b"%b %b\n" % (message.name.encode(), message.data)


def _text_for_terminal(message: Message) -> bytes:
    return encoded(f"{escape(message.name)} {escape(message.data)}\n")


def _pretty(*, colours: bool) -> Format:
    def render(message: Message) -> bytes:
        name = escape(message.name)
        room = shutil.get_terminal_size().columns - len(name) - 1
        data = pretty_json(message.data, room, colours=colours)
        if data is None:
            data = escape(message.data)
        shown = f"{CYAN}{name}{RESET}" if colours else name
        return encoded(f"{shown} {data}\n")

    return render


def _raw(message: Message) -> bytes:
    return message.data


def _json(message: Message) -> bytes:
    shown: dict[str, object] = {
        "time": now(),
        "name": message.name,
        "length": len(message.data),
    }
    try:
        shown["data"] = message.data.decode()
    except UnicodeDecodeError:
        shown["data_base64"] = base64.b64encode(message.data).decode()
    # ASCII: what JSON leaves as it is otherwise includes controls beyond 0x7f.
    return json.dumps(shown).encode() + b"\n"


def _template(text: str, *, terminal: bool) -> Format:
    if "{" not in text:
        raise ValueError(
            f"{text!r} is not pretty, text, raw, json or a template with {{name}} or {{data}}"
        )
    # Escapes are for the template's own text only, not for the values of fields.
    escapes = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
    template = re.sub(r"\\[nt\\]", lambda found: escapes[found[0]], text) + "\n"
    for _, field, spec, _ in string.Formatter().parse(template):
        # Plain fields only: neither attributes nor a width taken from another field.
        if field is not None and (field not in FIELDS or "{" in (spec or "")):
            raise ValueError(f"{{{field}}} is not one of {{name}} {{data}} {{length}} {{time}}")
    timed = "{time" in template

    def render(message: Message) -> bytes:
        name, data = message.name, message.data.decode("utf-8", "surrogateescape")
        if terminal:
            name, data = escape(name), escape(message.data)
        shown = template.format(
            name=name, data=data, length=len(message.data), time=now() if timed else ""
        )
        return encoded(shown) if terminal else shown.encode("utf-8", "surrogateescape")

    try:
        render(Message("name", b"data"))
    except (ValueError, KeyError, IndexError) as exc:
        raise ValueError(f"{text!r}: {exc}") from None
    return render
