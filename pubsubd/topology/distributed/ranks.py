"""PageRank in rounds: as the kernel has it, sums in the same order, so the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pubsubd.topology.distributed.blocks import IN, Arrays, Block, PartitionedGraph
from pubsubd.topology.distributed.survey import Survey
from pubsubd.topology.kernel.centrality import ROUNDS, TOLERANCE, PageRank, next_ranks
from pubsubd.topology.kernel.graph import Floats


def rank(blocks: PartitionedGraph, known: Survey) -> PageRank:
    """Compute :func:`pubsubd.topology.kernel.centrality.pagerank` on a distributed graph."""
    ranks = np.full(blocks.n, 1 / max(blocks.n, 1))
    rounds, change = 0, 0.0
    while blocks.n and rounds < ROUNDS:
        shares = ranks / np.maximum(known.out_degrees, 1)
        (inflow,) = blocks.gather(_add(shares), 0.0)
        new = next_ranks(ranks, inflow, known.out_degrees)
        change = float(np.abs(new - ranks).sum())
        ranks = new
        rounds += 1
        if change <= TOLERANCE:
            break
    return PageRank(ranks, rounds, change)


def _add(shares: Floats) -> Callable[[Block], Arrays]:
    """Add up, for each daemon, the shares of the daemons that have an arc to it."""

    def add(block: Block) -> Arrays:
        there = (block.told & IN) != 0
        rows = block.tails[there] // block.count
        return (np.bincount(rows, shares[block.indices[there]], len(block.daemons)),)

    return add
