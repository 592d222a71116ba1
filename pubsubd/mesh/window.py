"""A guard against duplicates: the numbers of a sequence that have been taken.

Numbers come nearly in order, with gaps, and must not be taken twice. A number that is so old
that it may have been forgotten counts as taken: losing is allowed, taking twice is not.
"""

from __future__ import annotations

SIZE = 16_384
"""The distance that a number may be behind the highest; one bit each."""

_ALL = (1 << SIZE) - 1


class Window:
    """The numbers, from 1, that have been taken.

    Attributes:
        highest: the highest of them.
    """

    __slots__ = ("_mask", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._mask = 0  # bit n: highest - n has been taken

    def has(self, number: int) -> bool:
        """Return whether ``number`` was taken before, or may have been."""
        behind = self.highest - number
        return behind >= 0 and (behind >= SIZE or number <= 0 or bool(self._mask >> behind & 1))

    def take(self, number: int) -> bool:
        """Take ``number``; False if it was taken before, or may have been."""
        ahead = number - self.highest
        if ahead > 0:
            self._mask = (self._mask << ahead | 1) & _ALL if ahead < SIZE else 1
            self.highest = number
            return True
        if -ahead >= SIZE or number <= 0 or self._mask >> -ahead & 1:
            return False
        self._mask |= 1 << -ahead
        return True
