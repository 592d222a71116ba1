"""The busiest names: how often each is published, from a sample of what is read, without I/O.

Strategy: nothing is counted per message on the way of messages. While somebody looks, one in
:attr:`Sampler.every` reads is looked through once more, and its names are counted; a run of equal
headers costs as much as one. How many reads that are adapts itself, so that looking takes
:data:`SHARE` of a core at most. What is counted is exact if all reads are looked at, and otherwise
an estimate: the share of a name in the sample, of the messages that there were.

Counts fade, so that rates are averages of some :data:`FADING` seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Hashable, Mapping
from heapq import nlargest
from time import perf_counter, thread_time
from typing import Any

from pubsubd.broker.counters import Counters
from pubsubd.broker.delivery import Delivery
from pubsubd.broker.live.observers import Key
from pubsubd.broker.live.reading import check_keys, read_number
from pubsubd.broker.live.states import Row, State, Table
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.protocol import wire
from pubsubd.protocol.limits import KIB

FADING = 5.0
"""Seconds in which a count fades to a third."""

SHARE = 0.003
"""Part of a core that looking through reads takes at most."""

MAX_NAMES = 100
"""Names in one state."""

NAMES = 20
"""Names in one state if the asker gives no number."""

_KEPT = 4_096  # names that are counted
_BURST = 0.002  # seconds of looking after which fewer reads are looked at
_LESS = 4  # times
_RUNS = 128  # runs of equal headers looked at in one read
_FEW_RUNS = 16  # if it is one of many: a few messages of many reads say more than many of a few
_LOOKED = 64 * KIB  # bytes of them
_RAREST = 2**20
_FADED = 0.01  # messages, of which a count no longer counts
_STEP = 1_024  # names


class Sampler:
    """Counts of names, and what they are a sample of.

    Args:
        clock: returns seconds, as exact as can be had.
        cost: returns seconds of processor's time.

    Attributes:
        cost: the argument.
        every: one in so many reads is looked at.
        names: name -> messages, faded.
        total: messages that these counts stand for.
        looked: messages that were looked at.
        reads: reads that were looked at.
        spent: seconds that looking has taken since somebody asked.
    """

    def __init__(
        self,
        clock: Callable[[], float] = perf_counter,
        cost: Callable[[], float] = thread_time,
    ) -> None:
        self._clock, self.cost = clock, cost
        self._countdown = 1
        self._debt = 0.0  # seconds that looking has taken more than it may
        self._at = clock()
        self.every = 1
        self.names: dict[bytes, float] = {}
        self.total = self.looked = self.reads = self.spent = 0.0

    def read(self, peer: Peer | None, data: bytes, count: int) -> None:
        """Take note of a read with ``count`` messages, or of a run that is like one.

        Args:
            peer: who has sent it.
            data: frames, which may begin with the LF before the first one.
            count: messages in it; there may be other commands among them.
        """
        self._countdown -= 1
        if self._countdown > 0:
            return
        every = self.every
        # At random, or who sends one message of each kind in turn could be met at one of them.
        self._countdown = 1 if every == 1 else random.randint(1, 2 * every - 1)
        begun = self.cost()
        self._look(peer, data, count)
        took = self.cost() - begun
        now = self._clock()
        self.spent += took
        self._debt = max(0.0, self._debt - SHARE * (now - self._at)) + took
        self._at = now
        if self._debt > _BURST:
            self._debt /= 2
            self.every = min(_LESS * every, _RAREST)

    def _look(self, peer: Peer | None, data: bytes, count: int) -> None:
        if data[:1] != b"\n":
            data = b"\n" + data[:_LOOKED]
        publish_filter = None if peer is None else peer.publish_filter
        found: dict[bytes, int] = {}
        at, end, looked = 0, min(len(data), _LOOKED), 0
        for _ in range(_RUNS if self.every == 1 else _FEW_RUNS):
            match = wire.match_header(data, at)
            if match is None or at >= end:
                break
            key, name, digits = match.group(0, 1, 2)
            length = len(key) + int(digits)
            run = 1
            if looked + 1 < count and data[at + length : at + length + len(key)] == key:
                run = min(wire.equal_headers(data, at, key, length), count - looked)
            at += run * length
            looked += run
            if publish_filter is None or publish_filter.allows(name):
                found[name] = found.get(name, 0) + run
            if looked >= count:
                break
        if not looked:
            return
        weight = self.every * count / looked
        for name, times in found.items():
            self.names[name] = self.names.get(name, 0.0) + weight * times
        self.total += self.every * count
        self.looked += looked
        self.reads += 1
        if len(self.names) > _KEPT:
            kept = nlargest(_KEPT // 2, self.names.items(), key=_times)
            self.names = dict(kept)

    def fade(self, by: float) -> Steps[None]:
        """Let all counts fade to the part ``by``, in steps; look at more reads if that is cheap."""
        before, self.names = self.names, {}
        for done, (name, times) in enumerate(before.items(), 1):
            if times * by > _FADED:
                self.names[name] = self.names.get(name, 0.0) + times * by
            if done % _STEP == 0:
                yield
        self.total *= by
        self.looked *= by
        self.reads *= by
        now = self._clock()
        self._debt = max(0.0, self._debt - SHARE * (now - self._at))
        self._at = now
        if self.every > 1 and self._debt < _BURST / 8:
            self.every //= 2


def _times(item: tuple[bytes, float]) -> float:
    return item[1]


class NameRows:
    """The names that are published most.

    Args:
        delivery: is told to show its reads to the sampler while somebody looks.
        counters: tell how many messages there were.
        clock: seconds that only go forward.
    """

    def __init__(self, delivery: Delivery, counters: Counters, clock: Callable[[], float]) -> None:
        self._delivery, self._counters, self._clock = delivery, counters, clock
        self._sampler: Sampler | None = None
        self._at = 0.0
        self._messages = 0
        self._count = self._seconds = 0.0  # messages and time, faded

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return how many are wanted."""
        check_keys(given, "names", "limit")
        return int(read_number("limit", given.get("limit", NAMES), 1, MAX_NAMES))

    def scope(self, asker: Peer) -> Hashable:
        """Return by what rights somebody sees names: those that it may receive."""
        return asker.permission

    def watch(self, watched: bool) -> None:
        """Begin to look at reads, or end it."""
        if not watched:
            self._sampler = self._delivery.sampler = None
        elif self._sampler is None:
            self._sampler = self._delivery.sampler = Sampler()
            self._at, self._messages = self._clock(), self._counters.messages_in
            self._count = self._seconds = 0.0

    def spent(self) -> float:
        """Return the seconds that looking at reads has cost since this was called last."""
        sampler = self._sampler
        if sampler is None:
            return 0.0
        spent, sampler.spent = sampler.spent, 0.0
        return spent

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the names, in steps."""
        sampler = self._sampler
        if sampler is None:  # it has just ended
            return {key: Table("name") for key in keys}
        now = self._clock()
        seconds, self._at = now - self._at, now
        messages = self._counters.messages_in
        new, self._messages = messages - self._messages, messages
        self._count += new
        self._seconds += seconds
        rows = yield from self._rows(sampler, keys)
        fade = math.exp(-seconds / FADING)
        self._count *= fade
        self._seconds *= fade
        yield from sampler.fade(fade)
        return rows

    def _rows(self, sampler: Sampler, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        all_rate = self._count / self._seconds if self._seconds else 0.0
        part = min(1.0, sampler.looked / self._count) if self._count else 1.0
        unseen = 0.0 if part > 0.999 else 1.0 - part
        values = {"sampled": round(part, 3)}
        found: dict[Key, State] = {}
        for key in keys:
            limit, rights = key
            assert isinstance(limit, int)
            rows: dict[str, Row] = {}
            names = sampler.names.items()
            for name, times in nlargest(limit, _seen(names, rights), key=_times):
                share = min(1.0, times / sampler.total)
                error = 2 * math.sqrt(share * (1 - share) / max(1.0, sampler.reads) * unseen)
                rate = round(share * all_rate, 1)
                if rate and wire.is_utf8(name):
                    text = name.decode()
                    error = round(min(1.0, error) * all_rate, 1)
                    rows[text] = {"name": text, "rate": rate, "error": error}
            found[key] = Table("name", rows, values)
            yield
        return found


def _seen(names: Collection[tuple[bytes, float]], rights: Any) -> Collection[tuple[bytes, float]]:
    if rights is None:
        return names
    return [one for one in names if rights.may_receive(one[0])]
