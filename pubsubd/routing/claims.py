"""Claims of the other daemons: which of them has a key, or had it first, without I/O.

Invariants:

- ``_where[key]`` is the daemon with the earliest claim of ``key``, of those in the tables.
- ``_rivals`` has the keys that several tables have, with these.
- ``known`` is the number of claims in all tables; at most :data:`MAX_KNOWN`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from pubsubd.protocol.shards import Shards
from pubsubd.protocol.steps import Steps

MAX_KNOWN = 200_000
"""Claims of other daemons that are known at a time, some 300 bytes each, and their details."""

MAX_RIVALS = 64
"""Daemons that may claim one key at a time; all but one of them withdraw it soon."""

_STEP = 64  # claims between two looks at the clock


class Learner(Protocol):
    """What keeps the details of the claims."""

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take a claim of another daemon, or its new details; False if there is no room for it.

        Raises:
            ValueError: the details cannot be read.
        """

    def forget(self, node: str, key: str) -> None:
        """Take note that another daemon's claim is gone."""


class Table:
    """The claims of another daemon.

    Attributes:
        incarnation: of the daemon.
        sequence: of the last letter that is in it; None until everything was told once.
        claims: key -> since when, in milliseconds.
        fresh: the keys that were told since everything began to come; None if it does not come.
        part: the number of the part that is to come next.
        behind: since when an advert has told of a later letter; None if it has not.
        asked: when everything was asked for last.
        full: whether there was no room for a claim.
    """

    __slots__ = (
        "asked",
        "behind",
        "claims",
        "fresh",
        "full",
        "incarnation",
        "part",
        "sequence",
    )

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.sequence: int | None = None
        self.claims: Shards[int] = Shards()
        self.fresh: Shards[None] | None = None
        self.part = 0
        self.behind: float | None = None
        self.asked = float("-inf")
        self.full = False


class Claims:
    """The claims of all other daemons.

    Attributes:
        tables: daemon -> its claims; not of one that cannot be reached.
        known: claims in all of them, and of daemons that are being forgotten.
        learner: keeps the details; set before there are any.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.known = 0
        self.learner: Learner | None = None
        self._where: Shards[str] = Shards()
        self._rivals: Shards[set[str]] = Shards()
        self._dropping: deque[tuple[str, Iterator[str]]] = deque()

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def find(self, key: str) -> str | None:
        """Return the daemon with the earliest claim of a key."""
        node: str | None = self._where.get(key)
        return node

    def add(self, node: str, table: Table, key: str, since: int, details: bytes) -> bool:
        """Take a claim, or its new details; return False if there is no room for it.

        Raises:
            ValueError: the details cannot be read.
        """
        assert self.learner is not None
        new = key not in table.claims
        rivals = self._rivals.get(key, ())
        if new and (self.known >= MAX_KNOWN or len(rivals) >= MAX_RIVALS):
            return False
        if not self.learner.learn(node, key, since, details):
            return False
        self.known += new
        table.claims[key] = since
        holder = self._where.get(key)
        if holder is None:
            self._where[key] = node
        elif key in self._rivals or holder != node:
            self._rivals.setdefault(key, {holder}).add(node)
            self._choose(key)
        return True

    def remove(self, node: str, table: Table | None, key: str) -> None:
        """Forget a claim, if it is in the table; or one that was in it, for None."""
        if table is not None and table.claims.pop(key, None) is None:
            return
        self.known -= 1
        rivals = self._rivals.get(key)
        if rivals is not None:
            rivals.discard(node)
            self._choose(key)
        elif self._where.get(key) == node:
            del self._where[key]
        assert self.learner is not None
        self.learner.forget(node, key)

    def _choose(self, key: str) -> None:
        """Note which of several daemons has the earliest claim of a key."""
        rivals = self._rivals[key]
        claims = [
            (table.claims[key], node)
            for node in rivals
            if (table := self.tables.get(node)) is not None and key in table.claims
        ]
        if len(claims) < 2:
            del self._rivals[key]
        if claims:
            self._where[key] = min(claims)[1]
        else:
            self._where.pop(key, None)

    def drop(self, node: str) -> bool:
        """Forget a daemon; return whether :meth:`emptying` has something to do."""
        table = self.tables.pop(node)
        if table.claims:
            self._dropping.append((node, iter(table.claims)))
        return bool(self._dropping)

    def emptying(self) -> Steps[None]:
        """Forget the claims of daemons that are gone, in steps."""
        while self._dropping:
            node, keys = self._dropping[0]
            for done, key in enumerate(keys, 1):
                table = self.tables.get(node)  # it may be back, and have told the key anew
                if table is not None and key in table.claims:
                    self.known -= 1
                else:
                    self.remove(node, None, key)
                if done % _STEP == 0:
                    yield
            self._dropping.popleft()
