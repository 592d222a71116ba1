"""Types of values on the command line: sizes and times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

import click

_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = 3660 * 86_400  # seconds: ten years


def size(least: int = 0) -> Callable[[str], int]:
    """Return a type: bytes, as ``1048576``, ``64KiB``, ``8MiB`` or ``1GiB``; at least ``least``."""

    def convert(text: str) -> int:
        parts = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower(), re.ASCII)
        if parts is None or parts[2] not in _UNITS:
            raise click.BadParameter(f"{text!r} is not bytes, or a number with KiB, MiB or GiB")
        found = int(parts[1]) * _UNITS[parts[2]]
        if found < least:
            raise click.BadParameter(f"{text} is less than {show_size(least)}")
        return found

    return convert


def seconds(text: str | float) -> float:
    """Return a finite number of seconds, 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise click.BadParameter(f"{text!r} is not a number of seconds")
    return found


def some_seconds(text: str | float) -> float:
    """Return a finite number of seconds, more than 0."""
    if not (found := seconds(text)):
        raise click.BadParameter("must be more than 0")
    return found


def duration(text: str | int) -> int:
    """Return whole seconds, more than 0, from a number with its unit: ``30s``, ``15m``, ``1h``."""
    if isinstance(text, int):
        return text
    parts = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    if parts is None or not (found := int(parts[1]) * _SPANS[parts[2]]):
        raise click.BadParameter(f"{text!r} is not a duration, as 30s, 15m, 1h or 7d")
    if found > _LONGEST:
        raise click.BadParameter(f"{text} is more than ten years")
    return found


def moment(text: str) -> datetime:
    """Return a time in ISO 8601, which is UTC unless it tells its offset."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time, as 2026-11-28 or 2026-11-28T06:00Z"
        ) from None


def show_size(number: int) -> str:
    """Return ``number`` bytes as :func:`size` reads it, in the largest unit that divides it."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number and number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)
