"""SIGTERM under full load, with every kind of client attached.

Publishers fill the daemon as fast as they can: plain, encrypted, by a Unix socket, over both kinds
of hub connection and over a link from another daemon. Subscribers of all these kinds listen, one
of them slow but alive; others have half a frame said, half a handshake, only subscribed, have shut
down their sending side, or have stopped. When SIGTERM comes, most publishers have just written
their last run, and two never stop. What has been written by then has to be delivered to everybody
who reads, who is listening has to be told shutting-down, and the status is 0 within
drain_timeout and the two seconds for goodbyes.
"""

from __future__ import annotations

import select
import signal
import socket
import time

from soaklib.daemons import Daemon, free_ports, listener, running
from soaklib.scenario import Scenario, Setting, judge_messages
from soaklib.traffic import Pub, Report, Sub, traffic
from soaklib.verdict import Verdict
from soaklib.wires import MIB, Address, Line, frame, wait_until
from soaklib.workers import Worker
from tests import certificates


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it, once in the short form and five times in the long one."""
    made = certificates.make(setting.directory)
    for number in range(1 if setting.short else 5):
        _once(setting, verdict, made, number, 8.0 if setting.short else 10.0)


def _once(
    setting: Setting,
    verdict: Verdict,
    made: certificates.Certificates,
    number: int,
    timeout: float,
) -> None:
    directory = setting.directory / f"round{number}"
    directory.mkdir()
    unix = Address(str(directory / "socket"))
    daemon = Daemon(directory, start=False, addressed=False)
    secure = Address((daemon.host, free_ports(daemon.host, 1)[0]), str(made.ca))
    path = directory / "pubsubd.toml"
    tls = f'tls_certificate = "{made.server_certificate}"\ntls_key = "{made.server_key}"\n'
    text = f"hub_rate = 0\ndrain_timeout = {timeout:g}\n"
    text += listener("line", daemon.line) + listener("hub", daemon.hub)
    text += listener("unix", unix) + listener("secure", secure, tls)
    path.write_text(text)
    daemon.flags = [f"--config={path}", "--mesh=drain", "--node=ending"]
    daemon.start()
    try:
        peer = f"--peer={daemon.host}:{daemon.port}"
        other = directory / "other"
        with running(other, "--mesh=drain", "--node=staying", peer, "--hub-rate=0") as staying:
            _drain(setting, verdict, daemon, staying, unix, secure, timeout)
    finally:
        daemon.kill()


def _drain(
    setting: Setting,
    verdict: Verdict,
    daemon: Daemon,
    staying: Daemon,
    unix: Address,
    secure: Address,
    timeout: float,
) -> None:
    wait_until(lambda: staying.request("peers")["links"], "the link is up")
    pubs = [
        Pub("p00", daemon.line, rate=0),
        Pub("p01", secure, rate=0),
        Pub("p02", unix, rate=0),
        Pub("p03", staying.line, rate=20_000),
        Pub("s00", daemon.line, rate=100),
        Pub("s01", daemon.hub, "ndjson", rate=100),
        Pub("s02", daemon.hub, "ws", rate=100),
    ]
    subs = [
        Sub("line", daemon.line),
        Sub("tls", secure),
        Sub("unix", unix),
        Sub("shut", daemon.line, shut=True),
        Sub("linked", staying.line),
        Sub("slow-line", daemon.line, fast=False),
        Sub("ndjson", daemon.hub, "ndjson", fast=False),
        Sub("ws", daemon.hub, "ws", fast=False),
    ]
    rate = 2_000 if setting.short else 0  # of those who go on for as long as it takes
    endless = [Pub("p10", daemon.line, rate=rate), Pub("p11", secure, rate=rate)]
    names = [pub.name for pub in endless]
    with Worker(traffic, pubs, subs, names) as load, Worker(traffic, endless, []) as storm:
        load.answer()
        storm.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        others = _others(daemon, secure)
        storm.ask("go")
        load.ask("go")
        time.sleep(0.4 if setting.short else 1.0)
        written = load.ask("pause")
        daemon.signal(signal.SIGTERM)
        begun = time.monotonic()
        verdict.check("all that was begun was written", written, written)
        status = daemon.wait(timeout + 5)
        took = time.monotonic() - begun
        report: Report = load.ask("collect", 2.0)
        storm.ask("pause", 0.1)
    verdict.check("exit status", status, status == 0)
    verdict.limit("from SIGTERM to the end", took, timeout + 3, "s")
    verdict.note("messages published before it", f"{report.published:,}")
    verdict.note("messages delivered", f"{report.delivered:,}")
    judge_messages(verdict, report)
    here = [sub.name for sub in subs if sub.name != "linked"]
    untold = [name for name in here if "shutting-down" not in report.told[name]]
    verdict.none("subscribers not told shutting-down", len(untold), untold)
    silent = [name for name, sock in others.items() if not _ended(sock)]
    verdict.none("other clients whose connection did not end", len(silent), silent)
    faults = daemon.faults()
    verdict.none("faults in the log", len(faults), faults[:2])
    for sock in others.values():
        sock.close()


def _others(daemon: Daemon, secure: Address) -> dict[str, socket.socket]:
    """Clients that do not do what subscribers and publishers usually do."""
    found = {}
    found["half a frame"] = daemon.line.connect()
    found["half a frame"].sendall(b"pub //soak/never 100 half")
    found["half a handshake"] = Address(secure.where).connect()
    found["half a handshake"].sendall(b"\x16\x03\x01\x02\x00\x01")
    found["half a request"] = daemon.hub.connect()
    found["half a request"].sendall(b"GET /ws HTTP/1.1\r\nHost: ")
    found["half a line of JSON"] = daemon.hub.connect()
    found["half a line of JSON"].sendall(b'{"command":"pubsub.')
    found["idle"] = daemon.line.connect()
    found["subscribed only"] = daemon.line.connect()
    found["subscribed only"].sendall(b"sub nothing/of/this\n")
    found["shut after publishing"] = daemon.line.connect()
    found["shut after publishing"].sendall(frame(b"bye", b"x") * 1_000)
    found["shut after publishing"].shutdown(socket.SHUT_WR)
    stopped = Address(daemon.line.where, buffer=4096)
    found["stopped"] = stopped.connect()
    found["stopped"].sendall(b"sub //fwd/soak/\n")
    with Line(daemon.line) as line:
        line.ping()
    return found


def _ended(sock: socket.socket) -> bool:
    """Whether the connection has been closed by the daemon, behind whatever it had sent."""
    sock.settimeout(0)
    until = time.monotonic() + 2
    while time.monotonic() < until:
        try:
            if not sock.recv(MIB):
                return True
        except BlockingIOError:
            select.select([sock], [], [], 0.1)
        except OSError:
            return True
    return False


SCENARIO = Scenario("drain", __doc__ or "", run)
