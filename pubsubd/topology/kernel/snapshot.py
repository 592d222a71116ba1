"""All that is computed of one window's graph, as one table of facts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pubsubd.topology.kernel.centrality import betweenness, pagerank
from pubsubd.topology.kernel.cuts import BlockCutTrees, blocks, count_two_link_cuts
from pubsubd.topology.kernel.drawing import layout
from pubsubd.topology.kernel.facts import FactTable
from pubsubd.topology.kernel.graph import Graph, Ints
from pubsubd.topology.kernel.hops import WORK, Hops, hops
from pubsubd.topology.kernel.redundancy import Plan, advise
from pubsubd.topology.kernel.regions import Regions, minimum_cut, regions
from pubsubd.topology.kernel.resilience import Resilience, resilience
from pubsubd.topology.kernel.shortcuts import advise_shortcuts
from pubsubd.topology.kernel.spectrum import Eigenvalue, spectral_gap, spectrum
from pubsubd.topology.kernel.structure import (
    Components,
    Histogram,
    clustering,
    components,
    cores,
    degrees,
)
from pubsubd.topology.kernel.twin import twin, twin_degree

LARGE = 200_000
"""Daemons above which betweenness, shortcuts and the twin's distances are not computed: what a
sample tells of them in half a minute is no more than its own error."""

_TOO_LARGE = f"not computed for more than {LARGE:,} daemons"

_OF_TWIN = (
    "degree",
    "hops_mean",
    "effective_diameter",
    "spectral_gap",
    "robustness_random",
    "robustness_targeted",
    "half_lost_random",
    "half_lost_targeted",
)


def snapshot(graph: Graph, seed: int, detailed: bool, threads: int = 1) -> pa.Table:
    """Return all facts of ``graph``: :data:`pubsubd.topology.kernel.facts.SCHEMA`.

    Args:
        graph: of one mesh and window.
        seed: of everything random.
        detailed: also what is worth its time once a mesh only: advice, the picture, the twin, the
            minimum cut and two-link cuts.
        threads: 2 to use a second core; the facts are the same.
    """
    parts = components(graph)
    found = blocks(graph)
    divided = regions(graph, seed)
    sizes, daemons, distances, spectra, curves, cuts, other, plans, shortcuts, picture = tables = [
        FactTable() for _ in range(10)
    ]
    count_all(sizes, graph)
    tell_degrees(sizes, graph.degrees)
    tell_components(sizes, parts)
    tell_blocks(sizes, graph, found)
    sizes.metric("regions", divided.count)
    sizes.metric("modularity", divided.modularity)

    def measure() -> None:
        known = hops(graph, parts.labels, seed)
        tell_hops(distances, known)
        if detailed:
            _tell_shortcuts(shortcuts, graph, parts, known, seed)

    def draw() -> None:
        cuts.metric("two_link_cuts", count_two_link_cuts(graph, found, seed))
        _tell_cut(cuts, graph, divided)
        _tell_map(picture, graph, found, divided, seed)

    # The first one draws numbers by networkit, which it does right in one thread only. One thread
    # takes steps from the front, the other from the back: so the longest come first.
    steps = deque[Callable[[], None]]()
    steps.append(lambda: _tell_daemons(daemons, graph, parts, found, divided, seed))
    if detailed:
        steps.append(draw)
    steps.append(lambda: _tell_spectrum(spectra, graph, parts, seed))
    steps.append(lambda: _tell_curves(curves, "", resilience(graph, seed)))
    if detailed:
        steps.append(lambda: tell_plans(plans, graph, found))
        steps.append(lambda: _tell_twin(other, graph, parts, seed))
    steps.append(measure)
    _run(steps, threads)
    facts = FactTable()
    for one in tables:
        facts.tables += one.tables
        facts.metrics += one.metrics
    return facts.table()


def _run(steps: deque[Callable[[], None]], threads: int) -> None:
    """Run all steps, in this thread and, if there are two, in another one."""

    def work(take: Callable[[], Callable[[], None]]) -> None:
        while True:
            try:
                step = take()
            except IndexError:
                return
            step()

    if threads == 1:
        work(steps.popleft)
        return
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(work, steps.pop)
        work(steps.popleft)
        other.result()


def count_all(facts: FactTable, graph: Graph) -> None:
    """Add the metrics of the size."""
    arcs = len(graph.arc_tails)
    both = int(graph.mutual.sum())
    facts.metric("daemons", graph.n)
    facts.metric("links", graph.m)
    facts.metric("arcs", arcs)
    facts.metric("self_loops", len(graph.loops))
    facts.metric("one_way_links", graph.m - both)
    facts.metric("reciprocity", 2 * both / arcs if arcs else math.nan, why="there are no arcs")


def tell_degrees(facts: FactTable, each: Ints) -> None:
    """Add the metrics of degrees, and their histogram."""
    found = degrees(each)
    facts.metric("degree_mean", found.mean)
    facts.metric("degree_median", found.median)
    facts.metric("degree_max", found.maximum)
    facts.metric("degree_gini", found.gini)
    facts.metric("degree_top1_share", found.top1_share)
    why = "there are too few daemons with many links, or the tail is no power law"
    facts.metric("degree_tail_exponent", found.tail_exponent, why=why)
    facts.metric("leaves", found.leaves)
    facts.metric("isolated", found.isolated)
    facts.metric("share_two_neighbours", found.share_two)
    facts.metric("share_three_neighbours", found.share_three)
    _tell_histogram(facts, "degree", found.histogram)


def _tell_histogram(facts: FactTable, name: str, found: Histogram) -> None:
    facts.histogram(name, found.values, found.counts)


def tell_components(facts: FactTable, parts: Components) -> None:
    """Add the metrics of both kinds of components, and their histograms."""
    facts.metric("components", parts.count)
    facts.metric("largest_component", parts.largest)
    facts.metric("largest_component_arcs", parts.largest_arcs)
    facts.metric("strong_components", parts.strong_count)
    facts.metric("largest_strong_component", parts.strong_largest)
    facts.metric("largest_strong_component_arcs", parts.strong_largest_arcs)
    _tell_histogram(facts, "component_size", parts.size_histogram)
    _tell_histogram(facts, "strong_component_size", parts.strong_size_histogram)


def tell_blocks(facts: FactTable, graph: Graph, found: BlockCutTrees) -> None:
    """Add the single points of failure."""
    facts.metric("articulation_daemons", len(found.articulation))
    facts.metric("bridges", len(found.bridges))
    worst = max(
        (int(one.max()) for one in (found.cut_off, found.bridge_cut_off) if len(one)), default=0
    )
    facts.metric("worst_cut_off", worst)
    facts.rows(
        "articulation", {"id": graph.ids.take(pa.array(found.articulation)), "size": found.cut_off}
    )
    ends = {
        "id": graph.ids.take(pa.array(graph.tails[found.bridges])),
        "other": graph.ids.take(pa.array(graph.heads[found.bridges])),
    }
    facts.rows("bridge", ends | {"size": found.bridge_cut_off})


def _tell_daemons(
    facts: FactTable,
    graph: Graph,
    parts: Components,
    found: BlockCutTrees,
    divided: Regions,
    seed: int,
) -> None:
    core = cores(graph)
    facts.metric("core_max", core.maximum)
    _tell_histogram(facts, "core", core.histogram)
    clustered = clustering(graph)
    facts.metric("clustering_mean", clustered.mean)
    facts.metric("triangles", clustered.triangles)
    facts.metric("closed_triads", clustered.closed)
    facts.metric("transitivity", clustered.transitivity)
    ranks = pagerank(graph).ranks
    facts.metric("pagerank_max", _largest(ranks))
    between = None if graph.n > LARGE else betweenness(graph, parts.labels, seed)
    if between is None:
        facts.metric("betweenness_max", None, why=_TOO_LARGE)
    else:
        facts.metric("betweenness_max", _largest(between.shares), between.worst_error)
    cut_off = np.zeros(graph.n, np.int64)
    cut_off[found.articulation] = found.cut_off
    facts.rows(
        "daemon",
        {
            "id": graph.ids,
            "degree": graph.degrees,
            "in_degree": graph.in_degrees,
            "out_degree": graph.out_degrees,
            "component": parts.labels,
            "region": divided.labels,
            "core": core.numbers,
            "cut_off": cut_off,
            "clustering": clustered.local,
            "pagerank": ranks,
            "betweenness": None if between is None else between.shares,
            "betweenness_error": None if between is None else between.errors,
        },
    )


def _largest(shares: npt.NDArray[np.float64]) -> float:
    return float(shares.max()) if len(shares) else math.nan


def tell_hops(facts: FactTable, found: Hops) -> None:
    """Add the metrics of distances, and their histogram."""
    none = found.daemons < 2
    facts.metric("diameter", math.nan if none else found.diameter)
    facts.metric("diameter_upper", math.nan if none else found.diameter_upper)
    facts.metric("effective_diameter", found.effective)
    facts.metric("hops_mean", found.mean, found.mean_error)
    facts.histogram("hops", np.arange(len(found.pairs)), found.pairs)


def _tell_spectrum(facts: FactTable, graph: Graph, parts: Components, seed: int) -> None:
    found = spectrum(graph, parts.labels, seed)
    _tell_eigenvalue(facts, "spectral_gap", found.gap)
    _tell_eigenvalue(facts, "algebraic_connectivity", found.connectivity)


def _tell_eigenvalue(facts: FactTable, name: str, found: Eigenvalue) -> None:
    facts.metric(name, found.value, found.error, found.reason)


def _tell_curves(facts: FactTable, prefix: str, found: Resilience) -> None:
    random, targeted = found.random, found.targeted
    for name, curve in ((f"{prefix}random", random), (f"{prefix}targeted", targeted)):
        facts.rows("curve", {"name": name, "x": curve.removed, "value": curve.largest})
    facts.metric(f"{prefix}robustness_random", random.robustness)
    facts.metric(f"{prefix}robustness_targeted", targeted.robustness)
    facts.metric(f"{prefix}half_lost_random", random.half_lost, random.error)
    facts.metric(f"{prefix}half_lost_targeted", targeted.half_lost)


def _tell_cut(facts: FactTable, graph: Graph, divided: Regions) -> None:
    cut = minimum_cut(graph, divided.labels)
    facts.metric("minimum_cut", cut.size, why=cut.reason)
    facts.rows(
        "cut",
        {
            "id": graph.ids.take(pa.array(graph.tails[cut.links])),
            "other": graph.ids.take(pa.array(graph.heads[cut.links])),
        },
    )


def _tell_twin(facts: FactTable, graph: Graph, parts: Components, seed: int) -> None:
    inside = parts.labels == 0
    links = int(inside[graph.tails].sum())
    if parts.largest < 3:
        for name in _OF_TWIN:
            facts.metric(f"twin_{name}", None, why="it takes three daemons")
        return
    other = twin(parts.largest, links, seed)
    labels = np.zeros(other.n, np.int32)
    facts.metric("twin_degree", twin_degree(parts.largest, links))
    if other.n > LARGE:
        for name in ("hops_mean", "effective_diameter"):
            facts.metric(f"twin_{name}", None, why=_TOO_LARGE)
    else:
        # For comparison a sample will do, where all pairs take longer than a second.
        found = hops(other, labels, seed, batches=4, rounds=0, most=WORK / 8)
        facts.metric("twin_hops_mean", found.mean, found.mean_error)
        facts.metric("twin_effective_diameter", found.effective)
    _tell_eigenvalue(facts, "twin_spectral_gap", spectral_gap(other, labels, seed))
    _tell_curves(facts, "twin_", resilience(other, seed))


def tell_plans(
    facts: FactTable, graph: Graph, found: BlockCutTrees, degrees: Ints | None = None
) -> None:
    """Add the links that join components, and those that remove single points of failure.

    Args:
        facts: what they are added to.
        graph: as :func:`~pubsubd.topology.kernel.redundancy.advise` takes it, and what follows.
        found: its blocks.
        degrees: links of each daemon, if the graph does not have all of them.
    """
    advice = advise(graph, found, degrees)
    joins = len(advice.join_tails)
    parts = joins + 1
    _advise(
        facts,
        graph,
        "join",
        advice.join_tails,
        advice.join_heads,
        [float(parts - i) for i in range(1, joins + 1)],
        [f"{_some(parts - i, 'component')} left" for i in range(1, joins + 1)],
    )
    for name, plan in (("redundancy", advice.redundancy), ("bridge", advice.bridge)):
        _advise(
            facts,
            graph,
            name,
            plan.tails,
            plan.heads,
            (plan.articulation + plan.bridges).astype(np.float64),
            _effects(plan),
        )
    facts.metric("advice_links", joins + advice.redundancy.count)
    facts.metric("advice_links_least", joins + advice.redundancy.least)
    facts.metric("bridge_links", joins + advice.bridge.count)
    facts.metric("bridge_links_least", joins + advice.bridge.least)


def _tell_shortcuts(
    facts: FactTable, graph: Graph, parts: Components, distances: Hops, seed: int
) -> None:
    if graph.n > LARGE:
        facts.metric("shortcut_hops_mean", None, why=_TOO_LARGE)
        return
    shortcuts = advise_shortcuts(
        graph, parts.labels, seed, mean=None if math.isnan(distances.mean) else distances.mean
    )
    ends = np.array([(one.a, one.b) for one in shortcuts], np.int32).reshape(-1, 2)
    means = [one.mean for one in shortcuts]
    _advise(
        facts,
        graph,
        "shortcut",
        ends[:, 0],
        ends[:, 1],
        means,
        [f"{mean:.4g} {'hop' if mean == 1 else 'hops'} in the mean" for mean in means],
        [one.error for one in shortcuts],
    )
    best = shortcuts[-1] if shortcuts else None
    facts.metric(
        "shortcut_hops_mean",
        best.mean if best else None,
        best.error if best else None,
        "no new link shortens anything",
    )


def _advise(
    facts: FactTable,
    graph: Graph,
    name: str,
    tails: npt.NDArray[np.int32],
    heads: npt.NDArray[np.int32],
    values: Any,
    texts: list[str],
    errors: list[float | None] | None = None,
) -> None:
    facts.rows(
        "advice",
        {
            "name": name,
            "rank": np.arange(1, len(tails) + 1),
            "id": graph.ids.take(pa.array(tails)),
            "other": graph.ids.take(pa.array(heads)),
            "value": values,
            "error": errors,
            "text": texts,
        },
    )


def _effects(plan: Plan) -> list[str]:
    """Describe the rest after each link of a plan and, for the first ones, the effect alone."""
    texts = []
    for i in range(plan.count):
        text = (
            f"{_some(plan.articulation[i], 'articulation daemon')} and"
            f" {_some(plan.bridges[i], 'bridge')} left"
        )
        if i < len(plan.own_articulation):
            text += (
                f"; alone it removes {_some(plan.own_articulation[i], 'articulation daemon')} and"
                f" {_some(plan.own_bridges[i], 'bridge')}"
            )
        texts.append(text)
    return texts


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _tell_map(
    facts: FactTable, graph: Graph, found: BlockCutTrees, divided: Regions, seed: int
) -> None:
    nodes, links = layout(graph, found, divided, seed)
    facts.rows(
        "map_node",
        {
            "id": [one.key for one in nodes],
            "text": [one.label for one in nodes],
            "name": [one.role for one in nodes],
            "x": [one.x for one in nodes],
            "y": [one.y for one in nodes],
            "size": [one.size for one in nodes],
            "value": [float(one.cut_off) for one in nodes],
        },
    )
    facts.rows(
        "map_link",
        {
            "id": [one.a for one in links],
            "other": [one.b for one in links],
            "name": [one.role for one in links],
            "size": [one.size for one in links],
        },
    )
