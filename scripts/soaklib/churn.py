"""The soak: an hour's equivalent of churn on both ports of a mesh."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pubsubd.access.users import hash_password
from tests import certificates

from .crowd import Crowd, crowd
from .daemons import Mesh
from .probes import Route, probes
from .scenario import judge_probe, judge_traffic
from .traffic import Pub, Sub, traffic
from .verdict import Verdict, mib
from .wires import Address, Line, wait_until
from .workers import Worker

_SAMPLE = 0.5  # seconds
_WARM = 60.0  # seconds that caches and the allocator take to have what they need, at least
_SLOW_RATE = 100.0  # messages a second of each stream that passes the hub port


@dataclass(frozen=True)
class Plan:
    """How much of it.

    Attributes:
        messages: to be published.
        connections: to come and go.
        rate: messages a second, of all publishers together.
        daemons: in the mesh.
        tls: whether all that is said is encrypted.
        seed: of all that is random.
    """

    messages: int
    connections: int
    rate: float
    daemons: int
    tls: bool
    seed: int

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.messages / self.rate


def soak(plan: Plan, directory: Path, verdict: Verdict) -> None:
    """Do it."""
    users = directory / "users"
    users.write_text(f"ann:{hash_password('correct horse')}\n")
    users.chmod(0o600)
    made = certificates.make(directory) if plan.tls else None
    flags = ["--hub-rate=0", f"--users-file={users}", "--auth=none", "--command-timeout=10"]
    count = plan.daemons
    with Mesh(directory, count, *flags, tls=made) as mesh:
        lines, hubs = [mesh.line(i) for i in range(count)], [mesh.hub(i) for i in range(count)]
        controls = [Line(line) for line in lines]
        before = _look_settled(mesh, controls)
        pubs, subs = _clients(plan, lines, hubs)
        routes = [
            Route("a probe through one daemon", lines[0], lines[0]),
            Route("a probe over a link", lines[1 % count], lines[0]),
        ]
        with (
            Worker(traffic, pubs, subs) as load,
            Worker(probes, routes) as probe,
            Worker(crowd, lines, hubs, plan.seed) as churn,
        ):
            for worker in (load, probe, churn):
                worker.answer()
            verdict.check("every stream flows", load.ask("prime"), good=True)
            load.ask("pace", plan.rate - sum(pub.rate for pub in pubs if pub.name[0] == "s"))
            probe.ask("mark")
            memory, took = _run(plan, mesh, load, churn)
            report = load.ask("finish")
            times = probe.ask("report")
            came: Crowd = churn.ask("report")
        judge_memory(verdict, memory, judged=verdict.timed and plan.seconds >= 4 * _WARM)
        for route in routes:
            judge_probe(verdict, route.name, times[route.name])
        judge_traffic(verdict, report)
        verdict.note("published in", f"{took:.0f} s, {report.published / took:,.0f} a second")
        judge_crowd(verdict, plan, came)
        _judge_end(verdict, mesh, controls, before)


def _clients(plan: Plan, lines: list[Address], hubs: list[Address]) -> tuple[list[Pub], list[Sub]]:
    count = plan.daemons
    pubs = [Pub(f"p{i:02d}", line, rate=1_000) for i, line in enumerate(lines)]
    subs = [Sub(f"line {i}", line) for i, line in enumerate(lines)]
    for number, kind in enumerate(("line", "ndjson", "ws")):
        place = number % count
        where = lines[place] if kind == "line" else hubs[place]
        pubs.append(Pub(f"s{number:02d}", where, kind, rate=_SLOW_RATE))
        place = (number + 2) % count
        where = lines[place] if kind == "line" else hubs[place]
        subs.append(Sub(f"slow {kind}", where, kind, fast=False))
    return pubs, subs


def _look(mesh: Mesh, controls: list[Line]) -> list[tuple[int, int, int]]:
    """Descriptors, connections and subscriptions of each daemon."""
    seen = []
    for one, control in zip(mesh.daemons, controls, strict=True):
        told = control.request("stats")
        seen.append((one.descriptors(), told["connections"], told["subscriptions"]))
    return seen


def _look_settled(mesh: Mesh, controls: list[Line]) -> list[tuple[int, int, int]]:
    """As above, once each has its links and the control alone, twice in a row.

    Two daemons that dial each other at once have two connections until one of them is closed, and
    a connection that has left keeps its descriptor a little longer.
    """
    own = [mesh.degree(i) + 1 for i in range(len(controls))]
    seen: list[tuple[int, int, int]] = []

    def settled() -> bool:
        nonlocal seen
        before, seen = seen, _look(mesh, controls)
        return seen == before and [connections for _, connections, _ in seen] == own

    wait_until(settled, "each daemon has its links alone", tick=0.05)
    return seen


def _run(plan: Plan, mesh: Mesh, load: Worker, churn: Worker) -> tuple[list[list[int]], float]:
    """Let it run; return the samples of each daemon's memory, and the seconds."""
    memory: list[list[int]] = [[] for _ in mesh.daemons]
    load.ask("go")
    begun = time.monotonic()
    churn.tell("run", plan.connections, plan.seconds)
    published = 0
    while published < plan.messages:
        published = load.ask("run", _SAMPLE)
        for samples, one in zip(memory, mesh.daemons, strict=True):
            samples.append(one.memory())
    took = time.monotonic() - begun
    churn.answer(plan.seconds + 60)
    return memory, took


def judge_memory(verdict: Verdict, memory: list[list[int]], *, judged: bool) -> None:
    """Flat after warm-up: the last quarter against the one after the first."""
    for number, samples in enumerate(memory):
        quarter = max(1, len(samples) // 4)
        early = median(samples[quarter : 2 * quarter] or samples)
        late = median(samples[-quarter:])
        growth = late / early - 1
        text = f"{mib(early)}, {mib(late)}: {growth:+.1%} (at most 5 %), most {mib(max(samples))}"
        if judged:
            verdict.check(f"memory of daemon {number}", text, growth <= 0.05)
        else:
            verdict.note(f"memory of daemon {number}", text)


def judge_crowd(verdict: Verdict, plan: Plan, came: Crowd) -> None:
    total = sum(n for kind, n in came.kinds.items() if "cut for" not in kind)
    verdict.check("connections that came and went", f"{total:,}", total >= plan.connections)
    verdict.note("of each kind", dict(came.kinds))
    verdict.note("errors that those were told who asked for them", dict(came.codes))
    verdict.none("of them that saw what they should not", len(came.wrong), came.wrong[:3])


def _judge_end(
    verdict: Verdict,
    mesh: Mesh,
    controls: list[Line],
    before: list[tuple[int, int, int]],
) -> None:
    after = before

    def back() -> bool:
        nonlocal after
        after = _look(mesh, controls)
        return after == before

    try:
        wait_until(back, "descriptors are back", tick=0.1)
    finally:
        verdict.check(
            "descriptors, connections, subscriptions as before",
            f"{after}, before {before}",
            after == before,
        )
    for control in controls:
        told = control.request("stats")
        gone = told["connections_total"] - told["connections"]
        verdict.check(
            "backlog, and closed by the daemon of those gone",
            f"{told['backlog_bytes']}, {sum(told['closed'].values()):,} of {gone:,}",
            told["backlog_bytes"] == 0 and sum(told["closed"].values()) <= gone,
        )
        verdict.none("messages dropped", told["dropped"])
    faults = [line for one in mesh.daemons for line in one.faults()]
    verdict.none("faults in the logs", len(faults), faults[:2])
    for control in controls:
        control.close()
    ended = [one.stop() for one in mesh.daemons]
    verdict.check("exit status of each", ended, not any(ended))
