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

    __slots__ = ("_mask", "_row", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._row = 0  # the last numbers that came one after the other, which are not in the mask
        self._mask = 0  # bit n: highest - _row - n has been taken

    def has(self, number: int) -> bool:
        """Return whether ``number`` was taken before, or may have been."""
        behind = self.highest - number
        if behind < 0:
            return False
        return behind >= SIZE or number <= 0 or bool(self._whole() >> behind & 1)

    def take(self, number: int) -> bool:
        """Take ``number``; False if it was taken before, or may have been."""
        ahead = number - self.highest
        if ahead == 1:  # nearly always, and a mask is 2 KiB
            self.highest = number
            self._row += 1
            return True
        mask = self._whole()
        if ahead > 0:
            self._mask = (mask << ahead | 1) & _ALL if ahead < SIZE else 1
            self.highest = number
            return True
        if -ahead >= SIZE or number <= 0 or mask >> -ahead & 1:
            return False
        self._mask |= 1 << -ahead
        return True

    def _whole(self) -> int:
        """Return the mask of all numbers, up to the highest."""
        row, self._row = self._row, 0
        if row:
            self._mask = _ALL if row >= SIZE else (self._mask << row | (1 << row) - 1) & _ALL
        return self._mask
