"""What the other workers' clients have of that which is limited for the whole daemon, without I/O.

What others have is known a moment later than it is there. So clients of several workers that come
at the same moment may get a little more, together, than the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pubsubd.siblings import frames
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import Siblings

COUNT = b"count"


class Elsewhere:
    """What is at other workers; for the hub, as :class:`pubsubd.hub.policy.Elsewhere` says.

    Args:
        siblings: the other workers.
        counts: what is told of this worker: name -> how many there are.
    """

    def __init__(self, siblings: Siblings, counts: Mapping[str, Callable[[], int]]) -> None:
        self._siblings, self._counts = siblings, counts
        self._told = dict.fromkeys(counts, 0)
        self._others: dict[Sibling, dict[str, int]] = {}
        siblings.told[COUNT] = self._hear
        siblings.introductions.append(self._introduce)
        siblings.farewells.append(self._forget)
        siblings.changes.append(self._tell)

    @property
    def topics(self) -> int:
        """Names that are subscribed at other workers, and not here."""
        siblings = self._siblings
        names = siblings.broker.router.by_name.index.values
        return len(names) - len(siblings.interests.counts["n"])

    def subscribers(self, name: bytes) -> int:
        """Return how many subscribe a name there."""
        others = self._siblings.others.values()
        return sum(one.subscribers(name) for one in others if one.names and name in one.names)

    def count(self, what: str) -> int:
        """Return how many there are there of what is told."""
        return sum(counts.get(what, 0) for counts in self._others.values())

    def _tell(self) -> None:
        for what, count in self._counts.items():
            if (now := count()) != self._told[what]:
                self._told[what] = now
                self._siblings.tell(COUNT, b"%b %d" % (what.encode(), now))

    def _introduce(self) -> Iterator[bytes]:
        for what, count in self._told.items():
            yield frames.frame(frames.TELL, b"%b\n%b %d" % (COUNT, what.encode(), count))

    def _hear(self, sibling: Sibling, data: bytes) -> None:
        what, count = data.decode().split(" ")
        self._others.setdefault(sibling, {})[what] = int(count)

    def _forget(self, sibling: Sibling) -> Iterator[None]:
        self._others.pop(sibling, None)
        yield
