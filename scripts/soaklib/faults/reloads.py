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

_PATIENCE = 6.0  # seconds until a link has come or gone


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

    Attributes:
        pids: of the daemon under test, and of the other one.
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
        self.pids: tuple[int, ...] = ()

    async def turn(self, doors: Doors) -> None:
        """Let a link and a user come and go again."""
        number = next(self._numbers)
        dials = number % 2 == 1
        try:
            self._reload(dials, not dials, number)
            await self._wait_link(here=True)
            if dials:  # so it has read the settings, and the users with them
                await self._let_go(doors, number)
            self._reload(False, False, number)
            await self._wait_link(here=False)
        except BaseException:
            self._reload(False, False, number)
            raise

    async def _let_go(self, doors: Doors, number: int) -> None:
        async with opened(doors.guarded) as wire:
            await wire.ask(frame(b"//pubsubd/auth", self._passing.encode()), b" ok ", b"\n")
            self._reload(False, False, number)
            heard = await wire.hear_end()
        if b"login-revoked" not in heard:
            raise WrongError(f"not let go: {heard[-200:]!r}")

    def _reload(self, dials: bool, is_dialled: bool, number: int) -> None:
        self._write(dials, is_dialled, number)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

    async def _wait_link(self, *, here: bool) -> None:
        with trio.move_on_after(_PATIENCE):
            async with opened(self._other) as wire:
                while True:
                    if here == await self._is_linked(wire):
                        return
                    await trio.sleep(0.05)
        raise WrongError(f"the link has not {'come' if here else 'gone'}")

    async def _is_linked(self, wire: Wire) -> bool:
        await wire.ask(frame(b"//pubsubd/peers", b""), b"pub //pubsubd/peers ")
        size = int((await wire.hear(b" ")).strip())
        text = b""
        while len(text) < size:
            text += await wire.some()
        wire.heard = text[size:]
        return any(link["node"] == self._node for link in json.loads(text[:size])["links"])
