"""Which peers want a name, without I/O.

Strategy: what was asked once is remembered twice, so that the broker pays one
dictionary lookup for a header it has seen. ``routes`` maps the raw bytes of a
header (with the LF before it) to a :class:`Route`; ``_answers`` maps a name to
its receivers, for headers that differ in the length only. Both are bounded and
forgotten as a whole when full. A name is remembered when it is met for the second
time, so that names that never come again cost little; ``_seen`` has those met once.

Invariants:

- Every entry of ``routes`` and ``_answers`` is right: each change of the
  subscriptions drops what it could have changed before it returns. To find
  these, every cached name stands in one byte string, ``_roll``, together with the name
  of its copy; a changed substring is looked for in that.
- Equal sets of receivers are the same :class:`Targets`, and equal shapes of
  frames to them the same :class:`Route`, so ``targets is previous`` tells
  whether two frames go to the same peers, and ``route is previous`` that they
  have the same lengths as well.
- ``_few`` has all of ``index.values`` if these are few, and is empty otherwise.
- ``index.values[substring]`` exists if and only if some peer subscribes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol
from weakref import WeakValueDictionary

from pubsubd.limits import MAX_CACHED_HEADERS, MAX_CACHED_NAMES
from pubsubd.matching import SubstringIndex
from pubsubd.outbox import Pieces
from pubsubd.wire import OWN, copy_name

_SLASH = 47
_SCAN = 12  # up to so many substrings, trying each is quicker than the index
_FEW = 64  # changes at once up to which each is looked up in the roll
_STEP = 1_000  # substrings of a leaving peer that are removed in one step
_ROLL = 64  # bytes of the roll per name; longer names make the cache hold fewer
_SCANNED = 128  # bytes of the roll looked through in one step of work
_SCANNED_HIT = 10  # steps of work to forget one name
_SHAPES = 4_096  # routes remembered for one set of receivers


class Receiver(Protocol):
    """What routing and delivery need of a peer."""

    substrings: set[bytes]
    fresh: list[bytes]
    put: Callable[[bytes], None]
    send: Callable[[bytes | Pieces], None]


class Targets:
    """A set of peers that frames go to, in the form the broker needs.

    Attributes:
        put: hands bytes to the only peer; None if there is not exactly one.
        puts: one call each hands bytes to all peers.
        pending: messages put in the present read; the broker's.
        special: whether the broker has to deliver frame by frame; False here.
    """

    __slots__ = ("__weakref__", "peers", "pending", "put", "puts", "shapes")

    special = False

    def __init__(self, peers: Iterable[Receiver]) -> None:
        self.peers = tuple(peers)
        self.puts = tuple(peer.put for peer in self.peers)
        self.put = self.puts[0] if len(self.puts) == 1 else None
        self.pending = 0
        self.shapes: dict[tuple[int, int], Route] = {}


class Fork:
    """The receivers of one ``//x/y``: those of the name itself, and those of its copy only."""

    __slots__ = ("copies", "copy_name", "direct", "shapes")

    special = True
    peers: tuple[Receiver, ...] = ()
    puts: tuple[Callable[[bytes], None], ...] = ()
    put = None
    pending = 0

    def __init__(self, direct: Targets, copies: Targets, copy_name: bytes) -> None:
        self.direct = direct
        self.copies = copies
        self.copy_name = copy_name
        self.shapes: dict[tuple[int, int], Route] = {}


class Route:
    """Where the frames with one kind of header go.

    Attributes:
        targets: the receivers.
        width: bytes of the header and of the LF before it.
        length: bytes of the whole frame, its own LF included.
    """

    __slots__ = ("length", "targets", "width")

    def __init__(self, targets: Targets | Fork, width: int, length: int) -> None:
        self.targets = targets
        self.width = width
        self.length = length


class _Crowd:
    """The several peers of one substring; their :class:`Targets` is made when needed."""

    __slots__ = ("peers", "targets")

    def __init__(self, peers: Iterable[Receiver]) -> None:
        self.peers = dict.fromkeys(peers)
        self.targets: Targets | None = None


class _Answer:
    __slots__ = ("headers", "targets")

    def __init__(self, targets: Targets | Fork) -> None:
        self.targets = targets
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
        lookups: names answered without the cache so far.
    """

    def __init__(
        self, max_names: int = MAX_CACHED_NAMES, max_headers: int = MAX_CACHED_HEADERS
    ) -> None:
        self.routes: dict[bytes, Route] = {}
        self.lookups = 0
        self.nobody = Targets(())
        self._max_names = max_names
        self._max_headers = max_headers
        self.index: SubstringIndex[Targets | _Crowd] = SubstringIndex()
        self._interned: WeakValueDictionary[frozenset[Receiver], Targets] = WeakValueDictionary()
        self._answers: dict[bytes, _Answer] = {}
        self._few: tuple[tuple[bytes, Targets | _Crowd], ...] = ()
        self._seen: set[bytes] = set()
        self._roll = bytearray()
        self._count = 0

    # Subscriptions

    @property
    def subscriptions(self) -> int:
        """Pairs of a peer and a substring."""
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
        holders = self.index.values
        holder = holders.get(substring)
        if holder is None:
            self.index.add(substring, self.only(peer))
        elif isinstance(holder, Targets):
            holders[substring] = _Crowd((*holder.peers, peer))
        else:
            holder.peers[peer] = None
            holder.targets = None
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

    def forget(self, peer: Receiver) -> Iterator[None]:
        """Undo all of ``peer``'s subscriptions, in steps of bounded work: iterate to the end.

        Between the steps, answers may still name ``peer``, which has to take what it is
        given and throw it away.
        """
        substrings, peer.substrings = peer.substrings, set()
        if len(substrings) <= _FEW:
            for substring in substrings:
                self._remove(peer, substring)
                self._change(substring)
            return
        for done, substring in enumerate(substrings):
            self._remove(peer, substring)
            if done % _STEP == 0:
                self._few = ()
                yield
        self._note_few()
        self.clear()

    def _remove(self, peer: Receiver, substring: bytes) -> None:
        self._count -= 1
        holder = self.index.values[substring]
        if isinstance(holder, Targets):
            self.index.remove(substring)
            return
        del holder.peers[peer]
        holder.targets = None
        if len(holder.peers) == 1:
            self.index.values[substring] = self.only(next(iter(holder.peers)))

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
            found: Targets | _Crowd | None = None
            for substring, holder in self._few:
                if substring in name:
                    if found is not None:
                        found = None
                        break
                    found = holder
            direct = found if type(found) is Targets else self._targets(name)
            targets = self._fork(direct, name) if name[0] == _SLASH else direct
            seen = self._seen
            if name not in seen:
                if len(seen) >= self._max_names:
                    seen.clear()
                seen.add(name)
                route = targets.shapes.get((width, width + size))
                return route or _shape(targets, width, width + size)
            answer = self._remember(name, targets)
        if len(self.routes) >= self._max_headers:
            self.clear()
            answer = self._remember(name, answer.targets)
        route = self.routes[key] = _shape(answer.targets, width, width + size)
        answer.headers.append(key)
        return route

    def targets_of_own(self, name: bytes) -> Targets:
        """Return who wants ``name``, which is one of the daemon's own, under ``//pubsubd/``.

        Only substrings that begin with ``//pubsubd/`` count, so that ``sub s`` does not
        bring statistics.
        """
        holders = [self.index.values[s] for s in self.index.find(name) if s.startswith(OWN)]
        return self._union(holders)

    def explain(self, name: bytes) -> Iterator[tuple[Receiver, bytes, list[bytes]]]:
        """Yield who would receive ``name``: the peer, the name it would see, and why.

        Why is the substrings of that peer that match; the name seen is that of the copy
        for those who get only that.
        """
        told: set[Receiver] = set()
        for seen in (name, copy_name(name)):
            if seen is None:
                continue
            reasons: dict[Receiver, list[bytes]] = {}
            for substring in self.index.find(seen):
                for peer in self.index.values[substring].peers:
                    if peer not in told:
                        reasons.setdefault(peer, []).append(substring)
            for peer, substrings in reasons.items():
                yield peer, seen, sorted(substrings)
            told.update(reasons)

    def clear(self) -> None:
        """Forget every answer; they are made anew when asked for."""
        self.routes.clear()
        self._answers.clear()
        self._roll = bytearray()

    def _fork(self, direct: Targets, name: bytes) -> Targets | Fork:
        """Return who gets ``name``, or only its copy, when ``direct`` want the name itself."""
        copy = copy_name(name)
        if copy is None:
            return direct
        copies = self._targets(copy)
        if copies is direct or not (rest := set(copies.peers).difference(direct.peers)):
            return direct
        return Fork(direct, self._intern(frozenset(rest)), copy)

    def _remember(self, name: bytes, targets: Targets | Fork) -> _Answer:
        if len(self._answers) >= self._max_names or len(self._roll) >= self._max_names * _ROLL:
            self.clear()
        answer = self._answers[name] = _Answer(targets)
        copy = copy_name(name)
        self._roll += name + b"\n" if copy is None else b"%b %b\n" % (name, copy)
        return answer

    def _targets(self, name: bytes) -> Targets:
        """Return who has a substring of ``name``, without the caches."""
        values = self.index.values
        if self._few or not values:
            return self._union([holder for substring, holder in self._few if substring in name])
        return self._union([values[substring] for substring in self.index.find(name)])

    def _union(self, holders: list[Targets | _Crowd]) -> Targets:
        if not holders:
            return self.nobody
        first = holders[0]
        if any(holder is not first for holder in holders):
            return self._intern(frozenset(peer for holder in holders for peer in holder.peers))
        if isinstance(first, Targets):
            return first
        if first.targets is None:
            first.targets = self._intern(frozenset(first.peers))
        return first.targets

    def _intern(self, peers: frozenset[Receiver]) -> Targets:
        targets = self._interned.get(peers)
        if targets is None:
            targets = self._interned[peers] = Targets(peers)
        return targets

    def _note_few(self) -> None:
        values = self.index.values
        self._few = tuple(values.items()) if len(values) <= _SCAN else ()

    def _change(self, substring: bytes) -> None:
        """Let nothing that was known before ``substring`` changed be used any more.

        Forget the answers to all names that hold ``substring``, or whose copies do.
        """
        self._note_few()
        roll = self._roll
        self.index.work += len(roll) // _SCANNED
        hits = 0
        at = roll.find(substring)
        while at >= 0:
            hits += 1
            self.index.work += _SCANNED_HIT
            if hits > _FEW and hits * 2 > len(self._answers):
                self.clear()
                return
            start = roll.rfind(b"\n", 0, at) + 1
            stop = roll.index(b"\n", at)
            answer = self._answers.pop(bytes(roll[start:stop]).partition(b" ")[0])
            for key in answer.headers:
                del self.routes[key]
            roll[start:stop] = b"\n" * (stop - start)  # in place: nothing has to move
            at = roll.find(substring, stop)


def _shape(targets: Targets | Fork, width: int, length: int) -> Route:
    route = targets.shapes.get((width, length))
    if route is None:
        if len(targets.shapes) >= _SHAPES:
            targets.shapes.clear()
        route = targets.shapes[width, length] = Route(targets, width, length)
    return route
