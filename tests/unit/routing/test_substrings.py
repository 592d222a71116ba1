"""The substring index against trying every pattern."""

from __future__ import annotations

import contextlib
import sys
from types import FrameType

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.routing import substrings
from pubsubd.routing.substrings import SubstringIndex
from tests.examples import examples
from tests.footprint import footprint, reached

texts = st.text(alphabet="ab/", min_size=1, max_size=40).map(str.encode)
long_texts = st.builds(
    lambda unit, count, end: (unit * count + end)[:1024],
    texts,
    st.integers(1, 60),
    st.sampled_from([b"", b"b", b"aa"]),
)
patterns = st.one_of(texts, texts, long_texts)


class IndexAgainstSet(RuleBasedStateMachine):
    """The index, and the set that it stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SubstringIndex()
        self.truth: set[bytes] = set()

    @rule(pattern=patterns)
    def add(self, pattern: bytes) -> None:
        if pattern not in self.truth:
            self.index.add(pattern, len(pattern))
            self.truth.add(pattern)

    @rule(many=st.lists(patterns, min_size=10, max_size=30))
    def add_many(self, many: list[bytes]) -> None:
        for pattern in many:
            self.add(pattern)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.truth:
            pattern = data.draw(st.sampled_from(sorted(self.truth)))
            self.index.remove(pattern)
            self.truth.remove(pattern)

    @rule(name=patterns)
    def find(self, name: bytes) -> None:
        found = self.index.find(name)
        assert sorted(found) == sorted(p for p in self.truth if p in name)

    @invariant()
    def holds_what_the_set_holds(self) -> None:
        assert self.index.values == {pattern: len(pattern) for pattern in self.truth}

    def teardown(self) -> None:
        for pattern in self.truth:
            self.index.remove(pattern)
        left = [one for one in reached(self.index) if isinstance(one, bytes)]
        assert left == []  # nothing is left behind of a pattern


TestIndexAgainstSet = IndexAgainstSet.TestCase
TestIndexAgainstSet.settings = settings(
    max_examples=examples(80), stateful_step_count=30, deadline=None
)


def test_removing_an_unknown_pattern_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        SubstringIndex().remove(b"a")


def test_a_lookup_among_a_hundred_thousand_patterns_takes_steps_for_the_name_alone() -> None:
    index = SubstringIndex()
    for i in range(100_000):
        index.add(b"//org/room%d/%d" % (i % 1_000, i), None)
    name = b"//org/room77/99999999"
    index.find(name)
    assert index.work <= 3 * len(name)


def test_tables_shrink_when_most_patterns_have_gone() -> None:
    index = SubstringIndex()
    many = [b"%dx" % (i * 7_919) for i in range(20_000)]
    for pattern in many:
        index.add(pattern, None)
    full = [footprint(index.values), footprint(index)]
    for pattern in many[100:]:
        index.remove(pattern)
    left = [footprint(index.values), footprint(index)]
    assert all(now < then / 5 for now, then in zip(left, full, strict=True))
    assert sorted(index.find(b"-".join(many))) == sorted(set(many[:100]))


def test_work_counts_the_steps_of_a_hostile_set() -> None:
    index = SubstringIndex()
    for length in range(4, 1_023):
        index.add(b"a" * length + b"b", None)
    index.find(b"a" * 1_024)
    assert index.work > 100_000


@pytest.mark.parametrize("kind", ["add", "remove"])
@pytest.mark.parametrize("failing", range(1, 6))
def test_what_was_half_done_when_something_failed_is_made_whole(kind: str, failing: int) -> None:
    index: SubstringIndex[int] = SubstringIndex()
    others = [b"ab", b"abcd", b"abcdefgh" * 2]
    for other in others:
        index.add(other, 1)
    pattern = b"abcdefgh" * 20
    if kind == "remove":
        index.add(pattern, 1)
    calls = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == substrings.__file__
        if calls == failing:
            sys.setprofile(None)
            raise RuntimeError("on purpose")

    sys.setprofile(profile)
    with contextlib.suppress(RuntimeError):
        getattr(index, kind)(pattern, *([1] if kind == "add" else []))
    sys.setprofile(None)
    index.repair()
    assert set(index.find(pattern)) == set(index.values)
    if pattern in index.values:
        index.remove(pattern)
    for other in others:
        index.remove(other)
    assert [one for one in reached(index) if isinstance(one, bytes)] == []
