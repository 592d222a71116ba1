"""JSON for people: indented, coloured, and otherwise exactly as it was written."""

from __future__ import annotations

import re

import msgspec

from pubsubd.protocol.limits import KIB

MAX_SIZE = 64 * KIB
"""Bytes of JSON that is indented; larger texts are shown as any others."""

MAX_DEPTH = 32
"""Levels of JSON that is indented: at each of them, every line becomes longer."""

CYAN, _BLUE, _GREEN, _MAGENTA = "\x1b[36m", "\x1b[1;34m", "\x1b[32m", "\x1b[35m"
RESET = "\x1b[0m"

_STRING = r'"(?:[^"\\]|\\.)*"'
_brackets = re.compile(rf"{_STRING}|[\[{{]|[\]}}]").finditer
_colour = re.compile(rf"({_STRING})(:)?|(-?[0-9][0-9.eE+-]*)|(true|false|null)").sub


def pretty_json(data: bytes, room: int, *, colours: bool) -> str | None:
    """Return an object or an array as printable text; None if ``data`` is neither.

    Args:
        data: what may be JSON, in UTF-8.
        room: characters up to which it is left on one line.
        colours: whether keys and values are coloured.
    """
    if len(data) > MAX_SIZE or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        line = msgspec.json.format(data.decode(), indent=0)
        if _depth(line) > MAX_DEPTH:
            return None
        text = line if len(line) <= room else msgspec.json.format(line, indent=2)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    text = "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)
    return _colour(_coloured, text) if colours else text


def _depth(text: str) -> int:
    depth = deepest = 0
    for found in _brackets(text):
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]}":
            depth -= 1
    return deepest


def _escaped(char: str) -> str:
    """Return a character, which can only be in a string, as JSON escapes it."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _coloured(found: re.Match[str]) -> str:
    text, colon, number, _word = found.groups()
    if text is not None:
        return f"{_BLUE if colon else _GREEN}{text}{RESET}{colon or ''}"
    return f"{CYAN if number is not None else _MAGENTA}{found[0]}{RESET}"
