"""Daemons of several workers in a mesh: an actor is reached wherever it is, at any worker."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import Daemon, Line, Start, frame, wait_until
from tests.hubs import Lines, connect_a, message_a, message_b

FLAGS = ("--workers=2", "--mesh=m", "--mesh-heartbeat=1", "--hub-mesh=news", "--hub-rate=0")


def workers(daemon: Daemon) -> list[int]:
    """Return the processes of its workers."""
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def worker_of(daemon: Daemon, client: Lines) -> int | None:
    """Return the process that serves a connection to the hub port."""
    here = f":{daemon.hub[1]:04X}"
    there = f":{client.sock.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[1].endswith(here) and words[2].endswith(there):
            for pid in workers(daemon):
                files = Path(f"/proc/{pid}/fd").iterdir()
                with contextlib.suppress(FileNotFoundError):
                    if any(os.readlink(file) == f"socket:[{words[9]}]" for file in files):
                        return pid
    return None


class Client(Lines):
    """A connection to the hub port at one worker of a daemon, that speaks dialect B.

    Attributes:
        me: its address.
    """

    def __init__(self, daemon: Daemon, pid: int, me: str) -> None:
        super().__init__(daemon)
        self.me = me
        with contextlib.ExitStack() as others:
            while True:
                wait_until(lambda: worker_of(daemon, self) is not None, "somebody serves it")
                if worker_of(daemon, self) == pid:
                    return
                others.callback(self.sock.close)  # so that it is not the next one's turn again
                super().__init__(daemon)

    def tell(self, kind: str, payload: dict[str, Any], **more: Any) -> None:
        """Say a message."""
        self.say(message_b(kind, payload, me=self.me, **more))

    def wait_for(self, kind: str) -> Any:
        """Return the next message of a type; what comes before it is dropped."""
        while (heard := self.hear())["type"] != kind:
            pass
        return heard

    def request(self, kind: str, payload: dict[str, Any], answer: str) -> Any:
        """Say a message, and return the payload of the answer."""
        self.tell(kind, payload)
        return self.wait_for(answer)["payload"]

    def register(self, **more: Any) -> Any:
        """Register its address, and return the answer."""
        self.tell("hub:register", {"actorAddress": self.me, "capabilities": ["ui"]} | more)
        return self.hear()

    def register_a(self) -> None:
        """Speak dialect A from now on, and register its address."""
        me = f"@({self.me})"
        self.say(message_a("hub:connect", me=me, metadata=connect_a()))
        self.wait_for("hub:connected")
        payload = {"actorAddress": me, "capabilities": ["ui"]}
        self.say(message_a("hub:register", payload, me=me))
        assert self.hear()["type"] == "hub:registered"

    def send(self, to: str, data: Any, **more: Any) -> None:
        """Send a message to an actor."""
        self.tell("hub:send", {"to": to, "type": "t", "data": data}, **more)

    def found(self, scope: str = "mesh") -> dict[str, str | None]:
        """Return the actors that it finds, and where they are said to be."""
        answer = self.request("hub:discover", {"pattern": "x/", "scope": scope}, _FOUND)
        assert answer["total"] == len(answer["actors"])
        return {one["address"].strip("@()"): one.get("daemon") for one in answer["actors"]}

    def wait_moved(self, address: str, node: str) -> None:
        """Wait until an actor is at a daemon."""
        wait_until(lambda: self.found().get(address) == node, f"{address} is at {node}")

    def wait_found(self, addresses: set[str]) -> None:
        """Wait until it finds these actors, and no others."""
        wait_until(lambda: set(self.found()) == addresses, f"{self.me} finds {addresses}")


_FOUND = "hub:discovery_result"

Make = Callable[[Daemon, int, str], Client]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return what makes clients, at a worker with a process, of an address."""
    with contextlib.ExitStack() as stack:

        def make(daemon: Daemon, pid: int, me: str) -> Client:
            return stack.enter_context(contextlib.closing(Client(daemon, pid, me)))

        yield make


@pytest.fixture
def two(start: Start) -> tuple[Daemon, Daemon]:
    """Two daemons of two workers each, with a link."""
    one = start("--node=one", *FLAGS)
    other = start("--node=two", *FLAGS, f"--peer=127.0.0.1:{one.address[1]}")
    for daemon in (one, other):
        daemon.wait_log("event=link-up")
    return one, other


def known(daemon: Daemon) -> dict[str, int | None]:
    """Return how many actors a daemon knows of each daemon that it can reach."""
    with contextlib.closing(Line(daemon.address)) as line:
        line.say(frame("//pubsubd/peers", b""))
        rows = json.loads(line.hear_frame()[1])["daemons"]
    return {row["node"]: row["actors"] for row in rows if row["hops"] is not None}


def everywhere(daemons: tuple[Daemon, ...], make: Make) -> list[Client]:
    """Return a registered client at each worker of each daemon, once all know of all."""
    clients = []
    for number, daemon in enumerate(daemons):
        for at, pid in enumerate(workers(daemon)):
            client = make(daemon, pid, f"x/{number}{at}")
            assert client.register()["type"] == "hub:registered"
            clients.append(client)
    every = {client.me for client in clients}
    for client in clients:
        client.wait_found(every)
    return clients


def test_what_is_sent_between_any_two_workers_arrives_once_and_in_order(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    clients = everywhere(two, make)
    for number in range(50):
        for client, other in itertools.permutations(clients, 2):
            client.send(other.me, number)
    for client in clients:
        heard: dict[str, list[int]] = {}
        for _ in range(50 * (len(clients) - 1)):
            message = client.hear()
            heard.setdefault(message["from"], []).append(message["payload"])
        others = {other.me for other in clients if other is not client}
        assert heard == {me: list(range(50)) for me in others}
    for client, other in itertools.permutations(clients, 2):
        client.send(other.me, "ask", pattern="ask", correlationId="7")
        question = other.hear()
        assert (question["payload"], question["correlationId"]) == ("ask", "7")
        other.send(client.me, "answer", correlationId="7")
        answer = client.hear()
        assert (answer["from"], answer["payload"], answer["correlationId"]) == (
            other.me,
            "answer",
            "7",
        )
    for client in clients:
        client.send("x/nobody", 1)
        assert client.hear()["payload"]["code"] == "unknown_actor"


def test_who_asks_is_told_that_a_message_was_delivered_or_was_not(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    clients = everywhere(two, make)
    for number, (daemon, at) in enumerate(itertools.product(two, range(2))):
        asker = make(daemon, workers(daemon)[at], f"x/asker{number}")
        asker.register_a()
        for client in clients:
            ask = {"to": f"@({client.me})", "type": "t", "data": number}
            asker.say(message_a("hub:send", ask, me=f"@({asker.me})", pattern="ask", id="q"))
            assert client.hear()["payload"] == number
            ack = asker.hear()
            assert (ack["type"], ack["payload"]["messageId"]) == ("hub:delivery_ack", "q")
        ask = {"to": "@(x/nobody)", "type": "t", "data": 1}
        asker.say(message_a("hub:send", ask, me=f"@({asker.me})", pattern="ask"))
        assert asker.hear()["type"] == "hub:unknown_actor"


def test_lists_and_broadcasts_are_of_all_or_of_all_workers_of_this_daemon(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    clients = everywhere(two, make)
    nodes = {"x/00": "one", "x/01": "one", "x/10": "two", "x/11": "two"}
    for client in clients:
        here = nodes[client.me]
        mates = [me for me, node in nodes.items() if node == here]
        assert client.found() == nodes
        assert client.found("local") == dict.fromkeys(mates)
        listed = client.request("hub:list_actors", {"limit": 3, "offset": 1}, _FOUND)
        assert [one["address"] for one in listed["actors"]] == ["x/01", "x/10", "x/11"]
        assert (listed["total"], listed["unanswered"]) == (4, [])
        for kind, answer in (
            ("hub:list_topics", "hub:topic_list"),
            ("hub:queue_stats", "hub:queue_stats"),
        ):
            client.tell(kind, {})
            assert client.hear()["payload"]["daemon"] == here, answer
        client.say({"command": "pubsub.stats", "payload": {}})
        assert client.hear()["payload"]["daemon"] == here
        for scope, heard_by in (("mesh", list(nodes)), ("local", mates)):
            ack = client.request(
                "hub:broadcast",
                {"type": "hail", "data": scope, "scope": scope, "excludeSelf": True},
                "hub:broadcast_ack",
            )
            assert ack["deliveredCount"] == len(heard_by) - 1
            assert ack.get("unanswered") == ([] if scope == "mesh" else None)
            for other in clients:
                if other is not client and other.me in heard_by:
                    heard = other.hear()
                    assert (heard["payload"], heard["from"]) == (scope, client.me)


def test_an_address_is_one_actors_in_the_whole_mesh(two: tuple[Daemon, Daemon], make: Make) -> None:
    clients = everywhere(two, make)
    nodes = ("one", "one", "two", "two")
    for client, (number, other) in itertools.product(clients, enumerate(clients)):
        if client is not other:
            refused = client.register(actorAddress=other.me)["payload"]
            assert refused["message"].endswith("already registered")
            if (clients.index(client) < 2) != (number < 2):
                assert refused["details"]["daemon"] == nodes[number]
    for number, (daemon, at) in enumerate([(two[0], 1), (two[1], 1), (two[1], 0), (two[0], 0)]):
        taker = make(daemon, workers(daemon)[at], "x/00")  # in A, whoever comes last has it
        taker.register_a()
        holder = clients[0]
        assert b"duplicate" in holder.hear_rest()
        clients[0] = taker
        for client in clients[1:]:
            client.wait_moved("x/00", "one" if daemon is two[0] else "two")
            client.send("x/00", number)
            assert taker.hear()["payload"] == number


def test_of_two_claims_the_earlier_one_stays_whichever_workers_have_them(
    start: Start, make: Make
) -> None:
    one, other = (start(f"--node={node}", *FLAGS) for node in ("one", "two"))
    pairs = []
    for number, (first, second) in enumerate(itertools.product(range(2), repeat=2)):
        winner = make(one, workers(one)[first], f"x/{number}")
        assert winner.register()["type"] == "hub:registered"
        loser = make(other, workers(other)[second], f"x/{number}")
        assert loser.register()["type"] == "hub:registered"
        pairs.append((winner, loser))
    peers = [f"--peer=127.0.0.1:{daemon.address[1]}" for daemon in (one, other)]
    start("--node=three", "--mesh=m", "--mesh-heartbeat=1", *peers)
    for winner, loser in pairs:
        lost = loser.hear()
        assert (lost["type"], lost["payload"]["daemon"]) == ("hub:registration_lost", "one")
        assert loser.found()[winner.me] == "one"
        loser.tell("hub:register", {"actorAddress": f"{loser.me}b", "capabilities": ["ui"]})
        assert loser.hear()["type"] == "hub:registered"
        loser.me += "b"
        loser.send(winner.me, 1)
        assert winner.hear()["payload"] == 1
    everybody = {winner.me: "one" for winner, _ in pairs} | {loser.me: "two" for _, loser in pairs}
    for winner, _ in pairs:
        wait_until(lambda: winner.found() == everybody, "all are known")  # noqa: B023
    assert known(one) == {"one": 4, "two": 4, "three": 0}


def test_topics_of_the_mesh_cross_links_from_and_to_all_workers(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    clients = everywhere(two, make)
    for client in clients:
        client.request("hub:subscribe", {"topic": "news/+"}, "hub:subscribed")
    for number, client in enumerate(clients):
        heard: dict[str, list[int]] = {other.me: [] for other in clients}
        for attempt in itertools.count():
            client.tell("hub:publish", {"topic": f"news/{number}", "type": "n", "data": attempt})
            for other in clients:
                other.tell("hub:list_topics", {})
                while (message := other.hear())["type"] != "hub:topic_list":
                    if message["type"] == "n" and message["from"] == client.me:
                        heard[other.me].append(message["payload"])
            if all(heard.values()):
                break
        for found in heard.values():
            assert found == sorted(set(found))


def test_a_worker_that_is_killed_takes_its_own_actors_out_of_the_mesh_and_no_others(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    one, _other = two
    clients = everywhere(two, make)
    before = workers(one)
    for victim in (1, 0):
        survivor = clients[1 - victim]
        os.kill(before[victim], signal.SIGKILL)
        assert clients[victim].hear_rest() == b""
        one.wait_log(f"event=worker-started worker={victim}")
        (fresh,) = set(workers(one)) - set(before)
        before[victim] = fresh
        left = {one.me for one in clients if one is not clients[victim]}
        for client in clients[2:]:
            client.wait_found(left)
        assert (
            survivor.found() == {me: "one" if me.startswith("x/0") else "two" for me in left}
            or victim == 0
        )
        newcomer = clients[victim] = make(one, fresh, f"x/0{victim}new")
        assert newcomer.register()["type"] == "hub:registered"
        every = {client.me for client in clients}
        for client in clients:
            client.wait_found(every)
        for client, other in itertools.permutations(clients, 2):
            client.send(other.me, victim)
            assert other.wait_for("t")["payload"] == victim
    _end(one)


def _end(daemon: Daemon) -> None:
    """End a daemon whose log tells of errors."""
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_what_waits_for_a_worker_that_dies_is_told(two: tuple[Daemon, Daemon], make: Make) -> None:
    clients = everywhere(two, make)
    stopped = workers(two[0])[1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        for client in clients[2:]:
            client.send("x/01", 1, pattern="ask")
            client.tell("hub:broadcast", {"type": "hail", "data": 1})
        for client in clients[2:]:
            assert client.wait_for("hub:broadcast_ack")["payload"]["unanswered"] == ["one"]
    finally:
        os.kill(stopped, signal.SIGKILL)
    for client in clients[2:]:
        client.send("x/01", 2, pattern="ask")
        while (heard := client.hear())["type"] != "hub:error":
            pass
        assert heard["payload"]["code"] == "unknown_actor"
    two[0].wait_log("event=worker-started worker=1")
    _end(two[0])


def test_a_reload_and_the_end_of_a_daemon_go_as_with_one_worker(
    two: tuple[Daemon, Daemon], make: Make
) -> None:
    one, other = two
    clients = everywhere(two, make)
    one.signal(signal.SIGHUP)
    one.wait_log("event=reloaded")
    clients[0].send("x/11", 1)
    assert clients[3].hear()["payload"] == 1
    one.signal()
    assert one.wait() == 0
    for client in clients[:2]:
        assert re.search(rb"shutting", client.hear_rest(), re.IGNORECASE)
    for client in clients[2:]:
        client.wait_found({"x/10", "x/11"})
        assert known(other) == {"two": 2}


def test_an_advert_by_a_client_that_is_none_is_refused_by_any_worker(start: Start) -> None:
    daemon = start("--node=one", *FLAGS, "--discover=any")
    with contextlib.ExitStack() as stack:
        for _ in range(4):  # two at each worker
            line = stack.enter_context(contextlib.closing(Line(daemon.address)))
            line.say(frame("//fwd/peers/m/z", b"nowhere"))
            name, text = line.hear_frame()
            assert (name, text.split()[0]) == ("//pubsubd/error", b"bad-request")
    daemon.signal()
    assert daemon.wait() == 0
    assert "event=fault" not in daemon.log
