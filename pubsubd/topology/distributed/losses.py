"""Resilience of a distributed graph: the largest component while daemons are lost.

For one order of losses, a spanning forest of the links that last longest has, at any time, the
same components as the graph. It has fewer links than daemons, and takes the place of the graph.
"""

from __future__ import annotations

import numpy as np

from pubsubd.topology.distributed.blocks import PartitionedGraph
from pubsubd.topology.distributed.forest import span_each
from pubsubd.topology.distributed.survey import Survey
from pubsubd.topology.kernel import graph as graphs
from pubsubd.topology.kernel.graph import Longs
from pubsubd.topology.kernel.resilience import (
    BIG,
    FEW,
    ORDERS,
    SMALL,
    Curve,
    Resilience,
    removal_curve,
)


def lose(blocks: PartitionedGraph, known: Survey, seed: int) -> Resilience:
    """Compute :func:`pubsubd.topology.kernel.resilience.resilience` on a distributed graph."""
    n = blocks.n
    count = ORDERS if n + known.links <= SMALL else FEW
    orders = [np.random.default_rng([seed, 3, i]).permutation(n) for i in range(count)]
    orders.append(np.argsort(-known.degrees, kind="stable"))
    *curves, targeted = _curves(blocks, orders)
    halves = np.array([curve.half_lost for curve in curves])
    random = Curve(
        curves[0].removed,
        np.mean([curve.largest for curve in curves], 0),
        float(np.mean([curve.robustness for curve in curves])),
        float(halves.mean()),
        float(halves.std(ddof=1) / np.sqrt(len(halves))),
    )
    return Resilience(random, targeted)


def _curves(blocks: PartitionedGraph, orders: list[Longs]) -> list[Curve]:
    """Return the curve of each order."""
    turns = []
    for order in orders:
        turn = np.empty(blocks.n, np.int32)
        turn[order] = np.arange(blocks.n, dtype=np.int32)
        turns.append(turn)
    steps = 100 if blocks.n <= BIG else 50
    return [
        removal_curve(graphs.build(blocks.ids, forest.tails, forest.heads), order, steps)
        for order, forest in zip(orders, span_each(blocks, turns), strict=True)
    ]
