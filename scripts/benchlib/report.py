"""Medians, ratios, verdicts, and how they are shown.

A ratio is the median of the ratios of each round: within a round the servers were
measured right after one another, so a machine that gets slower for a while slows
both sides of it. The spread is that of the middle half of the runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from .cases import ALL, Case, Target
from .meter import Cores
from .runners import Reading

BEFORE = "before"  # the server that is pubsubd of another checkout
_NO_WORSE = 0.98  # of it, to be as good
_BUSY = 0.9  # of a core, or of all cores: from here on this is what limits
_THREADED = ("nats",)  # more than one core may be at work there
_FEW = 3  # runs; the spread of fewer says nothing
DISTURBED_CORES = 0.2  # of others: from here on the figures suffer


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The borders of the middle half of `values`, of which there is at least one."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def limit(server: str, cores: Cores, machine: int) -> str:
    """The word for what kept `server` from more, on a machine with that many cores.

    ``server`` or ``generator``: its core was busy; ``both`` were; ``machine``: all cores
    were; ``others``: so were they, much of it with something else; ``waits``: none of these.
    """
    generator, busy = cores.generator >= _BUSY, cores.server >= _BUSY
    if busy and server not in _THREADED:
        return "both" if generator else "server"
    if generator:
        return "generator"
    if cores.generator + cores.server + cores.others >= _BUSY * machine:
        return "others" if cores.others >= DISTURBED_CORES else "machine"
    return "waits"


@dataclass
class Result:
    """All that was found for one case: the readings of each server, one per round."""

    case: Case
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> list[Target]:
        """What is asked in this case of what was measured; also beside another checkout."""
        measured = {"pubsubd", *self.readings, *self.errors}
        targets = [target for target in self.case.targets if target.server in measured]
        if BEFORE in self.readings:
            lower = {target.metric: target.lower for target in targets}
            for metric, less in lower.items():
                bound = 1 / _NO_WORSE if less else _NO_WORSE
                targets.append(Target(metric, bound, (BEFORE,), lower=less))
        return targets

    def disturbed(self, number: int) -> float:
        """How many cores something else used, at worst, during a round."""
        return max(
            (readings[number].cores.others for readings in self.readings.values()), default=0.0
        )

    def keep_quietest(self, count: int) -> None:
        """Forget all rounds but the `count` that were disturbed least."""
        rounds = min(map(len, self.readings.values()), default=0)
        kept = sorted(sorted(range(rounds), key=self.disturbed)[:count])
        for server, readings in self.readings.items():
            self.readings[server] = [readings[number] for number in kept]

    def values(self, server: str, metric: str) -> list[float]:
        """The metric's values on that server, by round; empty if it has none."""
        readings = self.readings.get(server, [])
        return [r.values[metric] for r in readings if metric in r.values]

    def middle(self, server: str, metric: str) -> float | None:
        """Their median."""
        values = self.values(server, metric)
        return median(values) if values else None

    def cores(self, server: str) -> Cores:
        """The medians of who used the processor, 0 where it was not measured."""
        used = [reading.cores for reading in self.readings.get(server, [])] or [Cores()]
        return Cores(
            median(c.generator for c in used),
            median(c.server for c in used),
            median(c.others for c in used),
        )

    def limit(self, server: str) -> str:
        """What kept that server from more; empty where it was not measured."""
        cores = self.cores(server)
        return limit(server, cores, os.cpu_count() or 1) if cores.server else ""


@dataclass(frozen=True)
class Verdict:
    """A target beside what was measured; `measured` None: there is nothing to compare.

    `low` and `high` are the quartiles.
    """

    target: Target
    measured: float | None
    low: float = 0.0
    high: float = 0.0
    against: str = ""

    @property
    def word(self) -> str:
        """``ok``, ``MISS``, ``at floor``, or ``-`` where nothing was asked or measured."""
        if self.measured is None or self.target.bound is None:
            return "-"
        if self.target.lower:
            met = self.measured <= self.target.bound
        else:
            met = self.measured >= self.target.bound
        if self.target.floor:
            return "at floor" if met else "-"
        return "ok" if met else "MISS"


def judge(result: Result, target: Target) -> Verdict:
    """Compare the readings of pubsubd, or of what else the target is for, with what is asked."""
    ours = result.values(target.server, target.metric)
    against = ""
    if target.base:
        theirs = result.values(target.server, target.base)
        against = target.base
    elif target.peers:
        present = [p for p in target.peers if result.values(p, target.metric)]
        if not present:
            return Verdict(target, None)
        pick = min if target.lower else max
        against = pick(present, key=lambda p: result.middle(p, target.metric) or 0.0)
        theirs = result.values(against, target.metric)
    else:
        theirs = [1.0] * len(ours)
    ratios = [a / b for a, b in zip(ours, theirs, strict=False) if b]
    if not ratios:
        return Verdict(target, None)
    return Verdict(target, median(ratios), *quartiles(ratios), against)


def number(value: float | None) -> str:
    """A value in few characters: 3 significant digits, k and M for large ones."""
    if value is None:
        return "-"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size:
            return (
                f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
            )
    return f"{value:.3g}"


def with_spread(values: Sequence[float]) -> str:
    """The median, and by how many per cent of it half of the runs were off at most."""
    if not values:
        return "-"
    middle = median(values)
    low, high = quartiles(values)
    if len(values) < _FEW or not middle:
        return number(middle)
    return f"{number(middle)} ±{max(high - middle, middle - low) / middle:.0%}"


def _asked(target: Target) -> str:
    if target.floor:
        return "floor"
    if target.bound is None:
        return ""
    sign = "<=" if target.lower else ">="
    times = " x" if target.peers or target.base else ""
    return f"{sign} {target.bound:.3g}{times}"


def rows(results: Sequence[Result], servers: Sequence[str]) -> list[list[str]]:
    """The table's cells, the first row its head."""
    table = [["case", "metric", *servers, "asked", "measured", "quartiles", "against", ""]]
    for result in results:
        shown: set[str] = set()
        targets = result.targets
        metrics = {m for readings in result.readings.values() for r in readings for m in r.values}
        asked = {target.metric for target in targets}
        targets.extend(Target(metric, None) for metric in sorted(metrics - asked))
        for target in targets:
            cells = [result.case.name, target.metric]
            for server in servers:
                value = with_spread(result.values(server, target.metric))
                cells.append("ERROR" if server in result.errors else value)
            if target.metric in shown:
                cells[2:] = [""] * len(servers)
            shown.add(target.metric)
            if target.metric not in asked:
                table.append([*cells, "", "", "", "", ""])
                continue
            cells[1] += target.server.removeprefix("pubsubd")
            verdict = judge(result, target)
            spread = ""
            if verdict.measured is not None:
                spread = f"{number(verdict.low)}..{number(verdict.high)}"
            word = "" if target.bound is None or target.floor else verdict.word
            table.append(
                [
                    *cells,
                    _asked(target),
                    number(verdict.measured),
                    spread,
                    verdict.against,
                    verdict.word if verdict.word == "at floor" else word,
                ]
            )
        limits = [result.limit(server) for server in servers]
        if any(limits):
            table.append([result.case.name, "limit", *limits, "", "", "", "", ""])
    return table


def text(results: Sequence[Result], servers: Sequence[str]) -> str:
    """The table, aligned, with remarks on what may spoil it."""
    table = rows(results, servers)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    left = {0, 1, len(table[0]) - 2, len(table[0]) - 1}
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    for result in results:
        lines.extend(f"ERROR {result.case.name}: {error}" for error in result.errors.values())
    disturbed = [
        f"{result.case.name} ({worst:.2f})"
        for result in results
        if (worst := max([result.cores(s).others for s in result.readings], default=0.0))
        >= DISTURBED_CORES
    ]
    if disturbed:
        lines.append("note: something else used the processor (cores): " + ", ".join(disturbed))
    return "\n".join(lines)


def as_json(results: Sequence[Result], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, for machines."""
    cases: dict[str, Any] = {}
    for result in results:
        servers: dict[str, Any] = {}
        for server in (*ALL, BEFORE):
            readings = result.readings.get(server, [])
            if not readings:
                continue
            metrics = {metric for reading in readings for metric in reading.values}
            cores = result.cores(server)
            servers[server] = {
                "metrics": {
                    metric: {
                        "median": result.middle(server, metric),
                        "quartiles": quartiles(result.values(server, metric)),
                        "runs": result.values(server, metric),
                    }
                    for metric in sorted(metrics)
                },
                "limit": result.limit(server),
                "cpu_cores": {
                    "generator": round(cores.generator, 3),
                    "server": round(cores.server, 3),
                    "others": round(cores.others, 3),
                },
            }
        verdicts = [judge(result, target) for target in result.targets]
        cases[result.case.name] = {
            "title": result.case.title,
            "servers": servers,
            "errors": result.errors,
            "targets": [
                {
                    "metric": verdict.target.metric,
                    "bound": verdict.target.bound,
                    "lower_is_better": verdict.target.lower,
                    "against": verdict.against,
                    "measured": verdict.measured,
                    "quartiles": [verdict.low, verdict.high],
                    "verdict": verdict.word,
                }
                for verdict in verdicts
            ],
        }
    return {**about, "cases": cases}
