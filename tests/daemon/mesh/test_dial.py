"""Dialling: again and again, at daemons that were discovered, and nowhere else."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pubsubd.daemon import run as daemon
from pubsubd.mesh import dial
from pubsubd.mesh.edge_files import PACKED, Exporter, hour_of_list, packed_name
from pubsubd.mesh.exporting import Export
from pubsubd.mesh.handshakes import Handshakes
from pubsubd.mesh.settings import read_settings
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.limits import LOOK_OUT, MESH_LOOK_OUT, Limits
from pubsubd.settings.config import MeshOptions
from pubsubd.transport.server import Server
from tests import forks
from tests.daemons import DEADLINE, Daemon, Line, environment, wait_until
from tests.rows import row


def told(address: tuple[str, int]) -> dict[str, Any]:
    """Return what a daemon says of its mesh."""
    line = Line(address)
    line.say(b"pub //pubsubd/peers 0 \n")
    answer: dict[str, Any] = json.loads(line.hear_frame()[1])
    line.close()
    return answer


def linked(address: tuple[str, int]) -> list[str]:
    """Return the ids of a daemon's neighbours."""
    return sorted(link["node"] for link in told(address)["links"])


async def test_a_dead_peer_is_dialled_for_ever_with_growing_random_waits(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]  # bound, but nobody listens
        times: list[float] = []
        descriptors: list[int] = []
        enough = trio.Event()
        real = dial.connect

        async def connect(host: str, port: int) -> socket.socket:
            times.append(trio.current_time())
            descriptors.append(len(os.listdir("/proc/self/fd")))
            if len(times) > 200:
                enough.set()
            return await real(host, port)

        monkeypatch.setattr(dial, "connect", connect)
        mesh = daemon.MeshOptions(peers=(f"127.0.0.1:{port}",), node="a")
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run, daemon.Config(port=0, hub_port=None, mesh=mesh))
            await enough.wait()
            nursery.cancel_scope.cancel()
    waits = [after - before for before, after in pairwise(times)]
    for number, wait in enumerate(waits):
        assert wait <= min(30.0, 0.5 * 2**number) + 0.01
    late = waits[10:]
    assert 10 < sum(late) / len(late) < 20  # full jitter: from 0 to 30
    assert min(late) < 3
    assert max(late) > 27
    assert len(set(descriptors)) == 1


def test_a_chain_of_daemons_that_discover_becomes_short(start: Callable[..., Daemon]) -> None:
    flags = ("--discover", "--max-peers", "3", "--mesh-heartbeat", "0.2")
    daemons = [start("--node", "n0", *flags)]
    for number in range(1, 7):
        peer = f"127.0.0.1:{daemons[-1].address[1]}"
        daemons.append(start("--node", f"n{number}", "--peer", peer, *flags))

    def is_short() -> bool:
        hops = [one["hops"] for one in told(daemons[0].address)["daemons"]]
        return len(hops) == 7 and None not in hops and max(hops) <= 3

    wait_until(is_short, "no daemon is more than three links away")
    for one in daemons:
        answer = told(one.address)
        neighbours = [link["node"] for link in answer["links"]]
        assert len(set(neighbours)) == len(neighbours)
        assert answer["node"] not in neighbours


def test_a_daemon_without_discover_dials_nobody(start: Callable[..., Daemon]) -> None:
    one = start("--node", "a")
    two = start("--node", "b", "--peer", f"127.0.0.1:{one.address[1]}")
    three = start("--node", "c", "--peer", f"127.0.0.1:{two.address[1]}")
    wait_until(lambda: len(told(one.address)["daemons"]) == 3, "all know each other")
    assert linked(one.address) == linked(three.address) == ["b"]


HOSTILE = [
    b"0.0.0.0 9014",
    b"127.0.0.1 0",
    b"127.0.0.1 99999",
    b"127.0.0.1",
    b"",
    b"a b c",
    b"10.255.255.1 9014",
    b"no-such-host.invalid 9014",
    b"a..b 9014",
    b"169.254.169.254 80",
    b"224.0.0.1 9014",
    b"[::]:1 1",
]


@pytest.mark.parametrize("flag", ["--discover", "--discover=any"])
def test_no_advert_of_a_client_leads_where_it_must_not(
    flag: str, start: Callable[..., Daemon]
) -> None:
    one = start("--node", "a", flag, "--mesh-heartbeat", "0.1")
    line = Line(one.address)
    own = f"{one.address[0]} {one.address[1]}".encode()
    for number, advert in enumerate([*HOSTILE, own]):
        line.say(wire.frame(b"//peers/default/x%d" % number, advert))
    line.ping()

    def refused() -> int:
        counters: dict[str, int] = told(one.address)["counters"]["refused"]
        return sum(counters.values())

    wait_until(lambda: refused() == len(HOSTILE) + 1, "all of them are refused")
    answer = told(one.address)
    assert answer["links"] == answer["dialling"] == answer["plain"] == []
    assert [known["node"] for known in answer["daemons"]] == ["a"]
    line.close()


def test_with_discover_any_a_client_can_tell_of_a_daemon(start: Callable[..., Daemon]) -> None:
    one = start("--node", "a", "--discover=any", "--mesh-heartbeat", "0.1")
    two = start("--node", "b")
    line = Line(one.address)
    line.say(wire.frame(b"//peers/default/b", f"127.0.0.1 {two.address[1]}".encode()))
    wait_until(lambda: linked(one.address) == ["b"], "a has dialled b")
    line.close()


def test_networks_that_are_not_allowed_are_not_dialled(start: Callable[..., Daemon]) -> None:
    one = start(
        "--node", "a", "--discover=any", "--discover-allow", "10.0.0.0/8", "--mesh-heartbeat", "0.1"
    )
    two = start("--node", "b")
    line = Line(one.address)
    line.say(wire.frame(b"//peers/default/b", f"127.0.0.1 {two.address[1]}".encode()))
    wait_until(
        lambda: told(one.address)["counters"]["refused"] == {"bad-address": 1}, "it is refused"
    )
    assert linked(one.address) == []
    line.close()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--peer", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--peer", "h:0"], "has no port from 1 to 65535"),
        (["--node", "a b"], "is no id of a daemon"),
        (["--mesh", "a/b"], "is no name of a mesh"),
        (["--node", "a", "--advertise", "0.0.0.0:1"], "no address that others could dial"),
        (["--node", "a", "--mesh-secret-file", "/nowhere"], "cannot read the secret /nowhere"),
        (["--node", "a", "--discover-allow", "10.0.0.1/8"], "--discover-allow: "),
        (["--mesh-secret-file", "/nowhere"], "of no use without peer or mesh"),
        (["--node", "a", "--host", "", "--unix", "/tmp/never"], "a mesh needs a TCP port"),
    ],
)
def test_settings_that_cannot_be_used_are_told_in_one_line(flags: list[str], text: str) -> None:
    command = [sys.executable, "-m", "pubsubd", "serve", "--port=0", "--no-hub", *flags]
    done = forks.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment()
    )
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_only_says_how_to_take_part_is_no_wish_to_take_part(
    start: Callable[..., Daemon],
) -> None:
    one = start("--max-peers=3", "--discover-allow=10.0.0.0/8", "--mesh-heartbeat=2")
    line = Line(one.address)
    line.say(b"pub //pubsubd/peers 0 \n")
    assert line.hear_frame()[1].startswith(b"no-mesh ")
    line.close()


def test_edge_lists_are_written_and_those_of_past_hours_compacted(
    start: Callable[..., Daemon], tmp_path: Any
) -> None:
    directory = tmp_path / "edges"
    earlier = Exporter(directory).write([row()], time.time() - 7200)
    broken = Exporter(directory).write([row()], time.time() - 10 * 86_400)
    hour = hour_of_list(broken.name)
    assert hour
    broken.rename(directory / packed_name(hour, "jsonl.gz"))
    one = start("--node", "a", "--export-edges", str(directory), "--export-interval", "0.05")
    start("--node", "b", "--peer", f"127.0.0.1:{one.address[1]}")

    def rows() -> list[dict[str, Any]]:
        # The earlier one is compacted, and so removed, meanwhile.
        files = sorted({*directory.glob("edges-*.jsonl")} - {earlier})
        return [json.loads(line) for line in files[-1].read_text().splitlines()] if files else []

    wait_until(lambda: len(rows()) == 2, "both ends of the link are written")
    assert {row["observer"] for row in rows()} == {"a", "b"}
    assert {(row["src"], row["dst"], row["state"]) for row in rows()} == {("b", "a", "up")}
    hour = hour_of_list(earlier.name)
    assert hour
    made = [directory / packed_name(hour, ending) for ending in PACKED]
    wait_until(lambda: any(one.exists() for one in made), "an hour is compacted")
    assert "Not a gzipped file" in one.wait_log("event=compaction-failed")


async def test_a_daemon_of_a_mesh_looks_out_longer_and_sleeps_when_nothing_is_due(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        assert server.look_out == LOOK_OUT
        mesher = dial.Mesher(server, dial.Settings(MeshConfig("a")))
        assert server.look_out == MESH_LOOK_OUT
        acts = 0
        act = mesher.mesh.act

        def count() -> None:
            nonlocal acts
            acts += 1
            act()

        monkeypatch.setattr(mesher.mesh, "act", count)
        with trio.move_on_after(100):
            await mesher.run()
        assert 100 <= acts < 130  # each heartbeat, and when adverts are due


def test_a_peer_whose_name_cannot_be_is_told_and_tried_again(start: Callable[..., Daemon]) -> None:
    one = start("--node", "a", "--peer", "a..b:9014", "--peer", "no-such-host.invalid:9014")
    one.wait_log("event=dial-failed address=a..b:9014")
    one.wait_log("event=dial-failed address=no-such-host.invalid:9014")
    addresses = {entry["address"] for entry in told(one.address)["dialling"]}
    assert addresses == {"a..b:9014", "no-such-host.invalid:9014"}


def test_a_name_that_only_others_know_can_be_advertised(start: Callable[..., Daemon]) -> None:
    flags = ("--discover=any", "--mesh-heartbeat", "0.1", "--discover-allow", "127.0.0.0/8")
    one = start("--node", "a", "--advertise", "no-such-host.invalid:9014", *flags)
    two = start("--node", "b")
    line = Line(one.address)
    line.say(wire.frame(b"//peers/default/b", f"127.0.0.1 {two.address[1]}".encode()))
    wait_until(lambda: linked(one.address) == ["b"], "a has dialled b")
    line.close()


def test_a_secret_that_could_be_guessed_from_a_proof_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    options = MeshOptions(name="m", secret_file=str(file))
    file.write_text("x" * 15 + "\n")
    with pytest.raises(ConfigError, match="under 16 bytes"):
        read_settings(options, "127.0.0.1", 1)
    file.write_text("x" * 16 + "\n")
    assert read_settings(options, "127.0.0.1", 1).config.secret == b"x" * 16


def test_a_daemon_is_known_with_its_site_and_rack(start: Callable[..., Daemon]) -> None:
    places = ("--node", "a", "--site", "ber", "--rack", "r1")
    (told_of,) = told(start(*places).address)["daemons"]
    assert (told_of["site"], told_of["rack"]) == ("ber", "r1")
    for name in ("site", "rack"):
        with pytest.raises(ConfigError, match=f'"no name" is no {name}: 1 to 64 of'):
            read_settings(MeshOptions(**{name: "no name"}), "127.0.0.1", 1)


async def test_a_session_that_fails_when_it_has_been_dialled_is_dialled_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough = trio.Event()
    greeted = 0

    def greet(*_: object) -> None:
        nonlocal greeted
        greeted += 1
        if greeted == 4:
            enough.set()
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Handshakes, "greet", greet)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mesh = daemon.MeshOptions(peers=(f"127.0.0.1:{listener.getsockname()[1]}",), node="a")
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run, daemon.Config(port=0, hub_port=None, mesh=mesh))
            with trio.fail_after(1_000):
                await enough.wait()
            nursery.cancel_scope.cancel()


async def test_dialling_that_fails_is_begun_again_until_the_peer_is_no_longer_in_the_settings(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = ("127.0.0.1", 9)
    dialled: list[tuple[str, int]] = []
    often = trio.Event()

    async def dial_once(_mesher: dial.Mesher, host: str, port: int, _found: object) -> str:
        dialled.append((host, port))
        if len(dialled) == 4:
            often.set()
        await trio.sleep(1)
        if len(dialled) in (1, 2, 4):
            raise RuntimeError("a mistake")
        return ""

    monkeypatch.setattr(dial.Mesher, "dial_once", dial_once)
    settings = dial.Settings(MeshConfig("a"), peers=(peer,))
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        mesher = dial.Mesher(server, settings)
        nursery.start_soon(mesher.run)
        with trio.fail_after(1_000):
            await often.wait()
        await trio.sleep(1.1)  # the fourth has failed, and is not begun again yet
        assert server.tasks.down == {"mesh-dial": 1}
        mesher.replace(replace(settings, peers=()))
        await trio.sleep(1_000)
        assert dialled == [peer] * 4
        assert server.tasks.restarts["mesh-dial"] == 3
        assert not server.tasks.down
        assert server.broker.faults.counts.total() == 3
        nursery.cancel_scope.cancel()


async def test_a_task_of_the_mesh_that_fails_is_started_again_and_ends_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dial.Settings(MeshConfig("a"), export=Export(str(tmp_path), interval=0.05))
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        mesher = dial.Mesher(server, settings)
        real, calls, written = mesher.report.listing, 0, trio.Event()

        def listing() -> Any:
            nonlocal calls
            calls += 1
            if calls <= 2:
                raise RuntimeError("a mistake")
            if calls == 4:
                written.set()
            return real()

        monkeypatch.setattr(mesher.report, "listing", listing)
        nursery.start_soon(mesher.run)
        with trio.fail_after(DEADLINE):
            await written.wait()
        assert os.listdir(tmp_path)
        assert dict(server.tasks.restarts) == {"mesh-export": 2}
        assert server.broker.faults.counts.total() == 2
        nursery.cancel_scope.cancel()
