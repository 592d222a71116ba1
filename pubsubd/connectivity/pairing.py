"""As few pairs as can be that have each end in one, and no two ends of one group together."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from itertools import cycle, islice

from pubsubd.protocol.steps import Steps

Pair = tuple[int, int]

_STEP = 256  # ends between two pauses


def pair(groups: list[list[int]], joined: bool) -> Steps[list[Pair]]:
    """Return pairs of ends of different groups that have each end in one of them, in steps.

    There are ``max(ceil(ends / 2), groups - 1 if joined)`` pairs, and fewer there cannot be. It
    rests on when whole numbers are the degrees of a multigraph without loops: their sum is even
    and none is more than half of it; and of a connected one: the sum is 2 (groups - 1) or more
    besides (Hakimi 1962).

    Args:
        groups: two or more lists of one end or more, none with more than half of all, rounded
            down. Those that come first are paired first.
        joined: the pairs have to connect all groups. An end may then be in several.
    """
    ends = sum(map(len, groups))
    pairs = max(-(-ends // 2), len(groups) - 1 if joined else 0)
    counts = yield from _spread([len(group) for group in groups], 2 * pairs)
    # The groups with the most ends first, which is what makes the greedy choices below work.
    order = sorted(range(len(groups)), key=lambda i: -counts[i])
    left = [iter(list(islice(cycle(groups[i]), counts[i]))) for i in order]
    rest = [counts[i] for i in order]
    yield
    made = (yield from _join(rest)) if joined else []
    made += yield from _match(rest)
    return [(next(left[i]), next(left[j])) for i, j in made]


def _spread(counts: list[int], total: int) -> Steps[list[int]]:
    """Return the counts raised to a sum of ``total``, always the lowest one first."""
    heap = [(count, i) for i, count in enumerate(counts)]
    heapify(heap)
    for done in range(total - sum(counts)):
        count, i = heap[0]
        heapreplace(heap, (count + 1, i))
        if done % _STEP == 0:
            yield
    raised = [0] * len(counts)
    for count, i in heap:
        raised[i] = count
    return raised


def _join(rest: list[int]) -> Steps[list[Pair]]:
    """Return a tree of all groups; ``rest`` then tells what each has left. It is descending.

    Each group is linked to that one of the tree that has the most left.
    """
    heap = [(-rest[0], 0)]
    made = []
    for new in range(1, len(rest)):
        count, most = heap[0]
        heapreplace(heap, (count + 1, most))
        made.append((most, new))
        rest[most] -= 1
        rest[new] -= 1
        heappush(heap, (-rest[new], new))
        if new % _STEP == 0:
            yield
    return made


def _match(rest: list[int]) -> Steps[list[Pair]]:
    """Return pairs of different groups until nothing is left, the two that have the most first."""
    heap = [(-count, i) for i, count in enumerate(rest) if count]
    heapify(heap)
    made = []
    while heap:
        one, i = heappop(heap)
        other, j = heappop(heap)
        made.append((i, j))
        for count, group in ((one + 1, i), (other + 1, j)):
            if count:
                heappush(heap, (count, group))
        if len(made) % _STEP == 0:
            yield
    return made
