"""Interests: the substrings under ``//fwd/`` that a daemon asks the mesh for.

Too many of them are made fewer by cutting them: a shorter substring covers all longer ones that
begin with it. So too much may be sent, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubsubd.broker.turn import Steps, finish
from pubsubd.protocol.wire import FORWARD

MAX_INTERESTS = 1_000
"""Substrings in one advert."""

MAX_INTEREST_BYTES = 64 * 1024
"""Bytes of them all."""

_STEP = 256  # substrings between two looks at the clock


def generalise(
    interests: Iterable[bytes], most: int = MAX_INTERESTS, most_bytes: int = MAX_INTEREST_BYTES
) -> tuple[bytes, ...]:
    """Return the result of :func:`generalising`, without a pause."""
    return finish(generalising(interests, most, most_bytes))


def generalising(
    interests: Iterable[bytes], most: int = MAX_INTERESTS, most_bytes: int = MAX_INTEREST_BYTES
) -> Steps[tuple[bytes, ...]]:
    """Return, in steps and in order, substrings that cover all ``interests``.

    All ``interests`` begin with ``//fwd/``. They are returned as they are if they are at most
    ``most`` with at most ``most_bytes``; else they are cut behind a slash, all at the same level,
    as far to the right as will do.
    """
    every = tuple(interests)  # they may change between the steps
    found = yield from _cut_all(every, None, most, most_bytes)
    if found is None:
        deepest = 0
        for start in range(0, len(every), _STEP):
            yield
            part = every[start : start + _STEP]
            deepest = max(deepest, *(substring.count(b"/") for substring in part))
        low, high = FORWARD.count(b"/"), deepest + 1  # what is cut deeper is never fewer
        found = frozenset((FORWARD,))
        while high - low > 1:
            level = (low + high) // 2
            cut = yield from _cut_all(every, level, most, most_bytes)
            if cut is None:
                high = level
            else:
                found, low = cut, level
    return tuple(sorted(found))


def _cut_all(
    substrings: Sequence[bytes], level: int | None, most: int, most_bytes: int
) -> Steps[frozenset[bytes] | None]:
    """Return the substrings cut at a level, if there is one; None as soon as they are too many."""
    if level is None and len(substrings) > most:
        return None
    found: set[bytes] = set()
    size = 0
    for number, substring in enumerate(substrings):
        if number % _STEP == 0:
            yield
        cut = substring if level is None else _cut(substring, level)
        if cut not in found:
            found.add(cut)
            size += len(cut)
            if len(found) > most or size > most_bytes:
                return None
    return frozenset(found)


def _cut(substring: bytes, level: int) -> bytes:
    """Return ``substring`` up to its slash number ``level``, or all of it if there are fewer."""
    parts = substring.split(b"/", level)
    return substring if len(parts) <= level else substring[: len(substring) - len(parts[level])]
