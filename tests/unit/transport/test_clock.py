"""The clock of a daemon's loop is the system's."""

from __future__ import annotations

from time import perf_counter

import trio
import trio.testing

from pubsubd.protocol.limits import Limits
from pubsubd.transport.clock import LoopClock
from pubsubd.transport.server import Server


def test_the_loop_and_the_daemon_go_by_the_systems_clock() -> None:
    async def look() -> None:
        async with trio.open_nursery() as nursery:
            server = Server(Limits(), nursery)
            assert server.clock is perf_counter
            before = perf_counter()
            assert before <= server.clock() <= trio.current_time() <= perf_counter()
            with trio.move_on_at(before + 0.01):
                await trio.sleep_forever()
            assert perf_counter() >= before + 0.01

    trio.run(look, clock=LoopClock())


def test_a_loop_with_another_clock_has_a_daemon_that_goes_by_that() -> None:
    async def look() -> float:
        async with trio.open_nursery() as nursery:
            server = Server(Limits(), nursery)
            await trio.sleep(100)
            return server.clock() - trio.current_time()

    assert trio.run(look, clock=trio.testing.MockClock(autojump_threshold=0)) == 0
