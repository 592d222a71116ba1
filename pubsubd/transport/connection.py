"""One connection, whatever is spoken on it: sockets and waiting around a protocol.

One task a connection reads and, at the end, takes leave. Writing is the base class's,
:class:`~pubsubd.transport.output.Output`.

Invariants:

- Every ending passes the end of :meth:`Connection.run`: leave the broker, say why, close.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter, thread_time

import trio

from pubsubd.access.proxies import MAX_HEADER as MAX_PROXY_HEADER
from pubsubd.access.proxies import ProxyHeader, read_proxy_header
from pubsubd.broker.peer import Peer
from pubsubd.broker.rate import Pace
from pubsubd.protocol.errors import CLOSES, GOODBYE, HUB_CLOSES, MESH_CLOSES, ProtocolError
from pubsubd.protocol.limits import (
    ALONE,
    ALTERNATELY,
    EAGER,
    LEFT_OUT,
    LONG_TURN,
    MAX_DRAIN_INPUT,
    MAX_PAUSE,
    MUCH,
    PAUSE,
    READ_SIZE,
    SELDOM,
    TURN,
)
from pubsubd.protocol.wire import show_address
from pubsubd.transport.output import Output, wait_for
from pubsubd.transport.protocol import MakeProtocol
from pubsubd.transport.server import Consumer, Server
from pubsubd.transport.tasks import contain, guarded
from pubsubd.transport.tls import TlsSocket

log = logging.getLogger("pubsubd")

_REPORTED = frozenset((*CLOSES, *HUB_CLOSES, *MESH_CLOSES))  # not what another daemon says
_HEAVY = 0.000_5  # seconds of a turn from which on the next one is taken in the lane
_UNKNOWN = 0.001  # seconds of a first turn: a thousand may come at once, and nobody knows of what
_BUSY = 0.6 * TURN  # seconds: too much for a pass that lets others on, but not for ever
_WATCHED = 60.0  # seconds for which the processor's time is looked at after such a turn
_LEAVING = 0.002  # seconds of a step of leaving
_ENDING = 1.2 * _HEAVY  # seconds: more than it takes, so that who says little does not wait for it


def open_connection(
    server: Server,
    sock: socket.socket | TlsSocket,
    label: str,
    make: MakeProtocol,
    *,
    proxied: bool = False,
) -> Peer:
    """Serve a connected, non-blocking socket; return its peer.

    If it is ``proxied``, a header of the PROXY protocol may come first.
    """
    before = server.broker.counters.connections_total
    try:
        connection = Connection(server, sock, label, make)
        connection.proxied = proxied
    except BaseException:
        server.broker.abandon(before)
        raise
    server.connections.add(connection)
    if isinstance(sock, TlsSocket) and not (sock.secure or proxied):
        try:
            server.handshakes.add(connection)
        except Exception as error:  # noqa: BLE001  (it shakes hands in its own task)
            server.broker.faults.note(error, label)
        else:
            return connection.peer
    guarded(server.broker.faults, label, connection.begin, tries=2)
    return connection.peer


class Connection(Output):
    """A connection, from its socket to its peer.

    Attributes:
        heard: :func:`time.perf_counter` at the last input; until TLS is spoken, at the beginning.
        listening: whether the peer has shut down its sending side and goes on receiving.
        leaving: whether nothing is read any more but what the peer says after the end.
        proxied: whether a header of the PROXY protocol may still come.
    """

    __slots__ = (
        "_awaited",
        "_ended",
        "_heavy",
        "_new",
        "_paces",
        "_paused",
        "_poll",
        "_room",
        "_scope",
        "_spared",
        "_watched",
        "heard",
        "leaving",
        "listening",
        "proxied",
    )

    def __init__(
        self, server: Server, sock: socket.socket | TlsSocket, label: str, make: MakeProtocol
    ) -> None:
        super().__init__(server, sock)
        self._scope = trio.CancelScope()
        self._awaited: Sequence[Consumer] = ()
        self._paces: tuple[Pace, Pace] | None = None  # of bytes and of messages
        self._ended = False  # the peer has shut down its sending side
        self._heavy = _UNKNOWN  # seconds that the next turn is likely to take, if that is much
        self._new = True  # nobody knows what it is like: until then its turns are short
        self._poll: Callable[[int], list[tuple[int, int]]] | None = None  # looks for input
        self._paused = 0.0  # until when nothing is read, after a turn that was far too long
        self._spared = False  # it was overdue at the last sweep, and had spoken
        self._room = 0.0  # seconds that the present turn has entered the lane with
        self._watched = 0.0  # until when the processor's time is looked at
        self.heard = perf_counter()
        self.listening = False
        self.leaving = False
        self.proxied = False
        self._protocol = make(label, self._send, self.end)
        self._full = self._protocol.full
        self.peer = self._protocol.peer
        if self._tls is not None and not self._tls.secure:
            self._tls.secured = self._identify
        self.peer.listener.connections += 1

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._sock.fileno()

    def begin(self) -> None:
        """Start the task."""
        self._server.nursery.start_soon(contain, self._broker.faults, self, self.run, 2)

    def shake(self) -> bool:
        """Go on with a handshake of TLS; whether there is something for the task."""
        assert self._tls is not None
        done = self._tls.read_ahead(self._protocol.wanted)
        if self._tls.ahead == b"" or isinstance(self._tls.ahead, ConnectionError):
            self._heavy = 0.0  # the other end is gone, which takes little
        return done

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but cancellation."""
        peer, faults = self.peer, self._broker.faults
        try:
            with self._scope:
                await self._serve()
            if self._server.draining and peer.ending is None and not self._gone:
                if self.proxied:
                    self._say_goodbye()
                else:
                    await self._drain()
        except ProtocolError as error:  # before there was anything that could be said
            self.end(error.code, error.text)
        except ssl.SSLError as error:
            assert self._tls is not None
            self.end("tls-failed", self._tls.explain(error))
        except OSError as error:
            self.leaving = True
            self._lose(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, only this connection ends)
            faults.end(self, error)
            guarded(faults, peer.label, self._broker.delivery.flush)  # what it had led to before
        finally:
            self.leaving = True
            peer.discard_all()
            try:
                for finish in (self._leave, self._close_gracefully):
                    await self._finish(finish)
            finally:
                for close in (
                    self._stop,
                    self._close,
                    peer.release,
                    self._uncount,
                    partial(self._server.close, self),
                ):
                    guarded(faults, peer.label, close, tries=2)

    async def _finish(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Take one step of the end, again if it fails."""
        for _ in range(2):
            try:
                await finish()
            except OSError:
                return
            except Exception as error:  # noqa: BLE001  (as above)
                self._broker.faults.note(error, self.peer.label)
            else:
                return

    async def _leave(self) -> None:
        """Forget the peer, in steps, whatever goes wrong."""
        faults, label = self._broker.faults, self.peer.label
        guarded(faults, label, self._note_half)
        guarded(faults, label, partial(self._server.read_out, self), tries=2)
        steps: list[Callable[[], Iterable[None]]] = []
        guarded(faults, label, lambda: steps.extend(self._protocol.leaving()), tries=2)
        # A fault may have left a subscription in part that leaving knows nothing of.
        whole = self.peer.ending is None or self.peer.ending.code != "internal-error"
        begun, lane = perf_counter(), self._server.lane
        if not self._room and not lane.enter(_ENDING):  # thousands may end at once
            with trio.CancelScope(shield=True):
                await lane.wait(_ENDING)
            begun = perf_counter()
        for step in steps:
            for _ in range(2):
                try:
                    for _ in step():
                        with trio.CancelScope(shield=True):
                            if self._server.siblings:  # which are told of all that it leaves
                                await self._wait_siblings()
                            await lane.wait(_LEAVING)
                except Exception as error:  # noqa: BLE001  (as above)
                    faults.note(error, label)
                    whole = False
                else:
                    break
        self._room = self._room or _ENDING
        self._give_back(perf_counter() - begun)
        if not whole:
            guarded(faults, label, partial(self._broker.repair, self.peer), tries=2)

    def _note_half(self) -> None:
        if (
            self._protocol.halfway
            and self.peer.ending is None
            and self._server.may_log(logging.DEBUG)
        ):
            log.debug("event=half-frame connection=%d peer=%s", self.peer.number, self.peer.label)

    def _stop(self) -> None:
        """Let nobody wait for the connection any more."""
        self._gone = True
        self._wake()

    def _close(self) -> None:
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    def _uncount(self) -> None:
        self.peer.listener.connections -= 1

    def interrupt(self) -> None:
        """Make the connection's task stop waiting, because it has to end."""
        if not self.leaving:  # or it waits for nothing that this would end
            self._scope.cancel()
            self._server.handshakes.remove(self)

    def _identify(self) -> None:
        """Let in who has shown a certificate."""
        assert self._tls is not None
        self.heard = perf_counter()
        if (identity := self._tls.identity) is not None:
            self._broker.login(self.peer, identity)

    def end(self, code: str, text: str) -> None:
        """Let the connection end, for a reason that its peer is told, unless that is a goodbye."""
        peer = self.peer
        if peer.ending is None and not self._gone:
            peer.ending = ProtocolError(code, text)
            guarded(self._broker.faults, peer.label, self.interrupt, tries=2)
            if code != GOODBYE:
                self._broker.counters.errors[code] += 1
                guarded(self._broker.faults, peer.label, self._say_why)
            guarded(self._broker.faults, peer.label, self._wake)

    def _say_why(self) -> None:
        assert self.peer.ending is not None
        self._say(self._protocol.close_reason(self.peer.ending))

    def check(self) -> None:
        """Notice, about once a second, what no input tells: half a command, a peer that left."""
        now, silence = self._server.now, perf_counter() - self.heard
        self._full = self._protocol.full  # a reload may have changed it
        if self._tls is not None and not self._tls.secure:
            limit = self.peer.listener.limits.handshake_timeout
            if silence > limit:
                self.end("tls-timeout", f"not encrypted after {limit:g} s")
            return
        # For 0, poll() tells of POLLERR and POLLHUP alone.
        if (self.listening or self.peer.job is not None) and self._polled(0):
            self._lose(ConnectionResetError(errno.ECONNRESET, ""))
        overdue = self._protocol.overdue(now, now - silence)
        if overdue is not None and not self._ended and self._polled(select.POLLIN):
            overdue = self._protocol.overdue(now, now)  # it has spoken, and we have not listened
            if overdue is not None and not self._spared:  # once: it may have logged in
                self._spared = True
                return
        self._spared = False
        if overdue is not None:
            self.end(overdue.code, overdue.text)

    def _polled(self, events: int) -> bool:
        poll = select.poll()
        poll.register(self._sock, events)
        return bool(poll.poll(0))

    # Reading

    async def _read_proxy_header(self) -> None:
        """Take the header of the PROXY protocol, if one comes first, and the client's address.

        Raises:
            ProtocolError: it cannot be read, or is not whole in time.
        """
        raw = self._sock if self._tls is None else self._tls.raw
        assert isinstance(raw, socket.socket)
        limit, deadline, seen = self.peer.listener.limits.handshake_timeout, float("inf"), b""
        while True:
            with trio.move_on_at(deadline):
                await trio.lowlevel.wait_readable(raw)
            data = raw.recv(MAX_PROXY_HEADER, socket.MSG_PEEK)
            header = read_proxy_header(data) if data else ProxyHeader(0, None)
            if header is not None:
                break
            if len(data) == len(seen) or trio.current_time() >= deadline:
                if not data.strip(b"\r\n"):  # somebody who types blank lines
                    header = ProxyHeader(0, None)
                    break
                raise ProtocolError("bad-proxy-header", f"not whole after {limit:g} s, or cut off")
            deadline, seen = min(deadline, trio.current_time() + limit), data
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(data) + 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        raw.recv(header.size)
        self.proxied = False
        if header.client is not None:
            self._protocol.relocate(show_address(*header.client))

    @property
    def _wait_readable(self) -> Callable[[int], Awaitable[None]]:
        return trio.lowlevel.wait_readable if self._tls is None else self._wait_encrypted

    async def _wait_encrypted(self, descriptor: int) -> None:
        """Wait for input, or for a turn if something is left that was slow to decrypt."""
        assert self._tls is not None
        if self._tls.held:
            await self._server.lane.wait_next(TURN)
        elif self._tls.ahead is not None:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.wait_readable(descriptor)

    async def _serve(self) -> None:
        if self.proxied:
            await self._read_proxy_header()
        peer, server = self.peer, self._server
        wait_readable, descriptor = self._wait_readable, self._sock.fileno()
        protocol, recv, receive = self._protocol, self._sock.recv, self._protocol.receive
        counters, lane, crowd = self._broker.counters, server.lane, server.crowd
        asleep, took = float("-inf"), _HEAVY
        began, at_once, much = 0.0, False, False
        misses = skip = 0  # looks for input in vain in a row, and how many are left out for that
        while not server.draining:
            if at_once:
                awake = perf_counter()
            else:
                await wait_readable(descriptor)
                began = awake = perf_counter()
            if self._heavy or awake > lane.soon or (much and crowd.queued):
                if self._heavy or awake > lane.late:
                    cost = self._heavy or min(took, _HEAVY)
                    if awake < self._paused:
                        await self.pause(self._paused - awake)
                    if self._heavy and server.siblings:
                        await self._wait_siblings()
                    if not lane.enter(cost):
                        await lane.wait(cost)
                    self._room = self._heavy
                    if self._new:
                        self._broker.delivery.turn.length = _UNKNOWN
                    awake = perf_counter()
                elif (
                    much and awake - server.changed < ALTERNATELY and awake - crowd.spoken < SELDOM
                ):
                    await crowd.wait(took)
                    awake = perf_counter()
            cpu = 0.0
            if (self._heavy or awake < self._watched) and (self._tls is None or self._tls.secure):
                cpu = thread_time()
            at_once = False
            try:
                data = recv(protocol.wanted)
            except (BlockingIOError, InterruptedError):
                if self._room:
                    self._give_back(perf_counter() - awake)
                continue
            if not data:
                self._ended = True
                if protocol.listening or self._writing:
                    self._room = 0.0
                break
            self.heard = awake
            if server.latest is self:
                eager = awake - asleep < EAGER
            else:
                eager, server.latest, server.changed = False, self, awake
            messages, carried = counters.messages_in, peer.messages_in
            if server.pressed:
                server.pressed.clear()  # by nobody who could wait for them
            more = receive(data)
            size = len(data)
            data = b""  # or the next read is put elsewhere, and this one stays while nothing comes
            peer.bytes_in += size
            peer.messages_in += counters.messages_in - messages
            asleep = perf_counter()
            if size > MUCH:
                much = True
            elif much:
                much = False
            else:
                crowd.spoken = awake
            took = asleep - awake
            if self._room:
                self._give_back(took)
            if self._heavy or took > _HEAVY:
                self._heavy = self._weigh(asleep, took, cpu, more)
            if more or server.pressed:
                await self._go_on(more)
            if peer.ending is not None:
                return
            if peer.listener.limits.paced:
                await self._keep_pace(size, peer.messages_in - carried)
                asleep = perf_counter()
            elif more:
                asleep = perf_counter()
            if eager and not lane.queued:
                if skip:
                    skip -= 1
                else:
                    at_once = bool(self.look_out())
                    misses = 0 if at_once else min(2 * misses + 1, LEFT_OUT)
                    skip = misses
                if asleep - began >= ALONE:
                    at_once = False
        else:
            return
        if protocol.listening:
            self.listening = True
            await trio.sleep_forever()
        await self._wait_drained()

    def _receive(self, data: bytes) -> bool:
        """Let the protocol work off ``data``, and count it; return whether work is left."""
        counters, peer = self._broker.counters, self.peer
        messages = counters.messages_in
        more = self._protocol.receive(data)
        peer.bytes_in += len(data)
        peer.messages_in += counters.messages_in - messages
        return more

    def _give_back(self, took: float) -> None:
        """Let others have what is left of the room that a turn has entered the lane with."""
        if took < self._room:
            self._server.lane.give_back(self._room - took)
        self._room = 0.0

    def _weigh(self, now: float, took: float, cpu: float, more: bool) -> float:
        """Return what the next turn is likely to cost, if that is much, by the last few.

        It may have been somebody else who had the processor meanwhile. So after a turn that seems
        to have taken long, the processor's time is looked at for a while, which costs too much to
        be asked for at each read. Of the first such turn is known what it has taken at least.
        """
        if cpu:
            took = thread_time() - cpu
        else:
            took = max(0.0, took - self._server.without()) if took > LONG_TURN else 0.0
        if not cpu or took > _HEAVY / 2:
            self._watched = now + _WATCHED
        if took > LONG_TURN:
            self._paused = now + min(PAUSE * took, MAX_PAUSE)
        ended = more or self._broker.delivery.unsent  # before its work, or before all was sent
        if self._new and ended and took > _UNKNOWN / 2:  # it was short, and the next one is whole
            self._new = False
            return _BUSY
        # A quarter, as a cheap turn may meet a collection of garbage or a cache that is cleared.
        likely = self._heavy + (min(took, TURN) - self._heavy) / 4
        if likely > _HEAVY / 2:
            return likely
        self._new = False  # a turn of it that ends before its work says no more than of others
        return 0.0

    async def pause(self, seconds: float) -> None:
        """Leave the processor to others for as long: the last turn has taken far too much of it."""
        await trio.sleep(seconds)
        self.heard = perf_counter()

    async def _wait_siblings(self) -> None:
        """Let other workers do what turns that took long have led to, before the next such turn.

        Messages of all connections go to another worker in one stream: what is in it, the next one
        has to wait for.
        """
        server = self._server
        while self not in server.siblings and (held := server.behind()) is not None:
            await wait_for(held)
            self.heard = perf_counter()  # the silence was ours

    async def _keep_pace(self, size: int, messages: int) -> None:
        """Wait until more may be read, where there are rates."""
        limits, now = self.peer.listener.limits, trio.current_time()
        if self._paces is None:
            self._paces = Pace(), Pace()
        until = now + max(
            self._paces[0].spend(size, limits.byte_rate, now),
            self._paces[1].spend(messages, limits.message_rate, now),
        )
        while now < until and not self._server.draining:
            await trio.sleep(min(1.0, until - now))
            now, self.heard = trio.current_time(), perf_counter()  # the silence was ours

    def look_out(self) -> bool:
        """Look for input a little while: a core that has gone to sleep takes longer to wake.

        Returns:
            Whether there is some.
        """
        if self._poll is None:
            poll = select.poll()
            poll.register(self._sock, select.POLLIN)
            self._poll = poll.poll
        poll_now, until = self._poll, perf_counter() + self._server.look_out
        while not (found := bool(poll_now(0))) and perf_counter() < until:
            pass
        return found

    async def _go_on(self, more: bool) -> None:
        """Wait for the consumers that a read has filled, and take the turns that are left of it.

        What takes long, the check of a password, is done in a thread meanwhile, and no timeout
        runs.
        """
        server = self._server
        while True:
            if server.pressed:
                self._awaited, server.pressed = server.pressed, []
                await self._wait_pressed()
            if (job := self.peer.job) is not None:
                begun = trio.current_time()
                await server.checker.run(job.check)
                self.peer.job = None
                self._protocol.rest(begun, trio.current_time())  # the silence was ours
                job.finish()
                self.heard, more = perf_counter(), True
            if not more:
                return
            cost = self._heavy or _HEAVY
            if (left := self._paused - perf_counter()) > 0:
                await self.pause(left)
            if self._heavy and server.siblings:
                await self._wait_siblings()
            await server.lane.wait_next(cost)
            awake, cpu = perf_counter(), thread_time()
            more = self._receive(b"")
            asleep = perf_counter()
            if self._heavy or asleep - awake > _HEAVY:
                self._heavy = self._weigh(asleep, asleep - awake, cpu, more)
            if not (more or server.pressed):
                return

    async def _wait_pressed(self) -> None:
        """Wait for the consumers that a read has filled, and for what it could not send at once."""
        begun = trio.current_time()
        self.peer.busy = True
        for consumer in self._awaited:
            await consumer.wait_relief(begun)
        self._awaited = ()
        self.peer.busy = False
        self.heard = perf_counter()  # the silence was ours

    async def _drain(self) -> None:
        """Carry out what had been received, then wait until everything is delivered."""
        peer, sock = self.peer, self._sock
        # What a sibling has taken of its clients is bounded already, and it says when that is all.
        room = float("inf") if self in self._server.siblings else MAX_DRAIN_INPUT
        with trio.move_on_at(self._server.drain_deadline):
            await self._wait_pressed()  # which was interrupted: what comes next must not overtake
            await self._go_on(more=True)
            while room > 0 and peer.ending is None:
                with trio.move_on_after(self._protocol.quiet) as quiet:
                    await self._wait_readable(sock.fileno())
                try:
                    data = sock.recv(self._protocol.wanted)
                except (BlockingIOError, InterruptedError):
                    if quiet.cancelled_caught:
                        break
                    continue  # part of a record
                if not data:
                    break
                room -= len(data)
                await self._go_on(self._receive(data))
        self._server.read_out(self)
        with trio.move_on_at(self._server.drain_deadline):
            await self._server.wait_all_read_out()
            await self._wait_drained()
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        self.end("shutting-down", "the daemon is ending")

    # The end

    async def _close_gracefully(self) -> None:
        """Tell the peer why, give it time to read that, and let it close first."""
        peer = self.peer
        if peer.ending is None or self._gone:
            return
        if peer.ending.code in _REPORTED:
            self._server.report(peer, peer.ending)
        with trio.move_on_after(self._server.limits.linger):
            await self._wait_drained()
            self._sock.shutdown(socket.SHUT_WR)
            # A socket closed with input unread resets the connection, and the reason with it.
            raw = self._sock if self._tls is None else self._tls.raw
            while True:
                await trio.lowlevel.wait_readable(raw)
                if not raw.recv(READ_SIZE):
                    break
