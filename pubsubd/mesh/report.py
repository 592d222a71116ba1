"""Reports on the mesh: a daemon's own links, and all that it knows of the others'.

They grow with the mesh, so they are made in steps and answered in pages. Each page, and the list
behind all pages, is made once for all who ask within a moment.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import islice
from time import thread_time
from typing import Any, Generic, NamedTuple, TypeVar

from pubsubd.broker.turn import Shared, Steps, finish
from pubsubd.mesh.adverts import Advert, LinkReport
from pubsubd.mesh.core import Down, Mesh
from pubsubd.mesh.edges import format_row
from pubsubd.mesh.link import Link
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import show_address

_SHOWN = 10  # interests of one link

PAGE_SIZE = 512 * 1024
"""Bytes of one answer."""

_PAGES = 8  # that are kept for a moment
_FEW = 256  # daemons and links; so many rows take about 2 ms
_STEP = 64  # rows between two looks at the clock

Row = dict[str, Any]
Item = TypeVar("Item")


class _Pages(Generic[Item]):
    """An answer that is a list of rows, in pages of so many bytes.

    Args:
        find: returns what there is, in steps.
        count: returns how many rows one of these has.
        rows: returns these rows, each a JSON text.
        show: returns the page with some of them, and where the next one begins.
        is_small: returns whether it is so little that it need not be shared: who asks again after
            having done something sees what came of it.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        find: Callable[[], Steps[list[Item]]],
        count: Callable[[Item], int],
        rows: Callable[[Item], Iterator[str]],
        show: Callable[[list[tuple[Item, str]], int | None], bytes],
        is_small: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._find, self._count, self._rows, self._show = find, count, rows, show
        self._is_small, self._clock = is_small, clock
        self._index = Shared(self._list, clock, thread_time)
        self._pages: dict[int, Shared[bytes]] = {}

    def get(self, first: int) -> Steps[bytes]:
        """Return the page that begins with row ``first``, in steps."""
        if self._is_small():
            return self._make(first, self._list())
        page = self._pages.pop(first, None)
        if page is None:
            page = Shared(lambda: self._make(first, self._index.get()), self._clock, thread_time)
        self._pages[first] = page
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return page.get()

    def _list(self) -> Steps[tuple[list[Item], list[int]]]:
        """Return what there is, and up to which row each of it goes."""
        found = yield from self._find()
        ends, end = [], 0
        for number, item in enumerate(found):
            end += self._count(item)
            ends.append(end)
            if number % _STEP == 0:
                yield
        return found, ends

    def _make(self, first: int, index: Steps[tuple[list[Item], list[int]]]) -> Steps[bytes]:
        found, ends = yield from index
        begin = bisect_right(ends, first)
        skipped = first - (ends[begin - 1] if begin else 0)
        page: list[tuple[Item, str]] = []
        size, at = 0, first
        for item in islice(found, begin, None):
            for row in islice(self._rows(item), skipped, None):
                if size >= PAGE_SIZE:
                    return self._show(page, at)
                page.append((item, row))
                size += len(row) + 2
                at += 1
                if at % _STEP == 0:
                    yield
            skipped = 0
        return self._show(page, None)


class _End(NamedTuple):
    """One daemon's links, as it has reported them."""

    ts: str
    mesh: str
    observer: str
    state: str
    links: tuple[LinkReport, ...]
    address: str | None
    version: str | None
    site: str | None
    rack: str | None

    def rows(self) -> Iterator[Row]:
        """Return a row of an edge list for each link."""
        for link in self.links:
            ends = (self.observer, link.node) if link.dialled else (link.node, self.observer)
            yield {
                "ts": self.ts,
                "mesh": self.mesh,
                "observer": self.observer,
                "src": ends[0],
                "dst": ends[1],
                "state": self.state,
                "since": _time(link.since),
                "rtt_ms": link.rtt_ms,
                "messages": link.messages,
                "bytes": link.size,
                "address": self.address,
                "version": self.version,
                "site": self.site,
                "rack": self.rack,
            }


class Report:
    """Answers to ``//pubsubd/peers`` and ``//pubsubd/edges``.

    Attributes:
        dialling: address -> attempts made in vain, and why the last one failed; the shell's.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.dialling: dict[str, tuple[int, str]] = {}
        clock, requests = mesh.state.now, mesh.broker.requests
        rest = self._is_small, clock
        peers = _Pages(self._find_peers, lambda _: 1, self._peer_rows, self._show_peers, *rest)
        edges = _Pages(self._find_ends, lambda end: len(end.links), _edge_rows, _show_edges, *rest)
        requests[b"//pubsubd/peers"] = lambda _peer, data: peers.get(_read_offset(data))
        requests[b"//pubsubd/edges"] = lambda _peer, data: edges.get(_read_offset(data))

    def _is_small(self) -> bool:
        table = self.mesh.table
        return len(table.adverts) + table.links + len(self.mesh.down) < _FEW

    # Peers

    def describe(self) -> Row:
        """Return the answer to ``//pubsubd/peers`` on one page; pubsubd-mesh(7) explains it."""
        page = [(one, row) for one in finish(self._find_peers()) for row in self._peer_rows(one)]
        answer: Row = json.loads(self._show_peers(page, None))
        return answer

    def _find_peers(self) -> Steps[list[Link | Advert]]:
        yield from ()
        adverts = self.mesh.table.adverts
        return [*self.mesh.links.values(), *[adverts[node] for node in sorted(adverts)]]

    def _peer_rows(self, one: Link | Advert) -> Iterator[str]:
        yield json.dumps(self._link(one) if isinstance(one, Link) else self._daemon(one))

    def _link(self, link: Link) -> Row:
        remote = self.mesh.remotes.get(link.node)
        interests = remote.substrings if remote is not None else set()
        return {
            "node": link.node,
            "peer": link.address,
            "dialled": link.dialled,
            "since": round(link.since, 3),
            "rtt_ms": link.rtt_ms,
            "messages_in": link.messages_in,
            "messages_out": link.messages_out,
            "bytes_in": link.bytes_in,
            "bytes_out": link.bytes_out,
            "backlog_bytes": link.peer.outbox.size,
            "dropped": link.dropped,
            "interests": [one.decode() for one in nsmallest(_SHOWN, interests)],
            "interest_count": len(interests),
        }

    def _daemon(self, advert: Advert) -> Row:
        node, mesh = advert.node, self.mesh
        remote = mesh.remotes.get(node)
        count = len(remote.substrings) if remote is not None else 0
        return {
            "node": node,
            "host": advert.host,
            "port": advert.port,
            "version": advert.version or None,
            "site": advert.site or None,
            "rack": advert.rack or None,
            "hops": mesh.table.hops.get(node),
            "links": len(advert.links),
            "interests": len(mesh.broker.router.forwarded) if node == mesh.state.node else count,
        }

    def _show_peers(self, page: list[tuple[Link | Advert, str]], following: int | None) -> bytes:
        mesh = self.mesh
        counters = asdict(mesh.counters)
        counters["dropped"] += sum(link.dropped for link in mesh.links.values())
        counters["refused"] = dict(mesh.counters.refused)
        head = json.dumps(
            {
                "node": mesh.state.node,
                "mesh": mesh.state.config.mesh,
                "host": mesh.state.config.host,
                "port": mesh.state.config.port,
                "life": mesh.state.incarnation,
                "flooding": mesh.forwarding.flooding,
                "plain": [
                    {"connection": number, "peer": peer.label}
                    for number, peer in mesh.legacy.peers.items()
                ],
                "dialling": [
                    {"address": address, "attempts": attempts, "error": error}
                    for address, (attempts, error) in self.dialling.items()
                ],
                "counters": counters,
                "next": following,
            }
        )
        links = ", ".join(row for one, row in page if isinstance(one, Link))
        daemons = ", ".join(row for one, row in page if not isinstance(one, Link))
        return f'{head[:-1]}, "links": [{links}], "daemons": [{daemons}]}}'.encode()

    # Edge lists

    def edges(self) -> list[Row]:
        """Return one row for each link and each end that reports it; see pubsubd-mesh(7).

        The links of this daemon's own that have ended follow, with the state ``down``.
        """
        return [row for end in finish(self._find_ends()) for row in end.rows()]

    def listing(self) -> Steps[bytes]:
        """Return :meth:`edges` as JSON lines, in steps."""
        lines: list[bytes] = []
        for end in (yield from self._find_ends()):
            for row in end.rows():
                lines.append(format_row(row))
                if len(lines) % _STEP == 0:
                    yield
        return b"".join(lines)

    def _find_ends(self) -> Steps[list[_End]]:
        mesh = self.mesh
        ts, name, me = _time(mesh.state.wall()), mesh.state.config.mesh, mesh.state.node
        found: list[_End] = []
        for number, node in enumerate(sorted(mesh.table.adverts)):
            advert = mesh.table.adverts.get(node)
            if node == me:
                links = tuple(link.report() for link in mesh.links.values())
            elif advert is None or node not in mesh.table.hops:
                continue
            else:
                links = advert.links
            found.append(_End(ts, name, node, "up", links, *_about(advert)))
            if number % _STEP == 0:
                yield
        down = tuple(map(_report, mesh.down))
        found.append(_End(ts, name, me, "down", down, *_about(mesh.table.adverts.get(me))))
        return found


def _read_offset(data: bytes) -> int:
    if len(data) > 9 or (data and not data.isdigit()):
        raise ProtocolError("bad-request", "the data is not a number of rows to skip")
    return int(data or b"0")


def _edge_rows(end: _End) -> Iterator[str]:
    return map(json.dumps, end.rows())


def _show_edges(page: list[tuple[_End, str]], following: int | None) -> bytes:
    rows = ", ".join(row for _, row in page)
    return f'{{"edges": [{rows}], "next": {json.dumps(following)}}}'.encode()


def _about(advert: Advert | None) -> tuple[str | None, str | None, str | None, str | None]:
    """Return address, version, site and rack of a daemon, as far as it tells them."""
    if advert is None:
        return None, None, None, None
    address = show_address(advert.host, advert.port)
    return address, advert.version or None, advert.site or None, advert.rack or None


def _report(down: Down) -> LinkReport:
    return LinkReport(down.node, down.dialled, int(down.at), None, down.messages, down.size)


def _time(seconds: float) -> str:
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # another daemon may report any number
        at = datetime.fromtimestamp(0, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
