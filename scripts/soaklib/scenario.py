"""What the scenarios have in common."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .daemons import Daemon
from .probes import Times
from .traffic import Report
from .verdict import Verdict, percentile


@dataclass(frozen=True)
class Setting:
    """How a scenario is run.

    Attributes:
        directory: for files.
        short: whether it has to be over in some seconds.
        rng: of all that is random.
        only: patterns of the parts to be done, of a scenario that has parts; all if there are none.
        seconds: that each part goes on for, of a scenario that lets this be chosen; None for what
            is usual.
        alone: whether nothing is done by many at once.
    """

    directory: Path
    short: bool
    rng: random.Random
    only: tuple[str, ...] = ()
    seconds: float | None = None
    alone: bool = False


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Attributes:
        name: of it.
        text: what is done, and what has to be seen; its first line is a title.
        run: does it.
    """

    name: str
    text: str
    run: Callable[[Setting, Verdict], None]

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0]


def judge_traffic(verdict: Verdict, report: Report) -> None:
    """Nothing lost, doubled or changed, and no connection broken."""
    verdict.note("messages published, delivered", f"{report.published:,}, {report.delivered:,}")
    verdict.check("anything was delivered", report.delivered > 0, report.delivered > 0)
    judge_messages(verdict, report)
    verdict.none("connections of healthy clients that broke", sum(report.broken.values()))
    verdict.none("errors that healthy clients were told", len(report.errors), set(report.errors))


def judge_messages(verdict: Verdict, report: Report) -> None:
    """Nothing lost, doubled or changed."""
    verdict.none("messages lost", report.lost, report.samples())
    verdict.none("messages doubled", report.doubled, report.samples())
    verdict.none("messages out of order", report.late, report.samples())
    verdict.none("messages changed", report.changed, report.samples())
    verdict.none("publications refused", report.refused)


def judge_probe(verdict: Verdict, name: str, times: Times, most: float = 50.0) -> None:
    """The latency of a probe."""
    verdict.limit(f"p99 of {name}", percentile(times.took, 0.99), most, "ms")
    worst = max(times.took, default=0.0)
    verdict.note(f"median, worst of {name}", f"{percentile(times.took, 0.5):.2f}, {worst:.0f} ms")
    verdict.none(f"lost of {name}, of {len(times.took):,}", times.missing)


def judge_end(verdict: Verdict, daemon: Daemon, *, status: int | None = 0) -> None:
    """The daemon ends as it should, and has logged no fault of its own."""
    verdict.none("faults in the log", len(daemon.faults()), daemon.faults()[:2])
    alive = daemon.alive
    verdict.check("the daemon lived to the end", alive, alive)
    if status is not None:
        ended = daemon.stop()
        verdict.check("exit status", ended, ended == status)


@contextlib.contextmanager
def told(verdict: Verdict) -> Iterator[None]:
    """Let what goes wrong be part of the verdict."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (whatever it is, it has not come to its end)
        while isinstance(error, ExceptionGroup):  # of tasks
            error = error.exceptions[0]
        verdict.check("it came to its end", f"{type(error).__name__}: {error}", good=False)
