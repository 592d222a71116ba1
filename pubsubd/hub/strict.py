r"""JSON that is read without mercy: what two readers could understand differently is an error.

Strategy: msgspec reads quickly and is strict about syntax, UTF-8 and surrogates, but of a key that
comes twice it takes the last one, and it takes integers of any size. What it has read is written
again. A key that was dropped took its two quotes with it; and a quote inside of a string is a
quote in both texts, unless it came as ``\u0022``. So if both texts have as many quotes, and there
is no ``\u0022``, no key came twice. Only where this proves nothing, or digits may be a large
integer, the text is read a second time by the standard library, which shows every key and number.

Every text that is accepted is at most :data:`MAX_DEPTH` levels deep, so that any reader can take
it, and holds only numbers that fit a double or a 64-bit integer.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import msgspec

from pubsubd.errors import PubsubdError

MAX_DEPTH = 200
"""Levels of arrays and objects. Common readers take 500 or more (Python's some 900)."""

_LEAST, _MOST = -(2**63), 2**64 - 1
_DIGITS = 20  # of the largest integer; Python takes long for very long ones

_MARK_DIGITS = bytes(ord("0") if ord("0") <= byte <= ord("9") else 0 for byte in range(256))
_SUSPICIOUS = b"0" * 19  # so many digits in a row may be too large an integer

_decode = msgspec.json.Decoder().decode
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


def read(data: bytes) -> tuple[Any, bytes]:
    """Return the value of a JSON text, and that text without anything that it could do without.

    The text is ``data`` itself if there is no such thing. It is in one line.

    Raises:
        JsonError: as :func:`decode`.
    """
    try:
        value = _decode(data)
    except msgspec.ValidationError:
        raise JsonError("a number is out of range") from None
    except msgspec.DecodeError as error:
        raise JsonError(_describe(error, data)) from None
    except UnicodeDecodeError as error:
        raise JsonError(f"byte 0x{error.object[error.start]:02x} is not UTF-8") from None
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    # Each level takes two bytes, and one bracket: most texts need no closer look.
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    if _SUSPICIOUS in data.translate(_MARK_DIGITS):
        _read_again(data)
    text = _encode(value)
    if text == data:
        return value, data
    if b"\\u0022" in data or data.count(b'"') != text.count(b'"'):
        _read_again(data)
    return value, text


_TOO_DEEP = f"over {MAX_DEPTH} levels deep"


def _describe(error: msgspec.DecodeError, data: bytes) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    if "surrogate" in text:
        return "a lone surrogate"
    if "truncated" not in text:
        return text
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "the text is cut"
    return "a lone surrogate"  # the only thing that the standard library lets pass


def _read_again(data: bytes) -> None:
    try:
        json.loads(data, object_pairs_hook=_keys_once, parse_int=_small)
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None


def _keys_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise JsonError("a key comes twice")


def _small(digits: str) -> None:
    if len(digits) > _DIGITS + 1 or not _LEAST <= int(digits) <= _MOST:
        raise JsonError("a number is out of range")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [one for one in level if type(one) is dict or type(one) is list]
        if not level:
            return
        level = list(
            chain.from_iterable([one.values() if type(one) is dict else one for one in level])
        )
    raise JsonError(_TOO_DEEP)
