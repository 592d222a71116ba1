"""Names, numbers and times as a person reads them.

A daemon's name comes from anywhere: it may be long, hold markup, or marks that turn the direction
of what follows. :func:`visible` leaves nothing in it that is not seen.
"""

from __future__ import annotations

import math
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # Unicode's categories
NOTHING = "\N{EN DASH}"
"""Placeholder where there is no value."""


def visible(name: str) -> str:
    r"""Return ``name`` with what cannot be seen written out, as ``\u202e``."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(_escape(one) if unicodedata.category(one) in _UNSEEN else one for one in name)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(name: str, room: int) -> str:
    """Return ``name``, visible and in at most ``room`` characters; its middle may be missing.

    Names of one mesh often differ at their ends only.
    """
    name = visible(name)
    if len(name) <= room:
        return name
    tail = (room - 1) // 2
    return f"{name[: room - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{name[len(name) - tail :]}"


def number(value: float | None, digits: int = 4) -> str:
    """Return ``value`` with ``digits`` significant ones, and whole numbers with all of theirs."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else "-\N{INFINITY}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}g}"
    return f"{value:.{digits}g}"


def supposed(without: Sequence[Sequence[str]], added: Sequence[Sequence[str]]) -> str:
    """Return what a hypothetical report supposes, without an end; nothing if it is none."""
    said = [f"without {_ends(one)}" for one in without] + [f"with {_ends(one)}" for one in added]
    return f"Hypothetical: {', '.join(said)}" if said else ""


def _ends(names: Sequence[str]) -> str:
    return " - ".join(shorten(name, 40) for name in names)


def percent(value: float | None) -> str:
    """Return a share as ``14.3 %``; what is not all or nothing is never rounded to it."""
    if value is None or math.isnan(value):
        return NOTHING
    text = number(100 * value, 3)
    if (text == "100") != (value == 1):
        text = "> 99.9" if value < 1 else number(100 * value, 5)
    return f"{text} %"


def quantity(value: float | None, unit: str, error: float | None = None) -> str:
    """Return ``value`` in its unit, with its error where it has one."""
    if value is None or math.isnan(value):
        return NOTHING
    show = percent if unit == "share" else number
    text = show(value)
    if error:
        text += f" \N{PLUS-MINUS SIGN} {percent(error) if unit == 'share' else number(error, 2)}"
    return text


def count(value: float, one: str, many: str = "") -> str:
    """Return ``value`` and the noun for it: ``1 link``, ``2 links``."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def listing(names: Iterable[str], most: int, room: int = 40) -> str:
    """Return some names as one text: ``a, b and 3 more``."""
    names = list(names)
    shown = ", ".join(shorten(name, room) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def duration(seconds: float | None) -> str:
    """Return a time span in its largest fitting unit: ``90 s``, ``12 min``, ``3 h``, ``5 d``."""
    if seconds is None:
        return NOTHING
    for unit, length, until in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < until:
            return f"{number(round(seconds / length, 1), 3)} {unit}"
    return f"{number(round(seconds / 86_400, 1), 3)} d"


def utc(at: datetime) -> datetime:
    """Return ``at`` in UTC; a time without a zone is taken to be UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def moment(at: datetime | None) -> str:
    """Return a time for a person: ``2026-11-28 06:00 UTC``, with seconds where it has some."""
    if at is None:
        return NOTHING
    at = utc(at)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at.second else f"{at:%Y-%m-%d %H:%M} UTC"


def stamp(at: datetime | None) -> str | None:
    """Return a time for a program: ``2026-11-28T06:00:00.000Z``."""
    if at is None:
        return None
    at = utc(at)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def peer_option(address: str | None) -> str:
    """Return the option with which a daemon dials ``address``.

    Without an address it has ``HOST:PORT``, to be filled in. The text is one that a shell takes as
    two words, whatever the address is.
    """
    return f"--peer {shlex.quote(visible(address)) if address else 'HOST:PORT'}"
