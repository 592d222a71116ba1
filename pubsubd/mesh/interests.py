"""What a daemon asks the mesh for: the substrings under ``//fwd/`` that its peers subscribe.

Too many of them are made fewer by making them shorter: a substring covers all that it begins, so
too much may be sent then, and never too little.
"""

from __future__ import annotations

from collections.abc import Iterable

from pubsubd.wire import FORWARD

MAX_INTERESTS = 1_000
"""Substrings in one advert."""

MAX_INTEREST_BYTES = 64 * 1024
"""Bytes of them all."""


def generalise(
    wanted: Iterable[bytes], most: int = MAX_INTERESTS, most_bytes: int = MAX_INTEREST_BYTES
) -> tuple[bytes, ...]:
    """Return substrings that cover all of ``wanted``, which begin with ``//fwd/``, in order.

    They are the same ones as long as these are at most ``most`` with at most ``most_bytes``; else
    they are cut behind a slash, all at the same level, as far to the right as will do.
    """
    found = sorted(set(wanted))
    if _fit(found, most, most_bytes):
        return tuple(found)
    levels = max(substring.count(b"/") for substring in found)
    for level in range(levels, FORWARD.count(b"/"), -1):
        cut = sorted({_cut(substring, level) for substring in found})
        if _fit(cut, most, most_bytes):
            return tuple(cut)
    return (FORWARD,)


def _fit(substrings: list[bytes], most: int, most_bytes: int) -> bool:
    return len(substrings) <= most and sum(map(len, substrings)) <= most_bytes


def _cut(substring: bytes, level: int) -> bytes:
    """Return ``substring`` up to its slash number ``level``, or all of it if there are fewer."""
    parts = substring.split(b"/", level)
    return substring if len(parts) <= level else substring[: len(substring) - len(parts[level])]
