"""Directory of claims: which daemon an address is registered at, in the whole mesh, without I/O.

Strategy. Each daemon tells all others what is claimed at it, in letters (see
:mod:`pubsubd.mesh.letters`): changes at once, or gathered for a moment if there are many;
everything to one who asks. So whoever looks for an address finds it in its own memory. The letters
with changes are numbered, and the adverts have the number of the last one: who has missed one
notices, and asks for everything. So does who meets a daemon, for the first time or again, unless
nothing was ever claimed there. A letter is lost if a daemon on its way is: so who has told changes
just before the graph changes sends another letter then, with further changes or none.

    claims <sequence>                       changes; lines of + or -
    sync                                    the request for everything
    whole <sequence> <part> <more>          the answer, in parts; lines of +
    + <since> <key> <details>
    - <key>

Of two claims of one key, the earlier wins, and of two of the same millisecond that of the daemon
with the lower id. All daemons decide so for themselves, and the loser withdraws its claim; after a
moment, as the other one's may be that of a client which has just come from there.

Invariant: a daemon that cannot be reached has no table, or one that is being emptied and is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from typing import Protocol

from pubsubd.broker.turn import Steps
from pubsubd.mesh.adverts import HubReport
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.state import State
from pubsubd.protocol.limits import KIB
from pubsubd.protocol.shards import Shards
from pubsubd.routing.claims import Claims, Learner, Table

MAX_KEY = 256
"""Characters of a key."""

PART = 64 * KIB
"""Bytes of a letter, after which the rest goes into further ones."""

MAX_LINES = 8 * PART
"""Bytes of the lines of a letter: a part, and an actor whose details take six times their length,
as those with control characters do."""

GATHER = 0.05
"""Seconds in which changes are gathered, if there was one just before."""

RATE = 1_000_000.0
"""Bytes a second that letters about changes may come to."""

BEHIND = 0.25
"""Seconds that one may know of a letter, from an advert, that has not come yet."""

DOUBT = 0.5
"""Seconds that a claim stays beside an earlier one, whose withdrawal may be on its way."""

AGAIN = 1.0
"""Seconds between two requests for everything, and between two answers to one daemon."""

_ON_ITS_WAY = 3.0  # heartbeats after which a letter has arrived, or a link on its way is known dead
_STEP = 64  # claims between two looks at the clock
_COST = 8 * KIB  # bytes of lines of a letter taken between two looks at the clock
_LINE = 512  # bytes, the reading of which takes as long as what else is done for a line
_ASKED = 1_024  # daemons that wait for an answer


class Registrar(Learner, Protocol):
    """The part of a daemon's hub that its directory needs."""

    @property
    def connections(self) -> int:
        """Number of connections of the hub port."""

    def describe(self, key: str) -> bytes | None:
        """Return the details of a claim of its own, in one line; None if it has none by now."""

    def lose(self, key: str, node: str) -> None:
        """Withdraw a claim of its own: that of another daemon is earlier."""


class Directory:
    """The claims of this daemon and of all others.

    Args:
        state: the daemon's.
        letters: of the daemon.
        wake: called with a time at which :meth:`acting` has something to do.
        advertise: called when this daemon has to advertise at once.

    Attributes:
        letters: of the daemon.
        own: key -> since when, in milliseconds since the epoch, of this daemon's claims.
        sequence: of the last letter about this daemon's claims.
        due: when :meth:`acting` has something to do.
        lost: claims that were withdrawn for an earlier one.
        looked: called when daemons may be reached that were not, or no more.
        named: True: clients are told which daemon has what.
        siblings, gate: none: this process is the whole daemon.
    """

    named = True
    siblings = ()
    gate = None

    def __init__(
        self,
        state: State,
        letters: Letters,
        *,
        wake: Callable[[float], None],
        advertise: Callable[[], None],
    ) -> None:
        self._state = state
        self._wake_mesh = wake
        self._advertise = advertise
        self.letters = letters
        self._registrar: Registrar | None = None
        self.own: dict[str, int] = {}
        self.sequence = 0
        self.lost = 0
        self.due = float("inf")
        self.looked: Callable[[], None] = lambda: None
        self._claims = Claims()
        self._tables = self._claims.tables
        self._changes: dict[str, None] = {}  # keys that are to be told
        # Claims of its own that another may have, too -> when that is decided, in this order.
        self._doubtful: dict[str, float] = {}
        self._tell_at = float("-inf")  # not before
        self._told = float("-inf")  # when changes were told last
        self._repeat_at = float("inf")  # then a letter is due, with changes or without
        self._news: dict[str, None] = {}  # daemons to be looked at
        self._behind: dict[str, None] = {}  # daemons of which something is missing
        self._asked: dict[str, float] = {}  # daemon -> when everything was sent to it last
        self._asking: dict[str, None] = {}  # daemons that are to be sent everything
        letters.kinds.update(claims=self._take_claims, sync=self._take_sync, whole=self._take_whole)

    @property
    def node(self) -> str:
        """Id of this daemon."""
        return self._state.node

    def serve(self, registrar: Registrar) -> None:
        """Take part, for this hub; to be called before anything is claimed."""
        self._registrar = self._claims.learner = registrar
        self.letters.open = True

    # What the hub says and asks

    def claim(self, key: str, since: int | None = None) -> int:
        """Claim a key, or tell its new details; return since when it is claimed.

        It is since now, if it was not claimed before, or since a time that is given.
        """
        before = self.own.get(key)
        if since is None:
            since = int(self._state.wall() * 1000) if before is None else before
        if since != before:
            self.own[key] = since
            if key in self._claims:
                self._doubt(key)
        self._change(key)
        return since

    def release(self, key: str) -> None:
        """Withdraw a claim, if there is one."""
        if self.own.pop(key, None) is not None:
            self._change(key)

    def find(self, key: str) -> str | None:
        """Return the other daemon at which a key is claimed; None if it is at none."""
        node = self._claims.find(key)
        if node is None or node not in self._tables or node not in self._state.table.hops:
            return None
        return node

    def find_near(self, _key: str) -> None:
        """Return None: there is no other worker."""

    def disown(self, node: str, key: str) -> None:
        """Take note that another daemon has withdrawn a claim, before its letter about that."""
        table = self._tables.get(node)
        if table is not None:
            self._claims.remove(node, table, key)

    @property
    def known(self) -> int:
        """Claims of other daemons."""
        return self._claims.known

    @property
    def unsettled(self) -> list[str]:
        """Ids of the other daemons that can be reached and whose claims are not all known."""
        hops = self._state.table.hops
        return sorted(
            node
            for node, table in self._tables.items()
            if node in hops and (table.sequence is None or table.fresh is not None or table.full)
        )

    @property
    def others(self) -> list[str]:
        """Ids of the other daemons with a hub that can be reached."""
        hops = self._state.table.hops
        return sorted(node for node in self._tables if node in hops)

    def count(self, node: str) -> int | None:
        """Return how many claims of a daemon are known; None if it has no hub."""
        if node == self._state.node:
            return None if self._registrar is None else len(self.own)
        table = self._tables.get(node)
        return None if table is None or node not in self._state.table.hops else len(table.claims)

    def report(self) -> HubReport | None:
        """Return what the advert of this daemon says of its hub, if it has one."""
        if self._registrar is None:
            return None
        return HubReport(self.sequence, len(self.own), self._registrar.connections)

    @property
    def nodes(self) -> KeysView[str]:
        """The other daemons whose claims are known, in part at least."""
        return self._tables.keys()

    def claims(self, node: str) -> Mapping[str, int]:
        """Return what is known to be claimed at another daemon, and since when."""
        table = self._tables.get(node)
        return {} if table is None else table.claims

    def keys(self, node: str) -> KeysView[str]:
        """Return what is known to be claimed at another daemon."""
        table = self._tables.get(node)
        return ({} if table is None else table.claims).keys()

    # What the mesh says

    def note(self, node: str) -> None:
        """Look at a daemon: its advert is new, or it can be reached or no more."""
        if self._registrar is not None and node != self._state.node:
            self._news[node] = None
            self._wake(self._state.now())

    def note_all(self) -> None:
        """Look at all daemons: the graph has changed."""
        now = self._state.now()
        if self._registrar is not None:
            if now < self._told + _ON_ITS_WAY * self._state.config.heartbeat:
                self._repeat_at = min(self._repeat_at, now + BEHIND)  # when others know it, too
            self._news.update(dict.fromkeys(self._state.table.adverts))
            self._news.update(dict.fromkeys(self._tables))
            self._asking = {
                node: None for node in self._asking if node in self._state.table.adverts
            }
            self._asked = {
                node: at for node, at in self._asked.items() if node in self._state.table.adverts
            }
            self._wake(now)

    # Time

    def _wake(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._wake_mesh(at)

    def retry(self) -> None:
        """Let :meth:`acting` go on after a while: it has failed."""
        self._wake(self._state.now() + AGAIN)

    def acting(self) -> Steps[None]:
        """Do what is due, in steps."""
        now = self._state.now()
        if now < self.due:
            return
        self.due = float("inf")
        for number, node in enumerate(list(self._news), 1):
            self._news.pop(node, None)
            self._look(node)
            if number % _STEP == 0:
                yield
        yield from self._deciding(now)
        if now >= self._repeat_at or (self._changes and now >= self._tell_at):
            yield from self._telling()
        for node in list(self._behind):
            self._ask_if_behind(node)
        asking = [node for node in self._asking if self.letters.reaches(node)]
        if asking:  # else one is woken when they can be reached
            del self._asking[asking[0]]
            yield from self._sending_all(asking[0])
            if len(asking) > 1:  # what has changed meanwhile is told before
                self._wake(self._state.now())
        yield from self._claims.emptying()
        if self._changes:
            self._wake(self._tell_at)
        self._wake(self._repeat_at)
        self.letters.post()

    def _look(self, node: str) -> None:
        """Make the table of a daemon, or drop it; ask for everything if something is missing."""
        if node == self._state.node:
            return
        self.looked()
        advert = self._state.table.adverts.get(node)
        table = self._tables.get(node)
        present = advert is not None and advert.hub is not None and node in self._state.table.hops
        if table is not None and (
            not present or advert is None or advert.incarnation != table.incarnation
        ):
            self._drop(node)
            table = None
        if not present or advert is None or advert.hub is None:
            return
        if table is None:
            table = self._tables[node] = Table(advert.incarnation)
            if advert.hub.sequence == 0:
                table.sequence = 0  # the first claim is followed by an advert at once
        if table.sequence is None:
            self._miss(node, table, at_once=True)
        elif advert.hub.sequence <= table.sequence and table.fresh is None:
            table.behind = None
        else:
            self._miss(node, table)

    def _miss(self, node: str, table: Table, *, at_once: bool = False) -> None:
        """Take note that something is missing in a table."""
        now = self._state.now()
        if table.behind is None:
            table.behind = now
        if at_once:
            table.behind = float("-inf")
        self._behind[node] = None
        self._wake(max(now, table.behind + BEHIND))

    def _ask_if_behind(self, node: str) -> None:
        """Ask a daemon for everything, if it is time to."""
        table, now = self._tables.get(node), self._state.now()
        if table is None or table.behind is None:
            del self._behind[node]
            return
        at = max(table.behind + BEHIND + self._state.spread, table.asked + AGAIN)
        if table.behind == float("-inf"):
            at = table.asked + AGAIN
        if now >= at and not self.letters.reaches(node):
            at = now + BEHIND
        elif now >= at:
            table.asked = now
            self.letters.send(node, "sync")
            at = now + AGAIN
        self._wake(at)

    # Out

    def _change(self, key: str) -> None:
        if self._registrar is not None:
            self._changes[key] = None
            self._wake(max(self._state.now(), self._tell_at))

    def _line(self, key: str) -> bytes:
        """Return the line about a key of this daemon's own."""
        since = self.own.get(key)
        details = None
        if since is not None and self._registrar is not None:
            details = self._registrar.describe(key)
        if since is None or details is None:
            return b"- %b\n" % key.encode()
        return b"+ %d %b %b\n" % (since, key.encode(), details)

    def _telling(self) -> Steps[None]:
        """Tell all others what has changed, if anything has, in steps."""
        size = 0
        while True:
            lines: dict[str, bytes] = {}
            letter = 0
            while self._changes and letter < PART:
                key = next(iter(self._changes))
                del self._changes[key]
                try:
                    lines[key] = self._line(key)
                except Exception:
                    # Behind the others, which are told before it.
                    self._changes.update(dict.fromkeys([*lines, key]))
                    raise
                letter += len(lines[key])
            if self.sequence == 0:
                self._advertise()
            self.sequence += 1
            self.letters.send(None, f"claims {self.sequence}", b"".join(lines.values()))
            now = self._state.now()
            if lines:
                self._told = now
            if now >= self._repeat_at:
                self._repeat_at = float("inf")
            size += letter
            yield
            if size >= PART or not self._changes:
                break
        self._tell_at = self._state.now() + max(GATHER, size / RATE)

    def _take_sync(self, node: str, _words: list[str], _body: bytes) -> None:
        now = self._state.now()
        if now - self._asked.get(node, float("-inf")) < AGAIN * 0.9 or len(self._asking) >= _ASKED:
            self.letters.ignored["rate"] += 1
            return
        self._asked[node] = now
        self._asking[node] = None
        self._wake(now)

    def _sending_all(self, node: str) -> Steps[None]:
        """Send a daemon everything, in steps; changes that are told meanwhile come in between."""
        sequence, part = self.sequence, 0
        lines: list[bytes] = []
        size = 0
        for number, key in enumerate(list(self.own)):
            line = self._line(key)
            if line.startswith(b"+"):
                lines.append(line)
                size += len(line)
            if size >= PART:
                self.letters.send(node, f"whole {sequence} {part} 1", b"".join(lines))
                part, size = part + 1, 0
                lines.clear()
            if number % _STEP == 0:
                yield
        self.letters.send(node, f"whole {sequence} {part} 0", b"".join(lines))

    # In

    def _take_claims(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        table = self._table(node)
        sequence = _number(words[1])
        if table is None or table.sequence is None or sequence <= table.sequence:
            return None  # all of it comes, or has come, otherwise
        self._miss(node, table)  # until it is taken, whatever goes wrong
        if sequence != table.sequence + 1:
            table.fresh = None
            return None
        return self._following(node, table, sequence, body)

    def _following(self, node: str, table: Table, sequence: int, body: bytes) -> Steps[None]:
        """Take changes."""
        yield from self._applying(node, table, body)
        if self._tables.get(node) is table:
            table.sequence = sequence
            self._look(node)

    def _take_whole(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        table = self._table(node)
        sequence, part, more = map(_number, words[1:4])
        if table is None:
            return None
        self._miss(node, table)  # until all of it is taken, whatever goes wrong
        table.asked = self._state.now()  # it comes
        if part == 0:
            table.fresh, table.part = Shards(), 0
            table.sequence = sequence
        if table.fresh is None or part != table.part:
            table.fresh = table.sequence = None  # or changes that follow would seem to be all
            return None
        table.part += 1
        return self._completing(node, table, body, not more)

    def _completing(self, node: str, table: Table, body: bytes, last: bool) -> Steps[None]:
        """Take a part of everything; with the last one, forget what was not told."""
        yield from self._applying(node, table, body)
        fresh = table.fresh
        if not last or fresh is None or self._tables.get(node) is not table:
            return
        table.fresh, table.behind = None, None
        for number, key in enumerate(list(table.claims), 1):
            if key not in fresh:
                self._claims.remove(node, table, key)
            if number % _STEP == 0:
                yield
                if self._tables.get(node) is not table:
                    return
        self._look(node)

    def _table(self, node: str) -> Table | None:
        """Return the table of a daemon, which may have to be made yet."""
        if node not in self._tables:
            self._look(node)
        return self._tables.get(node)

    def _applying(self, node: str, table: Table, lines: bytes) -> Steps[None]:
        """Take lines about claims, in steps, unless the daemon is gone meanwhile."""
        if len(lines) > MAX_LINES:
            raise ValueError(f"{len(lines)} bytes")
        cost = 0
        for line in lines.splitlines():
            cost += _LINE + len(line)
            if cost > _COST:
                yield
                cost = 0
            if self._tables.get(node) is not table:
                return
            sign, _, rest = line.partition(b" ")
            if sign == b"-":
                key = rest.decode()
                self._claims.remove(node, table, key)
                if table.fresh is not None:
                    table.fresh.pop(key, None)
                continue
            since, word, details = rest.split(b" ", 2)
            key = word.decode()
            if sign != b"+" or not 0 < len(key) <= MAX_KEY:
                raise ValueError(line)
            self._add(node, table, key, _number(since.decode()), details)

    def _drop(self, node: str) -> None:
        """Forget a daemon that is gone, or that was started anew."""
        self._behind.pop(node, None)
        self._asked.pop(node, None)
        self._asking.pop(node, None)
        if self._claims.drop(node):
            self._wake(self._state.now())

    def _add(self, node: str, table: Table, key: str, since: int, details: bytes) -> None:
        if not self._claims.add(node, table, key, since, details):
            self._fill(node, table)
            return
        if table.fresh is not None:
            table.fresh[key] = None
        if key in self.own:
            self._doubt(key)

    def _doubt(self, key: str) -> None:
        """Decide in a moment whether a claim of this daemon's own is to be withdrawn."""
        at = self._doubtful.setdefault(key, self._state.now() + DOUBT)
        self._wake(at)

    def _deciding(self, now: float) -> Steps[None]:
        """Decide what is due, in steps."""
        number = 0
        while self._doubtful:
            key, at = next(iter(self._doubtful.items()))
            if now < at:
                self._wake(at)
                return
            del self._doubtful[key]
            try:
                self._compare(key)
            except Exception:
                self._doubtful[key] = now + AGAIN  # behind the others
                raise
            number += 1
            if number % _STEP == 0:
                yield

    def _compare(self, key: str) -> None:
        """Withdraw a claim of this daemon's own if there is an earlier one."""
        assert self._registrar is not None
        mine, node = self.own.get(key), self.find(key)
        if mine is None or node is None:
            return
        if (self._tables[node].claims[key], node) < (mine, self._state.node):
            self.lost += 1
            self._state.emit(
                {
                    "event": "registration-lost",
                    "node": node,
                    "peer": node,
                    "reason": "registration-lost",
                    "detail": f"{key} was registered there earlier than here",
                }
            )
            self._registrar.lose(key, node)
            self.release(key)

    def _fill(self, node: str, table: Table) -> None:
        """Take note that there is no room for a claim of a daemon."""
        if not table.full:
            table.full = True
            self.looked()
            self._state.emit(
                {
                    "event": "directory-full",
                    "node": node,
                    "peer": node,
                    "reason": "directory-full",
                    "detail": f"{self.known} actors of other daemons are known, the rest is not",
                }
            )


def _number(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(digits)
    return int(digits)
