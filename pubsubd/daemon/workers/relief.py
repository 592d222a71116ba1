"""Waiting for slow consumers across workers; :mod:`pubsubd.siblings.waiting` without I/O."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import cast

import trio

from pubsubd.broker.peer import Peer, discard
from pubsubd.protocol.limits import TURN
from pubsubd.routing.outbox import Hold
from pubsubd.siblings.siblings import LONGEST
from pubsubd.siblings.waiting import Speaker
from pubsubd.transport.output import wait_for
from pubsubd.transport.server import Consumer, Server
from pubsubd.transport.tasks import contain, guarded

_AGAIN = LONGEST / 5  # seconds after which the other worker is told again that a speaker waits


class Held:
    """Something that is waited for as if it was a slow consumer."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    async def wait_relief(self, _begun: float) -> None:
        """Wait until it has come."""
        await wait_for(self._hold)


class Relief:
    """Lets speakers of other workers go on when the consumers that they have filled have room."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._nobody = Peer(0, "relief", discard)  # whom a fault ends

    def hold_up(self, hold: Hold) -> None:
        """Let whoever speaks wait until something has come."""
        self._server.pressed.append(Held(hold))

    def begin(self, speaker: Speaker) -> None:
        """Begin to wait for the consumers that a speaker has filled."""
        faults, run = self._server.broker.faults, partial(self.run, speaker)
        self._server.nursery.start_soon(contain, faults, self._nobody, run, 2)

    async def run(self, speaker: Speaker) -> None:
        """Let a speaker go on in the end."""
        try:
            while True:
                try:
                    if speaker.done:
                        break
                    await self._relieve(speaker)
                except Exception as error:  # noqa: BLE001  (it goes on without that consumer)
                    self._server.broker.faults.note(error, "relief")
                    await trio.lowlevel.checkpoint()
        finally:
            guarded(self._server.broker.faults, "relief", speaker.go_on)

    async def _wait_for(self, speaker: Speaker, consumers: list[Consumer]) -> None:
        begun = trio.current_time()
        for consumer in consumers:
            waits = True
            while waits:
                with trio.move_on_after(_AGAIN) as again:
                    await consumer.wait_relief(begun)
                if waits := again.cancelled_caught:
                    speaker.tell()

    async def _relieve(self, speaker: Speaker) -> None:
        """Wait for all that it has filled, and deliver what has come of it since, for a turn."""
        server = self._server
        consumers = cast("list[Consumer]", speaker.take())
        await self._wait_for(speaker, consumers)
        if speaker.done:
            return
        await server.lane.wait(TURN)
        await self._wait_for(speaker, consumers)  # others that have waited, too, may come first
        begun = perf_counter()
        server.broker.delivery.turn.begin()
        pressed, server.pressed = server.pressed, []
        try:
            speaker.work(server.broker.delivery.turn.over)
        finally:
            speaker.consumers += server.pressed
            server.pressed = pressed
            server.lane.give_back(max(0.0, TURN - (perf_counter() - begun)))
