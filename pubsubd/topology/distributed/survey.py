"""Degrees of all daemons, from one pass over all blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pubsubd.topology.distributed.blocks import IN, OUT, Arrays, Block, PartitionedGraph
from pubsubd.topology.kernel.graph import Bools, Ints


@dataclass(frozen=True, eq=False)
class Survey:
    """Some numbers of each of the n daemons.

    Attributes:
        degrees: its neighbours.
        out_degrees: arcs of which it is the tail.
        in_degrees: arcs of which it is the head.
        mixed: the numbers of all of its neighbours, XORed: of one neighbour, its number.
        looped: whether it has a self-loop.
    """

    degrees: Ints
    out_degrees: Ints
    in_degrees: Ints
    mixed: Ints
    looped: Bools

    @property
    def links(self) -> int:
        """The number of links."""
        return int(self.degrees.sum(dtype=np.int64)) // 2

    @property
    def arcs(self) -> int:
        """The number of arcs, without loops."""
        return int(self.out_degrees.sum(dtype=np.int64))


def survey(blocks: PartitionedGraph) -> Survey:
    """Look at all blocks once."""
    none = np.int32(0)
    return Survey(*blocks.gather(_look, none, none, none, none, np.False_))


def _look(block: Block) -> Arrays:
    degrees = np.diff(block.indptr).astype(np.int32)
    out_degrees, in_degrees = (
        block.reduce(np.add, ((block.told & way) != 0).astype(np.int32), 0) for way in (OUT, IN)
    )
    mixed = block.reduce(np.bitwise_xor, block.indices, 0)
    return degrees, out_degrees, in_degrees, mixed, np.isin(block.daemons, block.loops)
