"""The daemon's own tasks, and turns that take long, on trio's clock that jumps."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pubsubd.broker.faults import Faults
from pubsubd.protocol.errors import FailedError
from pubsubd.protocol.limits import TURN
from pubsubd.transport.lane import Lane
from pubsubd.transport.tasks import PAUSES, Tasks, guarded


class Failing:
    """A task that fails so many times, and notes when it was started."""

    def __init__(self, times: int, *, after: float = 0.0) -> None:
        self.times = times
        self.after = after
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(trio.current_time())
        await trio.sleep(self.after)
        if len(self.starts) <= self.times:
            raise RuntimeError("on purpose")


@pytest.fixture
def faults() -> Faults:
    return Faults()


async def test_a_task_that_fails_is_started_again_with_a_growing_pause(
    autojump_clock: trio.testing.MockClock, faults: Faults
) -> None:
    task, events = Failing(12), []
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, faults, events.append)
        tasks.start("export", task.run)
    pauses = [later - earlier for earlier, later in zip(task.starts, task.starts[1:], strict=False)]
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(pauses) == pytest.approx(30.0)
    assert tasks.restarts == {"export": 12}
    assert not tasks.down
    assert [event["event"] for event in events] == ["task-failed"] * 12
    assert sum(faults.counts.values()) == 12


async def test_it_is_told_which_tasks_are_down_and_for_how_long(
    autojump_clock: trio.testing.MockClock, faults: Faults
) -> None:
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, faults)
        tasks.start("lag", Failing(2).run)
        await trio.sleep(0.05)
        assert tasks.down == {"lag": 1}
        await trio.sleep(0.1)
        assert tasks.down == {"lag": 1}
        await trio.sleep(0.2)
        assert not tasks.down


async def test_after_a_long_run_the_pauses_begin_anew(
    autojump_clock: trio.testing.MockClock, faults: Faults
) -> None:
    task = Failing(4, after=100.0)
    async with trio.open_nursery() as nursery:
        Tasks(nursery, faults).start("lag", task.run)
    pauses = [later - earlier for earlier, later in zip(task.starts, task.starts[1:], strict=False)]
    assert pauses == pytest.approx([100.1] * 4)


async def test_three_failures_in_a_minute_of_a_vital_task_end_the_daemon(
    autojump_clock: trio.testing.MockClock, faults: Faults
) -> None:
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, faults)
        await tasks.keep("accept", Failing(2).run, vital=True)
        await tasks.keep("accept", Failing(5, after=40.0).run, vital=True)
        with pytest.raises(FailedError, match="accept has failed 3 times"):
            await tasks.keep("accept", Failing(3).run, vital=True)


async def test_what_tells_of_a_failure_may_fail_as_well(
    autojump_clock: trio.testing.MockClock, faults: Faults
) -> None:
    def tell(_event: dict[str, object]) -> None:
        raise ValueError("on purpose")

    async with trio.open_nursery() as nursery:
        Tasks(nursery, faults, tell).start("lag", Failing(1).run)
    assert sum(faults.counts.values()) == 2


async def test_a_cancelled_task_stays_ended(faults: Faults) -> None:
    async with trio.open_nursery() as nursery:
        Tasks(nursery, faults).start("lag", trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not faults.counts


def test_what_is_guarded_raises_nothing(faults: Faults) -> None:
    guarded(faults, "sweep", lambda: 1 // 0)
    assert sum(faults.counts.values()) == 1


# The lane


class Passes:
    """Counts the passes of the loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await trio.lowlevel.checkpoint()


async def crowd(cost: float, count: int, turns: int) -> list[tuple[int, int]]:
    """Let tasks of that cost take turns in a lane; return who had one in which pass."""
    passes, lane = Passes(), Lane()
    taken: list[tuple[int, int]] = []

    async def busy(number: int) -> None:
        for _ in range(turns):
            if not lane.enter(cost):
                await lane.wait(cost)
            taken.append((number, passes.count))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(passes.run)
        async with trio.open_nursery() as workers:
            for number in range(count):
                workers.start_soon(busy, number)
        nursery.cancel_scope.cancel()
    return taken


@pytest.mark.parametrize(("cost", "room"), [(TURN, 1), (2 * TURN, 1), (TURN / 5, 5)])
async def test_as_many_go_on_in_a_pass_as_a_turn_has_room_for(cost: float, room: int) -> None:
    taken = await crowd(cost, 20, 5)
    assert len(taken) == 100
    when = [at for _, at in taken]
    # The counter runs before or after the others of its pass, so two passes may count as one.
    assert all(when.count(at) <= 2 * room for at in when)
    assert len(set(when)) >= 100 / room / 2
    for number in range(20):  # nobody has many turns before others have theirs
        assert [one for one, _ in taken[:40]].count(number) <= 3


async def test_who_takes_more_than_was_likely_sends_the_others_back() -> None:
    now = 0.0
    passes, lane = Passes(), Lane(lambda: now)
    taken: list[tuple[int, int]] = []

    async def surprise(number: int) -> None:
        nonlocal now
        if not lane.enter(TURN / 100):
            await lane.wait(TURN / 100)
        now += 2 * TURN
        taken.append((number, passes.count))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(passes.run)
        async with trio.open_nursery() as workers:
            for number in range(20):
                workers.start_soon(surprise, number)
        nursery.cancel_scope.cancel()
    when = [at for _, at in taken]
    assert sorted(number for number, _ in taken) == list(range(20))
    assert max(when.count(at) for at in when) <= 2  # by what was likely, 20 had room in one pass


async def test_once_a_pass_is_late_nobody_enters_before_the_next_one() -> None:
    now = 0.0
    lane = Lane(lambda: now)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        assert lane.late <= TURN
        now += 2 * TURN
        assert not lane.enter(0.0)
        await trio.testing.wait_all_tasks_blocked()
        assert lane.enter(0.0)
        nursery.cancel_scope.cancel()
    assert lane.late == float("inf")


async def test_a_fault_where_passes_begin_is_counted_and_does_not_leave_all_of_them_late(
    faults: Faults, autojump_clock: trio.testing.MockClock
) -> None:
    now, broken = 0.0, False

    def clock() -> float:
        if broken:
            raise RuntimeError("broken on purpose")
        return now

    lane = Lane(clock)
    async with trio.open_nursery() as nursery:
        Tasks(nursery, faults).start("lane", lane.run)
        await trio.testing.wait_all_tasks_blocked()
        broken = True
        await trio.lowlevel.checkpoint()
        broken, now = False, 10 * TURN
        await trio.lowlevel.checkpoint()
        assert lane.late < now  # trio has dropped the instrument
        await lane.wait(0.0)
        assert lane.late > now
        await trio.sleep(2 * PAUSES[0])
        await trio.testing.wait_all_tasks_blocked()
        assert faults.counts == {"transport.lane.Lane.run": 1}
        assert now < lane.late <= now + TURN
        nursery.cancel_scope.cancel()


async def test_those_who_cost_little_do_not_wait_for_all_who_are_busy() -> None:
    lane = Lane(lambda: 0.0)
    order: list[str] = []

    async def take(name: str, cost: float) -> None:
        await lane.wait(cost)
        order.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        assert lane.enter(TURN)
        for number in range(20):
            nursery.start_soon(take, f"busy {number}", TURN)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(take, "probe", TURN / 100)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert order.index("probe") <= 3
    assert len(order) == 21


async def test_the_lane_keeps_nothing_of_those_who_wait_no_more() -> None:
    lane = Lane(lambda: 0.0)

    async def take() -> None:
        for _ in range(50):
            await lane.wait(TURN)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        assert lane.enter(TURN)
        async with trio.open_nursery() as workers:
            for _ in range(20):
                workers.start_soon(take)
        assert lane.entries < 300
        nursery.cancel_scope.cancel()


async def test_who_is_alone_in_the_lane_does_not_wait() -> None:
    lane = Lane(lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            assert lane.enter(TURN)
            assert not lane.enter(TURN)  # not twice in one pass
            for _ in range(2):  # nor in the next one
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_what_a_turn_did_not_take_is_there_for_others() -> None:
    lane = Lane(lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            assert lane.enter(0.6 * TURN)
            lane.give_back(0.5 * TURN)
        assert not lane.enter(0.8 * TURN)
        lane.give_back(10 * TURN)
        assert lane.enter(TURN)
        assert not lane.enter(TURN / 5)  # never more than a turn's time, whatever is given back
        nursery.cancel_scope.cancel()


async def test_who_costs_less_than_all_who_wait_goes_on_beside_them_in_half_a_turn() -> None:
    lane, seen = Lane(lambda: 0.0), 0

    async def busy() -> None:
        while True:
            await lane.wait(TURN / 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(6):
            nursery.start_soon(busy)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
            if lane.queued > 3:  # of whom two have been let on, at most
                seen += 1
                assert not lane.enter(TURN / 5)
                assert 1 <= [lane.enter(TURN / 20) for _ in range(20)].count(True) <= 10
        nursery.cancel_scope.cancel()
    assert seen > 10


async def test_without_its_task_the_lane_holds_nobody_back() -> None:
    lane = Lane()
    assert lane.enter(TURN)
    assert lane.enter(TURN)
    await lane.wait(TURN)


async def test_who_waits_in_the_lane_can_be_cancelled_and_a_lane_that_ends_frees_all() -> None:
    lane = Lane()
    gone: list[str] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await lane.wait(TURN)
        gone.append(name)

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        running = trio.CancelScope()

        async def run() -> None:
            with running:
                await lane.run()

        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        lane.enter(TURN)  # unless this pass has taken longer already
        for name in ("a", "b", "c"):
            nursery.start_soon(wait, name, scope if name == "b" else trio.CancelScope())
        scope.cancel()
        running.cancel()
    assert sorted(gone) == ["a", "b", "c"]
