"""The budget for waiting."""

from __future__ import annotations

from pubsubd.transport.stall_budget import StallBudget
from tests.footprint import reached


def test_what_was_spent_comes_back_when_the_window_has_passed() -> None:
    patience = StallBudget(2.0, 10.0)
    assert patience.left(100.0) == 2.0
    patience.spend(100.0, 101.5)
    assert patience.left(101.5) == 0.5
    assert patience.left(110.9) == 0.5
    assert patience.left(112.0) == 2.0


def test_publishers_that_wait_at_the_same_time_spend_it_once() -> None:
    patience = StallBudget(2.0, 10.0)
    patience.spend(0.0, 1.0)
    patience.spend(0.5, 1.0)
    patience.spend(0.5, 1.5)
    assert patience.left(1.5) == 0.5


def test_many_short_waits_add_up_and_take_no_room() -> None:
    patience = StallBudget(2.0, 10.0)
    for i in range(1_000):
        patience.spend(i * 0.01, i * 0.01 + 0.001)
    assert round(patience.left(10.0), 6) == 1.0
    assert len(list(reached(patience))) < 50
