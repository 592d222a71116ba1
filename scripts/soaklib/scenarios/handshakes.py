"""Handshakes that do not end: 10,000 half-open connections at once.

Most of them connect to a port that speaks TLS and say nothing, or half a greeting; some say a byte
of it every half second; others have said half a frame on the plain port. Probes go through the
daemon meanwhile, plain and encrypted, and new clients shake hands. Nobody else may notice, and
once the time for handshakes is over all of them are cut.
"""

from __future__ import annotations

import signal
import time

from soaklib.daemons import Daemon, free_ports, listener
from soaklib.holders import holders
from soaklib.probes import Route, probes
from soaklib.scenario import Scenario, Setting, judge_end, judge_probe
from soaklib.verdict import Verdict, mib, percentile
from soaklib.wires import KIB, Address, Line, wait_until
from soaklib.workers import Worker
from tests import certificates

_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # how a handshake begins


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    made = certificates.make(setting.directory)
    daemon = Daemon(setting.directory, start=False, addressed=False)
    port = free_ports(daemon.host, 1)[0]
    path = setting.directory / "pubsubd.toml"

    raw, secure = Address((daemon.host, port)), Address((daemon.host, port), str(made.ca))
    tls = f'tls_certificate = "{made.server_certificate}"\ntls_key = "{made.server_key}"\n'

    def write(seconds: float) -> None:
        text = f"handshake_timeout = {seconds}\ncommand_timeout = {seconds}\n"
        text += listener("line", daemon.line) + listener("secure", raw, tls)
        path.write_text(text)

    write(300)
    daemon.flags = [f"--config={path}"]
    daemon.start()
    try:
        routes = [
            Route("a plain probe", daemon.line, daemon.line),
            Route("a TLS probe", secure, secure),
        ]
        with Worker(holders) as crowd, Worker(probes, routes) as probe:
            crowd.answer()
            probe.answer()
            _run(setting, verdict, daemon, raw, secure, crowd, probe)
            write(1)
            daemon.signal(signal.SIGHUP)
            wait_until(lambda: crowd.ask("count")[0] == 0, "all of them are cut")
            verdict.note("all of them", "cut, once the time was over")
            told = crowd.ask("count")[2]
            verdict.note("errors that they were told", dict(told))
            times = probe.ask("report")
            for route in routes:
                name, took = f"{route.name}, while all are cut", times[route.name].took
                p99, worst = percentile(took, 0.99), max(took, default=0.0)
                verdict.note(f"p99, worst of {name}", f"{p99:.1f}, {worst:.0f} ms")
                verdict.none(f"lost of {name}, of {len(took):,}", times[route.name].missing)
            wait_until(lambda: daemon.request("stats")["connections"] == 5, "nobody is left")
            verdict.note("memory afterwards", mib(daemon.memory()))
            left = daemon.descriptors()
        closed = daemon.request("stats")["closed"]
        verdict.note("closed, by reason", closed)
        verdict.note("descriptors with the probes alone", left)
        judge_end(verdict, daemon)
    finally:
        daemon.kill()


def _run(
    setting: Setting,
    verdict: Verdict,
    daemon: Daemon,
    raw: Address,
    secure: Address,
    crowd: Worker,
    probe: Worker,
) -> None:
    share = 60 if setting.short else 1_000
    with Line(secure) as line:
        line.ping()
    before, kinds = (
        daemon.memory(),
        (
            ("silent in TLS", raw, 4, b"", b""),
            ("half a greeting", raw, 3, _HELLO, b""),
            ("a greeting byte by byte", raw, 1, b"", _HELLO * 20),
            ("half a frame", daemon.line, 2, b"pub a 100 half", b""),
        ),
    )
    probe.ask("mark")
    held = 0
    for what, address, times, said, slowly in kinds:
        memory = daemon.memory()
        took = crowd.ask("open", address, times * share, said, slowly)
        held += times * share
        wait_until(
            lambda due=held: daemon.request("stats")["connections"] >= due, "all are accepted"
        )
        cost = (daemon.memory() - memory) / (times * share)
        verdict.note(
            f"{times * share:,} that are {what}",
            f"{cost / KIB:.1f} KiB each, opened in {took:.1f} s",
        )
    new = []
    until = time.monotonic() + (1.0 if setting.short else 20.0)
    while time.monotonic() < until:
        begun = time.monotonic()
        with Line(secure) as line:
            line.ping()
        new.append((time.monotonic() - begun) * 1e3)
        time.sleep(0.02)
    still, _, _ = crowd.ask("count")
    verdict.check("half-open meanwhile", f"{still:,}", still == held)
    verdict.note("memory before and with them", f"{mib(before)}, {mib(daemon.memory())}")
    verdict.limit("p99 of a new client's handshake and ping", percentile(new, 0.99), 50, "ms")
    found = probe.ask("report")
    probe.ask("mark")
    for name, one in found.items():
        judge_probe(verdict, name, one)


SCENARIO = Scenario("handshakes", __doc__ or "", run)
