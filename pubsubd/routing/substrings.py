"""Which of many substrings does a name contain, without I/O.

Strategy: a pattern is found by hashing, not by scanning. ``_heads`` maps each
pattern's prefixes of 4, 16, 64, 256 and 1024 bytes, as far as the pattern
reaches, to a :class:`_Head`, which counts the patterns behind that prefix and
knows how long those are that end before the next such prefix. For each
position of a name, one lookup of its next 4 bytes mostly says that nothing
begins here. Otherwise a slice of each known length is looked up among the
patterns themselves, and the walk goes on to 16 bytes while patterns do.
Patterns under 4 bytes have a table of their own.

So adding and removing are a few dictionary operations (about 2 µs), whatever
the number of patterns: nothing is ever rebuilt, as an Aho-Corasick automaton
would have to be. A lookup costs the name's length, about 0.1 µs a byte, and a
slice for each (position, length) whose prefix fits. Many patterns of different
lengths with one prefix, in a name that repeats that prefix, are the worst case:
``work`` counts these steps, so that whoever causes them can be made to wait, and a
search that takes more than :data:`STEPS` of them is interrupted, to be gone on with.

Invariants:

- ``_heads[prefix].count`` is the number of patterns with that prefix that are
  at least as long; it is never 0.
- ``_heads[prefix].lengths`` has, for a prefix of n bytes, each length in [n, 4n) of
  which there is a pattern behind it; if there are k of one length, and k is more than 1,
  ``_heads[prefix].more[length]`` is k - 1.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pubsubd.routing.parts import LARGE, AnyTable, Size, Table

Value = TypeVar("Value")

STEPS = 8_000
"""Steps of one search after which it is interrupted: 1 to 2 ms."""

_SHARED = 1_000  # tuples of lengths that are kept to be shared
_FIRST = 4  # bytes of the shortest prefix; the next ones are 4 times as long each


class Search:
    """A search that was interrupted.

    Attributes:
        at: how far in the name it has come.
        found: the patterns found so far.
    """

    __slots__ = ("at", "found")

    def __init__(self) -> None:
        self.at = 0
        self.found: set[bytes] = set()


class _Head:
    __slots__ = ("count", "lengths", "more")

    def __init__(self) -> None:
        self.count = 0
        self.lengths: tuple[int, ...] = ()
        self.more: dict[int, int] | None = None


class SubstringIndex(Generic[Value]):
    """Patterns, each with a value, that finds those contained in a name.

    Attributes:
        values: pattern -> value, to be read, or changed for a pattern that is there.
        size: of ``values``.
        work: steps of about 0.1 µs that lookups have cost since the beginning.
    """

    def __init__(self) -> None:
        self.values: AnyTable[bytes, Value] = Table()
        self.size = Size()
        self._heads: AnyTable[bytes, _Head] = Table()
        self._shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._short: dict[int, AnyTable[bytes, None]] = {}  # length under _FIRST -> patterns
        self._whole = True  # but while a pattern is added or removed, or if that has failed
        self.work = 0

    def add(self, pattern: bytes, value: Value) -> None:
        """Add ``pattern``, which is not there yet. An empty one is contained in every name."""
        self._whole = False
        part = self.values.part(pattern)
        part[pattern] = value
        if len(part) > LARGE:
            self.values = self.values.fit()
        self.size.count += 1
        length = len(pattern)
        if length < _FIRST:
            if length not in self._short:
                self._short[length] = Table()
            short = self._short[length].part(pattern)
            short[pattern] = None
            if len(short) > LARGE:
                self._short[length] = self._short[length].fit()
            self._whole = True
            return
        size = _FIRST
        while size <= length:
            prefix = pattern[:size]
            heads = self._heads.part(prefix)
            head = heads.get(prefix)
            if head is None:
                head = heads[prefix] = _Head()
                if len(heads) > LARGE:
                    self._heads = self._heads.fit()
            head.count += 1
            size *= 4
        assert head is not None
        if length in head.lengths:
            if head.more is None:
                head.more = {}
            head.more[length] = head.more.get(length, 0) + 1
        else:
            head.lengths = self._share((*head.lengths, length))
        self._whole = True

    def remove(self, pattern: bytes) -> None:
        """Remove ``pattern``; raises KeyError if it is not there."""
        del self.values.part(pattern)[pattern]
        self._whole = False
        length = len(pattern)
        if length < _FIRST:
            del self._short[length][pattern]
            if not self._short[length]:
                del self._short[length]
        size = _FIRST
        while size <= length:
            prefix = pattern[:size]
            heads = self._heads.part(prefix)
            head = heads[prefix]
            size *= 4
            if head.count == 1:
                del heads[prefix]
            else:
                head.count -= 1
                if size > length:
                    self._remove_length(head, length)
        if (number := self.size.remove()) >= 0:
            self.values = self.values.narrow(number)
            self._heads = self._heads.narrow(number)
        self._whole = True

    def _remove_length(self, head: _Head, length: int) -> None:
        if head.more is None or length not in head.more:
            head.lengths = self._share(tuple(n for n in head.lengths if n != length))
            return
        if head.more[length] > 1:
            head.more[length] -= 1
        else:
            del head.more[length]
            head.more = head.more or None

    def repair(self) -> None:
        """Make the tables anew if a pattern was left half added or half removed."""
        if self._whole:
            return
        values, self.values, self.size = self.values, Table(), Size()
        self._heads, self._short = Table(), {}
        for pattern, value in values.items():
            self.add(pattern, value)

    def _share(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Return the one tuple that all heads with these lengths have, while there are few."""
        if len(self._shared) >= _SHARED:
            self._shared.clear()
        return self._shared.setdefault(lengths, lengths)

    def find(self, name: bytes) -> list[bytes]:
        """Return the patterns that ``name`` contains, each once, in no order."""
        search = Search()
        while not self.search(name, search):
            pass
        return list(search.found)

    def search(self, name: bytes, search: Search) -> bool:
        """Look on for the patterns that ``name`` contains; whether all are found.

        Patterns that come or go meanwhile are the caller's to add and to leave out.
        """
        found = search.found
        if not search.at:
            self.work += len(name) * (1 + len(self._short))
            for length, short in self._short.items():
                slices = [name[i : i + length] for i in range(len(name) - length + 1)]
                found.update(short.among(slices))
        # Hot loop: scripts/bench new-names, idle-substrings.
        get, stop = self._heads.get, self.work + STEPS
        for i in range(search.at, len(name) - _FIRST + 1):
            head = get(name[i : i + _FIRST])
            if head is not None:
                self._walk(name, i, head, found)
                if self.work > stop:
                    search.at = i + 1
                    return False
        return True

    def _walk(self, name: bytes, i: int, head: _Head | None, found: set[bytes]) -> None:
        """Add to ``found`` the patterns behind ``head`` that ``name`` has at ``i``."""
        patterns = self.values
        size = _FIRST
        rest = len(name) - i
        while head is not None:
            lengths = head.lengths
            self.work += 2 * len(lengths) + 1
            for length in lengths:
                if length <= rest and (pattern := name[i : i + length]) in patterns:
                    found.add(pattern)
            size *= 4
            if size > rest:
                return
            head = self._heads.get(name[i : i + size])
