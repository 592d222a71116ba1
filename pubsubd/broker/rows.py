"""Frames of one shape that each go to one receiver, dealt out many at a time, without I/O.

Strategy: where names come in turn, and each is another receiver's, a run is a frame or two, and
what the hot loop of :mod:`pubsubd.broker.broker` does for each run it does for each frame. Such
frames mostly have one length. They are rows of a table then: headers and frames are cut out of it,
and looked up, by loops that are not Python's. So a frame costs half of what it does there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from operator import is_not
from struct import Struct
from typing import cast

from pubsubd.routing.targets import CopyTargets, Denied, Route, Targets

_ROWS = 64  # looked at first
_MOST_ROWS = 1_024
_AT_ONCE = 4_096  # frames that are dealt before the clock is looked at
_GROWTH = 4
_CUT = 16  # rows that are cut at once
_RUN = 8  # frames of a run, on average, from which on the hot loop is quicker
_LARGEST = 1_024  # bytes of a frame: what is longer is copied for longer than it is looked up


def deal(
    buf: bytes,
    at: int,
    route: Route,
    get: Callable[[bytes], Route | None],
    touched: list[Targets | CopyTargets | Denied],
) -> int:
    """Put some of the frames at ``buf[at]`` to their only receivers; return how many there were.

    They have the lengths of ``route``. What follows them is one more such frame with a known
    header: so each of them is known to end with LF.

    Args:
        buf: what was read.
        at: where the first of them begins: the LF before it.
        route: of a frame like them.
        get: returns the route of a header, with the LF before it, if it is known.
        touched: to be given the receivers; see :class:`~pubsubd.broker.delivery.Delivery`.
    """
    length, dealt, rows = route.length, 0, _ROWS
    if length > _LARGEST:
        return 0
    heads, frames = _cutters(route.width, length)
    view = memoryview(buf)
    while True:
        count = min(rows, (len(buf) - 1 - at) // length) // _CUT * _CUT
        stop = at + count * length
        found = list(map(get, chain.from_iterable(heads.iter_unpack(view[at:stop]))))
        odd = {one for one in set(found) if one is None or one.length != length or not one.enqueue}
        if odd:
            del found[min(map(found.index, odd)) :]
        alike = cast("list[Route]", found)
        first = alike[:_ROWS]
        if len(first) < 2 or sum(map(is_not, first, first[1:])) * _RUN < len(first):
            return dealt
        del alike[-1]
        for one, messages in Counter(alike).items():
            targets = one.targets
            if not targets.enqueued:
                touched.append(targets)
            targets.enqueued += messages
        cut = chain.from_iterable(frames.iter_unpack(view[at + 1 : stop + 1]))
        for one, frame in zip(alike, cut, strict=False):
            one.enqueue(frame)  # type: ignore[misc]  # as is not odd
        dealt += len(alike)
        if odd or dealt >= _AT_ONCE:
            return dealt
        at += len(alike) * length
        rows = min(_GROWTH * rows, _MOST_ROWS)


@lru_cache(64)
def _cutters(width: int, length: int) -> tuple[Struct, Struct]:
    """Return what cuts the headers out of rows, and what cuts the frames out."""
    return Struct(f"{width}s{length - width}x" * _CUT), Struct(f"{length}s" * _CUT)
