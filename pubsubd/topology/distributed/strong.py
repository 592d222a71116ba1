"""Strong components in rounds.

One search along the arcs and one against them, from the daemon with most arcs both ways, tell its
strong component: as a rule, the largest one by far (Fleischer, Hendrickson, Pinar 2000). No other
one has daemons of which the two searches tell different things. The arcs that are left by this are
finished in one place; if they are too many for it, daemons that have no arc in or none out are put
aside first, a few times over (McLendon and others 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.distributed.blocks import IN, OUT, Arrays, Block, PartitionedGraph
from pubsubd.topology.distributed.survey import Survey
from pubsubd.topology.kernel.graph import Bools, Ints
from pubsubd.topology.kernel.structure import order_labels

Marks: TypeAlias = npt.NDArray[np.uint8]

LEVELS = 100
"""Hops after which the searches are given up: each one is a round."""

TRIMS = 10
"""Most rounds of setting aside daemons without an arc in or out."""


def strong_components(blocks: PartitionedGraph, known: Survey, local: int) -> Ints | None:
    """Return the strong component of each daemon, the largest one being 0.

    Args:
        blocks: of the graph.
        known: of its daemons.
        local: how many arcs may come to the driver; if there are more, None is returned.
    """
    n = blocks.n
    if not n:
        return np.zeros(0, np.int32)
    both = known.out_degrees.astype(np.int64) * known.in_degrees
    found = _search(blocks, int(both.argmax()))
    done = found == (OUT | IN)
    labels = np.arange(n)
    labels[done] = int(both.argmax())
    for _ in range(TRIMS + 1):
        out, into = blocks.gather(_count(found, done), 0, 0)
        if out.sum() <= local:
            break
        done |= (out == 0) | (into == 0)
    else:
        return None
    nobody = np.zeros(0, np.int32)
    tails, heads = blocks.collect(_inner(found, done), nobody, nobody)
    arcs = sparse.csr_array((np.ones(len(tails), np.bool_), (tails, heads)), (n, n))
    _, rest = csgraph.connected_components(arcs, connection="strong")
    # Whoever is done is in no arc here, and so alone in its component.
    first = np.unique(rest, return_index=True)[1]
    labels = np.where(done, labels, first[rest])
    return order_labels(labels)[0]


def _search(blocks: PartitionedGraph, source: int) -> Marks:
    """Return for each daemon whether the source reaches it, OUT, or it the source, IN, as bits."""
    found = np.zeros(blocks.n, np.uint8)
    found[source] = OUT | IN
    front = found.copy()
    for _ in range(LEVELS):
        (got,) = blocks.gather(_step(front), np.uint8(0))
        front = got & ~found
        if not front.any():
            break
        found |= front
    else:
        # Not known to the end, it tells nothing of anyone but the source.
        found[:] = 0
        found[source] = OUT | IN
    return found


def _step(front: Marks) -> Callable[[Block], Arrays]:
    """Take both searches one arc further."""

    def step(block: Block) -> Arrays:
        # Who has an arc from what is reached is reached; and the other way round.
        told = block.told
        forward = np.where((told & IN) != 0, front[block.indices] & OUT, 0)
        backward = np.where((told & OUT) != 0, front[block.indices] & IN, 0)
        return (block.reduce(np.bitwise_or, (forward | backward).astype(np.uint8), 0),)

    return step


def _within(found: Marks | Ints, done: Bools, block: Block) -> Bools:
    """Flag the neighbours that may be in the same component as the daemon."""
    tails, heads = block.tails, block.indices
    flags: Bools = (found[tails] == found[heads]) & ~done[tails] & ~done[heads]
    return flags


def _count(found: Marks | Ints, done: Bools) -> Callable[[Block], Arrays]:
    """Count, for each daemon, the arcs from it and to it that may be in a component."""

    def count(block: Block) -> Arrays:
        told = np.where(_within(found, done, block), block.told, np.uint8(0))
        ways = [((told & way) != 0).astype(np.int64) for way in (OUT, IN)]
        return tuple(block.reduce(np.add, way, 0) for way in ways)

    return count


def _inner(found: Marks | Ints, done: Bools) -> Callable[[Block], Arrays]:
    """Return the arcs that may be in a component."""

    def inner(block: Block) -> Arrays:
        arcs = _within(found, done, block) & ((block.told & OUT) != 0)
        return block.tails[arcs], block.indices[arcs]

    return inner


def arcs_within(blocks: PartitionedGraph, labels: Ints) -> int:
    """Count the arcs between daemons with label 0, without loops."""
    out, _ = blocks.gather(_count(labels, labels != 0), 0, 0)
    return int(out.sum())
