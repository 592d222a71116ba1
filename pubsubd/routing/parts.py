"""Tables that grow and shrink a bit at a time, however large they are.

A dict that is full is copied as a whole: 19 ms for 350,000 keys, in which nothing else is done. So
what a table with many keys has is dealt out to many dicts, each of which is full at a time of its
own. Whoever changes one does so in the :meth:`~Table.part` that a key belongs to, and lets the
table :meth:`~Table.fit` when that has more than :data:`LARGE` keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

LARGE = 10_000
"""Keys over which a table is dealt out: that takes 2 ms."""

_PARTS = 64
_MASK = _PARTS - 1
_SMALL = 1_000  # keys; below, a table is not worth shrinking
_SHIFT = 24  # bits of a hash that do not choose the part: a dict goes by these


class Table(dict[Key, Value]):
    """A table that is its only part."""

    __slots__ = ()

    def part(self, _key: Key) -> dict[Key, Value]:
        """Return what has ``key`` if anything has it."""
        return self

    def among(self, keys: Iterable[Key]) -> Iterable[Key]:
        """Return those of ``keys`` that are there."""
        return self.keys() & keys

    def fit(self) -> AnyTable[Key, Value]:
        """Return what takes the place of the table from now on, which may be itself."""
        return Parts(self) if len(self) > LARGE else self

    def narrow(self, number: int) -> AnyTable[Key, Value]:
        """Return what takes the place of the table when many keys have gone.

        Called with the numbers that :meth:`Size.remove` returns: a dict does not shrink by itself.
        """
        return self if number else Table(self)


class Parts(MutableMapping[Key, Value]):
    """A table of many parts."""

    __slots__ = ("_parts",)

    def __init__(self, table: MutableMapping[Key, Value]) -> None:
        self._parts: list[dict[Key, Value]] = [{} for _ in range(_PARTS)]
        for key, value in table.items():
            self.part(key)[key] = value

    def part(self, key: Key) -> dict[Key, Value]:
        """Return what has ``key`` if anything has it."""
        return self._parts[hash(key) >> _SHIFT & _MASK]

    def among(self, keys: Iterable[Key]) -> Iterable[Key]:
        """Return those of ``keys`` that are there."""
        parts = self._parts
        return [key for key in keys if key in parts[hash(key) >> _SHIFT & _MASK]]

    def fit(self) -> AnyTable[Key, Value]:
        """Return the table itself."""
        return self

    def narrow(self, number: int) -> AnyTable[Key, Value]:
        """Do as :meth:`Table.narrow` does."""
        self._parts[number] = {**self._parts[number]}
        return self if number or len(self) > LARGE // 2 else Table(self)

    def get(self, key: Key, default: Value | None = None) -> Value | None:  # type: ignore[override]
        """Do as a dict does, like all that follows."""
        return self._parts[hash(key) >> _SHIFT & _MASK].get(key, default)

    def __getitem__(self, key: Key) -> Value:
        return self._parts[hash(key) >> _SHIFT & _MASK][key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) >> _SHIFT & _MASK]

    def __setitem__(self, key: Key, value: Value) -> None:
        self.part(key)[key] = value

    def __delitem__(self, key: Key) -> None:
        del self.part(key)[key]

    def __bool__(self) -> bool:
        return any(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._parts)


class Size:
    """How many keys tables have that grow and shrink together.

    Attributes:
        count: of the keys; whoever adds one counts it.
    """

    __slots__ = ("_most", "_wide", "count")

    def __init__(self) -> None:
        self.count = 0
        self._most = 0  # keys at a time since the tables were made
        self._wide = 0  # parts that are still to be made smaller

    def remove(self) -> int:
        """Note that a key has gone; return the number of the parts to narrow, or -1."""
        self._most = max(self._most, self.count)
        self.count -= 1
        if self.count < self._most // 8 and self._most > _SMALL:
            self._most, self._wide = self.count, _PARTS
        if self._wide:
            self._wide -= 1
            return self._wide
        return -1


AnyTable = Table[Key, Value] | Parts[Key, Value]
