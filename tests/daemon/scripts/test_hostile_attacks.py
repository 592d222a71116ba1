"""scripts/chaos hostile: that all the daemon answers and keeps is attacked, and what is seen."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsubd.broker.broker import Broker
from pubsubd.hub import console, web
from pubsubd.hub.signal.requests import REQUESTS
from pubsubd.hub.synap import commands
from pubsubd.hub.synap import requests as synap_requests
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.report import Report
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol.limits import HubLimits, Limits
from soaklib.attacks import ATTACKS
from soaklib.attacks.attack import Attack
from soaklib.attacks.bounds import CONNECTION
from soaklib.attacks.parts import packed, repeated
from soaklib.attacks.stage import Effort, Place, Stage
from soaklib.daemons import Daemon, running
from soaklib.pings import EVERY, Waits, pings
from soaklib.scenarios import hostile
from soaklib.wires import MIB, Address
from soaklib.workers import Worker
from tests.daemons import DEADLINE, ROOT, wait_until

MESH = {"advert", "batch", "heartbeat", "letter", "trace"}
"""What a link carries."""

LIMITS = {
    *(one.name for one in dataclasses.fields(Limits)),
    *(one.name for one in dataclasses.fields(HubLimits)),
}


def requests() -> set[str]:
    """What a ``pub`` to one of the daemon's own names asks for, in a mesh."""
    broker = Broker(Limits())
    clock = time.monotonic
    config = MeshConfig("n")
    Report(Mesh(broker, config, clock=clock, wall=time.time, rng=random.Random(1)))
    return {name.decode() for name in broker.requests}


def paths() -> set[str]:
    """Paths of HTTP: every text that begins with a slash, where requests are told apart."""
    found = {*web.SOCKETS, *console.files(), web.ABOUT}
    for function in (web.answer, synap_requests.rest):
        for node in ast.walk(ast.parse(inspect.getsource(function))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    actions = {one for one in found if one in ("/publish", "/info")}
    return {one for one in found - actions if one.startswith("/")} | {
        f"/pubsub/{{topic}}{one}" for one in actions
    }


def attacked() -> set[str]:
    return set().union(*(attack.on for attack in ATTACKS.values()))


@pytest.mark.parametrize(
    "known",
    [requests(), set(REQUESTS), set(commands.COMMANDS), paths(), MESH],
    ids=["requests", "hub messages", "Synap commands", "HTTP paths", "mesh"],
)
def test_all_that_the_daemon_answers_is_attacked(known: set[str]) -> None:
    assert len(known) > 2
    assert known - attacked() == set()


def test_each_limit_of_what_is_kept_is_reached_by_an_attack() -> None:
    most = {name for name in LIMITS if name.startswith("max_")}
    assert most - attacked() == set()


def test_attacks_are_aimed_at_what_is_there() -> None:
    known = requests() | set(REQUESTS) | set(commands.COMMANDS) | paths() | MESH | LIMITS
    assert attacked() - known == set()


def test_each_attack_says_what_it_does_in_a_line() -> None:
    for attack in ATTACKS.values():
        assert 20 < len(attack.text) < 100, attack.name
        known = {
            "plain",
            "mesh",
            "users",
            "tls",
            "proxied",
            "workers",
            "many-workers",
            "python",
            "secret",
        }
        assert set(attack.daemon.split()) <= known


def test_the_manual_tells_how_many_attacks_there_are() -> None:
    page = (ROOT / "man/pubsubd-operations.7").read_text(encoding="utf-8")
    crowds = sum(attack.crowd for attack in ATTACKS.values())
    text = " ".join(page.split())
    assert f"{len(ATTACKS)} attacks by one client" in text
    assert f"{crowds} of them also by 100 connections" in text


# What is seen


def test_a_long_wait_stands_for_all_that_would_have_waited() -> None:
    every = EVERY * 1000
    waits = Waits([0.5] * 50 + [100 * every])
    assert waits.longest == 100 * every
    assert waits.share(0.5) > 20 * every
    assert Waits([0.5] * 100).share(0.99) == 0.5


@contextmanager
def probing_one_that_stands_still(directory: Path) -> Iterator[tuple[Daemon, Worker]]:
    """Run a daemon with probes, and stop it as soon as they have begun."""
    with (
        running(directory) as daemon,
        Worker(pings, daemon.line, daemon.hub, daemon.pid) as probe,
    ):
        probe.answer()
        probe.ask("mark")
        daemon.signal(signal.SIGSTOP)
        yield daemon, probe


def test_probes_see_a_daemon_that_stands_still(tmp_path: Path) -> None:
    with probing_one_that_stands_still(tmp_path) as (daemon, probe):
        time.sleep(1)
        daemon.signal(signal.SIGCONT)
        seen = probe.ask("report", DEADLINE)
        assert set(seen) == {"line", "hub"}
        for waits in seen.values():
            assert waits.longest + waits.without > 400
            assert not waits.lost
            assert not waits.broken
        daemon.kill()
        wait_until(
            lambda: all(waits.broken for waits in probe.ask("report", 1.0).values()),
            "both connections have ended",
        )


def test_probes_that_hear_nothing_are_lost_and_have_waited(tmp_path: Path) -> None:
    with probing_one_that_stands_still(tmp_path) as (_, probe):
        wait_until(
            lambda: all(waits.lost for waits in probe.ask("report", 0.5).values()),
            "both have had something under way",
        )
        for waits in probe.ask("report", 0.5).values():
            assert waits.longest + waits.without > 400


# What is judged


def nothing(_: Stage) -> None:
    """Do nothing."""


def seen(**more: object) -> hostile.Seen:
    quiet = {"line": Waits([0.3] * 100), "hub": Waits([0.4] * 100)}
    fields = {
        "quiet": quiet,
        "waits": quiet,
        "after": quiet,
        "effort": Effort(connections=3),
        "before": 40 * MIB,
        "peak": 50 * MIB,
        "left": 45 * MIB,
        "lag": "0.005",
        "back": "",
    }
    return hostile.Seen(**{**fields, **more})  # type: ignore[arg-type]


SLOW = {"line": Waits([0.3] * 100 + [120.0]), "hub": Waits([0.4] * 100)}
ATTACK = Attack("x", "", nothing, frozenset(), "plain", crowd=True, each=MIB, table=2 * MIB)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({}, ""),
        ({"waits": SLOW}, "line waited 120 ms"),
        ({"waits": {"hub": Waits([30.0] * 100)}}, "p99 of hub 30 ms"),
        ({"after": SLOW}, "p99 of line afterwards"),
        ({"waits": {"line": Waits([1.0], lost=True)}}, "line waits still"),
        ({"waits": {"line": Waits([1.0], broken="closed")}}, "line was closed"),
        ({"peak": 40 * MIB + 67 * MIB + 3 * CONNECTION + 1}, "67 MiB of memory"),
        ({"back": "7 connections in place of 2"}, "7 connections"),
    ],
)
def test_one_thing_that_is_not_as_it_should_be_is_told(more: dict[str, object], what: str) -> None:
    if "waits" in more:
        more["quiet"] = more["after"] = {port: Waits([0.3]) for port in more["waits"]}  # type: ignore[attr-defined]
    _, faults = hostile.judge(ATTACK, 1, seen(**more), timed=True)
    assert any(what in fault for fault in faults) if what else not faults


def test_memory_is_judged_in_the_short_form_and_times_are_not() -> None:
    _, faults = hostile.judge(ATTACK, 1, seen(waits=SLOW, peak=500 * MIB), timed=False)
    assert faults == ["460 MiB of memory"]


def test_many_at_once_may_keep_others_waiting_for_longer() -> None:
    assert hostile.judge(ATTACK, 100, seen(waits=SLOW), timed=True)[1] == []
    worse = {"line": Waits([260.0]), "hub": Waits([0.4])}
    assert hostile.judge(ATTACK, 100, seen(waits=worse), timed=True)[1] == ["line waited 260 ms"]


def test_what_has_its_reasons_may_take_longer() -> None:
    for more in ({"delay": 100.0}, {"daemon": "mesh many-workers", "delay": 80.0}):
        assert (
            hostile.judge(dataclasses.replace(ATTACK, **more), 1, seen(waits=SLOW), timed=True)[1]
            == []
        )
    assert (
        hostile.judge(dataclasses.replace(ATTACK, delay=60.0), 1, seen(waits=SLOW), timed=True)[1]
        != []
    )


def test_a_short_attack_may_delay_others_for_as_much_time_as_a_long_one() -> None:
    waits = {"line": Waits([0.4] * 350 + [45.0] * 3), "hub": Waits([0.4] * 400)}
    assert hostile.judge(ATTACK, 1, seen(waits=waits), timed=True, seconds=1.0)[1] == []
    (fault,) = hostile.judge(ATTACK, 1, seen(waits=waits), timed=True)[1]
    assert fault.startswith("p99 of line")
    waits["line"].took += [45.0] * 5
    (fault,) = hostile.judge(ATTACK, 1, seen(waits=waits), timed=True, seconds=1.0)[1]
    assert fault.startswith("p90 of line")


def test_the_slowest_class_of_lag_is_that_which_has_grown() -> None:
    before = {"0.001": 5.0, "0.005": 7.0, "+Inf": 7.0}
    assert hostile.slowest_step(before, {"0.001": 9.0, "0.005": 12.0, "+Inf": 12.0}) == "0.005"
    assert hostile.slowest_step(before, {"0.001": 9.0, "0.005": 11.0, "+Inf": 12.0}) == "+Inf"


# What attacks stand on


@pytest.fixture
def served() -> Iterator[tuple[Address, list[bytes]]]:
    """A server that answers each connection's first bytes with ``done`` and notes all it gets."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(sock,), daemon=True).start()

        def talk(sock: socket.socket) -> None:
            with sock:
                try:
                    while data := sock.recv(65_536):
                        got.append(data)
                        sock.sendall(b"done")
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address(server.getsockname()), got
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


class EnoughError(Exception):
    """What was waited for has been seen."""


def end_once(stage: Stage, seen: Callable[[], object]) -> None:
    """Let a stage end as soon as something is seen, however long that takes here."""

    def look() -> None:
        if seen():
            raise EnoughError

    stage.chore(0.01, look)


def test_a_flood_says_its_parts_in_turn(served: tuple[Address, list[bytes]]) -> None:
    address, got = served
    stage = Stage(Place(address, address), 1, DEADLINE)
    end_once(stage, lambda: stage.effort.received and len(b"".join(got[:9])) >= 9)
    with pytest.raises(EnoughError):
        stage.flood(stage.line, [b"ab", b"c"])
    stage.close_all()
    assert b"".join(got).startswith(b"abcabcabc")
    assert stage.effort.opened == 1


def test_a_flood_ends_when_the_time_is_over(served: tuple[Address, list[bytes]]) -> None:
    address, _ = served
    stage = Stage(Place(address, address), 1, 0.1)
    stage.flood(stage.line, [b"ab"])
    assert not stage.on
    stage.close_all()


def test_a_flood_of_one_part_each_takes_a_new_connection_for_each(
    served: tuple[Address, list[bytes]],
) -> None:
    address, got = served
    stage = Stage(Place(address, address), 3, DEADLINE)
    end_once(stage, lambda: stage.effort.opened > 10)
    with pytest.raises(EnoughError):
        stage.flood(stage.line, [b"ab"], once=True, done=b"done")
    stage.close_all()
    assert stage.effort.connections == 3
    assert set(got) == {b"ab"}


def test_what_is_held_is_read_while_something_is_said(
    served: tuple[Address, list[bytes]],
) -> None:
    address, _ = served
    stage = Stage(Place(address, address), 1, DEADLINE)
    (held,) = stage.crowd(1, stage.line, lambda _: b"x")
    assert stage.say(stage.line(), b"y", b"done").endswith(b"done")
    end_once(stage, lambda: stage.effort.received == 2 * len(b"done"))
    with pytest.raises(EnoughError):
        stage.wait()
    with pytest.raises(BlockingIOError):
        held.recv(1)
    stage.close_all()


def test_parts_are_whole_commands() -> None:
    assert repeated(b"abc", 10) == [b"abcabcabc"]
    assert packed([b"aa", b"bb", b"c"], 4) == [b"aabb", b"c"]
    assert packed([b"long", b"x"], 3) == [b"long", b"x"]


def test_a_daemon_that_ends_is_a_fault_of_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons: list[Daemon] = []
    start = Daemon.start

    def remember(daemon: Daemon, *, wait: bool = True) -> None:
        daemons.append(daemon)
        start(daemon, wait=wait)

    monkeypatch.setattr(Daemon, "start", remember)

    def kill(_: Stage) -> None:
        os.kill(daemons[0].pid, signal.SIGKILL)

    verdict = hostile.Verdict("x", timed=False)
    setting = hostile.Setting(tmp_path, short=True, rng=random.Random(1))
    hostile.strike(setting, verdict, dataclasses.replace(ATTACK, run=kill), 1)
    assert not verdict.good
    assert "the daemon has ended with -9" in verdict.text()
