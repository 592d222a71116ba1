"""How each kind of case is measured on one server.

A runner is made (connections and subscriptions), prepared (content checked,
warmed up), run several times, and closed. Making, preparing and running are
separate so that the runs of all servers can take turns.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .links import Address, BenchError, Link, connect
from .meter import Cores, Meter
from .probe import Probe
from .protocols import Want
from .servers import Fleet, Server
from .traffic import KIB, MIB, Plan, Rig, Sample


@dataclass
class Reading:
    """What one run found: `values` by metric, and who used the processor for it."""

    values: dict[str, float]
    cores: Cores = field(default_factory=Cores)


def pair(without: Sample, beside: Sample, more: dict[str, float]) -> Reading:
    """``without`` and ``with``; ``cpu_s`` is that of the latter, as in `ThroughputRunner`."""
    others = max(without.cores.others, beside.cores.others)
    values = {"without": without.rate, "with": beside.rate, "cpu_s": beside.cpu_s, **more}
    return Reading(values, replace(beside.cores, others=others))


class Runner:
    """One case on one server."""

    server: Server

    def settle(self) -> None:
        """Wait until the server has nothing to say by itself any more."""

    def prepare(self, seconds: float) -> None:
        """Check what is delivered and warm up for about `seconds`."""

    def run(self, seconds: float) -> Reading:
        """Measure once, for about `seconds`; raises BenchError if a count is wrong."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections."""


class RigsRunner(Runner):
    """A metric for each of `rigs`: messages a second, times `factor`.

    The first of them tells who used the processor; ``cpu_s`` is the server's, in seconds
    for a million messages published.
    """

    def __init__(
        self, server: Server, rigs: Mapping[str, Callable[[], Rig]], factor: int = 1
    ) -> None:
        self.server = server
        self._factor = factor
        self._rigs: dict[str, Rig] = {}
        try:
            for metric, make in rigs.items():
                self._rigs[metric] = make()
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        for rig in self._rigs.values():
            rig.settle()

    def prepare(self, seconds: float) -> None:
        for rig in self._rigs.values():
            rig.verify()
            rig.run(seconds)

    def run(self, seconds: float) -> Reading:
        samples = {}
        for metric, rig in self._rigs.items():
            rig.run(seconds / 10)
            samples[metric] = rig.run(seconds)
        values = {metric: sample.rate * self._factor for metric, sample in samples.items()}
        first = next(iter(samples.values()))
        return Reading({**values, "cpu_s": first.cpu_s}, first.cores)

    def close(self) -> None:
        for rig in self._rigs.values():
            rig.close()


class ThroughputRunner(Runner):
    """``rate``: messages published (and received by all who want them) a second.

    ``cpu_s``: seconds of the server's processor for a million of them.
    """

    def __init__(self, rig: Rig) -> None:
        self.server = rig.server
        self.rig = rig

    def settle(self) -> None:
        self.rig.settle()

    def prepare(self, seconds: float) -> None:
        self.rig.verify()
        self.rig.run(seconds)

    def run(self, seconds: float) -> Reading:
        self.rig.run(seconds / 10)  # the server may have shrunk its buffers meanwhile
        sample = self.rig.run(seconds)
        return Reading({"rate": sample.rate, "cpu_s": sample.cpu_s}, sample.cores)

    def close(self) -> None:
        self.rig.close()


class BesideRunner(ThroughputRunner):
    """``without`` and ``with``: the rate alone, and beside what a subclass does.

    Every other round starts with the other one.
    """

    _beside_first = False

    def run(self, seconds: float) -> Reading:
        self.rig.run(seconds / 10)
        if self._beside_first:
            beside, more = self.run_beside(seconds)
            alone = self.rig.run(seconds)
        else:
            alone = self.rig.run(seconds)
            beside, more = self.run_beside(seconds)
        self._beside_first = not self._beside_first
        return pair(alone, beside, more)

    def run_beside(self, seconds: float) -> tuple[Sample, dict[str, float]]:
        """The same traffic with the disturbance, and further metrics."""
        raise NotImplementedError


class StalledRunner(BesideRunner):
    """A subscriber that never reads, new for each run so that the waiting for it counts."""

    def run_beside(self, seconds: float) -> tuple[Sample, dict[str, float]]:
        stalled = Link(self.server)
        try:
            stalled.subscribe(self.rig.plan.subscribers[0])
            return self.rig.run(seconds), {}
        finally:
            stalled.reset()


class _Churner:
    """1,000 sub and 1,000 unsub a second on a connection of its own, paced by `tick`.

    `texts` gives the text of each subscription ever made, `first` the number of the
    first one on this connection; `made` is the number of the next one.
    """

    KEPT = 100  # subscriptions at any time
    PER_SECOND = 1000

    def __init__(self, server: Server, text: Callable[[int], bytes], first: int) -> None:
        self.link = Link(server)
        self.link.socket.setblocking(False)
        self.first = self.made = first
        self._text = text
        self._kind: Literal["contains", "exact"] = (
            "contains" if server.name == "pubsubd" else "exact"
        )
        self._backlog = bytearray()
        self._started = time.perf_counter()

    def _want(self, i: int) -> Want:
        return Want(self._kind, self._text(i))

    def tick(self) -> None:
        """Send what is due, and take what has come."""
        due = self.first + int((time.perf_counter() - self._started) * self.PER_SECOND)
        if due == self.made and not self._backlog:
            return
        wire = self.link.wire
        while self.made < due and len(self._backlog) < 64 * KIB:
            self._backlog += wire.subscribe(self.made, self._want(self.made))
            old = self.made - self.KEPT
            if old >= self.first:
                self._backlog += wire.unsubscribe(old, self._want(old))
            self.made += 1
        with contextlib.suppress(BlockingIOError):
            del self._backlog[: self.link.socket.send(self._backlog)]
        with contextlib.suppress(BlockingIOError):
            while self.link.socket.recv(MIB):
                pass
            raise BenchError(f"{self.link.server.name}: closed the churning connection")


class ChurnRunner(BesideRunner):
    """Subscriptions that come and go on another connection; ``changes`` made a second."""

    def __init__(self, rig: Rig, text: Callable[[int], bytes]) -> None:
        super().__init__(rig)
        self._text = text
        self._next = 0

    def run_beside(self, seconds: float) -> tuple[Sample, dict[str, float]]:
        churner = _Churner(self.server, self._text, self._next)
        try:
            sample = self.rig.run(seconds, churner.tick)
        finally:
            churner.link.reset()  # or what it still subscribes would burden the run without it
        changes = 2 * (churner.made - churner.first) / sample.seconds
        self._next = churner.made
        return sample, {"changes": changes}


class PairRunner(RigsRunner):
    """``without`` and ``with``: the same beside something that is idle, on another instance."""

    def __init__(
        self, without: Callable[[], Rig], beside: Callable[[], Rig], loaded: Server
    ) -> None:
        super().__init__(loaded, {"without": without, "with": beside})
        self._idle: list[Link] = []
        self._turn = 0
        try:
            for link in self.connect_idle():
                self._idle.append(link)
        except BaseException:
            self.close()
            raise

    def connect_idle(self) -> Iterator[Link]:
        """What is idle."""
        raise NotImplementedError

    def run(self, seconds: float) -> Reading:
        samples = {}
        self._turn ^= 1  # every other round starts with the other one
        for metric in ("without", "with")[:: 1 if self._turn else -1]:
            self._rigs[metric].run(seconds / 10)
            samples[metric] = self._rigs[metric].run(seconds)
        return pair(samples["without"], samples["with"], {})

    def close(self) -> None:
        super().close()
        for link in self._idle:
            link.close()


class IdleSubstringsRunner(PairRunner):
    """Beside substrings that match nothing."""

    CONNECTIONS = 100  # redis searches a list per connection when it subscribes

    def __init__(
        self, fleet: Fleet, name: str, plan: Plan, loaded_plan: Plan, texts: Sequence[bytes]
    ) -> None:
        self._texts = texts
        loaded = fleet.get(name, "loaded")
        super().__init__(
            lambda: Rig(fleet.get(name), plan), lambda: Rig(loaded, loaded_plan), loaded
        )

    def connect_idle(self) -> Iterator[Link]:
        for k in range(self.CONNECTIONS):
            link = Link(self.server)
            yield link
            wanted = self._texts[k :: self.CONNECTIONS]
            link.subscribe([Want("contains", text) for text in wanted])


class SubscribeManyRunner(Runner):
    """``subscribe_s``, ``leave_s``, and ``others_wait_ms``: a probe's longest trip meanwhile.

    Peers without substrings subscribe as many exact names. Leaving is resetting the
    connection; it is over when the server's own count of subscriptions says so.
    """

    def __init__(self, server: Server, texts: Sequence[bytes]) -> None:
        self.server = server
        kind = "contains" if server.name == "pubsubd" else "exact"
        wants = [Want("contains" if kind == "contains" else "exact", text) for text in texts]
        wire = server.wire
        commands = b"".join(wire.subscribe(i, want) for i, want in enumerate(wants))
        answers = sum(len(wire.subscribed(i, want)) for i, want in enumerate(wants))
        self._commands = memoryview(commands + wire.ping)
        self._answers = answers + len(wire.pong_subscribed)
        self._pong = wire.pong_subscribed
        self._probe = Probe(server, b"probe", b"x" * 16)
        self._control = Link(server)

    def settle(self) -> None:
        self._probe.settle()
        self._control.settle()

    def prepare(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._probe.trip()

    def run(self, seconds: float) -> Reading:
        before = self.server.subscriptions(self._control)
        meter = Meter(self.server.pid)
        bulk = Link(self.server)
        try:
            subscribing, longest = self._subscribe(bulk)
        finally:
            started = time.perf_counter()
            bulk.reset()
        values = {"subscribe_s": subscribing}
        if before is not None:
            while (self.server.subscriptions(self._control) or 0) > before:
                if time.perf_counter() - started > 60:
                    raise BenchError(f"{self.server.name}: subscriptions survive their connection")
                longest = max(longest, *(self._probe.trip() for _ in range(20)))
            values["leave_s"] = time.perf_counter() - started
        values["others_wait_ms"] = longest * 1e3
        return Reading(values, meter.stop()[1])

    def _subscribe(self, bulk: Link) -> tuple[float, float]:
        bulk.socket.setblocking(False)
        sent = got = 0
        longest = 0.0
        tail = b""
        started = time.perf_counter()
        while got < self._answers:
            with contextlib.suppress(BlockingIOError):
                if sent < len(self._commands):
                    sent += bulk.socket.send(self._commands[sent:])
            try:
                while data := bulk.socket.recv(MIB):
                    got += len(data)
                    tail = (tail + data)[-64:]
                raise BenchError(f"{self.server.name}: closed the subscribing connection")
            except BlockingIOError:
                pass
            longest = max(longest, self._probe.trip())
            if time.perf_counter() - started > 120:
                raise BenchError(f"{self.server.name}: {got} bytes of {self._answers} in 120 s")
        took = time.perf_counter() - started
        if got != self._answers or not tail.endswith(self._pong):
            raise BenchError(f"{self.server.name}: the last answer to a subscription is {tail!r}")
        return took, longest

    def close(self) -> None:
        self._probe.close()
        self._control.close()


class IdleConnectionsRunner(Runner):
    """``kib_each``: growth of resident memory per connection that has been greeted, then idle."""

    FIRST = 50  # connections already there when the counting starts

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        count: int,
        variant: str = "idle",
        door: Callable[[Server], Address] = lambda server: server,
    ) -> None:
        self._fleet = fleet
        self._name = name
        self._variant = variant
        self._door = door
        room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200 - self.FIRST
        self._count = min(count, room)
        self.server = fleet.get(name, variant)

    def run(self, seconds: float) -> Reading:
        # A new process each time: memory once used and freed would hide the growth.
        self._fleet.drop(self.server)
        self.server = self._fleet.get(self._name, self._variant)
        door = self._door(self.server)
        links: list[Link] = []
        try:
            links.extend(connect(door) for _ in range(self.FIRST))
            time.sleep(0.2)
            before = self.server.rss_bytes()
            links.extend(connect(door) for _ in range(self._count))
            time.sleep(0.3)
            grown = self.server.rss_bytes() - before
        finally:
            for link in links:
                link.close()
        return Reading({"kib_each": grown / self._count / KIB, "connections": float(self._count)})
