"""Figures of one graph, held against networkx and against known figures of real graphs."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pubsubd.topology.kernel.facts import SCHEMA
from pubsubd.topology.kernel.graph import read
from pubsubd.topology.kernel.snapshot import snapshot
from pubsubd.topology.metrics import METRICS
from tests import topologies
from tests.examples import examples
from tests.topologies import SMALL, Arcs

REAL = {
    "daemons": "nodes",
    "links": "undirected_edges",
    "components": "wccs",
    "largest_component": "wcc_nodes",
    "strong_components": "sccs",
    "largest_strong_component": "scc_nodes",
    "largest_strong_component_arcs": "scc_edges",
    "clustering_mean": "avg_clustering",
    "triangles": "triangles",
    "closed_triads": "closed",
    "transitivity": "transitivity",
    "core_max": "kcore_max",
    "articulation_daemons": "articulation",
    "bridges": "bridges",
    "diameter": "diameter",
    "effective_diameter": "eff_diameter90",
    "hops_mean": "mean_hops",
}
"""Metric -> what the table of truths calls it."""


def analyse(arcs: Arcs, seed: int = 0, detailed: bool = True) -> pa.Table:
    ends = list(zip(*arcs, strict=True)) or [(), ()]
    return snapshot(read(*(pa.array(one, pa.string()) for one in ends)), seed, detailed)


def metrics_of(table: pa.Table) -> dict[str, float | None]:
    rows = table.filter(pc.field("kind") == "metric")
    return dict(zip(rows["name"].to_pylist(), rows["value"].to_pylist(), strict=True))


def rows_of(table: pa.Table, kind: str, name: str | None = None) -> list[dict[str, Any]]:
    rows = table.filter(pc.field("kind") == kind).to_pylist()
    return [row for row in rows if name is None or row["name"] == name]


def graphs_of(arcs: Arcs) -> tuple[nx.DiGraph, nx.Graph]:
    """Return the arcs, and the links without self-loops."""
    directed = nx.DiGraph()
    directed.add_nodes_from(itertools.chain.from_iterable(filter(None, arc) for arc in arcs))
    directed.add_edges_from(arc for arc in arcs if arc[1] is not None)
    plain = nx.Graph(directed)
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    return directed, plain


def expected(arcs: Arcs) -> dict[str, float]:
    """Return what networkx finds."""
    directed, plain = graphs_of(arcs)
    loops = nx.number_of_selfloops(directed)
    whole = max(nx.connected_components(plain), key=len, default=set())
    strong = max(map(len, nx.strongly_connected_components(directed)), default=0)
    one_way = sum(directed.has_edge(a, b) != directed.has_edge(b, a) for a, b in plain.edges)
    found = {
        "daemons": len(plain),
        "links": plain.number_of_edges(),
        "arcs": directed.number_of_edges() - loops,
        "self_loops": loops,
        "one_way_links": one_way,
        "leaves": sum(degree == 1 for _, degree in plain.degree),
        "isolated": sum(degree == 0 for _, degree in plain.degree),
        "degree_max": max((degree for _, degree in plain.degree), default=0),
        "components": nx.number_connected_components(plain) if len(plain) else 0,
        "largest_component": len(whole),
        "strong_components": nx.number_strongly_connected_components(directed),
        "largest_strong_component": strong,
        "articulation_daemons": len(list(nx.articulation_points(plain))),
        "bridges": len(list(nx.bridges(plain))),
        "core_max": max(nx.core_number(plain).values(), default=0),
        "triangles": sum(nx.triangles(plain).values()) // 3,
    }
    if len(plain):
        found |= {
            "degree_mean": 2 * plain.number_of_edges() / len(plain),
            "clustering_mean": nx.average_clustering(plain),
            "transitivity": nx.transitivity(plain),
            "pagerank_max": max(
                nx.pagerank(directed_without_loops(directed), tol=1e-12, max_iter=1000).values()
            ),
            "betweenness_max": max(nx.betweenness_centrality(plain).values()),
        }
    inner = plain.subgraph(whole)
    if len(inner) > 1:
        laplacian = nx.laplacian_matrix(inner).toarray().astype(float)
        normal = nx.normalized_laplacian_matrix(inner).toarray()
        found |= {
            "diameter": nx.diameter(inner),
            "diameter_upper": nx.diameter(inner),
            "hops_mean": nx.average_shortest_path_length(inner),
            "algebraic_connectivity": np.linalg.eigvalsh(laplacian)[1],
            "spectral_gap": np.linalg.eigvalsh(normal)[1],
        }
    return found


def directed_without_loops(directed: nx.DiGraph) -> nx.DiGraph:
    other = directed.copy()
    other.remove_edges_from(list(nx.selfloop_edges(other)))
    return other


def cut_offs(arcs: Arcs) -> dict[frozenset[str], int]:
    """Return how many daemons each single point of failure cuts off, by taking each away."""
    _, plain = graphs_of(arcs)
    found = {}
    for daemon in nx.articulation_points(plain):
        inside = nx.node_connected_component(plain, daemon)
        rest = plain.subgraph(inside - {daemon})
        pieces = [len(one) for one in nx.connected_components(rest)]
        found[frozenset({daemon})] = sum(pieces) - max(pieces)
    for a, b in nx.bridges(plain):
        inside = nx.node_connected_component(plain, a)
        rest = nx.Graph(plain.subgraph(inside))
        rest.remove_edge(a, b)
        found[frozenset({a, b})] = min(len(one) for one in nx.connected_components(rest))
    return found


def random_arcs(number: int) -> Arcs:
    drawn = random.Random(number)
    daemons = drawn.randrange(2, 40)
    arcs: Arcs = [(f"d{i}", None) for i in range(0, daemons, 5)]
    for _ in range(drawn.randrange(1, 3 * daemons)):
        arcs.append((f"d{drawn.randrange(daemons)}", f"d{drawn.randrange(daemons)}"))
    return arcs


GRAPHS = SMALL | {f"random graph {i}": random_arcs(i) for i in range(examples(100))}


@pytest.mark.parametrize("name", GRAPHS)
def test_networkx_finds_the_same(name: str) -> None:
    found = metrics_of(analyse(GRAPHS[name]))
    for metric, value in expected(GRAPHS[name]).items():
        assert found[metric] == pytest.approx(value, rel=1e-6, abs=1e-6), metric


@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_single_point_of_failure_cuts_off_is_what_is_cut_off_when_it_is_taken_away(
    name: str,
) -> None:
    table = analyse(GRAPHS[name], detailed=False)
    found = {frozenset({row["id"]}): row["size"] for row in rows_of(table, "articulation")}
    found |= {frozenset({row["id"], row["other"]}): row["size"] for row in rows_of(table, "bridge")}
    assert found == cut_offs(GRAPHS[name])
    assert metrics_of(table)["worst_cut_off"] == max(found.values(), default=0)


@pytest.mark.parametrize("name", GRAPHS)
def test_with_all_of_the_advice_there_is_no_single_point_of_failure_left(name: str) -> None:
    arcs = GRAPHS[name]
    table = analyse(arcs)
    _, plain = graphs_of(arcs)
    joins = [(row["id"], row["other"]) for row in rows_of(table, "advice", "join")]
    new = [(row["id"], row["other"]) for row in rows_of(table, "advice", "redundancy")]
    assert not any(plain.has_edge(*link) for link in joins + new)
    plain.add_edges_from(joins)
    assert len(plain) == 0 or nx.is_connected(plain)
    if len(plain) < 3:
        return
    plain.add_edges_from(new)
    assert list(nx.articulation_points(plain)) == list(nx.bridges(plain)) == []
    last = rows_of(table, "advice", "redundancy")[-1:]
    assert [row["value"] for row in last] == [0.0] * len(last)
    assert metrics_of(table)["advice_links"] == len(joins) + len(new)


@pytest.mark.parametrize("name", ["two cliques and a bridge", "barbell", "tree", "ring"])
def test_known_answers(name: str) -> None:
    known = {
        "two cliques and a bridge": {
            "articulation_daemons": 2,
            "bridges": 1,
            "minimum_cut": 1,
            "advice_links": 1,
            "regions": 2,
        },
        "barbell": {"articulation_daemons": 4, "bridges": 3, "minimum_cut": 1, "advice_links": 1},
        "tree": {"bridges": 14, "articulation_daemons": 7, "advice_links": 4, "triangles": 0},
        "ring": {
            "bridges": 0,
            "articulation_daemons": 0,
            "diameter": 6,
            "advice_links": 0,
            "two_link_cuts": 66,
            "minimum_cut": 2,
        },
    }[name]
    found = metrics_of(analyse(SMALL[name]))
    assert {metric: found[metric] for metric in known} == known


@pytest.mark.parametrize("name", SMALL)
def test_every_metric_is_told_or_why_it_is_not(name: str) -> None:
    rows = rows_of(analyse(SMALL[name]), "metric")
    assert sorted(row["name"] for row in rows) == sorted(METRICS)
    for row in rows:
        assert (row["value"] is None) == bool(row["text"]), row
        assert row["value"] is None or math.isfinite(row["value"])


def test_the_order_of_rows_does_not_matter() -> None:
    arcs = [*GRAPHS["random graph 3"], *SMALL["barbell"], *SMALL["ring"]]
    first = analyse(arcs)
    assert first.schema == SCHEMA
    for number in range(3):
        random.Random(number).shuffle(arcs)
        assert analyse(arcs).equals(first)
    assert not analyse(arcs, seed=1).equals(first)


@pytest.mark.parametrize("name", topologies.REAL)
def test_real_topologies_are_as_they_are_known(name: str) -> None:
    known = topologies.truth(name)
    table = analyse(topologies.read_arcs(topologies.real(name)), detailed=False)
    found = metrics_of(table)
    # A list of links has been given a direction by its writer: its arcs mean nothing.
    undirected = not known["sccs"]
    for metric, column in REAL.items():
        if not known[column]:
            assert undirected
            continue
        digits = len(known[column].partition(".")[2])
        assert f"{found[metric]:.{digits}f}" == known[column], metric
    if known["directed_edges"]:
        assert found["arcs"] + found["self_loops"] == int(known["directed_edges"])
        assert found["largest_component_arcs"] == int(known["wcc_edges"])


def test_what_a_sample_would_tell_nothing_of_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsubd.topology.kernel.snapshot.LARGE", 9)
    table = analyse(SMALL["barbell"])
    why = {row["name"]: row["text"] for row in rows_of(table, "metric") if row["value"] is None}
    left_out = {
        "betweenness_max",
        "shortcut_hops_mean",
        "twin_hops_mean",
        "twin_effective_diameter",
    }
    assert {name for name, text in why.items() if "not computed" in text} == left_out
    assert rows_of(table, "advice", "shortcut") == []
    assert {row["betweenness"] for row in rows_of(table, "daemon")} == {None}
    assert rows_of(table, "advice", "redundancy") != []


def test_a_shortcut_after_which_all_are_neighbours_leaves_one_hop() -> None:
    arcs = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    rows = snapshot(read(*(pa.array(ends) for ends in zip(*arcs, strict=True))), 0, True)
    shortcuts = rows.filter((pc.field("kind") == "advice") & (pc.field("name") == "shortcut"))
    assert shortcuts["text"].to_pylist() == ["1 hop in the mean"]
