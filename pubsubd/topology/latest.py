"""What is found out of the latest window of a mesh here, beside the kernel's facts of all windows.

Failure domains and round trips need what daemons tell of themselves and of their links besides the
graph. So they are of one graph a mesh, of a size that this process can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pubsubd.topology.kernel.domains import WORK, find_domains, work
from pubsubd.topology.kernel.graph import Graph
from pubsubd.topology.kernel.structure import components
from pubsubd.topology.kernel.trips import MOST, find_trips
from pubsubd.topology.report.data import DomainKind, RoundTrips

KINDS = ("site", "rack")
"""Kinds of domains that daemons tell themselves; a node list may have any."""

Placed = dict[str, dict[str, str]]
"""Kind of domain -> daemon -> its domain of this kind."""


def place(daemons: pa.Table, nodes: pa.Table | None) -> Placed:
    """Return the domains of daemons. What a node list says goes before what they say themselves.

    A rack is a rack of its site: two racks of one name at different sites are two.

    Args:
        daemons: ``id`` and the columns :data:`KINDS`.
        nodes: ``id``, ``domains``: words like ``site=ber``, with spaces between.
    """
    placed: Placed = {kind: {} for kind in KINDS}
    for row in daemons.select(["id", *KINDS]).to_pylist():
        for kind in KINDS:
            if row[kind]:
                placed[kind][row["id"]] = row[kind]
    for row in [] if nodes is None else nodes.select(["id", "domains"]).to_pylist():
        for word in (row["domains"] or "").split():
            kind, _, name = word.partition("=")
            placed.setdefault(kind, {})[row["id"]] = name
    sites = placed["site"]
    placed["rack"] = {
        daemon: f"{sites[daemon]}/{rack}" if daemon in sites else rack
        for daemon, rack in placed["rack"].items()
    }
    return {kind: found for kind, found in placed.items() if found}


def lose_domains(graph: Graph, placed: Placed) -> list[DomainKind]:
    """Return for each kind of domain what the loss of each one does to the other daemons."""
    ids = graph.ids.to_pylist()
    return [_lose_kind(graph, ids, kind, domains) for kind, domains in placed.items()]


def _lose_kind(graph: Graph, ids: list[str], kind: str, domains: Mapping[str, str]) -> DomainKind:
    names = sorted({domains[one] for one in ids if one in domains})
    number = {name: i for i, name in enumerate(names)}
    labels = np.array([number[domains[one]] if one in domains else -1 for one in ids], np.int32)
    placed = int((labels >= 0).sum())
    if work(graph, len(names)) > WORK:
        why = f"not computed for {len(names):,} domains of {graph.n:,} daemons: it would take long"
        return DomainKind(kind, len(names), placed, [], why)
    rows = [
        {
            "name": one.name,
            "daemons": one.daemons,
            "cut_off": one.cut_off,
            "pieces": one.pieces,
            "links": [[ids[a], ids[b]] for a, b in one.links],
        }
        for one in find_domains(graph, labels, names)
    ]
    return DomainKind(kind, len(names), placed, rows)


def is_timed(links: pa.Table) -> bool:
    """Return whether there is a link whose round trip was measured."""
    return bool(pc.any(pc.is_valid(links["rtt_p50"])).as_py())


def time_links(graph: Graph, links: pa.Table, seed: int) -> RoundTrips | None:
    """Return the round trips; None if nothing was measured.

    Args:
        graph: the mesh.
        links: ``src``, ``dst``, ``rtt_p50``, ``rtt_p95``: in milliseconds.
        seed: of what is chosen at random.
    """
    if graph.n > MOST:
        return RoundTrips(why=f"not computed for more than {MOST:,} daemons")
    ids = graph.ids.to_pylist()
    known = {
        (row["src"], row["dst"]): (row["rtt_p50"], row["rtt_p95"])
        for row in links.filter(pc.is_valid(links["rtt_p50"]))
        .select(["src", "dst", "rtt_p50", "rtt_p95"])
        .to_pylist()
    }
    ends = [(ids[a], ids[b]) for a, b in _pairs(graph)]
    trips = np.array([known.get(pair, (np.nan, None))[0] for pair in ends], np.float64)
    labels = components(graph).labels
    found = find_trips(graph, labels, trips, seed)
    if found is None:
        return None
    return RoundTrips(
        links=int((labels[graph.tails] == 0).sum()),
        measured=found.measured,
        daemons=int((labels == 0).sum()),
        origins=found.origins,
        mean=found.mean,
        fastest=found.fastest,
        worst=[
            dict(
                zip(
                    ("src", "dst", "median", "p95"),
                    (*ends[link], *known[ends[link]]),
                    strict=True,
                )
            )
            for link in found.worst
        ],
        slowest=[
            {
                "src": ids[one.one],
                "dst": ids[one.other],
                "hops": one.hops,
                "trip": one.trip,
                "fastest": one.fastest,
            }
            for one in found.slowest
        ],
        new=[
            {
                "src": ids[one.one],
                "dst": ids[one.other],
                "trip": one.trip,
                "saves": one.saves,
                "mean_saves": one.mean_saves,
            }
            for one in found.new
        ],
    )


def _pairs(graph: Graph) -> Iterable[tuple[int, int]]:
    return zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)
