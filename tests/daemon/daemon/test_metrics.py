"""Do the metrics say what has happened, and can nobody from outside make them grow?"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pubsubd.access.identity import AuthError, Identity
from pubsubd.access.users import make_token
from pubsubd.broker.turn import Steps
from pubsubd.daemon.lag import BUCKETS, LoopLag
from pubsubd.daemon.metrics import AUTH_CODES, MAX_LINKS, OPENMETRICS, TEXT, Metrics, Sources
from pubsubd.daemon.run import Config, run
from pubsubd.hub.replies import CODES as HUB_ERRORS
from pubsubd.protocol import errors
from pubsubd.protocol.errors import HUB_CLOSES, MESH_CLOSES, ConfigError
from pubsubd.protocol.limits import MAX_LINE, Limits
from pubsubd.transport.tasks import Tasks
from tests.daemons import DEADLINE, ROOT, Daemon, Line, environment, frame, tool, wait_until
from tests.hubs import Lines, Room, Socket, client_frame, message_b
from tests.scrapes import Scrape, request, scrape
from tests.webs import build

Start = Callable[..., Daemon]
Dial = Callable[..., Line]


def made(steps: Steps[tuple[bytes, str]]) -> tuple[bytes, str]:
    """Return what is made when all steps are taken."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


class Port(Room):
    """A hub port without sockets, and what it tells of itself."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.lag = LoopLag()
        self.metrics = Metrics(Sources(self.broker, self.hub, self.lag))
        self.hub.scrape = self.metrics.render

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return what is told to who asks a moment later."""
        self.now += 1
        return made(self.metrics.render(accept))

    def scrape(self) -> Scrape:
        return Scrape(self.render()[0].decode())

    def http(self, text: bytes) -> tuple[bytes, bytes]:
        """Return head and body of the answer to one request, of a new connection."""
        self.join("http")
        self.say_raw("http", text)
        heard, self.heard["http"] = self.heard["http"], b""
        if "http" in self.connections:
            self.leave("http")
        self.ended.pop("http", None)
        head, _, body = heard.partition(b"\r\n\r\n")
        return head, body


def fresh(daemon: Daemon, shows: Callable[[Scrape], object]) -> Scrape:
    """Return the first scrape that shows something: one may be as it was a moment ago."""
    told: list[Scrape] = []
    wait_until(lambda: told.append(scrape(daemon)) or shows(told[-1]), "a fresh scrape")
    return told[-1]


GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


# What is counted


def test_messages_and_bytes_are_those_that_came_and_went() -> None:
    port = Port()
    port.join_line("ann", "bob", "cid")
    for name in ("ann", "bob"):
        port.say_raw(name, b"sub a\n")
    for _ in range(10):
        port.say_raw("cid", b"pub a 3 xyz\n" * 7)
    port.say_raw("cid", b"pub b 1 x\n")
    told = port.scrape()
    assert told("messages_received_total") == 71
    assert told("messages_sent_total") == 140
    assert told("received_bytes_total") == 2 * 6 + 70 * 12 + 10
    assert told("subscriptions") == 2
    assert told("substrings") == 1
    assert told("messages_dropped_total") == 0


def test_a_message_that_needs_no_lookup_is_a_hit() -> None:
    port = Port()
    port.join_line("ann")
    for number in range(5):
        port.say_raw("ann", b"pub name/%d 1 x\n" % number * 100)
    told = port.scrape()
    # A name is remembered when it comes for the second time.
    assert told("route_lookups_total") == 10
    assert told("route_hits_total") == 490
    assert told("cached_names") == told("cached_headers") == 5


def test_a_hit_that_was_told_is_not_taken_back() -> None:
    port = Port()
    port.join_line("ann")
    port.say_raw("ann", b"pub name 1 x\n" * 10)
    before = port.scrape()("route_hits_total")
    for number in range(100):
        port.broker.delivery.count_receivers(b"%d" % number)
    assert port.scrape()("route_hits_total") == before == 8


def test_half_a_command_is_counted_when_the_connection_ends() -> None:
    port = Port()
    port.join_line("ann")
    port.say_raw("ann", b"pub a 100 x")
    for _ in port.broker.leave(port.lines["ann"]):
        pass
    assert port.scrape()("half_frames_total") == 1


def test_errors_are_told_by_their_code() -> None:
    port = Port()
    port.join_line("ann", "bob")
    port.say_raw("ann", b"hello\nhello\nunsub x\n")
    port.say_raw("bob", b"pub a 1 xyz\n")
    told = port.scrape()
    assert told.told("errors_total") == {
        "unknown-command": 2,
        "not-subscribed": 1,
        "wrong-length": 1,
    }


def test_every_code_is_there_from_the_start() -> None:
    told = Port().scrape()
    tables = [table for table in vars(errors).values() if isinstance(table, dict)]
    codes = {code for table in tables for code in table if isinstance(code, str)} - {"other"}
    shown = {key.partition("=")[2] for (key,) in told.samples["pubsubd_errors_total"]}
    known = {code for name in ("STAYS", "CLOSES") for code in getattr(errors, name)}
    assert (
        known | {*HUB_CLOSES, *MESH_CLOSES} | {"other"} | {f"hub:{code}" for code in HUB_ERRORS}
        == shown
    )
    assert known | {*HUB_CLOSES, *MESH_CLOSES} <= codes
    assert set(AUTH_CODES) <= shown
    assert not told.told("errors_total")


def test_every_code_of_hub_error_is_known() -> None:
    found = set()
    for module in (ROOT / "pubsubd" / "hub").rglob("*.py"):
        code = module.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:RefusedError|\.error)\(\s*"(\w+)"', code))
    assert len(found) > 5
    assert found <= set(HUB_ERRORS)


def test_a_code_that_somebody_else_has_made_up_is_no_label() -> None:
    port = Port()
    counters = port.broker.counters
    for number in range(1_000):
        counters.errors[f"made-up-{number}"] += 1
        counters.closed[f"made-up-{number}"] += 2
    told = port.scrape()
    assert told.told("errors_total") == {"other": 1_000}
    assert told.told("connections_closed_total") == {"other": 2_000}
    assert "made-up" not in told.text


def test_refusals_are_those_errors_that_are_about_rights() -> None:
    port = Port()
    port.broker.counters.errors.update({"not-allowed": 3, "login-failed": 2, "bad-name": 9})
    assert port.scrape().told("auth_refusals_total") == {"not-allowed": 3, "login-failed": 2}


def test_connections_are_told_by_what_they_speak() -> None:
    port = Port()
    port.join("new", "lines", "hub", "synap", "envelope")
    port.join_line("ann", "bob")
    port.say("lines", {"type": "ping"})
    port.say("hub", message_b("hub:subscribe", {"topic": "t"}))
    port.say("synap", {"command": "pubsub.subscribe", "payload": {"topics": ["t"]}})
    port.say("envelope", {"type": "__subscribe", "payload": {"topic": "a:b"}, "id": "x"})
    port.join("http")
    port.say_raw("http", GET % b"/healthz")
    told = port.scrape()
    assert told.samples["pubsubd_connections"] == {
        ("dialect=none", "listener=hub", "transport=none"): 1,
        ("dialect=none", "listener=hub", "transport=ndjson"): 1,
        ("dialect=hub", "listener=hub", "transport=ndjson"): 1,
        ("dialect=synap", "listener=hub", "transport=ndjson"): 1,
        ("dialect=envelope", "listener=hub", "transport=ndjson"): 1,
        ("dialect=none", "listener=hub", "transport=http"): 1,
        ("dialect=line", "listener=dialled", "transport=line"): 2,
    }
    assert told("connections_accepted_total") == 8
    assert told("connections_limit") == Limits().max_connections


def test_the_backlog_is_that_of_all_and_of_the_one_with_the_most() -> None:
    port = Port(max_pending=1_000)
    port.join_line("ann", "bob")
    port.join("web")
    port.lines["ann"].outbox.put(bytes(1_200))
    port.lines["bob"].outbox.put(bytes(300))
    port.connections["web"].peer.outbox.put(bytes(700))
    told = port.scrape()
    assert told("backlog_bytes") == 2_200
    assert told("backlog_largest_bytes") == 1_200
    assert told("backlog_largest_ratio") == 0.7  # of what may wait on the hub port, not of 8 MiB


def test_the_hub_port_tells_what_it_holds() -> None:
    port = Port()
    port.join("ann", "bob", "cid")
    port.register_a("ann")
    port.say("bob", {"command": "pubsub.subscribe", "payload": {"topics": ["t", "u"]}})
    port.say("cid", {"type": "__subscribe", "payload": {"topic": "a:b"}, "id": "x"})
    port.say("cid", {"type": "__nonsense", "id": "x", "payload": None})
    before = port.scrape()
    port.say("ann", message_b("hub:nonsense"))
    told = port.scrape()
    assert told("hub_actors") == 1
    assert told("hub_topics") == 3
    assert told("hub_subscribers") == 1
    assert told("hub_envelopes_ignored_total") == 1
    assert (before("hub_messages_total"), told("hub_messages_total")) == (2, 3)
    assert (before("hub_messages_failed_total"), told("hub_messages_failed_total")) == (0, 1)


def test_the_lag_is_a_histogram_of_all_measurements() -> None:
    port = Port()
    for late in (0.0, 0.0005, 0.003, 7.0):
        port.lag.note(late)
    rows = port.scrape().samples
    assert rows["pubsubd_loop_lag_seconds_count"][()] == 4
    assert rows["pubsubd_loop_lag_seconds_sum"][()] == pytest.approx(7.0035)
    buckets = rows["pubsubd_loop_lag_seconds_bucket"]
    assert {float(key.partition("=")[2]) for (key,) in buckets} == {*BUCKETS, float("inf")}
    at = {key.partition("=")[2]: value for (key,), value in buckets.items()}
    assert (at["0.001"], at["0.0025"], at["0.005"], at["5.0"], at["+Inf"]) == (2, 2, 3, 3, 4)


def test_the_process_is_told_as_the_system_tells_it() -> None:
    rows = Port().scrape().samples
    assert rows["process_open_fds"][()] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=3)
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    assert rows["process_resident_memory_bytes"][()] == pytest.approx(resident, rel=0.05)
    assert rows["process_virtual_memory_bytes"][()] >= resident
    assert rows["process_cpu_seconds_total"][()] == pytest.approx(sum(os.times()[:2]), abs=0.5)
    before = time.time()
    stat = subprocess.run(
        ["ps", "-o", "etimes=", "-p", str(os.getpid())], capture_output=True, check=True, text=True
    )
    begun = rows["process_start_time_seconds"][()]
    assert before - 2 <= begun + int(stat.stdout) <= time.time() + 2


# The mesh


def mesh_scrape(node: Any) -> Scrape:
    port = Room()
    sources = Sources(node.broker, port.hub, LoopLag(), node.report)
    return Scrape(made(Metrics(sources).render(""))[0].decode())


def test_the_mesh_is_told_as_its_daemon_knows_it() -> None:
    web = build(["ab", "bc"])
    web["a"].say("ann", b"sub //fwd/x\n")
    web.run()
    for _ in range(4):
        web["c"].say("cid", b"pub //x/y 1 z\n")
        web.run(0.1)
    for name, links, counted in (("a", 1, (0, 4, 0)), ("b", 2, (0, 4, 4)), ("c", 1, (4, 0, 0))):
        told = mesh_scrape(web[name])
        assert told.samples["pubsubd_mesh_info"] == {("mesh=default", f"node={name}"): 1}
        assert told("mesh_links") == links
        assert told.told("mesh_daemons") == {"reachable": 3}
        assert told("mesh_batches_originated_total") == counted[0]
        assert told("mesh_batches_received_total") == counted[1]
        assert told("mesh_batches_relayed_total") == counted[2]
        assert not told.told("mesh_refusals_total")
        assert told("mesh_adverts_sent_total") > 0
        assert told("mesh_adverts_received_total") > 0
        assert told("mesh_adverts_sent_bytes_total") > told("mesh_adverts_sent_total")
        assert told("mesh_adverts_received_bytes_total") > told("mesh_adverts_received_total")
        ends = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}[name]
        trips = told.told("mesh_link_round_trip_seconds")
        assert trips == {end: pytest.approx(0.002) for end in ends}
        backlogs = told.samples["pubsubd_mesh_link_backlog_bytes"]
        assert backlogs == {(f"node={end}",): 0 for end in ends}
        kinds = told.samples["pubsubd_connections"]
        assert kinds["dialect=mesh", "listener=dialled", "transport=line"] == links


def test_a_daemon_that_is_gone_is_unreachable_and_what_is_dialled_in_vain_is_told() -> None:
    web = build(["ab", "bc"])
    web["a"].report.dialling["192.0.2.1:9014"] = 3, "no answer"
    web.kill("c")
    web.run()
    told = mesh_scrape(web["a"])
    assert told.told("mesh_daemons") == {"reachable": 2, "unreachable": 1}
    assert told("mesh_dialling") == 1
    assert told("mesh_flooding") == 0


def test_what_the_mesh_refuses_or_loses_is_counted_by_reason() -> None:
    web = build(["ab"])
    web["a"].say("ann", b"pub //fwd/peers/default/x 1 x\n")
    counters = web["a"].mesh.counters
    counters.refused["what-they-say"] += 2
    counters.duplicates, counters.expired, counters.broken, counters.unknown_origin = 5, 6, 7, 8
    counters.dropped = 9
    web["a"].mesh.links["b"].dropped = 10
    told = mesh_scrape(web["a"])
    assert told.told("mesh_refusals_total") == {"forged-advert": 1, "other": 2}
    assert told("mesh_batches_duplicate_total") == 5
    assert told.told("mesh_batches_faulty_total") == {
        "expired": 6,
        "broken": 7,
        "unknown-origin": 8,
    }
    assert told("mesh_batches_dropped_total") == 19


def test_links_have_series_of_their_own_up_to_a_number() -> None:
    (link,) = build(["ab"])["a"].mesh.links.values()
    web = build(["ab"])
    for number in range(2 * MAX_LINKS):
        web["a"].mesh.links[f"n{number}"] = SimpleNamespace(  # type: ignore[assignment]
            node=f"n{number}", rtt_ms=1.0, peer=link.peer, dropped=0
        )
    told = mesh_scrape(web["a"])
    assert told("mesh_links") == 2 * MAX_LINKS + 1
    for family in ("mesh_link_round_trip_seconds", "mesh_link_backlog_bytes"):
        rows = told.samples[f"pubsubd_{family}"]
        assert len(rows) == MAX_LINKS
        assert ("node=b",) in rows  # the one that has lasted longest


# How it is told


def test_the_reasons_of_the_mesh_are_all_known() -> None:
    found = set()
    for module in (ROOT / "pubsubd" / "mesh").glob("*.py"):
        code = module.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?<!letters)\.refuse\("([\w-]+)"', code))
        found |= set(re.findall(r'refused\["([\w-]+)"\]', code))
    assert len(found) >= 4
    told = mesh_scrape(build(["ab"])["a"]).samples["pubsubd_mesh_refusals_total"]
    assert {(f"reason={code}",) for code in found | set(MESH_CLOSES)} <= set(told)


class Peers(dict[int, Any]):
    """Connections that know how often they were gone through."""

    rounds = 0

    def items(self) -> Any:
        self.rounds += 1
        return super().items()

    def values(self) -> Any:
        self.rounds += 1
        return super().values()

    def __iter__(self) -> Iterator[int]:
        self.rounds += 1
        return super().__iter__()


def test_a_scrape_goes_once_through_the_connections_and_does_little_for_each() -> None:
    def work(count: int) -> tuple[int, int]:
        port = Port()
        port.join_line(*map(str, range(count)))
        port.join(*(f"web{number}" for number in range(count)))
        for number in range(count):
            port.say(f"web{number}", {"type": "ping"})
        port.broker.peers = peers = Peers(port.broker.peers)
        calls = 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        port.render("")
        peers.rounds = 0
        sys.setprofile(note)
        try:
            port.render("")
        finally:
            sys.setprofile(None)
        return calls, peers.rounds

    (few, once), (many, again) = work(100), work(600)
    assert once == again == 1
    assert (many - few) / 1_000 <= 4  # calls for a connection


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.7,text/plain;q=0.5", OPENMETRICS),
        ("text/plain, Application/OpenMetrics-Text", OPENMETRICS),
        ("application/openmetrics-text-like", TEXT),
    ],
)
def test_openmetrics_is_for_those_who_name_it(accept: str, kind: str) -> None:
    body, told = Port().render(accept)
    assert told == kind
    assert body.endswith(b"# EOF\n") is (kind == OPENMETRICS)


def test_openmetrics_has_the_same_samples() -> None:
    port = Port()
    port.join_line("ann")
    port.say_raw("ann", b"sub a\npub a 1 x\nnonsense\n")
    families = list(text_string_to_metric_families(port.render(OPENMETRICS)[0].decode()))
    found = {
        (one.name, tuple(sorted(f"{key}={text}" for key, text in one.labels.items())))
        for family in families
        for one in family.samples
    }
    plain = port.scrape()
    assert found == {(name, key) for name, rows in plain.samples.items() for key in rows}


# The paths


def test_metrics_are_read_and_nothing_else_is_done_with_them() -> None:
    port = Port()
    head, body = port.http(GET % b"/metrics")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert f"Content-Type: {TEXT}".encode() in head
    assert Scrape(body.decode())("ready") == 1
    only_head, nothing = port.http(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert only_head.startswith(b"HTTP/1.1 200 ")
    assert nothing == b""
    size = re.search(rb"Content-Length: (\d+)", only_head)
    assert size
    assert int(size[1]) > 1_000
    refused, _ = port.http(b"POST /metrics HTTP/1.0\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 405 ")
    assert b"Allow: GET, HEAD" in refused


def test_hosts_and_origins_are_looked_at_first() -> None:
    port = Port()
    head, body = port.http(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 421 ")
    assert b"pubsubd_" not in body
    head, body = port.http(
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"pubsubd_" not in body


def test_without_anybody_to_tell_them_there_are_no_metrics() -> None:
    port = Port()
    port.hub.scrape = None
    assert port.http(GET % b"/metrics")[0].startswith(b"HTTP/1.1 404 ")


class Tokens:
    """An authority whose tokens are the capabilities."""

    def verify(self, token: str, now: float) -> Identity:
        if token == "bad":
            raise AuthError("unauthorized", "no")
        return Identity("browser/ann", frozenset(token.split("+")), None)

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        ("", 401, "login-required"),
        ("bad", 401, "login-failed"),
        ("send", 403, "not-allowed"),
        ("send+receive", 200, None),
    ],
)
def test_a_signed_token_has_to_let_one_receive(token: str, status: int, code: str | None) -> None:
    port = Port(authority=Tokens())
    header = f"Authorization: Bearer {token}\r\n" if token else ""
    text = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"
    head, body = port.http(text.encode())
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (b"pubsubd_ready" in body) is (status == 200)
    assert port.scrape().told("auth_refusals_total") == ({code: 1} if code else {})


@pytest.mark.parametrize("path", [b"/healthz", b"/health", b"/readyz"])
def test_probes_ask_for_no_login_and_tell_a_full_daemon_from_one_that_ends(path: bytes) -> None:
    port = Port(authority=Tokens(), line_limits=Limits(max_connections=2))
    ready = path == b"/readyz"
    assert port.scrape()("ready") == 1
    for state, status in (("ok", 200), ("full", 503), ("ending", 503)):
        if state == "full":
            port.join_line("ann")
        if state == "ending":
            port.hub.ready = False
        head, body = port.http(GET % path)
        assert head.startswith(b"HTTP/1.1 %d " % (status if ready else 200))
        assert json.loads(body)["status"] == (state if ready else "ok")
        assert port.http(b"HEAD %b HTTP/1.0\r\n\r\n" % path)[1] == b""
    assert port.scrape()("ready") == 0


# Real daemons


async def test_a_daemon_that_ends_is_not_ready_for_those_who_are_still_there() -> None:
    async with trio.open_nursery() as nursery:
        ports = await nursery.start(run, Config(port=0, hub_port=0))
        stream = await trio.open_tcp_stream("127.0.0.1", ports["hub"]["port"])
        os.kill(os.getpid(), signal.SIGTERM)
        heard = b""
        with trio.fail_after(DEADLINE):
            async with stream:
                while b"HTTP/1.1 503 " not in heard:
                    await stream.send_all(GET % b"/readyz")
                    part = await stream.receive_some(65_536)
                    assert part, "closed without a word"
                    heard += part
        assert b'"status":"ending"' in heard


def test_promtool_finds_nothing_to_complain_about(start: Start, dial: Dial) -> None:
    daemon = start("--peer", "127.0.0.1:1", "--node", "a")
    line = dial(daemon)
    line.say(b"sub a\npub a 1 x\nnonsense\n")
    line.ping()
    told = scrape(daemon)
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=told.text,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert told("mesh_links") == 0


def test_a_daemon_tells_what_was_done_with_it(start: Start, dial: Dial) -> None:
    daemon = start("--max-payload", "1KiB", "--node", "a")
    before = scrape(daemon)
    ann, bob = dial(daemon), dial(daemon)
    ann.say(b"sub a\n")
    ann.ping()
    bob.say(b"pub a 5 hello\n" * 1_000)
    bob.ping()
    ann.ping()
    web = Socket(daemon)
    web.quiet()
    after = fresh(daemon, lambda told: told("messages_sent_total") > before("messages_sent_total"))
    web.close()

    def grown(name: str, *labels: str) -> float:
        return after(name, *labels) - before(name, *labels)

    assert grown("messages_received_total") == 1_000
    assert grown("messages_sent_total") == 1_000 + 3  # and the answers to pings
    assert grown("sent_bytes_total") > 1_000 * 14  # and the answers
    assert grown("connections_accepted_total") >= 4  # and further scrapes
    assert after("connections", "listener=line") == 2
    assert after("connections", "listener=hub", "transport=http") == 1
    assert after("connections", "listener=hub", "transport=websocket", "dialect=none") == 1
    assert after("subscriptions") == 1
    assert after("route_hits_total") > 900
    assert after.samples["pubsubd_build_info"].keys() == {
        (f"python={sys.version.split()[0]}", f"version={version()}")
    }
    # Two of its connections, the scrape and the socket, have ended since.
    assert after.samples["process_open_fds"][()] == pytest.approx(daemon.descriptors(), abs=3)
    wait_until(lambda: scrape(daemon)("loop_lag_seconds_count") >= 2, "the lag is measured")


def version() -> str:
    from pubsubd import __version__  # noqa: PLC0415  (as the daemon has it)

    return __version__


def spoil_line(daemon: Daemon, data: bytes) -> None:
    line = Line(daemon.address)
    line.say(data)
    line.hear_end()
    line.close()


def spoil_hub(daemon: Daemon, data: bytes) -> None:
    lines = Lines(daemon)
    lines.say_raw(data)
    lines.hear_rest()
    lines.close()


def spoil_socket(daemon: Daemon, data: bytes) -> None:
    web = Socket(daemon)
    web.connection.socket.sendall(data)
    wait_until(lambda: web.connection.close_code is not None, "the socket is closed")
    web.close()


CLOSED: list[tuple[str, Callable[[Daemon, bytes], None], bytes]] = [
    ("wrong-length", spoil_line, b"pub a 1 xyz\n"),
    ("payload-too-large", spoil_line, b"pub a 9999 x"),
    ("line-too-long", spoil_line, b"x" * (MAX_LINE + 1)),
    ("http-request", spoil_line, b"GET / HTTP/1.1\r\n\r\n"),
    ("command-timeout", spoil_line, b"pub a 10 x"),
    ("bad-json", spoil_hub, b"{nonsense}\n"),
    ("bad-http", spoil_hub, b"nonsense\r\n\r\n"),
    ("bad-websocket", spoil_socket, client_frame(b"x", 0xF1)),  # a bit that nobody has agreed on
]


@pytest.mark.parametrize(("reason", "spoil", "data"), CLOSED, ids=[one[0] for one in CLOSED])
def test_a_connection_that_the_daemon_ends_is_counted_by_the_reason(
    start: Start, reason: str, spoil: Callable[[Daemon, bytes], None], data: bytes
) -> None:
    daemon = start("--max-payload", "1KiB", "--command-timeout", "0.5")
    spoil(daemon, data)
    told = scrape(daemon)
    assert told.told("connections_closed_total") == {reason: 1}
    assert told("errors_total", f"code={reason}") == 1
    assert told("connections") == 1


@pytest.mark.parametrize("policy", ["disconnect", "drop"])
def test_who_is_too_slow_is_counted_and_so_is_what_is_dropped(
    start: Start, dial: Dial, policy: str
) -> None:
    message = frame("a", bytes(65_536))
    daemon = start("--slow-consumer", policy, "--max-pending", "64KiB")
    slow, fast = dial(daemon, buffer=4_096), dial(daemon)
    slow.say(b"sub a\n")

    def flood() -> bool:
        nonlocal told
        fast.say(message * 16)
        fast.ping()
        told = scrape(daemon)
        cut = told("connections_closed_total", "reason=slow-consumer")
        return bool(cut or told("messages_dropped_total"))

    told = scrape(daemon)
    wait_until(flood, "the consumer is too slow")
    if policy == "drop":
        assert told("backlog_bytes") == told("backlog_largest_bytes") > 64 * 1024
        assert told("backlog_largest_ratio") > 1
        assert not told.told("connections_closed_total")
        before = told("messages_dropped_total")
        fast.say(message * 4)
        fast.ping()
        told = fresh(daemon, lambda told: told("messages_dropped_total") > before)
        assert told("messages_dropped_total") == before + 4
    else:
        assert told.told("connections_closed_total") == {"slow-consumer": 1}
        assert told("messages_dropped_total") == 0
    slow.vanish()


def test_one_connection_too_many_is_counted_and_the_daemon_is_not_ready(
    start: Start, dial: Dial
) -> None:
    daemon = start("--max-connections", "3")
    hub = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)

    def ask(path: str) -> tuple[int, str]:
        hub.request("GET", path)
        with hub.getresponse() as answer:
            return answer.status, answer.read().decode()

    with contextlib.closing(hub):
        assert ask("/readyz")[0] == 200
        for _ in range(2):
            dial(daemon).ping()
        refused = dial(daemon)
        assert b"too-many-connections" in refused.hear_end()
        assert request(daemon, "/readyz")[0] == 503  # which is not let in, either
        assert ask("/readyz")[0] == 503
        assert ask("/healthz")[0] == 200
        told = Scrape(ask("/metrics")[1])
    assert told("ready") == 0
    assert told("connections") == told("connections_limit") == 3
    assert told.told("connections_closed_total") == {"too-many-connections": 2}


# Logins and rules

RULES = """\
[[acl]]
who = ["scraper"]
receive = ["//pubsubd/stats"]

[[acl]]
who = ["other"]
publish = ["a"]
receive = ["#"]
"""


def test_a_scrape_needs_the_login_of_the_port_and_the_right_to_the_statistics(
    start: Start, dial: Dial, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    tokens = {who: make_token() for who in ("scraper", "other")}
    users.write_text("".join(f"{who}:{stored}\n" for who, (_, stored) in tokens.items()))
    scraper, other = tokens["scraper"][0], tokens["other"][0]
    users.chmod(0o600)
    config = tmp_path / "conf.toml"
    config.write_text(f'users_file = "{users}"\n{RULES}')
    daemon = start("--config", str(config))
    assert request(daemon)[0] == 401
    assert request(daemon, Authorization="Bearer nonsense")[0] == 401
    status, _, text = request(daemon, Authorization=f"Bearer {other}")
    assert (status, "//pubsubd/stats" in text, "pubsubd_" in text) == (403, True, False)
    for path in ("/healthz", "/readyz"):
        assert request(daemon, path)[0] == 200
    line = dial(daemon)
    line.say(b"pub a 1 x\n" + frame("//pubsubd/auth", other.encode()) + b"pub b 1 x\npub b 1 x\n")
    line.ping()
    line.say(b"pub //pubsubd/auth 3 bad\n")
    line.ping()
    told = scrape(daemon, Authorization=f"Bearer {scraper}")
    assert told.told("auth_refusals_total") == {
        "login-required": 2,  # one over HTTP
        "login-failed": 2,
        "not-allowed": 3,
    }
    assert told("connections_closed_total") == 0


# What it costs


ASK = """\
import sys, trio
from pubsubd.daemon.run import Config, run

async def get(port, path):
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"GET %b HTTP/1.0\\r\\n\\r\\n" % path)
        return b"".join([part async for part in stream])

async def main():
    async with trio.open_nursery() as nursery:
        ports = await nursery.start(run, Config(port=0, hub_port=0))
        assert b"200 OK" in await get(ports["hub"]["port"], b"/readyz")
        assert b"404" in await get(ports["hub"]["port"], b"/nothing")
        print(any(name.startswith("prometheus_client") for name in sys.modules))
        assert b"pubsubd_ready 1.0" in await get(ports["hub"]["port"], b"/metrics")
        print(any(name.startswith("prometheus_client") for name in sys.modules))
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def test_what_the_metrics_stand_on_is_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["False", "True"]


async def test_a_reload_is_told_whether_it_went_well_or_not() -> None:
    found: list[Config | ConfigError] = [ConfigError("a fault"), Config(port=0, hub_port=0)]

    def reload() -> Config:
        one = found.pop(0)
        if isinstance(one, ConfigError):
            raise one
        return one

    async with trio.open_nursery() as nursery:
        config = Config(port=0, hub_port=0)
        ports = await nursery.start(partial(run, config, reload=reload))

        async def told() -> tuple[float, float]:
            stream = await trio.open_tcp_stream("127.0.0.1", ports["hub"]["port"])
            async with stream:
                await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
                heard = b"".join([bytes(part) async for part in stream])
            now = Scrape(heard.decode().partition("\r\n\r\n")[2])
            name = "config_last_reload_success_timestamp_seconds"
            return now("config_last_reload_successful"), now(name)

        good, first = await told()
        assert good == 1
        for wanted in (0, 1):
            os.kill(os.getpid(), signal.SIGHUP)
            with trio.fail_after(DEADLINE):
                while (seen := await told())[0] != wanted:
                    pass
            assert (seen[1] > first) is (wanted == 1)
        nursery.cancel_scope.cancel()


# What it costs


def test_who_asks_within_a_moment_is_told_the_same_and_nothing_is_made_again() -> None:
    port = Port()
    collected = []
    collect = port.metrics.collect

    def count() -> Any:
        collected.append(1)
        return collect()

    port.metrics.collect = count  # type: ignore[method-assign]
    for _ in range(50):
        made(port.metrics.render(""))
    assert len(collected) == 1
    made(port.metrics.render(OPENMETRICS))
    assert len(collected) == 2
    port.render("")
    assert len(collected) == 3


def test_a_scrape_of_many_connections_takes_several_turns() -> None:
    port = Port()
    port.join_line(*(f"line{number}" for number in range(3_000)))
    port.join("http")
    port.shorten_turns(3)
    turns = 1
    data = GET % b"/metrics"
    while port.connections["http"].receive(data):
        data, turns = b"", turns + 1
    assert turns > 6
    head, _, body = port.heard["http"].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    told = Scrape(body.decode())
    assert told("connections", "listener=dialled", "transport=line") == 3_000


def test_answers_come_in_the_order_of_the_requests_though_one_takes_several_turns() -> None:
    port = Port()
    port.join("http")
    port.shorten_turns(3)
    port.say_raw("http", GET % b"/metrics" + GET % b"/health" + GET % b"/metrics")
    kinds = re.findall(rb"Content-Type: ([a-z/]+)", port.heard["http"])
    assert kinds == [b"text/plain", b"application/json", b"text/plain"]


def test_faults_and_failed_tasks_are_told_by_place_and_by_task() -> None:
    port = Port()
    try:
        Metrics(None)  # type: ignore[arg-type]
    except AttributeError as error:
        port.broker.faults.note(error)
    assert port.scrape().told("faults_total") == {"daemon.metrics.Metrics.__init__": 1}

    async def fail(tasks: Tasks) -> Scrape:
        async def work() -> None:
            raise ValueError("work")

        tasks.start("work", work)
        await trio.testing.wait_all_tasks_blocked()
        return port.scrape()

    async def run_tasks() -> None:
        async with trio.open_nursery() as nursery:
            tasks = Tasks(nursery, port.broker.faults)
            port.metrics = Metrics(Sources(port.broker, port.hub, port.lag, tasks=tasks))
            assert port.scrape()("tasks_down") == 0
            told = await fail(tasks)
            assert told("tasks_down") == 1
            assert told.told("task_restarts_total") == {"work": 1}
            nursery.cancel_scope.cancel()

    trio.run(run_tasks)


def test_no_more_places_are_told_than_the_limit() -> None:
    port = Port()
    for number in range(150):
        port.broker.faults.counts[f"place{number}"] = number
    told = port.scrape().told("faults_total")
    assert len(told) == 100
    assert "place149" in told
    assert "place1" not in told
