"""All figures of one distributed graph, in the same rows as the kernel makes.

Left out is what takes many more rounds than it is worth at such a size: betweenness, regions and
the minimum cut between them, the spectrum, the twin's figures, shortcuts, and the map. These
metrics are there without a value, and with a text that says so.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from pubsubd.topology.distributed.blocks import PartitionedGraph, spread_blocks
from pubsubd.topology.distributed.certificate import certify
from pubsubd.topology.distributed.forest import Forest, span
from pubsubd.topology.distributed.losses import lose
from pubsubd.topology.distributed.peeling import peel
from pubsubd.topology.distributed.ranks import rank
from pubsubd.topology.distributed.reach import measure
from pubsubd.topology.distributed.strong import arcs_within, strong_components
from pubsubd.topology.distributed.survey import Survey, survey
from pubsubd.topology.distributed.triangles import cluster
from pubsubd.topology.kernel import cuts, structure
from pubsubd.topology.kernel.facts import FactTable
from pubsubd.topology.kernel.graph import Ints
from pubsubd.topology.kernel.resilience import Resilience
from pubsubd.topology.kernel.snapshot import (
    tell_blocks,
    tell_components,
    tell_degrees,
    tell_hops,
    tell_plans,
)
from pubsubd.topology.kernel.structure import Clustering, Components, Cores

LEFT_OUT = (
    "betweenness_max",
    "regions",
    "modularity",
    "minimum_cut",
    "spectral_gap",
    "algebraic_connectivity",
    "twin_degree",
    "twin_hops_mean",
    "twin_effective_diameter",
    "twin_spectral_gap",
    "twin_robustness_random",
    "twin_robustness_targeted",
    "twin_half_lost_random",
    "twin_half_lost_targeted",
    "shortcut_hops_mean",
)
"""Metrics that are not computed."""

WHY = "not computed for a graph of more than --local-edges arcs"

PLANNED = ("advice_links", "advice_links_least", "bridge_links", "bridge_links_least")
"""Metrics of the links to add."""

MOST_PLANNED = 5_000_000
"""Daemons of a graph above which no links are planned: it takes 20 s a million, in one place."""

LOCAL = 5_000_000
"""Links that may come to the driver: 40 MB, and some seconds in one place."""

_TOO_MANY = "not computed: it would take too many rounds"


def analyse(arcs: DataFrame, seed: int, count: int | None = None) -> pa.Table:
    """Return the rows of the graph of one window, in the kernel's schema.

    Args:
        arcs: ``src``, ``dst``; as :func:`pubsubd.topology.kernel.graph.read` takes them. Read
            three times: keep it if it is dear to make.
        seed: of all that is drawn at random.
        count: how many blocks to make of it; as a rule, that depends on the number of rows.
    """
    with spread_blocks(arcs, count) as blocks:
        return analyse_blocks(blocks, seed)


def analyse_blocks(blocks: PartitionedGraph, seed: int, local: int = LOCAL) -> pa.Table:
    """Return the rows of a graph in blocks.

    Args:
        blocks: of the graph.
        seed: of all that is drawn at random.
        local: how many links or arcs may come to the driver at once, of those that are left when
            rounds have dealt with most.
    """
    facts = FactTable()
    known = survey(blocks)
    forest = span(blocks)
    parts = _components(blocks, known, forest, local)
    _tell_sizes(facts, blocks, known)
    if parts.strong_count:
        tell_components(facts, parts)
    else:
        _tell_weak(facts, parts)
    sparse = certify(blocks, forest)
    found = cuts.blocks(sparse)
    tell_blocks(facts, sparse, found)
    facts.metric("two_link_cuts", cuts.count_two_link_cuts(sparse, found, seed))
    _tell_daemons(facts, blocks, known, parts.labels, found, local)
    _tell_hops(facts, blocks, parts.labels, seed)
    _tell_losses(facts, lose(blocks, known, seed))
    if blocks.n <= MOST_PLANNED:
        tell_plans(facts, sparse, found, known.degrees)
    else:
        for name in PLANNED:
            facts.metric(name, None, why=f"not computed for more than {MOST_PLANNED:,} daemons")
    for name in LEFT_OUT:
        facts.metric(name, None, why=WHY)
    return facts.table()


def _tell_sizes(facts: FactTable, blocks: PartitionedGraph, known: Survey) -> None:
    links, arcs = known.links, known.arcs
    mutual = arcs - links
    facts.metric("daemons", blocks.n)
    facts.metric("links", links)
    facts.metric("arcs", arcs)
    facts.metric("self_loops", int(known.looped.sum()))
    facts.metric("one_way_links", links - mutual)
    facts.metric("reciprocity", 2 * mutual / arcs if arcs else math.nan, why="there are no arcs")
    tell_degrees(facts, known.degrees)


def _components(blocks: PartitionedGraph, known: Survey, forest: Forest, local: int) -> Components:
    """Return both kinds of components; of strong ones there are 0 where they were not found."""
    labels, sizes = structure.order_labels(forest.labels.astype(np.int64))
    inside = labels == 0
    strong = strong_components(blocks, known, local)
    strong_sizes = np.zeros(0, np.int64) if strong is None else np.bincount(strong)
    inner = 0
    if strong is not None:
        inner = arcs_within(blocks, strong) + int(known.looped[strong == 0].sum())
    return Components(
        count=len(sizes),
        labels=labels,
        sizes=sizes,
        largest=int(inside.sum()),
        largest_arcs=int(
            known.out_degrees[inside].sum(dtype=np.int64) + known.looped[inside].sum()
        ),
        strong_count=len(strong_sizes),
        strong_largest=int(strong_sizes.max(initial=0)),
        strong_largest_arcs=inner,
        size_histogram=structure.count_values(sizes),
        strong_size_histogram=structure.count_values(strong_sizes),
    )


def _tell_weak(facts: FactTable, parts: Components) -> None:
    """Add the facts of the weak components alone."""
    whole = FactTable()
    tell_components(whole, parts)
    missing = _TOO_MANY if parts.count else ""
    for name, value, _, _ in whole.metrics:
        strong = "strong" in name and bool(missing)
        facts.metric(name, None if strong else value, why=missing)
    facts.tables += whole.tables[:1]  # the other histogram is that of strong components


def _tell_daemons(
    facts: FactTable,
    blocks: PartitionedGraph,
    known: Survey,
    labels: Ints,
    found: cuts.BlockCutTrees,
    local: int,
) -> None:
    cores = peel(blocks, known, local)
    clustering = cluster(blocks, known)
    _tell_clustering(facts, cores, clustering)
    ranks = rank(blocks, known).ranks
    facts.metric("pagerank_max", float(ranks.max()) if len(ranks) else math.nan)
    cut_off = np.zeros(blocks.n, np.int64)
    cut_off[found.articulation] = found.cut_off
    facts.rows(
        "daemon",
        {
            "id": blocks.ids,
            "degree": known.degrees,
            "in_degree": known.in_degrees,
            "out_degree": known.out_degrees,
            "component": labels,
            "core": None if cores is None else cores.numbers,
            "cut_off": cut_off,
            "clustering": clustering.local,
            "pagerank": ranks,
        },
    )


def _tell_clustering(facts: FactTable, cores: Cores | None, clustering: Clustering) -> None:
    if cores is None:
        facts.metric("core_max", None, why=_TOO_MANY)
    else:
        facts.metric("core_max", cores.maximum)
        facts.histogram("core", cores.histogram.values, cores.histogram.counts)
    facts.metric("clustering_mean", clustering.mean)
    facts.metric("triangles", clustering.triangles)
    facts.metric("closed_triads", clustering.closed)
    facts.metric("transitivity", clustering.transitivity)


def _tell_hops(facts: FactTable, blocks: PartitionedGraph, labels: Ints, seed: int) -> None:
    hops = measure(blocks, labels, seed)
    if hops is not None:
        tell_hops(facts, hops)
        return
    for name in ("diameter", "diameter_upper", "effective_diameter", "hops_mean"):
        facts.metric(name, None, why=_TOO_MANY)


def _tell_losses(facts: FactTable, losses: Resilience) -> None:
    for name, curve in (("random", losses.random), ("targeted", losses.targeted)):
        facts.rows("curve", {"name": name, "x": curve.removed, "value": curve.largest})
        facts.metric(f"robustness_{name}", curve.robustness)
        facts.metric(f"half_lost_{name}", curve.half_lost, curve.error)
