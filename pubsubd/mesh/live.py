"""The mesh as observers of ``//pubsubd/live`` see it: daemons and links, as they change.

What this daemon knows of the links of others are their adverts. So the rates of a link between two
others are averages of the time between the last two adverts of its end with the lesser id, some
10 seconds; those of its own links are those of connections.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

from pubsubd.broker.live.observers import Key
from pubsubd.broker.live.reading import check_keys, need
from pubsubd.broker.live.sections import PEERS
from pubsubd.broker.live.states import Row, State, Table
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.mesh.adverts import Advert, LinkReport
from pubsubd.mesh.report import Report
from pubsubd.mesh.weak_points import Weak

MAX_DAEMONS = 2_000
"""Daemons in one state."""

MAX_LINKS = 4_000
"""Links in one state."""

_STEP = 64  # daemons between two looks at the clock
_LEAST = 1.0  # seconds that a rate is of


class _Carried(NamedTuple):
    """What a link had carried when its end last reported, and its rates since the time before.

    The rates are None if that was the first time.
    """

    at: float
    messages: int
    size: int
    messages_rate: float | None = None
    bytes_rate: float | None = None

    def next(self, at: float, report: LinkReport) -> _Carried:
        """Return this of a further report."""
        seconds = max(at - self.at, _LEAST)
        messages, size = report.messages - self.messages, report.size - self.size
        if messages < 0 or size < 0:  # another link between the same two
            return _Carried(at, report.messages, report.size)
        rates = round(messages / seconds, 1), round(size / seconds, 1)
        return _Carried(at, report.messages, report.size, *rates)


class MeshRows:
    """Daemons and links."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._mesh = report.mesh
        self._daemons: dict[str, Row] = {}
        self._links: dict[str, Row] = {}
        self._adverts: dict[str, Advert] = {}  # that ``_carried`` is of
        self._carried: dict[str, dict[str, _Carried]] = {}  # lesser end -> greater end -> that

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return what is wanted: there is no choice."""
        check_keys(given, "mesh")
        return None

    def scope(self, asker: Peer) -> Hashable:
        """Return what somebody may see: all of it, who may see the peers."""
        need(asker, PEERS)
        return None

    def watch(self, watched: bool) -> None:
        """Forget what has been shown when nobody looks any more."""
        if not watched:
            self._daemons, self._links = {}, {}
            self._adverts, self._carried = {}, {}

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the mesh, in steps."""
        weak = yield from self._report.weak.find()
        table = self._mesh.table
        daemons: dict[str, Row] = {}
        links: dict[str, Row] = {}
        more_daemons = more_links = 0
        adverts = list(table.adverts.values())
        for done, advert in enumerate(adverts, 1):
            self._note(advert)
            node = advert.node
            if len(daemons) < MAX_DAEMONS:
                daemons[node] = _same(self._daemons, node, self._daemon(advert, weak))
            else:
                more_daemons += 1
            for report in self._reports(advert):
                if len(links) < MAX_LINKS:
                    key = f"{node} {report.node}"
                    links[key] = _same(self._links, key, self._link(node, report, weak))
                else:
                    more_links += 1
            if done % _STEP == 0:
                yield
        for gone in self._adverts.keys() - table.adverts.keys():
            del self._adverts[gone], self._carried[gone]
        self._daemons, self._links = daemons, links
        values = {
            "node": self._mesh.state.node,
            "more_daemons": more_daemons,
            "more_links": more_links,
        }
        parts = {"daemons": Table("node", daemons), "links": Table("link", links)}
        return dict.fromkeys(keys, Table(values=values, parts=parts))

    def _note(self, advert: Advert) -> None:
        """Take note of what an advert says that its links have carried."""
        node, now = advert.node, self._mesh.state.now()
        if self._adverts.get(node) is advert:
            return
        before = self._carried.get(node, {})
        carried = {}
        for report in advert.links:
            if node < report.node:
                last = before.get(report.node)
                carried[report.node] = (
                    _Carried(now, report.messages, report.size)
                    if last is None
                    else last.next(now, report)
                )
        self._adverts[node], self._carried[node] = advert, carried

    def _reports(self, advert: Advert) -> list[LinkReport]:
        """Return the links of a daemon that both ends report, by the end with the lesser id."""
        node = advert.node
        near = self._mesh.table.graph.get(node, ())
        reported = {one.node: one for one in advert.links if node < one.node}
        return [reported[other] for other in near if other in reported]

    def _daemon(self, advert: Advert, weak: Weak) -> dict[str, Any]:
        node = advert.node
        row = self._report.daemon(advert)
        row["articulation"] = node in weak.articulation if node in weak.reached else None
        return row

    def _link(self, node: str, report: LinkReport, weak: Weak) -> dict[str, Any]:
        mesh, other = self._mesh, report.node
        rtt_ms = report.rtt_ms
        carried = self._carried[node][other]
        rates: tuple[float | None, float | None] = carried.messages_rate, carried.bytes_rate
        if mesh.state.node in (node, other):
            own = mesh.links.get(other if node == mesh.state.node else node)
            if own is not None:
                rtt_ms = own.rtt_ms
                now = mesh.broker.traffic.rate(own.peer)
                rates = round(now[0] + now[1], 1), round(now[2] + now[3], 1)
        return {
            "link": f"{node} {other}",
            "a": node,
            "b": other,
            "rtt_ms": rtt_ms,
            "messages_rate": rates[0],
            "bytes_rate": rates[1],
            "bridge": (node, other) in weak.bridges if node in weak.reached else None,
        }


def _same(known: Mapping[str, Row], key: str, row: Row) -> Row:
    """Return the row that is known if it is equal: it is compared at no cost then."""
    last = known.get(key)
    return last if last is not None and last == row else row
