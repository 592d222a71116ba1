"""A reload a second for a minute, under load, on every kind of connection.

The daemon has plain and encrypted listeners for both ports, a Unix socket, users and rules.
Each reload changes limits, rules, users and certificates; every fifth one is of a file with a
fault, which has to be told and to change nothing. Meanwhile publishers and subscribers, logged in
or not, encrypted or not, on both ports, keep numbered streams going. No connection may break,
nothing may get lost, and who connects anew is shown the new certificate.
"""

from __future__ import annotations

import signal
import ssl
import time

from pubsubd.access.users import hash_password
from soaklib.daemons import Daemon, free_ports, listener
from soaklib.probes import Route, probes
from soaklib.scenario import Scenario, Setting, judge_end, judge_probe, judge_traffic
from soaklib.traffic import Pub, Sub, traffic
from soaklib.verdict import Verdict, mib
from soaklib.wires import Address, client_context, wait_until
from soaklib.workers import Worker
from tests import certificates

_SECRET = "correct horse"


class _Settings:
    """The file, which is another one each time."""

    def __init__(self, daemon: Daemon, setting: Setting) -> None:
        self._made = certificates.make(setting.directory)
        self._users = setting.directory / "users"
        self._rng = setting.rng
        self._hash = hash_password(_SECRET)
        self._pair = self._made.server("localhost")
        self.path = setting.directory / "pubsubd.toml"
        where = (daemon.host, daemon.port), (daemon.host, daemon.hub_port)
        secure, secure_hub = free_ports(daemon.host, 2)
        ca, ann = str(self._made.ca), self._made.client("ann")
        self.line, self.hub = map(Address, where)
        self.logged_in = Address(where[0], login=f"ann {_SECRET}")
        self.unix = Address(str(setting.directory / "socket"))
        self.secure = Address((daemon.host, secure), ca, login=f"ann {_SECRET}")
        self.known = Address((daemon.host, secure), ca, str(ann.certificate), str(ann.key))
        self.secure_hub = Address((daemon.host, secure_hub), ca)

    def write(self, number: int) -> None:
        rng = self._rng
        self._pair = self._made.server("localhost")
        strangers = "".join(f"user{i}:{self._hash}\n" for i in range(number % 7))
        self._users.write_text(f"ann:{self._hash}\n{strangers}")
        self._users.chmod(0o600)
        tls = (
            f'tls_certificate = "{self._pair.certificate}"\ntls_key = "{self._pair.key}"\n'
            f'tls_client_ca = "{self._made.ca}"\n'
        )
        text = (
            f'users_file = "{self._users}"\nauth = "none"\nhub_rate = 0\n'
            f"max_pending = {rng.choice((8, 12, 16))}_000_000\n"
            f"command_timeout = {rng.randint(10, 60)}\n"
            f"max_connections = {rng.randint(500, 900)}\n"
            '[[acl]]\nwho = ["*", "ann"]\npublish = ["//soak/", "//slow/", "//probe/"]\n'
            f'receive = ["//fwd/", "{rng.random()}"]\n'
            f'[[acl]]\nwho = ["ann"]\npublish = ["{rng.random()}/", "//pubsubd/"]\n'
        )
        text += listener("line", self.line) + listener("hub", self.hub)
        text += listener("unix", self.unix) + listener("secure-hub", self.secure_hub, tls)
        text += listener("secure", self.secure, 'auth = "required"\n' + tls)
        self.path.write_text(text)

    def spoil(self) -> None:
        self.path.write_text("max_pendin = 5\n" + self.path.read_text())

    def shown(self) -> bool:
        """Whether who connects now is shown the certificate of the last good file."""
        with self.secure_hub.connect() as sock:
            assert isinstance(sock, ssl.SSLSocket)
            shown = sock.getpeercert(binary_form=True)
        own = ssl.PEM_cert_to_DER_cert(self._pair.certificate.read_text())
        return shown == own


def _reloads(daemon: Daemon) -> tuple[int, int]:
    """How many reloads the log tells of, those that failed apart."""
    text = daemon.log
    return text.count("event=reloaded"), text.count("event=reload-failed")


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    daemon = Daemon(setting.directory, start=False, addressed=False)
    settings = _Settings(daemon, setting)
    settings.write(0)
    daemon.flags = [f"--config={settings.path}"]
    daemon.start()
    try:
        _run(setting, verdict, daemon, settings)
    finally:
        daemon.kill()


def _run(setting: Setting, verdict: Verdict, daemon: Daemon, settings: _Settings) -> None:
    client_context.cache_clear()
    rate = 5_000.0
    pubs = [
        Pub("p00", settings.line, rate=rate),
        Pub("p01", settings.logged_in, rate=rate),
        Pub("p02", settings.secure, rate=rate),
        Pub("p03", settings.unix, rate=rate),
        Pub("s00", settings.known, rate=50),
        Pub("s01", settings.hub, "ndjson", rate=50),
        Pub("s02", settings.secure_hub, "ws", rate=50),
    ]
    subs = [
        Sub("line", settings.line),
        Sub("logged-in", settings.logged_in),
        Sub("tls", settings.secure),
        Sub("tls-certificate", settings.known),
        Sub("unix", settings.unix),
        Sub("shut", settings.line, shut=True),
        Sub("slow-line", settings.line, fast=False),
        Sub("ndjson", settings.hub, "ndjson", fast=False),
        Sub("ws", settings.hub, "ws", fast=False),
        Sub("tls-ws", settings.secure_hub, "ws", fast=False),
    ]
    routes = [
        Route("a plain probe", settings.line, settings.line),
        Route("a TLS probe", settings.secure, settings.secure),
    ]
    with Worker(traffic, pubs, subs) as load, Worker(probes, routes) as probe:
        load.answer()
        probe.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        load.ask("go")
        probe.ask("mark")
        before, descriptors = daemon.memory(), daemon.descriptors()
        good = bad = stale = 0
        begun = time.monotonic()
        for number in range(1, 21 if setting.short else 61):
            if number % 5:
                settings.write(number)
                good += 1
            else:
                settings.spoil()
                bad += 1
            daemon.signal(signal.SIGHUP)
            wait_until(
                lambda due=(good, bad): _reloads(daemon) == due,
                f"reload {number} is done",
                tick=0.02,
            )
            if number % 5:
                stale += not settings.shown()
            if not setting.short:
                time.sleep(max(0.0, begun + number - time.monotonic()))
        took = time.monotonic() - begun
        verdict.note("reloads, of these with a fault", f"{good + bad} in {took:.1f} s, {bad}")
        verdict.none("reloads after which the old certificate was shown", stale)
        report = load.ask("finish")
        times = probe.ask("report")
        for route in routes:
            judge_probe(verdict, route.name, times[route.name])
        after = daemon.descriptors()
    judge_traffic(verdict, report)
    verdict.check("descriptors, before and after", f"{descriptors}, {after}", after == descriptors)
    verdict.note("memory, before and after", f"{mib(before)}, {mib(daemon.memory())}")
    told = daemon.log.count("event=reload-failed")
    verdict.check("faulty files told", f"{told} of {bad}", told == bad)
    judge_end(verdict, daemon)


SCENARIO = Scenario("reload", __doc__ or "", run)
