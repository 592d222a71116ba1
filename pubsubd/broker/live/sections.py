"""The sections of totals and connections, and what stands for a mesh where there is none."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, NamedTuple

from pubsubd import __version__
from pubsubd.broker.connections import COLUMNS, Connections
from pubsubd.broker.counters import Counters
from pubsubd.broker.live.observers import Key
from pubsubd.broker.live.reading import check_keys, need, read_number
from pubsubd.broker.live.states import Row, State, Table
from pubsubd.broker.peer import Peer
from pubsubd.broker.statistics import rss
from pubsubd.broker.turn import Steps
from pubsubd.protocol.errors import ProtocolError
from pubsubd.routing.router import Router

MAX_ROWS = 500
"""Connections in one state."""

ROWS = 50
"""Connections in one state if the asker gives no number."""

MAX_MATCH = 256
"""Characters of a text that connections are looked through for."""

PEERS = b"//pubsubd/peers"
NO_MESH = "this daemon is not part of a mesh"

_STEP = 256  # connections between two looks at the clock
_LEAST = 1.0  # seconds that rates are of
_SAMPLES = 64


class _Sample(NamedTuple):
    """Counts at one moment."""

    at: float
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    cpu: float


class Totals:
    """The daemon as a whole.

    Attributes:
        lag: returns the longest time, in seconds, that the loop was late of late; the daemon's.
    """

    def __init__(
        self,
        counters: Counters,
        router: Router,
        peers: Mapping[int, Peer],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._counters, self._router, self._peers = counters, router, peers
        self._clock, self._wall = clock, wall
        self._started = clock()
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self.lag: Callable[[], float] = lambda: 0.0
        self.note()

    def note(self) -> _Sample:
        """Note the counts; called every few seconds, so that there are rates when somebody asks."""
        counters = self._counters
        sample = _Sample(
            self._clock(),
            counters.messages_in,
            counters.messages_out,
            counters.bytes_in,
            counters.bytes_out,
            counters.dropped,
            time.process_time(),
        )
        self._samples.append(sample)
        return sample

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return what is wanted: there is no choice."""
        check_keys(given, "totals")
        return None

    def scope(self, asker: Peer) -> Hashable:
        """Return what somebody may see: all of it, who may see the statistics."""
        need(asker, b"//pubsubd/stats")
        return None

    def watch(self, watched: bool) -> None:
        """Take no note of who looks."""

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the totals, in steps."""
        backlog = 0
        for number, peer in enumerate(list(self._peers.values()), 1):
            backlog += peer.outbox.size
            if number % _STEP == 0:
                yield
        counters, now = self._counters, self._clock()
        since = [one for one in self._samples if now - one.at >= _LEAST] or [self._samples[0]]
        before, sample = since[-1], self.note()
        seconds = max(sample.at - before.at, _LEAST)
        rates = [(new - old) / seconds for new, old in zip(sample, before, strict=True)]
        values = {
            "version": __version__,
            "since": round(self._wall() - (now - self._started), 1),
            "connections": len(self._peers),
            "connections_total": counters.connections_total,
            "subscriptions": self._router.own_subscriptions,
            "messages_in": counters.messages_in,
            "messages_out": counters.messages_out,
            "messages_in_rate": round(rates[1], 1),
            "messages_out_rate": round(rates[2], 1),
            "bytes_in_rate": round(rates[3], 1),
            "bytes_out_rate": round(rates[4], 1),
            "backlog_bytes": backlog,
            "dropped": counters.dropped,
            "dropped_rate": round(rates[5], 1),
            "errors": counters.errors.total(),
            "closed": counters.closed.total(),
            "loop_lag_ms": round(1000 * self.lag(), 1),
            "cpu": round(rates[6], 3),
            "rss_bytes": rss(),
        }
        state = Table(values=values)
        return dict.fromkeys(keys, state)


class Wish(NamedTuple):
    """The connections that are wanted."""

    sort: str
    limit: int
    match: str


class ConnectionRows:
    """The connections that come first in some order."""

    def __init__(self, connections: Connections, peers: Mapping[int, Peer]) -> None:
        self._connections, self._peers = connections, peers
        self._rows: dict[int, Row] = {}  # of the last states

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return the order, how many, and what they have to contain."""
        check_keys(given, "connections", "sort", "limit", "match")
        sort, match = given.get("sort", "rate"), given.get("match", "")
        limit = read_number("limit", given.get("limit", ROWS), 1, MAX_ROWS)
        orders = ("age", *self._connections.sorts)
        if sort not in orders:
            raise ProtocolError("bad-request", f"sort is one of {', '.join(orders)}")
        if not isinstance(match, str) or len(match) > MAX_MATCH:
            raise ProtocolError("bad-request", f"match is a text of {MAX_MATCH} characters at most")
        return Wish(str(sort), int(limit), match.casefold())

    def scope(self, asker: Peer) -> Hashable:
        """Return whose connections somebody may see, None for all."""
        need(asker, b"//pubsubd/connections")
        return self._connections.scope(asker)

    def watch(self, watched: bool) -> None:
        """Forget what has been shown when nobody looks any more."""
        if not watched:
            self._rows = {}

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the connections that are wanted, in steps."""
        found: dict[Key, State] = {}
        rows: dict[int, Row] = {}
        texts: dict[int, str] = {}
        for key in keys:
            wish, scope = key
            assert isinstance(wish, Wish)
            numbers, count = yield from self._select(wish.match, scope, texts)
            matching = len(numbers)
            if wish.sort == "age":
                numbers = numbers[: wish.limit]
            else:
                numbers = yield from self._connections.first(wish.sort, wish.limit, numbers)
            shown: dict[int, Row] = {}
            for done, number in enumerate(numbers, 1):
                if number in rows:
                    shown[number] = rows[number]
                elif (peer := self._peers.get(number)) is not None:
                    shown[number] = rows[number] = self._row(peer)
                if done % _STEP == 0:
                    yield
            values = {"count": count, "matching": matching}
            found[key] = Table("connection", shown, values)
            yield
        self._rows = rows
        return found

    def _select(
        self, match: str, scope: Any, texts: dict[int, str]
    ) -> Steps[tuple[list[int], int]]:
        """Return the numbers of the connections that match, and how many may be seen."""
        if not match and scope is None:
            return list(self._peers), len(self._peers)
        found: list[int] = []
        count = 0
        for done, peer in enumerate(list(self._peers.values()), 1):
            if scope is None or scope.sees(peer):
                count += 1
                if not match:
                    found.append(peer.number)
                else:
                    text = texts.get(peer.number)
                    if text is None:
                        text = texts[peer.number] = self._connections.text(peer)
                    if match in text:
                        found.append(peer.number)
            if done % _STEP == 0:
                yield
        return found, count

    def _row(self, peer: Peer) -> Row:
        made = self._connections.describe(peer)
        row = {name: getattr(made, name) for name in COLUMNS}
        last = self._rows.get(peer.number)
        if last is not None:
            row["since"] = last["since"]  # a difference of two clocks
            if row == last:
                return last
        return row


class NoMesh:
    """Stands for the mesh in a daemon that is not part of one."""

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return what is wanted: there is no choice."""
        check_keys(given, "mesh")
        return None

    def scope(self, asker: Peer) -> Hashable:
        """Return what somebody may see.

        Raises:
            ProtocolError: there is nothing.
        """
        need(asker, PEERS)
        raise ProtocolError("no-mesh", NO_MESH)

    def watch(self, watched: bool) -> None:
        """Take no note of who looks."""

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return nothing."""
        yield from ()
        return {}
