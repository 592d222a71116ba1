"""TLS handshakes of the connections that come in, all in one task.

Strategy: a connection gets a task of its own when it says the first thing after its handshake.
Until then it says little, twice, and to schedule a task each time takes as long as all else that
Python does in a handshake. The sockets are in an epoll of their own, whose events this task takes,
several at once.

Invariant: a connection is here or has its task. Whoever leaves, for whatever reason, gets it.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from time import perf_counter
from typing import NoReturn, Protocol

import trio

from pubsubd.protocol.limits import TURN
from pubsubd.transport.lane import Lane

_EACH = 0.000_4  # seconds that it takes to go on with one
_LONG = TURN / 2  # seconds of one turn at most
_AT_ONCE = 16  # events taken at once; what is left of them in a turn comes again


class Shaking(Protocol):
    """A connection that shakes hands, or has done so and said nothing yet."""

    def fileno(self) -> int:
        """Return the descriptor of its socket."""

    def shake(self) -> bool:
        """Take what has come, never waiting; whether its task has to go on with it."""

    def begin(self) -> None:
        """Start its task."""


class TlsHandshakes:
    """The connections of a daemon that have said nothing yet but a handshake.

    Args:
        lane: where turns that take long wait for one another.
        clock: seconds.
    """

    def __init__(self, lane: Lane, clock: Callable[[], float] = perf_counter) -> None:
        self._lane = lane
        self._clock = clock
        self._epoll: select.epoll | None = None  # while the task runs
        self._members: dict[int, Shaking] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._members)

    def add(self, member: Shaking) -> None:
        """Let a connection shake hands here, or, if that cannot be, in its own task."""
        if self._epoll is not None:
            descriptor = member.fileno()
            with contextlib.suppress(OSError):  # the system has a limit of what epolls may hold
                self._epoll.register(descriptor, select.EPOLLIN)
                self._members[descriptor] = member
                return
        member.begin()

    def remove(self, member: Shaking) -> None:
        """Start the task of a connection, if it is here."""
        descriptor = member.fileno()
        if self._members.get(descriptor) is member:
            member.begin()  # first: if it fails, it is done again
            del self._members[descriptor]
            if self._epoll is not None:
                self._epoll.unregister(descriptor)

    async def run(self) -> NoReturn:
        """Go on with those that have said something."""
        with contextlib.closing(select.epoll()) as epoll:
            self._epoll = epoll
            try:
                while True:
                    await trio.lowlevel.wait_readable(epoll.fileno())
                    cost = min(_EACH * len(epoll.poll(0, _AT_ONCE)), _LONG)
                    if not self._lane.enter(cost):
                        await self._lane.wait(cost)
                    self._take(epoll, cost)
            finally:
                self._epoll = None
                trio.lowlevel.notify_closing(epoll.fileno())
                for member in list(self._members.values()):
                    self.remove(member)

    def _take(self, epoll: select.epoll, room: float) -> None:
        """Take what has come, for so many seconds."""
        begun = now = self._clock()
        for descriptor, _ in epoll.poll(0, _AT_ONCE):
            member = self._members.get(descriptor)  # unless it has left through another one's doing
            if member is not None and member.shake():
                self.remove(member)
            now = self._clock()
            if now - begun >= room:
                break
        self._lane.give_back(max(0.0, room - (now - begun)))
