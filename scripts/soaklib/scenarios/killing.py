"""kill -9 and restart at random, in a mesh under load.

Daemons in a ring with chords carry numbered streams from each to each. Again and again one of them
is killed without warning, stays away for a while and is started again; its own clients connect
again as soon as they can. Among the others delivery goes on by other ways. Whatever happens, no
message comes twice to anybody, subscribers lose nothing that was published at their own daemon
while that lives, and within two seconds of a restart all streams flow again. (While ways change, a
message may overtake another one that goes by a longer way; how many did is told.)
"""

from __future__ import annotations

import signal
import time

from soaklib.daemons import Mesh
from soaklib.scenario import Scenario, Setting
from soaklib.traffic import Pub, Report, Sub, traffic
from soaklib.verdict import Verdict
from soaklib.wires import PATIENCE, SoakError
from soaklib.workers import Worker


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    count = 3 if setting.short else 5
    flags = ("--hub-rate=0", "--mesh-heartbeat=0.5")
    with Mesh(setting.directory, count, *flags) as mesh:
        pubs = [Pub(f"p{i:02d}", mesh.line(i), rate=2_000, renew=True) for i in range(count)]
        pubs += [
            Pub(f"s{i:02d}", mesh.hub(i), "ndjson" if i % 2 else "ws", rate=50, renew=True)
            for i in range(count)
        ]
        subs = [Sub(f"p{i:02d}", mesh.line(i), renew=True) for i in range(count)]
        subs += [
            Sub(f"s{i:02d}", mesh.hub(i), "ws" if i % 2 else "ndjson", fast=False, renew=True)
            for i in range(count)
        ]
        with Worker(traffic, pubs, subs) as load:
            load.answer()
            verdict.check("every stream flows", load.ask("prime"), good=True)
            load.ask("go")
            _kill(setting, verdict, mesh, load)
            report: Report = load.ask("finish")
        _judge(verdict, report)
        faults = [line for one in mesh.daemons for line in one.faults()]
        verdict.none("faults in the logs", len(faults), faults[:2])
        ended = [one.stop() for one in mesh.daemons]
        verdict.check("exit status of each", ended, not any(ended))


def _kill(setting: Setting, verdict: Verdict, mesh: Mesh, load: Worker) -> None:
    others, back = [], []
    rounds = 2 if setting.short else 20
    for _ in range(rounds):
        victim = setting.rng.randrange(len(mesh.daemons))
        name = f"{victim:02d}"
        mesh.daemons[victim].signal(signal.SIGKILL)
        mesh.daemons[victim].wait()
        load.ask("mark")
        others.append(_wait_flow(load, name))
        time.sleep(setting.rng.random() * (0.2 if setting.short else 2.0))
        mesh.daemons[victim].start()
        load.ask("mark")
        back.append(_wait_flow(load, ""))
        time.sleep(setting.rng.random() * (0.2 if setting.short else 2.0))
    verdict.note("daemons killed and started again", rounds)
    verdict.limit("longest until the others hear each other", max(others), 2.0, "s")
    verdict.limit("longest after a restart until all hear all", max(back), 2.0, "s")


def _wait_flow(load: Worker, without: str) -> float:
    """Wait until all streams flow but those from and to one daemon; return the seconds."""
    begun = time.monotonic()
    while True:
        silent = [
            f"{sub} of {name}"
            for sub, name in load.ask("unheard")
            if not without or without not in (sub[1:], name[1:])
        ]
        if not silent:
            return time.monotonic() - begun
        if time.monotonic() - begun > PATIENCE:
            raise SoakError(f"nothing comes to {', '.join(silent[:4])}")
        time.sleep(0.02)


def _judge(verdict: Verdict, report: Report) -> None:
    own = far = excused = 0
    for sub, flows in report.flows.items():
        for name, flow in flows.items():
            excused += flow.excused
            if sub[1:] == name[1:]:
                own += flow.lost
            else:
                far += flow.lost
    verdict.note("messages published, delivered", f"{report.published:,}, {report.delivered:,}")
    verdict.none("lost that the own daemon had", own, report.samples())
    verdict.note("lost with daemons that were killed", f"{far + excused:,}")
    verdict.none("messages doubled", report.doubled, report.samples())
    verdict.note("messages that came after later ones, by another way", report.late)
    verdict.none("messages changed", report.changed, report.samples())
    verdict.note("connections that broke with them", sum(report.broken.values()))


SCENARIO = Scenario("kill-restart", __doc__ or "", run)
