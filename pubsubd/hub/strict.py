r"""Strict reading of JSON: a text that two readers could understand differently is an error.

Strategy: msgspec reads quickly and is strict about syntax, UTF-8 and surrogates, but of a key that
comes twice it takes the last one, and it takes integers of any size. What it has read is written
again. A key that was dropped took its two quotes with it; and a quote inside of a string is a
quote in both texts, unless it came as ``\u0022``, which can be counted too. So a key came twice if,
and only if, fewer quotes are written than were read. Digits in a row that may be a large integer
are looked for among what is no string.

What a text costs depends on what is in it more than on its length: so a text of more than
:data:`LIGHT` bytes is weighed before it is read.

Every text that is accepted is at most :data:`MAX_DEPTH` levels deep, so that any reader can take
it, and holds only numbers that fit a double or a 64-bit integer.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import msgspec

from pubsubd.protocol.errors import PubsubdError

MAX_DEPTH = 200
"""Levels of arrays and objects. Common readers take 500 or more (Python's some 900)."""

LIGHT = 2_048
"""Bytes of a text that is read without being weighed."""

MAX_WEIGHT = 300_000
"""The weight of one text that may be read, in 11 to 24 ms: each array and object counts 8,
each member 4, each number that is no integer 3, each text and each further item 1, and a number
with an exponent of three digits, which takes longest, 200. So 250 KiB of small records are read,
and a mebibyte of long texts."""

ROOM = 4, 4_000
"""Levels and weight that a text of another hub may have besides what a client has said in it."""

_LEAST, _MOST = b"%d" % -(2**63), b"%d" % (2**64 - 1)
_DIGITS = 20  # of either, with its sign
_NUMBERS = bytes(byte if byte in b"0123456789-+.eE" else ord(" ") for byte in range(256))

_MARK_DIGITS = bytes(ord("0") if ord("0") <= byte <= ord("9") else 0 for byte in range(256))
_SUSPICIOUS = b"0" * 19  # so many digits in a row may be too large an integer
_FEW = 100  # of such exponents, which take 1 ms
_MANY_TEXTS = 100_000  # in one text; beyond, what they hold counts as if it stood around them

# A string, or what is left of one: it matches at every quote, so nothing is tried twice.
_empty_strings = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL).sub
_find_exponents = (re.compile(rb"e[+-]?[0-9]{3}").findall, re.compile(rb"E[+-]?[0-9]{3}").findall)
_find_lone = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]|\\?u?\Z)").search

parse = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class JsonError(PubsubdError):
    """A text that is not JSON as it is accepted here.

    Attributes:
        text: why, in one line for a person.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def decode(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: syntax, UTF-8, depth, a key that comes twice, a lone surrogate, a number that is
            not finite or an integer outside of [-2**63, 2**64 - 1].
    """
    return read(data)[0]


def read(data: bytes, room: tuple[int, int] = (0, 0)) -> tuple[Any, bytes]:
    """Return the value of a JSON text, and that text without anything that it could do without.

    The text is ``data`` itself if there is no such thing. It is in one line, and can be read again.

    Args:
        data: the text.
        room: levels and weight that it may have besides, as :data:`ROOM`.

    Raises:
        JsonError: as :func:`decode`.
    """
    if len(data) > LIGHT:
        _weigh(data, room[1])
    try:
        value = parse(data)
    except msgspec.ValidationError:
        raise JsonError("a number is out of range") from None
    except msgspec.DecodeError as error:
        raise JsonError(_describe(error, data)) from None
    except UnicodeDecodeError as error:  # as msgspec before 0.23 tells it
        raise JsonError(_describe_bytes(error)) from None
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    # Each level takes two bytes, and one bracket: most texts need no closer look.
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(value, room[0])
    suspicious = _SUSPICIOUS in data.translate(_MARK_DIGITS)
    text = _encode(value)
    if suspicious:
        _check_integers(text)
    if text == data:
        return value, data
    quotes = data.count(b'"')
    if b"\\u0022" in data:  # without backslashes that are escaped, each one escapes
        quotes += data.replace(b"\\\\", b"").count(b"\\u0022")
    if quotes != text.count(b'"'):
        raise JsonError("a key comes twice")
    if len(text) > LIGHT:
        _weigh(text, room[1])  # 0.0...01 may have become 1e-200
    return value, text


_TOO_DEEP = f"over {MAX_DEPTH} levels deep"


def _describe(error: msgspec.DecodeError, data: bytes) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    if "UTF-8" in text:
        try:
            data.decode()
        except UnicodeDecodeError as bad:
            return _describe_bytes(bad)
    if "surrogate" in text:
        return "a lone surrogate"
    if "truncated" not in text:
        return text
    # It says so as well where the second half of a pair should be.
    whole = data.replace(b"\\\\", b"")
    return "a lone surrogate" if _find_lone(whole) else "the text is cut"


def _describe_bytes(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02x} is not UTF-8"


def _weigh(data: bytes, room: int) -> None:
    """Raise JsonError for a text that would take too long to read."""
    weigh = _weight if len(data) > MAX_WEIGHT // 8 else _weight_of_exponents
    weight = weigh(data)
    most = MAX_WEIGHT + room
    if weight > most and 0 < data.count(b'"') < 2 * _MANY_TEXTS:
        weight = weigh(_empty_strings(b'""', data))
    if weight > most:
        raise JsonError("too much in one text")


def _weight(data: bytes) -> int:
    """Return the weight of a text, or more: the contents of strings count as well."""
    count = data.count
    containers = 8 * (count(b"[") + count(b"{")) + 4 * count(b":")
    others = count(b",") + count(b'"') // 2
    others += 3 * (count(b".") + count(b"e") + count(b"E"))
    weight = containers + others
    return weight if weight > MAX_WEIGHT else weight + _weight_of_exponents(data)


def _weight_of_exponents(data: bytes) -> int:
    if data.count(b"e") + data.count(b"E") < _FEW:
        return 0
    return 200 * sum(len(find(data)) for find in _find_exponents)


def _check_integers(text: bytes) -> None:
    words = _empty_strings(b'""', text).translate(_NUMBERS).split()
    long = [one for one in words if len(one) >= _DIGITS and b"." not in one and b"e" not in one]
    # Of equally many digits, the larger number is the larger text as well; a minus is the smallest.
    negative = max([one for one in long if one < b"0"], default=b"")
    if long and (max(map(len, long)) > _DIGITS or max(long) > _MOST or negative > _LEAST):
        raise JsonError("a number is out of range")


def _check_depth(value: Any, room: int) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + room + 1):
        level = [one for one in level if type(one) is dict or type(one) is list]
        if not level:
            return
        level = list(
            chain.from_iterable([one.values() if type(one) is dict else one for one in level])
        )
    raise JsonError(_TOO_DEEP)
