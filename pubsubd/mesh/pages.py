"""Answers that are lists of rows, made in steps and given in pages.

A page is made once for all who ask within a moment, and so is the list behind all pages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from time import thread_time
from typing import Generic, TypeVar

from pubsubd.broker.turn import Shared, Steps
from pubsubd.protocol.errors import ProtocolError

PAGE_SIZE = 512 * 1024
"""Bytes of one answer."""

_PAGES = 8  # that are kept for a moment
_STEP = 8  # rows between two looks at the clock: one may take half a millisecond

Item = TypeVar("Item")


def read_offset(data: bytes) -> int:
    """Return the row that a page is to begin with: the data of a request.

    Raises:
        ProtocolError: ``bad-request``, it is not a number.
    """
    if len(data) > 9 or (data and not data.isdigit()):
        raise ProtocolError("bad-request", "the data is not a number of rows to skip")
    return int(data or b"0")


class Pages(Generic[Item]):
    """An answer that is a list of rows, in pages of so many bytes.

    Args:
        find: returns what there is, in steps.
        count: returns how many rows one of these has.
        rows: returns these rows, each a JSON text.
        show: returns the page with some of them, and where the next one begins.
        is_small: returns whether it is so little that it need not be shared: who asks again after
            having done something sees what came of it.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        find: Callable[[], Steps[list[Item]]],
        count: Callable[[Item], int],
        rows: Callable[[Item], Iterator[str]],
        show: Callable[[list[tuple[Item, str]], int | None], bytes],
        is_small: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._find, self._count, self._rows, self._show = find, count, rows, show
        self._is_small, self._clock = is_small, clock
        self._index = Shared(self._list, clock, thread_time)
        self._pages: dict[int, Shared[bytes]] = {}

    def get(self, first: int) -> Steps[bytes]:
        """Return the page that begins with row ``first``, in steps."""
        if self._is_small():
            return self._make(first, self._list())
        page = self._pages.pop(first, None)
        if page is None:
            page = Shared(lambda: self._make(first, self._index.get()), self._clock, thread_time)
        self._pages[first] = page
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return page.get()

    def _list(self) -> Steps[tuple[list[Item], list[int]]]:
        """Return what there is, and up to which row each of it goes."""
        found = yield from self._find()
        ends, end = [], 0
        for number, item in enumerate(found):
            end += self._count(item)
            ends.append(end)
            if number % _STEP == 0:
                yield
        return found, ends

    def _make(self, first: int, index: Steps[tuple[list[Item], list[int]]]) -> Steps[bytes]:
        found, ends = yield from index
        begin = bisect_right(ends, first)
        skipped = first - (ends[begin - 1] if begin else 0)
        page: list[tuple[Item, str]] = []
        size, at = 0, first
        for item in islice(found, begin, None):
            for row in islice(self._rows(item), skipped, None):
                if size >= PAGE_SIZE:
                    return self._show(page, at)
                page.append((item, row))
                size += len(row) + 2
                at += 1
                if at % _STEP == 0:
                    yield
            skipped = 0
        return self._show(page, None)
