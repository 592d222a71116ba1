"""What a graph loses with one of its nodes or links, and pairs of leaves, beside brute force."""

from __future__ import annotations

import itertools
import random

import pytest

from pubsubd.connectivity.blocks import Blocks, find_blocks
from pubsubd.connectivity.pairing import pair
from pubsubd.connectivity.remedy import remedy
from pubsubd.mesh.graphs import reach
from pubsubd.protocol.steps import finish

Near = list[list[int]]


def near_of(count: int, pairs: set[tuple[int, int]]) -> Near:
    near: list[set[int]] = [set() for _ in range(count)]
    for one, other in pairs:
        if one != other:
            near[one].add(other)
            near[other].add(one)
    return [sorted(one) for one in near]


def random_graphs(count: int) -> list[Near]:
    """Trees with a few links more, and graphs that may be in several parts."""
    rng = random.Random(1973)
    made = []
    for number in range(count):
        size = rng.randrange(1, 24)
        pairs = {
            (rng.randrange(one), one) for one in range(1, size) if number % 3 or rng.random() < 0.9
        }
        pairs |= {(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randrange(size))}
        made.append(near_of(size, pairs))
    return made


GRAPHS = random_graphs(120)


def blocks_of(near: Near) -> Blocks:
    return finish(find_blocks(near, 0))


def pieces(near: Near, lost: int | tuple[int, int]) -> list[set[int]]:
    """The pieces that the first node's component falls into, by trying, the largest first.

    Of equals, that with the root comes first.
    """
    left: dict[int, set[int]] = {node: set(near[node]) for node in reach(0, dict(enumerate(near)))}
    if isinstance(lost, int):
        left.pop(lost, None)
        left = {node: others - {lost} for node, others in left.items()}
    else:
        left[lost[0]].discard(lost[1])
        left[lost[1]].discard(lost[0])
    found: list[set[int]] = []
    for node in left:
        if not any(node in piece for piece in found):
            found.append(reach(node, left))
    return sorted(found, key=lambda piece: (-len(piece), 0 not in piece))


def test_what_the_loss_of_each_node_cuts_off_is_what_trying_shows() -> None:
    for near in GRAPHS:
        found = blocks_of(near)
        for node in found.order:
            first, *others = pieces(near, node) or [set()]
            cut_off = sum(map(len, others))
            assert found.articulation.get(node, 0) == cut_off
            if others:
                behind = sorted(found.behind(node))
                assert len(behind) == cut_off
                if len(first) > len(others[0]) or 0 in first:
                    assert behind == sorted(set().union(*others))


def test_what_the_loss_of_each_link_cuts_off_is_what_trying_shows() -> None:
    for near in GRAPHS:
        found = blocks_of(near)
        bridges = {(min(two), max(two)): two for two in found.bridges}
        for one in found.order:
            for other in near[one]:
                if one < other:
                    _, *cut = pieces(near, (one, other))
                    assert bool(cut) == ((one, other) in bridges)
                    if cut:
                        bridge = bridges[one, other]
                        assert sorted(found.beyond(bridge)) == sorted(cut[0])
                        assert found.bridges[bridge] == len(cut[0])


def test_with_the_new_links_no_single_loss_cuts_off_anything() -> None:
    for near in GRAPHS:
        found = blocks_of(near)
        links = finish(remedy(found, [len(one) for one in near]))
        pairs = {(node, other) for node in found.order for other in near[node]}
        assert not pairs & set(links)
        healed = blocks_of(near_of(len(near), pairs | set(links)))
        if len(found.order) > 2:
            assert (healed.articulation, healed.bridges) == ({}, {})
        else:
            assert links == []


def test_pairs_are_as_few_as_can_be_and_connect_the_groups() -> None:
    for count in range(2, 6):
        for sizes in itertools.combinations_with_replacement(range(1, 6), count):
            if max(sizes) > sum(sizes) // 2:
                continue
            ends = iter(range(sum(sizes)))
            groups = [list(itertools.islice(ends, size)) for size in sizes]
            group_of = {end: i for i, group in enumerate(groups) for end in group}
            for joined in (False, True):
                pairs = finish(pair(groups, joined))
                least = -(-sum(sizes) // 2)
                assert len(pairs) == (max(least, count - 1) if joined else least)
                assert {end for two in pairs for end in two} == set(group_of)
                between = {(group_of[one], group_of[other]) for one, other in pairs}
                assert all(one != other for one, other in between)
                if joined:
                    assert len(reach(0, dict(enumerate(near_of(count, between))))) == count


@pytest.mark.parametrize("shape", ["path", "star", "comb", "ring with leaves", "dense"])
def test_a_mesh_of_ten_thousand_is_looked_at_in_many_steps(shape: str) -> None:
    size = 10_000
    rng = random.Random(1)
    near = near_of(
        size,
        {
            "path": {(one - 1, one) for one in range(1, size)},
            "star": {(0, one) for one in range(1, size)},
            "comb": {(one - 1 if one < 5_000 else one - 5_000, one) for one in range(1, size)},
            "ring with leaves": {
                ((one + 1) % 5_000 if one < 5_000 else one - 5_000, one) for one in range(size)
            },
            "dense": {(rng.randrange(size), one) for one in range(size) for _ in range(9)},
        }[shape],
    )

    def count(steps: object) -> tuple[int, object]:
        made = 0
        while True:
            try:
                next(steps)  # type: ignore[call-overload]
            except StopIteration as done:
                return made, done.value
            made += 1

    made, found = count(find_blocks(near, 0))
    assert isinstance(found, Blocks)
    assert made > sum(map(len, near)) // 2_000
    more, links = count(remedy(found, [len(one) for one in near]))
    assert not found.articulation or more > 2 * len(found.blocks) // 512
    assert len(links) == {"path": 1, "star": 9_998, "comb": 2_500, "ring with leaves": 2_500}.get(
        shape, 0
    )  # type: ignore[arg-type]
