"""Kinds of values that settings have: how each is read from a text, and from a TOML file.

A text is what stands on the command line or in a variable of the environment. In a file a value
has a type of its own, and one of another type is refused: ``port = "9014"`` is a mistake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pubsubd.access.proxies import Networks

Number = TypeVar("Number", int, float)

_SPANS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values.

    Attributes:
        metavar: what stands for a value in help texts.
        from_text: returns the value that a text is; raises ValueError.
        from_toml: the same for a value in a file.
        show: returns the text of a value.
        choices: the texts there are, if these can be listed.
        many: whether there may be several; a value is a tuple then, and ``from_text`` is for one.
        flag: whether it is given on the command line without a value.
    """

    metavar: str
    from_text: Callable[[str], Any]
    from_toml: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()
    many: bool = False
    flag: bool = False


def show_size(number: int) -> str:
    """Return ``number`` bytes as :func:`size` reads it, in the largest unit that divides it."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number and number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)


def size(least: int = 0) -> Callable[[str], int]:
    """Return what reads bytes, as ``1048576``, ``64KiB``, ``8MiB`` or ``1GiB``."""

    def convert(text: str) -> int:
        parts = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower(), re.ASCII)
        if parts is None or parts[2] not in _UNITS:
            raise ValueError(f"{text!r} is not bytes, or a number with KiB, MiB or GiB")
        return _at_least(int(parts[1]) * _UNITS[parts[2]], least, show_size)

    return convert


def seconds(text: str | float) -> float:
    """Return a finite number of seconds, 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise ValueError(f"{text!r} is not a number of seconds")
    return found


def some_seconds(text: str | float) -> float:
    """Return a finite number of seconds, more than 0."""
    if not (found := seconds(text)):
        raise ValueError("must be more than 0")
    return found


def _at_least(found: Number, least: Number, show: Callable[[Number], str] = str) -> Number:
    if found < least:
        raise ValueError(f"{show(found)} is less than {show(least)}")
    return found


def _typed(wanted: str, *types: type) -> Callable[[Any], Any]:
    """Return what lets values of these types pass, and no others."""

    def check(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"{_shown(value)} is not {wanted}")
        return value

    return check


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    return repr(value)


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip(), re.ASCII):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{text!r} is not a number")
    return found


def sizes(least: int = 1) -> Kind:
    """Return the kind of sizes in bytes."""
    read = size(least)
    whole = _typed("a number of bytes, or a text with KiB, MiB or GiB", int, str)
    return Kind("SIZE", read, lambda value: read(str(whole(value))), show_size)


def counts(least: int = 1, most: int | None = None, metavar: str = "N") -> Kind:
    """Return the kind of whole numbers."""

    def check(found: int) -> int:
        if most is not None and not least <= found <= most:
            raise ValueError(f"{found} is not in the range {least} to {most}")
        return _at_least(found, least)

    whole = _typed("a whole number", int)
    return Kind(metavar, lambda text: check(_integer(text)), lambda value: check(whole(value)))


def workers() -> Kind:
    """Return the kind of a number of processes: ``auto`` is one for each processor."""
    many = counts(1, 256)
    whole = _typed("a whole number, or auto", int, str)

    def read(text: str) -> Any:
        if text == "auto":
            return text
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip(), re.ASCII):
            raise ValueError(f"{text!r} is neither a number nor auto")
        return many.from_text(text)

    return Kind("N|auto", read, lambda value: read(str(whole(value))))


def numbers(least: float = 0.0) -> Kind:
    """Return the kind of numbers that may have a fraction."""

    def check(found: float) -> float:
        return _at_least(found, least, "{:g}".format)

    number = _typed("a number", int, float)
    return Kind(
        "N",
        lambda text: check(_number(text)),
        lambda value: check(_number(str(number(value)))),
        "{:g}".format,
    )


def times(*, zero: bool = False) -> Kind:
    """Return the kind of times in seconds, which may be 0 or not."""
    read = seconds if zero else some_seconds
    number = _typed("a number of seconds", int, float)
    return Kind("SECONDS", read, lambda value: read(number(value)), "{:g}".format)


def spans() -> Kind:
    """Return the kind of long times: seconds, or a text with a unit, as ``12h`` or ``30d``."""

    def read(text: str) -> float:
        parts = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)", text.strip().lower(), re.ASCII)
        if parts is None:
            raise ValueError(f"{text!r} is not seconds, or a number with s, m, h or d")
        return some_seconds(float(parts[1]) * _SPANS[parts[2]])

    def show(value: float) -> str:
        for unit in ("d", "h", "m"):
            if value % _SPANS[unit] == 0:
                return f"{value / _SPANS[unit]:g}{unit}"
        return f"{value:g}"

    typed = _typed("a number of seconds, or a text with s, m, h or d", int, float, str)
    return Kind("DURATION", read, lambda value: read(str(typed(value))), show)


def texts(metavar: str, *, empty: bool = False) -> Kind:
    """Return the kind of texts of one line."""

    def check(text: str) -> str:
        if not text and not empty:
            raise ValueError("must not be empty")
        if any(not char.isprintable() for char in text):
            raise ValueError(f"{text!r} has characters that cannot be printed")
        return text

    text = _typed("a text", str)
    return Kind(metavar, check, lambda value: check(text(value)))


def choices(*names: str, metavar: str = "") -> Kind:
    """Return the kind of texts that are one of ``names``."""

    def check(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is not one of {', '.join(names)}")
        return text

    text = _typed("a text", str)
    shown = metavar or f"[{'|'.join(names)}]"
    return Kind(shown, check, lambda value: check(text(value)), choices=names)


def lists(metavar: str, *, single: bool = False, empty: bool = False) -> Kind:
    """Return the kind of several texts.

    Args:
        metavar: what stands for one in help texts.
        single: whether a file may have one text instead of a list.
        empty: whether a text may be empty.
    """
    one = texts(metavar, empty=empty)

    def read(value: Any) -> tuple[str, ...]:
        if single and isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is not a list of texts")
        return tuple(one.from_toml(part) for part in value)

    return Kind(metavar, one.from_text, read, " ".join, many=True)


def networks() -> Kind:
    """Return the kind of several networks of addresses."""
    many = lists("NETWORK")

    def check(text: str) -> str:
        Networks([many.from_text(text)])
        return text

    def read(value: Any) -> tuple[str, ...]:
        return tuple(check(text) for text in many.from_toml(value))

    return replace(many, from_text=check, from_toml=read)


def switches() -> Kind:
    """Return the kind of what is either so or not."""
    truth = _typed("true or false", bool)

    def read(text: str) -> bool:
        known = {"1": True, "true": True, "yes": True, "on": True}
        known |= {"0": False, "false": False, "no": False, "off": False, "": False}
        if text.strip().lower() not in known:
            raise ValueError(f"{text!r} is not 1 or 0")
        return known[text.strip().lower()]

    return Kind("", read, truth, lambda value: str(value).lower(), flag=True)
