"""The state that both clients share: received messages, the outbox's bounds, faults, the end.

The clients differ in their protocols. Waiting, turns, bounds and the certainty of
:meth:`State._flush` are the same, and here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from pubsubd.client.faults import ConnectError, DaemonError, DisconnectedError, caused, fresh
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import MIB

log = logging.getLogger("pubsubd.client")

RECEIVE_BUFFER = 8 * MIB
"""Bytes of unread messages at which the client stops reading from its socket."""

PATIENCE = 4
"""Receive buffers' worth of messages that are kept while a call waits for an answer."""

_OVERHEAD = 160  # what a buffered message costs beside its bytes
_QUIET = 60.0  # seconds between two tracebacks of one kind in the log
_TURN = 64  # calls without waiting after which other tasks get a turn

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of a client's counters."""

    connected: bool
    connections: int
    """Connections made so far, including the first."""
    published: int
    """Messages put into the outbox."""
    confirmed: int
    """Published messages that the daemon has confirmed, or that a flush has reported as lost."""
    received: int
    subscriptions: int
    """Those that the client restores; on the hub port, those that the hub has confirmed."""
    buffered_messages: int
    buffered_bytes: int
    """Including an overhead of 160 bytes per message."""
    faults: int
    """Exceptions in handlers, and bugs in the client. They are logged, but not each repetition."""


class State(Generic[Item]):
    """A client without its protocol; ``Item`` is a received message as it is kept.

    Args:
        receive_buffer: bytes of unread messages at which reading from the socket stops.
        outbox: bytes that may wait to be sent; above that, callers wait.
        measure: returns the bytes of an item.
    """

    def __init__(self, *, receive_buffer: int, outbox: int, measure: Callable[[Item], int]) -> None:
        self._bound = receive_buffer
        self._outbox_bound = outbox
        self._measure = measure

        self._closed = False
        self._connected = False
        self._connections = 0
        self._failure: PubsubdError | None = None  # the end of it all
        self._errors: deque[PubsubdError] = deque(maxlen=100)  # which no call has caused
        self._turns = 0
        self._waiting = 0  # calls that wait for an answer
        self._faults = 0
        self._logged: dict[str, float] = {}  # what has failed -> when that was logged

        self._outbox_size = 0
        self._outbox_fed = trio.lowlevel.ParkingLot()
        self._outbox_open = trio.lowlevel.ParkingLot()
        self._published = 0
        self._confirmed = 0
        self._doubt: PubsubdError | None = None  # why messages may be lost, until it is told

        self._inbox: deque[Item] = deque()
        self._inbox_size = 0
        self._inbox_fed = trio.lowlevel.ParkingLot()
        self._inbox_open = trio.lowlevel.ParkingLot()
        self._received = 0

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this client was closed")
        if self._failure is not None:
            self._doubt = None  # told now
            raise fresh(self._failure)

    async def _take_turn(self) -> None:
        self._turns += 1
        if self._turns >= _TURN:
            self._turns = 0
            # Not to be cancelled: what was to be said is in the outbox already.
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _wake_all(self) -> None:
        for lot in (self._outbox_fed, self._outbox_open, self._inbox_fed, self._inbox_open):
            lot.unpark_all()

    # Faults

    def _call(self, what: str, handler: Callable[..., object] | None, *arguments: object) -> None:
        """Call a handler of the program, if there is one; its exceptions go no further."""
        if handler is None:
            return
        try:
            handler(*arguments)
        except Exception as error:  # noqa: BLE001  (whatever it is, the connection goes on)
            self._note_fault(f"{what} has raised an exception", error)

    def _own_fault(self, error: Exception) -> PubsubdError:
        text = "a fault of the client's own has ended the connection"
        self._note_fault(text, error)
        return caused(DisconnectedError(text), error)

    def _note_fault(self, what: str, error: Exception) -> None:
        self._faults += 1
        now = trio.current_time()
        if now - self._logged.get(what, float("-inf")) >= _QUIET:
            self._logged[what] = now
            log.error("%s", what, exc_info=error)

    # Saying

    async def _wait_for_outbox(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        while not self._connected or self._outbox_size >= self._outbox_bound:
            await self._outbox_open.park()
            self._check()

    async def _flush(self, ping: Callable[[], Awaitable[object]]) -> None:
        """Return when ``ping`` does; raise if messages before it may be lost, or were refused."""
        if self._doubt is None:
            try:
                await ping()
            except (ConnectError, DaemonError, DisconnectedError):
                self._doubt = None
                raise
        if self._doubt is not None:
            doubt, self._doubt = self._doubt, None
            raise fresh(doubt)
        if self._errors:
            raise self._errors.popleft()

    # Hearing

    def _keep(self, item: Item) -> None:
        self._inbox.append(item)
        self._inbox_size += self._measure(item) + _OVERHEAD
        self._received += 1

    async def _take(self) -> Item:
        """Return the next message; waits for one."""
        await self._wait_for_messages()
        item = self._inbox.popleft()
        self._inbox_size -= self._measure(item) + _OVERHEAD
        if self._inbox_size < self._bound:
            self._inbox_open.unpark_all()
        return item

    async def _take_all(self) -> list[Item]:
        """Return all received messages, at least one; waits for it."""
        await self._wait_for_messages()
        items = list(self._inbox)
        self._clear_inbox()
        return items

    def _clear_inbox(self) -> None:
        self._inbox.clear()
        self._inbox_size = 0
        self._inbox_open.unpark_all()

    async def _wait_for_messages(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._take_turn()  # first: other tasks may read as well
        while True:
            if self._closed:
                self._check()
            if self._errors:
                raise self._errors.popleft()
            if self._inbox:
                break
            self._check()
            await self._inbox_fed.park()

    def _snapshot(self, subscriptions: int) -> Statistics:
        return Statistics(
            connected=self._connected,
            connections=self._connections,
            published=self._published,
            confirmed=self._confirmed,
            received=self._received,
            subscriptions=subscriptions,
            buffered_messages=len(self._inbox),
            buffered_bytes=self._inbox_size,
            faults=self._faults,
        )
