"""Matching of actors: addresses by a pattern, metadata by keys and values.

Addresses are matched by RE2, whose time is linear in the length of the text whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import re2  # type: ignore[import-untyped]

from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import KIB

MAX_PATTERN = 1_024
"""Characters of a pattern."""

_MEMORY = 128 * KIB  # what RE2 may use for a pattern; enough for any 1,024 letters
_NEEDLES = 8  # keys and values looked for as they are written, before a text is read
_not_latin = re.compile(r"[^\x00-\xff]")
_stars = re.compile(r"\*+")


class PatternError(PubsubdError):
    """A pattern that cannot be used."""


def unwrap(pattern: str) -> str:
    """Return ``x`` for ``@(x)``."""
    wrapped = pattern.startswith("@(") and pattern.endswith(")")
    return pattern[2:-1] if wrapped else pattern


def matcher(pattern: str, *, glob: bool) -> Callable[[bytes], object] | None:
    """Return a function that matches addresses; None if the pattern matches any."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern has {len(pattern)} characters, over {MAX_PATTERN}")
    pattern = _not_latin.sub("\xff", pattern)  # for what is in no address
    if glob and pattern:
        pattern = "^" + ".*".join(re2.escape(part) for part in _stars.split(unwrap(pattern))) + "$"
    if pattern in ("", "^.*$"):
        return None
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # one byte a character: smaller programs
    code = pattern.encode("latin-1")
    patterns = re2.Set.SearchSet(options)
    try:
        patterns.Add(code)
        patterns.Compile()
    except re2.error as error:
        raise PatternError(f"the pattern cannot be used: {_reason(code, options, error)}") from None
    return patterns.Match  # type: ignore[no-any-return]  # half as long as a search takes


def _reason(code: bytes, options: re2.Options, error: Exception) -> str:
    """Return why RE2 does not accept a pattern."""
    try:
        re2.compile(code, options)  # it gives the reason, as the set does not
    except re2.error as better:
        error = better
    else:
        return "it is too large"
    text = error.args[0] if error.args else ""
    return text.decode("latin-1") if isinstance(text, bytes) else str(text)


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def selector(wanted: dict[str, Any]) -> Callable[[bytes], bool]:
    """Return a function that tells whether a JSON text is an object with these members."""
    texts = {key: msgspec.json.encode(value) for key, value in wanted.items()}
    # Without a backslash, a text has each of its strings as it is; null has none.
    needles = [msgspec.json.encode(key) for key in wanted]
    needles += [texts[key] for key, value in wanted.items() if isinstance(value, str)]
    del needles[_NEEDLES:]

    def has(text: bytes) -> bool:
        if b"\\" not in text:
            for needle in needles:
                if needle not in text:
                    return False
        members = _members(text)
        for key, value in wanted.items():
            member = members.get(key)
            if member is None:
                return False
            if bytes(member) != texts[key] and not _same(msgspec.json.decode(member), value):
                return False
        return True

    return has


def _same(one: object, other: object) -> bool:
    """Compare JSON values, of which 1 is 1.0, and true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other and isinstance(one, bool) is isinstance(other, bool)
