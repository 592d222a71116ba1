"""Searches for the subscribers of a name that take more than a turn, and are gone on with.

Invariant: a lookup that was interrupted has all matching substrings, and their subscribers, that
came since it began.
"""

from __future__ import annotations

from pubsubd.routing.copies import Copies
from pubsubd.routing.substrings import STEPS, Search, SubstringIndex
from pubsubd.routing.tables import Holder, SubscriberSet
from pubsubd.routing.targets import Receiver

_MOST = 256  # interrupted ones that are kept, with _FOUND patterns in all
_FOUND = 500_000
AT_ONCE = 256  # substrings whose subscribers the caller unites


class Unfinished(Exception):  # noqa: N818  (it is no error)
    """The subscribers of a name take more than one turn to find: ask again in the next one."""


class Lookup(Search):
    """The subscribers of substrings of one name that have been found so far.

    Attributes:
        rest: the patterns whose subscribers are not in ``peers`` yet; None until all are found.
        peers: the subscribers of the others.
        doubtful: those of them that have unsubscribed something since.
    """

    __slots__ = ("doubtful", "peers", "rest")

    def __init__(self) -> None:
        super().__init__()
        self.rest: list[bytes] | None = None
        self.peers: set[Receiver] = set()
        self.doubtful: set[Receiver] = set()


class Lookups:
    """Finds the subscribers of substrings of a name, a turn's worth at a time.

    Args:
        index: substring -> subscribers.
        copies: which names have copies.

    Attributes:
        kept: name -> the interrupted lookup of it.
    """

    def __init__(self, index: SubstringIndex[Holder], copies: Copies) -> None:
        self._index = index
        self._copies = copies
        self.kept: dict[bytes, Lookup] = {}

    def holders(self, name: bytes) -> list[Holder]:
        """Return the subscribers of each substring of ``name``, or of all together.

        Raises:
            Unfinished: as :meth:`find`.
        """
        index = self._index
        values, stop = index.values, index.work + STEPS
        lookup = self.find(name)
        if len(lookup.found) <= AT_ONCE and name not in self.kept:
            return [values[substring] for substring in lookup.found]
        if lookup.rest is None:
            lookup.rest = list(lookup.found)
        while lookup.rest:
            if index.work > stop:
                self._keep(name, lookup)
                raise Unfinished
            holder = values.get(lookup.rest.pop())
            if holder is not None:
                lookup.peers.update(holder.members)
                index.work += 4 + len(holder.members) // 4
        for peer in lookup.doubtful:
            if peer.substrings.isdisjoint(lookup.found):
                lookup.peers.discard(peer)
        lookup.doubtful.clear()
        return [SubscriberSet(lookup.peers)] if lookup.peers else []

    def find(self, name: bytes) -> Lookup:
        """Return the lookup of ``name`` when all substrings are found that it contains.

        Some of these may have gone meanwhile.

        Raises:
            Unfinished: that takes more than one turn; asked again, the search goes on.
        """
        lookup = self.kept.get(name) or Lookup()
        if lookup.rest is None and not self._index.search(name, lookup):
            self._keep(name, lookup)
            raise Unfinished
        return lookup

    def _keep(self, name: bytes, lookup: Lookup) -> None:
        kept = self.kept
        kept[name] = lookup
        while len(kept) > _MOST or (
            len(kept) > 1 and sum(len(one.found) for one in kept.values()) > _FOUND
        ):
            del kept[next(iter(kept))]

    def end(self, name: bytes) -> None:
        """Note that ``name`` is answered, and with it its copy."""
        if self.kept:
            self.kept.pop(name, None)
            self.kept.pop(self._copies.of(name) or b"", None)

    def note_added(self, peer: Receiver, substring: bytes) -> None:
        """Note that a peer has subscribed a substring."""
        for name, lookup in self.kept.items():
            if substring in name:
                lookup.found.add(substring)
                lookup.peers.add(peer)

    def note_removed(self, peer: Receiver, substring: bytes) -> None:
        """Note that a peer has unsubscribed a substring: it may have another one."""
        for name, lookup in self.kept.items():
            if substring in name:
                lookup.doubtful.add(peer)

    def forget(self, peer: Receiver) -> None:
        """Leave out a peer that is gone."""
        for lookup in self.kept.values():
            lookup.peers.discard(peer)
            lookup.doubtful.discard(peer)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def patterns(self) -> int:
        """Substrings that interrupted lookups have found."""
        return sum(len(one.found) for one in self.kept.values())
