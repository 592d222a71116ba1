"""Types of values on the command line: sizes and times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import click

from pubsubd.settings import kinds
from pubsubd.settings.kinds import show_size

__all__ = ["duration", "moment", "seconds", "show_size", "size", "some_seconds"]

Text = TypeVar("Text")
Value = TypeVar("Value")

_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = 3660 * 86_400  # seconds: ten years


def size(least: int = 0) -> Callable[[str], int]:
    """Return a type: bytes, as ``1048576``, ``64KiB``, ``8MiB`` or ``1GiB``; at least ``least``."""
    return _told(kinds.size(least))


def seconds(text: str | float) -> float:
    """Return a finite number of seconds, 0 or more."""
    return _told(kinds.seconds)(text)


def some_seconds(text: str | float) -> float:
    """Return a finite number of seconds, more than 0."""
    return _told(kinds.some_seconds)(text)


def _told(read: Callable[[Text], Value]) -> Callable[[Text], Value]:
    """Return ``read``, whose errors are told as click does."""

    def convert(text: Text) -> Value:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def duration(text: str | int) -> int:
    """Return whole seconds, more than 0, from a number with its unit: ``30s``, ``15m``, ``1h``."""
    if isinstance(text, int):
        return text
    parts = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    if parts is None or not (found := int(parts[1]) * _SPANS[parts[2]]):
        raise click.BadParameter(f"{text!r} is not a duration such as 30s, 15m, 1h or 7d")
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
            f"{text!r} is not a time such as 2026-11-28 or 2026-11-28T06:00Z"
        ) from None
