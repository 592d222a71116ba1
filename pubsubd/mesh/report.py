"""What a daemon can tell of the mesh: its own links, and all that it knows of the others'."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pubsubd.errors import ProtocolError
from pubsubd.mesh.adverts import LinkReport
from pubsubd.mesh.core import Down, Mesh
from pubsubd.peer import Peer

_SHOWN = 10  # interests of one link
_PAGE = 512 * 1024  # bytes of one answer with links


class Report:
    """Answers to ``//pubsubd/peers`` and ``//pubsubd/edges``.

    Attributes:
        dialling: address -> attempts made in vain, and why the last one failed; the shell's.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.dialling: dict[str, tuple[int, str]] = {}
        mesh.broker.requests[b"//pubsubd/peers"] = self._answer_peers
        mesh.broker.requests[b"//pubsubd/edges"] = self._answer_edges

    def _answer_peers(self, _peer: Peer, _data: bytes) -> bytes:
        return json.dumps(self.describe()).encode()

    def _answer_edges(self, _peer: Peer, data: bytes) -> bytes:
        if len(data) > 9 or (data and not data.isdigit()):
            raise ProtocolError("bad-request", "the data is not a number of rows to skip")
        rows = self.edges()
        first = at = int(data or b"0")
        size = 0
        while at < len(rows) and size < _PAGE:
            size += len(json.dumps(rows[at])) + 2
            at += 1
        following = at if at < len(rows) else None
        return json.dumps({"edges": rows[first:at], "next": following}).encode()

    def describe(self) -> dict[str, Any]:
        """Return the answer to ``//pubsubd/peers``; pubsubd-mesh(7) says what is what."""
        mesh = self.mesh
        hops = mesh.table.hops
        links = []
        for link in mesh.links.values():
            interests = self._interests(link.node)
            links.append(
                {
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
                    "interests": [one.decode() for one in interests[:_SHOWN]],
                    "interest_count": len(interests),
                }
            )
        daemons = [
            {
                "node": advert.node,
                "host": advert.host,
                "port": advert.port,
                "hops": hops.get(advert.node),
                "links": len(advert.links),
                "interests": len(self._interests(advert.node)),
            }
            for advert in sorted(mesh.table.adverts.values(), key=lambda one: one.node)
        ]
        counters = asdict(mesh.counters)
        counters["dropped"] += sum(link.dropped for link in mesh.links.values())
        counters["refused"] = dict(mesh.counters.refused)
        return {
            "node": mesh.state.node,
            "mesh": mesh.state.config.mesh,
            "host": mesh.state.config.host,
            "port": mesh.state.config.port,
            "life": mesh.state.life,
            "flooding": mesh.forwarding.flooding,
            "links": links,
            "plain": [
                {"connection": number, "peer": peer.label}
                for number, peer in mesh.plain.peers.items()
            ],
            "dialling": [
                {"address": address, "attempts": attempts, "error": error}
                for address, (attempts, error) in self.dialling.items()
            ],
            "daemons": daemons,
            "counters": counters,
        }

    def _interests(self, node: str) -> list[bytes]:
        """Return what a daemon is sent, in order."""
        if node == self.mesh.state.node:
            return sorted(self.mesh.broker.router.forwarded)
        remote = self.mesh.remotes.get(node)
        return sorted(remote.substrings) if remote is not None else []

    def edges(self) -> list[dict[str, Any]]:
        """Return one row for each link, as each of its ends tells of it; see design of edge lists.

        The links of this daemon's own that have ended follow, with the state ``down``.
        """
        mesh = self.mesh
        now, name = _time(mesh.state.wall()), mesh.state.config.mesh
        rows = []
        for advert in sorted(mesh.table.adverts.values(), key=lambda one: one.node):
            own = advert.node == mesh.state.node
            if not own and advert.node not in mesh.table.hops:
                continue
            links = advert.links
            if own:
                links = tuple(link.report() for link in mesh.links.values())
            rows += [_row(now, name, advert.node, link, "up") for link in links]
        rows += [
            _row(now, mesh.state.config.mesh, mesh.state.node, _report(down), "down")
            for down in mesh.down
        ]
        return rows


def _report(down: Down) -> LinkReport:
    return LinkReport(down.node, down.dialled, int(down.at), None, down.messages, down.size)


def _row(now: str, mesh: str, observer: str, link: LinkReport, state: str) -> dict[str, Any]:
    ends = (observer, link.node) if link.dialled else (link.node, observer)
    return {
        "ts": now,
        "mesh": mesh,
        "observer": observer,
        "src": ends[0],
        "dst": ends[1],
        "state": state,
        "since": _time(link.since),
        "rtt_ms": link.rtt_ms,
        "messages": link.messages,
        "bytes": link.size,
    }


def _time(seconds: float) -> str:
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # what another daemon tells may be any number
        at = datetime.fromtimestamp(0, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
