"""How long one message takes: alone, and beside others that publish flat out."""

from __future__ import annotations

import os
import time
from array import array

from .links import BenchError
from .meter import Meter
from .probe import Probe, percentiles
from .runners import Reading, Runner, ThroughputRunner
from .servers import Server
from .traffic import Rig


class LatencyRunner(Runner):
    """``median_us`` and ``p99_us`` from before the send until the message is there.

    ``cpu_s``: seconds of the server's processor for a million messages.
    """

    def __init__(self, server: Server, name: bytes, payload: bytes) -> None:
        self.server = server
        self._probe = Probe(server, name, payload)

    def settle(self) -> None:
        self._probe.settle()

    def prepare(self, seconds: float) -> None:
        self.run(seconds)

    def run(self, seconds: float) -> Reading:
        times: list[float] = []
        trip, clock = self._probe.trip, time.perf_counter
        meter = Meter(self.server.pid)
        until = clock() + seconds
        while clock() < until:
            times.append(trip())
        took, cores = meter.stop()
        cpu_s = cores.server * took / len(times) * 1e6
        return Reading({**percentiles(times), "cpu_s": cpu_s}, cores)

    def close(self) -> None:
        self._probe.close()


class BusyLatencyRunner(ThroughputRunner):
    """``median_us`` and ``p99_us`` of a probe while others publish; ``rate`` is theirs.

    A process of its own sends a message each millisecond, unless it still waits for the
    last one: in the generator's own loop, that loop's turns would be measured.
    """

    PAUSE_SECONDS = 0.001

    def __init__(self, rig: Rig, name: bytes, payload: bytes) -> None:
        super().__init__(rig)
        try:
            self._probe = Probe(rig.server, name, payload)
        except BaseException:
            rig.close()
            raise

    def settle(self) -> None:
        super().settle()
        self._probe.settle()

    def run(self, seconds: float) -> Reading:
        self.rig.run(seconds / 10)
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            self._probe_and_exit(writing, seconds)
        os.close(writing)
        try:
            sample = self.rig.run(seconds)
        finally:
            with open(reading, "rb") as pipe:
                data = pipe.read()
            os.waitpid(pid, 0)
        times = list(array("d", data))
        if not times:
            raise BenchError(f"{self.server.name}: the probe received nothing")
        return Reading({**percentiles(times), "rate": sample.rate}, sample.cores)

    def _probe_and_exit(self, writing: int, seconds: float) -> None:
        """In the child: probe from the first to the last tenth of the run, and tell how long."""
        times = array("d")
        try:
            time.sleep(seconds / 10)
            until = time.perf_counter() + seconds * 0.8
            while time.perf_counter() < until:
                times.append(self._probe.trip())
                time.sleep(self.PAUSE_SECONDS)
            os.write(writing, times.tobytes())
        finally:
            os._exit(0)

    def close(self) -> None:
        super().close()
        self._probe.close()
