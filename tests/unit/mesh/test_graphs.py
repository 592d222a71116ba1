"""Graphs for simulated meshes: made, and read from files."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.mesh.graphs import (
    Graph,
    GraphError,
    line,
    neighbours,
    reach,
    read_graph,
    regular,
    ring,
    small_world,
    tree,
)


def degrees(graph: Graph) -> Counter[int]:
    return Counter(len(near) for near in neighbours(graph).values())


def check(graph: Graph, count: int) -> None:
    """Check that it is sorted, simple and connected, of the daemons n1, n2, ..."""
    assert graph == sorted(graph)
    assert all(src != dst for src, dst in graph)
    assert len({frozenset(edge) for edge in graph}) == len(graph)
    assert reach("n1", neighbours(graph)) == {f"n{i}" for i in range(1, count + 1)}


def test_a_line_has_two_ends() -> None:
    assert line(3) == [("n1", "n2"), ("n2", "n3")]
    check(line(20), 20)


def test_a_ring_has_none() -> None:
    check(ring(12), 12)
    assert degrees(ring(12)) == {2: 12}


def test_a_tree_has_a_link_less_than_daemons() -> None:
    check(tree(20), 20)
    assert len(tree(20)) == 19
    assert degrees(tree(7)) == {1: 4, 3: 2, 2: 1}
    check(tree(20, 3), 20)


@given(st.integers(2, 40), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_regular_graph_has_the_same_degree_everywhere(
    count: int, degree: int, rng: random.Random
) -> None:
    if degree >= count or count * degree % 2 or (degree == 1 and count > 2):
        with pytest.raises(GraphError, match="each"):
            regular(count, degree, rng)
        return
    graph = regular(count, degree, rng)
    check(graph, count)
    assert degrees(graph) == {degree: count}


@given(st.integers(5, 40), st.floats(0, 1), st.randoms(use_true_random=False))
def test_a_small_world_has_the_links_of_its_ring(
    count: int, rewired: float, rng: random.Random
) -> None:
    graph = small_world(count, rng, rewired=rewired)
    check(graph, count)
    assert len(graph) == 2 * count


def test_a_small_world_is_small() -> None:
    ways = neighbours(small_world(500, random.Random(1)))
    reached, hops = {"n1"}, 0
    while len(reached) < 500:
        reached |= {other for node in reached for other in ways[node]}
        hops += 1
    assert hops < 25  # 125 in the ring that it is made from


def test_the_same_seed_makes_the_same_graph() -> None:
    assert regular(50, 4, random.Random(7)) == regular(50, 4, random.Random(7))
    assert regular(50, 4, random.Random(7)) != regular(50, 4, random.Random(8))
    assert small_world(50, random.Random(7)) == small_world(50, random.Random(7))


@pytest.mark.parametrize(
    "make",
    [
        lambda: line(1),
        lambda: ring(2),
        lambda: tree(5, 0),
        lambda: regular(5, 0, random.Random(1)),
        lambda: small_world(10, random.Random(1), 3),
        lambda: small_world(4, random.Random(1), 4),
        lambda: small_world(10, random.Random(1), 4, 1.5),
    ],
)
def test_what_cannot_be_made_is_refused(make) -> None:
    with pytest.raises(GraphError):
        make()


# Files


def read(tmp_path: Path, text: str | bytes) -> Graph:
    path = tmp_path / "graph"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_graph(path)


@pytest.mark.parametrize(
    "text",
    [
        "a b\nb c\n",
        "# two columns\n\na\tb\r\nb\tc",
        "a,b\n b , c  # the last\n",
        "\ufeffb   c\n   a b\n",
        "a b\na b\nb c\n",
        "a\tb\t0.5\twifi\nb\tc\t\t\tvpn\n",
    ],
)
def test_lists_with_any_separator_are_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [("a", "b"), ("b", "c")]


def test_daemons_may_dial_themselves_and_each_other(tmp_path: Path) -> None:
    assert read(tmp_path, "b a\na b\na a\n") == [("a", "a"), ("a", "b"), ("b", "a")]


def row(src: str, dst: str, ts: str, state: str = "up") -> str:
    return json.dumps({"ts": ts, "observer": src, "src": src, "dst": dst, "state": state}) + "\n"


def test_of_several_rows_of_a_link_the_latest_counts(tmp_path: Path) -> None:
    rows = [
        row("a", "b", "2026-11-28T06:00:09.000Z"),
        row("a", "b", "2026-11-28T06:00:01.000Z", "down"),
        row("b", "c", "2026-11-28T06:00:02.000Z"),
        row("b", "c", "2026-11-28T06:00:03.000Z", "down"),
        row("c", "d", "2026-11-28T06:00:03.000Z"),
        row("c", "d", "2026-11-28T06:00:03.000Z"),
    ]
    assert read(tmp_path, "".join(rows)) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b\nc\n", 'line 2: "c" is not: <src> <dst>'),
        ("a b c\n", 'line 1: "a b c" is not'),
        ("a,b,c\n", 'line 1: "a,b,c" is not'),
        ("# a\n\tb\n", "line 2: "),
        ("a b\x1b[2J\n", "line 1: "),
        ("a " + "b" * 65, "line 1: "),
        (b"a b\na \xff\n", "line 2: not UTF-8"),
        ('{"src": "a", "dst": "b"}\n{"src": "a"\n', "line 2: it begins like a JSON object"),
        ("{" * 100_000, "line 1: it begins"),
        ('{"src": "a", "dst": 1}\n', 'line 1: a row needs the texts "src" and "dst"'),
        ('{"src": "a", "dst": "b", "state": 1}\n', 'line 1: "ts" has to be'),
        ("", "there is no link in it"),
        ('{"src": "a", "dst": "b", "state": "down"}\n', "there is no link in it"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, text: str | bytes, reason: str
) -> None:
    with pytest.raises(GraphError, match=re.escape(reason)) as caught:
        read(tmp_path, text)
    assert str(caught.value).isprintable()


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "none")
