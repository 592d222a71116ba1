"""scripts/bench mesh: that it waits for links and interest, takes nothing for right that is
not, and ends every server it has started.

Its figures are no matter of tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlib import meshservers, meter
from benchlib.hubcases import CASES, GROUPS
from benchlib.links import BenchError, Link
from benchlib.meshcases import carried
from benchlib.meshservers import FORWARDED, check_passage, door, linked, wait_wanted
from benchlib.meter import Cores, Meter
from benchlib.protocols import WIRES, Want
from benchlib.report import Result, judge
from benchlib.runners import Reading
from benchlib.servers import Fleet, find_program
from benchlib.traffic import Load
from tests.daemons import DEADLINE, ROOT

BENCH = ROOT / "scripts" / "bench"
OPTIONS = ["--quick", "--runs", "1", "--seconds", "0.05", "--python", sys.executable]
WANT, NAME = Want("prefix", b"bench/"), b"bench/far"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=2 * DEADLINE, check=False
    )


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(sys.executable) as fleet:
        yield fleet


@pytest.mark.parametrize("server", ["pubsubd", "nats"])
def test_every_mesh_case_is_correct_with_those_that_have_links(server: str) -> None:
    if server == "nats" and find_program(server) is None:
        pytest.skip("nats-server is not installed")
    done = bench("mesh", "--servers", server, *OPTIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("mesh-")]
    measured = {case for case, _, figure, *_ in rows if figure != "-"}
    assert measured == {name for name in GROUPS["mesh"] if server in CASES[name].servers}


def test_what_is_carried_is_wanted_under_another_name() -> None:
    assert FORWARDED.publish(NAME, b"hello") == b"pub //bench/far 5 hello\n"
    assert FORWARDED.subscribe(0, WANT) == b"sub //fwd/bench/\n"
    assert FORWARDED.unsubscribe(0, WANT) == b"unsub //fwd/bench/\n"
    assert FORWARDED.deliver(0, WANT, NAME, b"hello") == b"pub //fwd/bench/far 5 hello\n"


def test_all_carry_the_same_messages_and_nats_by_its_cheapest_subscription() -> None:
    ours, theirs = carried("pubsubd", 16), carried("nats", 16)
    assert ours.messages == theirs.messages
    assert ours.subscribers == ((Want("prefix", b"bench/"),),)
    assert theirs.subscribers == ((Want("exact", b"bench/far"),),)
    name, payload = ours.messages[0]
    assert Load(ours, FORWARDED).streams[0].startswith(b"pub //fwd/%b 16 %b\n" % (name, payload))
    assert Load(theirs, WIRES["nats"]).streams[0].startswith(b"MSG %b 1 16\r\n" % name)


def ends(fleet: Fleet, text: bytes) -> tuple[Link, Link]:
    """A publisher and a subscriber on one daemon, as if there were links between them."""
    server = fleet.get("pubsubd")
    publisher, subscriber = Link(door(server)), Link(door(server))
    subscriber.subscribe([Want("prefix", text)])
    return publisher, subscriber


def test_nothing_is_under_way_once_a_message_has_come_through(fleet: Fleet) -> None:
    publisher, subscriber = ends(fleet, b"bench/")
    wait_wanted(publisher, subscriber, WANT, NAME)
    check_passage(publisher, subscriber, WANT, NAME)
    publisher.close()
    subscriber.close()


def test_interest_that_never_comes_is_an_error(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meshservers, "PATIENCE_SECONDS", 0.2)
    publisher, subscriber = ends(fleet, b"other/")
    with pytest.raises(BenchError, match="no interest"):
        wait_wanted(publisher, subscriber, WANT, NAME)
    publisher.close()
    subscriber.close()


def test_a_message_too_many_is_found_though_each_ping_is_answered_alone(fleet: Fleet) -> None:
    publisher, subscriber = ends(fleet, b"bench/")
    publisher.send(FORWARDED.publish(NAME, b"more"))
    publisher.check_ping()
    with pytest.raises(BenchError, match="more"):
        check_passage(publisher, subscriber, WANT, NAME)
    publisher.close()
    subscriber.close()


def test_the_first_message_to_come_must_be_one_that_was_sent(fleet: Fleet) -> None:
    publisher, subscriber = ends(fleet, b"bench/")
    publisher.send(FORWARDED.publish(NAME, b"strange text"))
    with pytest.raises(BenchError, match="the first that arrived"):
        wait_wanted(publisher, subscriber, WANT, NAME)
    publisher.close()
    subscriber.close()


def test_servers_in_a_row_are_measured_and_ended_together(fleet: Fleet) -> None:
    servers = linked(fleet, "pubsubd", 3)
    pids = tuple(server.pid for server in servers)
    assert servers[0].pids == pids
    assert all(map(is_running, pids))
    log = servers[0].log_tail()
    assert [server for server in servers if f"pid={server.pid} " not in log] == []
    fleet.drop(servers[0])
    assert not any(map(is_running, pids))


# Runs the daemon, but for what is said about its --peer.
PARTIAL = """#!{python}
import os, sys

peers = [argument for argument in sys.argv if argument.startswith("--peer=")]
if peers and {fails}:
    sys.exit("cannot run today")
os.execv(sys.executable, [sys.executable, *(a for a in sys.argv[1:] if a not in peers)])
"""


@pytest.mark.parametrize(
    ("fails", "complaint"), [(True, "cannot run today"), (False, "bench-1 knows bench-1")]
)
def test_a_row_that_does_not_come_about_is_an_error_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, complaint: str
) -> None:
    monkeypatch.setattr(meshservers, "PATIENCE_SECONDS", 0.5)
    python = tmp_path / "python"
    python.write_text(PARTIAL.format(python=sys.executable, fails=fails))
    python.chmod(0o755)
    with Fleet(str(python)) as fleet:
        first = fleet.get("pubsubd", "mesh")
        with pytest.raises(BenchError, match=complaint):
            linked(fleet, "pubsubd", 2)
        pids = first.pids
    assert len(pids) == (1 if fails else 2)
    assert not any(map(is_running, pids))


def test_what_all_servers_in_a_row_use_is_not_taken_for_a_disturbance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = {1: 0.0, 2: 0.0}
    monkeypatch.setattr(meter, "process_seconds", lambda pid: used[pid])
    monkeypatch.setattr(meter, "busy_seconds", lambda: sum(used.values()))
    running = Meter(1, 2)
    used.update({1: 3.0, 2: 4.0})
    seconds, cores = running.stop()
    assert cores.server == pytest.approx(7 / seconds)
    assert cores.others == 0


def result(case: str, **servers: dict[str, float]) -> Result:
    readings = {server: [Reading(values, Cores())] for server, values in servers.items()}
    return Result(CASES[case], readings)


def test_a_longer_row_is_compared_with_one_link_and_a_hop_with_that_of_nats() -> None:
    row = result("mesh-chain-16", pubsubd={"rate": 3.0, "two": 4.0})
    verdict = judge(row, row.case.targets[0])
    assert (verdict.measured, verdict.against, verdict.word) == (0.75, "two", "ok")
    hop = result("mesh-hop-latency", pubsubd={"hop_us": 50.0}, nats={"hop_us": 40.0})
    verdict = judge(hop, hop.case.targets[0])
    assert (verdict.measured, verdict.against, verdict.word) == (1.25, "nats", "MISS")
