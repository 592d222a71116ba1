"""What the receivers of this worker subscribe, for the other workers to know.

A key is told when it gets its first subscriber here, and when it loses its last. If the only one is
a peer that is sent messages as they are, its number as the owner is told, too. Of exact names,
which publishers on the hub port are told the number of subscribers of, each change of that is told.
Changes are gathered and told together.

Invariants:

- ``counts[kind][key]`` is the number of this worker's own receivers that subscribe a key; siblings
  do not count, nor do the daemon's own names, which no message has.
- ``subscribers`` has how many of these keys each receiver subscribes, of those that do;
  ``rendering`` has those of them that render what they are sent.
- ``owners`` and ``by_owner`` have those of them that are told as owners, and who still subscribe
  anything; no number is used twice.
- ``_changed`` has the keys whose being there is not what the others were told last, and
  ``_counted`` names that are there as before, but with another number of subscribers, and
  ``_moved`` keys that are there as before, but may have another owner, or none any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pubsubd.broker.peer import Peer
from pubsubd.protocol.wire import OWN
from pubsubd.routing.router import Router
from pubsubd.routing.tables import SubscriptionTable
from pubsubd.routing.targets import Receiver, Targets
from pubsubd.routing.wildcards import Pattern
from pubsubd.siblings.shares import Shares

_LINES = 512  # keys told in one frame
_MOST_OWNERS = 1_024  # at a time
_MOST_ALIKE = 1_024  # receivers of which it is known that they are alike

Key = bytes | Pattern


class Interests:
    """The subscriptions of a worker's own receivers.

    Args:
        router: the worker's.
        is_sibling: tells whether a receiver is another worker.
        subscribed: called with a receiver that has subscribed something.
        woken: called when there is something to tell.

    Attributes:
        lost: whether a key has lost its last subscriber, until who is told that sets it back.
        left: whether somebody subscribes a key no more, until who is told that sets it back.
        gained: whether somebody subscribes another key, until who is told that sets it back.
    """

    def __init__(
        self,
        router: Router,
        is_sibling: Callable[[Receiver], bool],
        subscribed: Callable[[Receiver], None],
        woken: Callable[[], None],
    ) -> None:
        self._is_sibling = is_sibling
        self._subscribed, self._woken = subscribed, woken
        self._tables: dict[str, SubscriptionTable[Any]] = {
            "s": router.by_substring,
            "n": router.by_name,
            "p": router.by_pattern,
        }
        self.counts: dict[str, dict[Any, int]] = {kind: {} for kind in self._tables}
        self.subscribers: dict[Receiver, int] = {}
        self.rendering: set[Receiver] = set()
        self.owners: dict[Receiver, int] = {}
        self.by_owner: dict[int, Peer] = {}
        self._owner = 0  # the last one
        self._pairs = 0  # of a receiver and a key that it subscribes
        self._everybody: Targets | None = None
        self._looked = False  # whether that holds
        self._changed: dict[tuple[str, Any], bool] = {}
        self._counted: dict[bytes, None] = {}
        self._moved: dict[tuple[str, Any], None] = {}
        for kind, table in self._tables.items():
            table.watch = partial(self._note, kind, self.counts[kind])
        router.on_repair = self.recount
        self.recount()
        self.lost = self.left = self.gained = False  # nobody has been told anything

    def _note(self, kind: str, counts: dict[Any, int], peer: Receiver, key: Any, by: int) -> None:
        if self._is_sibling(peer):
            return
        if kind != "p" and key.startswith(OWN):
            return
        self._looked = False
        self._pairs += by
        had = self.subscribers.get(peer, 0)
        if had + by > 0:
            self.subscribers[peer] = had + by
        else:
            self.subscribers.pop(peer, None)
            self.rendering.discard(peer)
            if (owner := self.owners.pop(peer, None)) is not None:
                del self.by_owner[owner]
        if not had and peer.render is not None:
            self.rendering.add(peer)
        before = counts.get(key, 0)
        if before + by > 0:
            counts[key] = before + by
        else:
            counts.pop(key, None)
            self.lost = True
        if not before or before + by <= 0:
            self._change(kind, key, before > 0)
        elif kind == "n":
            self._counted[key] = None
        if by > 0:
            if before <= 1 and (kind, key) not in self._changed:
                self._moved[kind, key] = None
            self.gained = True
            self._subscribed(peer)
        else:
            self.left = True
        self._woken()

    def _change(self, kind: str, key: Any, told: bool) -> None:
        """Note that a key has come or gone, of which ``told`` says whether it was there."""
        if self._changed.pop((kind, key), None) is None:
            self._changed[kind, key] = not told

    @property
    def everybody(self) -> Targets | None:
        """The receivers that all get whatever siblings send: they subscribe the same keys."""
        if not self._looked:
            self._looked, self._everybody = True, None
            members = self.subscribers
            keys = sum(map(len, self.counts.values()))
            if (
                len(members) <= _MOST_ALIKE
                and members
                and self._pairs == keys * len(members)
                and not any(one.remote for one in members)
            ):
                self._everybody = Targets(members)
        return self._everybody

    def recount(self) -> None:
        """Count everything anew."""
        self.subscribers.clear()
        self.rendering.clear()
        self._pairs, self._looked = 0, False
        self.lost = self.left = self.gained = True
        for kind, table in self._tables.items():
            counts, before = self.counts[kind], set(self.counts[kind])
            counts.clear()
            for key, holder in table.index.values.items():
                own = [peer for peer in holder.members if not self._is_sibling(peer)]
                if own and (kind == "p" or not key.startswith(OWN)):
                    counts[key] = len(own)
                    self._pairs += len(own)
                    for peer in own:
                        self.subscribers[peer] = self.subscribers.get(peer, 0) + 1
                        if peer.render is not None:
                            self.rendering.add(peer)
            for key in before.symmetric_difference(counts):
                self._change(kind, key, key in before)
            self._moved.update(dict.fromkeys((kind, key) for key in before.intersection(counts)))
        gone = self.owners.keys() - self.subscribers.keys()
        for peer in gone:
            del self.by_owner[self.owners.pop(peer)]
        self._woken()

    @property
    def pending(self) -> bool:
        """Whether there are changes that the others have not been told."""
        return bool(self._changed or self._moved or self._counted)

    def changes(self) -> bytes:
        """Return what tells the others of changes that they do not know, as many as go at once."""
        changed = self._changed
        lines: list[bytes] = []
        while changed and len(lines) < _LINES:
            kind, key = next(iter(changed))
            lines.append(self._line(kind, key, changed.pop((kind, key))))
        moved = self._moved
        while not changed and moved and len(lines) < _LINES:
            (kind, key), _ = moved.popitem()
            if key in self.counts[kind]:
                lines.append(self._line(kind, key, True))
        counts, counted = self.counts["n"], self._counted
        while not (changed or moved) and counted and len(lines) < _LINES:
            name, _ = counted.popitem()
            if name in counts:
                lines.append(b"=n%b %d\n" % (name, counts[name]))
        return b"".join(lines)

    def everything(self) -> Iterator[bytes]:
        """Return what tells a new sibling of all keys, in pieces; others may change meanwhile."""
        for kind, counts in self.counts.items():
            keys = list(counts)
            for start in range(0, len(keys), _LINES):
                part = keys[start : start + _LINES]
                lines = [self._line(kind, key, True) for key in part if key in counts]
                if kind == "n":
                    lines += [b"=n%b %d\n" % (key, counts[key]) for key in part if key in counts]
                yield b"".join(lines)

    def _line(self, kind: str, key: Any, there: bool) -> bytes:
        sign = b"+" if there else b"-"
        if there and self.counts[kind].get(key) == 1:
            members = self._tables[kind].index.values[key].members
            only = (one for one in members if not self._is_sibling(one))
            if owner := self._own(next(only, None)):
                sign = b"@%d " % owner
        if isinstance(key, Pattern):
            return b"%b%b%b\n" % (sign, key.separator, key.text.encode())
        return b"%b%b%b\n" % (sign, kind.encode(), key)

    def _own(self, receiver: Receiver | None) -> int:
        """Return the number of a receiver as an owner; 0 if it is none."""
        if not isinstance(receiver, Peer) or receiver.render is not None:
            return 0
        owner = self.owners.get(receiver, 0)
        if not owner and len(self.owners) < _MOST_OWNERS:
            self._owner += 1
            owner = self.owners[receiver] = self._owner
            self.by_owner[owner] = receiver
        return owner


def follow(
    router: Router, shares: Shares, lines: bytes, counts: dict[bytes, int]
) -> Iterator[None]:
    """Let a sibling subscribe, and no longer subscribe, what it has told; in steps.

    Args:
        router: of this worker.
        shares: of the sibling that has told it.
        lines: see :meth:`Interests.changes`.
        counts: name -> how many subscribe it there, if these are several.
    """
    for line in lines.split(b"\n"):
        if not line:
            continue
        there, owner, kind, key = line[:1] != b"-", None, line[1:2], line[2:]
        if line.startswith(b"="):
            name, _, number = key.partition(b" ")
            counts[name] = int(number)
            yield
            continue
        if line.startswith(b"@"):
            number, _, key = line[1:].partition(b" ")
            owner, kind, key = int(number), key[:1], key[1:]
        what: bytes | Pattern = key
        if kind == b"n":
            counts.pop(key, None)
        elif kind != b"s":
            make = Pattern.dots if kind == b"." else Pattern.slashes
            kind, what = b"p", make(key.decode())
        if there:
            shares.subscribe(router, owner, kind, what)
        else:
            shares.unsubscribe(router, kind, what)
        yield
