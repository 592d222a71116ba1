"""The graph as arrays, and what is counted on it: degrees, components, cores and triangles."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from pubsubd.topology.kernel import structure
from pubsubd.topology.kernel.cuts import blocks, count_two_link_cuts
from pubsubd.topology.kernel.graph import Graph, build, read
from tests.topologies import (
    REAL,
    SMALL,
    Arcs,
    clique,
    graph,
    read_arcs,
    real,
    ring,
    star,
    tree,
    truth,
)


def oracle(g: Graph) -> nx.Graph:
    made = nx.Graph()
    made.add_nodes_from(range(g.n))
    made.add_edges_from(zip(g.tails.tolist(), g.heads.tolist(), strict=True))
    return made


def random_graphs(count: int, most: int = 30) -> list[Graph]:
    """Graphs of all densities, with loops, repeats and daemons without links."""
    rng = np.random.default_rng(20261128)
    graphs = []
    for _ in range(count):
        n = int(rng.integers(1, most))
        arcs = int(rng.integers(0, 3 * n))
        graphs.append(build(n, rng.integers(0, n, arcs), rng.integers(0, n, arcs)))
    return graphs


RANDOM = random_graphs(60)


# The graph


def test_names_are_numbered_in_the_order_of_their_bytes():
    g = graph([("b", "\U0001f310"), ("\uffee", "B"), ("a", None)])
    assert g.ids.to_pylist() == ["B", "a", "b", "\uffee", "\U0001f310"]


def test_a_link_told_by_both_ends_is_mutual_and_has_two_arcs():
    g = graph([("a", "b"), ("b", "a"), ("b", "c"), ("b", "c")])
    assert list(zip(g.tails, g.heads, g.mutual, strict=True)) == [(0, 1, True), (1, 2, False)]
    assert list(zip(g.arc_tails, g.arc_heads, strict=True)) == [(0, 1), (1, 0), (1, 2)]


def test_self_loops_and_daemons_without_links_exist_but_are_no_links():
    g = graph([("a", "a"), ("b", "b"), ("b", "b"), ("c", None), ("d", "e")])
    assert (g.n, g.m, g.loops.tolist(), g.degrees.tolist()) == (5, 1, [0, 1], [0, 0, 0, 1, 1])


def test_neighbours_ascend_and_each_names_its_link():
    for g in RANDOM:
        for daemon in range(g.n):
            row = slice(g.indptr[daemon], g.indptr[daemon + 1])
            assert g.indices[row].tolist() == sorted(oracle(g)[daemon])
            ends = np.stack([g.tails[g.link_of[row]], g.heads[g.link_of[row]]])
            assert (ends.sum(axis=0) - daemon == g.indices[row]).all()


def test_the_matrix_and_networkit_have_the_same_links():
    for g in RANDOM:
        assert g.adjacency.toarray().tolist() == nx.to_numpy_array(oracle(g)).tolist()
        links = {(min(ends), max(ends)) for ends in g.kit().iterEdges()}
        assert links == set(zip(g.tails.tolist(), g.heads.tolist(), strict=True))


def test_arcs_from_and_to_each_daemon_are_counted_once():
    g = graph([("a", "b"), ("a", "b"), ("b", "a"), ("c", "a"), ("c", "c")])
    assert (g.out_degrees.tolist(), g.in_degrees.tolist()) == ([1, 1, 1], [2, 1, 0])


def test_the_order_and_the_chunks_of_rows_change_nothing():
    arcs = SMALL["three components"] + SMALL["loops among links"] + [("lone", None)]
    first = graph(arcs)
    for seed in range(3):
        random.Random(seed).shuffle(arcs)
        halves = [arcs[:5], arcs[5:]]
        columns = [
            pa.chunked_array([pa.array([arc[end] for arc in half], pa.string()) for half in halves])
            for end in (0, 1)
        ]
        g = read(*columns)
        assert g.ids.equals(first.ids)
        for name in ("tails", "heads", "mutual", "arc_tails", "arc_heads", "loops"):
            assert np.array_equal(getattr(g, name), getattr(first, name))


def test_numbered_daemons_keep_their_order():
    g = build(11, np.array([10]), np.array([2]))
    assert g.ids.to_pylist() == sorted(g.ids.to_pylist())
    assert (g.tails.tolist(), g.heads.tolist()) == ([2], [10])


# Real topologies


@pytest.mark.parametrize("name", REAL)
def test_a_real_topology_has_the_figures_known_of_it(name: str):
    g = graph(read_arcs(real(name)))
    parts, triangles = structure.components(g), structure.clustering(g)
    cut = blocks(g)
    found = {
        "nodes": g.n,
        "directed_edges": len(g.arc_tails) + len(g.loops),
        "undirected_edges": g.m,
        "wccs": parts.count,
        "wcc_nodes": parts.largest,
        "wcc_edges": parts.largest_arcs,
        "sccs": parts.strong_count,
        "scc_nodes": parts.strong_largest,
        "scc_edges": parts.strong_largest_arcs,
        "avg_clustering": triangles.mean,
        "triangles": triangles.triangles,
        "closed": triangles.closed,
        "transitivity": triangles.transitivity,
        "kcore_max": structure.cores(g).maximum,
        "articulation": len(cut.articulation),
        "bridges": len(cut.bridges),
    }
    known = {column: text for column, text in truth(name).items() if text and column in found}
    assert len(known) >= 12
    for column, text in known.items():
        digits = len(text.partition(".")[2])
        assert f"{found[column]:.{digits}f}" == text, column


# Degrees


def test_degrees_of_a_star_are_as_unequal_as_counted_by_hand():
    found = structure.degrees(graph(star(9)).degrees)
    assert (found.mean, found.median, found.maximum) == (1.8, 1.0, 9)
    assert found.gini == pytest.approx(0.4)  # 9 daemons have 1 each, one has 9
    assert found.top1_share == 0.5
    assert (found.leaves, found.isolated, found.share_two, found.share_three) == (9, 0, 0.1, 0.1)
    assert found.histogram.values.tolist() == [1, 9]
    assert found.histogram.counts.tolist() == [9, 1]


def test_degrees_of_a_ring_are_equal():
    found = structure.degrees(graph(ring(150)).degrees)
    assert found.gini == pytest.approx(0.0)
    assert (found.mean, found.median, found.top1_share) == (2.0, 2.0, 2 / 150)
    assert (found.share_two, found.share_three) == (1.0, 0.0)


def test_a_daemon_with_three_neighbours_has_two_as_well():
    found = structure.degrees(graph([*clique(4), ("n0", "leaf")]).degrees)
    assert (found.share_two, found.share_three) == (0.8, 0.8)


def test_degrees_of_nothing_are_nothing():
    for name in ("empty", "one daemon", "self-loops only"):
        found = structure.degrees(graph(SMALL[name]).degrees)
        assert (found.mean, found.gini, found.top1_share, found.maximum) == (0.0, 0.0, 0.0, 0)
        assert found.tail_exponent is None
        assert found.isolated == graph(SMALL[name]).n


def test_the_tail_of_a_power_law_is_found_with_its_exponent():
    rng = np.random.default_rng(1)
    wanted = np.minimum(rng.zipf(2.5, 20_000), 2_000)
    counts = structure.count_values(wanted)
    exponent, start = structure.fit_tail(counts)
    assert exponent == pytest.approx(2.5, abs=0.05)
    assert start is not None
    assert start <= 5


def test_degrees_that_are_all_equal_or_few_have_no_tail():
    assert structure.degrees(graph(ring(100)).degrees).tail_exponent is None
    assert structure.degrees(graph(tree(40)).degrees).tail_exponent is None


# Components


def test_components_are_those_of_networkx_and_the_largest_is_number_0():
    for g in RANDOM:
        found = structure.components(g)
        pieces = sorted(nx.connected_components(oracle(g)), key=lambda one: (-len(one), min(one)))
        labels = [set(np.flatnonzero(found.labels == i).tolist()) for i in range(found.count)]
        assert labels == pieces
        assert found.sizes.tolist() == [len(piece) for piece in pieces]
        assert found.largest == len(pieces[0])


def test_strong_components_follow_the_arcs():
    for g in RANDOM:
        arcs = nx.DiGraph()
        arcs.add_nodes_from(range(g.n))
        arcs.add_edges_from(zip(g.arc_tails.tolist(), g.arc_heads.tolist(), strict=True))
        arcs.add_edges_from((daemon, daemon) for daemon in g.loops.tolist())
        pieces = sorted(
            nx.strongly_connected_components(arcs), key=lambda one: (-len(one), min(one))
        )
        found = structure.components(g)
        sizes = found.strong_size_histogram
        assert np.repeat(sizes.values, sizes.counts).tolist() == sorted(map(len, pieces))
        assert (found.strong_count, found.strong_largest) == (len(pieces), len(pieces[0]))
        assert found.strong_largest_arcs == arcs.subgraph(pieces[0]).number_of_edges()


def test_the_arcs_of_the_largest_component_have_its_self_loops_among_them():
    found = structure.components(graph([*SMALL["loops among links"], ("x", "x"), ("x", "y")]))
    assert (found.largest, found.largest_arcs) == (4, 6)


# Cores and triangles


def test_core_numbers_are_those_of_networkx():
    for g in RANDOM:
        found = structure.cores(g)
        assert dict(enumerate(found.numbers.tolist())) == nx.core_number(oracle(g))
        assert found.histogram.counts.sum() == g.n


def test_triangles_are_those_of_networkx():
    for g in [*RANDOM, graph(clique(12))]:
        found, known = structure.clustering(g), oracle(g)
        assert found.triangles == sum(nx.triangles(known).values()) // 3
        assert found.local.tolist() == pytest.approx(list(nx.clustering(known).values()))
        assert found.mean == pytest.approx(nx.average_clustering(known))
        assert found.transitivity == pytest.approx(nx.transitivity(known))


def test_all_is_closed_in_a_clique_and_nothing_in_a_tree():
    whole, none = (structure.clustering(graph(arcs)) for arcs in (clique(6), tree(15)))
    assert (whole.closed, whole.transitivity, whole.mean) == (1.0, 1.0, 1.0)
    assert (none.closed, none.transitivity, none.mean) == (0.0, 0.0, 0.0)


# Size and shape


@pytest.mark.parametrize("arcs", SMALL.values(), ids=SMALL)
def test_every_shape_is_taken(arcs: Arcs):
    g = graph(arcs)
    assert structure.components(g).sizes.sum() == g.n
    assert structure.degrees(g.degrees).histogram.counts.sum() == g.n
    assert len(structure.cores(g).numbers) == len(structure.clustering(g).local) == g.n


def test_a_path_of_100_000_daemons_is_taken():
    n = 100_000
    g = build(n, np.arange(n - 1), np.arange(1, n))
    assert structure.components(g).strong_count == n
    assert structure.components(g).largest == n
    assert structure.cores(g).maximum == 1
    found = blocks(g)
    assert (len(found.articulation), len(found.bridges)) == (n - 2, n - 1)
    assert (found.cut_off.max(), found.bridge_cut_off.max()) == (n // 2 - 1, n // 2)
    assert count_two_link_cuts(g, found, seed=0) == 0


def test_a_hub_of_100_000_daemons_is_taken():
    n = 100_000
    g = build(n, np.zeros(n - 1, np.int64), np.arange(1, n))
    assert structure.clustering(g).triangles == 0
    found = blocks(g)
    assert (found.articulation.tolist(), found.cut_off.tolist()) == ([0], [n - 2])
