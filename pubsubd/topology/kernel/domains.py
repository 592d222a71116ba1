"""Failure domains: what the mesh loses with all daemons of a site, a rack or the like at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csgraph

from pubsubd.connectivity.pairing import Pair
from pubsubd.topology.kernel.cuts import blocks, symmetric
from pubsubd.topology.kernel.graph import Graph, Ints, build
from pubsubd.topology.kernel.redundancy import join_components

WORK = 200_000_000
"""Domains times daemons and ends of links that are looked at: some 4 seconds."""

ADVISED = 10
"""Domains, the worst ones, of which it is found which links would spare their loss."""


@dataclass(frozen=True)
class Domain:
    """What the loss of all daemons of a domain does to the others.

    Attributes:
        name: of the domain.
        daemons: how many are in it.
        cut_off: of the other daemons, those that are cut off from the largest piece that is left
            of their component.
        pieces: how many pieces are left of the components that it had daemons in.
        links: links between daemons outside of it with which it cuts off nothing; of the worst
            domains only.
    """

    name: str
    daemons: int
    cut_off: int
    pieces: int
    links: tuple[Pair, ...] = ()


def work(g: Graph, domains: int) -> int:
    """Return what :func:`find_domains` looks at, see :data:`WORK`."""
    return domains * (g.n + 2 * g.m)


def find_domains(g: Graph, labels: Ints, names: Sequence[str]) -> list[Domain]:
    """Return the domains, those that cut off the most daemons first.

    Args:
        g: the graph.
        labels: the domain of each daemon, a place in ``names``; -1 for none.
        names: of the domains.
    """
    before = csgraph.connected_components(g.adjacency, directed=False)[1] if g.n else labels
    found = [_lose(g, labels, before, number, name) for number, name in enumerate(names)]
    found.sort(key=lambda one: (-one.cut_off, -one.daemons, one.name))
    number_of = {name: number for number, name in enumerate(names)}
    return [
        _with_links(g, labels, before, number_of[one.name], one) if i < ADVISED else one
        for i, one in enumerate(found)
    ]


def _lose(g: Graph, labels: Ints, before: Ints, number: int, name: str) -> Domain:
    kept = labels != number
    left = kept[g.tails] & kept[g.heads]
    rest = symmetric(g.tails[left], g.heads[left], g.n)
    pieces = csgraph.connected_components(rest, directed=False)[1]
    touched = np.zeros(g.n, np.bool_)
    touched[before[~kept]] = True
    mine = kept & touched[before]  # others of the components that lose daemons
    _, first, sizes = np.unique(pieces[mine], return_index=True, return_counts=True)
    largest = np.zeros(g.n, np.int64)
    np.maximum.at(largest, before[mine][first], sizes)
    cut_off = int(mine.sum() - largest.sum())
    return Domain(name, int((~kept).sum()), cut_off, len(sizes))


def _with_links(g: Graph, labels: Ints, before: Ints, number: int, domain: Domain) -> Domain:
    """Return the domain with the links that join what its loss parts."""
    if not domain.cut_off:
        return domain
    kept = labels != number
    inside = kept[g.tails] & kept[g.heads]
    links: list[Pair] = []
    for component in np.unique(before[~kept]):
        ids = np.flatnonzero(kept & (before == component)).astype(np.int32)
        place = np.full(g.n, -1, np.int32)
        place[ids] = np.arange(len(ids), dtype=np.int32)
        some = inside & (place[g.tails] >= 0)
        part = build(len(ids), place[g.tails[some]], place[g.heads[some]])
        joins = join_components(blocks(part), part.degrees)
        links += sorted(_ascending(int(ids[one]), int(ids[other])) for one, other in joins)
    return Domain(domain.name, domain.daemons, domain.cut_off, domain.pieces, tuple(links))


def _ascending(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)
