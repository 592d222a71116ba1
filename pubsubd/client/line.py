"""The client of the line protocol: publishing, subscribing, reading and reconnecting."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import trio

from pubsubd.client.dial import Connect, abandon, address, dial, hang_up
from pubsubd.client.faults import (
    DaemonError,
    DisconnectedError,
    caused,
    connection_lost,
    daemon_error,
    ends_client,
    fresh,
    not_understood,
)
from pubsubd.client.login import PING, Credentials, Introduced
from pubsubd.client.reconnect import Reconnecting, running
from pubsubd.client.secure import Secured, Tls
from pubsubd.client.state import RECEIVE_BUFFER, Statistics
from pubsubd.protocol import wire
from pubsubd.protocol.errors import CLOSES, ProtocolError, PubsubdError
from pubsubd.protocol.limits import MIB, READ_SIZE

_OUTBOX = READ_SIZE
_UNANSWERED = (  # errors that come instead of answers
    "unknown-request",
    "bad-request",
    "unknown-connection",
    "too-many-observers",
    "rate-limited",
    "no-mesh",
    "login-failed",
    "login-throttled",
)
_REFUSED = ("not-allowed", "login-required")
_NOT_SUBSCRIBED = ("too-many-subscriptions", "login-required")


class Message(NamedTuple):
    """A message as it was received."""

    name: str
    data: bytes


class _Names(dict[str | bytes, bytes]):
    """Names as the program gives them -> as they are sent; each is checked once."""

    def __missing__(self, name: str | bytes) -> bytes:
        raw = _name_bytes(name, "name")
        if raw.startswith(wire.OWN):
            raise ProtocolError(
                "bad-name", f"{wire.quote(raw)} is the daemon's own: a request, not a message"
            )
        if len(self) >= 1024:
            self.clear()
        self[name] = raw
        return raw


def _name_bytes(name: str | bytes, what: str) -> bytes:
    # surrogatepass: a lone surrogate becomes bytes that the check refuses with the right reason.
    raw = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else bytes(name)
    wire.check_name(raw, what)
    return raw


def _substrings(texts: Iterable[str | bytes], everything: bool) -> dict[bytes, None]:
    """Return what is subscribed, each once; the empty substring is for everything."""
    raw = dict.fromkeys(_name_bytes(text, "substring") for text in texts)
    return {b"": None, **raw} if everything else raw


class _Question:
    """A request, and then its answer."""

    __slots__ = ("answer", "done", "error", "mark", "name", "subscribing")

    def __init__(self, name: bytes, *, subscribing: bool = False) -> None:
        self.name = name
        self.subscribing = subscribing
        self.mark = 0  # messages published before it
        self.done = trio.Event()
        self.answer = b""
        self.error: PubsubdError | None = None

    def end(self, answer: bytes = b"", error: PubsubdError | None = None) -> None:
        self.answer = answer
        self.error = self.error or error
        self.done.set()


class Client(Reconnecting[tuple[bytes, bytes]]):
    """A connection to a daemon, and the next one when it breaks; made by :func:`open_client`.

    Any number of tasks may use it at the same time. After the block, each method raises
    :class:`trio.ClosedResourceError`.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        where: str,
        max_payload: int,
        **more: Any,
    ) -> None:
        super().__init__(
            connect,
            outbox=_OUTBOX,
            measure=lambda message: len(message[0]) + len(message[1]),
            **more,
        )
        self._where = where
        self._max_payload = max_payload

        self._reason: PubsubdError | None = None  # why the daemon is about to close
        self._names = _Names()
        self._substrings: dict[bytes, None] = {}
        self._questions: deque[_Question] = deque()
        self._outbox: list[bytes] = []

    # Publishing

    async def publish(self, name: str | bytes, data: str | bytes) -> None:
        """Put one message into the outbox. Waits while it is full or there is no connection.

        ``str`` is sent as UTF-8. If the call is cancelled, the message is not sent.

        Raises:
            ProtocolError: the name is illegal, or ``data`` is longer than ``max_payload``.
            DaemonError, DisconnectedError: the client has ended.
        """
        raw = self._names[name]
        if isinstance(data, str):
            data = data.encode()
        wire.check_size(len(data), self._max_payload)
        await self._put(wire.frame(raw, data), published=1)

    async def flush(self) -> None:
        """Wait until the daemon has processed everything that was sent before.

        Raises:
            DaemonError, DisconnectedError: the connection broke after the last flush, and messages
                published before that may be lost. This is raised once; the next flush may succeed.
            DaemonError: another error from the daemon that no call has raised yet.
            BufferFullError: see :meth:`request`.
        """
        await self._flush(self._ping)

    async def ping(self) -> float:
        """Return the seconds that a :meth:`flush` took."""
        began = trio.current_time()
        await self.flush()
        return trio.current_time() - began

    async def request(self, name: str | bytes, data: str | bytes = b"") -> bytes:
        """Send a request, for example ``//pubsubd/stats``, and return the data of the answer.

        Raises:
            ProtocolError: the name does not begin with ``//pubsubd/``.
            DaemonError: ``unknown-request``, ``bad-request``, ``unknown-connection``,
                ``too-many-observers``, ``rate-limited``, ``no-mesh``, ``not-allowed``,
                ``login-required``, or the reason for a disconnection.
            DisconnectedError: the connection broke before the answer came.
            BufferFullError: more messages came before the answer than four receive buffers hold.
        """
        raw = _name_bytes(name, "name")
        if not raw.startswith(wire.OWN):
            raise ProtocolError("bad-name", f"{wire.quote(raw)} is not one of the daemon's own")
        if isinstance(data, str):
            data = data.encode()
        wire.check_size(len(data), self._max_payload)
        # A request that is not allowed has no answer, and its error may be that of others.
        return await self._ask(
            _Question(raw), wire.frame(raw, data) + wire.frame(PING, b""), _Question(PING)
        )

    # Subscribing

    async def subscribe(self, *substrings: str | bytes, everything: bool = False) -> None:
        """Subscribe to all messages whose names contain one of ``substrings``.

        With ``everything``, subscribe to all messages that are published at the daemon. What other
        daemons have comes only with a substring that begins with ``//fwd/``, and what the daemon
        publishes itself with one that begins with ``//pubsubd/``.

        Returns when the subscriptions are active. If the call is cancelled, they may or may not be.

        Raises:
            ProtocolError: a substring is illegal; no subscription was changed.
            DaemonError: ``too-many-subscriptions`` or ``login-required``; none of the new
                subscriptions is kept.
            DisconnectedError: the client has ended.
            BufferFullError: see :meth:`request`.
        """
        raw = _substrings(substrings, everything)
        new = [text for text in raw if text not in self._substrings]
        self._substrings.update(dict.fromkeys(new))
        commands = b"".join([wire.subscription(b"sub", text) for text in new])
        while True:
            try:
                await self._ping(commands, subscribing=True)
            except DaemonError as error:
                if error.code == "too-many-subscriptions":
                    await self._unsubscribe(new)
                    raise
                if error.code == "login-required":
                    for text in new:
                        self._substrings.pop(text, None)
                    raise
                if self._failure is not None:
                    raise
            except DisconnectedError:
                if self._failure is not None:
                    raise
            else:
                return
            commands = b""  # the new connection begins with all subscriptions

    async def unsubscribe(self, *substrings: str | bytes, everything: bool = False) -> None:
        """Remove subscriptions. Messages that are already on their way still arrive.

        Raises:
            ProtocolError: ``not-subscribed``: one of them does not exist; nothing was changed.
            DaemonError, DisconnectedError: the client has ended.
        """
        raw = _substrings(substrings, everything)
        for text in raw:
            if text not in self._substrings:
                raise ProtocolError("not-subscribed", f"{wire.quote(text)} is not subscribed")
        await self._unsubscribe(raw)

    async def _unsubscribe(self, substrings: Iterable[bytes]) -> None:
        for text in substrings:
            del self._substrings[text]
        if self._connected:
            await self._put(b"".join([wire.subscription(b"unsub", text) for text in substrings]))
        else:
            self._check()
            await trio.lowlevel.checkpoint()

    # Reading

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> Message:
        """Return the next message, and wait for one if necessary.

        The iteration ends only with an exception.

        Raises:
            DaemonError: an error from the daemon that no call has raised yet; reading may go on.
            DaemonError, DisconnectedError: the client has ended, and all messages have been read.
        """
        name, data = await self._take()
        return Message(name.decode(), data)

    async def receive(self) -> list[Message]:
        """Return all received messages, and wait for at least one. Raises as iterating does."""
        return [Message(name.decode(), data) for name, data in await self._take_all()]

    def statistics(self) -> Statistics:
        """Return a snapshot."""
        return self._snapshot(len(self._substrings))

    # What the methods are made of

    async def _put(self, command: bytes, *questions: _Question, published: int = 0) -> None:
        await self._wait_for_outbox()
        self._published += published
        for question in questions:
            question.mark = self._published
            self._questions.append(question)
        self._outbox.append(command)
        self._outbox_size += len(command)
        self._outbox_fed.unpark()
        await self._take_turn()

    async def _ask(self, question: _Question, command: bytes, *more: _Question) -> bytes:
        await self._put(command, question, *more)
        await self._wait_for(question.done.wait)
        if question.error is not None:
            raise question.error
        return question.answer

    async def _ping(self, commands: bytes = b"", *, subscribing: bool = False) -> None:
        question = _Question(PING, subscribing=subscribing)
        await self._ask(question, commands + wire.frame(PING, b""))

    # The background task

    def _lasts(self, why: PubsubdError) -> bool:
        return ends_client(why)

    async def _converse(self, stream: trio.abc.Stream) -> PubsubdError:
        self._reason = None
        if self._substrings:
            commands = [wire.subscription(b"sub", text) for text in self._substrings]
            self._outbox.insert(0, b"".join(commands))
        self._go_on()
        self._announce()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                why = await self._read(stream)
                nursery.cancel_scope.cancel()
            return why
        finally:
            if self._substrings and self._published == self._confirmed:
                abandon(stream)
            await hang_up(stream)

    def _lose(self, why: PubsubdError, *, final: bool) -> None:
        self._connected = False
        # Not sent yet, so still to be sent; sub and unsub are in self._substrings already.
        kept = [
            c for c in self._outbox if c.startswith(b"pub ") and not c.startswith(b"pub //pubsubd/")
        ]
        if final:
            self._failure = why
            kept = []
        self._outbox[:] = kept
        self._outbox_size = sum(map(len, kept))
        if self._published - len(kept) > self._confirmed:
            self._confirmed = self._published - len(kept)
            self._doubt = why
        questions, self._questions = self._questions, deque()
        for question in questions:
            question.end(error=fresh(why))
        self._wake_all()

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            while not self._outbox:
                await self._outbox_fed.park()
            batch = b"".join(self._outbox)
            self._outbox.clear()
            self._outbox_size = 0
            self._outbox_open.unpark_all()
            try:
                await stream.send_all(batch)
            except trio.BrokenResourceError:
                return  # the reader hears the reason, if there is one

    async def _read(self, stream: trio.abc.Stream) -> PubsubdError:
        decoder = wire.Decoder(self._max_payload)
        while True:
            await self._wait_for_room()
            try:
                data = bytes(await stream.receive_some(READ_SIZE))  # a memory stream's is no bytes
            except trio.BrokenResourceError as exc:
                return self._reason or caused(DisconnectedError(connection_lost(exc)), exc)
            if not data:
                return self._reason or DisconnectedError("the daemon closed the connection")
            try:
                messages = decoder.feed(data)
            except ProtocolError as exc:
                return not_understood(exc, data, self._where)
            for message in messages:
                if message[0].startswith(wire.OWN) and self._is_answer(*message):
                    continue
                self._keep(message)
            if self._inbox or self._errors:
                self._inbox_fed.unpark_all()

    def _drop_waiting(self, why: PubsubdError) -> None:
        for question in self._questions:
            question.end(error=fresh(why))

    def _is_answer(self, name: bytes, data: bytes) -> bool:
        """Handle a message of the daemon itself; return False if it is for the program."""
        if name == wire.ERROR:
            self._hear_error(data)
            return True
        for question in self._questions:
            if question.name == name:
                if name == PING:  # the daemon answers in order, so what is before it has none
                    while self._questions[0] is not question:
                        self._give_up(self._questions.popleft())
                self._questions.remove(question)
                self._confirmed = max(self._confirmed, question.mark)
                question.end(data)
                return True
        return name == PING

    def _give_up(self, question: _Question) -> None:
        """End a question that the daemon has passed over, as it is not allowed."""
        if self._errors and getattr(self._errors[-1], "code", "") in _REFUSED:
            question.end(error=self._errors.pop())
        else:
            question.end(error=DaemonError("not-allowed", "the daemon gave no answer"))

    def _hear_error(self, data: bytes) -> None:
        error = daemon_error(data, self._where)
        if not isinstance(error, DaemonError) or (code := error.code) in CLOSES:
            self._reason = error
        elif code in _UNANSWERED and self._questions:
            self._questions.popleft().end(error=error)  # the daemon answers in order
        elif code in _NOT_SUBSCRIBED:
            # The ping behind the sub commands ends the call.
            asking = next((q for q in self._questions if q.subscribing), None)
            if asking is None:
                self._errors.append(error)
            else:
                asking.error = asking.error or error
        elif code != "not-subscribed":  # only subscribe() causes it, when it takes all back
            self._errors.append(error)

    async def _leave(self) -> None:
        if self._published > self._confirmed or self._doubt is not None:
            await self.flush()

    def _close(self) -> None:
        super()._close()
        self._drop_waiting(DisconnectedError("this client was closed"))


def connector(
    host: str,
    port: int,
    unix: str | None = None,
    tls: bool | Tls | ssl.SSLContext = False,
    login: Credentials | None = None,
    connect: Connect | None = None,
) -> Connect:
    """Return what makes connections that are ready for commands; see :func:`open_client`."""
    where = address(host, port, unix)
    connect = connect or partial(dial, host, port, unix)
    if tls:
        if unix is not None:
            raise ValueError("TLS is for TCP, not for a Unix socket")
        connect = Secured(connect, where, Tls() if tls is True else tls, host)
    if tls or login is not None:
        connect = Introduced(connect, where, login)
    return connect


@asynccontextmanager
async def open_client(
    host: str = "127.0.0.1",
    port: int = 9014,
    *,
    unix: str | None = None,
    tls: bool | Tls | ssl.SSLContext = False,
    login: Credentials | None = None,
    reconnect: bool = True,
    max_payload: int = MIB,
    receive_buffer: int = RECEIVE_BUFFER,
    on_disconnect: Callable[[PubsubdError], object] | None = None,
    on_connect: Callable[[], object] | None = None,
    connect: Connect | None = None,
) -> AsyncIterator[Client]:
    """Connect to a daemon; at the end of the block, flush if anything was published, and close.

    Args:
        host: name or address of the daemon.
        port: its TCP port.
        unix: path of the daemon's Unix socket, instead of host and port.
        tls: whether to use TLS. True trusts the certificate authorities of the system; a
            :class:`Tls` names others, and a certificate of the client. TLS 1.2 or newer is
            required, and the server's certificate must be for ``host``. An ``SSLContext`` is used
            as it is.
        login: the login, sent first on each connection. Without ``tls`` it is sent unencrypted.
        reconnect: whether to reconnect, for ever, when the connection breaks. The waits are
            random, at first up to 0.5 s and later up to 30 s. The first connection is tried once.
        max_payload: most bytes of data in a message, sent or received. Should be the same as the
            daemon's setting.
        receive_buffer: bytes of unread messages at which the client stops reading; each message
            counts 160 bytes extra. One read of 256 KiB or one message may exceed it. While a call
            waits for an answer, up to four times as much is buffered.
        on_disconnect: called with the reason each time a connection ends.
        on_connect: called each time the client has reconnected. If one of these two handlers
            raises an exception, it is logged to the logger ``pubsubd.client`` and counted in
            ``statistics().faults``, and the client goes on.
        connect: a function that makes a connection, instead of host, port and unix.

    Raises:
        ConfigError: a file that ``tls`` names cannot be used.
        ConnectError: the first connection could not be made.
        TlsError: it was made, but without a trusted TLS session.
        LoginError: the daemon rejects the login. If it does so only on a later connection, later
            calls raise this.
        DaemonError, DisconnectedError: as in :meth:`Client.flush`, at the end of the block; with
            ``tls`` or ``login`` also at its beginning.
    """
    where = address(host, port, unix)
    connect = connector(host, port, unix, tls, login, connect)
    client = Client(
        connect,
        where=where,
        reconnect=reconnect,
        max_payload=max_payload,
        receive_buffer=receive_buffer,
        on_disconnect=on_disconnect,
        on_connect=on_connect,
    )
    async with running(client, await connect()):
        yield client
