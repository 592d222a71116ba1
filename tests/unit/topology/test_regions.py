"""Regions, the cut between the two largest, and the picture that is made of them."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from pubsubd.topology.kernel import drawing
from pubsubd.topology.kernel.cuts import blocks
from pubsubd.topology.kernel.drawing import Link, Node, layout
from pubsubd.topology.kernel.graph import Graph, build
from pubsubd.topology.kernel.regions import minimum_cut, modularity, regions
from pubsubd.topology.kernel.structure import components, order_labels
from tests.topologies import SMALL, Arcs, clique, path, read_arcs, real, ring, star
from tests.unit.topology.test_structure import graph, oracle, random_graphs

RANDOM = random_graphs(40)
CAVES: Arcs = [
    *(link for name in "abcd" for link in clique(6, name)),
    *[("a0", "b0"), ("a1", "b1"), ("b2", "c2"), ("c3", "d3")],
]
"""Four cliques: a and b have two links between them, the others one."""


def draw(g: Graph) -> tuple[list[Node], list[Link]]:
    return layout(g, blocks(g), regions(g, seed=0), seed=0)


# Regions


def test_cliques_with_few_links_between_them_are_regions():
    g = graph(CAVES)
    found = regions(g, seed=0)
    assert (found.count, found.sizes.tolist()) == (4, [6, 6, 6, 6])
    assert [name[0] for name in g.ids.to_pylist()] == ["abcd"[i] for i in found.labels]


def test_the_modularity_is_that_of_networkx():
    for g in RANDOM:
        if not g.m:
            continue
        found = regions(g, seed=1)
        parts = [set(np.flatnonzero(found.labels == i).tolist()) for i in range(found.count)]
        known = nx.community.modularity(oracle(g), parts)
        assert found.modularity == pytest.approx(known)
        assert modularity(g, found.labels) == found.modularity


def test_the_largest_region_is_number_0_and_none_spans_two_components():
    for g in RANDOM:
        found = regions(g, seed=1)
        assert found.sizes.tolist() == sorted(found.sizes.tolist(), reverse=True)
        assert found.sizes.tolist() == np.bincount(found.labels).tolist()
        labels = components(g).labels
        for region in range(found.count):
            assert len(set(labels[found.labels == region].tolist())) == 1


def test_daemons_without_links_are_regions_of_their_own():
    found = regions(graph([("a", None), ("b", "b"), ("c", None)]), seed=0)
    assert (found.count, found.labels.tolist(), found.modularity) == (3, [0, 1, 2], 0.0)


def test_the_same_seed_makes_the_same_regions():
    rng = np.random.default_rng(2)
    g = build(500, rng.integers(0, 500, 1_500), rng.integers(0, 500, 1_500))
    again = build(500, g.tails, g.heads)
    assert np.array_equal(regions(g, seed=7).labels, regions(again, seed=7).labels)


# The minimum cut


def test_the_minimum_cut_is_as_large_as_that_of_networkx_and_separates_the_regions():
    rng = np.random.default_rng(3)
    tried = 0
    for g in RANDOM:
        for labels in (regions(g, seed=0).labels, order_labels(rng.integers(0, 4, g.n))[0]):
            found = minimum_cut(g, labels)
            if labels.max() < 1:
                assert found.size is None
                assert found.reason
                continue
            tried += 1
            assert found.size == len(found.links) == known_cut(g, labels)
            cut = oracle(g)
            cut.remove_edges_from(
                zip(g.tails[found.links].tolist(), g.heads[found.links].tolist(), strict=True)
            )
            for region in (0, 1):  # each one holds together whatever is cut
                nx.add_path(cut, np.flatnonzero(labels == region).tolist())
            first = [int(np.argmax(labels == region)) for region in (0, 1)]
            assert not nx.has_path(cut, *first)
    assert tried > 40


def known_cut(g: Graph, labels: np.ndarray) -> int:
    names = [f"region {label}" if label < 2 else i for i, label in enumerate(labels.tolist())]
    network = nx.Graph()
    network.add_nodes_from(["region 0", "region 1"])
    for tail, head in zip(g.tails.tolist(), g.heads.tolist(), strict=True):
        ends = names[tail], names[head]
        if ends[0] != ends[1]:
            before = network.get_edge_data(*ends, {"capacity": 0})["capacity"]
            network.add_edge(*ends, capacity=before + 1)
    return nx.minimum_cut_value(network, "region 0", "region 1")


def test_two_cliques_are_cut_at_their_links():
    g = graph(CAVES)
    found = minimum_cut(g, regions(g, seed=0).labels)
    names = g.ids.to_pylist()
    cut = [(names[g.tails[link]], names[g.heads[link]]) for link in found.links]
    assert (found.size, cut) == (2, [("a0", "b0"), ("a1", "b1")])


def test_regions_that_are_not_connected_are_cut_by_nothing():
    g = graph([*clique(5, "a"), *clique(4, "b")])
    found = minimum_cut(g, regions(g, seed=0).labels)
    assert (found.size, found.reason, len(found.links)) == (0, "", 0)


def test_one_region_has_no_cut_and_it_is_said_why():
    found = minimum_cut(graph(clique(5)), np.zeros(5, np.int32))
    assert (found.size, found.reason) == (None, "there is only one region")


def test_no_cut_is_computed_of_too_many_links_and_it_is_said_so():
    g = graph(CAVES)
    found = minimum_cut(g, regions(g, seed=0).labels, most=60)
    assert (found.size, found.reason) == (None, "not computed for more than 60 links")


# The picture


@pytest.mark.parametrize("arcs", SMALL.values(), ids=SMALL)
def test_a_small_mesh_is_drawn_daemon_by_daemon(arcs: Arcs):
    g = graph(arcs)
    nodes, links = draw(g)
    found = blocks(g)
    cut_off = dict(zip(found.articulation.tolist(), found.cut_off.tolist(), strict=True))
    assert [node.label for node in nodes] == g.ids.to_pylist()
    assert [node.cut_off for node in nodes] == [cut_off.get(i, 0) for i in range(g.n)]
    assert {node.label for node in nodes if node.role == "articulation"} == {
        g.ids[daemon].as_py() for daemon in cut_off
    }
    keys = [node.key for node in nodes]
    ends = [(keys.index(link.a), keys.index(link.b)) for link in links]
    assert sorted(ends) == list(zip(g.tails.tolist(), g.heads.tolist(), strict=True))
    assert sum(link.role == "bridge" for link in links) == len(found.bridges)


def test_places_are_within_the_picture_and_differ():
    shapes = [*SMALL.values(), star(99), path(99), ring(99)]
    for g in [*RANDOM, *map(graph, shapes)]:
        places = [(node.x, node.y) for node in draw(g)[0]]
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)
        assert len(set(places)) == g.n


def test_linked_daemons_are_drawn_nearer_than_others():
    nodes, links = draw(graph(CAVES))
    at = {node.key: np.array([node.x, node.y]) for node in nodes}
    linked = {frozenset((link.a, link.b)) for link in links}
    near, far = [], []
    for a, b in itertools.combinations(at, 2):
        (near if frozenset((a, b)) in linked else far).append(np.linalg.norm(at[a] - at[b]))
    assert np.mean(near) < 0.6 * np.mean(far)


def test_a_path_is_drawn_straight_and_in_the_middle():
    g = graph(path(60))
    at = {node.label: node for node in draw(g)[0]}
    x = [at[f"n{i}"].x for i in range(60)]
    assert x in (sorted(x), sorted(x, reverse=True))
    assert min(x) + max(x) == pytest.approx(1.0, abs=0.02)
    assert max(x) - min(x) > 0.9
    assert [node.y for node in at.values()] == pytest.approx([0.5] * 60, abs=0.05)


def broken_mesh() -> Graph:
    """A mesh of 500 daemons, of which 30 cut off a chain of 1 to 30 others each."""
    rng = np.random.default_rng(4)
    tails, heads = list(range(500)), [(i + 1) % 500 for i in range(500)]
    tails += rng.integers(0, 500, 1_000).tolist()
    heads += rng.integers(0, 500, 1_000).tolist()
    n = 500
    for daemon in range(30):
        for up in [daemon, *range(n, n + daemon)]:
            tails.append(up)
            heads.append(n)
            n += 1
    return build(n, np.array(tails), np.array(heads))


def test_a_large_mesh_is_drawn_as_regions_and_its_worst_daemons():
    g = broken_mesh()
    nodes, links = draw(g)
    assert sum(node.size for node in nodes) == g.n
    found = blocks(g)
    worst = np.lexsort((found.articulation, -found.cut_off))[: drawing.WORST]
    named = {node.label: node.cut_off for node in nodes if node.role == "articulation"}
    assert named == {
        g.ids[int(found.articulation[i])].as_py(): int(found.cut_off[i]) for i in worst
    }
    keys = {node.key for node in nodes}
    assert len(keys) == len(nodes)
    assert {end for link in links for end in (link.a, link.b)} <= keys


def test_what_a_daemon_cuts_off_is_drawn_behind_it():
    g = broken_mesh()
    for mesh in (g, build(g.n, g.n - 1 - g.tails, g.n - 1 - g.heads)):
        known, found = oracle(mesh), blocks(mesh)
        worst = np.lexsort((found.articulation, -found.cut_off))[: drawing.WORST]
        cut_off = []
        for daemon in found.articulation[worst].tolist():
            pieces = sorted(nx.connected_components(known.subgraph(set(known) - {daemon})), key=len)
            cut_off.append((daemon, set().union(*pieces[:-1])))
        wanted = {}
        for daemon, behind in cut_off:
            # What a worse place has in it as well is drawn at the nearer one.
            inner = [{one, *more} for one, more in cut_off if one in behind]
            if left := behind.difference(*inner):
                wanted[f"cut-off:{mesh.ids[daemon].as_py()}"] = len(left)
        nodes, _ = draw(mesh)
        assert {node.key: node.size for node in nodes if node.role == "cut-off"} == wanted


def test_many_links_to_what_is_cut_off_are_drawn_as_one():
    nodes, links = draw(graph([*star(600), *clique(5, "n")]))
    sizes = {node.key: node.size for node in nodes}
    assert (sizes["daemon:hub"], sizes["cut-off:hub"]) == (1, 595)
    found = [link for link in links if link.b == "cut-off:hub"]
    assert found == [Link("daemon:hub", "cut-off:hub", 595, "link")]


def test_a_mesh_in_a_thousand_pieces_is_drawn_within_its_limits():
    n = 3_000
    pairs = np.arange(0, n, 2)
    nodes, links = draw(build(n + 500, pairs, pairs + 1))
    assert len(nodes) == drawing.MOST_REGIONS + 1
    assert {node.key for node in nodes if node.size > 2} == {"region:others"}
    assert sum(node.size for node in nodes) == n + 500
    assert len(links) == 0
    none = np.zeros(0, np.int64)
    assert len(draw(build(drawing.EVERY_DAEMON + 1, none, none))[0]) == drawing.MOST_REGIONS + 1


def test_a_dense_mesh_is_drawn_within_its_limits():
    rng = np.random.default_rng(6)
    tails, heads = rng.integers(0, 389, (2, 20_000))
    hub = np.zeros(389, np.int64)  # has the most links of all, and the bridge
    links = draw(build(390, np.append(tails, hub), np.append(heads, 1 + np.arange(389))))[1]
    assert len(links) == drawing.MOST_SMALL_LINKS
    assert sum(link.role == "bridge" for link in links) == 1


def test_a_real_network_is_drawn_within_the_limits():
    nodes, links = draw(graph(read_arcs(real("p2p-Gnutella31.txt"))))
    assert len(nodes) <= 300
    assert len(links) <= drawing.MOST_LINKS
    assert sum(node.size for node in nodes) == 62_586
    assert sum(node.role == "articulation" for node in nodes) == drawing.WORST


def test_the_same_mesh_is_drawn_the_same():
    g = broken_mesh()
    assert draw(g) == draw(build(g.ids, g.heads[::-1], g.tails[::-1]))
