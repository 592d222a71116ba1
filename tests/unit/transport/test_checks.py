"""Which password is checked next, and the threads that they are checked in."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.access import checks as checks_module
from pubsubd.access.checks import AT_A_TIME, MOST, MOST_OF_ONE, MOST_SUSPECT, Checks
from pubsubd.broker.faults import Faults
from pubsubd.transport.checker import LONGEST_WAIT, Checker, Place


class Item:
    def __init__(self, address: str) -> None:
        self.address = address

    def __repr__(self) -> str:
        return self.address


class Queue(Checks[Item]):
    """Checks whose test says which addresses are suspect."""

    def __init__(self, *suspects: str) -> None:
        super().__init__(lambda address: address in self.suspects)
        self.suspects = set(suspects)

    def put(self, *addresses: str) -> list[Item]:
        items = [Item(address) for address in addresses]
        for item in items:
            assert self.add(item) is None
        return items

    def run_one(self) -> str:
        item = self.take()
        assert item is not None
        self.done(item)
        return item.address

    def run_all(self) -> list[str]:
        found = []
        while self.size:
            found.append(self.run_one())
        return found


def test_only_so_many_run_at_a_time_and_of_one_address_one() -> None:
    queue = Queue()
    queue.put("a", "a", "b", "c")
    first, second = queue.take(), queue.take()
    assert (str(first), str(second)) == ("a", "b")
    assert queue.take() is None
    assert second is not None
    queue.done(second)
    assert str(queue.take()) == "c"
    queue = Queue()
    queue.put("a", "a")
    assert str(queue.take()) == "a"
    assert queue.take() is None


def test_addresses_take_turns_however_much_of_one_waits() -> None:
    queue = Queue()
    queue.put(*"aaaaabbc")
    assert "".join(queue.run_all()) == "abcabaaa"


def test_who_has_not_failed_waits_for_no_guesser() -> None:
    guessers = [f"guesser{number}" for number in range(200)]
    queue = Queue(*guessers)
    queue.put(*guessers * 3)
    running = [queue.take() for _ in range(AT_A_TIME)]
    queue.put("ann")
    assert running[0] is not None
    queue.done(running[0])
    assert str(queue.take()) == "ann"


def test_an_address_is_suspect_from_its_first_failure_on() -> None:
    queue = Queue()
    queue.put("eve", "eve", "eve", "ann", "ann")
    assert queue.run_one() == "eve"
    queue.put("ann", "bob")
    eve = queue.take()  # ann is first now
    assert str(eve) == "ann"
    queue.suspects.add("ann")
    assert eve is not None
    queue.done(eve)
    assert queue.run_all() == ["eve", "bob", "eve", "ann", "ann"]


def test_one_address_has_room_for_a_crowd_and_a_suspect_one_for_few() -> None:
    queue = Queue("eve")
    queue.put(*["ann"] * MOST_OF_ONE, *["eve"] * MOST_SUSPECT)
    for name in ("ann", "eve"):
        item = Item(name)
        assert queue.add(item) is item
    assert queue.size == MOST_OF_ONE + MOST_SUSPECT


def test_when_there_is_no_room_the_suspect_give_way_to_others() -> None:
    guessers = [f"guesser{number}" for number in range(MOST)]
    queue = Queue(*guessers, "eve")
    items = queue.put(*guessers)
    eve, ann = Item("eve"), Item("ann")
    assert queue.add(eve) is eve
    assert queue.add(ann) is items[-1]
    assert queue.size == MOST
    assert queue.run_one() == "ann"
    queue = Queue()
    queue.put(*guessers)
    assert queue.add(ann) is ann


def test_who_takes_the_place_of_its_own_address_is_not_lost() -> None:
    """An address that was suspect when it came, and is no longer."""
    queue = Queue("ann")
    queue.put("ann", *[f"x{number}" for number in range(MOST - 1)])
    queue.suspects.clear()
    assert queue.add(Item("ann")) is not None
    assert queue.size == MOST
    assert queue.run_all().count("ann") == 1


def test_who_leaves_is_taken_out() -> None:
    queue = Queue()
    first, second, third = queue.put("a", "a", "b")
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.remove(third)
    assert queue.size == 1
    assert queue.take() is second
    assert not queue.remove(second)
    assert queue.size == 0


@pytest.mark.parametrize("failing", range(1, 30))
def test_a_fault_at_any_call_lets_the_others_have_their_turns(failing: int) -> None:
    queue, calls, running = Queue("c"), 0, list[Item]()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename in (checks_module.__file__, __file__):
            calls += 1
            if calls == failing:
                raise RuntimeError("on purpose")

    items = [Item(address) for address in "aabcc"]
    steps: list[Callable[[], object]] = [
        *(partial(Checks.add, queue, item) for item in items),
        partial(Checks.remove, queue, items[1]),
    ]
    for _ in range(3):
        steps += [lambda: running.extend(filter(None, [queue.take()]))]
        steps += [lambda: [queue.done(one) for one in running]] * 2  # it is told again
    for step in steps:
        sys.setprofile(profile)
        with suppress(RuntimeError):
            step()
        sys.setprofile(None)
    queue.run_all()
    assert queue.take() is None


@given(st.lists(st.sampled_from(["add a", "add b", "add c", "take", "done", "leave", "fail"])))
def test_nobody_is_lost_or_run_twice(steps: list[str]) -> None:
    queue = Queue()
    waiting: list[Item] = []
    running: list[Item] = []
    for step in steps:
        if step.startswith("add"):
            (item,) = queue.put(step[-1])
            waiting.append(item)
        elif step == "take":
            free = {item.address for item in waiting} - {item.address for item in running}
            found = queue.take()
            assert (found is not None) == (len(running) < AT_A_TIME and bool(free))
            if found is not None:
                assert found.address in free
                earlier = waiting[: waiting.index(found)]
                assert found.address not in [item.address for item in earlier]
                waiting.remove(found)
                running.append(found)
        elif step == "done" and running:
            queue.done(running.pop(0))
        elif step == "leave" and waiting:
            assert queue.remove(waiting.pop(len(waiting) // 2))
        elif step == "fail":
            queue.suspects ^= {"b"}
        assert queue.size == len(waiting)
    for item in running:
        queue.done(item)
    assert Counter(queue.run_all()) == Counter(item.address for item in waiting)


# In threads


class Slow:
    """A check that takes until the test lets it end, and then fails as the test says."""

    def __init__(self, address: str = "a", error: Exception | None = None) -> None:
        self.address = address
        self.error = error
        self.begun = threading.Event()
        self.goes_on = threading.Event()
        self.refused = False
        self.settled = False

    def run(self) -> None:
        self.begun.set()
        assert self.goes_on.wait(60)
        if self.error is not None:
            raise self.error

    def settle(self) -> None:
        self.settled = True

    def refuse(self) -> None:
        self.refused = True


@contextmanager
def let_end(*slow: Slow) -> Iterator[None]:
    """Let no thread outlive its test."""
    try:
        yield
    finally:
        for one in slow:
            one.goes_on.set()


async def begun(check: Slow) -> None:
    assert await trio.to_thread.run_sync(check.begun.wait, 60)


def make(nursery: trio.Nursery) -> tuple[Checker, Checks[Place]]:
    checks: Checks[Place] = Checks(lambda _address: False)
    return Checker(nursery, checks, Faults()), checks


async def test_what_a_check_raises_comes_to_who_waits_for_it_and_the_next_one_runs() -> None:
    async with trio.open_nursery() as nursery:
        checker, _ = make(nursery)
        bad, good = Slow(error=ValueError("broken on purpose")), Slow()
        bad.goes_on.set()
        good.goes_on.set()
        nursery.start_soon(checker.run, good)
        with pytest.raises(ValueError, match="on purpose"):
            await checker.run(bad)
        await checker.run(good)


async def test_a_task_that_fails_before_its_check_costs_the_one_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, failures = Checker.carry_out, iter([True])

    async def run(checker: Checker, place: Place) -> None:
        if next(failures, False):
            raise RuntimeError("a mistake")
        await real(checker, place)

    monkeypatch.setattr(Checker, "carry_out", run)
    async with trio.open_nursery() as nursery:
        checker, _ = make(nursery)
        checks = [Slow(f"a{number}") for number in range(1 + AT_A_TIME)]
        for check in checks:
            check.goes_on.set()
        with pytest.raises(RuntimeError, match="a fault of the daemon's own"):
            await checker.run(checks[0])
        async with trio.open_nursery() as others:
            for check in checks[1:]:  # its place is free again
                others.start_soon(checker.run, check)
        assert all(check.begun.is_set() for check in checks[1:])
        await begun(checks[0])


async def test_who_leaves_does_not_wait_and_is_not_waited_for() -> None:
    running, waiting, last = Slow("a"), Slow("a"), Slow("a")
    with let_end(running, waiting, last):
        async with trio.open_nursery() as nursery:
            checker, checks = make(nursery)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as leaving:
                    leaving.start_soon(checker.run, running)
                    await begun(running)
                    leaving.start_soon(checker.run, waiting)
                    await trio.testing.wait_all_tasks_blocked()
                    assert checks.size == 1
                    scope.cancel()
            assert checks.size == 0
            nursery.start_soon(checker.run, last)
            await trio.testing.wait_all_tasks_blocked()
            assert not last.begun.is_set()  # the thread of one that has left counts, too
            running.goes_on.set()
            await begun(last)
            assert running.settled
            last.goes_on.set()
        assert not waiting.begun.is_set()


async def test_the_end_of_the_daemon_waits_for_no_thread() -> None:
    slow = [Slow(str(number)) for number in range(5)]
    with let_end(*slow):
        async with trio.open_nursery() as nursery:
            checker, _ = make(nursery)
            for one in slow:
                nursery.start_soon(checker.run, one)
                await trio.testing.wait_all_tasks_blocked()
            for one in slow[:AT_A_TIME]:
                await begun(one)
            nursery.cancel_scope.cancel()
        assert sum(one.begun.is_set() for one in slow) == AT_A_TIME


async def test_who_has_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "MOST", 1)
    slow = [Slow("a") for _ in range(3)]
    with let_end(*slow):
        async with trio.open_nursery() as nursery:
            checker, _ = make(nursery)
            for one in slow[:2]:
                nursery.start_soon(checker.run, one)
                await trio.testing.wait_all_tasks_blocked()
            await checker.run(slow[2])
            assert [one.refused for one in slow] == [False, False, True]
            for one in slow:
                one.goes_on.set()


async def test_nobody_waits_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    running, waiting = Slow(), Slow()
    with let_end(running, waiting):
        async with trio.open_nursery() as nursery:
            checker, checks = make(nursery)
            nursery.start_soon(checker.run, running)
            await trio.testing.wait_all_tasks_blocked()
            await checker.run(waiting)
            assert trio.current_time() >= LONGEST_WAIT
            assert waiting.refused
            assert not running.refused
            assert checks.size == 0
            nursery.cancel_scope.cancel()


async def test_a_fault_at_the_end_of_a_check_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, faulty = Checks.done, [True]

    def fail_once(self: Checks[Place], place: Place) -> None:
        if faulty and faulty.pop():
            raise RuntimeError("broken on purpose")
        done(self, place)

    monkeypatch.setattr(Checks, "done", fail_once)
    async with trio.open_nursery() as nursery:
        checker, _ = make(nursery)
        for _ in range(3):
            one = Slow()
            one.goes_on.set()
            await checker.run(one)
