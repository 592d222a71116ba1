"""Which peers want a name, without I/O.

A subscription is a substring, an exact name, or a wildcard over the levels of a name; a peer that
has several of them is still one receiver.

Strategy: what was asked once is remembered twice, so that the broker pays one
dictionary lookup for a header it has seen. ``routes`` maps the raw bytes of a
header (with the LF before it) to a :class:`Route`; ``_answers`` maps a name to
its receivers, for headers that differ in the length only. Both are bounded and
forgotten as a whole when full. A name is remembered when it is met for the second
time, so that names that never come again cost little; ``_seen`` has those met once.

Invariants:

- Every entry of ``routes`` and ``_answers`` is right: each change of the
  subscriptions drops what it could have changed before it returns. To find
  these, every cached name stands in one byte string, ``_cached_names``, together with the name
  of its copy; a changed substring is looked for in that, and so is the longest literal of a
  changed wildcard. (A name may stand there that is not cached any more.)
- Equal sets of receivers are the same :class:`Targets`.
- ``_few`` has all of ``index.values`` if these are few, and is empty otherwise.
- ``index.values[substring]`` exists if and only if some peer subscribes it; the same holds for
  ``_names`` and ``_wildcards.values``.
- ``_others`` tells whether any name or wildcard is subscribed, or ``guarded`` is set.
- ``_lookups`` has those that were interrupted, each with all matching substrings, and their
  subscribers, that came since it began.
- While ``guarded`` is set, answers have nobody who may not receive the name; who changes the rights
  of a peer calls :meth:`Router.reconsider`.
- ``forwarded`` counts what peers of this daemon subscribe under ``//fwd/``: that is what other
  daemons send it, and only these subscriptions count in ``relays``, which is ``routes`` for what
  they send.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pubsubd.protocol.limits import MAX_CACHED_HEADERS, MAX_CACHED_NAMES
from pubsubd.protocol.wire import FORWARD, OWN, copy_name
from pubsubd.routing.substrings import STEPS, Search, SubstringIndex
from pubsubd.routing.targets import Bundle, CopyTargets, Reasons, Receiver, Route, Routes, Targets
from pubsubd.routing.wildcards import Pattern, WildcardIndex

_SLASH = 47
_SCAN = 12  # up to so many substrings, trying each is quicker than the index
_FEW = 64  # changes at once up to which each is looked up in the roll
_EXPLAINED = 256  # receivers looked at in one step of an explanation
_LOOKUPS = 256  # interrupted ones that are kept, with _FOUND patterns in all
_FOUND = 500_000
_UNITED = 256  # substrings whose subscribers are united at once
_STEP = 1_000  # substrings or names of a leaving peer that are removed in one step
_FEW_STEP = 16  # where each is looked up in the roll
_WILDCARD_STEP = 100  # wildcards, which are dearer
_LARGE = 1_000  # names; below, their table is not worth shrinking
_ROLL = 64  # bytes of the roll per name; longer names make the cache hold fewer
_SCANNED = 128  # bytes of the roll looked through in one step of work
_SCANNED_HIT = 10  # steps of work to forget one name, or to try a wildcard on it
_PATIENCE = 500_000  # steps of work on wildcards after which everything is forgotten

Key = TypeVar("Key")


class Unfinished(Exception):  # noqa: N818  (it is no error)
    """Who gets a name takes longer to find out than one turn has: ask again in the next one."""


class _SubscriberSet:
    """The several peers of one subscription; their :class:`Targets` is made when needed."""

    __slots__ = ("members", "targets")

    def __init__(self, members: Iterable[Receiver]) -> None:
        self.members = dict.fromkeys(members)
        self.targets: Targets | None = None


class _Lookup(Search):
    """Who has a substring of one name, as far as that has been found out.

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


class _Answer:
    __slots__ = ("headers", "relayed", "targets")

    def __init__(self, targets: Targets | CopyTargets) -> None:
        self.targets = targets
        self.relayed: Targets | None = None
        self.headers: list[bytes] = []


class Router:
    """Subscriptions of peers, and the answers they lead to.

    Args:
        max_names, max_headers: entries of the two caches.

    Attributes:
        routes: header (with the LF before it) -> :class:`Route`. The broker reads it
            directly; only the router writes it.
        index: substring -> who subscribes it; its ``work`` counts what subscribing costs
            here, too.
        made: the routes, by receivers and lengths.
        lookups: names answered without the cache so far.
        relays: as ``routes``, of what comes from another daemon: only those get it who subscribe
            a substring, name or wildcard that begins with ``//fwd/``.
        bundle: what hands frames to other daemons, if there are any.
        forwarded: what begins with ``//fwd/`` of this daemon's own peers' subscriptions -> how
            many there are.
        on_forwarded: called when ``forwarded`` has changed, with whether it has a key more or less.
        guarded: whether there are peers who may not receive everything; see :meth:`guard`.
    """

    def __init__(
        self, max_names: int = MAX_CACHED_NAMES, max_headers: int = MAX_CACHED_HEADERS
    ) -> None:
        self.routes: dict[bytes, Route] = {}
        self.relays: dict[bytes, Route] = {}
        self.bundle: Bundle | None = None
        self.forwarded: Counter[bytes] = Counter()
        self.on_forwarded: Callable[[bool], None] | None = None
        self.lookups = 0
        self.nobody = Targets(())
        self._max_names = max_names
        self._max_headers = max_headers
        self.index: SubstringIndex[Targets | _SubscriberSet] = SubstringIndex()
        self._names: dict[bytes, Targets | _SubscriberSet] = {}
        self._wildcards: WildcardIndex[Targets | _SubscriberSet] = WildcardIndex()
        self.guarded = False
        self._others = False
        self._most_names = 0  # at a time, since their table was made
        self._invalidation_cost = (
            0  # work that changes of wildcards have been since all was forgotten
        )
        self._interned: WeakValueDictionary[frozenset[Receiver], Targets] = WeakValueDictionary()
        self._answers: dict[bytes, _Answer] = {}
        self._few: tuple[tuple[bytes, Targets | _SubscriberSet], ...] = ()
        self._seen: set[bytes] = set()
        self.made = Routes()
        self._lookups: dict[bytes, _Lookup] = {}
        self._bulk = False
        self._cached_names = bytearray()
        self._count = 0

    # Subscriptions

    @property
    def subscriptions(self) -> int:
        """Pairs of a peer and a substring, name or wildcard."""
        return self._count

    @property
    def substrings(self) -> int:
        """Different substrings."""
        return len(self.index.values)

    @property
    def cached_names(self) -> int:
        """Names whose receivers are remembered."""
        return len(self._answers)

    def subscribe(self, peer: Receiver, substring: bytes) -> bool:
        """Let ``peer`` receive names with ``substring``; False if it does already."""
        if substring in peer.substrings:
            return False
        peer.substrings.add(substring)
        self._count += 1
        if not _let_in(self.index.values, substring, peer):
            self.index.add(substring, self.only(peer))
        for name, lookup in self._lookups.items():
            if substring in name:
                lookup.found.add(substring)
                lookup.peers.add(peer)
        if substring.startswith(FORWARD):
            self._want(peer, substring)
        self._change(substring)
        return True

    def unsubscribe(self, peer: Receiver, substring: bytes) -> bool:
        """Undo :meth:`subscribe`; False if there is nothing to undo."""
        if substring not in peer.substrings:
            return False
        peer.substrings.remove(substring)
        self._remove(peer, substring)
        self._change(substring)
        return True

    def subscribe_name(self, peer: Receiver, name: bytes) -> bool:
        """Let ``peer`` receive exactly ``name``; False if it does already.

        It may be one of the daemon's own, or that of a copy.
        """
        if peer.names is None:
            peer.names = set()
        elif name in peer.names:
            return False
        peer.names.add(name)
        self._count += 1
        self._others = True
        if not _let_in(self._names, name, peer):
            self._names[name] = self.only(peer)
            self._most_names = max(self._most_names, len(self._names))
        if name.startswith(FORWARD):
            self._want(peer, name)
        self._change_name(name)
        return True

    def unsubscribe_name(self, peer: Receiver, name: bytes) -> bool:
        """Undo :meth:`subscribe_name`; False if there is nothing to undo."""
        if peer.names is None or name not in peer.names:
            return False
        peer.names.remove(name)
        if not peer.names:
            peer.names = None
        self._remove_name(peer, name)
        self._change_name(name)
        return True

    def subscribe_pattern(self, peer: Receiver, pattern: Pattern) -> bool:
        """Let ``peer`` receive the names that ``pattern`` matches; False if it does already."""
        if peer.patterns is None:
            peer.patterns = set()
        elif pattern in peer.patterns:
            return False
        peer.patterns.add(pattern)
        self._count += 1
        self._others = True
        if not _let_in(self._wildcards.values, pattern, peer):
            self._wildcards.add(pattern, self.only(peer))
        if pattern.start.startswith(FORWARD):
            self._want(peer, pattern.start)
        self._change_pattern(pattern)
        return True

    def unsubscribe_pattern(self, peer: Receiver, pattern: Pattern) -> bool:
        """Undo :meth:`subscribe_pattern`; False if there is nothing to undo."""
        if peer.patterns is None or pattern not in peer.patterns:
            return False
        peer.patterns.remove(pattern)
        if not peer.patterns:
            peer.patterns = None
        self._remove_pattern(peer, pattern)
        self._change_pattern(pattern)
        return True

    def forget(self, peer: Receiver) -> Iterator[None]:
        """Undo all of ``peer``'s subscriptions, in steps of bounded work: iterate to the end.

        Between the steps, answers may still name ``peer``, which has to take what it is
        given and throw it away.
        """
        done = 0
        while names := peer.names:
            self._remove_name(peer, name := names.pop())
            if not names:
                peer.names = None
            self._change_name(name)
            done += 1
            if done % _STEP == 0:
                yield
        few = len(peer.substrings) + len(peer.patterns or ()) <= _FEW
        while substrings := peer.substrings:
            self._remove(peer, substring := substrings.pop())
            if few:
                self._change(substring)
            done += 1
            if done % (_FEW_STEP if few else _STEP) == 0:
                self._few = ()
                yield
        self._note_few()
        while patterns := peer.patterns:
            self._remove_pattern(peer, pattern := patterns.pop())
            if not patterns:
                peer.patterns = None
            if few:
                self._change_pattern(pattern)
            done += 1
            if done % (_FEW_STEP if few else _WILDCARD_STEP) == 0:
                yield
        for lookup in self._lookups.values():
            lookup.peers.discard(peer)
            lookup.doubtful.discard(peer)
        if few:
            self.made.clear()
        else:
            self.clear()

    def repair(self, gone: Receiver) -> None:
        """Take ``gone`` out of all tables, and count anew, after :meth:`forget` has failed.

        It looks at all subscriptions at once: a mistake of this program's may cost that.
        """
        gone.substrings, gone.names, gone.patterns = set(), None, None
        before, self._count = set(self.forwarded), 0
        self.forwarded.clear()
        tables: tuple[
            tuple[MutableMapping[Any, Targets | _SubscriberSet], Callable[[Any], None]], ...
        ] = (
            (self.index.values, self.index.remove),
            (self._names, self._names.__delitem__),
            (self._wildcards.values, self._wildcards.remove),
        )
        for table, remove in tables:
            for key, holder in list(table.items()):
                if gone in holder.members and not self._let_out(table, key, gone):
                    remove(key)
                    continue
                text = key.start if isinstance(key, Pattern) else key
                self._count += len(table[key].members)
                if text.startswith(FORWARD):
                    near = sum(not peer.remote for peer in table[key].members)
                    self.forwarded.update({text: near} if near else {})
        self._note_few()
        self._note_others()
        self.clear()
        if self.on_forwarded is not None and set(self.forwarded) != before:
            self.on_forwarded(True)

    @contextlib.contextmanager
    def many(self) -> Iterator[None]:
        """Change many subscriptions in the block: answers are forgotten once, at its end."""
        self._bulk = True
        try:
            yield
        finally:
            self._bulk = False
            self._note_few()
            self.clear()

    def _remove(self, peer: Receiver, substring: bytes) -> None:
        for name, lookup in self._lookups.items():
            if substring in name:
                lookup.doubtful.add(peer)
        if not self._let_out(self.index.values, substring, peer):
            self.index.remove(substring)
        self._count -= 1
        if substring.startswith(FORWARD):
            self._want(peer, substring, -1)

    def _remove_name(self, peer: Receiver, name: bytes) -> None:
        if not self._let_out(self._names, name, peer):
            del self._names[name]
            if len(self._names) < self._most_names // 8 and self._most_names > _LARGE:
                self._names = {**self._names}  # a dict never shrinks by itself
                self._most_names = len(self._names)
            self._note_others()
        self._count -= 1
        if name.startswith(FORWARD):
            self._want(peer, name, -1)

    def _remove_pattern(self, peer: Receiver, pattern: Pattern) -> None:
        if not self._let_out(self._wildcards.values, pattern, peer):
            self._wildcards.remove(pattern)
            self._note_others()
        self._count -= 1
        if pattern.start.startswith(FORWARD):
            self._want(peer, pattern.start, -1)

    def _note_others(self) -> None:
        self._others = bool(self._names or self._wildcards.values or self.guarded)

    def _want(self, peer: Receiver, text: bytes, change: int = 1) -> None:
        """Take note that ``peer`` wants, or no longer wants, what other daemons have."""
        if peer.remote:
            return
        before = self.forwarded[text]
        if before + change:
            self.forwarded[text] = before + change
        else:
            del self.forwarded[text]
        if self.on_forwarded is not None:
            self.on_forwarded(not (before and before + change))

    def _let_out(
        self, holders: MutableMapping[Key, Targets | _SubscriberSet], key: Key, peer: Receiver
    ) -> bool:
        """Take ``peer`` out of those who hold ``key``; False if it is the only one."""
        holder = holders[key]
        if isinstance(holder, Targets):
            return False
        del holder.members[peer]
        holder.targets = None
        if len(holder.members) == 1:
            holders[key] = self.only(next(iter(holder.members)))
        return True

    # Answers

    def only(self, peer: Receiver) -> Targets:
        """Return the targets that are ``peer`` alone."""
        return self._intern(frozenset((peer,)))

    def learn(self, key: bytes, name: bytes, size: int) -> Route:
        """Return the route of frames that begin with ``key``; remember it, if the name came before.

        ``key`` is LF and the header as it stands on the wire, ``name`` and ``size`` what it
        says. The caller has checked that both are legal, that the name is not the daemon's
        own, and that ``routes`` does not have the key.
        """
        answer = self._answers.get(name)
        width = len(key)
        if answer is None:
            self.lookups += 1
            found: Targets | _SubscriberSet | None = None
            for substring, holder in self._few:
                if substring in name:
                    if found is not None:
                        found = None
                        break
                    found = holder
            if type(found) is Targets and found.far is None and not self._others:
                direct = found
            else:
                direct = self._targets(name)
            targets = self._fork(direct, name) if name[0] == _SLASH else direct
            if self._lookups:
                self._end_lookup(name)
            seen = self._seen  # as _is_new() does it: a call is dear here
            if name not in seen:
                if len(seen) >= self._max_names:
                    seen.clear()
                seen.add(name)
                route = self.made.get((targets, width, size))
                return route or self.made.make(targets, width, size)
            answer = self._remember(name, targets)
        if len(self.routes) >= self._max_headers:
            self.clear()
            answer = self._remember(name, answer.targets)
        route = self.routes[key] = self.made.make(answer.targets, width, size)
        answer.headers.append(key)
        return route

    def learn_relayed(self, key: bytes, name: bytes, size: int) -> Route:
        """Return the route of frames from another daemon that begin with ``key``.

        As :meth:`learn` otherwise, and remembered with its answer.
        """
        answer = self._answers.get(name)
        if len(self.relays) >= self._max_headers:
            self.clear()
            answer = None
        width = len(key)
        if answer is None:
            self.lookups += 1
            relayed = self._targets_of_relayed(name)
            if name not in self._seen:
                self._is_new(name)
                self._end_lookup(name)
                return self.made.make(relayed, width, size)
            answer = self._remember(name, self._fork(self._targets(name), name))
            answer.relayed = relayed
        elif answer.relayed is None:
            answer.relayed = self._targets_of_relayed(name)
        self._end_lookup(name)
        route = self.relays[key] = self.made.make(answer.relayed, width, size)
        answer.headers.append(key)
        return route

    def _targets_of_relayed(self, name: bytes) -> Targets:
        """Return who gets ``name`` if it comes from another daemon, without the caches."""
        if not name.startswith(FORWARD):
            return self.nobody
        values = self.index.values
        found = [s for s in self._find(name).found if s.startswith(FORWARD)]
        holders = [values[substring] for substring in found if substring in values]
        if (holder := self._names.get(name)) is not None:
            holders.append(holder)
        wildcards = self._wildcards
        if wildcards.values:
            before = wildcards.work
            holders += [
                wildcards.values[pattern]
                for pattern in wildcards.find(name)
                if pattern.start.startswith(FORWARD)
            ]
            self.index.work += wildcards.work - before
        return self._admit(self._union(holders), name)

    def receivers(self, name: bytes) -> Targets | CopyTargets:
        """Return who gets ``name``, or its copy; for those who publish without a header.

        ``name`` is legal. The answer is remembered as :meth:`learn` does it.
        """
        answer = self._answers.get(name)
        if answer is not None:
            return answer.targets
        if name.startswith(OWN):
            return self.targets_of_own(name)
        self.lookups += 1
        targets = self._fork(self._targets(name), name)
        self._end_lookup(name)
        if not self._is_new(name):
            self._remember(name, targets)
        return targets

    def _is_new(self, name: bytes) -> bool:
        """Return whether ``name`` is met for the first time; from now on it is not."""
        seen = self._seen
        if name in seen:
            return False
        if len(seen) >= self._max_names:
            seen.clear()
        seen.add(name)
        return True

    def targets_of_own(self, name: bytes) -> Targets:
        """Return who wants ``name``, which is one of the daemon's own, under ``//pubsubd/``.

        Only subscriptions that begin with ``//pubsubd/`` count, so that neither ``sub s`` nor
        a wildcard over everything brings statistics.
        """
        holders = [self.index.values[s] for s in self.index.find(name) if s.startswith(OWN)]
        return self._admit(self._union(holders + self._holders_of_others(name)), name)

    def explain(self, name: bytes) -> Iterator[tuple[Receiver, bytes, Reasons] | None]:
        """Yield who would receive ``name``, and may: the peer, the name it would see, and why.

        The name seen is that of the copy for those who get only that. None comes in between, after
        a little work each: what is iterated over may go on later, and is then as it was found.
        """
        told: set[Receiver] = set()
        own = name.startswith(OWN)
        for seen in (name, None if own else copy_name(name)):
            if seen is None:
                continue
            search = Search()
            while not self.index.search(seen, search):
                yield None
            reasons: dict[Receiver, Reasons] = {}
            for done, substring in enumerate(search.found):
                holder = self.index.values.get(substring)
                if done % _EXPLAINED == 0:
                    yield None
                if holder is None or (own and not substring.startswith(OWN)):
                    continue
                peers = _peers(holder, told)
                for start in range(0, len(peers), _EXPLAINED):
                    for peer in peers[start : start + _EXPLAINED]:
                        reasons.setdefault(peer, Reasons()).substrings.append(substring)
                    yield None
            if seen in self._names:
                for peer in _peers(self._names[seen], told):
                    reasons.setdefault(peer, Reasons()).exact = True
            for pattern in self._wildcards.find(seen):
                for peer in _peers(self._wildcards.values[pattern], told):
                    reasons.setdefault(peer, Reasons()).patterns.append(pattern.text)
            told.update(reasons)
            for peer, why in reasons.items():
                if peer.permission is not None and not peer.permission.may_receive(seen):
                    yield None
                    continue
                why.substrings.sort()
                why.patterns.sort()
                yield peer, seen, why

    def guard(self, guarded: bool) -> None:
        """Look, or look no more, at what peers may receive; everything is forgotten."""
        self.guarded = guarded
        self._note_others()
        self.clear()

    def reconsider(self, peer: Receiver) -> None:
        """Forget the answers to all names that ``peer`` subscribes: its rights have changed."""
        names, patterns = peer.names or (), peer.patterns or ()
        if len(peer.substrings) + len(names) + len(patterns) > _FEW:
            self.clear()
            return
        for substring in peer.substrings:
            self._change(substring)
        for name in names:
            self._change_name(name)
        for pattern in patterns:
            self._change_pattern(pattern)

    def clear(self) -> None:
        """Forget every answer; they are made anew when asked for."""
        self.routes.clear()
        self.relays.clear()
        self._answers.clear()
        self.made.clear()
        self._cached_names = bytearray()
        self._invalidation_cost = 0

    def _fork(self, direct: Targets, name: bytes) -> Targets | CopyTargets:
        """Return who gets ``name``, or only its copy, when ``direct`` want the name itself."""
        copy = copy_name(name)
        if copy is None:
            return direct
        copies = self._targets(copy)
        if copies is direct or not (rest := set(copies.members).difference(direct.members)):
            return direct
        return CopyTargets(direct, self._intern(frozenset(rest)), copy)

    def _remember(self, name: bytes, targets: Targets | CopyTargets) -> _Answer:
        if (
            len(self._answers) >= self._max_names
            or len(self._cached_names) >= self._max_names * _ROLL
        ):
            self.clear()
        answer = self._answers[name] = _Answer(targets)
        copy = copy_name(name)
        self._cached_names += name + b"\n" if copy is None else b"%b %b\n" % (name, copy)
        return answer

    def _targets(self, name: bytes) -> Targets:
        """Return who has a subscription that matches ``name``, without the caches."""
        values = self.index.values
        if self._few or not values:
            holders = [holder for substring, holder in self._few if substring in name]
        else:
            holders = self._holders(name)
        if not self._others:
            return self._near(self._union(holders), name)
        holders += self._holders_of_others(name)
        return self._near(self._admit(self._union(holders), name), name)

    def _near(self, targets: Targets, name: bytes) -> Targets:
        """Return ``targets`` without other daemons, unless ``name`` begins as what these get."""
        if targets.far is None or name.startswith(FORWARD):
            return targets
        return self._intern(frozenset(peer for peer in targets.members if not peer.remote))

    def _holders(self, name: bytes) -> list[Targets | _SubscriberSet]:
        """Return who has a substring of ``name``; raises Unfinished as :meth:`_find`."""
        values, stop = self.index.values, self.index.work + STEPS
        lookup = self._find(name)
        if len(lookup.found) <= _UNITED and name not in self._lookups:
            return [values[substring] for substring in lookup.found]
        if lookup.rest is None:
            lookup.rest = list(lookup.found)
        while lookup.rest:
            if self.index.work > stop:
                self._keep(name, lookup)
                raise Unfinished
            holder = values.get(lookup.rest.pop())
            if holder is not None:
                lookup.peers.update(holder.members)
                self.index.work += 4 + len(holder.members) // 4
        for peer in lookup.doubtful:
            if peer.substrings.isdisjoint(lookup.found):
                lookup.peers.discard(peer)
        lookup.doubtful.clear()
        return [_SubscriberSet(lookup.peers)] if lookup.peers else []

    def _find(self, name: bytes) -> _Lookup:
        """Return the lookup of ``name`` when all substrings are found that it contains.

        Some of these may have gone meanwhile.

        Raises:
            Unfinished: that takes more than one turn; asked again, the search goes on.
        """
        lookup = self._lookups.get(name) or _Lookup()
        if lookup.rest is None and not self.index.search(name, lookup):
            self._keep(name, lookup)
            raise Unfinished
        return lookup

    def _keep(self, name: bytes, lookup: _Lookup) -> None:
        lookups = self._lookups
        lookups[name] = lookup
        while len(lookups) > _LOOKUPS or (
            len(lookups) > 1 and sum(len(one.found) for one in lookups.values()) > _FOUND
        ):
            del lookups[next(iter(lookups))]

    def _end_lookup(self, name: bytes) -> None:
        """Take note that ``name`` is answered, and with it its copy."""
        if self._lookups:
            self._lookups.pop(name, None)
            self._lookups.pop(copy_name(name) or b"", None)

    def _holders_of_others(self, name: bytes) -> list[Targets | _SubscriberSet]:
        """Return who has ``name`` itself, or a wildcard that matches it."""
        holder = self._names.get(name)
        holders = [] if holder is None else [holder]
        wildcards = self._wildcards
        if wildcards.values:
            before = wildcards.work
            holders += [wildcards.values[pattern] for pattern in wildcards.find(name)]
            self.index.work += wildcards.work - before
        return holders

    def _union(self, holders: list[Targets | _SubscriberSet]) -> Targets:
        if not holders:
            return self.nobody
        first = holders[0]
        if any(holder is not first for holder in holders):
            members = [holder.members for holder in holders]
            self.index.work += sum(map(len, members)) // 4
            return self._intern(frozenset().union(*members))
        if isinstance(first, Targets):
            return first
        if first.targets is None:
            first.targets = self._intern(frozenset(first.members))
        return first.targets

    def _admit(self, targets: Targets, name: bytes) -> Targets:
        """Return those of ``targets`` that may receive ``name``."""
        members = targets.members
        if not self.guarded or not members:
            return targets
        if len(members) == 1:
            right = members[0].permission
            return targets if right is None or right.may_receive(name) else self.nobody
        self.index.work += len(members)
        rights = {peer.permission for peer in members}
        refused = {one for one in rights if one is not None and not one.may_receive(name)}
        if not refused:
            return targets
        return self._intern(frozenset(peer for peer in members if peer.permission not in refused))

    def _intern(self, peers: frozenset[Receiver]) -> Targets:
        targets = self._interned.get(peers)
        if targets is None:
            targets = self._interned[peers] = Targets(peers, self.bundle)
        return targets

    def _note_few(self) -> None:
        values = self.index.values
        self._few = tuple(values.items()) if len(values) <= _SCAN else ()

    def _change(self, substring: bytes) -> None:
        """Let nothing that was known before ``substring`` changed be used any more.

        Forget the answers to all names that hold ``substring``, or whose copies do.
        """
        if self._bulk:
            return
        self._note_few()
        roll = self._cached_names
        self.index.work += len(roll) // _SCANNED
        hits = 0
        at = roll.find(substring)
        while at >= 0:
            hits += 1
            self.index.work += _SCANNED_HIT
            if hits > _FEW and hits * 2 > len(self._answers):
                self.clear()
                return
            start, stop = _entry(roll, at)
            self._drop(bytes(roll[start:stop]).partition(b" ")[0])
            roll[start:stop] = b"\n" * (stop - start)  # in place: nothing has to move
            at = roll.find(substring, stop)

    def _change_name(self, name: bytes) -> None:
        """Forget the answer to ``name``, and to the name whose copy it is."""
        if self._bulk:
            return
        self._drop(name)
        if name.startswith(FORWARD):
            self._drop(b"//" + name[len(FORWARD) :])

    def _change_pattern(self, pattern: Pattern) -> None:
        """Forget the answers to all names that ``pattern`` matches, or whose copies it does.

        Looking for these is a fraction of a millisecond as a rule, but there may be thousands of
        patterns at once: then everything is forgotten soon, and there is nothing to look through.
        """
        if self._bulk:
            return
        roll, literal = self._cached_names, pattern.literal
        work = len(roll) // _SCANNED
        if not literal or self._invalidation_cost + work > _PATIENCE:
            self.clear()
            return
        hits = 0
        at = roll.find(literal)
        while at >= 0:
            work += _SCANNED_HIT
            start, stop = _entry(roll, at)
            name, _, copy = bytes(roll[start:stop]).partition(b" ")
            if pattern.matches(name) or (copy and pattern.matches(copy)):
                hits += 1
                self._drop(name)
                roll[start:stop] = b"\n" * (stop - start)
            if self._invalidation_cost + work > _PATIENCE or (
                hits > _FEW and hits * 2 > len(self._answers)
            ):
                self.clear()
                break
            at = roll.find(literal, stop)
        else:
            self._invalidation_cost += work
        self.index.work += work

    def _drop(self, name: bytes) -> None:
        """Forget the answer to ``name``, if there is one."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            for key in answer.headers:  # each is in one of the two, or in both
                self.routes.pop(key, None)
                self.relays.pop(key, None)


def _entry(roll: bytearray, at: int) -> tuple[int, int]:
    """Return where the entry of ``roll`` that holds ``at`` begins and ends."""
    return roll.rfind(b"\n", 0, at) + 1, roll.index(b"\n", at)


def _let_in(
    holders: MutableMapping[Key, Targets | _SubscriberSet], key: Key, peer: Receiver
) -> bool:
    """Add ``peer`` to those who hold ``key``; False if nobody does yet."""
    holder = holders.get(key)
    if holder is None:
        return False
    if isinstance(holder, Targets):
        holders[key] = _SubscriberSet((*holder.members, peer))
    else:
        holder.members[peer] = None
        holder.targets = None
    return True


def _peers(holder: Targets | _SubscriberSet, told: set[Receiver]) -> list[Receiver]:
    return [peer for peer in holder.members if peer not in told]
