"""What connections share: nothing stays of a send that is over, however it has ended."""

from __future__ import annotations

import gc
import itertools
import logging
from typing import Any
from weakref import WeakSet

import pytest
import trio

from pubsubd.broker import delivery
from pubsubd.broker.peer import Peer
from pubsubd.broker.unsent import Unsent
from pubsubd.protocol.limits import TURN, Limits
from pubsubd.transport.server import Server


@pytest.mark.parametrize("failing", [None, 0, 1])
async def test_nothing_is_kept_of_a_send_in_many_turns(
    failing: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "pubsubd")  # or the fault is kept, and all that it was in
    made = WeakSet[Unsent]()

    class Once(Unsent):
        """One that cannot be told to be little at one of the looks."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.looks = itertools.count()
            made.add(self)

        @property
        def little(self) -> bool:
            assert next(self.looks) != failing, "on purpose"
            return super().little

    monkeypatch.setattr(delivery, "Unsent", Once)
    heard = list[bytes]()
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        broker = server.broker

        def say(peer: Peer, data: bytes) -> None:
            while broker.receive(peer, data):
                data = b""

        for number in range(100):
            say(broker.join(f"{number}", heard.append), b"sub n\n")
        broker.delivery.turn.clock = itertools.count(0.0, TURN / 3).__next__  # turns are short
        say(broker.join("pub", heard.append), b"pub n 1 x\n")
        assert len(server.pressed) == 1
        with trio.fail_after(60):
            await server.pressed[0].wait_relief(trio.current_time())
        nursery.cancel_scope.cancel()
    assert heard == [b"pub n 1 x\n"] * 100
    assert sum(broker.faults.counts.values()) == (failing is not None)
    server.pressed.clear()
    gc.collect()
    assert not made
