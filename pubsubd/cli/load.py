"""Load of ``pubsubd bench``: it sends frames that were built before, and checks what arrives.

Strategy: nothing is done per message. A publisher sends slices of a cycle of frames; a subscriber
gives whole reads to its :class:`pubsubd.cli.cycles.Check`.

Invariant:

- What is published and not yet received by the slowest subscriber is at most a window, or one
  frame: far from the daemon's ``max_pending``, far above one read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click
import trio

from pubsubd.cli.cycles import LOST, Check, Plan
from pubsubd.client.faults import daemon_error
from pubsubd.client.login import PING
from pubsubd.protocol import wire
from pubsubd.protocol.limits import KIB, MIB, READ_SIZE

WINDOW = MIB
"""Bytes that all publishers together may be ahead of the slowest subscriber."""

_BATCH = 128 * KIB  # bytes that are sent at once
_SURPLUS = "more messages have arrived than were published"


class Link:
    """A connection of the load.

    Args:
        stream: ready for commands.
        where: the daemon's address, for error texts.
    """

    def __init__(self, stream: trio.abc.Stream, where: str) -> None:
        self.stream = stream
        self._where = where

    async def settle(self, commands: bytes = b"") -> None:
        """Send ``commands``, and wait until they are carried out.

        Raises:
            PubsubdError: the daemon tells an error.
            click.ClickException: something else came, or nothing.
        """
        await self.stream.send_all(commands + wire.frame(PING, b"bench"))
        await self.hear_nothing_but(PING)

    async def hear_nothing_but(self, name: bytes) -> None:
        """Read until a message with that name has come; raise as :meth:`settle` for others."""
        decoder = wire.Decoder(MIB)
        while True:
            for heard, data in decoder.feed(await self.receive()):
                if heard == wire.ERROR:
                    raise daemon_error(data, self._where)
                if heard != name:
                    raise click.ClickException(_SURPLUS)
                return

    async def receive(self) -> bytes:
        """Return what has come; raise if the daemon has closed the connection."""
        try:
            data = bytes(await self.stream.receive_some(READ_SIZE))
        except trio.BrokenResourceError:
            data = b""
        if not data:
            raise click.ClickException("the daemon closed a connection")
        return data


class Load:
    """A plan on its connections.

    Args:
        plan: what is published.
        publishers, subscribers: the connections.

    Attributes:
        sent: bytes that were published, or are about to be.
        done: set when all publishers have ended and everything has arrived.
    """

    def __init__(self, plan: Plan, publishers: list[Link], subscribers: list[Link]) -> None:
        self.plan = plan
        self.sent = 0
        self.done = trio.Event()
        self.began = self.ended = 0.0
        self._publishers, self._subscribers = publishers, subscribers
        self._frame = plan.frame
        self._cycles = [plan.cycle(number) for number in range(plan.publishers)]
        self._checks = [Check(plan, self._cycles) for _ in subscribers]
        self._running = len(publishers)
        self._slowest = 0  # bytes that every subscriber has
        self._moved = trio.lowlevel.ParkingLot()

    @property
    def messages(self) -> int:
        """Messages published."""
        return self.sent // self._frame

    @property
    def arrived(self) -> int:
        """Messages received by all subscribers together."""
        return sum(check.bytes for check in self._checks) // self._frame

    async def run(self, seconds: float, messages: int | None, patience: float) -> None:
        """Publish for so many seconds, or so many messages, and receive everything.

        Args:
            seconds: how long, if ``messages`` is None.
            messages: how many.
            patience: seconds without a message after which it fails.
        """
        self.began = trio.current_time()
        until = self.began + seconds if messages is None else float("inf")
        async with trio.open_nursery() as nursery:
            for link, check in zip(self._subscribers, self._checks, strict=True):
                nursery.start_soon(self._receive, link, check)
            for number, link in enumerate(self._publishers):
                nursery.start_soon(link.hear_nothing_but, b"")
                nursery.start_soon(self._publish, number, link, until, messages)
            await self._watch(patience)
            nursery.cancel_scope.cancel()
        if any(check.bytes != self.sent for check in self._checks):
            raise click.ClickException(_SURPLUS)
        for link in (*self._publishers, *self._subscribers):
            await patient(patience, link.settle, "not all pings are answered")

    async def _watch(self, patience: float) -> None:
        while not self.done.is_set():
            before = self.arrived
            with trio.move_on_after(patience):
                await self.done.wait()
            if self.arrived == before and not self.done.is_set():
                due = self.messages * len(self._subscribers)
                raise _stuck(f"{before} of {due} messages have arrived", patience)

    async def _publish(self, number: int, link: Link, until: float, messages: int | None) -> None:
        frame, cycle = self._frame, memoryview(self._cycles[number])
        count = self.plan.publishers
        left = len(cycle) * 2**40  # bytes; no end
        if messages is not None:
            left = (messages // count + (number < messages % count)) * frame
        share = max(_BATCH // frame * frame, frame)
        at = 0
        while left and trio.current_time() < until:
            room = (WINDOW - (self.sent - self._slowest)) // frame * frame
            if room <= 0 and self.sent > self._slowest:
                await self._moved.park()
                continue
            size = min(max(room, frame), share, len(cycle) - at, left)
            self.sent += size
            left -= size
            try:
                await link.stream.send_all(cycle[at : at + size])
            except trio.BrokenResourceError:
                await trio.sleep_forever()  # who reads tells why
            at = (at + size) % len(cycle)
        self._running -= 1
        self._note()

    async def _receive(self, link: Link, check: Check) -> None:
        while True:
            data = await link.receive()
            check.feed(data)
            self._slowest = min(check.bytes for check in self._checks)
            self._moved.unpark_all()
            if not self._running:
                self._note()

    def _note(self) -> None:
        """See whether everything has arrived."""
        if not self._running and self._slowest >= self.sent:
            self.ended = trio.current_time()
            self.done.set()

    async def time_one(self, number: int, patience: float) -> list[float]:
        """Publish one message and return the seconds until each subscriber had it."""
        publisher = number % self.plan.publishers
        frame = self.plan.make(publisher, number % self.plan.names)
        latencies: list[float] = []

        async def exchange() -> None:
            began = trio.current_time()
            await self._publishers[publisher].stream.send_all(frame)
            for link in self._subscribers:
                data = await link.receive()
                while len(data) < len(frame):
                    data += await link.receive()
                latencies.append(trio.current_time() - began)
                if data != frame:
                    raise click.ClickException(LOST)

        await patient(patience, exchange, f"{number} single messages have arrived")
        return latencies


async def patient(seconds: float, wait: Callable[[], Awaitable[None]], state: str) -> None:
    """Wait for so many seconds at most; ``state`` says in the failure how far it has come."""
    with trio.move_on_after(seconds) as scope:
        await wait()
    if scope.cancelled_caught:
        raise _stuck(state, seconds)


def _stuck(state: str, seconds: float) -> click.ClickException:
    return click.ClickException(f"{state}, and nothing more for {seconds:g} s")
