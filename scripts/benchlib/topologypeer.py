"""What a graph's metrics take in networkx and in the analysis, in turns within one process.

As `python topologypeer.py FILE` it prints JSON: metric -> seconds in each, and the ratios.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import networkx as nx
import numpy as np
import pyarrow as pa

from pubsubd.topology.kernel.centrality import betweenness, pagerank
from pubsubd.topology.kernel.cuts import blocks
from pubsubd.topology.kernel.graph import Graph, read
from pubsubd.topology.kernel.hops import hops
from pubsubd.topology.kernel.structure import clustering, components, cores

_EVERY = 500  # of the daemons, those from which networkx measures distances
_PIVOTS = 8  # of networkx's betweenness, whose time is multiplied to as many as ours takes


def _time(function: Callable[[], Any], runs: int) -> float:
    """Return the seconds of processor time of the fastest run."""
    taken = []
    for _ in range(runs):
        began = time.process_time()
        function()
        taken.append(time.process_time() - began)
    return min(taken)


def _distances(graph: nx.Graph, sources: Iterable[Any]) -> None:
    for source in sources:
        nx.single_source_shortest_path_length(graph, source)


def main(path: str) -> None:
    """Time all of it."""
    lines = Path(path).read_text().splitlines()
    arcs = [line.split()[:2] for line in lines if not line.startswith("#")]
    src, dst = (pa.array(one) for one in zip(*arcs, strict=True))
    began = time.process_time()
    directed = nx.DiGraph()
    directed.add_edges_from(map(tuple, arcs))
    plain = nx.Graph(directed)
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    theirs = {"build": time.process_time() - began}
    ours = {"build": _time(lambda: read(src, dst), 3)}
    whole = max(nx.connected_components(plain), key=len)
    inner = plain.subgraph(whole).copy()
    labels = components(read(src, dst)).labels
    # Without the figures that another metric has left with the graph.
    fresh = lambda: read(src, dst)  # noqa: E731
    pairs: dict[str, tuple[Callable[[], Any], Callable[[Graph], Any], int]] = {
        "components, weak and strong": (
            lambda: (
                list(nx.connected_components(plain)),
                list(nx.strongly_connected_components(directed)),
            ),
            components,
            3,
        ),
        "articulation daemons, bridges": (
            lambda: (list(nx.articulation_points(plain)), list(nx.bridges(plain))),
            blocks,
            3,
        ),
        "cores": (lambda: nx.core_number(plain), cores, 3),
        "clustering, triangles": (
            lambda: (nx.clustering(plain), nx.triangles(plain), nx.transitivity(plain)),
            clustering,
            3,
        ),
        "pagerank": (lambda: nx.pagerank(directed, tol=1e-10 / len(directed)), pagerank, 3),
    }
    for name, (there, here, runs) in pairs.items():
        theirs[name] = _time(there, runs)
        graphs = iter([fresh() for _ in range(runs)])
        ours[name] = _time(lambda here=here, graphs=graphs: here(next(graphs)), runs)
    ratio = sum(theirs.values()) / sum(ours.values())
    sources = list(inner)[::_EVERY]
    scale = len(inner) / len(sources)
    theirs["distances of all pairs"] = scale * _time(lambda: _distances(inner, sources), 1)
    ours["distances of all pairs"] = _time(lambda: hops(fresh(), labels, 0), 1)
    pivots = betweenness(fresh(), labels, 0).pivots
    sampled = _time(lambda: nx.betweenness_centrality(plain, k=_PIVOTS, seed=0), 1)
    theirs[f"betweenness from {pivots}"] = sampled / _PIVOTS * pivots
    ours[f"betweenness from {pivots}"] = _time(lambda: betweenness(fresh(), labels, 0), 1)
    figures = {}
    for name, seconds in ours.items():
        figures[f"{name}, ours"] = seconds
        figures[f"{name}, networkx"] = theirs[name]
    figures["times as fast"] = ratio
    figures["times, with distances"] = sum(theirs.values()) / sum(ours.values())
    print(json.dumps({name: float(np.round(one, 4)) for name, one in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
