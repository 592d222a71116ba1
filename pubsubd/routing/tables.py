"""Subscribers by key, for one kind of subscription: substrings, exact names or wildcards.

Invariants:

- ``index.values[key]`` exists if and only if some peer subscribes ``key``.
- The only subscriber of a key is kept as its :class:`Targets`, several as a :class:`SubscriberSet`.
- ``count`` is the number of pairs of a peer and a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from pubsubd.routing.parts import LARGE, AnyTable, Size, Table
from pubsubd.routing.targets import Receiver, Targets

Key = TypeVar("Key")


class SubscriberSet:
    """The several peers of one subscription; their :class:`Targets` is made when needed."""

    __slots__ = ("members", "targets")

    def __init__(self, members: Iterable[Receiver]) -> None:
        self.members = dict.fromkeys(members)
        self.targets: Targets | None = None


Holder = Targets | SubscriberSet


class Index(Protocol[Key]):
    """Finds the keys that match a name.

    Attributes:
        values: key -> subscribers.
    """

    @property
    def values(self) -> AnyTable[Key, Holder]:
        """Return the subscribers by key."""

    def add(self, key: Key, value: Holder, /) -> None:
        """Add a key that is not there yet."""

    def remove(self, key: Key, /) -> None:
        """Remove a key; raises KeyError if it is not there."""


class ExactIndex:
    """Keys that match the name that they are."""

    def __init__(self) -> None:
        self.values: AnyTable[bytes, Holder] = Table()
        self._size = Size()

    def add(self, name: bytes, value: Holder) -> None:
        """Add a name that is not there yet."""
        part = self.values.part(name)
        part[name] = value
        self._size.count += 1
        if len(part) > LARGE:
            self.values = self.values.fit()

    def remove(self, name: bytes) -> None:
        """Remove a name; raises KeyError if it is not there."""
        del self.values.part(name)[name]
        if (number := self._size.remove()) >= 0:
            self.values = self.values.narrow(number)


class SubscriptionTable(Generic[Key]):
    """Subscriptions of one kind: peers by key.

    Args:
        index: where the keys are.
        attribute: of a peer, which has the set of its keys, or None for none.
        wanted: returns the interests under ``//fwd/`` that a key is, mostly none.
        only: returns the targets that are one peer alone.
        interest: called with peer, interest and 1 or -1 when a subscription with an interest comes
            or goes.
        on_remove: called with peer and key when a subscription goes.

    Attributes:
        watch: called with peer, key and 1 or -1 when a subscription comes or goes.
    """

    def __init__(
        self,
        index: Index[Key],
        attribute: str,
        wanted: Callable[[Key], tuple[bytes, ...]],
        only: Callable[[Receiver], Targets],
        interest: Callable[[Receiver, bytes, int], None],
        on_remove: Callable[[Receiver, Key], None],
    ) -> None:
        self.index = index
        self.count = 0
        self._attribute = attribute
        self._wanted = wanted
        self._only = only
        self._interest = interest
        self._on_remove = on_remove
        self.watch: Callable[[Receiver, Key, int], None] | None = None

    def add(self, peer: Receiver, key: Key) -> bool:
        """Let ``peer`` subscribe ``key``; return False if it does already."""
        keys = getattr(peer, self._attribute)
        if keys is None:
            setattr(peer, self._attribute, keys := set())
        elif key in keys:
            return False
        part = self.index.values.part(key)
        holder = part.get(key)
        if isinstance(holder, Targets):
            # Before the peer has the key: else, if this failed, its leaving would remove the other.
            holder = part[key] = SubscriberSet(holder.members)
        keys.add(key)
        self.count += 1
        if holder is None:
            self.index.add(key, self._only(peer))
        else:
            holder.members[peer] = None
            holder.targets = None
        for interest in self._wanted(key):
            self._interest(peer, interest, 1)
        if self.watch is not None:
            self.watch(peer, key, 1)
        return True

    def remove(self, peer: Receiver, key: Key) -> bool:
        """Undo :meth:`add`; return False if there is nothing to undo."""
        keys = getattr(peer, self._attribute)
        if not keys or key not in keys:
            return False
        keys.remove(key)
        self._removed(peer, key, keys)
        return True

    def pop(self, peer: Receiver) -> Key | None:
        """Remove any subscription of a peer and return its key, or None if there is none."""
        keys = getattr(peer, self._attribute)
        if not keys:
            return None
        key: Key = keys.pop()
        self._removed(peer, key, keys)
        return key

    def _removed(self, peer: Receiver, key: Key, left: set[Key]) -> None:
        if not left and self._attribute != "substrings":
            setattr(peer, self._attribute, None)
        if not self._let_out(key, peer):
            self.index.remove(key)
        self.count -= 1
        self._on_remove(peer, key)
        for interest in self._wanted(key):
            self._interest(peer, interest, -1)
        if self.watch is not None:
            self.watch(peer, key, -1)

    def _let_out(self, key: Key, peer: Receiver) -> bool:
        """Take ``peer`` from the subscribers of ``key``; return False if it is the only one."""
        part = self.index.values.part(key)
        holder = part[key]
        if isinstance(holder, Targets):
            return False
        del holder.members[peer]
        holder.targets = None
        if len(holder.members) == 1:
            part[key] = self._only(next(iter(holder.members)))
        return True

    def repair(self, gone: Receiver) -> dict[bytes, int]:
        """Take ``gone`` out of every entry, whatever its own record says, and count anew.

        Returns:
            How many subscriptions of this daemon's peers are each interest.
        """
        self.count = 0
        interests: dict[bytes, int] = {}
        for key, holder in list(self.index.values.items()):
            if gone in holder.members and not self._let_out(key, gone):
                self.index.remove(key)
                continue
            members = self.index.values[key].members
            self.count += len(members)
            wanted = self._wanted(key)
            if wanted and (near := sum(not one.remote for one in members)):
                for interest in wanted:
                    interests[interest] = interests.get(interest, 0) + near
        return interests
