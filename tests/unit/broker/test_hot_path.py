"""What the hot path may do per frame, per run and per read, counted instead of timed."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from pubsubd.access.rules import AclRule
from pubsubd.broker import broker
from pubsubd.protocol.limits import READ_SIZE, WORK_PER_TURN, Limits
from pubsubd.protocol.wire import equal_headers
from pubsubd.routing import router
from pubsubd.routing.columns import count_alike
from pubsubd.routing.outbox import Pieces
from tests.rights import rules_in
from tests.tables import Table


class CountingRoutes(dict):
    """A header cache that counts its readers."""

    lookups = 0

    def get(self, key, default=None):
        self.lookups += 1
        return super().get(key, default)


class Counted:
    """A table with one publisher, whose lookups and puts are counted."""

    def __init__(self, **substrings: bytes) -> None:
        self.table = Table("pub", *substrings)
        router = self.table.broker.router
        self.routes = router.routes = router.answers.routes = CountingRoutes()
        self.puts: dict[str, int] = {}
        for name, substring in substrings.items():
            self._count_puts(name)
            self.table.say(name, b"sub %b\n" % substring)
        self.reset()

    def _count_puts(self, name: str) -> None:
        peer = self.table.peers[name]

        def put(chunk: bytes) -> None:
            self.puts[name] += 1
            peer.pending.append(chunk)

        peer.enqueue = put

    def reset(self) -> None:
        self.routes.lookups = 0
        self.puts = dict.fromkeys(self.table.peers, 0)
        self.table.sends = dict.fromkeys(self.table.peers, 0)

    def publish(self, data: bytes) -> None:
        """Let the caches see everything first, then count one read of it."""
        self.table.say("pub", data)
        for name in self.table.peers:
            self.table.hears(name)
        self.reset()
        self.table.say("pub", data)


def test_equal_frames_cost_no_lookup_each_one_put_and_one_send() -> None:
    counted = Counted(a=b"name", b=b"name")
    frames = b"".join(b"pub name 16 %016d\n" % i for i in range(8_000))
    counted.publish(frames)
    assert counted.routes.lookups < 20
    assert counted.puts == {"pub": 0, "a": 1, "b": 1}
    assert counted.table.sends == {"pub": 0, "a": 1, "b": 1}
    assert counted.table.hears("a") == counted.table.hears("b") == frames


def test_a_thousand_names_in_turn_cost_one_lookup_a_frame_and_one_put_together() -> None:
    counted = Counted(a=b"n")
    frames = b"".join(b"pub n%04d 16 %016d\n" % (i % 1_000, i) for i in range(8_000))
    counted.publish(frames)
    assert counted.routes.lookups < 8_000 * 1.05
    assert counted.puts["a"] == 1
    assert counted.table.hears("a") == frames


@pytest.mark.parametrize("period", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("same", [1, 2])
def test_a_few_names_in_turn_are_seldom_compared_in_vain(
    monkeypatch: pytest.MonkeyPatch, period: int, same: int
) -> None:
    counted, compared = Counted(a=b"n"), []

    def compare(*args: Any) -> int:
        compared.append(args)
        return equal_headers(*args)

    monkeypatch.setattr(broker, "equal_headers", compare)
    frames = b"".join(b"pub n%02d 16 %016d\n" % (i // same % period, i) for i in range(8_000))
    counted.publish(frames)
    assert len(compared) < 2 * 20
    assert counted.routes.lookups < (20 if period == 1 else 8_000 * 1.05)
    assert counted.puts["a"] == 1
    assert counted.table.hears("a") == frames


def test_equal_headers_that_are_met_by_chance_are_seldom_compared_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, compared = Counted(a=b"n"), []

    def compare(*args: Any) -> int:
        compared.append(args)
        return equal_headers(*args)

    monkeypatch.setattr(broker, "equal_headers", compare)
    widths = (1, 2, 3, 1, 3, 2, 2, 3, 1)  # 8 headers after that of one that comes twice is another
    frames = b"".join(b"pub %b 1 x\n" % (b"n" * widths[i % 9]) for i in range(9_000))
    counted.publish(frames)
    assert len(compared) < 2 * 20
    assert counted.table.hears("a") == frames


def test_names_and_lengths_mixed_cost_less_than_two_lookups_a_frame() -> None:
    counted = Counted(a=b"n")
    rng = random.Random(1)
    parts = []
    for _ in range(4_000):
        size = rng.randrange(1, 101)
        parts.append(b"pub n%02d %d %b\n" % (rng.randrange(64), size, b"x" * size))
    counted.publish(b"".join(parts))
    assert counted.routes.lookups < 4_000 * 1.5
    assert counted.puts["a"] == 1
    assert counted.table.hears("a") == b"".join(parts)


def test_subscribers_with_names_of_their_own_get_one_put_a_run_and_one_send_a_read() -> None:
    counted = Counted(**{f"s{i}": b"n%02d" % i for i in range(10)})
    frames = b"".join(b"pub n%02d%d 16 %016d\n" % (i // 10 % 10, i % 10, i) for i in range(1_000))
    counted.publish(frames)
    assert all(counted.puts[f"s{i}"] == 10 for i in range(10))
    assert all(counted.table.sends[f"s{i}"] == 1 for i in range(10))


def test_many_receivers_of_the_same_frames_share_one_bytes_object() -> None:
    table = Table("pub", "a", "b", "c")
    got: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    for name, chunks in got.items():
        table.peers[name].send = chunks.append
    table.say("a", b"sub n\n")
    table.say("b", b"sub n\nsub m\n")
    table.say("c", b"sub n\n")
    table.say("pub", b"pub n 3 one\npub m 3 two\npub n 5 three\n")
    assert got["a"] == [b"pub n 3 one\npub n 5 three\n"]
    assert got["a"][0] is got["c"][0]
    table.say("pub", b"pub n 3 one\n")
    assert got["a"][1] is got["b"][1] is got["c"][1]


def test_a_name_that_comes_again_is_not_matched_again_for_each_of_its_lengths() -> None:
    counted = Counted(a=b"n")
    before = counted.table.broker.router.lookups
    counted.table.say("pub", b"".join(b"pub n %d %b\n" % (i, b"x" * i) for i in range(100)))
    assert counted.table.broker.router.lookups == before + 2


def test_new_names_of_one_width_cost_no_lookup_each() -> None:
    counted = Counted(a=b"n", b=b"n0", c=b"x")
    for first in (0, 8_000, 90_000):
        counted.reset()
        frames = b"".join(b"pub n%07d 16 %016d\n" % (i, i) for i in range(first, first + 8_000))
        before = counted.table.broker.router.lookups
        counted.table.say("pub", frames)
        assert counted.table.broker.router.lookups == before + 8_000
        assert counted.routes.lookups < 40
        assert counted.puts == {"pub": 0, "a": 1, "b": 1, "c": 0}
        assert counted.table.hears("a") == counted.table.hears("b") == frames


def test_new_names_and_lengths_that_vary_cost_few_lookups() -> None:
    counted = Counted(a=b"n", b=b"/n", c=b"x")
    sizes = [7 * i % 60 for i in range(8_000)]
    frames = [b"pub %d/n%d %d %b\n" % (i % 7, i**3, n, b"\n" * n) for i, n in enumerate(sizes)]
    counted.table.say("pub", b"".join(frames))
    assert counted.routes.lookups < 2_000
    assert counted.puts == {"pub": 0, "a": 1, "b": 1, "c": 0}
    assert counted.table.hears("a") == counted.table.hears("b") == b"".join(frames)
    counted.table.say("pub", b"".join(frames[:100]) + b"pub //n 1 x\n" + b"".join(frames[100:]))
    assert counted.table.hears("a").count(b"pub //n 1 x") == 1


def test_new_names_that_look_alike_and_go_to_others_are_not_compared_in_vain_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, compared = Counted(a=b"n", b=b"7"), []

    def compare(*args: Any) -> int:
        compared.append(args)
        return count_alike(*args)

    monkeypatch.setattr(router, "count_alike", compare)
    numbers = [i for i in range(99_999) if b"7" not in b"%d" % i]
    frames = [b"pub n%05d 1 x\n" % i for i in numbers[:9_000]]
    frames[5::7] = [b"pub 7%05d 1 x\n" % i for i in numbers[: len(frames[5::7])]]
    counted.table.say("pub", b"".join(frames))
    assert len(compared) < 30
    assert counted.table.hears("a") == b"".join(frame for frame in frames if b"n" in frame)


def test_names_that_never_come_again_are_not_cached() -> None:
    table = Table("pub", "a")
    table.say("a", b"sub n\n")
    table.say("pub", b"".join(b"pub n%d 1 x\n" % i for i in range(10_000)))
    assert len(table.messages("a")) == 10_000
    assert table.broker.router.cached_names == len(table.broker.router.routes) == 0


def test_a_subscription_elsewhere_leaves_the_cached_names_alone() -> None:
    table = Table("pub", "a", "b")
    table.say("a", b"sub n\n")
    frames = b"".join(b"pub n%d 1 x\npub n 1 x\n" % i for i in range(500))  # one is known
    table.say("pub", frames)
    table.say("pub", frames)
    router = table.broker.router
    before = router.lookups
    for i in range(100):
        table.say("b", b"sub other%d\n" % i)
        table.say("b", b"unsub other%d\n" % i)
    table.say("b", b"sub n7\n")
    table.say("pub", frames)
    assert router.lookups == before + len([i for i in range(500) if f"n{i}".startswith("n7")])


def test_a_large_payload_is_joined_once() -> None:
    table = Table("pub", "a")
    table.say("a", b"sub n\n")
    table.say("pub", b"pub n 1000000 ")
    for _ in range(99):
        table.say("pub", b"x" * 10_000)
    assert len(table.peers["pub"].parts) == 100  # nothing was copied together on the way
    table.say("pub", b"x" * 10_000 + b"\n")
    assert table.hears("a") == b"pub n 1000000 " + b"x" * 1_000_000 + b"\n"


def test_a_frame_larger_than_a_read_is_not_joined_for_those_who_can_take_it() -> None:
    table = Table("pub", "a", "b")
    got: dict[str, list[bytes | Pieces]] = {"a": [], "b": []}
    for name, chunks in got.items():
        table.peers[name].send = chunks.append
        table.say(name, b"sub n\n")
    peer = table.peers["pub"]
    assert peer.wanted == READ_SIZE
    first = b"pub n 1000000 " + b"x" * (READ_SIZE - 14)
    table.say("pub", first)
    rest = b"x" * (1_000_000 - READ_SIZE + 14) + b"\n"
    assert peer.wanted == peer.missing == len(rest)  # it ends the read
    table.say("pub", rest)
    assert peer.wanted == 1_000_015  # another one may follow, and come as one piece
    whole = first + rest
    table.say("pub", whole)
    for pieces, parts in zip(got["a"], ([first, rest], [whole]), strict=True):
        assert isinstance(pieces, Pieces)
        assert all(part is said for part, said in zip(pieces.parts, parts, strict=True))
    assert all(mine is its for mine, its in zip(got["a"], got["b"], strict=True))
    assert got["a"][0].whole() is got["b"][0].whole()
    assert got["a"][0].whole() == whole
    table.say("pub", b"pub n 1 x\n")
    assert peer.wanted == READ_SIZE


def test_uncommon_work_is_done_in_turns_and_frames_are_not() -> None:
    table = Table("pub", "a")
    peer = table.peers["a"]
    turns = 1
    more = table.broker.receive(peer, b"".join(b"sub s%d\n" % i for i in range(20_000)))
    while more:
        turns += 1
        more = table.broker.receive(peer, b"")
    assert turns >= 20_000 * 16 // WORK_PER_TURN
    assert len(peer.substrings) == 20_000
    assert not table.broker.receive(table.peers["pub"], b"pub n 1 x\n" * 20_000)


@pytest.mark.parametrize("count", [1, 2, 8, 63, 64, 65, 200, 5_000])
@pytest.mark.parametrize("flaw", [None, 0, 4, 8])
def test_equal_headers_are_counted_up_to_the_first_that_differs(count: int, flaw: int) -> None:
    key = b"\npub n 4 "
    buf = (key + b"data") * count
    if flaw is not None:  # one byte of the header after them
        other = bytearray(key)
        other[flaw] += 1
        buf += bytes(other) + b"data" + (key + b"data") * 100
    buf += b"\n"
    assert equal_headers(buf, 0, key, len(key) + 4) == count


def test_limits_are_settings_that_the_broker_obeys() -> None:
    table = Table("a", limits=Limits(max_payload=3, max_subscriptions=1))
    table.say("a", b"sub x\nsub x\nsub y\npub x 3 abc\npub x 4 abcd\n")
    assert table.messages("a") == [
        ("error", "too-many-subscriptions"),
        (b"x", b"abc"),
        ("error", "payload-too-large"),
    ]


def test_new_names_that_are_refused_and_look_alike_are_each_counted() -> None:
    table = Table("pub", "a")
    table.say("a", b"sub x\n")
    rules_in(table.broker, AclRule(("*",), ("x",), ("x",)))
    long = b"n" * 300  # longer than what is remembered of what is refused
    refused = b"".join(b"pub %b%d 1 x\n" % (long, i) for i in range(10))
    table.say("pub", refused + b"pub x 1 y\n" + refused + b"pub x 1 z\n")
    assert table.hears("a") == b"pub x 1 y\npub x 1 z\n"
    assert table.broker.counters.errors["not-allowed"] == 20
    assert table.broker.counters.messages_in == 2


def test_known_headers_of_many_widths_are_not_matched_again() -> None:
    counted = Counted(a=b"n")
    broker, matched = counted.table.broker, []
    match_header = broker.match_header

    def match(buf: bytes, at: int) -> re.Match[bytes] | None:
        matched.append(at)
        return match_header(buf, at)

    broker.match_header = match
    frames = b"".join(b"pub n%d 1 x\n" % (10 ** (i % 5)) for i in range(1_000))
    counted.publish(frames)
    assert len(matched) < 50
    assert counted.routes.lookups < 2_020  # widths that come back in turn are not tried for long
    assert counted.table.hears("a") == frames


def test_receivers_of_the_same_many_runs_share_one_bytes_object() -> None:
    table = Table("pub", "a", "b", "c", "d")
    got: dict[str, list[bytes]] = {name: [] for name in "abcd"}
    for name, chunks in got.items():
        table.peers[name].send = chunks.append
    for name, subs in {"a": b"nm", "b": b"nm", "c": b"nmo", "d": b"nm"}.items():
        table.say(name, b"".join(b"sub %c\n" % one for one in subs))
    table.say("d", b"sub p\n")
    runs = [b"pub n 1 a\n", b"pub o 1 b\n", b"pub p 1 c\n", b"pub m 1 d\n", b"pub n 1 e\n"]
    table.say("pub", b"".join(runs))
    assert got["a"] == [b"".join(runs[i] for i in (0, 3, 4))]
    assert got["a"][0] is got["b"][0]
    assert got["c"] == [b"".join(runs[i] for i in (0, 1, 3, 4))]
    assert got["d"] == [b"".join(runs[i] for i in (0, 2, 3, 4))]
