"""Real daemons in a ring are one hub, also when one of them is killed and comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import DEADLINE, Daemon, Line, wait_until
from tests.hubs import Lines, message_b
from tests.meshes import Mesh

BEAT = "1"
HEALED = 2  # heartbeats on a link that is up again, within which all daemons agree


def actors(line: Line) -> dict[str, int | None]:
    """Return how many actors a daemon knows of each daemon that it can reach."""
    line.say(b"pub //pubsubd/peers 0 \n")
    daemons = json.loads(line.hear_frame()[1])["daemons"]
    return {one["node"]: one["actors"] for one in daemons if one["hops"] is not None}


@pytest.fixture
def ring(start: Callable[..., Daemon]) -> list[Daemon]:
    daemons = [start("--node", "a", "--mesh-heartbeat", BEAT)]
    for node in "bc":
        peers = [f"--peer=127.0.0.1:{one.address[1]}" for one in daemons]
        daemons.append(start("--node", node, "--mesh-heartbeat", BEAT, *peers))
    return daemons


def test_actors_at_three_daemons_reach_each_other_and_leave_with_their_daemon(
    ring: list[Daemon], start: Callable[..., Daemon]
) -> None:
    clients = [Lines(daemon) for daemon in ring]
    lines = [Line(daemon.address) for daemon in ring]
    for number, client in enumerate(clients):
        me = f"x/{number}"
        payload = {"actorAddress": me, "capabilities": ["ui"]}
        assert client.ask(message_b("hub:register", payload, me=me))["type"] == "hub:registered"
    for line in lines:
        wait_until(lambda line=line: actors(line) == {"a": 1, "b": 1, "c": 1}, "all are known")  # type: ignore[misc]
    first, second, third = clients
    for number in range(50):
        first.say(
            message_b("hub:send", {"to": "x/2", "type": "t", "data": number}, me="x/0"),
        )
    for number in range(50):
        assert third.hear()["payload"] == number
    message = message_b("hub:send", {"to": "x/2", "type": "t", "data": 0}, me="x/1")
    second.say(message | {"pattern": "ask", "correlationId": "7"})
    assert third.hear()["correlationId"] == "7"
    listed = second.ask(message_b("hub:discover", {"pattern": "x/"}, me="x/1"))["payload"]
    assert [(one["address"], one["daemon"]) for one in listed["actors"]] == [
        ("x/0", "a"),
        ("x/1", "b"),
        ("x/2", "c"),
    ]
    begun = time.monotonic()
    ring[2].kill()
    wait_until(lambda: actors(lines[0]) == {"a": 1, "b": 1}, "c is gone")
    assert time.monotonic() - begun < DEADLINE
    answer = first.ask(message_b("hub:send", {"to": "x/2", "type": "t", "data": 0}, me="x/0"))
    assert answer["payload"]["code"] == "unknown_actor"
    peers = [f"--peer=127.0.0.1:{one.address[1]}" for one in ring[:2]]
    start("--node", "c", "--mesh-heartbeat", BEAT, *peers)
    wait_until(lambda: actors(lines[0]) == {"a": 1, "b": 1, "c": 0}, "c is back, without ghosts")
    for one in (*clients, *lines):
        one.close()


def test_both_sides_of_a_partition_go_on_and_agree_when_it_has_healed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    flags = "--mesh-secret-file", str(secret), "--hub-mesh", "chat/"
    mesh = Mesh(tmp_path, ["ab", "b~c", "cd", "de", "e~a"], *flags, "--hub-rate=0", hubs="abcde")
    clients: dict[str, Lines] = {}

    def enter(name: str, key: str) -> Lines:
        client = Lines(mesh.daemons[name])
        message = message_b("hub:register", {"actorAddress": key, "capabilities": []}, me=key)
        assert client.ask(message)["type"] == "hub:registered"
        return client

    def send(source: str, to: str, data: str) -> None:
        payload = {"to": f"x/{to}", "type": "t", "data": data}
        clients[source].say(message_b("hub:send", payload, me=f"x/{source}"))

    def publish(source: str, data: str) -> None:
        payload = {"topic": "chat/room", "type": "t", "data": data}
        message = message_b("hub:publish", payload, me=f"x/{source}")
        assert clients[source].ask(message)["type"] == "hub:delivery_ack"

    def found(name: str) -> dict[str, str]:
        answer = clients[name].ask(message_b("hub:discover", {"pattern": "x/"}, me=f"x/{name}"))
        return {one["address"]: one["daemon"] for one in answer["payload"].get("actors", ())}

    try:
        mesh.start()
        mesh.wait_settled()
        clients |= {name: enter(name, f"x/{name}") for name in mesh.daemons}
        for name in "bd":
            clients[name].ask(message_b("hub:subscribe", {"topic": "chat/room"}, me=f"x/{name}"))
        all_ = {f"x/{name}": name for name in "abcde"}
        for name in clients:
            wait_until(lambda name=name: found(name) == all_, "all are known")  # type: ignore[misc]

        mesh.proxies["b~c"].cut()
        mesh.proxies["e~a"].swallow()
        mesh.wait_settled(but=mesh.proxies)
        for side in ("ab", "cde"):
            assert found(side[0]) == {f"x/{name}": name for name in side}
        for source, to, topic in (("a", "b", "one"), ("e", "d", "two")):
            send(source, to, source)
            assert clients[to].hear()["payload"] == source
            publish(source, topic)
            assert clients[to].hear()["payload"] == topic
        send("a", "c", "lost")
        assert clients["a"].hear()["payload"]["code"] == "unknown_actor"
        first, second = enter("a", "x/both"), enter("d", "x/both")

        all_["x/both"] = "a"
        said = {proxy: len(proxy.said) for proxy in mesh.proxies.values()}
        sent = [0]
        for proxy in mesh.proxies.values():
            proxy.heal()

        def agreed() -> bool:
            sent[:] = [proxy.heartbeats(before) for proxy, before in said.items()]
            return all(found(name) == all_ for name in clients)

        wait_until(agreed, "all agree")
        assert max(sent) <= HEALED
        lost = second.hear()
        assert (lost["type"], lost["payload"]["daemon"]) == ("hub:registration_lost", "a")
        payload = {"to": "x/both", "type": "t", "data": "found"}
        clients["d"].say(message_b("hub:send", payload, me="x/d"))
        assert first.hear()["payload"] == "found"
        mesh.wait_settled()
        publish("a", "three")
        assert [clients[name].hear()["payload"] for name in "bd"] == ["three"] * 2
        for client in (first, second):
            client.close()
    finally:
        for client in clients.values():
            client.close()
        mesh.stop()


def test_a_daemon_without_the_secret_is_neither_asked_nor_answered(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    near = start("--node", "a", "--mesh-secret-file", str(secret))
    far = start("--node", "b", "--peer", f"127.0.0.1:{near.address[1]}")
    line, client = Line(near.address), Lines(near)
    client.ask(message_b("hub:register", {"actorAddress": "x/ann", "capabilities": ["ui"]}))
    line.say(b"pub //fwd/hub/default/a/ 4 sync\n")
    name, data = line.hear_frame()
    assert (name, data.split()[0]) == ("//pubsubd/error", b"forged-advert")
    stranger = Lines(far)
    answer = stranger.ask(message_b("hub:send", {"to": "x/ann", "type": "t", "data": 0}))
    assert answer["payload"]["code"] == "unknown_actor"
    assert actors(line) == {"a": 1}
    for one in (client, stranger, line):
        one.close()
