"""Core numbers in rounds.

A daemon's core number is at most h if not more than h of its neighbours have a bound above h: each
round lowers all bounds by that, and when none has changed they are the core numbers (Montresor,
De Pellegrini, Miorandi, "Distributed k-core decomposition", 2013). Trees, and whatever hangs from
the rest by them, are peeled beforehand, with no look at the links: of a daemon with one neighbour
left, that is what remains of all its neighbours XORed. Without this, a path would take as many
rounds as it has daemons.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pubsubd.topology.distributed.blocks import Arrays, Block, PartitionedGraph
from pubsubd.topology.distributed.survey import Survey
from pubsubd.topology.kernel import graph as graphs
from pubsubd.topology.kernel.graph import Ints
from pubsubd.topology.kernel.structure import Cores, cores, count_values

ROUNDS = 60
"""Rounds after which it is done in one place, with all links that are not in trees."""


def peel(blocks: PartitionedGraph, known: Survey, local: int, rounds: int = ROUNDS) -> Cores | None:
    """Return the core numbers.

    Args:
        blocks: of the graph.
        known: of its daemons.
        local: how many links may come to the driver after so many rounds; if there are more, None
            is returned.
        rounds: how many to make.
    """
    left = _peel_trees(known)
    bounds = np.where(left > 0, left, np.minimum(known.degrees, 1)).astype(np.int32)
    nobody = np.zeros(0, np.int32)
    for _ in range(rounds):
        daemons, lowered = blocks.collect(_lower(bounds), nobody, nobody)
        if not len(daemons):
            return Cores(bounds, int(bounds.max(initial=0)), count_values(bounds))
        bounds[daemons] = lowered
    if int(left.sum(dtype=np.int64)) > 2 * local:
        return None
    tails, heads = blocks.collect(_links_above(bounds), nobody, nobody)
    whole = cores(graphs.build(blocks.ids, tails, heads)).numbers
    bounds = np.where(left > 0, whole, bounds)
    return Cores(bounds, int(bounds.max(initial=0)), count_values(bounds))


def _peel_trees(known: Survey) -> Ints:
    """Return the degrees that are left when there is no daemon with a single neighbour."""
    degrees, mixed = known.degrees.tolist(), known.mixed.tolist()
    stack = np.flatnonzero(known.degrees == 1).tolist()
    while stack:
        daemon = stack.pop()
        if degrees[daemon]:  # or its only neighbour was peeled first
            other = mixed[daemon]
            degrees[daemon] = 0
            degrees[other] -= 1
            mixed[other] ^= daemon
            if degrees[other] == 1:
                stack.append(other)
    return np.array(degrees, np.int32)


def _lower(bounds: Ints) -> Callable[[Block], Arrays]:
    """Return the daemons whose bound is too high, and the bound that they get."""

    def lower(block: Block) -> Arrays:
        mine = bounds[block.daemons]
        values = np.minimum(bounds[block.indices], bounds[block.tails])
        held = block.reduce(np.add, (values == bounds[block.tails]).astype(np.int32), 0)
        high = held < mine
        # Of these alone: values in descending order, and how many are as high as each.
        sizes = np.diff(block.indptr)[high]
        values = values[np.repeat(high, np.diff(block.indptr))]
        rows = np.repeat(np.arange(len(sizes)), sizes)
        values = values[np.lexsort([-values, rows])]
        starts = np.cumsum(sizes) - sizes
        ranks = np.arange(1, len(values) + 1) - starts[rows]
        lowered = np.minimum(values, ranks)
        if len(starts):
            lowered = np.maximum.reduceat(lowered, starts)
        return block.daemons[high], lowered.astype(np.int32)

    return lower


def _links_above(bounds: Ints) -> Callable[[Block], Arrays]:
    """Return the links between daemons that may be in the 2-core."""

    def links_above(block: Block) -> Arrays:
        tails, heads = block.tails, block.indices
        inner = (tails < heads) & (bounds[tails] > 1) & (bounds[heads] > 1)
        return tails[inner], heads[inner]

    return links_above
