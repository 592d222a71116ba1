"""A graph in blocks gives the figures that the kernel gives for it as a whole.

The blocks are held in this process, where a round costs nothing; tests/spark leaves them to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pubsubd.topology.distributed.blocks import (
    IN,
    OUT,
    PartitionedGraph,
    local_blocks,
)
from pubsubd.topology.distributed.certificate import certify
from pubsubd.topology.distributed.forest import span, span_each
from pubsubd.topology.distributed.peeling import peel
from pubsubd.topology.distributed.reach import measure
from pubsubd.topology.distributed.strong import strong_components
from pubsubd.topology.distributed.survey import survey
from pubsubd.topology.distributed.triangles import cluster
from pubsubd.topology.distributed.whole import LEFT_OUT, PLANNED, WHY, analyse_blocks
from pubsubd.topology.kernel import cuts, structure
from pubsubd.topology.kernel.graph import Graph, build, read
from pubsubd.topology.kernel.hops import SAMPLE, distances, hops
from pubsubd.topology.kernel.redundancy import advise
from pubsubd.topology.kernel.resilience import removal_curve
from pubsubd.topology.kernel.snapshot import snapshot
from tests.topologies import SMALL, Arcs, clique, path, read_arcs, real, ring, star, tree, truth

COUNTS = (1, 2, 7)
shapes = pytest.mark.parametrize("name", SMALL)


def table_of(arcs: Arcs) -> pa.Table:
    ends: list[tuple[str, ...]] = list(zip(*arcs, strict=True)) or [(), ()]
    return pa.table({"src": pa.array(ends[0], pa.string()), "dst": pa.array(ends[1], pa.string())})


def whole(arcs: Arcs) -> Graph:
    table = table_of(arcs)
    return read(table["src"], table["dst"])


def spread(arcs: Arcs, count: int) -> PartitionedGraph:
    return local_blocks(table_of(arcs), count)


def draw(seed: int, daemons: int, arcs: int) -> Arcs:
    """Random arcs, with loops and repeats; one daemon is alone."""
    random = np.random.default_rng(seed)
    # Squared, so that low numbers are met more often.
    ends = (random.random((arcs, 2)) ** 2 * daemons).astype(int)
    return [*[(f"d{a}", f"d{b}") for a, b in ends.tolist()], ("alone", None)]


def counting(blocks: PartitionedGraph) -> tuple[PartitionedGraph, list[int]]:
    """Return the same blocks, and a list that gets an entry each time they are gone through."""
    rounds: list[int] = []

    def run(*args: Any) -> pa.Table:
        rounds.append(len(rounds))
        return blocks.run(*args)

    return replace(blocks, run=run), rounds


def rows_of(table: pa.Table, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    some = table.filter(pc.equal(table["kind"], kind)).select(columns)
    return sorted(zip(*some.to_pydict().values(), strict=True), key=repr)


def metrics_of(table: pa.Table) -> dict[str, tuple[float | None, float | None]]:
    return {name: (value, error) for name, value, error in rows_of(table, "metric", *METRIC)}


METRIC = ("name", "value", "error")
DAEMON = ("id", "degree", "in_degree", "out_degree", "component", "core", "cut_off")
KINDS = {
    "daemon": (*DAEMON, "clustering", "pagerank"),
    "articulation": ("id", "size"),
    "bridge": ("id", "other", "size"),
    "histogram": ("name", "x", "value"),
    "curve": ("name", "x", "value"),
}


def check_against_kernel(arcs: Arcs, count: int) -> None:
    """Everything that is told is what the kernel tells, to the last bit."""
    graph, found = whole(arcs), analyse_blocks(spread(arcs, count), 5)
    expected = snapshot(graph, 5, False)
    for kind, columns in KINDS.items():
        assert rows_of(found, kind, *columns) == rows_of(expected, kind, *columns), kind
    told, wanted = metrics_of(found), metrics_of(expected)
    pairs = cuts.count_two_link_cuts(graph, cuts.blocks(graph), 5)
    assert told.pop("two_link_cuts") == (pairs, None)
    check_plans(graph, found, [told.pop(name)[0] for name in PLANNED])
    assert told.keys() >= wanted.keys()
    computed = told.keys() - set(LEFT_OUT)
    assert {name: told[name] for name in computed} == {name: wanted[name] for name in computed}


def check_plans(graph: Graph, found: pa.Table, counts: list[float | None]) -> None:
    """There are as many links as the kernel advises; with them, nothing is left that it could be
    split by.
    """
    wanted = advise(graph)
    joins = len(wanted.join_tails)
    for plan, told in ((wanted.redundancy, counts[:2]), (wanted.bridge, counts[2:])):
        assert told == [joins + plan.count, joins + plan.least]
    plans = rows_of(found, "advice", "name", "id", "other")
    new = [(a, b) for name, a, b in plans if name != "bridge"]
    names = graph.ids.to_pylist()
    old = [(names[a], names[b]) for a, b in zip(graph.tails, graph.heads, strict=True)]
    assert not {tuple(sorted(one)) for one in new} & {tuple(sorted(one)) for one in old}
    mended = cuts.blocks(whole([*old, *new, *((one, one) for one in names)]))
    assert len(mended.articulation) == 0
    assert graph.n < 3 or len(mended.bridges) == 0


@shapes
def test_a_small_shape_has_the_kernels_figures(name: str) -> None:
    check_against_kernel(SMALL[name], 2)  # in other numbers of blocks it has the same rows, below


@pytest.mark.parametrize("seed", range(8))
def test_a_random_graph_has_the_kernels_figures(seed: int) -> None:
    check_against_kernel(draw(seed, 40 + 20 * seed, 60 + 60 * seed), COUNTS[seed % 3])


@shapes
def test_how_many_blocks_there_are_cannot_be_told_from_the_rows(name: str) -> None:
    first, *others = (analyse_blocks(spread(SMALL[name], count), 5) for count in COUNTS)
    for other in others:
        assert first.equals(other)


def test_what_is_not_computed_is_told_with_the_reason() -> None:
    found = analyse_blocks(spread(ring(5), 2), 5)
    told = {
        name: (value, text) for name, value, text in rows_of(found, "metric", *METRIC[:2], "text")
    }
    for name in LEFT_OUT:
        assert told.pop(name) == (None, WHY)
    assert all(
        value is not None for name, (value, _) in told.items() if name != "degree_tail_exponent"
    )


def test_strong_components_that_were_not_found_are_told_as_such() -> None:
    arcs: Arcs = [*ring(6), *[(f"c{j}", f"c{(j + 1) % 3}") for j in range(3)]]
    found = analyse_blocks(spread(arcs, 3), 5, local=2)
    told = metrics_of(found)
    assert told["components"] == (2, None)
    assert told["largest_component_arcs"] == (6, None)
    for name in ("strong_components", "largest_strong_component", "largest_strong_component_arcs"):
        assert told[name] == (None, None)
    histograms = [name for name, *_ in rows_of(found, "histogram", *KINDS["histogram"])]
    assert histograms.count("component_size") == 2
    assert "strong_component_size" not in histograms


# Blocks


@pytest.mark.parametrize("count", COUNTS)
def test_each_block_has_all_neighbours_of_its_daemons(count: int) -> None:
    arcs = draw(1, 30, 80)
    graph, blocks = whole(arcs), spread(arcs, count)
    assert blocks.ids.equals(graph.ids)
    tails, heads, told = blocks.collect(lambda block: (block.tails, block.indices, block.told))
    order = np.lexsort([heads, tails])
    assert heads[order].tolist() == graph.indices.tolist()
    assert tails[order].tolist() == np.repeat(np.arange(graph.n), graph.degrees).tolist()
    out, into = (told & OUT) != 0, (told & IN) != 0
    outward = set(zip(graph.arc_tails.tolist(), graph.arc_heads.tolist(), strict=True))
    assert set(zip(tails[out].tolist(), heads[out].tolist(), strict=True)) == outward
    assert set(zip(heads[into].tolist(), tails[into].tolist(), strict=True)) == outward


def test_rows_in_another_order_make_the_same_blocks() -> None:
    arcs = draw(2, 30, 80)
    forward, backward = spread(arcs, 3), spread(arcs[::-1], 3)
    ends = [one.collect(lambda b: (b.tails, b.indices, b.told)) for one in (forward, backward)]
    for one, other in zip(*ends, strict=True):
        assert one.tolist() == other.tolist()


# Forests and certificates


@pytest.mark.parametrize("make", [path, ring, tree, star], ids=lambda make: make.__name__)
def test_a_forest_takes_few_rounds_however_long_the_way(make: Callable[[int], Arcs]) -> None:
    arcs = make(20_000)
    shuffled = np.random.default_rng(3).permutation(20_001)
    names = {f"n{i}": f"m{shuffled[i]}" for i in range(20_001)} | {"hub": "hub"}
    blocks, rounds = counting(spread([(names[a], names[b or a]) for a, b in arcs], 3))
    forest = span(blocks)
    assert forest.count == 1
    assert len(forest.tails) == blocks.n - 1
    assert len(rounds) <= 15  # log2 of 20,000


def test_a_certificate_has_few_links_and_all_cuts() -> None:
    arcs = [*clique(60, "a"), *clique(50, "b"), ("a0", "c"), ("c", "b0"), ("b3", "leaf")]
    blocks, graph = spread(arcs, 4), whole(arcs)
    sparse = certify(blocks, span(blocks))
    assert sparse.m < 5 * graph.n < graph.m
    links = [
        set(zip(one.tails.tolist(), one.heads.tolist(), strict=True)) for one in (sparse, graph)
    ]
    assert links[0] <= links[1]
    names = graph.ids.to_pylist()
    found = cuts.blocks(sparse)
    cut_off = {names[i]: size for i, size in zip(found.articulation, found.cut_off, strict=True)}
    assert cut_off == {"a0": 52, "b0": 50, "c": 51, "b3": 1}


def test_the_one_link_that_leads_round_a_daemon_is_in_the_certificate() -> None:
    # Each daemon has a higher neighbour in its own clique, so the forests pass that link by.
    odd, even = ([f"{i:02}" for i in range(first, 22, 2)] for first in (3, 2))
    arcs: Arcs = [("00", one) for one in (*odd, *even)]
    for some in (odd, even):
        arcs += [(a, b) for i, a in enumerate(some) for b in some[:i]]
    for links, articulation in ([], [0]), ([("02", "03")], []):
        blocks = spread([*arcs, *links], 3)
        found = cuts.blocks(certify(blocks, span(blocks)))
        assert found.articulation.tolist() == articulation


@pytest.mark.parametrize("seed", range(20))
def test_without_any_one_daemon_the_certificate_falls_apart_as_the_graph_does(seed: int) -> None:
    arcs = draw(seed, 25, 20 + 3 * seed)
    blocks, graph = spread(arcs, 3), whole(arcs)
    both = []
    for one in (graph, certify(blocks, span(blocks), pairs=False)):
        mesh = nx.Graph()
        mesh.add_nodes_from(range(one.n))
        mesh.add_edges_from(zip(one.tails.tolist(), one.heads.tolist(), strict=True))
        both.append(mesh)
    for daemon in range(graph.n):
        pieces = []
        for mesh in both:
            left = mesh.subgraph(set(mesh) - {daemon})
            pieces.append({frozenset(piece) for piece in nx.connected_components(left)})
        assert pieces[0] == pieces[1]


def test_a_forest_of_links_that_last_longest_falls_apart_as_the_graph_does() -> None:
    arcs = draw(4, 60, 200)
    blocks, graph = spread(arcs, 3), whole(arcs)
    orders = [np.random.default_rng(i).permutation(graph.n) for i in range(5)]
    turns = [np.argsort(order).astype(np.int32) for order in orders]
    for order, forest in zip(orders, span_each(blocks, turns), strict=True):
        assert len(forest.tails) == graph.n - forest.count
        sparse = build(graph.ids, forest.tails, forest.heads)
        curves = [removal_curve(one, order).largest.tolist() for one in (sparse, graph)]
        assert curves[0] == curves[1]


# Cores, triangles, strong components


def test_trees_are_peeled_without_a_round() -> None:
    blocks, rounds = counting(spread([*path(50_000), *clique(4, "n")], 3))
    cores = peel(blocks, survey(blocks), 0)
    assert cores is not None
    assert cores.maximum == 3
    assert cores.histogram.counts.tolist() == [49_996, 4]
    assert len(rounds) <= 3


def test_cores_that_take_too_many_rounds_are_finished_in_one_place() -> None:
    strip = [("s0", "s1"), *[(f"s{i}", f"s{i + j}") for i in range(200) for j in (1, 2, 3)]]
    blocks, graph = spread(strip, 3), whole(strip)
    known = survey(blocks)
    cores = peel(blocks, known, 1_000, rounds=2)
    assert cores is not None
    assert cores.numbers.tolist() == structure.cores(graph).numbers.tolist()
    assert peel(blocks, known, 100, rounds=2) is None


@pytest.mark.parametrize("colours", [1, 2, 3, 5])
def test_each_triangle_is_counted_once_whatever_the_colours(colours: int) -> None:
    arcs = [*draw(5, 40, 300), *clique(9)]
    blocks = spread(arcs, 3)
    found, expected = cluster(blocks, survey(blocks), colours), structure.clustering(whole(arcs))
    assert found.triangles == expected.triangles > 80
    assert found.local.tolist() == expected.local.tolist()


@pytest.mark.parametrize("local", [10**6, 16])
def test_strong_components_are_the_same_whether_daemons_are_put_aside_or_not(local: int) -> None:
    circles = [(f"c{i}{j}", f"c{i}{(j + 1) % 3}") for i in range(4) for j in range(3)]
    arcs: Arcs = [*ring(6), *circles, ("n0", "c00"), ("c00", "c10"), ("c20", "n1"), *path(9)[6:]]
    blocks = spread(arcs, 3)
    found = strong_components(blocks, survey(blocks), local)
    assert found is not None
    sizes = np.bincount(found).tolist()
    assert sizes == [6, 3, 3, 3, 3, 1, 1, 1]


def test_strong_components_of_too_many_arcs_are_not_told() -> None:
    arcs: Arcs = [*ring(6), *[(f"c{j}", f"c{(j + 1) % 3}") for j in range(3)]]
    blocks = spread(arcs, 3)
    assert strong_components(blocks, survey(blocks), 2) is None


# Distances


def test_a_sample_searches_from_the_kernels_sources_and_is_exact_for_each() -> None:
    arcs = draw(6, 3_000, 9_000)
    blocks, graph = spread(arcs, 3), whole(arcs)
    parts = structure.components(graph)
    found = measure(blocks, parts.labels, 5, whole=0)
    exact = hops(graph, parts.labels, 5)
    assert found is not None
    assert exact.exact
    assert found.mean_error is not None
    assert found.sources == 64 * SAMPLE < found.daemons == parts.largest
    assert abs(found.mean - exact.mean) <= 2 * found.mean_error
    assert found.diameter <= exact.diameter <= found.diameter_upper
    inside = np.flatnonzero(parts.labels == 0)
    drawn = np.random.default_rng([5, 1]).permutation(len(inside))[: 64 * SAMPLE]
    inner = build(
        len(inside),
        np.searchsorted(inside, graph.tails[parts.labels[graph.tails] == 0]),
        np.searchsorted(inside, graph.heads[parts.labels[graph.tails] == 0]),
    )
    counts = np.bincount(distances(inner, drawn).ravel())
    assert np.rint(found.pairs * len(drawn) / len(inside)).tolist() == counts.tolist()


def test_ways_that_are_too_long_are_not_told() -> None:
    blocks = spread(path(60), 3)
    labels = np.zeros(60, np.int32)
    assert measure(blocks, labels, 5, levels=58) is None
    found = measure(blocks, labels, 5, levels=59)
    assert found is not None
    assert found.diameter == 59


# Real graphs


@pytest.mark.parametrize(
    "name", ["p2p-Gnutella08.txt", "as20000102.txt", "freifunk-berlin.edges.tsv"]
)
def test_a_real_mesh_has_its_true_figures(name: str) -> None:
    found = metrics_of(analyse_blocks(spread(read_arcs(real(name)), 3), 1))
    columns = {
        "nodes": "daemons",
        "undirected_edges": "links",
        "wccs": "components",
        "wcc_nodes": "largest_component",
        "wcc_edges": "largest_component_arcs",
        "sccs": "strong_components",
        "scc_nodes": "largest_strong_component",
        "scc_edges": "largest_strong_component_arcs",
        "avg_clustering": "clustering_mean",
        "triangles": "triangles",
        "closed": "closed_triads",
        "transitivity": "transitivity",
        "kcore_max": "core_max",
        "articulation": "articulation_daemons",
        "bridges": "bridges",
        "diameter": "diameter",
        "eff_diameter90": "effective_diameter",
        "mean_hops": "hops_mean",
    }
    for column, metric in columns.items():
        if known := truth(name)[column]:
            value, _ = found[metric]
            digits = len(known.partition(".")[2])
            assert value == pytest.approx(float(known), abs=0.500001 * 10**-digits), metric
