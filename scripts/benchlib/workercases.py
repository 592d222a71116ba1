"""What several workers carry beside one, and how that is measured; see ``cases``.

On a machine whose cores the generator shares, the rates say little. So each case also tells the
processor time of the busiest process: what limits the daemon where there are cores enough. Two
things make that more than half of what one worker takes: what the workers take together, which is
more by what they hand on to each other, and a part of it that is not an equal one.

The clients of several workers have as much under way as those of one have, for each of them: else
none is busy all the time, and each reads less at once than the one that it is compared with.

The generator stands for clients on other machines: where it shares a core with a worker, it does
not interrupt that one when something has come for it (SCHED_BATCH, see sched(7)). Else it would cut
the turns of two workers into pieces, but not of one, which has a core to itself.

What more workers would carry than there are cores is measured with all processes of the daemon on
one core and the generator on another, as with taskset(1): so the daemon is what limits, however
many workers it has. It takes more there than with a core for each of them, as they take turns: each
finds the caches as others have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from .cases import Case, Target, mixed, names_own, new_names, one_name
from .handshakes import HandshakesRunner
from .hubwires import HUB, WebSocketWire
from .meter import Cores, on_one_core, process_seconds, without_preempting
from .report import Result, judge
from .runners import Reading, RigsRunner, Runner
from .servers import Fleet, Server
from .traffic import KIB, Plan, Rig

NOTE = "note: in workers' cases the generator does not interrupt the daemon, as clients elsewhere"
"""What is said below the table where one of these was measured."""

_NUMBERS = {1: "one", 2: "two", 4: "four", 8: "eight", 16: "sixteen"}
_TARGETS = (
    Target("two_s", 1 / 1.6, base="one_s", lower=True),
    Target("two_all_s", None, base="one_s"),
)
_PUBLISHERS = 4  # in most cases
_MANY = 16  # connections at least that publish, where there are many workers


class WorkersRunner(Runner):
    """For each number of workers in ``counts``, called ``one``, ``two`` and so on:

    ``one``, ``two``: what is done a second.

    ``one_s``, ``two_s``: seconds of the busiest process for a million of it; ``two_all_s``: of all
    processes; ``two_uneven``: the busiest one's in times of an equal part of that.

    ``two_generator``: cores that the generator had.
    """

    def __init__(self, fleet: Fleet, kind: Kind, counts: Sequence[int], pinned: bool) -> None:
        variant = kind.variant
        self._counts = {name(count): count for count in counts}
        self._servers = {
            metric: fleet.get("pubsubd", variant if count == 1 else f"{variant}+workers-{count}")
            for metric, count in self._counts.items()
        }
        self._together = on_one_core if pinned else lambda _pids: nullcontext()
        self.server = self._servers[name(counts[-1])]

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        """How many were done, in how many seconds, and who used the processor."""
        raise NotImplementedError

    def run(self, seconds: float) -> Reading:
        values = {}
        cores = Cores()
        for metric, count in self._counts.items():
            pids = self._servers[metric].pids
            with self._together(pids), without_preempting():
                self.count(metric, seconds / 10)  # what comes after a pause does not count
                before = [process_seconds(pid) for pid in pids]
                done, took, cores = self.count(metric, seconds)
            used = [process_seconds(pid) - had for pid, had in zip(pids, before, strict=True)]
            values[metric] = done / took
            values[f"{metric}_s"] = max(used) / done * 1e6
            values[f"{metric}_generator"] = cores.generator
            if count > 1:
                values[f"{metric}_all_s"] = sum(used) / done * 1e6
                values[f"{metric}_uneven"] = max(used) / sum(used) * count
        return Reading(values, cores)


class MessagesRunner(WorkersRunner, RigsRunner):
    """Messages of a plan, on the line port, or in the protocol of a hub port."""

    def __init__(self, fleet: Fleet, kind: Kind, counts: Sequence[int], pinned: bool) -> None:
        WorkersRunner.__init__(self, fleet, kind, counts, pinned)
        assert kind.plan is not None
        plan, rigs = kind.plan(), {}
        for metric, server in self._servers.items():
            load = more_load(plan) if pinned else for_each(plan, self._counts[metric])
            rigs[metric] = partial(_rig, server, load, kind.wire)
        RigsRunner.__init__(self, self.server, rigs)

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        sample = self._rigs[metric].run(seconds)
        return sample.messages, sample.seconds, sample.cores


def _rig(server: Server, plan: Plan, wire: WebSocketWire | None) -> Rig:
    door = None if wire is None else server.door(wire)
    return Rig(server, plan, door, door)


class GreetingsRunner(WorkersRunner):
    """Handshakes of TLS."""

    def __init__(self, fleet: Fleet, kind: Kind, counts: Sequence[int], pinned: bool) -> None:
        super().__init__(fleet, kind, counts, pinned)
        self._runners = {name: HandshakesRunner(one) for name, one in self._servers.items()}

    def prepare(self, seconds: float) -> None:
        for runner in self._runners.values():
            runner.prepare(seconds)

    def count(self, metric: str, seconds: float) -> tuple[float, float, Cores]:
        return self._runners[metric].count(seconds)


def name(count: int) -> str:
    """The metric that is about so many workers."""
    return _NUMBERS.get(count, str(count))


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
            measured = judge(result, _TARGETS[0]).measured
            if measured is not None:
                times = (speedup(measured, count, wanting) for wanting in (count - 1, 1, 0))
                rows.append(f"{result.case.title[:33]:34}" + "".join(f"{n:13.1f}" for n in times))
    return "\n".join(rows)


def for_each(plan: Plan, count: int) -> Plan:
    """The plan with its window for each of so many workers."""
    return replace(plan, window=plan.window * count)


def more_load(plan: Plan) -> Plan:
    """The plan with enough publishers that each of many workers has some, and with their window.

    Those who all subscribe the same are as many as that, too.
    """
    subscribers = plan.subscribers
    if 1 < len(subscribers) < _MANY:
        subscribers = subscribers[:1] * _MANY
    window = plan.window * _MANY // plan.publishers
    return replace(plan, subscribers=subscribers, publishers=_MANY, window=window)


def measured(results: Sequence[Result], most: int) -> str:
    """What 2, 4, 8 workers and so on carry, as measured; see :meth:`Kind.spread`."""
    counts = _powers(most)[1:]
    rows = [
        "with all workers on one core: what they carry by the processor time of the busiest one,",
        "in times of one worker (and the processor time of all together, in times of its)",
        f"{'':34}" + "".join(f"{count:14}" for count in counts),
    ]
    for result in results:
        if result.case.name not in WORKER_CASES or not result.readings:
            continue
        one, cells = result.values("pubsubd", "one_s"), []
        for count in counts:
            busiest, every = (
                result.values("pubsubd", f"{name(count)}_{metric}") for metric in ("s", "all_s")
            )
            times = median(a / b for a, b in zip(one, busiest, strict=True))
            more = median(b / a for a, b in zip(one, every, strict=True))
            cells.append(f"{times:.1f} ({more:.2f})")
        rows.append(f"{result.case.title[:33]:34}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(rows)


def _powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8 and so on, and ``most``."""
    powers = (1 << shift for shift in range(most.bit_length()))
    return tuple(sorted({1, most, *powers}))


@dataclass(frozen=True)
class Kind:
    """What is measured in a case: a plan, or TLS handshakes if there is none."""

    name: str
    title: str
    plan: Callable[[], Plan] | None = None
    variant: str = "no-hub"
    wire: WebSocketWire | None = None

    def case(self) -> Case:
        """The case: two workers beside one."""
        targets = (Target("two", None, base="one"), *_TARGETS)
        return self._case(self.title, targets, (1, 2), pinned=False)

    def spread(self, most: int) -> Case:
        """The same for 1, 2, 4, 8 workers and so on, up to ``most``, on one core."""
        title = self.title
        if self.plan is not None:
            plan, (load, rest) = more_load(self.plan()), title.split(maxsplit=1)
            comma = "," * load.endswith(",")
            title = f"{plan.publishers}:{len(plan.subscribers)}{comma} {rest}"
        return self._case(title, _TARGETS, _powers(most), pinned=True)

    def _case(
        self, title: str, targets: tuple[Target, ...], counts: Sequence[int], *, pinned: bool
    ) -> Case:
        runner = GreetingsRunner if self.plan is None else MessagesRunner
        return Case(
            self.name,
            title,
            lambda fleet, _server: runner(fleet, self, counts, pinned),
            targets,
            ("pubsubd",),
        )


def _fan() -> Plan:
    return one_name(128, 100, publishers=_PUBLISHERS, window=256 * KIB)


_KINDS = {
    kind.name: kind
    for kind in (
        Kind("workers-fan-100", "4:100, 128 B", _fan),
        Kind(
            "workers-all-to-all",
            "10:10, 16 B, all to all",
            lambda: one_name(16, 10, publishers=10),
        ),
        Kind(
            "workers-names-own",
            "4:100, 1,000 names, 10 each",
            lambda: replace(names_own(block=True), publishers=_PUBLISHERS),
        ),
        Kind(
            "workers-mixed",
            "4:1, 64 names x 100 lengths",
            lambda: replace(mixed(), publishers=_PUBLISHERS),
        ),
        Kind(
            "workers-new-names",
            "4:1, every name new",
            lambda: replace(new_names(), publishers=_PUBLISHERS),
        ),
        Kind(
            "workers-tls",
            "4:4 over TLS, 16 B, all to all",
            lambda: one_name(16, 4, publishers=_PUBLISHERS),
            "no-hub+tls",
        ),
        Kind("workers-handshakes", "TLS handshakes", None, "no-hub+tls"),
        Kind("workers-hub-100", "4:100 over WebSocket, 128 B", _fan, "hub", HUB),
    )
}

WORKER_CASES: dict[str, Case] = {name: kind.case() for name, kind in _KINDS.items()}


def spread(case: Case, most: int) -> Case:
    """The case for more workers, if it is about workers; else the case itself."""
    kind = _KINDS.get(case.name)
    return case if kind is None else kind.spread(most)
