"""No descriptors left: what refuses who comes, and who is there already.

A daemon may have few descriptors. More clients come than fit, again and again: each of them is
told too-many-connections, and those who are there keep their streams. Then the limit is lowered
under what it has in use, so that accepting itself fails, while the daemon also has to reload and to
write edge lists. When the crowd is gone and the limit is back, everything works as before.
"""

from __future__ import annotations

import resource
import signal
import time

from soaklib.daemons import Daemon
from soaklib.holders import holders
from soaklib.probes import Route, probes
from soaklib.scenario import Scenario, Setting, judge_end, judge_probe, judge_traffic
from soaklib.traffic import Pub, Sub, traffic
from soaklib.verdict import Verdict
from soaklib.wires import Line, wait_until
from soaklib.workers import Worker

_LIMIT = 100


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    path = setting.directory / "pubsubd.toml"
    path.write_text("hub_rate = 0\n")
    edges = setting.directory / "edges"
    edges.mkdir()
    daemon = Daemon(
        setting.directory,
        f"--config={path}",
        "--mesh=few",
        "--node=one",
        f"--export-edges={edges}",
        "--export-interval=0.2",
        prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT)),
    )
    try:
        _run(setting, verdict, daemon)
        judge_end(verdict, daemon)
    finally:
        daemon.kill()


def _run(setting: Setting, verdict: Verdict, daemon: Daemon) -> None:
    pubs = [
        Pub("p00", daemon.line, rate=5_000),
        Pub("s00", daemon.line, rate=50),
        Pub("s01", daemon.hub, "ws", rate=50),
    ]
    subs = [
        Sub("line", daemon.line),
        Sub("ndjson", daemon.hub, "ndjson", fast=False),
        Sub("ws", daemon.hub, "ws", fast=False),
    ]
    routes = [Route("a probe", daemon.line, daemon.line)]
    own = len(pubs) + len(subs) + 2 * len(routes) + 1
    used = daemon.descriptors() + own
    with (
        Worker(traffic, pubs, subs) as load,
        Worker(probes, routes) as probe,
        Worker(holders) as crowd,
    ):
        for worker in (load, probe, crowd):
            worker.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        line = Line(daemon.line)
        load.ask("go")
        probe.ask("mark")

        def alone() -> bool:
            # A connection that has left keeps its descriptor a little longer.
            there = line.request("stats")["connections"]
            return bool(there == own and daemon.descriptors() <= used)

        wait_until(alone, "nobody else is there")
        room = _LIMIT - 16 - own
        refused = 0
        for _ in range(3 if setting.short else 30):
            crowd.ask("open", daemon.line, room + 20, b"")
            refused += 20
            wait_until(
                lambda due=refused: crowd.ask("count")[2]["too-many-connections"] == due,
                "those who are too many are told so",
            )
            crowd.ask("close")
            wait_until(alone, "the crowd has left")
        verdict.check("refused over max_connections, all told", refused, refused)
        _exhaust(setting, verdict, daemon, crowd, line, room)
        wait_until(alone, "the crowd has left")
        with Line(daemon.line) as fresh:
            fresh.ping()
        verdict.note("a new client afterwards", "served")
        report = load.ask("finish")
        times = probe.ask("report")["a probe"]
        line.close()
    judge_probe(verdict, "a probe", times)
    judge_traffic(verdict, report)


def _exhaust(
    setting: Setting, verdict: Verdict, daemon: Daemon, crowd: Worker, line: Line, room: int
) -> None:
    """Let accept() itself fail."""
    there = line.request("stats")["connections"] + room // 2
    crowd.ask("open", daemon.line, room // 2, b"")
    wait_until(lambda: line.request("stats")["connections"] == there, "they are there")
    used = daemon.descriptors()
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used - 5, _LIMIT))
    told = crowd.ask("count")[2]["too-many-connections"]
    crowd.ask("open", daemon.line, 10, b"")
    cpu, begun = daemon.cpu(), time.monotonic()
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "event=reload" in daemon.log, "the reload is told")
    wait_until(
        lambda: crowd.ask("count")[2]["too-many-connections"] - told >= 10,
        "those for whom there is no descriptor are told so",
    )
    time.sleep(0.5 if setting.short else 5.0)
    load = (daemon.cpu() - cpu) / (time.monotonic() - begun)
    now = crowd.ask("count")[2]["too-many-connections"] - told
    verdict.check("refused for want of descriptors, told so", f"{now} of 10", now == 10)
    verdict.limit("cores used with none left", load, 0.5, "")
    word = "failed" if "event=reload-failed" in daemon.log else "done"
    verdict.note("a reload with none left", f"told as {word}")
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT))
    crowd.ask("close")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "event=reloaded" in daemon.log, "a reload works again")
    seen = len(list((daemon.directory / "edges").iterdir()))
    wait_until(
        lambda: len(list((daemon.directory / "edges").iterdir())) > seen,
        "edge lists are written again",
    )


SCENARIO = Scenario("descriptors", __doc__ or "", run)
