"""Speakers of another worker that wait for consumers here, on a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pubsubd.broker.peer import Peer, discard
from pubsubd.daemon.workers.relief import Relief
from pubsubd.protocol.limits import Limits
from pubsubd.siblings import frames
from pubsubd.siblings.siblings import LONGEST
from pubsubd.siblings.waiting import Speaker, Waiting
from pubsubd.transport.server import Server


class Link:
    """A link, by what is said to the other worker."""

    def __init__(self) -> None:
        self.said: list[int] = []
        self.failed: list[Exception] = []

    def say(self, kind: int, data: bytes = b"") -> None:
        assert data == b"7"
        self.said.append(kind)

    def forgive(self, error: Exception) -> None:
        self.failed.append(error)


class Slow:
    """A consumer that has no room until it is told to have some."""

    def __init__(self) -> None:
        self.peer = Peer(1, "slow", discard)
        self.room = trio.Event()

    async def wait_relief(self, _begun: float) -> None:
        await self.room.wait()


@asynccontextmanager
async def strained() -> AsyncIterator[tuple[Link, Waiting, Slow]]:
    """A link with one speaker that waits."""
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        relief, link, slow = Relief(server), Link(), Slow()
        siblings = type("Links", (), {"relieve": relief.begin, "hold_up": relief.hold_up})
        waiting = Waiting(link, siblings)
        waiting.strain(7, slow)
        yield link, waiting, slow
        nursery.cancel_scope.cancel()


async def test_the_other_worker_is_told_again_and_again_who_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with strained() as (link, _, slow):
        for count in range(2, 6):
            await trio.sleep(LONGEST / 2)
            assert link.said.count(frames.WAIT) >= count
        assert frames.GO_ON not in link.said
        slow.room.set()
        await trio.testing.wait_all_tasks_blocked()
        assert link.said[-1] == frames.GO_ON


@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_kept_is_delivered_before_a_speaker_goes_on(
    fails: bool, autojump_clock: trio.testing.MockClock
) -> None:
    delivered: list[int] = []
    async with strained() as (link, waiting, slow):
        for number in range(3):

            def begin(number: int = number) -> None:
                if fails and number == 1:
                    raise RuntimeError("on purpose")
                assert frames.GO_ON not in link.said
                delivered.append(number)

            waiting.keep(7, 1, lambda begin=begin: iter([begin()]))  # type: ignore[misc]
        await trio.testing.wait_all_tasks_blocked()
        assert delivered == []
        slow.room.set()
        while waiting.speakers:
            await trio.lowlevel.checkpoint()
        assert delivered == ([0, 2] if fails else [0, 1, 2])
        assert link.said[-1] == frames.GO_ON


async def test_a_fault_between_two_turns_costs_nothing(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, faults = Speaker.done, [RuntimeError("on purpose")]

    def fail(speaker: Speaker) -> bool:
        if faults:
            raise faults.pop()
        return bool(done.__get__(speaker))

    monkeypatch.setattr(Speaker, "done", property(fail))
    async with strained() as (link, waiting, slow):
        delivered: list[int] = []
        waiting.keep(7, 1, lambda: iter([delivered.append(1)]))  # type: ignore[func-returns-value]
        await trio.testing.wait_all_tasks_blocked()
        assert not faults
        slow.room.set()
        while waiting.speakers:
            await trio.lowlevel.checkpoint()
        assert (delivered, link.said) == ([1], [frames.WAIT, frames.GO_ON])


async def test_a_task_that_fails_at_once_is_started_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, faults = Relief.run, [RuntimeError("on purpose")]

    async def fail(relief: Relief, speaker: Speaker) -> None:
        if faults:
            raise faults.pop()
        await run(relief, speaker)

    monkeypatch.setattr(Relief, "run", fail)
    async with strained() as (link, waiting, slow):
        slow.room.set()
        while waiting.speakers:
            await trio.lowlevel.checkpoint()
        assert (faults, link.said) == ([], [frames.WAIT, frames.GO_ON])
