"""Reports on the mesh: a daemon's own links, all that it knows of others, and what is weak.

They grow with the mesh, so they are made in steps, and answered in :mod:`pubsubd.mesh.pages`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any, NamedTuple

from pubsubd.broker.turn import Steps, finish
from pubsubd.mesh.adverts import Advert, HubReport, LinkReport
from pubsubd.mesh.core import Down, Mesh
from pubsubd.mesh.edges import LATER, format_row
from pubsubd.mesh.letters import LETTERS
from pubsubd.mesh.link import Link
from pubsubd.mesh.pages import Pages, read_offset
from pubsubd.mesh.weak_points import Weak, WeakPoints
from pubsubd.protocol.wire import HUB, show_address

_SHOWN = 10  # interests of one link

_FEW = 256  # daemons and links; so many rows take about 2 ms
_STEP = 64  # rows between two looks at the clock

Row = dict[str, Any]


class _End(NamedTuple):
    """One daemon's links, as it has reported them."""

    ts: str
    mesh: str
    observer: str
    state: str
    links: tuple[LinkReport, ...]
    about: Row

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
                **self.about,
            }


class _Finding(NamedTuple):
    """A row of the answer to ``//pubsubd/weak``, and the list that it is in."""

    listed: str
    nodes: tuple[str, ...]
    weak: Weak


_FINDINGS = ("articulation_daemons", "bridges", "add", "unreachable")


class Report:
    """Answers to ``//pubsubd/peers``, ``weak``, ``edges`` and ``advertised``.

    Attributes:
        weak: finds the single points of failure.
        dialling: address -> attempts made in vain, and why the last one failed; the shell's.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.dialling: dict[str, tuple[int, str]] = {}
        clock, requests = mesh.state.now, mesh.broker.requests
        self.weak = WeakPoints(mesh.table, clock)
        rest = self._is_small, clock
        peers = Pages(self._find_peers, lambda _: 1, self._peer_rows, self._show_peers, *rest)
        weak = Pages(self._find_weak, lambda _: 1, self._weak_rows, self._show_weak, *rest)
        edges = Pages(self._find_ends, lambda end: len(end.links), _edge_rows, _show_edges, *rest)
        requests[b"//pubsubd/peers"] = lambda _peer, data: peers.get(read_offset(data))
        requests[b"//pubsubd/weak"] = lambda _peer, data: weak.get(read_offset(data))
        requests[b"//pubsubd/edges"] = lambda _peer, data: edges.get(read_offset(data))
        requests[b"//pubsubd/advertised"] = lambda _peer, _data: (
            b'{"needed": %d, "sent": %d}' % mesh.advertising.progress
        )

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
        yield json.dumps(self._link(one) if isinstance(one, Link) else self.daemon(one))

    def _link(self, link: Link) -> Row:
        remote = self.mesh.remotes.get(link.node)
        substrings = remote.substrings if remote is not None else set()
        interests = [one for one in substrings if not one.startswith(HUB)]  # not of its clients
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

    def daemon(self, advert: Advert) -> Row:
        """Return the row of a daemon."""
        node, mesh = advert.node, self.mesh
        remote = mesh.remotes.get(node)
        count = len(remote.substrings) if remote is not None else 0
        if advert.hub is not None:
            count = max(0, count - LETTERS)
        hub = self._hub(advert)
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
            "actors": mesh.directory.count(node),
            "hub_connections": None if hub is None else hub.connections,
        }

    def _hub(self, advert: Advert) -> HubReport | None:
        own = advert.node == self.mesh.state.node
        return self.mesh.directory.report() if own else advert.hub

    def _show_peers(self, page: list[tuple[Link | Advert, str]], following: int | None) -> bytes:
        mesh = self.mesh
        counters = asdict(mesh.counters)
        counters["dropped"] += sum(link.dropped for link in mesh.links.values())
        counters["refused"] = dict(mesh.counters.refused)
        counters["letters_sent"] = mesh.letters.sent
        counters["letters_received"] = mesh.letters.received
        counters["letters_ignored"] = sum(mesh.letters.ignored.values())
        counters["letters_repeated"] = mesh.streams.outgoing.repeated
        counters["letters_lost"] = mesh.streams.outgoing.lost
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

    # Single points of failure

    def _find_weak(self) -> Steps[list[_Finding]]:
        weak = yield from self.weak.find()
        found = [_Finding("articulation_daemons", (node,), weak) for node in weak.articulation]
        yield
        found += [_Finding("bridges", bridge, weak) for bridge in weak.bridges]
        yield
        found += [_Finding("add", link, weak) for link in weak.added]
        yield
        gone = sorted(self.mesh.table.adverts.keys() - weak.reached)
        return found + [_Finding("unreachable", (node,), weak) for node in gone]

    def _weak_rows(self, one: _Finding) -> Iterator[str]:
        node, weak = one.nodes[0], one.weak
        if one.listed == "articulation_daemons":
            row: Row = {"node": node, "cut_off": weak.articulation[node]}
            row["daemons"] = weak.behind(node)
        elif one.listed == "bridges":
            bridge = node, one.nodes[1]
            row = {"src": node, "dst": bridge[1], "cut_off": weak.bridges[bridge]}
            row["daemons"] = weak.beyond(bridge)
        elif one.listed == "add":
            row = {"node": node, "to": one.nodes[1], "peer": self._address(one.nodes[1])}
        else:
            since = self.mesh.state.unreachable.get(node)
            row = {"node": node, "peer": self._address(node), "seconds": None}
            if since is not None:
                row["seconds"] = round(self.mesh.state.now() - since, 3)
        yield json.dumps(row)

    def _address(self, node: str) -> str | None:
        advert = self.mesh.table.adverts.get(node)
        return None if advert is None else show_address(advert.host, advert.port)

    def _show_weak(self, page: list[tuple[_Finding, str]], following: int | None) -> bytes:
        mesh, weak = self.mesh, self.weak.latest
        assert weak is not None
        head = {
            "node": mesh.state.node,
            "mesh": mesh.state.config.mesh,
            "daemons": len(weak.reached),
            "links": weak.links,
            "counts": {
                "articulation_daemons": len(weak.articulation),
                "bridges": len(weak.bridges),
                "add": len(weak.added),
                "unreachable": len(mesh.table.adverts.keys() - weak.reached),
            },
            "next": following,
        }
        lists = [
            f'"{name}": [{", ".join(row for one, row in page if one.listed == name)}]'
            for name in _FINDINGS
        ]
        return f"{json.dumps(head)[:-1]}, {', '.join(lists)}}}".encode()

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
            found.append(_End(ts, name, node, "up", links, self._about(advert)))
            if number % _STEP == 0:
                yield
        down = tuple(map(_report, mesh.down))
        about = self._about(mesh.table.adverts.get(me))
        found.append(_End(ts, name, me, "down", down, about))
        return found

    def _about(self, advert: Advert | None) -> Row:
        """Return the columns of an observer, as far as it tells them."""
        if advert is None:
            return dict.fromkeys(LATER)
        hub = self._hub(advert)
        return {
            "address": show_address(advert.host, advert.port),
            "version": advert.version or None,
            "site": advert.site or None,
            "rack": advert.rack or None,
            "actors": self.mesh.directory.count(advert.node),
            "hub_connections": None if hub is None else hub.connections,
        }


def _edge_rows(end: _End) -> Iterator[str]:
    return map(json.dumps, end.rows())


def _show_edges(page: list[tuple[_End, str]], following: int | None) -> bytes:
    rows = ", ".join(row for _, row in page)
    return f'{{"edges": [{rows}], "next": {json.dumps(following)}}}'.encode()


def _report(down: Down) -> LinkReport:
    return LinkReport(down.node, down.dialled, int(down.at), None, down.messages, down.size)


def _time(seconds: float) -> str:
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # another daemon may report any number
        at = datetime.fromtimestamp(0, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
