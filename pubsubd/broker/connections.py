"""Requests that list connections and end one: ``//pubsubd/connections`` and ``//pubsubd/kill``.

Strategy: an answer has the rows of the connections that come first in the order that is asked for.
To find these, all connections are looked at, in steps; where there are many, only once for all who
ask within a moment. Only their numbers are kept for that, and rows are made for each answer.

With access rules, whoever may publish the names of these requests may see and end all connections.
Without rules it depends on whether clients say who they are; see :meth:`Connections.scope`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from heapq import heappush, heappushpop
from typing import NamedTuple

from pubsubd.broker.faults import Faults
from pubsubd.broker.logins import Access, is_local
from pubsubd.broker.peer import Peer
from pubsubd.broker.traffic import Traffic
from pubsubd.broker.turn import Shared, Steps
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import escape
from pubsubd.routing.targets import Receiver

MAX_ROWS = 1_000
"""Connections in one answer."""

MAX_ANSWER = 512 * 1024
"""Bytes of rows after which an answer has no further one."""

ROWS = 100
"""Connections in an answer if the asker gives no number."""

MAX_REQUEST = 256
"""Bytes of the data of a request."""

_MAX_NUMBER = 2**53  # what JSON numbers are exact up to
_FEW = 256  # connections; looking at so many takes 0.2 ms, which is not worth sharing
_STEP = 64  # connections between two looks at the clock
_NAME = 64  # characters of a user's name in an error


class Scope(NamedTuple):
    """The connections that somebody may see who may not see all.

    Attributes:
        number: its own connection; 0 if it has logged in.
        user: as who it has logged in; empty if it has not.
    """

    number: int
    user: str

    def has(self, number: int, user: object) -> bool:
        """Return whether it may see a connection, given by its number and its user."""
        return user == self.user if self.user else number == self.number

    def sees(self, peer: Peer) -> bool:
        """Return whether it may see a connection."""
        return self.has(peer.number, peer.identity)


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """One connection. The fields are the columns; pubsubd-protocol(7) explains them."""

    connection: int
    user: str | None
    peer: str
    listener: str | None
    transport: str
    dialect: str
    node: str | None
    subscriptions: int | None
    messages_in_rate: float
    messages_out_rate: float
    bytes_in_rate: float
    bytes_out_rate: float
    backlog_bytes: int
    dropped: int
    since: float

    def as_json(self) -> str:
        """Return a JSON object."""
        return json.dumps({name: getattr(self, name) for name in COLUMNS})


COLUMNS = tuple(field.name for field in fields(ConnectionRow))


class Wanted(NamedTuple):
    """The data of ``//pubsubd/connections``."""

    sort: str = "age"
    limit: int = ROWS
    after: int = 0


class Found(NamedTuple):
    """The connections that come first.

    Attributes:
        total: how many the asker may see.
        more: whether there are further ones, by age.
        rows: what each is sorted by, the least first; its number; and its row as JSON.
    """

    total: int
    more: bool
    rows: list[tuple[float, int, str]]


def join(wanted: Wanted, parts: Sequence[Found], silent: Sequence[int] = ()) -> bytes:
    """Return the answer to ``//pubsubd/connections``.

    Args:
        wanted: what was asked for.
        parts: what was found, by one worker or each of several.
        silent: numbers of the workers that have not answered.
    """
    rows = sorted(row for part in parts for row in part.rows)
    shown, size = rows[: wanted.limit], 0
    for number, (_, _, row) in enumerate(shown, 1):
        size += len(row)
        if size > MAX_ANSWER:
            del shown[number:]
    more = wanted.sort == "age" and (any(part.more for part in parts) or len(shown) < len(rows))
    head = f'"count": {sum(part.total for part in parts)}'
    text = ", ".join(row for _, _, row in shown)
    following = json.dumps(shown[-1][1] if more and shown else None)
    unheard = f', "silent": {list(silent)}' if silent else ""
    return f'{{{head}, "connections": [{text}], "next": {following}{unheard}}}'.encode()


class Ending(NamedTuple):
    """The wish to end a connection.

    Attributes:
        number: of the connection.
        scope: the connections that the asker may see; None for all.
        allowed: whether it may end those.
        text: what the connection is told.
    """

    number: int
    scope: Scope | None
    allowed: bool
    text: str

    def unknown(self) -> ProtocolError:
        """Return the error that there is no such connection."""
        return ProtocolError("unknown-connection", f"there is no connection {self.number}")


class Connections:
    """The connections of a daemon.

    Args:
        peers: number -> peer, of all that are connected, oldest first.
        access: the users and rules.
        traffic: how fast connections carry messages.
        faults: ends a connection for an unexpected exception.
        clock: seconds that only go forward.
        wall: returns seconds since the epoch.

    Attributes:
        sorts: the orders that need a look at every connection: each returns what it goes by at
            present; the most comes first. Besides them there is ``age``.
    """

    def __init__(
        self,
        peers: Mapping[int, Peer],
        access: Access,
        traffic: Traffic,
        faults: Faults,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._peers, self._access, self._traffic, self._faults = peers, access, traffic, faults
        self._clock, self._wall = clock, wall
        self.sorts: dict[str, Callable[[], Callable[[Peer], float]]] = {
            "backlog": lambda: _backlog,
            "rate": traffic.messages,
            "dropped": lambda: _dropped,
        }
        self._shared = {
            sort: Shared(partial(self.first, sort, MAX_ROWS, None), clock) for sort in self.sorts
        }

    # Rows

    def describe(self, peer: Peer) -> ConnectionRow:
        """Return the row of a connection."""
        link, (transport, dialect) = peer.link, spoken(peer)
        rates = [round(rate, 1) for rate in self._traffic.rate(peer)]
        return ConnectionRow(
            connection=peer.number,
            user=peer.identity,
            peer=peer.label,
            listener=peer.listener.name or None,
            transport=transport,
            dialect=dialect,
            node=None if link is None else link.node,
            subscriptions=None if link is not None else subscriptions(peer),
            messages_in_rate=rates[0],
            messages_out_rate=rates[1],
            bytes_in_rate=rates[2],
            bytes_out_rate=rates[3],
            backlog_bytes=peer.outbox.size,
            dropped=_dropped(peer),
            since=round(self._wall() - (self._clock() - peer.joined), 3),
        )

    def text(self, peer: Peer) -> str:
        """Return what a connection can be found by: its number and the texts of its row."""
        words = (
            str(peer.number),
            peer.identity or "",
            peer.label,
            peer.listener.name,
            *spoken(peer),
            "" if peer.link is None else peer.link.node,
        )
        return " ".join(words).casefold()

    # Requests

    def show(self, asker: Peer, data: bytes) -> Steps[bytes]:
        """Return the answer to ``//pubsubd/connections``, in steps.

        Raises:
            ProtocolError: ``bad-request``, the data cannot be used.
        """
        wanted = self.read(data)
        return join(wanted, [(yield from self.find(wanted, self.scope(asker)))])

    def find(self, wanted: Wanted, scope: Scope | None) -> Steps[Found]:
        """Return the connections that come first, in steps.

        Args:
            wanted: which, and in what order.
            scope: those that the asker may see; None for all.
        """
        numbers = list(self._peers) if scope is None else (yield from self._select(scope))
        count, more = len(numbers), False
        if wanted.sort == "age":
            start = bisect_right(numbers, wanted.after)
            more = start + wanted.limit < count
            numbers = numbers[start : start + wanted.limit]
        elif scope is None and count > _FEW:
            numbers = (yield from self._shared[wanted.sort].get())[: wanted.limit]
        else:
            numbers = yield from self.first(wanted.sort, wanted.limit, numbers)
        by = None if wanted.sort == "age" else self.sorts[wanted.sort]()
        found = Found(count, more, [])
        size = 0
        for done, number in enumerate(numbers, 1):
            if (peer := self._peers.get(number)) is not None:  # it may have left since
                row = self.describe(peer).as_json()
                found.rows.append((0.0 if by is None else -by(peer), number, row))
                size += len(row)
            if size > MAX_ANSWER:
                return found._replace(more=found.more or done < len(numbers))
            if done % _STEP == 0:
                yield
        return found

    def kill(self, asker: Peer, data: bytes) -> bytes:
        """End a connection, and return its row; ``data`` is its number.

        Raises:
            ProtocolError: ``bad-request``, the data is no number; ``unknown-connection``, there is
                none, or the asker may not see it; ``not-allowed``, the asker may see it and no
                more; ``killed``, it is the asker's own.
        """
        ending = self.read_ending(asker, data)
        if ending.number == asker.number:
            raise ProtocolError("killed", ending.text)  # behind what it has said before
        row = self.end(ending)
        if row is None:
            raise ending.unknown()
        return row

    def read_ending(self, asker: Peer, data: bytes) -> Ending:
        """Return what ``//pubsubd/kill`` asks for.

        Raises:
            ProtocolError: ``bad-request``, the data is no number.
        """
        if not data.isdigit() or len(data) > 15:
            raise ProtocolError("bad-request", "the data is not the number of a connection")
        text = f"ended by {escape(asker.identity or asker.label, _NAME)}"
        scope = self.scope(asker)
        return Ending(int(data), scope, self._ends(asker, scope), text)

    def end(self, ending: Ending) -> bytes | None:
        """End a connection, and return its row; None if there is none that the asker may see.

        Raises:
            ProtocolError: ``not-allowed``, the asker may see it and no more.
        """
        peer = self._peers.get(ending.number)
        if peer is None or (ending.scope is not None and not ending.scope.sees(peer)):
            return None
        if not ending.allowed:
            text = "from another machine, without a login, that needs an access rule"
            raise ProtocolError("not-allowed", f"connection {ending.number}: {text}")
        row = self.describe(peer)
        try:
            peer.end("killed", ending.text)
        except Exception as error:  # noqa: BLE001  (it is that connection's alone)
            self._faults.end(peer, error)
        return row.as_json().encode()

    def may_kill(self, asker: Peer) -> bool:
        """Return whether somebody may end the connections that it may see."""
        rights = asker.permission
        if rights is not None and not rights.may_publish(b"//pubsubd/kill"):
            return False
        return self._ends(asker, self.scope(asker))

    def _ends(self, asker: Peer, scope: Scope | None) -> bool:
        ruled = scope is not None or bool(self._access.acl.rules)
        return ruled or self._operates(asker) or is_local(asker)

    def scope(self, asker: Peer) -> Scope | None:
        """Return which connections somebody may see and end; None for all.

        With rules, the right to make the request is the right to all. Without rules, all are for
        everybody where nobody says who he is; elsewhere they are for operators, and others see
        what is their own.
        """
        access = self._access
        if access.acl.rules or not access.identifies or self._operates(asker):
            return None
        return Scope(0, asker.identity) if asker.identity else Scope(asker.number, "")

    def _operates(self, asker: Peer) -> bool:
        """Return whether somebody is root or the daemon's own user, on a Unix socket."""
        access = self._access
        return (
            asker.label == "unix"
            and asker.credential is None
            and asker.identity in access.operators
        )

    def read(self, data: bytes) -> Wanted:
        """Return what ``//pubsubd/connections`` asks for.

        Raises:
            ProtocolError: ``bad-request``, the data cannot be used.
        """
        try:
            given = json.loads(data or b"{}") if len(data) <= MAX_REQUEST else None
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise ProtocolError("bad-request", 'the data is not JSON like {"sort": "backlog"}')
        if unknown := given.keys() - set(Wanted._fields):
            shown = escape(min(unknown), _NAME)
            raise ProtocolError("bad-request", f"{shown} is not one of sort, limit and after")
        request = Wanted(**given)
        if request.sort not in ("age", *self.sorts):
            raise ProtocolError("bad-request", f"sort is one of age, {', '.join(self.sorts)}")
        if type(request.limit) is not int or not 1 <= request.limit <= MAX_ROWS:
            raise ProtocolError("bad-request", f"limit is a number from 1 to {MAX_ROWS}")
        if type(request.after) is not int or not 0 <= request.after <= _MAX_NUMBER:
            raise ProtocolError("bad-request", "after is the number of a connection")
        if request.after and request.sort != "age":
            raise ProtocolError("bad-request", "after is for sort age alone")
        return request

    # Finding

    def _select(self, scope: Scope) -> Steps[list[int]]:
        """Return the numbers of the connections that somebody may see, in steps."""
        found = []
        for done, peer in enumerate(list(self._peers.values()), 1):
            if scope.sees(peer):
                found.append(peer.number)
            if done % _STEP == 0:
                yield
        return found

    def first(self, sort: str, limit: int, numbers: Sequence[int] | None) -> Steps[list[int]]:
        """Return the numbers of the connections that come first of ``numbers``, None for all."""
        by = self.sorts[sort]()
        found: list[tuple[float, int]] = []  # the last of them at the top; of equals, the youngest
        get, room, last = self._peers.get, limit, -1.0
        for done, number in enumerate(list(self._peers) if numbers is None else numbers, 1):
            if (peer := get(number)) is not None:
                value = by(peer)
                if room:
                    room -= 1
                    heappush(found, (value, -number))
                    last = found[0][0]
                elif value > last:
                    heappushpop(found, (value, -number))
                    last = found[0][0]
            if done % _STEP == 0:
                yield
        return [-number for _, number in sorted(found, reverse=True)]


def spoken(peer: Peer) -> tuple[str, str]:
    """Return the transport and the dialect of a connection, as metrics name them."""
    if peer.hub is not None:
        return peer.hub.spoken
    return "line", "line" if peer.link is None else "mesh"


def subscriptions(peer: Receiver) -> int:
    """Return how many substrings, names and wildcards a receiver has subscribed."""
    return len(peer.substrings) + len(peer.names or ()) + len(peer.patterns or ())


def _backlog(peer: Peer) -> float:
    return peer.outbox.size


def _dropped(peer: Peer) -> int:
    return peer.dropped if peer.link is None else peer.link.dropped
