"""The writing half of a connection: what is sent at once, what waits, and who waits for it.

Whoever delivers to a connection, its own task or another, calls :meth:`Output._send`, which never
waits, and so is also where an overrun is noticed: a writer that is stuck could not. A task writes
only while something waits that the socket would not take.

Invariants:

- ``outbox`` is empty or a writer runs.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import cast

import trio

from pubsubd.broker.peer import Peer
from pubsubd.protocol.limits import LINK_STALL
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.transport.protocol import ConnectionProtocol
from pubsubd.transport.server import Server
from pubsubd.transport.stall_budget import StallBudget
from pubsubd.transport.tasks import contain, guarded
from pubsubd.transport.tls import TlsSocket

log = logging.getLogger("pubsubd")

_MOST_PIECES = 64  # in one send; the system allows 1,024
_WRITING = 0.000_25  # seconds of a send of a writer; 20 of them in one pass hold nobody up
_MANY = 20
_GRACE = 0.025  # seconds that a consumer is waited for although it has taken nothing for long


async def wait_for(held: Hold) -> None:
    """Wait until it has come."""
    event = trio.Event()
    held.then(event.set)
    await event.wait()


class Output:
    """What a connection sends; its subclass sets ``peer`` and ``_protocol``.

    Attributes:
        peer: the connection as the broker sees it.
    """

    __slots__ = (
        "_broker",
        "_counters",
        "_dropped",
        "_full",
        "_given_up",
        "_gone",
        "_lot",
        "_moved",
        "_protocol",
        "_server",
        "_sock",
        "_stall_budget",
        "_tls",
        "_writing",
        "peer",
    )

    peer: Peer
    _protocol: ConnectionProtocol
    _full: int  # bytes waiting from which on publishers wait

    def __init__(self, server: Server, sock: socket.socket | TlsSocket) -> None:
        self._server = server
        self._broker = server.broker
        self._counters = server.broker.counters
        self._sock = sock
        self._tls = sock if isinstance(sock, TlsSocket) else None
        self._lot: trio.lowlevel.ParkingLot | None = None
        self._stall_budget: StallBudget | None = None
        self._given_up = False
        self._dropped = 0  # messages, since the backlog was empty
        self._gone = False  # no send is tried any more
        self._writing = False
        self._moved = 0.0

    def end(self, code: str, text: str) -> None:
        """Let the connection end, for a reason that its peer is told."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Make the connection's task stop waiting, because it has to end."""
        raise NotImplementedError

    def _send(self, data: bytes | Pieces) -> None:
        """Send whole frames, now or later; the broker calls this once a read."""
        peer = self.peer
        if self._gone or peer.ending is not None:
            return
        outbox, size = peer.outbox, len(data)
        self._counters.bytes_out += size
        peer.bytes_out += size
        if not outbox.size:
            try:
                if outbox.held is not None and not outbox.held.over:
                    sent = 0
                elif isinstance(data, bytes):
                    sent = self._sock.send(data)
                elif len(data.parts) == 1:
                    sent = self._sock.send(data.parts[0])
                else:
                    sent = self._sock.sendmsg(data.parts[:_MOST_PIECES])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._lose(error)
                return
            if sent == size and self._tls is None:
                return
            self._keep(data, sent)
        elif outbox.size > self._protocol.max_pending:
            self._overrun(data)
            return
        else:
            outbox.put(data if isinstance(data, bytes) else data.whole())
        if outbox.size > self._full and not self._given_up:
            self._server.press(self)

    def _say(self, data: bytes) -> None:
        """Send the last words, or queue what the socket does not take, whatever the limit."""
        outbox = self.peer.outbox
        if outbox.size:
            outbox.put(data)
            return
        try:
            held = outbox.held is not None and not outbox.held.over
            sent = 0 if held else self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        self._keep(data, sent)

    def _keep(self, data: bytes | Pieces, sent: int) -> None:
        """Queue ``data``, of which so many bytes are sent, and let the rest be written."""
        outbox = self.peer.outbox
        unsent = sent < len(data)
        if unsent:
            outbox.put(data if isinstance(data, bytes) else data.whole(), sent)
        if unsent or (self._tls is not None and self._tls.pending):
            self._moved = trio.current_time()
            if not self._writing:
                self._writing = True
                faults = self._broker.faults
                self._server.nursery.start_soon(contain, faults, self, self._write)

    async def _write(self) -> None:
        """Send what waits until nothing does; one such task a connection, and only then."""
        outbox, server = self.peer.outbox, self._server
        server.writers += 1
        try:
            while outbox.size or (self._tls is not None and self._tls.pending):
                await trio.lowlevel.wait_writable(self._sock)
                held = None if outbox.held is None or outbox.held.over else outbox.held
                if held is not None:
                    await wait_for(held)
                    self._moved = trio.current_time()
                elif server.writers > _MANY and not server.lane.enter(_WRITING):
                    await server.lane.wait(_WRITING)
                if self._gone:
                    break
                if held is not None:
                    continue
                try:
                    sent = self._sock.send(outbox.head())
                except (BlockingIOError, InterruptedError):
                    continue
                if sent:
                    outbox.sent(sent)
                self._moved = trio.current_time()
                if outbox.size <= self._full:
                    self._wake()
        except (OSError, trio.ClosedResourceError) as error:
            self._lose(error)
        finally:
            server.writers -= 1
            self._writing = False
            self._given_up = False
            self._wake()
            if self._dropped:
                self._server.report_drops(self.peer, self._dropped)
                self._dropped = 0

    def _lose(self, error: Exception) -> None:
        """Take note that the peer is gone: nothing can be sent to it any more."""
        if not self._gone:
            self._gone = True
            peer, code = self.peer, getattr(error, "errno", 0) or 0
            peer.lost = errno.errorcode.get(code, type(error).__name__)
            if self._server.may_log(logging.DEBUG):
                log.debug(
                    "event=lost connection=%d peer=%s error=%s", peer.number, peer.label, peer.lost
                )
            guarded(self._broker.faults, peer.label, self.interrupt, tries=2)

    # Slow consumers

    def _overrun(self, data: bytes | Pieces) -> None:
        """Act on a message that came while the backlog was over its limit."""
        server, peer = self._server, self.peer
        waiting = peer.outbox.size
        if peer.link is not None:  # a batch can be lost; what keeps the mesh together cannot
            if isinstance(data, Pieces):
                peer.link.dropped += 1
            elif waiting > 2 * self._protocol.max_pending:
                self.end("slow-consumer", f"{waiting} bytes were waiting on a link")
            else:
                peer.outbox.put(data)
            return
        if server.on_backpressure is not None:
            server.on_backpressure(peer, waiting)
        if server.limits.slow_consumer == "drop":
            whole = data if isinstance(data, bytes) else data.whole()
            count = self._protocol.count_frames(whole)
            self._dropped += count
            peer.dropped += count
            self._broker.counters.dropped += count
            return
        peer.outbox.cut(self._protocol.end_of_frame)
        self.end(
            "slow-consumer", f"{waiting} bytes were waiting, over {self._protocol.max_pending}"
        )

    async def wait_relief(self, begun: float) -> None:
        """Wait, as a publisher, until this consumer is no longer full.

        ``begun`` is the trio time since when the publisher waits, for this consumer or for
        another one that the same read has filled: they are all waited for at once.

        Returns earlier when it is given up on: nothing drains for ``stall_timeout``, or it
        has been waited for ``stall_budget`` already. It is not waited for again until its
        backlog has been empty.
        """
        limits, this = self._server.limits, cast("object", self)
        if limits.slow_consumer != "throttle" and this not in self._server.siblings:
            await trio.lowlevel.checkpoint()
            return
        stall, budget = limits.stall_timeout, True
        if self.peer.link is not None:  # it is waited for as long as it is alive
            stall, budget = LINK_STALL, False
        if self._stall_budget is None:
            self._stall_budget = StallBudget(limits.stall_budget, limits.stall_window)
        if self._lot is None:
            self._lot = trio.lowlevel.ParkingLot()
        waited, least = begun, begun + min(_GRACE, stall)
        while (
            self.peer.outbox.size > self._full
            and not self._gone
            and not self._given_up
            and self.peer.ending is None
        ):
            now = trio.current_time()
            self._stall_budget.spend(waited, now)
            waited = now
            held = self.peer.outbox.held
            if held is not None and not held.over:  # it is not the consumer that is slow
                self._moved = now
            endless = self._server.draining or not budget
            left = float("inf") if endless else self._stall_budget.left(now)
            stalled_at = max(least, self._moved + stall)
            if left <= 0 or now >= stalled_at:
                self._given_up = True
                self._wake()
                break
            until = min(now + left, stalled_at)
            with trio.move_on_at(until):
                await self._lot.park()
            now = trio.current_time()
            if now - until > stall / 4:  # this process did not run: the silence may be ours
                waited, least = now, now + stall
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _wait_drained(self) -> None:
        if self._lot is None:
            self._lot = trio.lowlevel.ParkingLot()
        while self._writing and not self._gone:
            await self._lot.park()

    def _wake(self) -> None:
        if self._lot is not None:
            self._lot.unpark_all()
