"""Failure domains, and round trips along the ways of messages, beside plain walks and networkx."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from pubsubd.topology.kernel import trips
from pubsubd.topology.kernel.domains import find_domains
from pubsubd.topology.kernel.graph import Graph, build
from pubsubd.topology.kernel.structure import components
from pubsubd.topology.kernel.trips import find_trips
from pubsubd.topology.latest import is_timed, lose_domains, place, time_links
from tests.topologies import graph, path, ring
from tests.unit.topology.test_structure import oracle, random_graphs

GRAPHS = [g for g in random_graphs(60) if g.m]


def lose(known: nx.Graph, lost: set[int]) -> tuple[int, int]:
    """Daemons that are cut off, and pieces that are left of the components that lose some."""
    cut_off = pieces = 0
    for component in nx.connected_components(known):
        if lost & component:
            left = [len(one) for one in nx.connected_components(known.subgraph(component - lost))]
            pieces += len(left)
            cut_off += sum(left) - max(left, default=0)
    return cut_off, pieces


def test_what_the_loss_of_a_domain_cuts_off_is_what_networkx_finds() -> None:
    rng = np.random.default_rng(7)
    for g in GRAPHS:
        labels = rng.integers(-1, 4, g.n).astype(np.int32)
        found = find_domains(g, labels, "abcd")
        assert [one.cut_off for one in found] == sorted(one.cut_off for one in found)[::-1]
        for one in found:
            lost = set(np.flatnonzero(labels == "abcd".index(one.name)).tolist())
            known = oracle(g)
            assert one.daemons == len(lost)
            assert (one.cut_off, one.pieces) == lose(known, lost)
            known.add_edges_from(one.links)
            assert lose(known, lost)[0] == 0
            assert not lost & {end for link in one.links for end in link}


def test_a_domain_of_one_is_as_an_articulation_daemon() -> None:
    (middle,) = find_domains(graph(path(5)), np.array([-1, -1, 0, -1, -1], np.int32), ["m"])
    assert (middle.daemons, middle.cut_off, middle.pieces, len(middle.links)) == (1, 2, 2, 1)


def walk(near: dict[int, list[int]], origin: int) -> dict[int, list[int]]:
    """The way of a message to each daemon, as daemons find it."""
    ways, queue = {origin: [origin]}, deque([origin])
    while queue:
        node = queue.popleft()
        for other in near[node]:
            if other not in ways:
                ways[other] = [*ways[node], other]
                queue.append(other)
    return ways


def test_round_trips_are_those_of_the_ways_that_messages_take() -> None:
    rng = np.random.default_rng(8)
    for g in GRAPHS:
        taken = rng.integers(1, 50, g.m).astype(np.float64)
        labels = components(g).labels
        found = find_trips(g, labels, taken, seed=0)
        known = oracle(g)
        for i in range(g.m):
            known.edges[int(g.tails[i]), int(g.heads[i])]["trip"] = taken[i]
        near = {node: sorted(known[node]) for node in known}
        inside = [node for node in known if labels[node] == 0]
        if len(inside) < 2:
            continue
        assert found is not None
        ways = {
            (one, other): sum(known.edges[pair]["trip"] for pair in pairwise(way))
            for one in inside
            for other, way in walk(near, one).items()
            if one != other
        }
        fastest = dict(nx.all_pairs_dijkstra_path_length(known, weight="trip"))
        assert found.mean == pytest.approx(sum(ways.values()) / len(ways))
        assert found.fastest == pytest.approx(
            sum(fastest[one][other] for one, other in ways) / len(ways)
        )
        assert found.slowest[0].trip == max(ways.values())
        for one in found.slowest:
            assert one.trip == ways[one.one, one.other]
            assert one.fastest == fastest[one.one][one.other]
            assert one.hops == len(walk(near, one.one)[one.other]) - 1
        assert [taken[link] for link in found.worst] == sorted(
            taken[labels[g.tails] == 0].tolist(), reverse=True
        )[:10]


def test_a_new_link_saves_what_the_way_around_takes_less() -> None:
    """A ring of six: from a to d the fewest hops lead over a slow link."""
    g = graph([("a", "b"), ("b", "c"), ("a", "x"), ("x", "y"), ("y", "c")])
    trips = np.array(
        [1.0 if set(one) & {3, 4} else 100.0 for one in zip(g.tails, g.heads, strict=True)]
    )
    found = find_trips(g, components(g).labels, trips, seed=0)
    assert found is not None
    first = found.new[0]
    assert {g.ids[first.one].as_py(), g.ids[first.other].as_py()} == {"a", "c"}
    assert (first.trip, first.saves) == (3.0, 197.0)
    # Of 20 ordered pairs, a-c is 197 ms faster; but x-c and a-y take the new link then, for 4 ms.
    assert first.mean_saves == pytest.approx((2 * 197 - 4 * 2) / 20)


def test_links_without_a_round_trip_are_taken_as_the_median_or_there_is_nothing_to_tell() -> None:
    g: Graph = graph(ring(4))
    labels = components(g).labels
    assert find_trips(g, labels, np.full(4, np.nan), seed=0) is None
    found = find_trips(g, labels, np.array([2.0, np.nan, 2.0, 2.0]), seed=0)
    assert found is not None
    assert (found.measured, found.mean, found.new) == (3, pytest.approx(8 / 3), [])


def test_of_a_large_mesh_some_origins_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trips, "PAIRS", 30_000)
    n = 300
    one = np.arange(1, n)
    g = build(n, one - 1, one)
    found = find_trips(g, components(g).labels, np.ones(n - 1), seed=0)
    assert found is not None
    assert found.origins == 100
    assert found.mean == pytest.approx(n / 3, rel=0.1)


# What daemons and a node list say


def test_a_node_list_goes_before_what_daemons_say_and_racks_are_those_of_their_site() -> None:
    daemons = pa.Table.from_pylist(
        [
            {"id": "a", "site": "ber", "rack": "r1"},
            {"id": "b", "site": "ham", "rack": "r1"},
            {"id": "c", "site": None, "rack": "r1"},
            {"id": "d", "site": None, "rack": None},
        ]
    )
    nodes = pa.Table.from_pylist(
        [{"id": "b", "domains": "site=ber as=64500"}, {"id": "x", "domains": None}]
    )
    assert place(daemons, nodes) == {
        "site": {"a": "ber", "b": "ber"},
        "rack": {"a": "ber/r1", "b": "ber/r1", "c": "r1"},
        "as": {"b": "64500"},
    }


def test_domains_are_told_by_name_and_too_many_are_not_looked_at() -> None:
    g = graph(path(5))
    ids = g.ids.to_pylist()
    (kind,) = lose_domains(g, {"site": {ids[2]: "mid", ids[4]: "end", "elsewhere": "far"}})
    assert (kind.kind, kind.domains, kind.placed, kind.why) == ("site", 2, 2, None)
    assert [(row["name"], row["cut_off"]) for row in kind.rows] == [("mid", 2), ("end", 0)]
    assert {end for link in kind.rows[0]["links"] for end in link} < set(ids) - {ids[2]}
    n = 20_000
    large = build(n, np.arange(1, n), np.arange(n - 1))
    racks = {one: one for one in large.ids.to_pylist()}
    (kind,) = lose_domains(large, {"rack": racks})
    assert (kind.rows, kind.domains) == ([], n)
    assert kind.why == ("not computed for 20,000 domains of 20,000 daemons: it would take long")


def test_round_trips_are_told_by_name() -> None:
    g = graph([("a", "b"), ("b", "c"), ("a", "x"), ("x", "y"), ("y", "c")])
    ends = [(g.ids[a].as_py(), g.ids[b].as_py()) for a, b in zip(g.tails, g.heads, strict=True)]
    links = pa.Table.from_pylist(
        [
            {"src": a, "dst": b, "rtt_p50": 100.0 if "b" in (a, b) else 1.0, "rtt_p95": 200.0}
            for a, b in ends
        ]
    )
    assert is_timed(links)
    found = time_links(g, links, seed=0)
    assert found is not None
    assert (found.links, found.measured, found.daemons, found.origins) == (5, 5, 5, 5)
    assert found.worst[0] == {"src": "a", "dst": "b", "median": 100.0, "p95": 200.0}
    assert {found.slowest[0]["src"], found.slowest[0]["dst"]} == {"a", "c"}
    assert (found.slowest[0]["trip"], found.slowest[0]["fastest"]) == (200.0, 3.0)
    assert {found.new[0]["src"], found.new[0]["dst"]} == {"a", "c"}
    n = 50_001
    large = build(n, np.arange(1, n), np.arange(n - 1))
    told = time_links(large, links, seed=0)
    assert told is not None
    assert told.why == "not computed for more than 50,000 daemons"
