"""Reloads of the daemon under test, by which links come and go as well."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
from collections.abc import Callable

import trio

from soaklib.faults.doors import Doors
from soaklib.faults.wire import Wire, WrongError, opened
from soaklib.wires import Address, frame

_ATTEMPTS = 3


class Reloads:
    """Writes settings and lets daemons read them.

    One turn lets the daemon under test dial one more daemon, or be dialled by it, and then no
    more; a user who is no more in the users file after that is let go.

    Args:
        write: writes the settings of both daemons: whether the one under test dials, whether
            the other one does, and a number that is another one each time.
        other: the line port of that other daemon.
        node: the id of the daemon under test.
        passing: name and password of the user who comes and goes.
    """

    def __init__(
        self,
        write: Callable[[bool, bool, int], None],
        other: Address,
        node: str,
        passing: str,
    ) -> None:
        self._write, self._other, self._node, self._passing = write, other, node, passing
        self._numbers = itertools.count(1)
        self._processes: list[int] = []

    def take(self, *pids: int) -> None:
        """Take note of the daemon under test and of the other one; both have to run.

        From now on they are known by descriptors: the number of one that has ended may soon be that
        of a stranger.
        """
        while self._processes:
            os.close(self._processes.pop())
        self._processes = [os.pidfd_open(pid) for pid in pids]

    async def turn(self, doors: Doors) -> None:
        """Let a link and a user come and go again."""
        number = next(self._numbers)
        dials = number % 2 == 1
        try:
            async with opened(doors.line) as events, contextlib.AsyncExitStack() as stack:
                await events.say(b"sub //pubsubd/events\n")
                await events.ping()
                await self._reload(events, dials, not dials, number)
                await self._wait_link(here=True)
                if dials:
                    wire = await stack.enter_async_context(opened(doors.guarded))
                    said = frame(b"//pubsubd/auth", self._passing.encode())
                    await wire.ask(said, b" ok ", b"\n")
                    wire.doomed = True
                await self._reload(events, False, False, number)
                if dials:
                    await wire.hear_end(b"login-revoked")
                await self._wait_link(here=False)
        except BaseException:
            self.tell(False, False, number)
            raise

    async def _reload(self, events: Wire, dials: bool, is_dialled: bool, number: int) -> None:
        """Tell the daemons to reload; and again, as an operator does, if that fails."""
        for _ in range(_ATTEMPTS):
            self.tell(dials, is_dialled, number)
            while True:
                event = await events.hear(b"\n")
                if b'"reloaded"' in event:
                    return
                if b'"reload-failed"' in event or b'"task": "reload"' in event:
                    break
        raise WrongError("it does not reload")

    def tell(self, dials: bool, is_dialled: bool, number: int) -> None:
        self._write(dials, is_dialled, number)
        for descriptor in self._processes:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGHUP)

    async def _wait_link(self, *, here: bool) -> None:
        async with opened(self._other) as wire:
            while True:
                if here == await self._is_linked(wire):
                    return
                await trio.sleep(0.05)

    async def _is_linked(self, wire: Wire) -> bool:
        await wire.ask(frame(b"//pubsubd/peers", b""), b"pub //pubsubd/peers ")
        size = int((await wire.hear(b" ")).strip())
        text = b""
        while len(text) < size:
            text += await wire.some()
        wire.heard = text[size:]
        return any(link["node"] == self._node for link in json.loads(text[:size])["links"])
