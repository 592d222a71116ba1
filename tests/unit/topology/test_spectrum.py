"""The eigenvalues that tell how firmly a mesh hangs together."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from scipy import linalg

from pubsubd.topology.kernel import spectrum
from pubsubd.topology.kernel.graph import Graph, build, read
from pubsubd.topology.kernel.hops import largest_component
from pubsubd.topology.kernel.structure import components
from pubsubd.topology.kernel.twin import twin
from tests.topologies import SMALL, Arcs, clique, path, read_arcs, real, ring, star


def graph(arcs: Arcs) -> Graph:
    src = pa.array([src for src, _ in arcs], pa.string())
    return read(src, pa.array([dst for _, dst in arcs], pa.string()))


def line(count: int) -> Graph:
    return build(count, np.arange(count - 1), np.arange(1, count))


def measure(g: Graph, seed: int = 1) -> spectrum.Spectrum:
    return spectrum.spectrum(g, components(g).labels, seed)


def dense(g: Graph) -> tuple[float, float]:
    inner = largest_component(g, components(g).labels)
    known = nx.Graph(zip(inner.tails.tolist(), inner.heads.tolist(), strict=True))
    matrices = [
        nx.normalized_laplacian_matrix(known).toarray(),
        nx.laplacian_matrix(known).toarray().astype(float),
    ]
    gap, connectivity = (float(linalg.eigvalsh(matrix)[1]) for matrix in matrices)
    return gap, connectivity


def same_spectrum(g: Graph, rel: float = 1e-7) -> None:
    found = measure(g)
    gap, connectivity = dense(g)
    assert found.gap.value == pytest.approx(gap, rel=rel)
    assert found.connectivity.value == pytest.approx(connectivity, rel=rel)


@pytest.fixture
def iterated(monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE", 2)


@pytest.mark.parametrize(
    "name", [name for name in SMALL if name not in {"empty", "one daemon", "self-loops only"}]
)
def test_small_graphs_have_the_eigenvalues_that_networkx_finds(name):
    same_spectrum(graph(SMALL[name]))


@pytest.mark.parametrize(
    "name", [name for name in SMALL if name not in {"empty", "one daemon", "self-loops only"}]
)
def test_small_graphs_have_the_same_eigenvalues_by_rounds(name, iterated):
    same_spectrum(graph(SMALL[name]))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_have_the_same_eigenvalues_by_rounds(seed, iterated):
    random = np.random.default_rng(seed)
    n = 20 + 8 * seed
    m = [n, 2 * n, 5 * n][seed % 3]
    same_spectrum(build(n, random.integers(0, n, m), random.integers(0, n, m)))


@pytest.mark.parametrize("seed", range(4))
def test_a_stated_error_bounds_the_distance_to_an_eigenvalue(seed, iterated, monkeypatch):
    monkeypatch.setattr(spectrum, "FINE", 0)  # so that there is an error to speak of
    random = np.random.default_rng(seed)
    g = build(80, random.integers(0, 80, 200), random.integers(0, 80, 200))
    found = measure(g)
    gap, connectivity = dense(g)
    for value, known in ((found.gap, gap), (found.connectivity, connectivity)):
        assert 0 < value.error <= 1e-3 * value.value
        assert known * (1 - 1e-9) <= value.value <= known + value.error


@pytest.mark.parametrize("count", [100, 1000, 100_000])
def test_a_path_and_a_ring_of_any_length_have_the_eigenvalues_of_the_formula(count):
    angle = np.pi / count
    found = measure(line(count))
    assert found.connectivity.value == pytest.approx(4 * np.sin(angle / 2) ** 2, rel=1e-5)
    assert found.gap.value == pytest.approx(2 * np.sin(np.pi / (count - 1) / 2) ** 2, rel=1e-5)
    whole = build(count, np.arange(count), (np.arange(count) + 1) % count)
    found = measure(whole)
    assert found.connectivity.value == pytest.approx(4 * np.sin(angle) ** 2, rel=1e-5)
    assert found.gap.value == pytest.approx(2 * np.sin(angle) ** 2, rel=1e-5)


def test_a_star_and_a_clique_have_the_eigenvalues_of_the_formula():
    for size in (20, 300):
        found = measure(graph(star(size)))
        assert found.connectivity.value == pytest.approx(1)
        assert found.gap.value == pytest.approx(1)
        found = measure(graph(clique(size)))
        assert found.connectivity.value == pytest.approx(size)
        assert found.gap.value == pytest.approx(size / (size - 1))


def test_trees_that_hang_on_a_mesh_cost_hardly_a_round_more(monkeypatch):
    monkeypatch.setattr(spectrum, "ROUNDS", 30)  # 20 are enough; without elimination it takes 200
    monkeypatch.setattr(spectrum, "ROUGH", 1e-5)
    # On a mesh of 100 hangs a path of 30: nothing but the path's length matters.
    mesh = twin(100, 300, 1)
    tails = np.concatenate([mesh.tails, [0], np.arange(100, 129)])
    heads = np.concatenate([mesh.heads, [100], np.arange(101, 130)])
    same_spectrum(build(130, tails, heads))


def test_without_two_linked_daemons_it_says_why_there_is_none():
    for arcs in ([], [("a", None)], [("a", "a")]):
        found = measure(graph(arcs))
        assert found.gap.value is None
        assert found.connectivity.value is None
        assert "two daemons" in found.gap.reason


def test_a_mesh_that_falls_apart_easily_is_solved_where_rounds_do_not_do(monkeypatch):
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(43, 34))
    ends = np.array(grid.edges)
    monkeypatch.setattr(spectrum, "ROUNDS", 20)  # in 300 they might do
    g = build(len(grid), ends[:, 0], ends[:, 1])
    found = measure(g)
    assert found.connectivity.value == pytest.approx(2 - 2 * np.cos(np.pi / 43), rel=1e-9)
    assert found.gap.error is found.connectivity.error is None
    assert measure(g, seed=2) == found, "no digit depends on the start"
    monkeypatch.setattr(spectrum, "SOLVED", 1_000)
    assert measure(g).gap.reason.startswith("not computed: after 20 rounds it was ")


def test_out_of_rounds_it_says_how_far_it_came(iterated, monkeypatch):
    monkeypatch.setattr(spectrum, "ROUNDS", 3)
    monkeypatch.setattr(spectrum, "ROUGH", 1e-6)
    monkeypatch.setattr(spectrum, "SOLVED", 0)
    found = measure(twin(500, 1000, 1)).connectivity
    assert found.value is None
    assert found.reason.startswith("not computed: after 3 rounds it was ")


def test_the_same_seed_gives_the_same_digits():
    g = twin(500, 1000, 1)
    assert measure(g) == measure(g)


def test_only_the_largest_component_counts():
    arcs: Arcs = [*path(5), *[(f"x{a}", f"x{b}") for a, b in ring(9)]]
    assert measure(graph(arcs)).connectivity.value == pytest.approx(4 * np.sin(np.pi / 9) ** 2)


def test_gnutella_has_a_gap_of_a_sixteenth():
    found = measure(graph(read_arcs(real("p2p-Gnutella31.txt"))))
    # As scipy's eigsh has it, and its LOBPCG for the second.
    assert found.gap.value == pytest.approx(0.0598924760, abs=1e-6)
    assert found.connectivity.value == pytest.approx(0.1131274590, abs=1e-6)
    assert found.gap.error < 1e-4
