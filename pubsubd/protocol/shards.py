"""A dictionary of very many texts that grows without a pause.

A dictionary of Python's moves all that it has whenever it outgrows its memory: 8 ms if these are
175,000, and those that grow together do so at the same moment. Here each of some hundred small ones
does, at a moment of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain
from typing import Any, TypeVar

_MASK = 255  # of the hash: which of 256 parts
_WHOLE = 1_024  # keys up to which there is one part

Value = TypeVar("Value")


class Shards(MutableMapping[str, Value]):
    """A dictionary of texts, in no order."""

    __slots__ = ("_mask", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[dict[str, Value]] = [{}]
        self._mask = 0
        self._size = 0

    def __getitem__(self, key: str) -> Value:
        return self._parts[hash(key) & self._mask][key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""
        return self._parts[hash(key) & self._mask].get(key, default)

    def get_all(self, keys: Iterable[str]) -> list[Value | None]:
        """Return the values of keys, each as :meth:`get` does."""
        parts, mask = self._parts, self._mask
        if not mask:
            return list(map(parts[0].get, keys))
        return [parts[hash(key) & mask].get(key) for key in keys]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) & self._mask]

    def __setitem__(self, key: str, value: Value) -> None:
        part = self._parts[hash(key) & self._mask]
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._size += 1
            if self._size > _WHOLE and not self._mask:
                self._split(part)

    def _split(self, whole: dict[str, Value]) -> None:
        parts: list[dict[str, Value]] = [{} for _ in range(_MASK + 1)]
        for key, value in whole.items():
            parts[hash(key) & _MASK][key] = value
        self._parts, self._mask = parts, _MASK

    def __delitem__(self, key: str) -> None:
        del self._parts[hash(key) & self._mask][key]
        self._size -= 1

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return self._size
