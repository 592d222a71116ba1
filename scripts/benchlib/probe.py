"""One message at a time, and how long it takes."""

from __future__ import annotations

import time

from .links import Address, BenchError, Link
from .protocols import Want


class Probe:
    """One message at a time from one connection to another.

    Both are to `server`, unless the subscriber is to be somewhere else.
    """

    def __init__(
        self,
        server: Address,
        name: bytes,
        payload: bytes,
        subscribe_at: Address | None = None,
    ) -> None:
        wire = server.wire
        want = Want("exact", name)
        self.links = publisher, subscriber = Link(server), Link(subscribe_at or server)
        subscriber.subscribe([want])
        self._message = wire.publish(name, payload)
        self._due = wire.deliver(0, want, name, payload)
        self._answer = len(wire.published(1, name, payload))
        self._buffer = bytearray(len(self._due) + 64)
        self._sockets = publisher.socket, subscriber.socket

    def settle(self) -> None:
        for link in self.links:
            link.settle()
        for link in self.links:
            link.wait_in_kernel()

    def trip(self) -> float:
        """Send one message; the seconds until all of it is there."""
        publisher, subscriber = self._sockets
        started = time.perf_counter()
        publisher.send(self._message)
        got = subscriber.recv_into(self._buffer)
        ended = time.perf_counter()
        while got < len(self._due):
            more = subscriber.recv_into(memoryview(self._buffer)[got:])
            if not more:
                break
            got += more
            ended = time.perf_counter()
        if self._buffer[:got] != self._due:
            raise BenchError(
                f"{self.links[0].server.name}: the probe received {self._buffer[:got]!r}"
            )
        answer = self._answer
        while answer:
            answer -= len(publisher.recv(answer)) or answer
        return ended - started

    def close(self) -> None:
        for link in self.links:
            link.close()


def percentiles(times: list[float]) -> dict[str, float]:
    """``median_us`` and ``p99_us`` of these seconds."""
    times.sort()
    return {
        "median_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
    }
