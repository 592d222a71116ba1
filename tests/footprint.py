"""The memory that an object holds on to, whatever its parts are called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)  # not the object's own


def reached(thing: object) -> Iterator[object]:
    """Yield ``thing`` and all that can be reached from it, each object once."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, _SHARED):
            seen.add(id(one))
            yield one
            waiting += gc.get_referents(one)


def footprint(thing: object) -> int:
    """Return the bytes of ``thing`` and of all that can be reached from it."""
    return sum(map(sys.getsizeof, reached(thing)))
