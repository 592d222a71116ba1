"""What is measured over links between servers, and how; see ``cases``.

The subscriber is on another server than the publisher, some links away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

from .cases import Case, Target, one_name
from .floors import AT_FLOOR, FLOORS, PYTHON_RELAY
from .meshsend import SendRunner
from .meshservers import check_passage, door, linked, wait_wanted
from .meter import Meter
from .probe import Probe
from .protocols import Want
from .runners import Reading, RigsRunner, Runner
from .servers import Fleet
from .traffic import Plan, Rig

_FAR, _NEAR = b"bench/far", b"near/bench"
_TWO = ("pubsubd", "nats")
_FLOOR = Target("rate", 1 / AT_FLOOR, (PYTHON_RELAY,), floor=True)  # two of them in a row


def carried(server: str, size: int, name: bytes = _FAR) -> Plan:
    """As the line port's 1:1; with pubsubd, all names that begin as this one are wanted."""
    plan = one_name(size, name=name)
    if server != "pubsubd":
        return plan
    return replace(plan, subscribers=((Want("prefix", name[: name.index(b"/") + 1]),),))


class PassageRunner(RigsRunner):
    """As its base, by way of links. The turns of the rigs alternate."""

    _turn = 0

    def prepare(self, seconds: float) -> None:
        for rig in self._rigs.values():
            wait_wanted(*rig.ends, *_asked(rig))
            rig.verify()
            rig.run(seconds)

    def run(self, seconds: float) -> Reading:
        order = list(self._rigs)
        if self._turn:
            order.reverse()
        self._turn ^= 1
        samples = {}
        for metric in order:
            rig = self._rigs[metric]
            rig.run(seconds / 10)  # the servers may have shrunk their buffers meanwhile
            samples[metric] = rig.run(seconds)
            check_passage(*rig.ends, *_asked(rig))
        first = samples[next(iter(self._rigs))]
        others = max(sample.cores.others for sample in samples.values())
        values = {metric: samples[metric].rate for metric in self._rigs}
        return Reading({**values, "cpu_s": first.cpu_s}, replace(first.cores, others=others))


def _asked(rig: Rig) -> tuple[Want, bytes]:
    """The subscription of its first subscriber, and a name it asks for."""
    return rig.plan.subscribers[0][0], rig.plan.messages[0][0]


class HopRunner(Runner):
    """``hop_us``: the median over two servers less the median on one of them.

    One message at a time, from the same server to a subscriber there and to one at
    the other end of its link. They take turns of many messages, so that each is measured
    as if it were alone: a process that has slept for longer takes longer to wake.
    """

    TURN = 100  # messages

    def __init__(self, fleet: Fleet, name: str) -> None:
        here, there = linked(fleet, name, 2)
        self.server = here
        self._probes: list[Probe] = []
        try:
            self._probes.append(Probe(door(here), _NEAR, b"x" * 16))
            self._probes.append(Probe(door(here), _FAR, b"x" * 16, door(there)))
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        for probe in self._probes:
            probe.settle()

    def prepare(self, seconds: float) -> None:
        for probe, name in zip(self._probes, (_NEAR, _FAR), strict=True):
            wait_wanted(*probe.links, Want("exact", name), name)
        self.run(seconds)

    def run(self, seconds: float) -> Reading:
        near, far = (probe.trip for probe in self._probes)
        near_times: list[float] = []
        far_times: list[float] = []
        clock = time.perf_counter
        meter = Meter(*self.server.pids)
        until = clock() + seconds
        while clock() < until:
            near_times.extend(near() for _ in range(self.TURN))
            far_times.extend(far() for _ in range(self.TURN))
        _, cores = meter.stop()
        for probe, name in zip(self._probes, (_NEAR, _FAR), strict=True):
            check_passage(*probe.links, Want("exact", name), name)
        one, two = median(near_times) * 1e6, median(far_times) * 1e6
        return Reading({"hop_us": two - one, "one_us": one, "two_us": two}, cores)

    def close(self) -> None:
        for probe in self._probes:
            probe.close()


def _two(size: int) -> Callable[[Fleet, str], Runner]:
    def make(fleet: Fleet, name: str) -> Runner:
        here, there = linked(fleet, name, 2)
        rig = partial(Rig, here, carried(name, size), door(here), door(there))
        return PassageRunner(here, {"rate": rig})

    return make


def _chain(fleet: Fleet, name: str) -> Runner:
    here, second, *_, last = linked(fleet, name, 4)
    rigs = {
        "rate": partial(Rig, here, carried(name, 16), door(here), door(last)),
        "two": partial(Rig, here, carried(name, 16, _NEAR), door(here), door(second)),
    }
    return PassageRunner(here, rigs)


def _local(fleet: Fleet, name: str) -> Runner:
    here, _ = linked(fleet, name, 2)
    plan = one_name(16, name=b"//near/bench")  # what would be carried if anybody wanted it
    rigs = {
        "with": partial(Rig, here, plan),
        "without": partial(Rig, fleet.get(name), plan),
    }
    return PassageRunner(here, rigs)


MESH_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            "mesh-two-16",
            "1:1 over a link, 16 B",
            _two(16),
            (Target("rate", 1.0, ("nats",)), _FLOOR),
            (*_TWO, *FLOORS),
        ),
        Case(
            "mesh-two-1k",
            "1:1 over a link, 1 KiB",
            _two(1024),
            (Target("rate", 1.0, ("nats",)), _FLOOR),
            (*_TWO, *FLOORS),
        ),
        Case(
            "mesh-chain-16",
            "1:1 over 3 links in a row, 16 B",
            _chain,
            (Target("rate", 0.5, base="two"),),
            ("pubsubd",),
        ),
        Case(
            "mesh-hop-latency",
            "what a link adds to one message, 16 B",
            HopRunner,
            (Target("hop_us", 1.2, ("nats",), lower=True),),
            _TWO,
        ),
        Case(
            "mesh-send",
            "to an actor at the other end of a link, 16 B",
            SendRunner,
            (
                Target("send_us", 1.2, base="line_us", lower=True),
                Target("ask_us", None, ("nats",), lower=True),
            ),
            _TWO,
        ),
        Case(
            "mesh-local",
            "1:1 on one server, 16 B, a link beside it",
            _local,
            (Target("with", 0.95, base="without"),),
            _TWO,
        ),
    )
}
