"""Single points of failure, and the links that remove them."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from pubsubd.topology.kernel.cuts import blocks, count_two_link_cuts
from pubsubd.topology.kernel.graph import Graph, build
from pubsubd.topology.kernel.redundancy import OWN_EFFECTS, Plan, advise
from tests.topologies import SMALL, Arcs, clique, path, read_arcs, real, ring, star
from tests.unit.topology.test_structure import graph, oracle, random_graphs

Links = list[tuple[int, int]]


def random_trees(count: int) -> list[Graph]:
    """Trees from bushy to long, some with a link more."""
    rng = np.random.default_rng(1976)
    made = []
    for i in range(count):
        n = int(rng.integers(2, 60))
        below = np.arange(1, n)
        above = (below * rng.random(n - 1) ** rng.integers(1, 6)).astype(np.int64)
        more = rng.integers(0, n, (2, i % 3))
        made.append(build(n, np.append(below, more[0]), np.append(above, more[1])))
    return made


GRAPHS = [
    *(graph(arcs) for arcs in SMALL.values()),
    *random_graphs(40),
    *random_trees(30),
]


def links(tails: np.ndarray, heads: np.ndarray) -> Links:
    return list(zip(tails.tolist(), heads.tolist(), strict=True))


def count_cut_off(known: nx.Graph, daemon: int) -> int:
    component = nx.node_connected_component(known, daemon)
    pieces = nx.connected_components(known.subgraph(component - {daemon}))
    return len(component) - 1 - max(map(len, pieces))


def count_failures(known: nx.Graph) -> tuple[int, int]:
    return len(list(nx.articulation_points(known))), len(list(nx.bridges(known)))


def join(g: Graph) -> nx.Graph:
    """The graph with the links that join its components."""
    known, advice = oracle(g), advise(g)
    known.add_edges_from(links(advice.join_tails, advice.join_heads))
    return known


# Cuts


def test_articulation_daemons_are_those_of_networkx_with_what_they_cut_off():
    for g in GRAPHS:
        known, found = oracle(g), blocks(g)
        assert found.articulation.tolist() == sorted(nx.articulation_points(known))
        assert found.cut_off.tolist() == [
            count_cut_off(known, daemon) for daemon in found.articulation.tolist()
        ]


def test_bridges_are_those_of_networkx_with_their_smaller_side():
    for g in GRAPHS:
        known, found = oracle(g), blocks(g)
        ends = links(g.tails[found.bridges], g.heads[found.bridges])
        assert ends == sorted(tuple(sorted(bridge)) for bridge in nx.bridges(known))
        for (tail, head), size in zip(ends, found.bridge_cut_off.tolist(), strict=True):
            known.remove_edge(tail, head)
            sides = [len(nx.node_connected_component(known, end)) for end in (tail, head)]
            known.add_edge(tail, head)
            assert size == min(sides)


def test_blocks_are_those_of_networkx_in_the_order_of_their_lowest_daemons():
    for g in GRAPHS:
        found = blocks(g)
        members = np.split(found.members, found.indptr[1:-1]) if found.count else []
        assert [one.tolist() for one in members] == sorted(
            map(sorted, nx.biconnected_components(oracle(g)))
        )


def test_pairs_of_links_that_cut_are_all_counted():
    for g in GRAPHS:
        if g.m > 30:
            continue
        known, found = oracle(g), blocks(g)
        sound = np.delete(np.arange(g.m), found.bridges).tolist()
        pieces = nx.number_connected_components(known) if g.n else 0
        count = 0
        for two in itertools.combinations(sound, 2):
            ends = links(g.tails[list(two)], g.heads[list(two)])
            known.remove_edges_from(ends)
            count += nx.number_connected_components(known) > pieces
            known.add_edges_from(ends)
        assert count_two_link_cuts(g, found, seed=0) == count


def test_any_two_links_of_a_ring_cut_it_whatever_the_seed():
    g = graph(ring(40))
    assert [count_two_link_cuts(g, blocks(g), seed) for seed in range(3)] == [40 * 39 // 2] * 3


# Advice


@pytest.mark.parametrize("kind", ["redundancy", "bridge"])
def test_the_advised_links_remove_what_they_are_advised_against(kind: str):
    for g in GRAPHS:
        if g.n < 3:
            continue
        known, plan = join(g), getattr(advise(g), kind)
        known.add_edges_from(links(plan.tails, plan.heads))
        left = count_failures(known)
        assert left[1] == 0
        assert kind == "bridge" or left == (0, 0)


def test_advised_links_are_new_and_different():
    for g in GRAPHS:
        advice = advise(g)
        joins = links(advice.join_tails, advice.join_heads)
        for plan in (advice.redundancy, advice.bridge):
            new = joins + links(plan.tails, plan.heads)
            old = links(g.tails, g.heads)
            assert all(tail < head for tail, head in new)
            assert len({*old, *new}) == len(old) + len(new)


def test_joins_make_one_component_of_all_and_are_one_fewer_than_these():
    for g in GRAPHS:
        if not g.n:
            continue
        advice, before = advise(g), nx.number_connected_components(oracle(g))
        assert len(advice.join_tails) == before - 1
        assert nx.is_connected(join(g))
        assert (advice.articulation, advice.bridges) == count_failures(join(g))


def test_no_plan_has_more_links_than_the_least_that_is_proven():
    for g in GRAPHS:
        advice = advise(g)
        assert advice.redundancy.count == advice.redundancy.least
        assert advice.bridge.count == advice.bridge.least


def test_no_fewer_links_would_do_on_small_graphs():
    rng = np.random.default_rng(5)
    tried = 0
    while tried < 40:
        n = int(rng.integers(3, 8))
        arcs = rng.integers(0, n, (2, int(rng.integers(n // 2, n + 2))))
        g = build(n, arcs[0], arcs[1])
        known, advice = join(g), advise(g)
        for kind, plan in enumerate((advice.redundancy, advice.bridge)):
            if not 1 <= plan.count <= 3:
                continue
            tried += 1
            for fewer in itertools.combinations(nx.non_edges(known), plan.count - 1):
                known.add_edges_from(fewer)
                left = count_failures(known)
                known.remove_edges_from(fewer)
                assert left[kind:] != (0, 0)[kind:]


def test_what_is_left_after_each_link_is_counted_on_the_graph():
    for g in GRAPHS:
        advice = advise(g)
        for plan in (advice.redundancy, advice.bridge):
            known = join(g)
            left = []
            for ends in links(plan.tails, plan.heads):
                known.add_edge(*ends)
                left.append(count_failures(known))
            assert links(plan.articulation, plan.bridges) == left


def test_the_effect_of_a_link_alone_is_counted_on_the_graph():
    for g in GRAPHS:
        if g.n > 25:
            continue
        known = join(g)
        advice = advise(g)
        for plan in (advice.redundancy, advice.bridge):
            assert own_effects(plan) == [
                measure(known, ends) for ends in links(plan.tails, plan.heads)[:OWN_EFFECTS]
            ]


def own_effects(plan: Plan) -> list[tuple[int, int, int]]:
    rows = (plan.own_articulation, plan.own_bridges, plan.own_spared)
    return list(zip(*(row.tolist() for row in rows), strict=True))


def measure(known: nx.Graph, ends: tuple[int, int]) -> tuple[int, int, int]:
    figures = []
    for with_it in (False, True):
        if with_it:
            known.add_edge(*ends)
        spared = sum(count_cut_off(known, one) for one in nx.articulation_points(known))
        figures.append((*count_failures(known), spared))
    known.remove_edge(*ends)
    return tuple(before - after for before, after in zip(*figures, strict=True))


def test_the_first_link_is_the_one_that_spares_the_most_daemons():
    arcs: Arcs = [*clique(6), *[("n0", "a0"), *[(f"a{i}", f"a{i + 1}") for i in range(9)]]]
    arcs += [("n1", "b0"), ("b0", "b1"), ("n2", "c0"), ("c0", "c1"), ("n3", "d0")]
    plan = advise(graph(arcs)).redundancy
    assert plan.count == 2
    assert plan.own_spared.tolist() == sorted(plan.own_spared.tolist(), reverse=True)
    assert graph(arcs).ids.to_pylist()[plan.tails[0]] == "a9"


def test_a_hub_gets_a_line_of_its_leaves_and_no_second_hub():
    plan = advise(graph(star(30))).redundancy
    assert plan.count == 29
    assert np.bincount(np.append(plan.tails, plan.heads)).max() == 2


def test_a_path_is_closed_by_one_link():
    plan = advise(graph(path(50))).redundancy
    assert (plan.count, plan.articulation.tolist(), plan.bridges.tolist()) == (1, [0], [0])


def test_a_bridge_is_not_advised_a_second_time():
    arcs = [*clique(5, "b"), ("z", "b0"), ("z", "b1"), ("z", "a")]  # z has the fewest links
    g = graph(arcs)
    plan = advise(g).bridge
    ends = [g.ids[int(end)].as_py() for end in (plan.tails[0], plan.heads[0])]
    assert (plan.count, ends[0]) == (1, "a")
    assert ends[1] != "z"


def test_components_are_joined_at_leaves():
    cliques = [*clique(4, "y"), *clique(4, "z"), ("n0", "y0"), ("n2", "z0"), ("x", None)]
    g = graph([*ring(5), *cliques])
    advice = advise(g)
    names = [g.ids[int(end)].as_py() for end in (advice.join_tails[0], advice.join_heads[0])]
    assert names[0] == "x"
    assert names[1][0] in "yz"
    assert advice.redundancy.count == 1


def test_two_daemons_are_left_alone():
    advice = advise(graph([("a", "b")]))
    assert (advice.bridges, advice.redundancy.count, advice.bridge.count) == (1, 0, 0)


def test_lone_daemons_are_joined_without_a_hub():
    advice = advise(graph([(f"n{i}", None) for i in range(30)]))
    assert len(advice.join_tails) == 29
    assert np.bincount(np.append(advice.join_tails, advice.join_heads)).max() == 2
    assert advice.redundancy.count == 1


def test_a_sound_mesh_needs_nothing():
    advice = advise(graph(clique(5)))
    assert (len(advice.join_tails), advice.redundancy.count, advice.bridge.count) == (0, 0, 0)


def test_a_path_of_100_000_daemons_is_advised():
    n = 100_000
    line = build(n, np.arange(n - 1), np.arange(1, n))
    assert advise(line).redundancy.articulation.tolist() == [0]


def test_a_real_network_needs_half_as_many_links_as_it_has_leaves():
    g = graph(read_arcs(real("p2p-Gnutella31.txt")))
    advice = advise(g)
    assert (advice.bridge.count, advice.bridge.bridges[-1]) == (14_320, 0)
    assert advice.redundancy.count == advice.redundancy.least == 14_321
    assert (advice.redundancy.articulation[-1], advice.redundancy.bridges[-1]) == (0, 0)
    tails = [g.tails, advice.join_tails, advice.redundancy.tails]
    heads = [g.heads, advice.join_heads, advice.redundancy.heads]
    after = blocks(build(g.ids, np.concatenate(tails), np.concatenate(heads)))
    assert (after.count, len(after.articulation), len(after.bridges)) == (1, 0, 0)
