"""Resilience against the loss of daemons, and the twin that shows how much could be left."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from pubsubd.topology.kernel import resilience
from pubsubd.topology.kernel.graph import Graph, build, read
from pubsubd.topology.kernel.hops import hops
from pubsubd.topology.kernel.structure import components
from pubsubd.topology.kernel.twin import twin, twin_degree
from tests.topologies import SMALL, Arcs, clique, read_arcs, real, ring, star


def graph(arcs: Arcs) -> Graph:
    src = pa.array([src for src, _ in arcs], pa.string())
    return read(src, pa.array([dst for _, dst in arcs], pa.string()))


def sizes(g: Graph, order: list[int]) -> list[int]:
    """Tell how large the largest component is with 0, 1, ... all daemons removed, by networkx."""
    known = nx.Graph()
    known.add_nodes_from(range(g.n))
    known.add_edges_from(zip(g.tails.tolist(), g.heads.tolist(), strict=True))
    found = []
    for daemon in [*order, None]:
        found.append(max(map(len, nx.connected_components(known)), default=0))
        if daemon is not None:
            known.remove_node(daemon)
    return found


def same_curve(g: Graph, order: list[int], steps: int) -> None:
    curve = resilience.removal_curve(g, np.array(order), steps)
    known = sizes(g, order)
    points = [round(i / steps * g.n) for i in range(steps + 1)]
    assert (curve.largest * g.n).round().astype(int).tolist() == [known[p] for p in points]
    assert curve.removed.tolist() == pytest.approx([i / steps for i in range(steps + 1)])
    half = next(k for k, size in enumerate(known) if 2 * size < known[0])
    assert curve.half_lost == half / g.n
    assert curve.robustness == pytest.approx(np.mean(curve.largest[1:]))


@pytest.mark.parametrize("small", [0, 10**9], ids=["by points", "one by one"])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_is_what_networkx_finds(seed, small, monkeypatch):
    monkeypatch.setattr(resilience, "SMALL", small)
    random = np.random.default_rng(seed)
    n = 1 + 9 * seed
    g = build(n, random.integers(0, n, 2 * n), random.integers(0, n, 2 * n))
    for steps in (100, 7):
        same_curve(g, random.permutation(n).tolist(), steps)


@pytest.mark.parametrize("small", [0, 10**9], ids=["by points", "one by one"])
@pytest.mark.parametrize("name", [name for name in SMALL if name != "empty"])
def test_every_shape_falls_apart_as_networkx_finds(name, small, monkeypatch):
    monkeypatch.setattr(resilience, "SMALL", small)
    g = graph(SMALL[name])
    same_curve(g, resilience.by_degree(g).tolist(), 10)


def test_without_daemons_nothing_is_left():
    found = resilience.resilience(graph([]), 1)
    for curve in (found.random, found.targeted):
        assert set(curve.largest) == {0.0}
        assert np.isnan(curve.half_lost)
        assert curve.robustness == 0


def test_a_star_is_lost_with_its_hub_and_a_clique_with_half_of_its_daemons():
    lost = resilience.resilience(graph(star(99)), 1).targeted
    assert lost.half_lost == 0.01
    assert lost.largest[:3].tolist() == [1, 0.01, 0.01]
    whole = resilience.resilience(graph(clique(20)), 1)
    assert whole.targeted.half_lost == whole.random.half_lost == 11 / 20
    assert whole.random.error == 0
    assert whole.targeted.robustness == pytest.approx(0.5, abs=0.03)


def test_the_best_connected_are_removed_first_and_equal_ones_in_their_order():
    g = graph([*star(5), ("n3", "n4"), ("n4", "z"), ("z", "y")])
    names = [g.ids[i].as_py() for i in resilience.by_degree(g)]
    assert names == ["hub", "n4", "n3", "z", "n0", "n1", "n2", "y"]


def test_random_losses_are_the_mean_of_orders_that_the_seed_makes():
    g = graph(ring(200))
    one, same, other = (resilience.resilience(g, seed) for seed in (1, 1, 2))
    assert one.random.largest.tobytes() == same.random.largest.tobytes()
    assert one.random.largest.tolist() != other.random.largest.tolist()
    assert one.random.half_lost != one.targeted.half_lost
    halves = [
        resilience.removal_curve(g, np.random.default_rng([1, 3, i]).permutation(200)).half_lost
        for i in range(resilience.ORDERS)
    ]
    assert one.random.half_lost == pytest.approx(np.mean(halves))
    assert one.random.error == pytest.approx(np.std(halves, ddof=1) / len(halves) ** 0.5)


def test_a_path_of_a_hundred_thousand_daemons_breaks_at_once():
    count = 100_000
    g = build(count, np.arange(count - 1), np.arange(1, count))
    middle = np.argsort(np.abs(np.arange(count) - 49_999.5), kind="stable")
    curve = resilience.removal_curve(g, middle)
    assert curve.half_lost == 2 / count  # with one daemon less, one half has 50,000 of them
    assert curve.largest[1] == 0.495


def test_half_of_gnutella_is_lost_at_a_seventh_and_of_its_twin_at_nearly_half():
    g = graph(read_arcs(real("p2p-Gnutella31.txt")))
    share = resilience.removal_curve(g, resilience.by_degree(g)).half_lost
    assert share == pytest.approx(0.14, abs=0.005)
    inner = components(g)
    made = twin(inner.largest, g.m, 1)
    share = resilience.removal_curve(made, resilience.by_degree(made)).half_lost
    assert share == pytest.approx(0.45, abs=0.01)


# The twin


@pytest.mark.parametrize(
    ("daemons", "links", "degree"),
    [(10, 10, 2), (10, 5, 2), (10, 15, 2), (10, 16, 4), (10, 25, 4), (10, 26, 6), (0, 0, 2)],
)
def test_a_twins_degree_is_the_even_number_nearest_to_the_mean(daemons, links, degree):
    assert twin_degree(daemons, links) == degree


def test_a_twin_is_connected_and_all_but_regular():
    made = twin(500, 1000, 3)
    assert made.n == 500
    assert components(made).count == 1
    assert made.degrees.max() == 4
    assert (made.degrees == 4).mean() > 0.95
    assert hops(made, np.zeros(500, np.int32), 1).mean < 6


def test_a_twin_is_the_same_for_the_same_seed_only():
    one, same, other = twin(50, 100, 1), twin(50, 100, 1), twin(50, 100, 2)
    assert one.tails.tolist() == same.tails.tolist()
    assert one.heads.tolist() == same.heads.tolist()
    assert one.heads.tolist() != other.heads.tolist()


@pytest.mark.parametrize(("daemons", "links"), [(0, 0), (1, 0), (2, 1), (3, 2)])
def test_a_twin_of_almost_nothing_has_no_more_links_than_there_can_be(daemons, links):
    made = twin(daemons, links, 1)
    assert made.n == daemons
    assert made.m == daemons * (daemons - 1) // 2


def test_a_twin_holds_longer_than_a_star_with_as_many_links():
    g = graph([*star(199), *[(f"n{i}", f"n{i + 1}") for i in range(0, 198, 2)]])
    alone = resilience.resilience(g, 1).targeted
    other = resilience.resilience(twin(g.n, g.m, 1), 1).targeted
    assert alone.half_lost == 1 / 200
    assert other.half_lost > 0.02
