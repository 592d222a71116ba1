"""How many connections over TLS a server can open."""

from __future__ import annotations

import select
import socket
import ssl
import time

from .links import PATIENCE_SECONDS, TLS, BenchError
from .meter import Cores, Meter
from .runners import Reading, Runner
from .servers import Server


class HandshakesRunner(Runner):
    """``handshakes`` of TLS a second, all full ones, `AT_ONCE` at a time.

    ``cpu_s``: seconds of the server's processor for a million of them.

    All servers do the same work: TLS 1.3 with the same certificate, X25519 and RSA-PSS, of which
    OpenSSL takes 0.46 ms, half of that for the signature. But redis makes two tickets for
    resumption, pubsubd and the relay one; a ticket takes 15 µs.
    """

    AT_ONCE = 16

    def __init__(self, server: Server) -> None:
        self.server = server

    def prepare(self, seconds: float) -> None:
        self.run(seconds)

    def run(self, seconds: float) -> Reading:
        done, took, cores = self.count(seconds)
        return Reading(
            {"handshakes": done / took, "cpu_s": cores.server * took / done * 1e6}, cores
        )

    def count(self, seconds: float) -> tuple[int, float, Cores]:
        """How many there were, in how many seconds, and who used the processor."""
        done = 0
        meter = Meter(*self.server.pids)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            done += self._some()
        return done, *meter.stop()

    def _some(self) -> int:
        """Open connections, shake hands on all of them, close them; how many these were."""
        links: dict[int, ssl.SSLSocket] = {}
        epoll = select.epoll()
        try:
            for _ in range(self.AT_ONCE):
                plain = socket.create_connection(("127.0.0.1", self.server.port), PATIENCE_SECONDS)
                if self.server.wire.greets:
                    self._skip_greeting(plain)
                link = TLS.wrap_socket(plain, do_handshake_on_connect=False)
                links[link.fileno()] = link
                link.setblocking(False)
                epoll.register(link, select.EPOLLIN)
                self._go_on(link)
            missing = set(links)
            while missing:
                events = epoll.poll(PATIENCE_SECONDS)
                if not events:
                    raise BenchError(f"{self.server.name}: no handshake")
                missing.difference_update(fd for fd, _ in events if self._go_on(links[fd]))
        finally:
            epoll.close()
            for link in links.values():
                link.close()
        return len(links)

    @staticmethod
    def _go_on(link: ssl.SSLSocket) -> bool:
        """Whether the handshake is done; what it sends fits into an empty socket."""
        try:
            link.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _skip_greeting(self, plain: socket.socket) -> None:
        greeting = b""
        while not greeting.endswith(b"\n"):
            piece = plain.recv(1 << 16)
            if not piece:
                raise BenchError(f"{self.server.name}: closed the connection")
            greeting += piece
