"""The task that shows observers of ``//pubsubd/live`` what has changed."""

from __future__ import annotations

from time import perf_counter
from typing import NoReturn

import trio

from pubsubd.transport.server import Server

_STEP = 0.001  # seconds of a tick after which others have their turns


async def keep_live(server: Server) -> NoReturn:
    """Take the ticks when they are due; while nobody looks, sleep."""
    live, turn = server.broker.live, server.broker.delivery.turn
    bell = trio.Event()

    def ring() -> None:
        bell.set()

    live.woken = ring
    while True:
        if live.due > trio.current_time():
            bell = trio.Event()
            with trio.move_on_at(live.due):
                await bell.wait()
            continue
        ticking = live.tick()
        going = True
        while going:
            turn.begin()
            until = perf_counter() + _STEP
            with server.unpressed():
                while going and perf_counter() < until:
                    going = next(ticking, _DONE) is not _DONE
            if live.awaited is None:
                await server.lane.wait(_STEP)
            else:
                waited, live.awaited = live.awaited, None
                there = trio.Event()
                waited.done = there.set
                await there.wait()


_DONE = object()
