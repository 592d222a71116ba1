"""A worker: what an attack has to do it with.

Whatever an attack opens is closed at the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from soaklib.daemons import family
from soaklib.wires import (
    KIB,
    MIB,
    Address,
    SoakError,
    frame,
    open_websocket,
    over,
    reset_at_end,
)
from soaklib.workers import Told

from .attack import Attack
from .parts import READ

PING, PONG = b'{"type":"ping"}', b'{"type":"pong"}'
_PATIENCE = 60.0  # seconds that preparing may take
_DISCARDED = bytearray(MIB)


@dataclass(frozen=True)
class Place:
    """Where the daemon is.

    Attributes:
        line, hub: its ports.
        secure: a line port that speaks TLS, if there is one.
        pid: the daemon's; with several workers, their supervisor's.
    """

    line: Address
    hub: Address
    secure: Address | None = None
    pid: int = 0

    def processes(self) -> list[int]:
        """Return the processes of the daemon."""
        return family(self.pid)


@dataclass
class Effort:
    """What it has taken the attacker.

    Attributes:
        prepared: seconds until the flood began.
        connections: that were open at once.
        opened: all there were.
        sent, received: bytes.
        processor: seconds.
    """

    prepared: float = 0.0
    connections: int = 0
    opened: int = 0
    sent: int = 0
    received: int = 0
    processor: float = 0.0


@dataclass
class _Flooder:
    """A connection that says the parts over and over."""

    sock: socket.socket
    parts: Sequence[bytes]
    number: int = 0
    at: int = 0
    tail: bytes = b""
    rest: memoryview = field(default_factory=lambda: memoryview(b""))


class Stage:
    """What an attack is given.

    Args:
        place: where the daemon is.
        count: connections that do it at once.
        seconds: that it goes on for, once prepared.
    """

    def __init__(self, place: Place, count: int, seconds: float) -> None:
        self.place = place
        self.count = count
        self.effort = Effort()
        self._seconds = seconds
        self._begun = time.monotonic()
        self._until: float | None = None
        self._held: dict[int, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._chores: list[list[object]] = []
        self._epoll = select.epoll()

    def scaled(self, number: int) -> int:
        """Return a number of things to prepare: a tenth of it where there is little time."""
        return number if self._seconds >= 1 else max(1, number // 10)

    # Time

    def begin(self) -> None:
        """Let the time run from now on, if it does not yet."""
        if self._until is None:
            now = time.monotonic()
            self.effort.prepared = now - self._begun
            self._until = now + self._seconds

    @property
    def on(self) -> bool:
        """Whether it goes on; asking is what begins it."""
        self.begin()
        self._do_chores()
        return time.monotonic() < (self._until or 0.0)

    def chore(self, every: float, do: Callable[[], object]) -> None:
        """Do something again and again meanwhile."""
        self._chores.append([0.0, every, do])

    def _do_chores(self) -> None:
        now = time.monotonic()
        for chore in self._chores:
            due, every, do = chore
            if now >= due:  # type: ignore[operator]
                chore[0] = now + every  # type: ignore[operator]
                do()  # type: ignore[operator]

    # Connections

    def _opened(self, sock: socket.socket) -> socket.socket:
        self.effort.opened += 1
        self._open.add(sock)
        self.effort.connections = max(self.effort.connections, len(self._open))
        return sock

    def connect(self, address: Address) -> socket.socket:
        """Return a connection."""
        return self._opened(address.connect(_PATIENCE))

    def line(self) -> socket.socket:
        """Return a connection to the line port."""
        return self.connect(self.place.line)

    def hub(self) -> socket.socket:
        """Return a connection to the hub port that has said nothing."""
        return self.connect(self.place.hub)

    def websocket(self) -> socket.socket:
        """Return a WebSocket."""
        sock = self.hub()
        open_websocket(sock)
        return sock

    def line_websocket(self) -> socket.socket:
        """Return a WebSocket that carries the line protocol."""
        sock = self.hub()
        open_websocket(sock, "/line")
        return sock

    def close(self, sock: socket.socket, *, abruptly: bool = False) -> None:
        """Close a connection."""
        with contextlib.suppress(KeyError):
            self._open.remove(sock)
        self._held.pop(sock.fileno(), None)
        with contextlib.suppress(OSError):
            if abruptly:
                reset_at_end(sock)
            sock.close()

    def close_all(self) -> None:
        """Close all there are."""
        for sock in list(self._open):
            self.close(sock, abruptly=True)

    def hold(self, sock: socket.socket) -> socket.socket:
        """Keep a connection, and throw away what it receives."""
        sock.setblocking(False)
        self._held[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        return sock

    def neglect(self, sock: socket.socket) -> None:
        """Read no more from a connection that was held."""
        del self._held[sock.fileno()]
        self._epoll.unregister(sock.fileno())

    def crowd(
        self, count: int, make: Callable[[], socket.socket], said: Callable[[int], bytes]
    ) -> list[socket.socket]:
        """Return so many connections that have each said something, and are held.

        There are fewer where there is little time: see :meth:`scaled`.
        """
        socks = []
        for number in range(self.scaled(count)):
            sock = make()
            sock.sendall(said(number))
            socks.append(self.hold(sock))
            if number % 32 == 31:
                self.drain(0.0)
        return socks

    # Saying

    def say(self, sock: socket.socket, data: bytes, until: bytes = b"") -> bytes:
        """Say something, whatever comes meanwhile; wait until ``until`` has come.

        Returns the end of what came.
        """
        sock.setblocking(False)
        held = self._held.pop(sock.fileno(), None)
        try:
            return self._say(sock, data, until)
        finally:
            if held is not None:
                self._held[sock.fileno()] = held

    def _say(self, sock: socket.socket, data: bytes, until: bytes) -> bytes:
        poll = select.poll()
        rest, tail = memoryview(data), b""
        deadline = time.monotonic() + _PATIENCE
        while rest or (until and until not in tail):
            if time.monotonic() > deadline:
                raise SoakError(f"the daemon has not taken it all, {len(rest)} bytes are left")
            poll.register(sock, select.POLLIN | (select.POLLOUT if rest else 0))
            self._do_chores()
            self.drain(0.0)
            for _, event in poll.poll(100):
                if event & select.POLLOUT:
                    with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                        sent = sock.send(rest[:READ])
                        self.effort.sent += sent
                        rest = rest[sent:]
                if event & (select.POLLIN | select.POLLHUP):
                    part = sock.recv(MIB)
                    if not part:
                        raise SoakError(f"closed while preparing: {tail[-300:]!r}")
                    self.effort.received += len(part)
                    tail = tail[-4 * KIB :] + part
        return tail

    def tell(self, sock: socket.socket, data: bytes) -> None:
        """Say something on the line port, and wait until it is carried out."""
        pong = frame(b"//pubsubd/ping", b"carried out")
        self.say(sock, data + pong, pong)

    def order(self, sock: socket.socket, *texts: bytes) -> bytes:
        """Say JSON texts over lines, and wait until they are carried out."""
        return self.say(sock, over("ndjson", *texts, PING), PONG)

    def wait(self) -> None:
        """Wait until it is over, and throw away what comes."""
        while self.on:
            self.drain(0.05)

    def drain(self, longest: float) -> None:
        """Throw away what has come on connections that are held."""
        for fd, _ in self._epoll.poll(longest, 256):
            if fd in self._held:
                self._discard(self._held[fd])

    def _discard(self, sock: socket.socket) -> bool:
        """Take what has come and throw it away; False at the end."""
        try:
            if isinstance(sock, ssl.SSLSocket):
                size = len(sock.recv(MIB))
            else:  # nothing is copied
                size = sock.recv_into(_DISCARDED, MIB, socket.MSG_TRUNC)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            size = 0
        self.effort.received += size
        if not size:
            with contextlib.suppress(OSError):
                self._epoll.unregister(sock.fileno())
            self.close(sock)
        return size > 0

    # Flooding

    def flood(
        self,
        make: Callable[[], socket.socket],
        parts: Sequence[bytes],
        *,
        reads: bool = True,
        once: bool = False,
        done: bytes = PONG,
        count: int | None = None,
    ) -> None:
        """Say the parts over and over, until the time is over.

        Args:
            make: opens a connection; one that is closed by the daemon is opened anew.
            parts: of what is said, in turn.
            reads: whether what is answered is read, and thrown away.
            once: whether a connection says one part and is then closed, once ``done`` has come if
                it reads: so nothing that holds for a connection limits it.
            done: see ``once``.
            count: connections that do it at once; as the stage says by default.
        """
        flooders: dict[int, _Flooder] = {}
        wanted = select.EPOLLOUT | (select.EPOLLIN if reads else 0)
        turn = 0

        def add() -> None:
            nonlocal turn
            try:
                sock = make()
            except (OSError, SoakError):  # the daemon cannot take it now
                time.sleep(0.01)
                return
            sock.setblocking(False)
            flooder = _Flooder(sock, parts, turn)
            flooder.rest = memoryview(parts[turn % len(parts)])
            turn += 1
            flooders[sock.fileno()] = flooder
            self._epoll.register(sock.fileno(), wanted)

        def drop(fd: int) -> None:
            flooder = flooders.pop(fd)
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)
            self.close(flooder.sock, abruptly=True)

        number = self.count if count is None else count
        while self.on:
            for _ in range(min(16, number - len(flooders))):
                add()
            for fd, event in self._epoll.poll(0.05, 256):
                if fd in self._held:
                    self._discard(self._held[fd])
                if fd not in flooders:
                    continue
                if event & (select.EPOLLHUP | select.EPOLLERR) or not self._push(
                    flooders[fd], event, once=once, reads=reads, done=done
                ):
                    drop(fd)
        for fd in list(flooders):
            drop(fd)

    def _push(self, flooder: _Flooder, event: int, *, once: bool, reads: bool, done: bytes) -> bool:
        """Read and write what can be; False if the connection is to be closed."""
        sock = flooder.sock
        if event & select.EPOLLIN:
            if not once:
                if not self._discard(sock):
                    return False
            else:
                try:
                    part = sock.recv(MIB)
                except OSError:
                    return False
                self.effort.received += len(part)
                heard = flooder.tail + part
                flooder.tail = heard[-64:]
                if not part or done in heard:
                    return False
        if event & select.EPOLLOUT and flooder.rest:
            try:
                sent = sock.send(flooder.rest[:READ])
            except (BlockingIOError, ssl.SSLWantWriteError):
                return True
            except OSError:
                return False
            self.effort.sent += sent
            flooder.rest = flooder.rest[sent:]
            if not flooder.rest:
                if not once:
                    flooder.number += 1
                    flooder.rest = memoryview(flooder.parts[flooder.number % len(flooder.parts)])
                elif reads:
                    self._epoll.modify(sock.fileno(), select.EPOLLIN)
                else:
                    return False
        return True


def act(told: Told, attack: Attack, place: Place, count: int, seconds: float) -> None:
    """A worker: told ``go``, attack; the answer is an :class:`Effort`."""
    with contextlib.suppress(OSError):
        os.nice(10)  # on its own machine it would take nothing of the daemon's
    told.answer()
    told.hear()
    stage = Stage(place, count, seconds)
    try:
        attack.run(stage)
        stage.wait()
    finally:
        stage.close_all()
    stage.effort.processor = time.process_time()
    told.answer(stage.effort)
    told.hear()  # until the end
