"""Who would receive a name, and by which subscriptions, without I/O.

:mod:`pubsubd.broker.explain` tells it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from pubsubd.protocol.limits import MAX_REASONS
from pubsubd.protocol.wire import OWN
from pubsubd.routing.router import Router
from pubsubd.routing.substrings import Search
from pubsubd.routing.tables import Holder
from pubsubd.routing.targets import Receiver

_EXPLAINED = 256  # receivers looked at in one step


class Reasons:
    """Why a peer receives a name.

    Attributes:
        substrings: the first :data:`~pubsubd.protocol.limits.MAX_REASONS`, in order, of those it
            subscribes that are in the name.
        count: how many there are of these, listed or not.
        exact: whether it subscribes the name itself.
        patterns: texts of the wildcards it subscribes that match, in order.
    """

    __slots__ = ("count", "exact", "patterns", "substrings")

    def __init__(self) -> None:
        self.substrings: list[bytes] = []
        self.count = 0
        self.exact = False
        self.patterns: list[str] = []

    def add(self, substring: bytes) -> None:
        """Note a substring; a hundred thousand take too long to be sorted at once."""
        self.count += 1
        first = self.substrings
        if len(first) < MAX_REASONS or substring < first[-1]:
            insort(first, substring)
            del first[MAX_REASONS:]


def find_reasons(router: Router, name: bytes) -> Iterator[tuple[Receiver, bytes, Reasons] | None]:
    """Yield who would receive ``name``, and may: the peer, the name it would see, and why.

    The name seen is that of the copy for those who get only that. None comes in between, after
    a little work each: what is iterated over may go on later, and is then as it was found.
    """
    told: set[Receiver] = set()
    own = name.startswith(OWN)
    for seen in (name, None if own else router.copies.of(name)):
        if seen is None:
            continue
        search = Search()
        while not router.index.search(seen, search):
            yield None
        reasons: dict[Receiver, Reasons] = {}
        found = search.found
        while found:  # they are forgotten one by one, too
            substring = found.pop()
            holder = router.index.values.get(substring)
            if len(found) % _EXPLAINED == 0:
                yield None
            if holder is None or (own and not substring.startswith(OWN)):
                continue
            peers = _peers(holder, told)
            for start in range(0, len(peers), _EXPLAINED):
                for peer in peers[start : start + _EXPLAINED]:
                    reasons.setdefault(peer, Reasons()).add(substring)
                yield None
        if (exact := router.by_name.index.values.get(seen)) is not None:
            for peer in _peers(exact, told):
                reasons.setdefault(peer, Reasons()).exact = True
        for pattern in router.wildcards.find(seen):
            for peer in _peers(router.wildcards.values[pattern], told):
                reasons.setdefault(peer, Reasons()).patterns.append(pattern.text)
        told.update(reasons)
        for peer, why in reasons.items():
            if peer.permission is not None and not peer.permission.may_receive(seen):
                yield None
                continue
            why.patterns.sort()
            yield peer, seen, why


def _peers(holder: Holder, told: set[Receiver]) -> list[Receiver]:
    return [peer for peer in holder.members if peer not in told]
