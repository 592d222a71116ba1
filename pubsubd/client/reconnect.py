"""Connect, talk until the connection breaks, wait, connect again: the loop of every client.

Invariants:

- Each connection passes :meth:`Reconnecting._lose`, which settles what it leaves behind.
- The first connection is tried once. Later ones are tried for ever, unless the reason of the last
  end is one that the next would end with as well.
- No exception of a connection, a handler or the client itself leaves the background task: calls
  raise it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from pubsubd.client.dial import BACKOFF_MAX, Connect, dial_again
from pubsubd.client.faults import BufferFullError
from pubsubd.client.state import PATIENCE, Item, State
from pubsubd.protocol.errors import PubsubdError

Answer = TypeVar("Answer")


class Reconnecting(State[Item]):
    """A client that reconnects; subclasses speak the protocol.

    Args:
        connect: makes a connection.
        reconnect: whether to make another one when that breaks.
        on_disconnect: called with the reason when a connection ends.
        on_connect: called when a connection is there again, and all subscriptions are.
        more: for :class:`State`.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        reconnect: bool,
        on_disconnect: Callable[[PubsubdError], object] | None,
        on_connect: Callable[[], object] | None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._connect = connect
        self._reconnect = reconnect
        self._on_disconnect = on_disconnect
        self._on_connect = on_connect
        self._leaving = False  # whether the end of the connection is wanted

    # For the protocol

    @abstractmethod
    async def _converse(self, stream: trio.abc.Stream) -> PubsubdError:
        """Use one connection until it ends; return the reason."""

    @abstractmethod
    def _lasts(self, why: PubsubdError) -> bool:
        """Return whether the next connection would end likewise."""

    @abstractmethod
    def _lose(self, why: PubsubdError, *, final: bool) -> None:
        """Settle what the lost connection leaves behind; no other one follows if ``final``."""

    @abstractmethod
    def _drop_waiting(self, why: PubsubdError) -> None:
        """Let all calls that wait for an answer raise ``why``."""

    @abstractmethod
    async def _leave(self) -> None:
        """Finish the conversation at the end of the block."""

    def _go_on(self) -> None:
        """Let calls use a new connection, once what has to be restored is in the outbox."""
        self._connected = True
        self._connections += 1
        self._outbox_open.unpark_all()

    def _announce(self) -> None:
        """Tell the program that it has reconnected."""
        if self._connections > 1:
            self._call("on_connect", self._on_connect)

    async def _wait_for(self, answer: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return an answer. It may be behind messages that nobody reads: room is made for them."""
        self._waiting += 1
        self._inbox_open.unpark_all()
        try:
            return await answer()
        finally:
            self._waiting -= 1

    async def _wait_for_room(self) -> None:
        """Wait before a read until the program has read enough of what has come."""
        while self._connected and self._inbox_size >= self._bound:
            if self._waiting:
                # A caller that waits for an answer cannot read: stopping here would be for ever.
                if self._inbox_size < self._bound * PATIENCE:
                    return
                self._drop_waiting(BufferFullError("received messages have to be read first"))
            await self._inbox_open.park()

    # The background task

    async def _run(self, stream: trio.abc.Stream) -> None:
        """Use ``stream``, and the connections after it."""
        try:
            await self._keep_connected(stream)
        except Exception as error:  # noqa: BLE001  (calls raise it, not the block)
            self._lose(self._own_fault(error), final=True)

    async def _keep_connected(self, stream: trio.abc.Stream) -> None:
        attempt = 0
        while True:
            began = trio.current_time()
            why = await self._converse_safely(stream)
            was_connected = self._connected
            once = self._leaving or not self._reconnect or not self._connections
            self._lose(why, final=once or self._lasts(why))
            if self._leaving:
                return
            if was_connected or (self._connections and self._failure is not None):
                self._call("on_disconnect", self._on_disconnect, why)
            if self._failure is not None:
                return
            if trio.current_time() - began >= BACKOFF_MAX:
                attempt = 0  # not merely accepted and closed again
            try:
                stream, attempt = await dial_again(
                    self._connect, attempt, BACKOFF_MAX, self._note_fault
                )
            except PubsubdError as error:
                self._lose(error, final=True)
                return

    async def _converse_safely(self, stream: trio.abc.Stream) -> PubsubdError:
        try:
            return await self._converse(stream)
        except Exception as error:  # noqa: BLE001  (whatever it is, there may be another connection)
            return self._own_fault(error)

    def _close(self) -> None:
        """Let every call raise :class:`trio.ClosedResourceError`."""
        self._closed = True
        self._wake_all()


@asynccontextmanager
async def running(client: Reconnecting[Any], stream: trio.abc.Stream) -> AsyncIterator[None]:
    """Run the background task of a client during the block; leave and close at its end."""
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client._run, stream)
        try:
            yield
            await client._leave()
        except BaseException as exc:  # noqa: BLE001  (raised below, where no nursery groups it)
            error = exc
        client._close()
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
