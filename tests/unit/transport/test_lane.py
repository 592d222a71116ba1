"""Turns in the lane: who has much to do leaves every second pass to the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
import trio.testing

from pubsubd.protocol.limits import TURN
from pubsubd.transport.lane import Lane

_LITTLE = TURN / 10
_TURNS = 50


class Passes(trio.abc.Instrument):
    """Counts the passes of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


class Watched:
    """A lane whose clock moves by what is said to take time.

    Attributes:
        taken: the passes in which somebody took a whole turn.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.lane = Lane(lambda: self.now)
        self.passes = Passes()
        self.taken: list[int] = []
        self.done = trio.Event()

    async def be_busy(self, wait: Callable[[float], Awaitable[None]]) -> None:
        while len(self.taken) < _TURNS:
            await wait(TURN)
            self.taken.append(self.passes.count)
            self.now += TURN
        self.done.set()

    async def read(self, cost: float) -> None:
        """Wait as a connection does whose input is there at once."""
        await trio.lowlevel.checkpoint()
        if not self.lane.enter(cost):
            await self.lane.wait(cost)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", ["reads", "goes on"])
async def test_a_whole_turn_is_followed_by_a_pass_without_one(count: int, way: str) -> None:
    watched = Watched()
    trio.lowlevel.add_instrument(watched.passes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.lane.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(count):
            wait = watched.read if way == "reads" else watched.lane.wait_next
            nursery.start_soon(watched.be_busy, wait)
        await watched.done.wait()
        nursery.cancel_scope.cancel()
    gaps = [after - before for before, after in pairwise(watched.taken)]
    assert min(gaps) >= 2
    assert max(gaps) <= 4  # and nobody waits for nothing


async def test_who_comes_in_a_turn_speaks_before_the_next_one() -> None:
    watched, between = Watched(), list[int]()
    woken = trio.Event()

    async def come() -> None:
        nonlocal woken
        while True:
            await woken.wait()
            woken = trio.Event()
            before = len(watched.taken)
            if not watched.lane.enter(_LITTLE):
                await watched.lane.wait(_LITTLE)
            between.append(len(watched.taken) - before)

    async def be_busy() -> None:
        for _ in range(_TURNS):
            await watched.lane.wait_next(TURN)
            watched.taken.append(watched.passes.count)
            watched.now += TURN
            woken.set()

    trio.lowlevel.add_instrument(watched.passes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.lane.run)
        nursery.start_soon(come)
        await trio.testing.wait_all_tasks_blocked()
        await be_busy()
        nursery.cancel_scope.cancel()
    assert len(between) >= _TURNS - 1
    assert not any(between)


async def test_many_with_little_do_not_keep_a_whole_turn_waiting() -> None:
    watched = Watched()

    async def say_little() -> None:
        while True:
            await watched.read(_LITTLE)
            watched.now += _LITTLE

    trio.lowlevel.add_instrument(watched.passes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.lane.run)
        for _ in range(100):
            nursery.start_soon(say_little)
        nursery.start_soon(watched.be_busy, watched.read)
        await watched.done.wait()
        nursery.cancel_scope.cancel()
    gaps = [after - before for before, after in pairwise(watched.taken)]
    assert max(gaps) <= 60  # a hundred are before it at most, five in a pass
