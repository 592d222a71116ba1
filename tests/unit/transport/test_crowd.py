"""Those who have much to say: one read of theirs in a pass, in order, whoever leaves meanwhile."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pubsubd.protocol.limits import SOON
from pubsubd.transport.crowd import Crowd


class Passes(trio.abc.Instrument):
    """Counts the passes of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def turns(cost: float) -> list[tuple[int, int]]:
    """Let 20 tasks wait, 5 times each; return who went on in which pass."""
    crowd, passes = Crowd(), Passes()
    taken: list[tuple[int, int]] = []

    async def speak(number: int) -> None:
        for _ in range(5):
            await crowd.wait(cost)
            taken.append((number, passes.count))

    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(speak, number)
    trio.lowlevel.remove_instrument(passes)
    assert crowd.queued == 0
    return taken


@pytest.mark.parametrize(("cost", "room"), [(SOON, 1), (9 * SOON, 1), (SOON / 5, 5)])
async def test_as_many_go_on_in_a_pass_as_there_is_room_for(cost: float, room: int) -> None:
    when = [at for _, at in await turns(cost)]
    assert len(when) == 100
    assert max(map(when.count, when)) == room


async def test_they_go_on_in_the_order_in_which_they_came() -> None:
    who = [number for number, _ in await turns(SOON)]
    assert who == [*who[:20]] * 5


async def test_who_leaves_while_waiting_holds_nobody_up() -> None:
    crowd, left = Crowd(), list[int]()

    async def speak(number: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await crowd.wait(SOON)
            left.append(number)

    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(speak, number)
        while len(scopes) < 9:
            await trio.lowlevel.checkpoint()
        for scope in (scopes[4], scopes[8]):  # in the order in which they have come
            scope.cancel()
    assert len(left) == 7
    assert crowd.queued == 0


async def test_who_leaves_on_the_way_lets_the_next_one_go() -> None:
    crowd = Crowd()
    with trio.CancelScope() as scope:
        scope.cancel()
        await crowd.wait(SOON)
    assert scope.cancelled_caught
    assert crowd.queued == 0


async def test_who_leaves_when_it_is_let_go_lets_the_next_one_go() -> None:
    crowd, left = Crowd(), list[int]()

    async def speak(number: int) -> None:
        with scopes[number]:
            await crowd.wait(SOON)
            left.append(number)
            if number == 0:  # it has let the second one go, which has not gone on yet
                scopes[1].cancel()

    scopes = [trio.CancelScope() for _ in range(4)]
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(speak, number)
    assert set(left) >= {0, 2, 3}
    assert crowd.queued == 0
