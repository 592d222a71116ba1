"""What several workers carry beside one, and how that is measured; see ``cases``.

On a machine whose cores the generator shares, the rates say little. So each case also tells the
processor time of the busiest process: what limits the daemon where there are cores enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from .cases import Case, Target, mixed, new_names, one_name
from .handshakes import HandshakesRunner
from .hubwires import HUB, WebSocketWire
from .meter import Cores, process_seconds
from .report import Result, judge
from .runners import Reading, RigsRunner, Runner
from .servers import Fleet, Server
from .traffic import KIB, Plan, Rig


class WorkersRunner(Runner):
    """``one``, ``two``: what is done a second, with as many workers.

    ``one_s``, ``two_s``: seconds of the busiest process for a million of it.
    """

    def __init__(self, fleet: Fleet, variant: str) -> None:
        self._servers = {
            "one": fleet.get("pubsubd", variant),
            "two": fleet.get("pubsubd", f"{variant}+workers"),
        }
        self.server = self._servers["two"]

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        """How many were done, in how many seconds, and who used the processor."""
        raise NotImplementedError

    def run(self, seconds: float) -> Reading:
        values = {}
        cores = Cores()
        for metric, server in self._servers.items():
            pids = server.pids
            before = [process_seconds(pid) for pid in pids]
            done, took, cores = self.count(metric, seconds)
            used = [process_seconds(pid) - had for pid, had in zip(pids, before, strict=True)]
            values[metric] = done / took
            values[f"{metric}_s"] = max(used) / done * 1e6
        return Reading(values, cores)


class MessagesRunner(WorkersRunner, RigsRunner):
    """Messages of a plan, on the line port, or in the protocol of a hub port."""

    def __init__(
        self, fleet: Fleet, variant: str, plan: Plan, wire: WebSocketWire | None = None
    ) -> None:
        WorkersRunner.__init__(self, fleet, variant)
        rigs = {metric: partial(_rig, one, plan, wire) for metric, one in self._servers.items()}
        RigsRunner.__init__(self, self.server, rigs)

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        sample = self._rigs[metric].run(seconds)
        return sample.messages, sample.seconds, sample.cores


def _rig(server: Server, plan: Plan, wire: WebSocketWire | None) -> Rig:
    door = None if wire is None else server.door(wire)
    return Rig(server, plan, door, door)


class GreetingsRunner(WorkersRunner):
    """Handshakes of TLS."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, "no-hub+tls")
        self._runners = {name: HandshakesRunner(one) for name, one in self._servers.items()}

    def prepare(self, seconds: float) -> None:
        for runner in self._runners.values():
            runner.prepare(seconds)

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        reading = self._runners[metric].run(seconds)
        return reading.values["handshakes"] * seconds, seconds, reading.cores


def speedup(ratio: float, count: int, wanting: int) -> float:
    """How many times as much `count` workers carry as one, on paper.

    Where connections are shared evenly, each worker does its part of the work of one. Besides,
    each message is handed on to the other workers that want it, and taken by these:

        n workers = (one + wanting * more) / n

    seconds a message, at the busiest one. So what two take tells `more`, which is handing on a
    message and taking it: 2 * two - one. Batches are taken to stay as large as with two.

    Args:
        ratio: what the busiest of two workers takes, in times of what one does.
        count: of workers.
        wanting: how many others want a message.
    """
    more = max(0.0, 2 * ratio - 1)
    return count / (1 + wanting * more)


def paper(results: Sequence[Result], count: int) -> str:
    """What `count` workers would carry, by what one and two of them were measured to cost."""
    rows = [
        f"on paper, what {count} workers carry, in times of one, if each message is wanted",
        f"{'':34}at all others   at one other   at no other",
    ]
    for result in results:
        if result.case.name in WORKER_CASES and result.readings:
            measured = judge(result, result.case.targets[1]).measured
            if measured is not None:
                times = (speedup(measured, count, wanting) for wanting in (count - 1, 1, 0))
                rows.append(f"{result.case.title[:33]:34}" + "".join(f"{n:13.1f}" for n in times))
    return "\n".join(rows)


def _case(name: str, title: str, make: Callable[[Fleet], Runner]) -> Case:
    targets = (
        Target("two", None, base="one"),
        Target("two_s", 1 / 1.6, base="one_s", lower=True),
    )
    return Case(name, title, lambda fleet, _server: make(fleet), targets, ("pubsubd",))


def _line(plan: Callable[[], Plan], variant: str = "no-hub") -> Callable[[Fleet], Runner]:
    return lambda fleet: MessagesRunner(fleet, variant, plan())


WORKER_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _case(
            "workers-fan-100",
            "4:100, 128 B",
            _line(lambda: one_name(128, 100, publishers=4, window=256 * KIB)),
        ),
        _case(
            "workers-all-to-all",
            "10:10, 16 B, all to all",
            _line(lambda: one_name(16, 10, publishers=10)),
        ),
        _case(
            "workers-mixed",
            "4:1, 64 names x 100 lengths",
            _line(lambda: replace(mixed(), publishers=4)),
        ),
        _case(
            "workers-new-names",
            "4:1, every name new",
            _line(lambda: replace(new_names(), publishers=4)),
        ),
        _case(
            "workers-tls",
            "4:4 over TLS, 16 B, all to all",
            _line(lambda: one_name(16, 4, publishers=4), "no-hub+tls"),
        ),
        _case("workers-handshakes", "TLS handshakes", GreetingsRunner),
        _case(
            "workers-hub-100",
            "4:100 over WebSocket, 128 B",
            lambda fleet: MessagesRunner(
                fleet, "hub", one_name(128, 100, publishers=4, window=256 * KIB), HUB
            ),
        ),
    )
}
