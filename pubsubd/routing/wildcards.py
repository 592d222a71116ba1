"""Which of many wildcards match a name, without I/O.

A wildcard is a name whose levels, between dots or between slashes, may be left open. Levels may
be empty, so ``//x/y`` has four between slashes.

Strategy: a tree of levels for each of the two separators. A name walks down it along all
branches at once: the one of its level, the one for any level, and those of the globs, like
``user:*``, that match it. So what a name costs is the number of places that it comes past, not
the number of patterns. Where there are many globs at one place, each is filed under the one of its
pieces that has the fewest, and a :class:`~pubsubd.routing.substrings.SubstringIndex` tells which
pieces a level contains. A glob tries nothing twice: the first place where a piece fits is as good
as any later one. Names that come past many places all the same are the worst case: ``work`` counts
these steps, so that whoever causes them can be made to wait.

Invariants:

- ``values`` has exactly the patterns that are in the trees, and every node but the roots has a
  pattern at itself or below.
- ``globs.index.values[piece]`` has the globs that ``globs.filed`` says are filed under it, and is
  never empty.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import OWN, check_name, escape
from pubsubd.routing.parts import LARGE, AnyTable, Size, Table
from pubsubd.routing.substrings import SubstringIndex

Value = TypeVar("Value")

MAX_LEVELS = 32
"""Levels of a pattern, and ``*`` in it, so that a name cannot come past too many places."""

_TRIED = 8  # globs at one place up to which each is tried
_OPEN = b"\n"  # stands for what is left open; no name has it


class Glob:
    """One level with ``*`` in it, each of which stands for any bytes, none included.

    Attributes:
        text: as it was written.
        pieces: what has to be in LF, a matching level and LF.
    """

    __slots__ = ("_between", "_end", "_least", "_start", "pieces", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._start, *self._between, self._end = text.split(b"*")
        self._least = len(text) - text.count(b"*")
        anchored = (b"\n" + self._start, *self._between, self._end + b"\n")
        self.pieces = tuple(piece for piece in anchored if piece != b"\n")

    def matches(self, level: bytes) -> bool:
        """Return whether ``level`` is as the glob says."""
        if (
            len(level) < self._least
            or not level.startswith(self._start)
            or not level.endswith(self._end)
        ):
            return False
        at, stop = len(self._start), len(level) - len(self._end)
        for piece in self._between:
            at = level.find(piece, at, stop)
            if at < 0:
                return False
            at += len(piece)
        return True


class Pattern:
    """A wildcard, made by :meth:`dots` or :meth:`slashes`. Equal ones have equal texts.

    Attributes:
        text: as it was given.
        separator: of its levels.
        levels: each as it is, or what has to match it, or None if any does.
        rest: whether zero or more levels may follow.
        start: what stands before its first wildcard.
        literal: the longest of the bytes without a gap that all names have that it matches.
    """

    __slots__ = ("_hash", "levels", "literal", "rest", "separator", "start", "text")

    def __init__(self, text: str, separator: bytes, levels: list[bytes | Glob | None]) -> None:
        # By dots() and slashes() alone: `levels` has the # as b"#".
        self.text = text
        self.separator = separator
        self.rest = levels[-1] == b"#"
        if b"#" in levels[:-1]:
            raise ValueError(f"# is not the last level of the pattern {_shown(text)}")
        if len(levels) > MAX_LEVELS:
            raise ValueError(f"over {MAX_LEVELS} levels in the pattern {_shown(text)}")
        if self.rest:
            levels.pop()
        self.levels = tuple(levels)
        body = separator.join(map(_open, levels)).split(_OPEN)
        self.literal = max(body, key=len)
        self.start = body[0]
        if self.rest and levels and len(body) == 1:
            self.start += separator
        self._hash = hash((text, separator))

    @classmethod
    def dots(cls, text: str) -> Pattern:
        """Return the pattern ``text`` between dots.

        A level ``*`` stands for any one level, a ``*`` in a level for any part of it, and ``#``,
        the last level, for zero or more.

        Raises:
            ValueError: it is none, and why, in one line.
        """
        raw = _encode(text)
        if b"**" in raw:
            raise ValueError(f"two * in a row in the pattern {_shown(text)}; # is for many levels")
        if raw.count(b"*") > MAX_LEVELS:
            raise ValueError(f"over {MAX_LEVELS} times * in the pattern {_shown(text)}")
        levels: list[bytes | Glob | None] = [
            None if level == b"*" else Glob(level) if b"*" in level else level
            for level in raw.split(b".")
        ]
        return cls(text, b".", levels)

    @classmethod
    def slashes(cls, text: str) -> Pattern:
        """Return the pattern ``text`` between slashes.

        A level ``+`` stands for any one level, and ``#``, the last level, for zero or more.

        Raises:
            ValueError: it is none, and why, in one line.
        """
        levels: list[bytes | Glob | None] = [
            None if level == b"+" else level for level in _encode(text).split(b"/")
        ]
        return cls(text, b"/", levels)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return self.text == other.text and self.separator == other.separator

    def __repr__(self) -> str:
        return f"Pattern.{'dots' if self.separator == b'.' else 'slashes'}({self.text!r})"

    def matches(self, name: bytes) -> bool:
        """Return whether ``name`` is as the pattern says.

        Names of the daemon's own, under ``//pubsubd/``, are so only if its start is as well.
        """
        levels, mine = name.split(self.separator), self.levels
        if len(levels) < len(mine) or (len(levels) > len(mine) and not self.rest):
            return False
        for want, level in zip(mine, levels, strict=False):
            if isinstance(want, bytes):
                if want != level:
                    return False
            elif want is not None and not want.matches(level):
                return False
        return not name.startswith(OWN) or self.start.startswith(OWN)


class _Globs:
    """The globs at one place.

    Attributes:
        nodes: text of a glob -> it, and what follows it.
        index: piece -> those of ``nodes`` that are filed under it; None until there are many.
        filed: text of a glob -> the piece that it is filed under.
    """

    __slots__ = ("filed", "index", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[bytes, tuple[Glob, _Node]] = {}
        self.index: SubstringIndex[dict[bytes, tuple[Glob, _Node]]] | None = None
        self.filed: dict[bytes, bytes] = {}

    def descend(self, glob: Glob) -> _Node:
        """Return what follows ``glob``; it is added if it is not there."""
        entry = self.nodes.get(glob.text)
        if entry is None:
            entry = self.nodes[glob.text] = glob, _Node()
            if self.index is not None:
                self._file(self.index, *entry)
            elif len(self.nodes) > _TRIED:
                self.index = SubstringIndex()
                for other in self.nodes.values():
                    self._file(self.index, *other)
        return entry[1]

    def remove(self, glob: Glob) -> None:
        """Remove ``glob``, which is there."""
        del self.nodes[glob.text]
        if self.index is not None:
            piece = self.filed.pop(glob.text)
            drawer = self.index.values[piece]
            del drawer[glob.text]
            if not drawer:
                self.index.remove(piece)

    def _file(
        self, index: SubstringIndex[dict[bytes, tuple[Glob, _Node]]], glob: Glob, node: _Node
    ) -> None:
        drawers = index.values
        piece = min(glob.pieces, key=lambda piece: (len(drawers.get(piece) or ()), -len(piece)))
        if piece not in drawers:
            index.add(piece, {})
        drawers[piece][glob.text] = glob, node
        self.filed[glob.text] = piece

    def find(self, level: bytes) -> tuple[list[_Node], int]:
        """Return what follows the globs that match ``level``, and the work that it was."""
        index = self.index
        work = 0
        if index is None:
            entries = list(self.nodes.values())
        else:
            work -= index.work
            pieces = index.find(b"\n%b\n" % level)
            work += index.work
            entries = [entry for piece in pieces for entry in index.values[piece].values()]
        work += len(entries) * (4 + len(level) // 16)
        return [node for glob, node in entries if glob.matches(level)], work


class _Node:
    """A place in a tree: what its patterns have in common so far.

    Attributes:
        named, any, globs: what follows a level, any level, and those that a glob matches.
        here: the pattern that ends here.
        rest: the pattern of which zero or more levels follow here.
    """

    __slots__ = ("any", "globs", "here", "named", "rest")

    def __init__(self) -> None:
        self.named: AnyTable[bytes, _Node] | None = None
        self.any: _Node | None = None
        self.globs: _Globs | None = None
        self.here: Pattern | None = None
        self.rest: Pattern | None = None

    def descend(self, level: bytes | Glob | None) -> _Node:
        """Return what follows ``level``; it is added if it is not there."""
        if level is None:
            if self.any is None:
                self.any = _Node()
            return self.any
        if isinstance(level, Glob):
            if self.globs is None:
                self.globs = _Globs()
            return self.globs.descend(level)
        if self.named is None:
            self.named = Table()
        part = self.named.part(level)
        node = part.get(level)
        if node is None:
            node = part[level] = _Node()
            if len(part) > LARGE:
                self.named = self.named.fit()
        return node

    def remove(self, level: bytes | Glob | None) -> None:
        """Remove what follows ``level``, which is there."""
        if level is None:
            self.any = None
        elif isinstance(level, Glob):
            assert self.globs is not None
            self.globs.remove(level)
            if not self.globs.nodes:
                self.globs = None
        else:
            assert self.named is not None
            del self.named[level]
            if not self.named:
                self.named = None

    @property
    def empty(self) -> bool:
        """Whether it is of no use."""
        return not (self.here or self.rest or self.named or self.any or self.globs)


class WildcardIndex(Generic[Value]):
    """Patterns, each with a value, that finds those that match a name.

    Attributes:
        values: pattern -> value, to be read, or changed for a pattern that is there.
        work: steps of about 0.1 µs that lookups have cost since the beginning.
    """

    def __init__(self) -> None:
        self.values: AnyTable[Pattern, Value] = Table()
        self._size = Size()
        self.work = 0
        self.roots = {b".": _Node(), b"/": _Node()}
        self._whole = True  # but while a pattern is added or removed, or if that has failed

    @property
    def empty(self) -> bool:
        """Whether nothing is left of any pattern."""
        return all(root.empty for root in self.roots.values())

    def add(self, pattern: Pattern, value: Value) -> None:
        """Add ``pattern``, which is not there yet."""
        self._whole = False
        part = self.values.part(pattern)
        part[pattern] = value
        if len(part) > LARGE:
            self.values = self.values.fit()
        self._size.count += 1
        node = self.roots[pattern.separator]
        for level in pattern.levels:
            node = node.descend(level)
        if pattern.rest:
            node.rest = pattern
        else:
            node.here = pattern
        self._whole = True

    def remove(self, pattern: Pattern) -> None:
        """Remove ``pattern``; raises KeyError if it is not there."""
        del self.values[pattern]
        self._whole = False
        if (number := self._size.remove()) >= 0:
            self.values = self.values.narrow(number)
        node = self.roots[pattern.separator]
        path = []
        for level in pattern.levels:
            path.append((node, level))
            node = node.descend(level)
        if pattern.rest:
            node.rest = None
        else:
            node.here = None
        while path and node.empty:
            node, level = path.pop()
            node.remove(level)
        self._whole = True

    def repair(self) -> None:
        """Make the trees anew if a pattern was left half added or half removed."""
        if self._whole:
            return
        values, self.values, self._size = self.values, Table(), Size()
        self.roots = {separator: _Node() for separator in self.roots}
        for pattern, value in values.items():
            self.add(pattern, value)

    def find(self, name: bytes) -> list[Pattern]:
        """Return the patterns that match ``name``, each once, in no order."""
        found: list[Pattern] = []
        for separator, root in self.roots.items():
            if not root.empty:
                self._walk(root, name.split(separator), found)
        if name.startswith(OWN):
            return [pattern for pattern in found if pattern.start.startswith(OWN)]
        return found

    def _walk(self, root: _Node, levels: list[bytes], found: list[Pattern]) -> None:
        nodes = [root]
        # Hot loop: new names while there are wildcards.
        for level in levels:
            following: list[_Node] = []
            self.work += 2 * len(nodes)
            for node in nodes:
                if node.rest is not None:
                    found.append(node.rest)
                if node.named is not None and (named := node.named.get(level)) is not None:
                    following.append(named)
                if node.any is not None:
                    following.append(node.any)
                if node.globs is not None:
                    matching, work = node.globs.find(level)
                    following += matching
                    self.work += work
            if not following:
                return
            nodes = following
        for node in nodes:
            if node.here is not None:
                found.append(node.here)
            if node.rest is not None:
                found.append(node.rest)


def _encode(text: str) -> bytes:
    try:
        raw = text.encode()
        check_name(raw, "pattern")
    except UnicodeEncodeError:
        raise ValueError(f"the pattern {_shown(text)} is not Unicode") from None
    except ProtocolError as error:
        raise ValueError(error.text) from None
    return raw


def _open(level: bytes | Glob | None) -> bytes:
    """Return ``level`` with :data:`_OPEN` where it is open."""
    if level is None:
        return _OPEN
    return level.text.replace(b"*", _OPEN) if isinstance(level, Glob) else level


def _shown(text: str) -> str:
    return f"'{escape(text, 64)}'"
