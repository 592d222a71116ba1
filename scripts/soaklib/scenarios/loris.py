"""Slow clients on the hub port: requests and messages that come a byte at a time.

Hundreds of connections open a request over HTTP or a line of JSON and send a byte of it every half
second; others have sent a head that announces a large body and send nothing of that. Probes and
streams through both ports have to stay as they are. Who falls silent is cut after command_timeout;
where a login is required, who has none is cut after that time although bytes go on coming.
"""

from __future__ import annotations

from pubsubd.access.users import hash_password
from soaklib.daemons import Daemon, free_ports, listener
from soaklib.holders import holders
from soaklib.probes import Route, probes
from soaklib.scenario import Scenario, Setting, judge_end, judge_probe, judge_traffic
from soaklib.traffic import Pub, Sub, traffic
from soaklib.verdict import Verdict, mib
from soaklib.wires import KIB, Address, wait_until
from soaklib.workers import Worker

_HEAD = b"GET /ws HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100
_BODY = b"POST /pubsub/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
_JSON = b'{"command":"pubsub.publish","request_id":"' + b"x" * 600
_SECRET = "correct horse"


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    seconds = 1.0 if setting.short else 15.0
    users = setting.directory / "users"
    users.write_text(f"ann:{hash_password(_SECRET)}\n")
    users.chmod(0o600)
    daemon = Daemon(setting.directory, start=False, addressed=False)
    guarded = Address((daemon.host, free_ports(daemon.host, 1)[0]))
    text = f'users_file = "{users}"\nauth = "none"\nhub_rate = 0\ncommand_timeout = {seconds}\n'
    text += listener("line", daemon.line) + listener("hub", daemon.hub)
    text += listener("guarded-hub", guarded, 'auth = "required"\n')
    path = setting.directory / "pubsubd.toml"
    path.write_text(text)
    daemon.flags = [f"--config={path}"]
    daemon.start()
    try:
        _run(setting, verdict, daemon, guarded)
        judge_end(verdict, daemon)
    finally:
        daemon.kill()


def _run(setting: Setting, verdict: Verdict, daemon: Daemon, guarded: Address) -> None:
    share, bytes_ = (50, 3) if setting.short else (1_000, 60)
    pubs = [
        Pub("p00", daemon.line, rate=5_000),
        Pub("s00", daemon.hub, "ws", rate=50),
        Pub("s01", daemon.hub, "ndjson", rate=50),
    ]
    subs = [
        Sub("line", daemon.line),
        Sub("ws", daemon.hub, "ws", fast=False),
        Sub("ndjson", daemon.hub, "ndjson", fast=False),
    ]
    routes = [Route("a probe", daemon.line, daemon.line)]
    crowds = (
        (daemon.hub, b"G", _HEAD[1:bytes_]),
        (daemon.hub, b"{", _JSON[1:bytes_]),
        (daemon.hub, _BODY, b""),
        (guarded, b"G", _HEAD[1:]),
    )
    with (
        Worker(traffic, pubs, subs) as load,
        Worker(probes, routes) as probe,
        Worker(holders) as crowd,
    ):
        for worker in (load, probe, crowd):
            worker.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        load.ask("go")
        probe.ask("mark")
        before = daemon.memory()
        for address, said, slowly in crowds:
            crowd.ask("open", address, share, said, slowly)
        wait_until(lambda: daemon.request("stats")["connections"] >= 4 * share, "all are accepted")
        held = crowd.ask("count")[0]
        verdict.note("slow ones at a time", f"{held:,}")
        cost = (daemon.memory() - before) / (4 * share)
        verdict.note(
            "memory before and with them",
            f"{mib(before)}, {mib(daemon.memory())}: {cost / KIB:.1f} KiB each",
        )
        wait_until(lambda: crowd.ask("count")[0] == 0, "all of them are cut", patience=120)
        verdict.note("all of them", "cut in the end")
        report = load.ask("finish")
        times = probe.ask("report")["a probe"]
    judge_probe(verdict, "a probe", times)
    judge_traffic(verdict, report)
    closed = daemon.request("stats")["closed"]
    cut = sum(closed.get(code, 0) for code in ("command-timeout", "login-timeout"))
    verdict.check("cut for being slow", f"{cut:,} of {4 * share:,}", cut == 4 * share)


SCENARIO = Scenario("slow-loris", __doc__ or "", run)
