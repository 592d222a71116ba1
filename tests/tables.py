"""Brokers without sockets: what a peer says goes in, what it hears comes out."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Turn
from pubsubd.protocol.limits import Limits
from pubsubd.protocol.wire import Decoder
from pubsubd.routing.outbox import Pieces


class Table:
    """Named peers around one broker.

    Attributes:
        sends: for each peer, how often bytes were handed over.
    """

    def __init__(
        self,
        *names: str,
        limits: Limits | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.broker = Broker(limits or Limits(), clock=clock)
        self.broker.scan = None  # the hot loop alone; test_scanner.py has both
        self.broker.delivery.turn = Turn(clock=lambda: 0.0)  # ends by work and bytes, not by time
        self.peers: dict[str, Peer] = {}
        self.sends: dict[str, int] = {}
        self._heard: dict[str, bytes] = {}
        for name in names:
            self.join(name)

    def join(self, name: str) -> None:
        self._heard[name] = b""
        self.sends[name] = 0

        def send(data: bytes | Pieces) -> None:
            self._heard[name] += data.whole() if isinstance(data, Pieces) else data
            self.sends[name] += 1

        self.peers[name] = self.broker.join(name, send)

    def leave(self, name: str) -> None:
        for _ in self.broker.leave(self.peers.pop(name)):
            pass

    def say(self, name: str, data: bytes) -> None:
        """Let a peer say ``data`` in one read."""
        while self.broker.receive(self.peers[name], data):
            data = b""

    def hears(self, name: str) -> bytes:
        """Return what a peer heard since the last call."""
        heard, self._heard[name] = self._heard[name], b""
        return heard

    def messages(self, name: str) -> list[object]:
        """Return what a peer heard as the model writes it down: errors by their code."""
        found: list[object] = []
        for topic, data in Decoder(1 << 30).feed(self.hears(name)):
            if topic == b"//pubsubd/error":
                found.append(("error", data.split(b" ")[0].decode()))
            else:
                found.append((topic, b"" if topic == b"//pubsubd/help" else data))
        return found
