"""Is the lateness of the loop measured as it is?"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pubsubd.daemon.lag import BUCKETS, INTERVAL, LoopLag


async def measure(lag: LoopLag, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await lag.run()


async def test_a_loop_that_is_idle_is_never_late_and_is_asked_four_times_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lag = LoopLag()
    await measure(lag, 10 + INTERVAL / 2)
    assert lag.counts == [40] + [0] * len(BUCKETS)
    assert lag.total == pytest.approx(0)


async def test_a_loop_that_is_held_up_is_late_once_by_what_was_left_of_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lag = LoopLag()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.run)
        await trio.sleep(INTERVAL / 2)
        autojump_clock.jump(3)  # nobody has had a turn meanwhile
        await trio.sleep(INTERVAL / 2)
        nursery.cancel_scope.cancel()
    assert lag.total == pytest.approx(3 - INTERVAL / 2)
    assert lag.counts[BUCKETS.index(5.0)] == sum(lag.counts) == 1


@pytest.mark.parametrize("at", range(len(BUCKETS) + 1))
def test_a_measurement_belongs_to_the_first_class_that_it_is_not_above(at: int) -> None:
    lag = LoopLag()
    lag.note(BUCKETS[at] if at < len(BUCKETS) else 1e9)
    assert lag.counts.index(1) == at
    if at < len(BUCKETS):
        lag.note(BUCKETS[at] * 1.001)
        assert lag.counts[at : at + 2] == [1, 1]
