"""Finds the peers that get a name, without I/O.

A subscription is a substring, an exact name, or a wildcard over the levels of a name; a peer that
has several of them is still one receiver.

Strategy: what was asked once is remembered twice (:mod:`pubsubd.routing.answers`), so that the
broker pays one dictionary lookup for a header it has seen: ``routes`` maps the raw bytes of a
header (with the LF before it) to a :class:`Route`, and a name to its receivers, for headers that
differ in the length only. A name is remembered when it is met for the second time, so that names
that never come again cost little; ``_seen`` has those met once.

Invariants:

- Equal sets of receivers are the same :class:`Targets`.
- ``_few`` has all of ``index.values`` if these are few, and is empty otherwise. ``_plain`` has the
  same substrings where nothing else decides who gets a name, and is empty otherwise.
- ``_others`` tells whether any name or wildcard is subscribed, or ``guarded`` is set.
- While ``guarded`` is set, answers have nobody who may not receive the name; who changes the rights
  of a peer calls :meth:`Router.reconsider`.
- ``forwarded`` counts the interests of this daemon's own peers, under ``//fwd/``: that is what
  other daemons send it, and only these count in ``relays``, which is ``routes`` for what they send.
- Names under ``//fwd/hub/`` go to other daemons and to ``mailbox``, and to nobody else.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

from pubsubd.protocol.limits import MAX_CACHED_HEADERS, MAX_CACHED_NAMES
from pubsubd.protocol.wire import FORWARD, HUB, OWN
from pubsubd.routing.answers import Answers
from pubsubd.routing.columns import Match, count_alike, count_matching, matcher
from pubsubd.routing.copies import Copies
from pubsubd.routing.lookups import Lookups
from pubsubd.routing.substrings import SubstringIndex
from pubsubd.routing.tables import ExactIndex, Holder, SubscriptionTable
from pubsubd.routing.targets import Bundle, CopyTargets, Receiver, Route, Targets
from pubsubd.routing.wildcards import Pattern, WildcardIndex

_SLASH = 47
_SCAN = 12  # up to so many substrings, trying each is quicker than the index
_LONG = 64  # bytes of all substrings that are looked for in a name by a regular expression
_MATCHERS = 16  # of these that are kept
_COMPILED = 3_000  # work of making one
_AT_ONCE = 4_096  # bytes of substrings, and 8 for each name, that are looked for at once
_WIDE = 128  # bytes of a header, from which on trying each substring may take long
_TRIES = 1_024  # pairs of a byte of a name and one of a substring, in one step of work
_WORK = 0.000_000_1  # seconds of a step of work
_SLOW = 0.000_2  # seconds of looking at many frames that count as they are; else by their bytes
_FEW = 64  # changes at once up to which the answers are dropped one by one
_STEP = 1_000  # substrings or names of a leaving peer that are removed in one step
_FEW_STEP = 16  # where their answers are dropped one by one
_WILDCARD_STEP = 100  # wildcards, which are dearer


class Router:
    """Subscriptions of peers, and the answers they lead to.

    Args:
        max_names, max_headers: entries of the two caches.

    Attributes:
        answers: what is remembered; ``routes`` and ``relays`` are its own.
        routes: header (with the LF before it) -> :class:`Route`. The broker reads it
            directly; only the router writes it.
        by_substring, by_name, by_pattern: the subscriptions, by kind.
        wildcards: the index of ``by_pattern``.
        interrupted: searches that took more than a turn.
        index: substring -> subscribers; its ``work`` counts what subscribing costs here, too.
        made: the routes, by receivers and lengths.
        lookups: names answered without the cache so far, those matched together included.
        relays: as ``routes``, of what comes from another daemon: only those get it who subscribe
            a substring, name or wildcard that begins with ``//fwd/``.
        bundle: what hands frames to other daemons, if there are any.
        copies: which names have copies for other daemons.
        forwarded: interest under ``//fwd/`` of this daemon's own peers -> how many there are.
        mailbox: what takes messages under ``//fwd/hub/`` that are for this daemon; the mesh's.
        on_forwarded: called when ``forwarded`` has changed, with whether it has a key more or less.
        lent: returns how many subscriptions are those of other workers of this daemon.
        on_repair: called when the subscriptions were counted anew.
        unite: returns receivers with one in place of those that are to be one.
        gather: does so for a name with a copy, which may have fewer receivers: other workers
            find out themselves who gets which. None if there are none.
        guarded: whether there are peers who may not receive everything; see :meth:`guard`.
    """

    def __init__(
        self, max_names: int = MAX_CACHED_NAMES, max_headers: int = MAX_CACHED_HEADERS
    ) -> None:
        self.copies = copies = Copies()
        self.answers = Answers(max_names, copies)
        self.routes, self.relays = self.answers.routes, self.answers.relays
        self.made = self.answers.made
        self.bundle: Bundle | None = None
        self.forwarded: Counter[bytes] = Counter()
        self.on_forwarded: Callable[[bool], None] | None = None
        self.lent: Callable[[], int] = lambda: 0
        self.on_repair: Callable[[], None] = lambda: None
        self.unite: Callable[[frozenset[Receiver]], frozenset[Receiver]] = lambda peers: peers
        self.gather: Callable[[frozenset[Receiver]], frozenset[Receiver]] | None = None
        self.mailbox: Receiver | None = None
        self.lookups = 0
        self.nobody = Targets(())
        self.guarded = False
        self._max_names = max_names
        self._max_headers = max_headers
        self.index: SubstringIndex[Holder] = SubstringIndex()
        self.interrupted = Lookups(self.index, copies)
        self.wildcards: WildcardIndex[Holder] = WildcardIndex()
        only, interest = self.only, self._note_interest
        self.by_substring = SubscriptionTable(
            self.index,
            "substrings",
            copies.wanted_by_substring,
            only,
            interest,
            self.interrupted.note_removed,
        )
        others = only, interest, self._note_others
        self.by_name = SubscriptionTable(ExactIndex(), "names", copies.wanted_by_name, *others)
        self.by_pattern = SubscriptionTable(
            self.wildcards, "patterns", copies.wanted_by_pattern, *others
        )
        self._others = False
        self._interned: WeakValueDictionary[frozenset[Receiver], Targets] = WeakValueDictionary()
        self._subscriber: Receiver | None = None  # the last one
        self._alone = self.nobody  # but for it
        self._few: tuple[tuple[bytes, Holder], ...] = ()
        self._plain: tuple[tuple[bytes, Targets | None], ...] = ()
        self._tried = 0  # bytes of what is in _few
        self._get_route = self.made.get
        self._matchers: dict[tuple[bool, ...], Match] = {}  # by which of _plain are in a name
        self._seen: set[bytes] = set()
        self._bulk = False

    @property
    def tables(
        self,
    ) -> tuple[dict[bytes, Route], tuple[tuple[bytes, Targets | None], ...], Targets]:
        """What :mod:`pubsubd.routing.scanner` finds receivers by."""
        return self.routes, self._plain, self.nobody

    # Subscriptions

    @property
    def subscriptions(self) -> int:
        """Pairs of a peer and a substring, name or wildcard."""
        return self.by_substring.count + self.by_name.count + self.by_pattern.count

    @property
    def own_subscriptions(self) -> int:
        """Those of them that are not other workers'."""
        return self.subscriptions - self.lent()

    @property
    def substrings(self) -> int:
        """Different substrings."""
        return self.index.size.count

    @property
    def cached_names(self) -> int:
        """Names whose receivers are remembered."""
        return len(self.answers.by_name)

    def subscribe(self, peer: Receiver, substring: bytes) -> bool:
        """Let ``peer`` receive names with ``substring``; False if it does already."""
        if not self.by_substring.add(peer, substring):
            return False
        if self.interrupted.kept:
            self.interrupted.note_added(peer, substring)
        self._change(substring)
        return True

    def unsubscribe(self, peer: Receiver, substring: bytes) -> bool:
        """Undo :meth:`subscribe`; False if there is nothing to undo."""
        if not self.by_substring.remove(peer, substring):
            return False
        self._change(substring)
        return True

    def subscribe_name(self, peer: Receiver, name: bytes) -> bool:
        """Let ``peer`` receive exactly ``name``; False if it does already.

        It may be one of the daemon's own, or that of a copy.
        """
        if not self.by_name.add(peer, name):
            return False
        self._note_others()
        self._change_name(name)
        return True

    def unsubscribe_name(self, peer: Receiver, name: bytes) -> bool:
        """Undo :meth:`subscribe_name`; False if there is nothing to undo."""
        if not self.by_name.remove(peer, name):
            return False
        self._change_name(name)
        return True

    def subscribe_pattern(self, peer: Receiver, pattern: Pattern) -> bool:
        """Let ``peer`` receive the names that ``pattern`` matches; False if it does already."""
        if not self.by_pattern.add(peer, pattern):
            return False
        self._note_others()
        self._change_pattern(pattern)
        return True

    def unsubscribe_pattern(self, peer: Receiver, pattern: Pattern) -> bool:
        """Undo :meth:`subscribe_pattern`; False if there is nothing to undo."""
        if not self.by_pattern.remove(peer, pattern):
            return False
        self._change_pattern(pattern)
        return True

    def forget(self, peer: Receiver) -> Iterator[None]:
        """Undo all of ``peer``'s subscriptions, in steps of bounded work: iterate to the end.

        Between the steps, answers may still name ``peer``, which has to take what it is
        given and throw it away.
        """
        if not (peer.substrings or peer.names or peer.patterns):
            self.interrupted.forget(peer)
            self.made.clear()
            return
        few = len(peer.substrings) + len(peer.patterns or ()) <= _FEW
        kinds: tuple[tuple[SubscriptionTable[Any], Callable[[Any], None] | None, int], ...] = (
            (self.by_name, self._change_name, _STEP),
            (self.by_substring, self._change if few else None, _FEW_STEP if few else _STEP),
            (
                self.by_pattern,
                self._change_pattern if few else None,
                _FEW_STEP if few else _WILDCARD_STEP,
            ),
        )
        for table, change, step in kinds:
            done = 0
            while (key := table.pop(peer)) is not None:
                if change is not None:
                    change(key)
                done += 1
                if done % step == 0:
                    self._few = self._plain = ()
                    yield
            self._note_few()
        self.interrupted.forget(peer)
        self._subscriber, self._alone = None, self.nobody
        if few:
            self.made.clear()
        else:
            self.clear()

    def repair(self, gone: Receiver) -> None:
        """Take ``gone`` out of all tables, and count anew, after :meth:`forget` has failed.

        It looks at all subscriptions at once: a mistake of this program's may cost that.
        """
        gone.substrings, gone.names, gone.patterns = set(), None, None
        self._subscriber, self._alone = None, self.nobody
        self.index.repair()
        self.wildcards.repair()
        before = set(self.forwarded)
        self.forwarded.clear()
        for table in (self.by_substring, self.by_name, self.by_pattern):
            self.forwarded.update(table.repair(gone))
        self._note_few()
        self._note_others()
        self.clear()
        self.on_repair()
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

    def _note_others(self, *_: object) -> None:
        names, patterns = self.by_name.index.values, self.wildcards.values
        others = bool(names or patterns or self.guarded)
        if others is not self._others:
            self._others = others
            self._note_few()

    def _note_interest(self, peer: Receiver, interest: bytes, change: int) -> None:
        """Note that ``peer`` wants, or no longer wants, what other daemons have."""
        if peer.remote:
            return
        before = self.forwarded[interest]
        if before + change:
            self.forwarded[interest] = before + change
        else:
            del self.forwarded[interest]
        if self.on_forwarded is not None:
            self.on_forwarded(not (before and before + change))

    # Answers

    def only(self, peer: Receiver) -> Targets:
        """Return the targets that are ``peer`` alone."""
        if peer is not self._subscriber:
            self._subscriber, self._alone = peer, self._intern(frozenset((peer,)))
        return self._alone

    def learn(self, key: bytes, name: bytes, size: int) -> Route:
        """Return the route of frames that begin with ``key``; remember it, if the name came before.

        ``key`` is LF and the header as it stands on the wire, ``name`` and ``size`` what it
        says. The caller has checked that both are legal, that the name is not the daemon's
        own, and that ``routes`` does not have the key.
        """
        answer = self.answers.by_name.get(name)
        width = len(key)
        if answer is None:
            self.lookups += 1
            if width > _WIDE:
                self.index.work += len(name) * self._tried // _TRIES
            targets: Targets | CopyTargets | None = None
            for substring, alone in self._plain:
                if substring in name:
                    if targets is not None or alone is None:
                        targets = None
                        break
                    targets = alone
            if targets is None or name[0] == _SLASH:
                targets = direct = self._targets(name)
                if name[0] == _SLASH or self.copies.beginnings:
                    targets = self._fork(direct, name)
                if self.interrupted.kept:
                    self.interrupted.end(name)
            seen = self._seen  # as _is_new() does it: a call is dear here
            if name not in seen:
                if len(seen) >= self._max_names:
                    seen.clear()
                seen.add(name)
                route = self._get_route((targets, width, size))
                return route or self.made.make(targets, width, size)
            answer = self.answers.remember(name, targets)
        if len(self.routes) >= self._max_headers:
            self.clear()
            answer = self.answers.remember(name, answer.targets)
        route = self.routes[key] = self.made.make(answer.targets, width, size)
        answer.headers.append(key)
        return route

    def alike(self, buf: bytes, at: int, key: bytes, length: int) -> int:
        """Return how many frames at ``buf[at]`` go where one does that :meth:`learn` was asked for.

        They have its lengths, too: its header is ``key``. 0 if that is not easily told.
        """
        if not self._plain or key[5] == _SLASH:
            return 0
        begun = perf_counter()
        count = count_alike(buf, at, key, length, (substring for substring, _ in self._plain))
        if (took := perf_counter() - begun) > _SLOW:
            self.index.work += int(took / _WORK)
        self.lookups += count
        return count

    def alike_in(
        self, buf: bytes, at: int, name: bytes, sizes: Mapping[bytes, int], largest: int
    ) -> tuple[int, int]:
        """As :meth:`alike`, with any lengths up to ``largest``, but without the last one.

        Also returns where that one begins.
        """
        substrings = [substring for substring, _ in self._plain]
        steps = sum(map(len, substrings))
        if not substrings or steps > _LONG or name[0] == _SLASH:
            return 0, at
        found = tuple(substring in name for substring in substrings)
        match = self._matchers.get(found)
        if match is None:
            self.index.work += _COMPILED
            if len(self._matchers) >= _MATCHERS:
                self._matchers.clear()
            match = self._matchers[found] = matcher(name, substrings)
        count, at = count_matching(buf, at, match, sizes, largest, _AT_ONCE // (steps + 8))
        self.lookups += count
        return count, at

    def learn_relayed(self, key: bytes, name: bytes, size: int) -> Route:
        """Return the route of frames from another daemon that begin with ``key``.

        As :meth:`learn` otherwise, and remembered with its answer.
        """
        answer = self.answers.by_name.get(name)
        if len(self.relays) >= self._max_headers:
            self.clear()
            answer = None
        width = len(key)
        if answer is None:
            self.lookups += 1
            relayed = self._targets_of_relayed(name)
            if name not in self._seen:
                self._is_new(name)
                self.interrupted.end(name)
                return self.made.make(relayed, width, size)
            if name.startswith(HUB):
                self.receivers_of_letter(name)
                answer = self.answers.by_name[name]
            else:
                answer = self.answers.remember(name, self._fork(self._targets(name), name))
            answer.relayed = relayed
        elif answer.relayed is None:
            answer.relayed = self._targets_of_relayed(name)
        self.interrupted.end(name)
        route = self.relays[key] = self.made.make(answer.relayed, width, size)
        answer.headers.append(key)
        return route

    def _targets_of_relayed(self, name: bytes) -> Targets | CopyTargets:
        """Return who gets ``name`` if it comes from another daemon, without the caches.

        The copy of a topic also goes to those of this daemon who have subscribed the topic by its
        name or by a wildcard, as that topic.
        """
        if not name.startswith(FORWARD):
            return self.nobody
        if name.startswith(HUB):
            return self._targets_of_letter(name, self.mailbox)
        values = self.index.values
        found = [s for s in self.interrupted.find(name).found if s.startswith(FORWARD)]
        holders = [values[substring] for substring in found if substring in values]
        if (holder := self.by_name.index.values.get(name)) is not None:
            holders.append(holder)
        wildcards = self.wildcards
        if wildcards.values:
            before = wildcards.work
            holders += [
                wildcards.values[pattern]
                for pattern in wildcards.find(name)
                if pattern.start.startswith(FORWARD)
            ]
            self.index.work += wildcards.work - before
        direct = self._admit(self._union(holders), name)
        topic = self.copies.topic_of(name)
        if topic is None:
            return direct
        near = self._admit(self._union(self._holders_of_others(topic)), topic)
        direct, near = self._gather(direct), self._gather(near)
        if not (rest := set(near.members).difference(direct.members)):
            return direct
        return CopyTargets(direct, self._intern(frozenset(rest)), topic)

    def receivers_of_letter(self, name: bytes) -> Targets:
        """Return which other daemons get ``name``, which is under ``//fwd/hub/``."""
        answer = self.answers.by_name.get(name)
        if answer is None:
            answer = self.answers.remember(name, self._targets_of_letter(name, None))
        assert isinstance(answer.targets, Targets)
        return answer.targets

    def _targets_of_letter(self, name: bytes, mailbox: Receiver | None) -> Targets:
        holder = self.index.values.get(name)  # whoever gets it has advertised the whole name
        members = set() if holder is None else {peer for peer in holder.members if peer.remote}
        if mailbox is not None and name in (mailbox.names or ()):
            members.add(mailbox)
        return self._intern(frozenset(members))

    def remembers(self, name: bytes) -> bool:
        """Return whether :meth:`receivers` has nothing to find out."""
        return name in self.answers.by_name

    def receivers(self, name: bytes) -> Targets | CopyTargets:
        """Return who gets ``name``, or its copy; for those who publish without a header.

        ``name`` is legal. The answer is remembered as :meth:`learn` does it.
        """
        answer = self.answers.by_name.get(name)
        if answer is not None:
            return answer.targets
        if name.startswith(OWN):
            return self.targets_of_own(name)
        self.lookups += 1
        targets = self._fork(self._targets(name), name)
        self.interrupted.end(name)
        if not self._is_new(name):
            self.answers.remember(name, targets)
        return targets

    def find_unguarded(self, name: bytes, *, relayed: bool) -> Targets | CopyTargets:
        """Return who would get ``name`` if everybody might receive everything.

        Args:
            name: a legal one.
            relayed: whether it comes from another daemon.
        """
        guarded, self.guarded = self.guarded, False
        try:
            if relayed:
                targets = self._targets_of_relayed(name)
            else:
                targets = self._fork(self._targets(name), name)
        finally:
            self.guarded = guarded
        self.interrupted.end(name)
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
        self.answers.clear()

    def _fork(self, direct: Targets, name: bytes) -> Targets | CopyTargets:
        """Return who gets ``name``, or only its copy, when ``direct`` want the name itself."""
        copy = self.copies.of(name)
        if copy is None:
            return direct
        direct, copies = self._gather(direct), self._gather(self._targets(copy))
        if copies is direct or not (rest := set(copies.members).difference(direct.members)):
            return direct
        return CopyTargets(direct, self._intern(frozenset(rest)), copy)

    def _gather(self, targets: Targets) -> Targets:
        if self.gather is None:
            return targets
        members = frozenset(targets.members)
        gathered = self.gather(members)
        return targets if gathered is members else self._intern(gathered)

    def _targets(self, name: bytes) -> Targets:
        """Return who has a subscription that matches ``name``, without the caches."""
        values = self.index.values
        if self._few or not values:
            holders = [holder for substring, holder in self._few if substring in name]
        else:
            holders = self.interrupted.holders(name)
        if not self._others:
            return self._near(self._union(holders), name)
        holders += self._holders_of_others(name)
        return self._near(self._admit(self._union(holders), name), name)

    def _near(self, targets: Targets, name: bytes) -> Targets:
        """Return ``targets`` without other daemons, unless ``name`` begins as what these get."""
        if targets.far is None or name.startswith(FORWARD):
            return targets
        return self._intern(frozenset(peer for peer in targets.members if not peer.remote))

    def _holders_of_others(self, name: bytes) -> list[Holder]:
        """Return who has ``name`` itself, or a wildcard that matches it."""
        holder = self.by_name.index.values.get(name)
        holders = [] if holder is None else [holder]
        wildcards = self.wildcards
        if wildcards.values:
            before = wildcards.work
            holders += [wildcards.values[pattern] for pattern in wildcards.find(name)]
            self.index.work += wildcards.work - before
        return holders

    def _union(self, holders: list[Holder]) -> Targets:
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
            united = self.unite(peers)
            targets = Targets(peers, self.bundle) if united is peers else self._intern(united)
            self._interned[peers] = targets
        return targets

    def _note_few(self) -> None:
        index = self.index
        few = self._few = tuple(index.values.items()) if index.size.count <= _SCAN else ()
        self._tried = sum(len(one) for one, _ in few)
        self._plain = ()
        self._matchers.clear()
        if few and not self._others and not self.copies.beginnings:
            self._plain = tuple((one, _alone(holder)) for one, holder in few)

    def _change(self, substring: bytes) -> None:
        """Forget what was known before ``substring`` changed."""
        if not self._bulk:
            if self._few or self._tried or self.index.size.count <= _SCAN:
                self._note_few()
            self.index.work += self.answers.drop_substring(substring)

    def _change_name(self, name: bytes) -> None:
        if not self._bulk:
            self.answers.drop_name(name)

    def _change_pattern(self, pattern: Pattern) -> None:
        if not self._bulk:
            self.index.work += self.answers.drop_pattern(pattern)


def _alone(holder: Holder) -> Targets | None:
    """Return the receivers of a name that one subscription matches, if that is easily told."""
    return holder if isinstance(holder, Targets) and holder.far is None else None
