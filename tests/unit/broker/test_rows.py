"""Frames that each go to one receiver are dealt out many at a time, and nothing else changes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.broker import broker
from pubsubd.broker.rows import deal
from tests.tables import Table

PEERS = ("a", "b", "c")
NAMES = [b"%b%d" % (peer, i) for peer in (b"a", b"b", b"c") for i in range(4)]


def make() -> Table:
    """A publisher, and a receiver for each letter; of ``ab`` there are two."""
    table = Table("pub", *PEERS)
    for peer in PEERS:
        table.say(peer, b"sub %b\n" % peer.encode())
    return table


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each call has dealt out."""
    calls: list[int] = []

    def count(*args: Any) -> int:
        calls.append(deal(*args))
        return calls[-1]

    monkeypatch.setattr(broker, "deal", count)
    return calls


def hear_all(table: Table) -> dict[str, bytes]:
    return {peer: table.hears(peer) for peer in PEERS}


def due(frames: list[bytes]) -> dict[str, bytes]:
    """What each receiver hears of the frames, one by one."""
    return {
        peer: b"".join(one for one in frames if peer.encode() in one.split(b" ")[1])
        for peer in PEERS
    }


def in_turn(count: int, size: int = 16) -> list[bytes]:
    return [b"pub %b %d %0*d\n" % (NAMES[5 * i % len(NAMES)], size, size, i) for i in range(count)]


def test_frames_of_one_length_to_one_receiver_each_are_dealt_out_together(
    dealt: list[int],
) -> None:
    table, frames = make(), in_turn(4_000)
    table.say("pub", b"".join(frames))
    table.say("pub", b"".join(frames))
    assert hear_all(table) == due(2 * frames)
    assert sum(dealt) > 2 * 0.95 * len(frames)
    assert len(dealt) < 8
    assert table.broker.counters.messages_in == table.broker.counters.messages_out == 8_000
    assert sum(table.peers[peer].messages_out for peer in PEERS) == 8_000
    assert table.sends == {"pub": 0, **dict.fromkeys(PEERS, 2)}


@pytest.mark.parametrize(
    "odd", [b"pub none 16 %016d\n", b"pub ab 16 %016d\n", b"pub c1 7 %07d\n", b"sub a%010d\n"]
)
def test_what_is_not_alike_is_seldom_tried_in_vain(dealt: list[int], odd: bytes) -> None:
    table, frames = make(), in_turn(8_000)
    frames[::8] = [odd % i for i in range(1_000)]
    table.say("pub", b"".join(frames))
    table.say("pub", b"".join(frames))
    if not odd.startswith(b"sub"):
        assert hear_all(table) == due(2 * frames)
    assert len(dealt) < 40


def test_long_runs_are_left_to_the_hot_loop(dealt: list[int]) -> None:
    table, frames = make(), [frame for frame in in_turn(400) for _ in range(20)]
    table.say("pub", b"".join(frames))
    table.say("pub", b"".join(frames))
    assert hear_all(table) == due(2 * frames)
    assert not dealt


def test_frames_are_dealt_out_up_to_the_last_that_is_known_to_be_whole(dealt: list[int]) -> None:
    table, text = make(), b"".join(in_turn(400))
    table.say("pub", text)
    hear_all(table)
    for end in range(len(text) - 60, len(text) + 1):
        table.say("pub", text[:end])
        table.say("pub", text[end:])
        assert hear_all(table) == due(in_turn(400))
    assert sum(dealt) > 60 * 300


def test_data_that_looks_like_such_frames_stays_data(dealt: list[int]) -> None:
    table, frames = make(), in_turn(400)
    data = bytes(16) + b"\n" + b"".join(in_turn(3))[:-1]
    frames[300] = b"pub c1 %d %b\n" % (len(data), data)
    table.say("pub", b"".join(frames))
    table.say("pub", b"".join(frames))
    assert hear_all(table) == due(2 * frames)
    assert max(dealt) > 200


def test_a_wrong_length_among_them_spares_what_came_before(dealt: list[int]) -> None:
    table, frames = make(), in_turn(400)
    table.say("pub", b"".join(frames))
    hear_all(table)
    frames[300] = frames[300][:-1] + b"x\n"
    table.say("pub", b"".join(frames))
    assert hear_all(table) == due(frames[:300])
    assert b"wrong-length" in table.hears("pub")
    assert max(dealt) > 200


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 6), st.integers(0, 3))
def test_they_arrive_as_they_would_one_by_one_however_they_are_cut(
    seed: int, rare: int, longest: int, odd: int
) -> None:
    chance = random.Random(seed)
    table, frames = make(), []
    names = [*NAMES, b"ab", b"none", b"//x/a", b"a" * 30]
    while len(frames) < 600:
        name, size = NAMES[chance.randrange(len(NAMES))], 16
        if chance.random() < odd / (8 * rare):
            name, size = chance.choice(names), chance.choice((0, 7, 16, 17))
        times = range(chance.randrange(longest) + 1)
        frames += [b"pub %b %d %b\n" % (name, size, chance.randbytes(size)) for _ in times]
    text = b"".join(frames)
    cuts = sorted({0, len(text), *(chance.randrange(len(text)) for _ in range(rare))})
    for start, stop in pairwise(cuts):
        table.say("pub", text[start:stop])
    assert hear_all(table) == due(frames)
    counts = Counter(
        peer for frame in frames for peer in PEERS if peer.encode() in frame.split()[1]
    )
    assert {peer: table.peers[peer].messages_out for peer in PEERS} == {
        peer: counts[peer] for peer in PEERS
    }
    assert table.broker.counters.messages_in == len(frames)
