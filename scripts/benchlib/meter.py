"""Who used the processor during a run: the generator, the server, anybody else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2  # clock_getcpuclockid(3) of Linux: in nanoseconds, not in ticks


@dataclass(frozen=True)
class Cores:
    """Processor time per second of a run; 1.0 is one core kept busy.

    `server` is all of them together, where several are linked. `others` is the rest
    of the machine's busy time, including what a hypervisor took away. The kernel
    counts the machine's in steps of 10 ms.
    """

    generator: float = 0.0
    server: float = 0.0
    others: float = 0.0


def process_seconds(pid: int) -> float:
    """User and system time a process has used so far, with all its threads; 0 if it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


@contextmanager
def on_one_core(pids: Iterable[int]) -> Iterator[None]:
    """Let these processes share one core, and this one have another, if there are two.

    So they are what limits, however many they are, as they would be with a core for each of them.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield
        return
    first, second, *_ = sorted(cores)
    try:
        _confine(pids, {first})
        os.sched_setaffinity(0, {second})
        yield
    finally:
        os.sched_setaffinity(0, cores)
        _confine(pids, cores)


@contextmanager
def without_preempting() -> Iterator[None]:
    """Let this process wait for its turn when it wakes, as one of the policy SCHED_BATCH does.

    So it stands for clients on other machines, which do not interrupt the server. What is started
    meanwhile does the same.
    """
    policy = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        yield
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _confine(pids: Iterable[int], cores: set[int]) -> None:
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def busy_seconds() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) * _TICK


class Meter:
    """Started when made; `stop` tells the seconds that passed and who used the cores."""

    def __init__(self, *server_pids: int) -> None:
        self._pids = server_pids
        self._server = sum(map(process_seconds, server_pids))
        self._busy = busy_seconds()
        self._own = time.process_time()
        self._started = time.perf_counter()

    def stop(self) -> tuple[float, Cores]:
        """Seconds since the start, and the cores used in them."""
        took = time.perf_counter() - self._started
        own = time.process_time() - self._own
        server = sum(map(process_seconds, self._pids)) - self._server
        others = max(0.0, busy_seconds() - self._busy - own - server)
        return took, Cores(own / took, server / took, others / took)
