"""Token buckets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.broker.rate import Bucket


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    bucket = Bucket(60, 3)
    assert [bucket.take(0.0) for _ in range(5)] == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert bucket.take(0.5) == pytest.approx(0.5)
    assert bucket.take(1.0) == 0.0
    assert bucket.take(1.0) == pytest.approx(1.0)


def test_it_never_holds_more_than_its_burst() -> None:
    bucket = Bucket(6_000, 2)
    assert [bucket.take(1e6) for _ in range(3)] == [0.0, 0.0, pytest.approx(0.01)]


def test_a_rate_of_zero_is_none() -> None:
    bucket = Bucket(0, 1)
    assert {bucket.take(0.0) for _ in range(1_000)} == {0.0}


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), max_size=200), st.integers(1, 20), st.integers(1, 600))
def test_what_passes_in_any_time_is_bounded(gaps: list[float], burst: int, rate: int) -> None:
    bucket, now, passed = Bucket(rate, burst), 0.0, 0
    for gap in gaps:
        now += gap
        wait = bucket.take(now)
        passed += wait == 0.0
        assert wait <= 60 / rate + 1e-6
    assert passed <= burst + now * rate / 60 + 1e-6


@settings(deadline=None)
@given(st.floats(0.1, 1_000), st.integers(1, 5), st.floats(0, 1e6))
def test_who_waits_as_long_as_told_is_not_refused_again(
    rate: float, burst: int, now: float
) -> None:
    bucket = Bucket(rate, burst)
    for _ in range(20):
        wait = bucket.take(now)
        if wait:
            now += wait
            assert bucket.take(now) == 0.0


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    bucket = Bucket(60, 3)
    assert [bucket.take(100.0), bucket.take(0.0), bucket.take(0.0)] == [0.0, 0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(1.0)
