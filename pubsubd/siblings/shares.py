"""What is for a single receiver at another worker, without I/O.

A key that only one peer there subscribes is told with the number of that peer, its owner. Here it
is subscribed by a receiver of its own, a share of the sibling. So the router finds who gets a
message at the other worker, too, and that one hands it on without reading it again.

Invariants:

- A key of another worker is subscribed either by its :class:`~pubsubd.siblings.sibling.Sibling` or
  by one of its shares; ``Shares.keys`` has those of the latter.
- A message that several shares want, or the sibling and a share, is the sibling's: :func:`unite`.
- Whatever is taken after something that is the sibling's is the sibling's, too, until it is sent:
  so each receiver gets what one client has published in its order. Who has subscribed meanwhile
  gets nothing of what was taken for another owner, as the order of that is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from pubsubd.access.rules import Permission
from pubsubd.broker.peer import Peer, stay
from pubsubd.routing.router import Router
from pubsubd.routing.targets import Receiver
from pubsubd.routing.wildcards import Pattern


class Speaking(Protocol):
    """The part of :class:`~pubsubd.broker.delivery.Delivery` that this needs."""

    speaker: Peer | None
    vouching: int


class Siblings(Protocol):
    """The part of :class:`~pubsubd.siblings.siblings.Siblings` that this needs."""

    closed: bool

    @property
    def delivery(self) -> Speaking:
        """Return what knows who speaks."""


class Share:
    """A receiver at another worker, of what nobody else there wants.

    Attributes:
        shares: those of the same worker.
        owner: its number there.
        chunks: what was taken and is not sent.
    """

    remote = False
    render: Callable[[bytes], bool] | None = None
    permission: Permission | None = None

    def __init__(self, shares: Shares, owner: int) -> None:
        self.shares, self.owner = shares, owner
        self.label = shares.sibling.label
        self.end = stay
        self.substrings: set[bytes] = set()
        self.names: set[bytes] | None = None
        self.patterns: set[Pattern] | None = None
        self.pending: list[bytes] = []  # stays empty
        self.chunks: list[bytes] = []
        self._messages_out = self._counted = 0
        self.send = shares.sibling.send
        self.enqueue = shares.taker(self)

    @property
    def messages_out(self) -> int:
        """Messages sent so far."""
        return self._messages_out

    @messages_out.setter
    def messages_out(self, count: int) -> None:
        self.shares.sibling.messages_out += count - self._messages_out
        if not self.shares.siblings.closed:  # else they are not sent
            self.shares.counted[self] = None
            self._messages_out = count

    def count(self) -> int:
        """Return how many messages more there are than when this was called before."""
        before, self._counted = self._counted, self._messages_out
        return self._counted - before


class Sibling(Receiver, Protocol):
    """The part of a :class:`~pubsubd.siblings.sibling.Sibling` that this needs."""

    def touch(self) -> None:
        """Take note that something was put for it."""


class Shares:
    """The shares of a sibling.

    Args:
        sibling: whose they are.
        siblings: all of these.
        taken: what is taken for the sibling itself and is not sent.

    Attributes:
        sibling, siblings: see the arguments.
        by_owner: owner -> share, of those that subscribe anything.
        keys: kind -> key -> the share that subscribes it.
        chosen: those for which something is taken, in the order of the first of it.
        speaker: whose it is.
        counted: those whose messages were counted since something was sent.
    """

    def __init__(self, sibling: Sibling, siblings: Siblings, taken: list[Any]) -> None:
        self.sibling, self.siblings = sibling, siblings
        self._taken = taken
        self.by_owner: dict[int, Share] = {}
        self.keys: dict[bytes, dict[Any, Share]] = {kind: {} for kind in (b"s", b"n", b"p")}
        self.chosen: list[Share] = []
        self.speaker: Peer | None = None
        self.counted: dict[Share, None] = {}

    def taker(self, share: Share) -> Callable[[bytes], None]:
        """Return what takes runs for a share; called for each."""
        siblings, delivery, taken = self.siblings, self.siblings.delivery, self._taken
        sibling, chosen, chunks = self.sibling, self.chosen, share.chunks
        put, take_all = chunks.append, self.sibling.enqueue

        def take(chunk: bytes) -> None:
            if siblings.closed:
                return
            speaker = delivery.speaker
            if taken or delivery.vouching or (chosen and speaker is not self.speaker):
                take_all(chunk)
                return
            if not chunks:
                if not chosen:
                    if speaker is None or speaker.relayed:
                        take_all(chunk)
                        return
                    self.speaker = speaker
                    sibling.touch()
                chosen.append(share)
            put(chunk)

        return take

    def parts(self) -> list[tuple[int, int, list[bytes]]]:
        """Return what was taken for each: owner, how many messages, and frames.

        Messages that the sibling has taken count, too.
        """
        found = [(share.owner, share.count(), share.chunks[:]) for share in self.chosen]
        for share in self.chosen:
            share.chunks.clear()
        self.chosen.clear()
        return found

    def sent(self) -> None:
        """Take note that all that was counted is sent."""
        for share in self.counted:
            share.count()
        self.counted.clear()

    def subscribe(self, router: Router, owner: int | None, kind: bytes, key: Any) -> None:
        """Let the share of an owner have a key, or the sibling itself if that is None."""
        keys = self.keys[kind]
        before = keys.pop(key, None)
        receiver: Receiver = self.sibling
        if owner is not None:
            share = self.by_owner.get(owner)
            if share is None:
                share = self.by_owner[owner] = Share(self, owner)
            receiver = keys[key] = share
        add, remove = _means(router, kind)
        add(receiver, key)
        if before is not None and before is not receiver:
            remove(before, key)
            self._forget_empty(before)
        elif before is None and receiver is not self.sibling:
            remove(self.sibling, key)

    def unsubscribe(self, router: Router, kind: bytes, key: Any) -> None:
        """Let whoever has a key have it no more."""
        share = self.keys[kind].pop(key, None)
        _means(router, kind)[1](share or self.sibling, key)
        if share is not None:
            self._forget_empty(share)

    def _forget_empty(self, share: Share) -> None:
        if not (share.substrings or share.names or share.patterns):
            self.by_owner.pop(share.owner, None)

    def forget(self, router: Router) -> Iterator[None]:
        """Undo all that they subscribe, in steps."""
        for share in list(self.by_owner.values()):
            yield from router.forget(share)


def _means(router: Router, kind: bytes) -> tuple[Callable[..., object], Callable[..., object]]:
    """Return what adds and what removes a key of a kind."""
    if kind == b"s":
        return router.subscribe, router.unsubscribe
    if kind == b"n":
        return router.subscribe_name, router.unsubscribe_name
    return router.subscribe_pattern, router.unsubscribe_pattern


def unite(receivers: frozenset[Receiver]) -> frozenset[Receiver]:
    """Return receivers with a sibling in place of its shares, if it is more than one receiver."""
    counts = Counter(one.shares.sibling for one in receivers if isinstance(one, Share))
    return _replace(receivers, {at for at, n in counts.items() if n > 1 or at in receivers})


def gather(receivers: frozenset[Receiver]) -> frozenset[Receiver]:
    """Return receivers with a sibling in place of its shares."""
    return _replace(receivers, {one.shares.sibling for one in receivers if isinstance(one, Share)})


def _replace(receivers: frozenset[Receiver], whole: set[Sibling]) -> frozenset[Receiver]:
    if not whole:
        return receivers
    others = (
        one for one in receivers if not (isinstance(one, Share) and one.shares.sibling in whole)
    )
    return frozenset((*others, *whole))
