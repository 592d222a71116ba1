"""Requests to a hub and their answers, over one connection after another.

Strategy: requests wait in a bounded outbox, and everything in it is sent at once. An answer is
matched to its request by ``correlationId``, so up to :data:`UNDER_WAY` requests can wait for
answers at the same time. A ping has no identifier; pings are answered in order. All other messages
are kept as text until the program reads them.

Invariants:

- A request is sent once at most. One that was not sent when its connection broke is sent on the
  next one if it is ``kept``; otherwise it has ended by then.
- A request is in ``_asked`` or ``_pings`` from its entry into the outbox until it is answered or
  its connection ends, even if its caller no longer waits. So no answer is mistaken for another's.
- Nothing is sent before the hub has accepted the connection; then the posts of ``restore`` first.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from pubsubd.client.dial import CONNECT_TIMEOUT, Connect, hang_up
from pubsubd.client.faults import (
    DaemonError,
    DisconnectedError,
    LoginError,
    caused,
    connection_lost,
    fresh,
)
from pubsubd.client.hub_messages import (
    PING,
    Connected,
    HubMessage,
    Incoming,
    Outgoing,
    convert,
    decode,
    end_of,
    error_of,
    to_program,
)
from pubsubd.client.login import LOGIN_TIMEOUT
from pubsubd.client.reconnect import Reconnecting
from pubsubd.client.request import Request
from pubsubd.client.secure import certificate_refused
from pubsubd.client.state import Statistics
from pubsubd.client.websocket import Ended, Opened, Pong, WebSocket
from pubsubd.protocol import wire
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import HUB_READ_SIZE, KIB

UNDER_WAY = 1_024
"""Requests that may wait for answers at the same time; further ones wait to be sent."""

LINGER = 2.0
"""Seconds that disconnecting may take."""

_OUTBOX = 64 * KIB
_GRACE = 1.0  # seconds for reading what had come while the program let nothing else run
_UNKNOWN = ("unauthorized", "invalid_token")
_FATAL = ("version_mismatch", "unauthorized", "invalid_token", "duplicate_connection")

_encode = msgspec.json.Encoder().encode


class Exchange(Reconnecting[bytes]):
    """The requests and messages of one client; see the module.

    Args:
        connect: makes a connection.
        host: for the ``Host`` header.
        path: of the WebSocket.
        address: the client's own.
        headers: returns more headers of the request for a WebSocket.
        hello: returns the metadata of ``hub:connect``.
        restore: called when the hub has accepted a connection, to post the first requests, with a
            nursery whose tasks end with the connection, and what the hub has said of itself. One of
            them has to call :meth:`announce`.

    The others are those of :func:`~pubsubd.client.open_hub_client`.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        host: str,
        path: str,
        address: str,
        headers: Callable[[], Sequence[tuple[bytes, bytes]]],
        hello: Callable[[], Mapping[str, Any]],
        restore: Callable[[trio.Nursery, Connected], None],
        max_message: int,
        **more: Any,
    ) -> None:
        super().__init__(connect, outbox=_OUTBOX, measure=len, **more)
        self._host = host
        self._path = path
        self._address = address
        self._headers = headers
        self._hello = hello
        self._restore = restore
        self._max_message = max_message

        self._met = trio.Event()  # set when there was the first, or there will be none

        # Of the present connection
        self._socket = WebSocket(host, path, max_message)
        self._scope = trio.CancelScope()
        self._upgraded = trio.Event()
        self._reason: PubsubdError | None = None  # why it ends
        self._unclaimed: PubsubdError | None = None  # what came last, if it may be why
        self._final = False  # whether the next one would end likewise
        self._heard = 0  # reads
        self._stalled = False  # whether nothing is read, as the program does not
        self._sending = False
        self._most = 0  # bytes of a message that the hub takes

        self._asked: dict[str, Request] = {}
        self._pings: deque[Request] = deque()
        self._slots = trio.Semaphore(UNDER_WAY)
        self._beat = str(uuid.uuid4())  # the identifier of all heartbeats

        self._urgent = b""  # a frame that goes first
        self._outbox: deque[Request] = deque()
        # The marks of the last message that has no answer of its own: put, and sent.
        self._put_last = 0
        self._sent_last = 0

    # Saying

    def request(
        self,
        kind: str,
        payload: Any = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        to: str | None = None,
        pattern: str = "tell",
        correlation_id: str | None = None,
        id: str | None = None,  # noqa: A002
        **more: bool,
    ) -> Request:
        """Return a request; ``more`` are arguments of :class:`Request`."""
        outgoing = Outgoing(
            id=id or str(uuid.uuid4()),
            sender=self._address,
            type=kind,
            payload=payload,
            timestamp=int(time.time() * 1000),
            metadata=metadata or {},
            pattern=pattern,
            correlation_id=correlation_id,
        )
        if to is not None:
            outgoing.to = to
        return Request(_encode(outgoing), outgoing.id, **more)

    async def put(self, request: Request) -> None:
        """Put a request into the outbox. Waits while it is full or there is no connection."""
        await self._wait_for_outbox()
        wire.check_size(len(request.text), self._most)
        self._append(request)
        await self._take_turn()

    async def ask(self, request: Request) -> Incoming:
        """Put a request into the outbox and return its answer; raise the error if it is refused."""
        await self._slots.acquire()
        request.slot = True
        try:
            await self.put(request)
        except BaseException:
            request.slot = False
            self._slots.release()
            raise
        return await self._wait_for(request.wait)

    def post(self, request: Request) -> Request:
        """Put a request of the client itself into the outbox, even if that is full."""
        self._append(request)
        request.mark = 0  # it may go before messages of the program's that wait
        return request

    def _append(self, request: Request) -> None:
        self._published += request.counted
        request.mark = self._published
        if request.done is None:
            if request.counted:
                self._put_last = request.mark
        elif request.id:
            self._asked[request.id] = request
        else:
            self._pings.append(request)
        self._outbox.append(request)
        self._outbox_size += len(request.text)
        self._outbox_fed.unpark()

    async def wait(self, request: Request) -> Incoming:
        """Return the answer to a posted request, and read on for it; raise the error."""
        return await self._wait_for(request.wait)

    def announce(self) -> None:
        """Take note that everything is restored."""
        self._announce()

    def forget(self, request: Request) -> None:
        """Stop waiting for the answer to a posted request."""
        self._asked.pop(request.id, None)

    async def flush(self) -> None:
        """Wait until the hub has processed everything before; see :meth:`HubClient.flush`."""
        await self._flush(lambda: self.ask(Request(PING)))

    # Hearing

    async def receive(self) -> HubMessage:
        """Return the next message, and wait for one if necessary."""
        return to_program(decode(await self._take()))

    async def receive_all(self) -> list[HubMessage]:
        """Return all received messages, and wait for at least one."""
        return [to_program(decode(text)) for text in await self._take_all()]

    def object(self, error: PubsubdError) -> None:
        """Let the next flush or read raise an error that belongs to no call."""
        self._errors.append(error)
        self._inbox_fed.unpark_all()

    def statistics(self, subscriptions: int) -> Statistics:
        """Return a snapshot."""
        return self._snapshot(subscriptions)

    # Beginning and end

    @property
    def failed(self) -> bool:
        """Whether the client has ended."""
        return self._failure is not None

    async def wait_met(self) -> None:
        """Wait until the hub has accepted the first connection; raise the error if it has not."""
        await self._met.wait()
        self._check()

    def stop(self, why: PubsubdError, *, final: bool) -> None:
        """End the present connection, unless it is ending for another reason.

        Args:
            why: the reason.
            final: whether the next one would end in the same way.
        """
        self._reason = self._reason or why
        self._final = self._final or final
        self._scope.cancel()

    async def _leave(self) -> None:
        """Flush if anything is unconfirmed, and disconnect from the hub."""
        if self._put_last > self._confirmed or self._doubt is not None:
            await self.flush()
        if not self._connected:
            return
        self._leaving = True
        self._clear_inbox()
        with trio.move_on_after(LINGER):
            with contextlib.suppress(PubsubdError):  # closing will do
                await self.post(self.request("hub:disconnect")).wait()

    def _close(self) -> None:
        super()._close()
        self._drop(
            [*self._asked.values(), *self._pings], DisconnectedError("this client was closed")
        )

    # The background task

    def _lasts(self, why: PubsubdError) -> bool:
        return self._final

    async def _converse(self, stream: trio.abc.Stream) -> PubsubdError:
        waiting, self._outbox = self._outbox, deque()  # until the hub has accepted this one
        self._outbox_size = 0
        reply = b""
        try:
            self._begin()
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._introduce, nursery, waiting)
                ended = await self._read(stream)
                reply = ended.reply
                self.stop(ended.why, final=ended.final)
            if reply and not self._sending:
                with trio.move_on_after(LINGER):
                    with contextlib.suppress(trio.BrokenResourceError):
                        await stream.send_all(reply)
        finally:
            if not self._connected:
                self._outbox = waiting
            await hang_up(stream)
        assert self._reason is not None
        return self._reason

    def _begin(self) -> None:
        self._socket = WebSocket(self._host, self._path, self._max_message, self._headers())
        self._urgent = self._socket.request
        self._upgraded = trio.Event()
        self._reason = self._unclaimed = None
        self._final = self._sending = self._stalled = False

    async def _introduce(self, nursery: trio.Nursery, waiting: deque[Request]) -> None:
        """Connect to the hub, restore the registration and subscriptions, and go on."""
        limit = LOGIN_TIMEOUT if self._headers() else CONNECT_TIMEOUT
        with trio.move_on_after(limit) as scope:
            await self._upgraded.wait()
            request = self.post(self.request("hub:connect", metadata=self._hello()))
            try:
                connected = convert((await request.wait()).payload, Connected)
            except DaemonError as error:
                if error.code in _UNKNOWN:
                    error = LoginError(*error.args)
                self.stop(error, final=error.code in _FATAL)
                return
            except DisconnectedError as error:
                self.stop(error, final=True)
                return
        if scope.cancelled_caught:
            text = f"the hub gave no answer in {limit:g} s"
            self.stop(DisconnectedError(text), final=False)
            return
        self._most = connected.max_message_size
        self._restore(nursery, connected)
        for kept in waiting:
            self._renew(kept)
        self._met.set()
        self._go_on()
        await self._keep_alive(connected.heartbeat_interval / 1000)

    def _renew(self, request: Request) -> None:
        """Put a request that waited for this connection into the outbox, with its old mark."""
        if len(request.text) > self._most:
            details = {"actualSize": len(request.text), "maxSize": self._most}
            error = DaemonError("message_too_large", "larger than the new hub takes", details)
            if request.done is None:
                self.object(error)
            else:
                self._asked.pop(request.id, None)
                self._drop([request], error)
            return
        self._outbox.append(request)
        self._outbox_size += len(request.text)
        self._outbox_fed.unpark()

    async def _keep_alive(self, interval: float) -> None:
        interval = max(interval, 0.01)
        beat: Request | None = None
        while True:
            heard = self._heard
            await trio.sleep(interval)
            if beat is not None and self._silent_since(heard):
                await trio.sleep(min(interval, _GRACE))
            if beat is not None and self._silent_since(heard):
                text = f"the hub did not answer a heartbeat in {interval:g} s"
                self.stop(DisconnectedError(text), final=False)
            if beat is None or beat.sent:
                now = {"timestamp": int(time.time() * 1000)}
                beat = self.request("hub:heartbeat", now, id=self._beat, answered=False)
                self.post(beat)

    def _silent_since(self, heard: int) -> bool:
        return self._heard == heard and not self._stalled

    def _lose(self, why: PubsubdError, *, final: bool) -> None:
        self._connected = False
        kept = [request for request in self._outbox if request.kept]
        if final:
            self._failure = why
            kept = []
            self._sent_last = self._put_last  # or never will be
        self._outbox = deque(kept)
        self._outbox_size = sum(len(request.text) for request in kept)
        if self._sent_last > self._confirmed:
            self._doubt = why
        self._confirmed = max(
            self._confirmed, self._published - sum(request.counted for request in kept)
        )
        staying = {request.id: request for request in kept if request.done is not None}
        lost = [one for one in self._asked.values() if one.id not in staying]
        lost += self._pings
        self._asked = staying
        self._pings.clear()
        self._drop(lost, why)
        self._met.set()
        self._wake_all()

    def _drop(self, requests: list[Request], why: PubsubdError) -> None:
        for request in requests:
            request.lost = True
            self._end(request, error=fresh(why))

    def _end(
        self,
        request: Request,
        answer: Incoming | None = None,
        error: PubsubdError | None = None,
    ) -> None:
        """Settle a request that has been removed from all tables."""
        if request.slot:
            request.slot = False
            self._slots.release()
        request.answer = answer
        request.error = request.error or error
        assert request.done is not None
        request.done.set()

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            while not self._outbox and not self._urgent:
                await self._outbox_fed.park()
            if self._socket.ended:
                return  # what waits is for the next connection
            frames, self._urgent = [self._urgent], b""
            size = 0
            while self._outbox and size < _OUTBOX:
                request = self._outbox.popleft()
                size += len(request.text)
                request.sent = True
                if request.counted and request.done is None:
                    self._sent_last = request.mark
                frames.append(self._socket.text(request.text))
            self._outbox_size -= size
            self._outbox_open.unpark_all()
            self._sending = True
            try:
                await stream.send_all(b"".join(frames))
            except trio.BrokenResourceError:
                return  # the reader hears the reason, if there is one
            self._sending = False

    async def _read(self, stream: trio.abc.Stream) -> Ended:
        while True:
            await self._wait_for_room()
            try:
                data = bytes(await stream.receive_some(HUB_READ_SIZE))
            except trio.BrokenResourceError as exc:
                refused = certificate_refused(self._host, exc)
                why = refused or DisconnectedError(connection_lost(exc))
                return Ended(caused(why, exc), final=refused is not None)
            self._heard += 1
            for event in self._socket.receive(data):
                if isinstance(event, bytes):
                    try:
                        self._hear(event)
                    except DisconnectedError as fault:
                        return Ended(fault, final=True)
                elif isinstance(event, Opened):
                    self._upgraded.set()
                elif isinstance(event, Pong):
                    self._urgent = event.frame
                    self._outbox_fed.unpark()
                else:
                    if self._unclaimed is not None and self._unclaimed in self._errors:
                        self._errors.remove(self._unclaimed)
                        self._reason = self._reason or self._unclaimed
                    return event
            if self._inbox or self._errors:
                self._inbox_fed.unpark_all()

    async def _wait_for_room(self) -> None:
        # Before the hub has accepted the connection, nothing that it sends is kept.
        self._stalled = True
        await super()._wait_for_room()
        self._stalled = False
        self._heard += 1  # nobody has listened, so no heartbeat is overdue

    def _drop_waiting(self, why: PubsubdError) -> None:
        for request in (*self._asked.values(), *self._pings):
            if request.slot and request.done is not None:
                request.error = fresh(why)
                request.done.set()

    def _hear(self, text: bytes) -> None:
        message = decode(text)
        self._unclaimed = None
        if message.forwarded:
            if self._connected and not self._leaving:
                self._keep(text)
            return
        error = error_of(message)
        request = None
        if message.type == "pong":
            request = self._pings.popleft() if self._pings else None
        elif message.correlation_id is not None:
            request = self._asked.pop(message.correlation_id, None)
        if request is not None:
            self._confirmed = max(self._confirmed, request.mark)
            self._end(request, message, error)
        elif error is not None:
            if message.correlation_id is None and "reason" in error.details:
                self._reason = error  # a close follows
            elif message.correlation_id != self._beat:
                self._errors.append(error)
                self._unclaimed = error if message.correlation_id is None else None
        elif message.type == "hub:disconnect":
            reason = end_of(message)
            self._reason = reason
            self._final = reason.code in _FATAL
