"""A client of the line protocol, on trio.

    async with open_client("127.0.0.1", 9014) as client:
        await client.subscribe("chat/")
        await client.publish("chat/main", "hello")
        async for message in client:
            print(message.name, message.data)

What it promises:

- **Order.** What one task publishes arrives in that order. Publishing puts the command into a
  bounded outbox, and whatever has gathered there goes out in one send: no timers.
- **Certainty on request.** :meth:`Client.publish` returns when the message is in the outbox;
  :meth:`Client.flush` returns when the daemon has carried out everything before it, and raises
  if some of it may have been lost. Leaving the block flushes, unless an exception leaves it.
- **Bounds.** A full outbox makes publishers wait. A full receive buffer stops the reading, so that
  a program which does not read is throttled, and perhaps cut, by the daemon as any slow consumer.
- **Connections are renewed**, for ever, and subscriptions with them, unless told otherwise. Lost
  with a connection are the messages published by others until it is back, and those of our own
  that the old one had taken without confirming them, of which the next flush tells. Publishing
  meanwhile waits for as long as the caller's cancel scope allows. Nothing is ever sent twice.
- **No fault is silent.** What the daemon objects to is raised as :class:`DaemonError` by the call
  that caused it, where that can be known, otherwise by the next flush or read. A fault that a new
  connection would only repeat (a payload over the daemon's limit, a peer that is no pubsubd) ends
  the client: each later call raises it.

Every exception raised on purpose is a :class:`~pubsubd.errors.PubsubdError`, never in a group.
Every waiting method checks for cancellation; those that did not have to wait let other tasks run
at every 64th call rather than each time, which is what makes batches.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import trio

from pubsubd import wire
from pubsubd.errors import CLOSES, ProtocolError, PubsubdError
from pubsubd.limits import MIB, READ_SIZE

BACKOFF = 0.5
"""Seconds: the longest wait before the first attempt to connect again; doubled for each more."""

BACKOFF_MAX = 30.0
"""Seconds: the longest wait between two attempts. All waits are random, from 0 to the longest."""

CONNECT_TIMEOUT = 10.0
"""Seconds that one attempt to connect may take."""

RECEIVE_BUFFER = 8 * MIB
"""Bytes received and not read yet at which the client stops reading from its socket."""

_OVERHEAD = 160  # what a buffered message costs beside its bytes
_PATIENCE = 4  # receive buffers' worth of messages taken in while a call waits for an answer
_OUTBOX = READ_SIZE
_TURN = 64  # calls without waiting after which other tasks get a turn
_PING = b"//pubsubd/ping"
_HOPELESS = ("payload-too-large", "wrong-length", "line-too-long", "http-request")
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))

Connect: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]


class ConnectError(PubsubdError):
    """There is no connection to be had; ``__cause__`` is the :class:`OSError`.

    Attributes:
        where: ``host:port`` or the path of the Unix socket.
        reason: why, in lower case, as ``connection refused``.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot connect to {self.where}: {self.reason}"


class DisconnectedError(PubsubdError):
    """The connection ended and the daemon did not say why, or what came is not its protocol."""


class DaemonError(PubsubdError):
    """What the daemon said on ``//pubsubd/error``.

    Attributes:
        code: as in pubsubd-protocol(7), for example ``slow-consumer``.
        text: one printable line for a person.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class BufferFullError(PubsubdError):
    """A call waited for an answer behind more messages than may be kept: read some first."""


class Message(NamedTuple):
    """A message as it was received."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    """The client at one moment."""

    connected: bool
    connections: int
    """Connections made so far, the first included."""
    published: int
    """Messages put into the outbox."""
    confirmed: int
    """Of these, how many the daemon is known to have carried out (or a flush told as lost)."""
    received: int
    subscriptions: int
    buffered_messages: int
    buffered_bytes: int
    """With the overhead of 160 a message."""


class _Names(dict[str | bytes, bytes]):
    """Names as they are sent, by how they were given; each is checked once."""

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


class _Question:
    """A request on its way, and then its answer."""

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


class Client:
    """A connection to a daemon, and the next one when it breaks; made by :func:`open_client`.

    Any number of tasks may use it at once. After the block each method raises
    :class:`trio.ClosedResourceError`.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        reconnect: bool,
        max_payload: int,
        receive_buffer: int,
        on_disconnect: Callable[[PubsubdError], object] | None,
        on_connect: Callable[[], object] | None,
    ) -> None:
        self._connect = connect
        self._reconnect = reconnect
        self._max_payload = max_payload
        self._bound = receive_buffer
        self._on_disconnect = on_disconnect
        self._on_connect = on_connect

        self._closed = False
        self._connected = False
        self._connections = 0
        self._reason: DaemonError | None = None  # why the daemon is about to close
        self._failure: PubsubdError | None = None  # the end of it all
        self._errors: deque[DaemonError] = deque(maxlen=100)  # which no call has caused
        self._turns = 0

        self._names = _Names()
        self._substrings: dict[bytes, None] = {}
        self._questions: deque[_Question] = deque()
        self._waiting = 0  # calls that wait for an answer

        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._outbox_fed = trio.lowlevel.ParkingLot()
        self._outbox_open = trio.lowlevel.ParkingLot()
        self._published = 0
        self._confirmed = 0
        self._doubt: PubsubdError | None = None  # why messages may be lost, until it is told

        self._inbox: deque[tuple[bytes, bytes]] = deque()
        self._inbox_size = 0
        self._inbox_fed = trio.lowlevel.ParkingLot()
        self._inbox_open = trio.lowlevel.ParkingLot()
        self._received = 0

    # Publishing

    async def publish(self, name: str | bytes, data: str | bytes) -> None:
        """Put one message into the outbox; waits while that is full or there is no connection.

        ``str`` is sent as UTF-8. After a cancellation the message is not sent.

        Raises:
            ProtocolError: the name is not legal, or ``data`` longer than ``max_payload``.
            DaemonError, DisconnectedError: the client has ended.
        """
        raw = self._names[name]
        if isinstance(data, str):
            data = data.encode()
        wire.check_size(len(data), self._max_payload)
        await self._put(wire.frame(raw, data), published=1)

    async def flush(self) -> None:
        """Wait until the daemon has carried out everything before.

        Raises:
            DaemonError, DisconnectedError: the connection broke after the last flush, and messages
                published before that may be lost. Told once; another flush may well succeed.
            DaemonError: something else that the daemon objected to and no call has told yet.
            BufferFullError: see :meth:`request`.
        """
        if self._doubt is None:
            try:
                await self._ping()
            except (DaemonError, DisconnectedError):
                self._doubt = None
                raise
        if self._doubt is not None:
            doubt, self._doubt = self._doubt, None
            raise _fresh(doubt)
        if self._errors:
            raise self._errors.popleft()

    async def ping(self) -> float:
        """Return the seconds that a :meth:`flush` took."""
        began = trio.current_time()
        await self.flush()
        return trio.current_time() - began

    async def request(self, name: str | bytes, data: str | bytes = b"") -> bytes:
        """Ask the daemon, for example ``//pubsubd/stats``, and return the data of the answer.

        Raises:
            ProtocolError: the name is not one under ``//pubsubd/``.
            DaemonError: ``unknown-request``, ``bad-request``, or the reason of a disconnection.
            DisconnectedError: the connection broke before the answer came.
            BufferFullError: before the answer come more messages than four receive buffers hold.
        """
        raw = _name_bytes(name, "name")
        if not raw.startswith(wire.OWN):
            raise ProtocolError("bad-name", f"{wire.quote(raw)} is not one of the daemon's own")
        if isinstance(data, str):
            data = data.encode()
        wire.check_size(len(data), self._max_payload)
        return await self._ask(_Question(raw), wire.frame(raw, data))

    # Subscribing

    async def subscribe(self, *substrings: str | bytes) -> None:
        """Ask for all messages whose names contain one of ``substrings``.

        Returns when they are in force. After a cancellation they may or may not be.

        Raises:
            ProtocolError: one of them is not legal; nothing was changed.
            DaemonError: ``too-many-subscriptions``; none of the new ones is kept.
            DisconnectedError: the client has ended.
            BufferFullError: see :meth:`request`.
        """
        raw = dict.fromkeys(_name_bytes(text, "substring") for text in substrings)
        new = [text for text in raw if text not in self._substrings]
        self._substrings.update(dict.fromkeys(new))
        commands = b"".join([b"sub %b\n" % text for text in new])
        while True:
            try:
                await self._ping(commands, subscribing=True)
            except DaemonError as error:
                if error.code == "too-many-subscriptions":
                    await self.unsubscribe(*new)
                    raise
                if self._failure is not None:
                    raise
            except DisconnectedError:
                if self._failure is not None:
                    raise
            else:
                return
            commands = b""  # the new connection begins with all subscriptions

    async def unsubscribe(self, *substrings: str | bytes) -> None:
        """Take back subscriptions; messages that are on their way still arrive.

        Raises:
            ProtocolError: ``not-subscribed``, one of them is not there; nothing was changed.
            DaemonError, DisconnectedError: the client has ended.
        """
        raw = dict.fromkeys(_name_bytes(text, "substring") for text in substrings)
        for text in raw:
            if text not in self._substrings:
                raise ProtocolError("not-subscribed", f"{wire.quote(text)} is not subscribed")
        for text in raw:
            del self._substrings[text]
        if self._connected:
            await self._put(b"".join([b"unsub %b\n" % text for text in raw]))
        else:
            self._check()
            await trio.lowlevel.checkpoint()

    # Reading

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; waits for one. The iteration ends by an exception only.

        Raises:
            DaemonError: something the daemon objected to and no call has told; reading may go on.
            DaemonError, DisconnectedError: the client has ended, and all that came is read.
        """
        await self._wait_for_messages()
        name, data = self._inbox.popleft()
        self._inbox_size -= len(name) + len(data) + _OVERHEAD
        if self._inbox_size < self._bound:
            self._inbox_open.unpark_all()
        return Message(name.decode(), data)

    async def receive(self) -> list[Message]:
        """Return all messages that have come, at least one; waits for it. Raises as iterating."""
        await self._wait_for_messages()
        messages = [Message(name.decode(), data) for name, data in self._inbox]
        self._inbox.clear()
        self._inbox_size = 0
        self._inbox_open.unpark_all()
        return messages

    def statistics(self) -> Statistics:
        """Return a snapshot."""
        return Statistics(
            connected=self._connected,
            connections=self._connections,
            published=self._published,
            confirmed=self._confirmed,
            received=self._received,
            subscriptions=len(self._substrings),
            buffered_messages=len(self._inbox),
            buffered_bytes=self._inbox_size,
        )

    # What the methods are made of

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this client was closed")
        if self._failure is not None:
            self._doubt = None  # told now
            raise _fresh(self._failure)

    async def _take_turn(self) -> None:
        self._turns += 1
        if self._turns >= _TURN:
            self._turns = 0
            # Not to be cancelled: a command is in the outbox already.
            await trio.lowlevel.cancel_shielded_checkpoint()

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

    async def _put(
        self, command: bytes, *, published: int = 0, question: _Question | None = None
    ) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        while not self._connected or self._outbox_size >= _OUTBOX:
            await self._outbox_open.park()
            self._check()
        self._published += published
        if question is not None:
            question.mark = self._published
            self._questions.append(question)
        self._outbox.append(command)
        self._outbox_size += len(command)
        self._outbox_fed.unpark()
        await self._take_turn()

    async def _ask(self, question: _Question, command: bytes) -> bytes:
        await self._put(command, question=question)
        self._waiting += 1
        self._inbox_open.unpark_all()  # the answer may be behind messages that nobody reads
        try:
            await question.done.wait()
        finally:
            self._waiting -= 1
        if question.error is not None:
            raise question.error
        return question.answer

    async def _ping(self, commands: bytes = b"", *, subscribing: bool = False) -> None:
        question = _Question(_PING, subscribing=subscribing)
        await self._ask(question, commands + wire.frame(_PING, b""))

    # The background task

    async def _run(self, stream: trio.abc.Stream) -> None:
        attempt = 0
        while True:
            began = trio.current_time()
            why = await self._converse(stream)
            hopeless = isinstance(why.__cause__, ProtocolError) or (
                isinstance(why, DaemonError) and why.code in _HOPELESS
            )
            self._lose(why, final=hopeless or not self._reconnect)
            if self._on_disconnect is not None:
                self._on_disconnect(why)
            if self._failure is not None:
                return
            if trio.current_time() - began >= BACKOFF_MAX:
                attempt = 0  # not merely accepted and closed again
            stream, attempt = await self._connect_again(attempt)

    async def _connect_again(self, attempt: int) -> tuple[trio.abc.Stream, int]:
        while True:
            longest = min(BACKOFF_MAX, BACKOFF * 2 ** min(attempt, 10))
            await trio.sleep(random.uniform(0, longest))
            attempt += 1
            try:
                return await self._connect(), attempt
            except ConnectError:
                continue

    async def _converse(self, stream: trio.abc.Stream) -> PubsubdError:
        """Use one connection until it ends, and return why it did."""
        self._connected = True
        self._connections += 1
        self._reason = None
        if self._substrings:
            self._outbox.insert(0, b"".join([b"sub %b\n" % text for text in self._substrings]))
        self._outbox_open.unpark_all()
        if self._connections > 1 and self._on_connect is not None:
            self._on_connect()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                why = await self._read(stream)
                nursery.cancel_scope.cancel()
            return why
        finally:
            if self._substrings and self._published == self._confirmed:
                _abandon(stream)
            await trio.aclose_forcefully(stream)

    def _lose(self, why: PubsubdError, *, final: bool) -> None:
        """Settle what the lost connection leaves behind."""
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
            question.end(error=_fresh(why))
        self._wake_all()

    def _wake_all(self) -> None:
        for lot in (self._outbox_fed, self._outbox_open, self._inbox_fed, self._inbox_open):
            lot.unpark_all()

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
                return self._reason or _caused(DisconnectedError(_connection_lost(exc)), exc)
            if not data:
                return self._reason or DisconnectedError("the daemon closed the connection")
            try:
                messages = decoder.feed(data)
            except ProtocolError as exc:
                return _caused(DisconnectedError(_not_understood(exc)), exc)
            for message in messages:
                if message[0].startswith(wire.OWN) and self._is_answer(*message):
                    continue
                self._inbox.append(message)
                self._inbox_size += len(message[0]) + len(message[1]) + _OVERHEAD
                self._received += 1
            if self._inbox or self._errors:
                self._inbox_fed.unpark_all()

    async def _wait_for_room(self) -> None:
        while self._inbox_size >= self._bound:
            if self._waiting:
                # A caller that waits for an answer cannot read: stopping here would be for ever.
                if self._inbox_size < self._bound * _PATIENCE:
                    return
                for question in self._questions:
                    question.end(error=BufferFullError("received messages have to be read first"))
            await self._inbox_open.park()

    def _is_answer(self, name: bytes, data: bytes) -> bool:
        """Handle a message of the daemon's own; return False if it is for the program."""
        if name == wire.ERROR:
            self._hear_error(data)
            return True
        for at, question in enumerate(self._questions):
            if question.name == name:
                del self._questions[at]
                self._confirmed = max(self._confirmed, question.mark)
                question.end(data)
                return True
        return name == _PING

    def _hear_error(self, data: bytes) -> None:
        code, _, text = wire.escape(data).replace("\\\\", "\\").partition(" ")
        error = DaemonError(code, text)
        if code in CLOSES:
            self._reason = error
        elif code in ("unknown-request", "bad-request") and self._questions:
            self._questions.popleft().end(error=error)  # the daemon answers in order
        elif code == "too-many-subscriptions":
            # The ping behind the sub commands ends the call.
            asking = next((q for q in self._questions if q.subscribing), None)
            if asking is None:
                self._errors.append(error)
            else:
                asking.error = asking.error or error
        elif code != "not-subscribed":  # only subscribe() causes it, when it takes all back
            self._errors.append(error)

    async def _finish(self) -> None:
        if self._published > self._confirmed or self._doubt is not None:
            await self.flush()

    def _close(self) -> None:
        self._closed = True
        self._wake_all()
        for question in self._questions:
            question.end(error=DisconnectedError("this client was closed"))


@asynccontextmanager
async def open_client(
    host: str = "127.0.0.1",
    port: int = 9014,
    *,
    unix: str | None = None,
    reconnect: bool = True,
    max_payload: int = MIB,
    receive_buffer: int = RECEIVE_BUFFER,
    on_disconnect: Callable[[PubsubdError], object] | None = None,
    on_connect: Callable[[], object] | None = None,
    connect: Connect | None = None,
) -> AsyncIterator[Client]:
    """Connect, and close at the end of the block, after a flush if something was published.

    Args:
        host: name or address of the daemon.
        port: its TCP port.
        unix: path of the daemon's Unix socket, instead of host and port.
        reconnect: whether to connect again, for ever, when the connection breaks. The waits are
            random, up to 0.5 s first and up to 30 s later. The first connection is tried once.
        max_payload: bytes of a message's data, sent or received. Should be the daemon's.
        receive_buffer: bytes received and not read yet (each message counts 160 more) at which
            reading stops. One read of 256 KiB or one message may go beyond it, and what comes
            before the answer to a waiting call, up to four times as much.
        on_disconnect: called with the reason each time a connection ends. It must not raise.
        on_connect: called each time a connection is there again. It must not raise.
        connect: how to make a connection, instead of host, port and unix.

    Raises:
        ConnectError: there is no connection at the beginning.
        DaemonError, DisconnectedError: as :meth:`Client.flush`, at the end.
    """

    async def dial() -> trio.abc.Stream:
        return await _dial(host, port, unix)

    connect = connect or dial
    client = Client(
        connect,
        reconnect=reconnect,
        max_payload=max_payload,
        receive_buffer=receive_buffer,
        on_disconnect=on_disconnect,
        on_connect=on_connect,
    )
    stream = await connect()
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client._run, stream)
        try:
            yield client
            await client._finish()
        except BaseException as exc:  # noqa: BLE001  (raised below, where no nursery groups it)
            error = exc
        client._close()
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error


async def _dial(host: str, port: int, unix: str | None) -> trio.abc.Stream:
    where = unix if unix is not None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with trio.fail_after(CONNECT_TIMEOUT):
            if unix is not None:
                return await trio.open_unix_socket(unix)
            stream = await trio.open_tcp_stream(host, port)
    except trio.TooSlowError:
        raise ConnectError(where, f"no answer in {CONNECT_TIMEOUT:g} s") from None
    except OSError as exc:
        cause: BaseException = exc
        # trio tells which addresses failed and keeps why in the cause, in a group if several did.
        while isinstance(cause.__cause__, OSError | BaseExceptionGroup):
            cause = cause.__cause__
            if isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
        raise ConnectError(where, _reason(cause)) from cause
    # A peer that vanished without a word would otherwise never be missed.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return stream


def _abandon(stream: trio.abc.Stream) -> None:
    """Make closing reset the connection.

    A daemon that only saw the end of our commands would go on delivering, as it does after
    ``nc -N``, until it notices that nobody is there.
    """
    if isinstance(stream, trio.SocketStream) and stream.socket.family != socket.AF_UNIX:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _fresh(error: PubsubdError) -> PubsubdError:
    """Return ``error`` anew, as each raising adds to an exception's traceback."""
    return _caused(type(error)(*error.args), error.__cause__)


def _caused(error: PubsubdError, cause: BaseException | None) -> PubsubdError:
    error.__cause__ = cause
    return error


def _connection_lost(exc: BaseException) -> str:
    return f"the connection broke: {_reason(exc.__cause__ or exc)}"


def _reason(exc: BaseException) -> str:
    if not isinstance(exc, OSError) or exc.errno is None:
        return str(exc)
    # The system's text: trio's own in strerror tells the address as well. Resolvers number
    # their errors differently.
    text = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno)
    return (text or str(exc)).lower()


def _not_understood(error: ProtocolError) -> str:
    if error.code == "payload-too-large":
        return f"a message is larger than this client takes: {error.text}"
    return f"the peer does not speak this protocol: {error.text}"
