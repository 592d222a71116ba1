"""The fewest new links after which no single loss of a node or a link cuts anything off.

The blocks of a connected graph and its articulation nodes form a tree (Harary, Prins 1966), each
leaf of which needs a new link (Eswaran, Tarjan 1976). Which leaves are joined is chosen by
:mod:`pubsubd.connectivity.leaves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from pubsubd.connectivity.blocks import Blocks
from pubsubd.connectivity.leaves import pair_leaves
from pubsubd.connectivity.pairing import Pair
from pubsubd.protocol.steps import Steps

_STEP = 256  # nodes of blocks between two pauses


def remedy(found: Blocks, degrees: Sequence[int]) -> Steps[list[Pair]]:
    """Return the new links, the most useful ones first, each with its lower end first, in steps.

    There are none if there is no articulation node: two nodes alone cannot be helped.

    Args:
        found: the graph's blocks.
        degrees: node -> its links. Of the nodes that would do as an end, that with the fewest is
            taken.
    """
    if not found.articulation:
        return []
    blocks = found.blocks
    joints = sorted(found.articulation)
    number_of = {node: len(blocks) + i for i, node in enumerate(joints)}
    tree: list[list[int]] = [[] for _ in range(len(blocks) + len(joints))]
    weights = [1] * len(tree)
    ends: dict[int, int] = {}
    looked = 0
    for number, members in enumerate(blocks):
        inside = [number_of[node] for node in members if node in number_of]
        tree[number] = inside
        for node in inside:
            tree[node].append(number)
        weights[number] = len(members) - len(inside)
        if len(inside) == 1:
            free = (node for node in members if node not in number_of)
            ends[number] = min(free, key=lambda node: (degrees[node], node))
        looked += len(members)
        if looked >= _STEP:
            looked = 0
            yield
    indptr = list(accumulate(map(len, tree), initial=0))
    indices = list(chain.from_iterable(tree))
    yield
    solid = [number < len(blocks) for number in range(len(tree))]
    pairs = yield from pair_leaves(indptr, indices, weights, solid)
    return [_ascending(ends[one], ends[other]) for one, other in pairs]


def _ascending(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)
