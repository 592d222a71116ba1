"""Is the analysis of a mesh as fast and as small as it is meant to be?

    scripts/bench topology                      all cases but "year", 15 minutes on 2 cores
    scripts/bench topology start gnutella       some of them
    scripts/bench topology year                 15 minutes more
    scripts/bench topology --list               what there is
    scripts/bench topology --check              status 3 if a target is missed

Times `pubsubd topology` as a whole process, as a user starts it, with the interpreter of --python
(which needs pubsubd[topology], and networkx for the case "gnutella"). Memory is that of all its
processes together, shared pages counted once (PSS), looked at five times a second. The inputs are
made beforehand, the same each time: see topologydata.py. Of the short cases the median of --runs
counts, so that the first run, which may make the archive of Java's classes, does not. The Gnutella
snapshot of 31 August 2002 is read from the folder that PUBSUBD_TOPOLOGIES names; the case is left
out where it is not.

The case "networkx" computes, of that snapshot, what both networkx and the analysis have a function
for, in turns within one process: what a metric takes of the processor in each is the least of three
runs (one, where it takes minutes). Distances between all pairs would take networkx hours: it is
given every 500th daemon to start from, and its time is multiplied. The ratio is that of the sums,
with that metric and without. It is of the kernel alone: the whole job starts Java, and computes
much besides.

The targets are for a machine that does nothing else. Beside other work, "processor" says more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_GNUTELLA = "p2p-Gnutella31.txt"
_LONGEST = 1_800  # seconds that a run may take


@dataclass
class Reading:
    """What one run took: seconds, those of processor time among them, and memory."""

    seconds: float
    processor: float
    first_stage: float
    gib: float
    status: int
    error: str = ""
    stages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    metric: str
    bound: float
    unit: str


@dataclass(frozen=True)
class Case:
    """Something to measure."""

    name: str
    title: str
    targets: tuple[Target, ...]
    long: bool = False


CASES = {
    case.name: case
    for case in (
        Case(
            "start",
            "a mesh of 10 daemons, 10 minutes of exports",
            (
                Target("first stage", 5, "s"),
                Target("total", 9, "s"),
                Target("memory", 0.8, "GiB"),
            ),
        ),
        Case("none", "files without a row", (Target("total", 1, "s"),)),
        Case("gnutella", "62,586 daemons, 147,892 links", (Target("total", 22, "s"),)),
        Case("networkx", "the same graph in networkx", (Target("times as fast", 10, "x"),)),
        Case(
            "windows",
            "2,000 and 4,000 windows of 300 daemons and 1,000 links",
            (
                Target("total", 300, "s"),
                Target("memory", 6, "GiB"),
                Target("twice the windows", 2.2, "x"),
            ),
        ),
        Case(
            "local",
            "5.6 million links, one worker",
            (Target("total", 180, "s"), Target("memory", 6, "GiB")),
        ),
        Case(
            "distributed",
            "5.6 million links, all workers",
            (Target("total", 480, "s"), Target("memory", 10, "GiB")),
        ),
        Case(
            "year",
            "a year of the folders of 50 daemons, with a file for each day, then each hour",
            (Target("folders", 2, "GiB"), Target("total", 600, "s"), Target("memory", 6, "GiB")),
            long=True,
        ),
    )
}


class Watch(threading.Thread):
    """Looks how much memory a process and all below it have, until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopped = threading.Event()
        self.peak = 0  # KiB

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            self.peak = max(self.peak, sum(map(_pss, _family(self._pid))))

    def stop(self) -> float:
        """Return the highest seen, in GiB."""
        self._stopped.set()
        self.join()
        return self.peak / 1024**2


def _family(pid: int) -> list[int]:
    """Return ``pid`` and the processes below it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def analyse(python: str, out: Path, *arguments: str) -> Reading:
    """Run the command once; it is ended, with all that it started, if it takes too long."""
    began, before = time.monotonic(), _processor()
    process = subprocess.Popen(
        [python, "-m", "pubsubd", "topology", *arguments, "--out", str(out)],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watch = Watch(process.pid)
    watch.start()
    timer = threading.Timer(_LONGEST, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    lines: list[str] = []
    first = float("nan")
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.rstrip())
            if len(lines) == 2:  # the first tells that Spark is being started
                first = time.monotonic() - began
        status = process.wait()
    finally:
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        gib = watch.stop()
    error = "" if status == 0 else "\n".join(lines[-3:])
    seconds = time.monotonic() - began
    return Reading(seconds, _processor() - before, first, gib, status, error, lines)


def _processor() -> float:
    """Return the seconds of processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Bench:
    """Runs cases in a directory of its own."""

    def __init__(self, python: str, scratch: Path, runs: int, scale: float) -> None:
        self._python = python
        self._scratch = scratch
        self._runs = runs
        self._scale = scale
        self._count = 0

    def measure(self, name: str) -> dict[str, float]:
        """Return figures by their names.

        Raises:
            RuntimeError: a run failed.
        """
        cases: dict[str, Callable[[], dict[str, float]]] = {
            "start": self._start,
            "none": self._none,
            "gnutella": self._gnutella,
            "networkx": self._networkx,
            "windows": self._windows,
            "local": self._local,
            "distributed": self._distributed,
            "year": self._year,
        }
        return cases[name]()

    def _data(self, kind: str, number: int) -> Path:
        target = self._scratch / f"{kind}-{number}"
        if not target.exists():
            program = str(_HERE / "topologydata.py")
            subprocess.run([self._python, program, kind, str(target), str(number)], check=True)
        return target

    def _best(self, *arguments: str, runs: int = 1) -> dict[str, float]:
        """Return the medians over some runs."""
        readings = []
        for _ in range(runs):
            self._count += 1
            reading = analyse(self._python, self._scratch / f"out-{self._count}", *arguments)
            if reading.status:
                raise RuntimeError(f"status {reading.status}: {reading.error}")
            readings.append(reading)
        middle = len(readings) // 2
        for line in sorted(readings, key=lambda one: one.seconds)[middle].stages:
            print(f"    {line}", file=sys.stderr)
        return {
            "first stage": sorted(one.first_stage for one in readings)[middle],
            "total": sorted(one.seconds for one in readings)[middle],
            "processor": sorted(one.processor for one in readings)[middle],
            "memory": sorted(one.gib for one in readings)[middle],
        }

    def _start(self) -> dict[str, float]:
        return self._best(str(self._data("mesh", 10)), runs=self._runs)

    def _none(self) -> dict[str, float]:
        empty = self._scratch / "none.jsonl"
        empty.touch()
        readings = [analyse(self._python, self._scratch / "none", str(empty)) for _ in range(3)]
        if any("there are no rows" not in one.error for one in readings):
            raise RuntimeError(f"not an error about no rows: {readings[0].error}")
        return {
            "total": sorted(one.seconds for one in readings)[1],
            "processor": sorted(one.processor for one in readings)[1],
        }

    def _gnutella(self) -> dict[str, float]:
        return self._best(str(_gnutella()), runs=self._runs)

    def _networkx(self) -> dict[str, float]:
        done = subprocess.run(
            [self._python, str(_HERE / "topologypeer.py"), str(_gnutella())],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LONGEST,
        )
        if done.returncode:
            raise RuntimeError(f"topologypeer.py ended with status {done.returncode}")
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def _windows(self) -> dict[str, float]:
        count = round(2_000 * self._scale)
        once = self._best(str(self._data("windows", count)))
        twice = self._best(str(self._data("windows", 2 * count)))
        return once | {"twice the windows": twice["total"] / once["total"]}

    def _local(self) -> dict[str, float]:
        return self._best(str(self._data("links", round(5_600_000 * self._scale))))

    def _distributed(self) -> dict[str, float]:
        data = self._data("links", round(5_600_000 * self._scale))
        return self._best(str(data), "--local-edges", "1000000" if self._scale == 1 else "0")

    def _year(self) -> dict[str, float]:
        data = self._data("year", max(3, round(365 * self._scale)))
        size = sum(path.stat().st_size for path in data.rglob("edges-*"))
        return {"folders": size / 2**30} | self._best(str(data))


def _gnutella() -> Path:
    folder = os.environ.get("PUBSUBD_TOPOLOGIES", str(_ROOT.parent / "shared" / "data"))
    path = Path(folder, _GNUTELLA)
    if not path.exists():
        raise RuntimeError(f"{_GNUTELLA} is not in the folder that PUBSUBD_TOPOLOGIES names")
    return path


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; ends the program with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="bench topology", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("case", nargs="*", help="which ones (see --list); all but year if none")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--runs", type=int, default=3, help="of the short cases (%(default)s)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the large inputs (%(default)s): 0.01 to try"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--check", action="store_true", help="status 3 if a target is missed")
    parser.add_argument("--python", default=sys.executable, help="interpreter (%(default)s)")
    options = parser.parse_args(arguments)
    for name in options.case:
        if name not in CASES:
            parser.error(f"no such case: {name!r} (see --list)")
    if options.runs < 1 or not 0.001 <= options.scale <= 10:
        parser.error("--runs must be 1 or more, and --scale between 0.001 and 10")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(arguments)
    if options.list:
        for case in CASES.values():
            print(f"{case.name:12} {case.title}")
        return 0
    failed = missed = False
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="pubsubd-bench-") as scratch:
        bench = Bench(options.python, Path(scratch), options.runs, options.scale)
        for name in options.case or [name for name, case in CASES.items() if not case.long]:
            case = CASES[name]
            try:
                results[name] = bench.measure(name)
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed = True
                continue
            print(f"{name}: {case.title}")
            bounds = {target.metric: target for target in case.targets}
            for metric, value in results[name].items():
                target = bounds.get(metric)
                verdict = "" if target is None else judge(target, value)
                print(f"    {metric:36} {value:9.2f}{verdict}", flush=True)
                missed |= target is not None and not _good(value, target)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if failed:
        return 1
    return 3 if options.check and missed else 0


def _good(value: float, target: Target) -> bool:
    return value >= target.bound if target.metric == "times as fast" else value <= target.bound


def judge(target: Target, value: float) -> str:
    """Return the bound and whether a figure keeps it."""
    kind = "at least" if target.metric == "times as fast" else "at most"
    word = "ok" if _good(value, target) else "MISS"
    return f" {target.unit:4} {kind} {target.bound:g}  {word}"
