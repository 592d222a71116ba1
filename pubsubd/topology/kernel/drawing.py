"""Content of a mesh's picture: its daemons, or its regions and the daemons it would break at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pubsubd.topology.kernel.cuts import BlockCutTrees
from pubsubd.topology.kernel.forest import first_of_each, grow
from pubsubd.topology.kernel.graph import Bools, Graph, Ints, Longs
from pubsubd.topology.kernel.placing import place
from pubsubd.topology.kernel.regions import Regions

EVERY_DAEMON = 400
"""Daemons up to which each one is drawn; of more, regions are."""

WORST = 20
"""Articulation daemons, those that cut off the most, which are drawn beside the regions."""

MOST_REGIONS = 250
"""Regions that are drawn, the largest ones; what is in none of them is one more node."""

MOST_LINKS = 1_500
"""Links that are drawn between regions."""

MOST_SMALL_LINKS = 4_000
"""Links that are drawn between daemons."""


@dataclass(frozen=True)
class Node:
    """A node of the picture.

    Attributes:
        key: tells it from the others: ``daemon:`` and a name, ``region:`` and a number, or
            ``cut-off:`` and the name of the daemon that it hangs on.
        x: 0 to 1.
        y: 0 to 1.
        size: daemons.
        label: a name or a number of daemons.
        role: ``daemon``, ``articulation``, ``region`` or ``cut-off``.
        cut_off: how many daemons are cut off when it is lost, or by the loss of what it hangs on.
    """

    key: str
    x: float
    y: float
    size: int
    label: str
    role: str
    cut_off: int


@dataclass(frozen=True)
class Link:
    """A line of the picture.

    Attributes:
        a: the key of one end.
        b: of the other.
        size: links.
        role: ``bridge`` if it is the only link and a bridge, otherwise ``link``.
    """

    a: str
    b: str
    size: int
    role: str


def layout(
    g: Graph, blocks: BlockCutTrees, regions: Regions, seed: int
) -> tuple[list[Node], list[Link]]:
    """Return the marks and lines to draw, with their places.

    Up to :data:`EVERY_DAEMON` daemons, all of them. Of more, the :data:`WORST` articulation
    daemons; for each of these one node with all that it cuts off, as far as that is not behind
    another one of them; and the regions, without what is drawn already.
    """
    small = g.n <= EVERY_DAEMON
    groups, named = _group_daemons(g) if small else _group_regions(blocks, regions)
    sizes = np.bincount(groups).astype(np.int64)
    tails, heads, counts, bridges = _count_links(g, blocks, groups)
    most = MOST_SMALL_LINKS if small else MOST_LINKS
    # Bridges first, then the strongest; of equals, those of the nodes with the fewest lines.
    lines = np.bincount(np.append(tails, heads), minlength=len(sizes))
    kept = np.lexsort((heads, tails, lines[tails] + lines[heads], -counts, ~bridges))[:most]
    kept.sort()
    tails, heads = tails[kept], heads[kept]
    radii = np.zeros(len(sizes)) if small else 1.2 * np.sqrt(sizes / sizes.max())
    places = place(radii, tails, heads, seed)
    cut_off = np.zeros(g.n, np.int64)
    cut_off[blocks.articulation] = blocks.cut_off
    nodes = [
        _describe(entry, int(size), (x, y), g, cut_off)
        for entry, size, (x, y) in zip(named, sizes, places.tolist(), strict=True)
    ]
    links = [
        Link(nodes[a].key, nodes[b].key, size, "bridge" if bridge else "link")
        for a, b, size, bridge in zip(
            tails.tolist(),
            heads.tolist(),
            counts[kept].tolist(),
            bridges[kept].tolist(),
            strict=True,
        )
    ]
    return nodes, links


_Entry = tuple[str, int]
"""The kind of a node, and the number of its daemon or region; -1 for all other regions."""


def _group_daemons(g: Graph) -> tuple[Ints, list[_Entry]]:
    return np.arange(g.n, dtype=np.int32), [("daemon", daemon) for daemon in range(g.n)]


def _group_regions(blocks: BlockCutTrees, regions: Regions) -> tuple[Ints, list[_Entry]]:
    """Return the node that each daemon is drawn in, and what the nodes are."""
    order = np.lexsort((blocks.articulation, -blocks.cut_off))[:WORST]
    worst = blocks.articulation[order]
    # Codes of what there may be: the worst, what is behind each, the regions, and the rest.
    behind = _find_behind(blocks, worst)
    regional = np.bincount(regions.labels[behind < 0], minlength=regions.count)
    drawn = np.lexsort((np.arange(regions.count), -regional))[:MOST_REGIONS]
    code_of = np.full(regions.count, 2 * WORST + MOST_REGIONS, np.int32)
    code_of[drawn] = 2 * WORST + np.arange(len(drawn), dtype=np.int32)
    codes = np.where(behind < 0, code_of[regions.labels], WORST + behind)
    codes[worst] = np.arange(len(worst))
    entries = {
        **{i: ("daemon", int(daemon)) for i, daemon in enumerate(worst)},
        **{WORST + i: ("cut-off", int(daemon)) for i, daemon in enumerate(worst)},
        **{2 * WORST + i: ("region", int(region)) for i, region in enumerate(drawn)},
        2 * WORST + MOST_REGIONS: ("region", -1),
    }
    used, groups = np.unique(codes, return_inverse=True)
    return groups.astype(np.int32), [entries[code] for code in used.tolist()]


def _find_behind(blocks: BlockCutTrees, worst: Ints) -> Ints:
    """Return for each daemon the place in ``worst`` of the one that cuts it off, or -1.

    Of several it is the nearest one.
    """
    behind = np.full(len(blocks.nodes), -1, np.int32)
    if not len(worst):
        return behind
    forest = grow(blocks.tree_indptr, blocks.tree_indices, _find_hearts(blocks))
    owner = [-1] * (len(blocks.trees) + 1)
    place_of = {int(node): i for i, node in enumerate(blocks.nodes[worst])}
    parents = forest.parents
    for node, up in zip(forest.order.tolist(), parents[forest.order].tolist(), strict=True):
        owner[node] = place_of.get(up, owner[up])
    linked = blocks.nodes >= 0
    behind[linked] = np.array(owner, np.int32)[blocks.nodes[linked]]
    return behind


def _find_hearts(blocks: BlockCutTrees) -> Ints:
    """Return of each tree the block whose heaviest branch is the lightest.

    Seen from there, what an articulation daemon cuts off is all that is below it.
    """
    forest, below = blocks.forest, blocks.below
    whole = below[first_of_each(blocks.trees)][blocks.trees]
    heaviest = whole - below
    child = np.flatnonzero(forest.parents >= 0)
    # The piece behind an articulation daemon, as seen from the block above it.
    np.maximum.at(heaviest, forest.parents[child], below[child])
    order = np.lexsort((heaviest[: blocks.count], blocks.trees[: blocks.count]))
    first = np.unique(blocks.trees[order], return_index=True)[1]
    return order[first].astype(np.int32)


def _count_links(g: Graph, blocks: BlockCutTrees, groups: Ints) -> tuple[Ints, Ints, Longs, Bools]:
    """Return the pairs of nodes with links between, how many, and which are single bridges."""
    one, other = groups[g.tails], groups[g.heads]
    n = int(groups.max(initial=0)) + 1
    codes = np.minimum(one, other).astype(np.int64) * n + np.maximum(one, other)
    between = np.flatnonzero(one != other)
    found, counts = np.unique(codes[between], return_counts=True)
    is_bridge = np.zeros(g.m, np.bool_)
    is_bridge[blocks.bridges] = True
    bridged = np.unique(codes[between[is_bridge[between]]])
    single = np.isin(found, bridged) & (counts == 1)
    tails, heads = np.divmod(found, n)
    return tails.astype(np.int32), heads.astype(np.int32), counts.astype(np.int64), single


def _describe(entry: _Entry, size: int, at: tuple[float, float], g: Graph, cut_off: Longs) -> Node:
    kind, number = entry
    if kind == "region":
        label = f"{size:,} daemon{'s' * (size != 1)}"
        key = f"region:{number}" if number >= 0 else "region:others"
        return Node(key, *at, size, label, "region", 0)
    name = g.ids[number].as_py()
    if kind == "cut-off":
        return Node(f"cut-off:{name}", *at, size, f"{size:,} behind {name}", kind, size)
    lost = int(cut_off[number])
    return Node(f"daemon:{name}", *at, 1, name, "articulation" if lost else "daemon", lost)
