"""The mesh's tasks: dial, and dial again; discover; act in time; write edge lists."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from pubsubd.broker.turn import Steps
from pubsubd.mesh.adverts import AdvertError, parse_first_line
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.discovery import Network, check_target, choosing
from pubsubd.mesh.exporting import Export, Exporting
from pubsubd.mesh.live import MeshRows
from pubsubd.mesh.report import Report
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import MESH_LOOK_OUT, READ_SIZE, TURN
from pubsubd.protocol.wire import show_address
from pubsubd.transport.addresses import NO_INTERFACE, host_of, lacks_interface, without_interface
from pubsubd.transport.connection import open_connection
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.listen import tune
from pubsubd.transport.server import Server
from pubsubd.transport.tls import TlsSocket

log = logging.getLogger("pubsubd")

CONNECT_TIMEOUT = 10.0
"""Seconds that one attempt to connect may take."""

BACKOFF = 0.5
"""Seconds: the longest wait before the first further attempt; doubled for each one more."""

BACKOFF_MAX = 30.0
"""Seconds: the longest wait between two attempts. All waits are random, from 0 to the longest."""

_EXPECTED = ("shutting-down", "unlinked", "duplicate-link")  # reasons that are no trouble
_STEADY = 10.0  # seconds that a link has to last for the waits to begin anew
_RETRY = 60.0  # seconds until a discovered daemon that was tried in vain is tried again
_LOOK = 5.0  # seconds between two looks whether a connection is still there

MAX_HINTS = 64
"""Addresses from clients that are kept at a time."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings of the mesh.

    Attributes:
        peers: host and port of those to be dialled, for ever.
        discover: ``""`` for nobody else, ``linked`` for daemons that linked daemons advertise,
            ``any`` for those that any client advertises as well.
        allowed: networks that discovered addresses have to be in.
        max_peers: links up to which more are made to daemons that were discovered.
        export: what to export of the mesh; None for nothing.
        tls: context for links that this daemon dials; None for no encryption.
    """

    config: MeshConfig
    peers: tuple[tuple[str, int], ...] = ()
    discover: str = ""
    allowed: tuple[Network, ...] = ()
    max_peers: int = 8
    export: Export | None = None
    tls: ssl.SSLContext | None = None
    rng: random.Random = field(default_factory=random.Random)


class _Dialling:
    """The task that dials an address of the settings, however often it is started again.

    Attributes:
        ended: whether the address is no longer in the settings.
    """

    def __init__(self) -> None:
        self.ended = False
        self._scope = trio.CancelScope()

    def begin(self) -> trio.CancelScope:
        """Return what the task has to run in."""
        self._scope = trio.CancelScope()  # one can be used but once
        return self._scope

    def end(self) -> None:
        """End the task."""
        self.ended = True
        self._scope.cancel()


class Mesher:
    """The mesh of a running daemon: the core, and the tasks that drive it."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._settings = settings
        self._rng = settings.rng
        self._bell = trio.Event()
        server.look_out = MESH_LOOK_OUT
        self.mesh = Mesh(
            server.broker,
            settings.config,
            clock=server.clock,
            wall=time.time,
            rng=self._rng,
            woken=self._ring,
            emit=self._emit,
        )
        self.report = Report(self.mesh)
        server.broker.live.sections["mesh"] = MeshRows(self.report)
        self._nodes: dict[tuple[str, int], str] = {}  # who was found at an address
        self._tried: dict[str, float] = {}
        self._hints: dict[tuple[str, int], None] = {}
        self._peers = dict.fromkeys(settings.peers)
        self._tls = settings.tls
        self._dialling: dict[tuple[str, int], _Dialling] = {}
        self._nursery: trio.Nursery | None = None
        self._exporting = (
            None if settings.export is None else Exporting(settings.export, self._list)
        )
        if settings.discover == "any":
            self.mesh.hint = self._hint

    def _emit(self, event: dict[str, object]) -> None:
        expected = event["event"] == "link-up" or event["reason"] in _EXPECTED
        self._server.publish_event(event, logging.INFO if expected else logging.WARNING)

    def _ring(self) -> None:
        self._bell.set()

    async def run(self) -> None:
        """Take part in the mesh until cancelled.

        Each of the tasks is kept running on its own: one that fails ends none of the others.
        """
        settings, keep = self._settings, self._server.tasks.keep
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._dial_peers(nursery)
            if settings.discover:
                nursery.start_soon(keep, "mesh-discovery", self._discover)
            if self._exporting is not None:
                nursery.start_soon(keep, "mesh-export", self._exporting.run)
            await keep("mesh", self._keep_acting)

    async def _keep_acting(self) -> None:
        mesh = self.mesh
        while True:
            try:
                mesh.act()
            finally:
                self._server.pressed.clear()  # nobody waits for links on the daemon's account
            self._bell = trio.Event()  # what act() has rung for itself, ``due`` says too
            if mesh.due <= trio.current_time():
                await self._server.lane.wait(TURN)
            else:
                with trio.move_on_at(mesh.due):
                    await self._bell.wait()
                await trio.lowlevel.checkpoint()

    # Dialling

    def replace(self, settings: Settings) -> None:
        """Dial the peers of other settings, and no longer those before, with their TLS.

        What is exported from now on is theirs, too.
        """
        self._peers, self._tls = dict.fromkeys(settings.peers), settings.tls
        if self._exporting is not None and settings.export is not None:
            self._exporting.replace(settings.export)
        if self._nursery is not None:
            self._dial_peers(self._nursery)

    def _dial_peers(self, nursery: trio.Nursery) -> None:
        for gone in self._dialling.keys() - self._peers.keys():
            self._dialling[gone].end()
            del self._dialling[gone]
        for host, port in self._peers.keys() - self._dialling.keys():
            dialling = self._dialling[host, port] = _Dialling()
            dial = partial(self._keep_peer, host, port, dialling)
            nursery.start_soon(self._server.tasks.keep, "mesh-dial", dial)

    async def _keep_peer(self, host: str, port: int, dialling: _Dialling) -> None:
        """Dial an address until it is no longer in the settings; then end the link to it."""
        if not dialling.ended:
            with dialling.begin():
                await self._keep_dialling(host, port)
        if dialling.ended:
            self.report.dialling.pop(show_address(host, port), None)
            link = self.mesh.links.get(self._nodes.get((host, port), ""))
            if link is not None and link.dialled:
                link.peer.end("unlinked", "this daemon is no longer told to dial that one")

    async def _keep_dialling(self, host: str, port: int) -> None:
        """Dial an address for ever."""
        address = show_address(host, port)
        attempts = 0
        while True:
            if attempts:
                longest = min(BACKOFF_MAX, BACKOFF * 2 ** min(attempts - 1, 10))
                await trio.sleep(self._rng.uniform(0, longest))
            if self._nodes.get((host, port)) in self.mesh.links:
                await trio.sleep(BACKOFF)  # they have dialled
                attempts = max(attempts, 1)
                continue
            begun = trio.current_time()
            found = partial(self._nodes.__setitem__, (host, port))
            refusal = await self.dial_once(host, port, found)
            if refusal == "self-link":
                log.warning("event=self-link address=%s", address)
                self.report.dialling.pop(address, None)
                return
            lasted = trio.current_time() - begun
            attempts = 1 if lasted > _STEADY else attempts + 1
            if refusal:
                self.report.dialling[address] = attempts, refusal

    async def dial_once(
        self, host: str, port: int, found: Callable[[str], None] = lambda _node: None
    ) -> str:
        """Connect, and wait for the end of the connection; return why there was none, if so.

        ``found`` is called with the id of who is there, once that is known.
        """
        address = show_address(host, port)
        try:
            with trio.fail_after(CONNECT_TIMEOUT):
                sock: socket.socket | TlsSocket = await connect(host, port)
                if self._tls is not None:
                    assert isinstance(sock, socket.socket)
                    sock = await encrypt(sock, self._tls, host)
        except trio.TooSlowError:
            self._note_failure(address, f"no answer in {CONNECT_TIMEOUT:g} s")
            return ""
        except (OSError, UnicodeError) as error:
            self._note_failure(address, getattr(error, "strerror", None) or str(error))
            return ""
        ended = trio.Event()
        refusals: list[ProtocolError] = []

        def note_end(refusal: ProtocolError | None) -> None:
            if refusal is not None:
                refusals.append(refusal)
            ended.set()

        try:
            peer = open_connection(
                self._server, sock, address, partial(LineProtocol, self._server.broker)
            )
        except BaseException:
            sock.close()
            raise
        self.report.dialling.pop(address, None)
        try:
            self.mesh.greet(peer, address, note_end, found)
        except Exception as error:  # noqa: BLE001  (it is dialled again)
            self._server.broker.faults.end(peer, error)
        # Whatever has gone wrong: once the peer has left, nothing is to be waited for any more.
        while not ended.is_set() and peer.number in self._server.broker.peers:
            with trio.move_on_after(_LOOK):
                await ended.wait()
        return refusals[0].code if refusals else ""

    def _note_failure(self, address: str, text: str) -> None:
        attempts, _ = self.report.dialling.get(address, (0, ""))
        self.report.dialling[address] = attempts + 1, text
        if attempts == 0:
            log.warning("event=dial-failed address=%s detail=%s", address, json.dumps(text))

    # Discovery

    async def _discover(self) -> None:
        """Link to daemons that are far, until there are enough links."""
        settings, mesh = self._settings, self.mesh
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(settings.config.heartbeat * self._rng.uniform(0.5, 1.5))
                now = trio.current_time()
                self._tried = {node: at for node, at in self._tried.items() if now - at < _RETRY}
                if now < mesh.handshakes.withdrawn:
                    continue
                if self._hints and len(mesh.links) < settings.max_peers:
                    host, port = next(iter(self._hints))
                    del self._hints[host, port]
                    nursery.start_soon(self._contain, self._dial_found, host, port)
                    continue
                advert = await self._take(
                    choosing(mesh.table, mesh.links, self._tried, settings.max_peers, self._rng)
                )
                if advert is not None:
                    self._tried[advert.node] = now
                    nursery.start_soon(self._contain, self._dial_found, advert.host, advert.port)

    async def _contain(
        self, dial: Callable[[str, int], Awaitable[None]], host: str, port: int
    ) -> None:
        """Dial once; an exception is counted, and ends nothing else."""
        try:
            await dial(host, port)
        except Exception as error:  # noqa: BLE001  (the other dialling goes on)
            self._server.broker.faults.note(error, show_address(host, port))

    async def _take(self, steps: Steps[Value]) -> Value:
        """Return what ``steps`` make, and let others run whenever a turn is over."""
        turn = self._server.broker.delivery.turn
        while True:
            turn.begin()
            try:
                while not turn.over():
                    next(steps)
            except StopIteration as done:
                made: Value = done.value
                return made
            await self._server.lane.wait(TURN)

    def _hint(self, data: bytes) -> None:
        """Take an address from a client.

        Raises:
            AdvertError: it is none.
        """
        host, port = parse_first_line(data.split(b"\n", 1)[0])
        if len(self._hints) < MAX_HINTS:
            self._hints[host, port] = None

    async def _dial_found(self, host: str, port: int) -> None:
        """Dial a daemon that was discovered, once."""
        own = self._settings.config
        try:
            addresses = await _resolve(host, port)
            mine: list[str] = []
            with contextlib.suppress(OSError, UnicodeError):  # it may be a name for others alone
                mine = await _resolve(own.host, own.port)
            check_target(host, addresses, self._settings.allowed, mine)
            if port == own.port and set(mine) & set(addresses):
                raise AdvertError(f"{host} is this daemon's own address")
        except (OSError, UnicodeError, AdvertError) as error:
            self.mesh.state.refuse("bad-address", str(error), show_address(host, port))
        else:
            await self.dial_once(addresses[0], port)
            self.report.dialling.pop(show_address(addresses[0], port), None)

    # Edge lists

    async def _list(self) -> bytes:
        return await self._take(self.report.listing())


async def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host; raise OSError or UnicodeError if there are none."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [host_of(one[4]) for one in found]


async def connect(host: str, port: int) -> socket.socket:
    """Return a connected, non-blocking socket.

    Raises:
        OSError: there is none to be had; of several addresses, what the last one said.
    """
    if lacks_interface(host):
        raise OSError(errno.EINVAL, NO_INTERFACE)
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError(errno.EADDRNOTAVAIL, "no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            code = sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                await trio.lowlevel.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                tune(sock)
                return sock
            failure = OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise failure


async def encrypt(sock: socket.socket, context: ssl.SSLContext, host: str) -> TlsSocket:
    """Return ``sock`` with TLS spoken on it; ``host`` is whom to expect at the other end.

    Raises:
        OSError: that is not possible, it is somebody else, or the connection has ended.
    """
    tls = TlsSocket(sock, context, without_interface(host))
    try:
        tls.greet()
        while not tls.secure:
            await trio.lowlevel.wait_readable(sock)
            try:
                if not tls.recv(READ_SIZE) and not tls.secure:
                    raise OSError(errno.ECONNRESET, "the other end has closed")
            except BlockingIOError:
                continue
    except ssl.SSLError as error:
        sock.close()
        raise ConnectionError(f"TLS: {tls.explain(error)}") from error
    except BaseException:
        sock.close()
        raise
    return tls
