"""Random identifiers, cheaply: a message needs one, and the standard library takes 2 µs for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

_POOL = 256  # identifiers whose random bytes are asked for at once
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def _ids() -> Iterator[str]:
    while True:
        digits = os.urandom(16 * _POOL).hex()
        for at in range(0, 32 * _POOL, 32):
            one = digits[at : at + 32]
            yield (
                f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANTS[one[16]]}{one[17:20]}-{one[20:]}"
            )


new_id = _ids().__next__
"""Return a random UUID (version 4, RFC 9562) as text, in about 0.4 µs."""
