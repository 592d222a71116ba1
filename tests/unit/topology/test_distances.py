"""Hops between daemons, the daemons in between, and the links that would bring them closer."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from pubsubd.topology.kernel import centrality, hops, shortcuts
from pubsubd.topology.kernel.balls import Balls
from pubsubd.topology.kernel.graph import Graph, build
from pubsubd.topology.kernel.structure import components
from tests.topologies import (
    REAL,
    SMALL,
    Arcs,
    clique,
    graph,
    path,
    read_arcs,
    real,
    ring,
    star,
    tree,
    truth,
)


def scattered(seed: int, n: int, m: int) -> Graph:
    random = np.random.default_rng(seed)
    return build(n, random.integers(0, n, m), random.integers(0, n, m))


def oracle(g: Graph) -> nx.Graph:
    made = nx.Graph()
    made.add_nodes_from(range(g.n))
    made.add_edges_from(zip(g.tails.tolist(), g.heads.tolist(), strict=True))
    return made


def measure(g: Graph, seed: int = 1) -> hops.Hops:
    return hops.hops(g, components(g).labels, seed)


def line(count: int) -> Graph:
    return build(count, np.arange(count - 1), np.arange(1, count))


# Hops


@pytest.mark.parametrize("name", REAL)
def test_hops_of_real_networks_are_as_published(name):
    known = truth(name)
    found = measure(graph(read_arcs(real(name))))
    assert found.exact
    assert found.mean_error is None
    assert str(found.diameter) == str(found.diameter_upper) == known["diameter"]
    assert f"{found.effective:.3f}" == known["eff_diameter90"]
    assert f"{found.mean:.3f}" == known["mean_hops"]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("native", [False, True])
def test_hops_of_small_graphs_are_those_of_networkx(name, native, monkeypatch):
    monkeypatch.setattr(hops, "NATIVE_COST", 0 if native else 1e9)
    g = graph(SMALL[name])
    found = measure(g)
    largest = max(nx.connected_components(oracle(g)), key=len, default=set())
    assert found.daemons == found.sources == len(largest)
    assert found.pairs.tolist() == pairs_of(oracle(g).subgraph(largest))
    assert found.diameter == found.diameter_upper == max(len(found.pairs) - 1, 0)


def pairs_of(known: nx.Graph) -> list[int]:
    far = [d for _, way in nx.all_pairs_shortest_path_length(known) for d in way.values()]
    return np.bincount(np.array(far, np.int64)).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_hops_of_random_graphs_are_those_of_networkx(seed):
    n = 20 + 15 * seed
    g = scattered(seed, n, [n, 2 * n, 4 * n][seed % 3])
    largest = max(nx.connected_components(oracle(g)), key=len)
    assert measure(g).pairs.tolist() == pairs_of(oracle(g).subgraph(largest))


def test_a_hub_with_thousands_of_neighbours_is_counted_as_any_other():
    rim = np.arange(1, 1500)
    # Each of the rim has two neighbours there too, so that nothing is a leaf.
    g = build(
        1500, np.concatenate([np.zeros(1499, int), rim]), np.concatenate([rim, np.roll(rim, 1)])
    )
    assert measure(g).pairs.tolist() == [1500, 2 * g.m, 1500 * 1499 - 2 * g.m]


def test_known_shapes_have_known_hops():
    assert measure(graph(path(10))).pairs.tolist() == [10, *[2 * (10 - d) for d in range(1, 10)]]
    assert measure(graph(ring(10))).pairs.tolist() == [10, 20, 20, 20, 20, 10]
    assert measure(graph(clique(6))).pairs.tolist() == [6, 30]
    assert measure(graph(star(9))).pairs.tolist() == [10, 18, 72]
    assert measure(graph(tree(7))).pairs.tolist() == [7, 12, 14, 8, 8]


def test_ninety_percent_of_the_pairs_are_within_the_effective_diameter():
    # 10 pairs of a daemon and itself, 18 at one hop, 72 at two: 62 of those 72 make 90 %.
    assert measure(graph(star(9))).effective == pytest.approx(1 + 62 / 72)


def test_without_two_daemons_there_is_no_mean():
    for arcs in ([], [("a", None)], [("a", "a")]):
        found = measure(graph(arcs))
        assert np.isnan(found.mean)
        assert np.isnan(found.effective)
        assert found.diameter == found.diameter_upper == 0


@pytest.mark.parametrize("native", [False, True])
def test_a_sample_is_right_within_its_stated_interval(native, monkeypatch):
    g = scattered(3, 3000, 9000)
    exact = measure(g)
    monkeypatch.setattr(hops, "NATIVE_COST", 0.01 if native else 1e9)
    monkeypatch.setattr(hops, "WORK", 1e5)
    right = 0
    for seed in range(20):
        found = hops.hops(g, components(g).labels, seed, rounds=1)
        assert not found.exact
        right += abs(found.mean - exact.mean) <= found.mean_error
        assert found.diameter <= exact.diameter <= found.diameter_upper
        assert found.pairs.sum() == pytest.approx(exact.pairs.sum())
        assert found.mean_error < 0.2
    assert right >= 17  # 19 of 20 are promised


@pytest.mark.parametrize("seed", [4, 11])  # 11: one search after the other falls one short
def test_more_searches_narrow_the_diameter_of_a_sampled_mesh_to_what_it_is(seed, monkeypatch):
    g = scattered(seed, 2000, 5000)
    labels = components(g).labels
    exact = measure(g).diameter
    monkeypatch.setattr(hops, "WORK", 1e5)
    bounds = [
        (found.diameter, found.diameter_upper)
        for found in (hops.hops(g, labels, 1, rounds=rounds) for rounds in (0, 1, 4, 12))
    ]
    assert all(lower <= exact <= upper for lower, upper in bounds)
    assert bounds == sorted(bounds, key=lambda bound: bound[0] - bound[1])
    assert bounds[-1] == (exact, exact)


def test_a_path_of_thirty_thousand_daemons_is_measured():
    found = hops.hops(line(30_000), np.zeros(30_000, np.int32), 1, batches=4)
    assert found.diameter == found.diameter_upper == 29_999
    assert abs(found.mean - 30_001 / 3) <= found.mean_error


def test_distances_are_the_same_whoever_searches():
    for g in (scattered(5, 200, 700), line(700)):
        inner = hops.largest_component(g, components(g).labels)
        sources = np.arange(0, inner.n, 3)
        known = dict(nx.all_pairs_shortest_path_length(oracle(inner)))
        expected = [[known[s][t] for t in range(inner.n)] for s in sources.tolist()]
        assert hops.distances(inner, sources).tolist() == expected
        assert hops.distances(inner, sources, Balls(inner)).tolist() == expected


def test_a_graph_that_is_not_connected_is_not_searched_for_ever():
    g = graph([("a", "b"), ("x", "y")])
    with pytest.raises(ValueError, match="not connected"):
        hops.distances(g, np.array([0]), Balls(g))


def test_the_largest_component_is_a_graph_of_its_own():
    arcs: Arcs = [
        ("q", "r"),
        ("z", "c"),
        ("c", "a"),
        ("a", "c"),
        ("c", "c"),
        ("q", "q"),
        ("m", "a"),
    ]
    g = graph(arcs)
    inner = hops.largest_component(g, components(g).labels)
    alone = graph([arc for arc in arcs if arc[0] != "q"])
    assert inner.ids.to_pylist() == alone.ids.to_pylist() == ["a", "c", "m", "z"]
    for name in ("tails", "heads", "mutual", "arc_tails", "arc_heads", "loops"):
        assert getattr(inner, name).tolist() == getattr(alone, name).tolist()
        assert getattr(inner, name).dtype == getattr(alone, name).dtype


def test_the_order_of_rows_changes_nothing():
    arcs = [(f"n{i * 7 % 50}", f"n{i * i % 50}") for i in range(200)]
    one, two = graph(arcs), graph(arcs[::-1])
    labels = components(one).labels
    assert measure(one).pairs.tolist() == measure(two).pairs.tolist()
    assert centrality.pagerank(one).ranks.tobytes() == centrality.pagerank(two).ranks.tobytes()
    between = [centrality.betweenness(g, labels, 1).shares.tobytes() for g in (one, two)]
    assert between[0] == between[1]
    assert shortcuts.advise_shortcuts(one, labels, 1) == shortcuts.advise_shortcuts(two, labels, 1)


# PageRank


@pytest.mark.parametrize("seed", range(8))
def test_pagerank_is_that_of_networkx(seed):
    g = scattered(seed, 40, 30 * (1 + seed % 4))
    known = nx.DiGraph()
    known.add_nodes_from(range(g.n))
    known.add_edges_from(zip(g.arc_tails.tolist(), g.arc_heads.tolist(), strict=True))
    ranks = nx.pagerank(known, alpha=centrality.DAMPING, tol=1e-13, max_iter=1000)
    found = centrality.pagerank(g)
    assert found.change <= centrality.TOLERANCE
    assert np.allclose(found.ranks, [ranks[i] for i in range(g.n)], rtol=0, atol=1e-7)
    assert found.ranks.sum() == pytest.approx(1)


def test_pagerank_ends_on_a_star_whose_ranks_swing():
    found = centrality.pagerank(graph([arc for a, b in star(50) for arc in ((a, b), (b, a))]))
    assert found.rounds < centrality.ROUNDS
    hub = found.ranks[0]
    leaf = found.ranks[1]
    assert hub == pytest.approx(0.15 / 51 + 0.85 * 50 * leaf)


def test_pagerank_without_arcs_is_even():
    assert centrality.pagerank(graph([])).ranks.tolist() == []
    assert centrality.pagerank(graph([("a", None), ("b", None)])).ranks.tolist() == [0.5, 0.5]


# Betweenness


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_betweenness_of_small_graphs_is_that_of_networkx(name, native, monkeypatch):
    monkeypatch.setattr(centrality, "NATIVE_COST", 0 if native else 1e9)
    same_betweenness(graph(SMALL[name]))


@pytest.mark.parametrize("seed", range(20))
def test_betweenness_of_random_graphs_is_that_of_networkx(seed):
    same_betweenness(scattered(seed, 5 + 10 * seed, 4 + 14 * seed))


def same_betweenness(g: Graph) -> None:
    found = centrality.betweenness(g, components(g).labels, 1)
    assert found.errors is None
    assert found.worst_error is None
    known = nx.betweenness_centrality(oracle(g))
    assert np.allclose(found.shares, [known[i] for i in range(g.n)], rtol=0, atol=1e-12)


def test_betweenness_does_not_overflow_where_paths_are_beyond_number():
    # 90 layers of 30, each linked with the whole of the next: 30 ** 89 paths, and the same again.
    layers, wide = 230, 30
    each = np.arange(layers * wide).reshape(layers, wide)
    tails = np.repeat(each[:-1], wide, axis=1).ravel()
    heads = np.tile(each[1:], (1, wide)).ravel()
    g = build(layers * wide, tails, heads)
    matrix = g.adjacency.astype(np.float64)
    parts = centrality.dependencies(matrix, each[0, :1], np.ones(g.n), tall=True)
    # All in a layer are alike: from the first layer, each has a 30th of what lies behind.
    behind = sum(30 / far for far in range(101, layers))
    assert np.allclose(parts[each[100], 0], 2 * 100 * behind / 30)


@pytest.mark.parametrize("native", [False, True])
def test_sampled_betweenness_is_off_as_much_as_it_says(native, monkeypatch):
    g = scattered(6, 600, 1100)
    labels = components(g).labels
    exact = centrality.betweenness(g, labels, 1).shares
    monkeypatch.setattr(centrality, "WORK", 3e5 if native else 8e6)
    monkeypatch.setattr(centrality, "NATIVE_COST", 1 if native else 1e9)
    top = np.argsort(-exact)[:30]
    offs, shares = [], []
    for seed in range(15):
        found = centrality.betweenness(g, labels, seed)
        assert found.errors is not None
        assert 100 < found.pivots < 200
        assert found.worst_error < 0.02
        offs.append((found.shares[top] - exact[top]) / found.errors[top])
        shares.append(found.shares[top])
    assert 0.8 < np.sqrt(np.mean(np.square(offs))) < 1.4  # 1 if the errors are as stated
    assert np.mean(shares) == pytest.approx(exact[top].mean(), rel=0.03)  # nor on one side


def test_betweenness_of_a_long_path_is_estimated():
    found = centrality.betweenness(line(10_000), np.zeros(10_000, np.int32), 1)
    assert abs(found.shares[5_000] - 0.5) <= 4 * found.errors[5_000] + 1e-3


# Links that shorten the ways


@pytest.mark.parametrize("seed", range(6))
def test_a_shortcut_does_what_it_says(seed):
    g = scattered(seed, 90, 140)
    labels = components(g).labels
    before = measure(g).mean
    tails, heads = g.tails.tolist(), g.heads.tolist()
    links = set(zip(tails, heads, strict=True))
    advice = shortcuts.advise_shortcuts(g, labels, 1, 4)
    assert len(advice) == 4
    for one in advice:
        assert one.a < one.b
        assert (one.a, one.b) not in links
        links.add((one.a, one.b))
        ends = np.array(sorted(links))
        after = hops.hops(build(g.n, ends[:, 0], ends[:, 1]), labels, 1).mean
        assert one.mean == pytest.approx(after, abs=1e-12)
        assert one.error is None
        assert after < before
        before = after


def test_the_first_shortcut_is_as_good_as_any_link_can_be():
    shares = []
    for seed in range(6):
        g = scattered(seed, 34, 46)
        g = hops.largest_component(g, components(g).labels)
        labels = np.zeros(g.n, np.int32)
        before = measure(g).mean
        after = shortcuts.advise_shortcuts(g, labels, 1, 1)[0].mean
        shares.append((before - after) / (before - best_mean(g)))
    assert min(shares) > 0.9
    assert np.mean(shares) > 0.98


def test_a_sampled_shortcut_is_right_within_its_error(monkeypatch):
    monkeypatch.setattr(shortcuts, "EXACT", 100)
    monkeypatch.setattr(shortcuts, "SAMPLE", 150)
    offs = []
    for seed in range(6):
        g = scattered(seed, 900, 1500)
        labels = components(g).labels
        before = measure(g).mean
        advice = shortcuts.advise_shortcuts(g, labels, 1, 3, before)
        tails = np.append(g.tails, [one.a for one in advice])
        heads = np.append(g.heads, [one.b for one in advice])
        after = hops.hops(build(g.n, tails, heads), labels, 1).mean
        assert after < before
        offs.append((advice[-1].mean - after) / advice[-1].error)
    assert np.sqrt(np.mean(np.square(offs))) < 1.8


def test_shortcuts_are_named_by_the_whole_graphs_numbers():
    # The component that counts is the last one in the order of names.
    arcs: Arcs = [("a", "b"), ("b", "c"), *[(f"x{i}", f"x{i + 1}") for i in range(8)]]
    g = graph(arcs)
    advice = shortcuts.advise_shortcuts(g, components(g).labels, 1, 1)
    assert all(g.ids[end].as_py().startswith("x") for end in (advice[0].a, advice[0].b))


@pytest.mark.parametrize("name", ["empty", "one daemon", "one link", "clique", "self-loops only"])
def test_where_nothing_can_be_shorter_nothing_is_advised(name):
    g = graph(SMALL[name])
    assert shortcuts.advise_shortcuts(g, components(g).labels, 1) == []


def test_the_ends_of_a_shortcut_are_moved_to_where_it_is_best(monkeypatch):
    monkeypatch.setattr(shortcuts, "ENDS", 10)  # of 80 daemons: the best link is not among these
    g = line(80)
    one = shortcuts.advise_shortcuts(g, np.zeros(80, np.int32), 1, 1)[0]
    assert one.mean == pytest.approx(best_mean(g), rel=1e-9)


def best_mean(g: Graph) -> float:
    """Return the mean with the best of all links that there can be."""
    far = hops.distances(g, np.arange(g.n))
    sums = [
        np.minimum(far, 1 + np.minimum(far[a][:, None] + far[b], far[b][:, None] + far[a])).sum()
        for a, b in itertools.combinations(range(g.n), 2)
    ]
    return float(min(sums) / g.n / (g.n - 1))
