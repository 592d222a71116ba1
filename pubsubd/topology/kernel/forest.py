"""Rooted spanning forests, and sums over the subtrees of one.

Only what is done once for each daemon is done in Python: a forest may be as deep as it has daemons,
and then a numpy call for each level of it is dearer than one addition for each daemon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Ints, Longs


@dataclass(frozen=True, eq=False)
class Forest:
    """A spanning forest of n nodes.

    Attributes:
        order: the n nodes, each one after its parent.
        parents: of each node; -1 for a root.
    """

    order: Ints
    parents: Ints

    def sum_up(self, values: Longs) -> Longs:
        """Return for each node the sum of the values in its subtree, itself included."""
        sums, ups = self._lists(values)
        for node, up in ups:
            sums[up] += sums[node]
        return np.array(sums[:-1], values.dtype)

    def xor_up(self, values: Longs) -> Longs:
        """Return for each node the exclusive or of the values in its subtree."""
        sums, ups = self._lists(values)
        for node, up in ups:
            sums[up] ^= sums[node]
        return np.array(sums[:-1], values.dtype)

    def _lists(self, values: Longs) -> tuple[list[int], zip[tuple[int, int]]]:
        """Return the values, with one place more for the roots to add to; and who adds to whom."""
        upwards = self.order[::-1]
        return [*values.tolist(), 0], zip(
            upwards.tolist(), self.parents[upwards].tolist(), strict=True
        )


def grow(indptr: Longs, indices: Ints, roots: Ints) -> Forest:
    """Return the breadth first forest of a symmetric graph.

    Args:
        indptr: n + 1 places, as in :class:`~pubsubd.topology.kernel.graph.Graph`.
        indices: neighbours.
        roots: one node of each component.
    """
    n = len(indptr) - 1
    # One node more that leads to all roots: a search for each component would cost n each time.
    ends = np.concatenate([indices, roots]).astype(np.int32)
    starts = np.append(indptr, len(ends)).astype(np.int32 if len(ends) < 2**31 else np.int64)
    matrix = sparse.csr_array((np.ones(len(ends)), ends, starts), (n + 1, n + 1))
    order, parents = csgraph.breadth_first_order(matrix, n, directed=True)
    parents = parents[:n].astype(np.int32)
    parents[parents == n] = -1
    return Forest(order[1:].astype(np.int32), parents)


def first_of_each(labels: Ints) -> Ints:
    """Return the lowest node with each label, by label; labels are 0, 1, ... without gaps."""
    return np.unique(labels, return_index=True)[1].astype(np.int32)
