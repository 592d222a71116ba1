"""Graphs for the tests of the analysis: real ones, where they are, and small ones."""

from __future__ import annotations

import csv
import itertools
import os
from pathlib import Path

import pyarrow as pa
import pytest

from pubsubd.topology.kernel.graph import Graph, read

Arcs = list[tuple[str, str | None]]
"""An arc's ends; a daemon without links has no second one."""

REAL = [
    "p2p-Gnutella04.txt",
    "p2p-Gnutella06.txt",
    "p2p-Gnutella08.txt",
    "p2p-Gnutella24.txt",
    "p2p-Gnutella31.txt",
    "as20000102.txt",
    "freifunk-berlin.edges.tsv",
    "freifunk-ulm.edges.tsv",
]
"""Real topologies of which some figures are known."""

_DATA = Path(os.environ.get("PUBSUBD_TOPOLOGIES", Path(__file__).parents[2] / "shared" / "data"))


def real(name: str) -> Path:
    """Return the file of a real topology; the test is skipped where there is none."""
    path = _DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here: PUBSUBD_TOPOLOGIES may name the folder with it")
    return path


def truth(name: str) -> dict[str, str]:
    """Return what is known of a real topology: column -> figure, empty when it is not known."""
    with real("truth.tsv").open(encoding="utf-8") as file:
        return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}[name]


def read_arcs(path: Path) -> Arcs:
    """Return the arcs of a list of two columns, with its repeats and self-loops."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        (one[0], one[1]) for line in lines if not line.startswith("#") and (one := line.split())
    ]


def graph(arcs: Arcs) -> Graph:
    """Return the graph that the analysis makes of some arcs."""
    src = pa.array([src for src, _ in arcs], pa.string())
    return read(src, pa.array([dst for _, dst in arcs], pa.string()))


def path(count: int) -> Arcs:
    return [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]


def ring(count: int) -> Arcs:
    return [*path(count), (f"n{count - 1}", "n0")]


def clique(count: int, name: str = "n") -> Arcs:
    return list(itertools.combinations([f"{name}{i}" for i in range(count)], 2))


def tree(count: int) -> Arcs:
    return [(f"n{i}", f"n{(i - 1) // 2}") for i in range(1, count)]


def star(leaves: int) -> Arcs:
    return [("hub", f"n{i}") for i in range(leaves)]


SMALL: dict[str, Arcs] = {
    "empty": [],
    "one daemon": [("a", None)],
    "self-loops only": [("a", "a"), ("b", "b")],
    "one link": [("a", "b")],
    "both directions": [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")],
    "repeats": [("a", "b"), ("a", "b"), ("b", "c"), ("a", "b"), ("b", "c")],
    "isolated daemons": [("a", "b"), ("b", "c"), ("c", "a"), ("x", None), ("y", None)],
    "path": path(12),
    "ring": ring(12),
    "clique": clique(7),
    "tree": tree(15),
    "star": star(9),
    "two cliques and a bridge": [*clique(5, "a"), *clique(5, "b"), ("a0", "b0")],
    "barbell": [*clique(4, "a"), *clique(4, "b"), ("a0", "p"), ("p", "q"), ("q", "b0")],
    "two cliques that share a daemon": [
        *clique(4, "a"),
        *clique(3, "b"),
        ("a0", "b0"),
        ("a0", "b1"),
    ],
    "three components": [*clique(4, "a"), *[("x", "y"), ("y", "z")], ("p", "q"), ("loop", "loop")],
    "loops among links": [("a", "a"), ("a", "b"), ("b", "b"), ("b", "c"), ("c", "a"), ("c", "d")],
}
"""Name -> arcs: every shape that the analysis has to be right on."""
