"""The compiled scanner finds what the hot loop finds, whatever comes and however it is cut."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd import __version__
from pubsubd.protocol.limits import MAX_CACHED_NAMES, READ_SIZE, Limits
from pubsubd.routing.scanner import VARIABLE, Scan
from tests.daemons import ROOT
from tests.examples import examples
from tests.scanners import build_scanner, load_scanner
from tests.tables import Table
from tests.unit.broker.test_broker_model import LIMITS, speeches

PEERS = ("ann", "bob", "eve")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_scanner(tmp_path_factory.mktemp("scanner"))


@pytest.fixture(scope="module")
def scan(built: Path) -> Scan:
    return load_scanner(built)


class Pair:
    """Two tables that are told the same: one has the scanner, and the other has not."""

    def __init__(self, scan: Scan | None, limits: Limits = LIMITS) -> None:
        self.with_it, self.without = Table(*PEERS, limits=limits), Table(*PEERS, limits=limits)
        self.scanned = 0  # frames

        def counted(*args: object) -> object:
            assert scan is not None
            runs, names = scan(*args)
            self.scanned += sum(count for _, _, count, _ in runs)
            return runs, names

        broker = self.with_it.broker
        broker.scan, broker.scan_from = counted if scan is not None else None, 0
        self.without.broker.scan = None

    def say(self, name: str, data: bytes) -> None:
        """Let both be told, and compare what came of it."""
        tables = self.with_it, self.without
        for table in tables:
            table.say(name, data)
        for who in PEERS:
            one, other = (table.hears(who) for table in tables)
            assert one == other
            one, other = (table.peers[who] for table in tables)
            assert (one.ending is None) == (other.ending is None)
            assert one.halfway == other.halfway
            assert one.messages_out == other.messages_out
        one, other = (table.broker.counters for table in tables)
        assert (one.messages_in, one.messages_out) == (other.messages_in, other.messages_out)
        assert one.errors == other.errors


def spoil(speech: bytes, chance: random.Random) -> bytes:
    """Change, remove, repeat or insert some bytes, as a stranger's program does."""
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(speech) + 1)
        some = chance.choice(
            [b"", b"\r", b"\n", b" ", b"\xff", b"\0", b"9", b"\npub ", b"\xc3\xa9"]
        )
        keep = chance.choice([at, at + 1, max(0, at - 8)])
        speech = speech[:at] + some + speech[keep:]
    return speech


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PEERS), speeches), min_size=1, max_size=4),
    st.integers(0, 1 << 32),
)
def test_any_conversation_cut_at_any_byte_leads_to_the_same(
    scan: Scan, said: list[tuple[str, bytes]], seed: int
) -> None:
    chance, pair = random.Random(seed), Pair(scan)
    for who in PEERS[: chance.randrange(3)]:
        pair.say(who, chance.choice([b"sub a\n", b"sub n\nsub a\n", b"sub\n", b"sub //fwd/\n"]))
    for who, whole in said:
        speech = spoil(whole, chance) if chance.random() < 0.5 else whole
        if chance.random() < 0.5:
            speech *= 2  # everything has been met before
        cuts = sorted(chance.randrange(len(speech) + 1) for _ in range(chance.randrange(6)))
        for start, stop in zip([0, *cuts], [*cuts, len(speech)], strict=True):
            pair.say(who, speech[start:stop])


@pytest.mark.parametrize("subscriptions", [b"sub n\n", b"sub n1\nsub nx\n", b"sub x\n", b""])
def test_more_names_than_are_remembered_lead_to_the_same(scan: Scan, subscriptions: bytes) -> None:
    pair, chance = Pair(scan, Limits()), random.Random(9)
    if subscriptions:
        pair.say("ann", subscriptions)
    for _ in range(3):
        names = [chance.randrange(3 * MAX_CACHED_NAMES) for _ in range(6_000)]
        frames = b"".join(b"pub n%d %d %b\n" % (i, i % 9, b"x" * (i % 9)) for i in names)
        for start in range(0, len(frames), READ_SIZE):
            pair.say("bob", frames[start : start + READ_SIZE])
    assert pair.scanned > 17_900 or not subscriptions
    router = pair.with_it.broker.router
    assert router.lookups < 18_100  # a few are matched again where what is scanned at once ends
    assert len(router.routes) < 100 or not subscriptions


def test_frames_in_the_usual_form_are_all_scanned_and_others_are_not(scan: Scan) -> None:
    pair = Pair(scan, Limits())
    pair.say("ann", b"sub n\n")
    frames = b"".join(
        b"pub n%04d %d %b\n" % (i % 97, i % 10, b"x" * (i % 10)) for i in range(5_000)
    )
    for _ in range(2):
        pair.say("bob", frames)
    pair.scanned = 0
    pair.say("bob", frames)
    assert pair.scanned == 5_000
    pair.say("bob", b"pub n 1 x\r\nPUB n 1 x\npub n - x\n" * 50)
    assert pair.scanned == 5_000


def test_what_comes_from_another_worker_is_scanned(scan: Scan) -> None:
    pair = Pair(scan, Limits(max_payload=100))
    for table in (pair.with_it, pair.without):
        bob = table.peers["bob"]
        bob.relayed = bob.sibling = True
    pair.say("ann", b"sub n\nsub //fwd/n\n")
    pair.say("eve", b"sub n1\n")
    frames = b"".join(b"pub n%d %d %b\n" % (i % 97, i % 200, b"x" * (i % 200)) for i in range(999))
    for _ in range(3):
        pair.scanned = 0
        pair.say("bob", frames)
    assert pair.scanned == 999
    pair.say("bob", b"pub //n/1 1 x\n" * 9 + frames + b"pub //fwd/n/1 1 x\n" * 9)


def test_names_whose_receivers_are_not_easily_told_lead_to_the_same(scan: Scan) -> None:
    pair = Pair(scan, Limits())
    pair.say("ann", b"sub n\nsub 7\n")  # of which a name may have both
    pair.say("eve", b"sub 9\nsub 7\n")
    for first in (0, 0, 0, 500):
        numbers = range(first, first + 1_000)
        frames = b"".join(
            b"pub n%d 1 x\npub /n%d 1 x\npub \xc3\xa9 1 n\n" % (i, i) for i in numbers
        )
        pair.say("bob", frames)
        pair.say("bob", frames.replace(b" 1 x", b" 300 " + b"x" * 300))
    assert pair.scanned > 10_000


def test_a_subscription_counts_from_the_next_frame_on(scan: Scan) -> None:
    pair = Pair(scan, Limits())
    frames = b"".join(b"pub n%d 1 x\n" % i for i in range(9))
    pair.say("ann", b"sub n\n")
    for _ in range(4):
        pair.say("bob", frames + b"sub n\n" + frames + b"unsub n\n" + frames)
    assert pair.scanned >= 3 * 9


@pytest.mark.parametrize(("choice", "uses"), [("", True), ("python", False)])
def test_version_says_whether_it_is_used(built: Path, choice: str, uses: bool) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "pubsubd", "--version"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{built}", VARIABLE: choice},
        text=True,
    )
    expected = f"pubsubd {__version__}" + (" (compiled scanner)" if uses else "")
    assert told.stdout.strip() == expected


@pytest.mark.parametrize("text", ["FORM = 1\n", "raise ImportError\n"])
def test_version_says_that_a_scanner_of_another_version_is_not_used(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "pubsubd_scanner.py").write_text(text)
    told = subprocess.run(
        [sys.executable, "-m", "pubsubd", "--version"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", VARIABLE: ""},
        text=True,
    )
    assert told.stdout.strip().endswith("(the installed scanner does not fit, and is not used)")
