"""The wall clock is stepped, forwards and backwards, by up to a year.

Two linked daemons run with libfaketime, by which their wall clocks can be set while the machine's
is left alone; the monotonic clock goes on, as it does when a real clock is set. Again and again one
of them is set to another time, the other to yet another. No link may go down, no connection be
closed, no registration expire and no stream be hurt; what is logged and exported has the new time.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

from soaklib.daemons import Daemon, Mesh
from soaklib.scenario import Scenario, Setting, judge_traffic
from soaklib.traffic import Pub, Sub, traffic
from soaklib.verdict import Verdict
from soaklib.wires import PATIENCE, Address, compact, wait_until
from soaklib.workers import Worker

_LIBRARY = "libfaketimeMT.so.1"
_DAY = 86_400
_STEPS = (3_600, -_DAY, 365 * _DAY, -1, 0, 30 * _DAY, -365 * _DAY, 61, 0)


def _find_library() -> Path | None:
    """Debian's package faketime has it where the linker does not look."""
    for directory in Path("/usr/lib").glob("*/faketime"):
        if (directory / _LIBRARY).exists():
            return directory / _LIBRARY
    return None


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    library = _find_library()
    if library is None:
        verdict.check("left out", "libfaketime is not there: apt-get install faketime", good=True)
        return
    edges = setting.directory / "edges"
    edges.mkdir()
    heartbeat = 20 if setting.short else 1  # a busy machine may well be silent for seconds
    flags = ["--hub-rate=0", f"--mesh-heartbeat={heartbeat}", "--export-interval=0.2"]
    flags += ["--hub-heartbeat=1000", "--hub-ttl=1000"]
    mesh = Mesh(setting.directory, 2, *flags, f"--export-edges={edges}")
    clocks = [setting.directory / f"clock{i}" for i in range(2)]
    for one, clock in zip(mesh.daemons, clocks, strict=True):
        clock.write_text("+0\n")
        one.env.update(
            LD_PRELOAD=str(library),
            FAKETIME_TIMESTAMP_FILE=str(clock),
            FAKETIME_CACHE_DURATION="1",  # seconds; otherwise each look reads the file
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )
    with mesh:
        _run(setting, verdict, mesh, clocks, edges)


def _run(setting: Setting, verdict: Verdict, mesh: Mesh, clocks: list[Path], edges: Path) -> None:
    rate = 1_000 if setting.short else 5_000
    pubs = [
        Pub("p00", mesh.line(0), rate=rate),
        Pub("p01", mesh.line(1), rate=rate),
        Pub("s00", mesh.hub(0), "ws", rate=50),
    ]
    subs = [
        Sub("line 0", mesh.line(0)),
        Sub("line 1", mesh.line(1)),
        Sub("ndjson", mesh.hub(1), "ndjson", fast=False),
        Sub("ws", mesh.hub(0), "ws", fast=False),
    ]
    with Worker(traffic, pubs, subs) as load:
        load.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        load.ask("go")
        with mesh.hub(0).connect() as actor:
            actor.sendall(
                compact(
                    {
                        "type": "hub:register",
                        "from": "chaos/clock",
                        "payload": {"actorAddress": "chaos/clock", "capabilities": ["x"]},
                    }
                )
                + b"\n"
            )
            heard = actor.recv(65_536)
            verdict.check(
                "an actor registers", b"hub:registered" in heard, b"hub:registered" in heard
            )
            seen = _step(setting, mesh, clocks)
            verdict.check("steps of the clocks, all seen in the logs", seen, good=True)
            actor.sendall(b'{"type":"hub:discover","from":"chaos/clock","payload":{}}\n')
            heard = actor.recv(65_536)
            there = b'"actors":[{"address":"chaos/clock"' in heard
            verdict.check("the actor is registered still", there, there)
        report = load.ask("finish")
    judge_traffic(verdict, report)
    for number, one in enumerate(mesh.daemons):
        downs = [line for line in one.log.splitlines() if "event=link-down" in line]
        verdict.none(f"links of daemon {number} that went down", len(downs), downs[:2])
        uptime = mesh.request(number, "stats")["uptime_s"]
        verdict.check("uptime in seconds", uptime, 0 < uptime < 10 * PATIENCE)
    files = list(edges.glob("edges-*"))  # not one that is being written
    broken = [path.name for path in files if not _whole(path)]
    verdict.none(f"edge lists cut short, of {len(files)}", len(broken), broken[:3])
    faults = [line for one in mesh.daemons for line in one.faults()]
    verdict.none("faults in the logs", len(faults), faults[:2])
    ended = [one.stop() for one in mesh.daemons]
    verdict.check("exit status of each", ended, not any(ended))


def _step(setting: Setting, mesh: Mesh, clocks: list[Path]) -> int:
    """Set the clocks to one time after the other; return how often the logs have shown it."""
    steps = _STEPS[:3] if setting.short else _STEPS * 3
    for number, step in enumerate(steps):
        which = number % 2
        one = mesh.daemons[which]
        fresh = clocks[which].with_suffix(".new")
        fresh.write_text(f"{step:+d}\n")
        fresh.rename(clocks[which])
        due = time.strftime("time=%Y-%m-%dT%H:%M", time.gmtime(time.time() + step))
        late = time.strftime("time=%Y-%m-%dT%H:%M", time.gmtime(time.time() + step + 60))

        start, where = len(one.log), mesh.line(which)
        wait_until(
            lambda where=where, one=one, start=start, times=(due, late): any(
                one_time in _log_something(where, one)[start:] for one_time in times
            ),
            "the log shows the new time",
            tick=0.2,
        )
        time.sleep(0.7 if setting.short else 3.0)  # in the long form more than two heartbeats
    return len(steps)


def _log_something(where: Address, daemon: Daemon) -> str:
    """Let the daemon log something; return its log."""
    with where.connect() as sock:
        sock.sendall(b"pub a 1 xx\n")  # the wrong length, for which it is cut
        sock.recv(4_096)
    return daemon.log


def _whole(path: Path) -> bool:
    """Whether an edge list, or an hour of them that has been compacted meanwhile, is complete."""
    try:
        data = path.read_bytes()
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
            json.loads(line)
    except (OSError, EOFError, ValueError):
        return False
    return path.name.endswith((".jsonl", ".jsonl.gz"))


SCENARIO = Scenario("clock", __doc__ or "", run)
