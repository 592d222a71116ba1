"""Answers that are remembered: where the frames with a header go, and who gets a name.

Both are bounded and forgotten as a whole when full.

Invariant: every entry is right. Each change of the subscriptions drops what it could have changed
before it returns. To find these, every cached name stands in one byte string, ``names``, together
with the name of its copy, or the topic that it is the copy of; a changed substring is looked for in
that, and so is the longest literal of a changed wildcard. (A name may stand there that is not
cached any more.)
"""

from __future__ import annotations

from pubsubd.routing.copies import Copies
from pubsubd.routing.targets import CopyTargets, Route, Routes, Targets
from pubsubd.routing.wildcards import Pattern

_FEW = 64  # answers dropped one by one, even if these are the most of them
_LENGTH = 64  # bytes of a name; longer ones make the cache hold fewer
_SCANNED = 128  # bytes of the names looked through in one step of work
_SCANNED_HIT = 10  # steps of work to drop one answer, or to try a wildcard on its name
_MOST_WORK = 500_000  # steps of work on wildcards after which everything is forgotten


class Answer:
    """The receivers of a name.

    Attributes:
        targets: if it is published here.
        relayed: if it comes from another daemon; None if that was not asked yet.
        headers: keys of ``routes`` and ``relays`` that are for this name.
    """

    __slots__ = ("headers", "relayed", "targets")

    def __init__(self, targets: Targets | CopyTargets) -> None:
        self.targets = targets
        self.relayed: Targets | CopyTargets | None = None
        self.headers: list[bytes] = []


class Answers:
    """The caches of the router.

    Args:
        max_names: answers that are kept.
        copies: which names have copies.

    Attributes:
        routes: header (with the LF before it) -> :class:`Route`.
        relays: as ``routes``, of what comes from another daemon.
        by_name: name -> :class:`Answer`.
        made: the routes, by receivers and lengths.
    """

    def __init__(self, max_names: int, copies: Copies) -> None:
        self.routes: dict[bytes, Route] = {}
        self.relays: dict[bytes, Route] = {}
        self.by_name: dict[bytes, Answer] = {}
        self.made = Routes()
        self._max_names = max_names
        self._copies = copies
        self.names = bytearray()
        self._wildcard_work = 0  # since everything was forgotten

    def remember(self, name: bytes, targets: Targets | CopyTargets) -> Answer:
        """Return a new answer, for a name that has none."""
        room = self._max_names
        if len(self.by_name) >= room or len(self.names) >= room * _LENGTH:
            self.clear()
        answer = self.by_name[name] = Answer(targets)
        other = self._copies.of(name) or self._copies.topic_of(name)
        self.names += name + b"\n" if other is None else b"%b %b\n" % (name, other)
        return answer

    def clear(self) -> None:
        """Forget every answer; they are made anew when asked for."""
        self.routes.clear()
        self.relays.clear()
        self.by_name.clear()
        self.made.clear()
        self.names = bytearray()
        self._wildcard_work = 0

    def drop(self, name: bytes) -> None:
        """Forget the answer to ``name``, if there is one."""
        answer = self.by_name.pop(name, None)
        if answer is not None:
            for key in answer.headers:  # each is in one of the two, or in both
                self.routes.pop(key, None)
                self.relays.pop(key, None)

    def drop_name(self, name: bytes) -> None:
        """Forget the answer to ``name``, to its copy, and to the name whose copy it is."""
        self.drop(name)
        for other in (self._copies.of(name), self._copies.original(name)):
            if other is not None:
                self.drop(other)

    def drop_substring(self, substring: bytes) -> int:
        """Forget the answers to all names that hold ``substring``, or whose copies do.

        Returns:
            The work that this was, in steps of about 0.1 µs.
        """
        names = self.names
        work, hits = len(names) // _SCANNED, 0
        if not substring:
            self.clear()
            return work
        at = names.find(substring)
        while at >= 0:
            hits += 1
            work += _SCANNED_HIT
            if hits > _FEW and hits * 2 > len(self.by_name):
                self.clear()
                break
            start, stop = _entry(names, at)
            self.drop(bytes(names[start:stop]).partition(b" ")[0])
            names[start:stop] = b"\n" * (stop - start)  # in place: nothing has to move
            at = names.find(substring, stop)
        return work

    def drop_pattern(self, pattern: Pattern) -> int:
        """Forget the answers to all names that ``pattern`` matches, or whose copies it does.

        Looking for these is a fraction of a millisecond as a rule, but there may be thousands of
        patterns at once: then everything is forgotten soon, and there is nothing to look through.

        Returns:
            The work that this was, in steps of about 0.1 µs.
        """
        names, literal = self.names, pattern.literal
        work = len(names) // _SCANNED
        if not literal or self._wildcard_work + work > _MOST_WORK:
            self.clear()
            return 0
        hits = 0
        at = names.find(literal)
        while at >= 0:
            work += _SCANNED_HIT
            start, stop = _entry(names, at)
            name, _, other = bytes(names[start:stop]).partition(b" ")
            if pattern.matches(name) or (other and pattern.matches(other)):
                hits += 1
                self.drop(name)
                names[start:stop] = b"\n" * (stop - start)
            many = hits > _FEW and hits * 2 > len(self.by_name)
            if many or self._wildcard_work + work > _MOST_WORK:
                self.clear()
                break
            at = names.find(literal, stop)
        else:
            self._wildcard_work += work
        return work


def _entry(names: bytearray, at: int) -> tuple[int, int]:
    """Return where the entry of ``names`` that holds ``at`` begins and ends."""
    return names.rfind(b"\n", 0, at) + 1, names.index(b"\n", at)
