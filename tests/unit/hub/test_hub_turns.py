"""What one connection of the hub port may do before others are served, and what a fault costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pubsubd.hub.frames import Event
from pubsubd.hub.http import HttpReader, Request
from pubsubd.hub.render import Batch
from pubsubd.hub.subscriptions import Subscriptions
from pubsubd.hub.topic_table import TopicTable
from pubsubd.protocol.limits import ANSWER, BYTES_PER_TURN, HUB_READ_SIZE, KIB, MIB, Limits
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.router import Router
from pubsubd.routing.targets import CopyTargets, Targets
from tests.footprint import reached
from tests.hubs import UPGRADE, Room, client_frame, message_a, message_b

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def synap(command: str, **payload: Any) -> Any:
    return {"command": f"pubsub.{command}", "request_id": 1, "payload": payload}


@pytest.fixture
def room() -> Room:
    room = Room(rate=0)
    room.join("ann", "bob", "cat")
    room.join_line("lin")
    return room


def turns_of(room: Room, name: str, data: bytes, note: Callable[[], int]) -> list[int]:
    """Let a connection say ``data`` in one read; return by how much ``note`` grows in each turn."""
    seen, grown = note(), []
    more = True
    while more:
        more = room.connections[name].receive(data)
        data = b""
        now = note()
        grown.append(now - seen)
        seen = now
    return grown


# Turns


@pytest.mark.parametrize("first", [0x01, 0x89], ids=["fragments", "pings"])
def test_of_many_small_frames_only_some_are_read_in_a_turn(room: Room, first: int) -> None:
    room.say_raw("ann", UPGRADE)
    connection = room.connections["ann"]
    frames = client_frame(b"x", first) + client_frame(b"x", first & 0x88) * 20_000
    room.shorten_turns(2)
    data = frames[:HUB_READ_SIZE]
    assert connection.receive(data)
    assert len(data) - connection.unread <= 2 * 8 * KIB
    connection.receive(b"")
    assert len(data) - connection.unread <= 4 * 8 * KIB


def test_of_many_requests_one_is_read_at_a_time(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[Request] = []
    take = HttpReader.take

    def count(self: HttpReader, data: bytes, at: int) -> tuple[list[Event], int]:
        events, at = take(self, data, at)
        finished.extend(one for one in events if isinstance(one, Request))
        return events, at

    monkeypatch.setattr(HttpReader, "take", count)
    room.shorten_turns(6)
    grown = turns_of(room, "ann", GET * 300, lambda: len(finished))
    assert sum(grown) == 300
    assert max(grown) <= 4
    assert room.heard["ann"].count(b"HTTP/1.1 200 ") == 300


def test_what_comes_behind_an_upgrade_in_one_read_is_the_websockets(room: Room) -> None:
    ping = client_frame(b'{"type":"ping"}')
    room.say_raw("ann", UPGRADE + ping * 3)
    assert room.heard["ann"].count(b'{"type":"pong"}') == 3
    room.say_raw("bob", UPGRADE.replace(b"/ws", b"/pubsub/ws?topics=a,b") + ping)
    assert room.heard["bob"].index(b'"connected"') < room.heard["bob"].index(b'"pong"')


def test_a_turn_ends_by_the_clock_after_any_message(room: Room) -> None:
    room.shorten_turns(5)
    grown = turns_of(room, "ann", line({"type": "ping"}) * 50, lambda: len(room.heard["ann"]))
    pong = len(line({"type": "pong"}).replace(b" ", b""))
    assert sum(grown) == 50 * pong
    assert max(grown) <= 5 * pong


def test_a_turn_ends_by_the_bytes_of_its_answers(room: Room) -> None:
    for number in range(8):
        payload = {"actorAddress": f"n/{number}", "metadata": {"x": "y" * 30_000}}
        room.ask("bob", message_b("hub:register", payload))
    made = room.turns("ann", *[message_b("hub:list_actors", {})] * 50)
    assert len(room.hears("ann")) == 50
    assert sum(made) > 50 * 8 * 30_000
    assert max(made) <= BYTES_PER_TURN + ANSWER


def test_answers_are_handed_on_before_they_are_many(room: Room) -> None:
    for number in range(8):
        payload = {"actorAddress": f"n/{number}", "metadata": {"x": "y" * 25_000}}
        room.ask("bob", message_b("hub:register", payload))
    sent: list[bytes] = []
    room.sends["ann"] = sent.append
    said = [message_b("hub:list_actors", {}, correlationId=f"{n}") for n in range(20)]
    room.connections["ann"].receive(b"".join(map(line, said)))
    assert len(sent) > 2
    assert max(map(len, sent)) <= 2 * ANSWER
    told = [json.loads(one)["correlationId"] for one in b"".join(sent).splitlines()]
    assert told == [f"{n}" for n in range(len(told))]


def test_who_does_not_read_its_answers_is_asked_no_more(room: Room) -> None:
    for number in range(8):
        payload = {"actorAddress": f"n/{number}", "metadata": {"x": "y" * 30_000}}
        room.ask("bob", message_b("hub:register", payload))
    connection = room.connections["ann"]
    sent: list[int] = []

    def send(data: Any) -> None:
        sent.append(len(data))
        if sum(sent) > 500_000:
            room.end("ann", "slow-consumer", "too many bytes")

    room.sends["ann"] = send
    assert not connection.receive(line(message_b("hub:list_actors", {})) * 100)
    assert sum(sent) < 1_000_000
    assert room.hub.processed < 30  # eight of them to register
    assert room.ended["ann"][0] == "slow-consumer"


def test_small_publications_stay_together_and_large_ones_end_a_turn(room: Room) -> None:
    room.shorten_turns(1)
    counters = room.broker.counters
    for size, space, most in ((10, b" ", 1024), (10, b"  ", 256), (2_000, b" ", 1)):
        said = message_b("hub:publish", {"topic": "t", "type": "x", "data": "y" * size})
        said = line(said).replace(b" ", space)  # or each has to be read by itself
        grown = turns_of(room, "ann", said * 1_200, lambda: counters.messages_in)
        assert sum(grown) == 1_200
        assert max(grown) == most


# Searches that take longer than a turn


class Slow:
    """Lets whom a name goes to be found only when it is asked for some times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int = 3) -> None:
        self.left = times
        receivers = Router.receivers

        def search(router: Router, name: bytes) -> Targets | CopyTargets:
            if self.left:
                self.left -= 1
                raise Unfinished
            return receivers(router, name)

        monkeypatch.setattr(Router, "receivers", search)


SEARCHES: dict[str, Any] = {
    "hub": message_b("hub:publish", {"topic": "t", "type": "x", "data": 1}),
    "synap": synap("publish", topic="t", payload=1),
    "envelope": {"type": "t", "id": "", "payload": 1},
    "info": message_b("hub:topic_info", {"topic": "t"}),
    "list": message_b("hub:list_topics", {}),
    "synap info": synap("info", topic="t"),
    "synap stats": synap("stats"),
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_that_takes_several_turns_leads_to_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(rate=60, burst=3)
    room.join("ann", "bob", "cat")
    topic = "t:" if kind == "envelope" else "t"
    room.ask("bob", synap("subscribe", topics=[topic]))
    room.say("cat", synap("publish", topic=topic, payload=0))
    room.hears("cat")
    room.hears("bob")
    before = room.hub.processed
    slow = Slow(monkeypatch)
    made = room.turns("ann", SEARCHES[kind], {"type": "ping"})
    assert slow.left == 0
    assert len(made) == 4
    *answers, pong = room.hears("ann")
    assert pong == {"type": "pong"}
    assert len(answers) == (0 if kind == "envelope" else 1)
    assert room.hub.processed - before == (1 if kind in ("hub", "info", "list") else 0)
    delivered = room.hears("bob")
    assert len(delivered) == (1 if kind in ("hub", "synap", "envelope") else 0)
    found = room.hub.topics.get(topic.encode())
    assert found is not None
    assert found.message_count == 1 + len(delivered)
    if kind in ("hub", "info", "list"):  # one of three was taken
        room.say("ann", *[message_b("hub:heartbeat")] * 3)
        assert [one["type"] for one in room.hears("ann")][-1] == "hub:error"
        assert room.hub.failed == 1


def test_over_http_too(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.ask("bob", synap("subscribe", topics=["t"]))
    slow = Slow(monkeypatch)
    body = b'{"payload":1}'
    head = b"POST /pubsub/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    room.say_raw("ann", head % len(body) + body + GET)
    assert slow.left == 0
    assert room.heard["ann"].count(b"HTTP/1.1 200 ") == 2
    assert len(room.hears("bob")) == 1


# Rates of requests


@pytest.mark.parametrize("command", ["topics", "info", "stats"])
def test_requests_of_the_daemon_are_held_to_a_rate(command: str) -> None:
    room = Room(line_limits=Limits(request_rate=2))
    room.join("ann")
    answers = [room.ask("ann", synap(command, topic="t")) for _ in range(21)]
    assert all("Rate limited" not in (one["error"] or "") for one in answers[:20])
    assert answers[20]["success"] is False
    assert answers[20]["error"] == ("Rate limited: over 2 requests a second; try again in 0.5 s")
    assert room.ask("ann", synap("publish", topic="t", payload=1))["success"]
    room.now += 0.5
    assert "Rate limited" not in (room.ask("ann", synap(command, topic="t"))["error"] or "")
    assert room.broker.counters.errors["rate-limited"] == 1


@pytest.mark.parametrize("path", ["/health", "/", "/pubsub/stats", "/metrics", "/nothing"])
def test_over_http_what_is_over_the_rate_is_429(path: str) -> None:
    room = Room(line_limits=Limits(request_rate=2))
    room.join("ann")
    get = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()
    room.say_raw("ann", get * 21)
    heads = [one for one in room.heard["ann"].split(b"\r\n") if b"HTTP/1.1 " in one]
    assert [b" 429 " in head for head in heads] == [False] * 20 + [True]
    assert b"Retry-After: 1\r\n" in room.heard["ann"]
    assert room.heard["ann"].endswith(
        b'{"error":"Rate limited: over 2 requests a second; try again in 0.5 s"}'
    )


# Faults


class Fault(Exception):  # noqa: N818
    """What a test throws."""


def fail(*_: Any) -> None:
    raise Fault


def check_others(room: Room, broken: str) -> None:
    """Check that a fault has ended that connection, and that the others go on."""
    assert room.ended[broken][0] == "internal-error"
    assert set(room.ended) == {broken}
    assert not room.hub.touched
    assert sum(room.broker.faults.counts.values()) == 1
    assert room.ask("ann", {"type": "ping"}) == {"type": "pong"}


def test_a_fault_while_a_message_is_handed_to_an_actor_ends_that_one(room: Room) -> None:
    for name in ("bob", "cat"):
        room.register_a(name)
    room.sends["bob"] = fail
    room.say("ann", message_b("hub:broadcast", {"type": "x"}))
    assert room.hears("ann")[0]["payload"]["deliveredCount"] == 2
    assert [one["type"] for one in room.hears("cat")] == ["x"]
    check_others(room, "bob")


def test_a_fault_in_what_is_put_to_an_actor_counts_as_not_delivered(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bob", "cat"):
        room.register_a(name)
    bob = room.connections["bob"]
    monkeypatch.setattr(
        "pubsubd.hub.connection.HubConnection.put",
        lambda connection, text: fail() if connection is bob else connection.put_raw(text + b"\n"),
    )
    room.say("ann", message_b("hub:send", {"type": "x"}, to="browser/bob"))
    assert room.hears("ann")[0]["payload"]["code"] == "unknown_actor"
    assert room.ended["bob"][0] == "internal-error"
    room.say("ann", message_b("hub:send", {"type": "x"}, to="browser/cat"))
    assert [one["type"] for one in room.hears("cat")] == ["x"]


def test_a_fault_of_the_one_that_is_displaced_is_its_own(room: Room) -> None:
    room.register_a("bob")
    room.ends["bob"] = fail
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/bob)", "capabilities": ["x"]}
    answer = room.ask("ann", message_a("hub:register", payload))
    assert answer["type"] == "hub:registered"
    assert sum(room.broker.faults.counts.values()) >= 1
    assert room.ask("ann", {"type": "ping"}) == {"type": "pong"}


def test_a_fault_while_registrations_end_is_its_owners(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bob", "cat"):
        room.register_a(name, ttlSeconds=5)
        room.ask(name, message_a("hub:subscribe", {"topic": "t"}, me=f"@(browser/{name})"))
    bob = room.connections["bob"]
    remove = Subscriptions.remove

    def break_one(self: Subscriptions, *args: Any) -> None:
        if self is bob.subscriptions:
            raise Fault
        remove(self, *args)

    monkeypatch.setattr(Subscriptions, "remove", break_one)
    room.now += 10
    check_others_after = room.ask("ann", {"type": "ping"})
    assert check_others_after == {"type": "pong"}
    monkeypatch.undo()
    check_others(room, "bob")
    assert room.broker.router.subscriptions == 0
    assert len(room.hub.registry) == 0


# Leaving


def steps_of(room: Room, name: str) -> list[Any]:
    return list(room.connections.pop(name).leaving())


def test_one_that_leaves_throws_away_whatever_it_is_given(room: Room) -> None:
    room.register_a("bob")
    for topic in ["#", "t", *(f"t{number}" for number in range(2_000))]:
        room.ask("bob", message_a("hub:subscribe", {"topic": topic}, me="@(browser/bob)"))
    connection = room.connections["bob"]
    steps = steps_of(room, "bob")

    def disturb() -> None:
        room.say_raw("lin", b"pub t 1 x\npub t1999 1 x\n")
        room.say("ann", message_b("hub:send", {"type": "x"}, to="browser/bob"))
        assert room.hears("ann")[0]["payload"]["code"] == "unknown_actor"
        connection.put(b"{}")
        assert connection.out == []
        connection.peer.send(b"pub t 1 x\n")
        connection.end("slow-consumer", "late")

    taken = 0
    for step in steps:
        for _ in step():
            taken += 1
            disturb()
        disturb()
    assert taken >= 2
    assert room.hears("bob") == []
    assert connection.out == []
    assert not room.hub.touched
    assert room.hub.undelivered == 0
    assert not room.broker.faults.counts
    assert room.broker.router.subscriptions == 0


def test_what_a_leaver_had_registered_and_others_have_now_stays(room: Room) -> None:
    room.register_a("bob")
    steps = steps_of(room, "bob")
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/bob)", "capabilities": ["x"]}
    assert room.ask("ann", message_a("hub:register", payload))["type"] == "hub:registered"
    for step in steps:
        for _ in step():
            pass
    assert len(room.hub.registry) == 1
    room.say("cat", message_b("hub:send", {"type": "x"}, to="browser/bob"))
    assert [one["type"] for one in room.hears("ann")] == ["x"]


def test_what_is_let_go_of_twice_is_counted_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "bob"):
        for topic in ("a", "b", "c/#"):
            room.ask(name, message_b("hub:subscribe", {"topic": topic}))
    subscriptions = room.connections["bob"].subscriptions
    release, times = TopicTable.release, []

    def fail_once(self: TopicTable, *args: Any) -> None:
        times.append(1)
        if len(times) == 1:
            raise Fault
        release(self, *args)

    monkeypatch.setattr(TopicTable, "release", fail_once)
    with pytest.raises(Fault):
        list(subscriptions.release())
    list(subscriptions.release())
    for name in (b"a", b"b"):
        topic = room.hub.topics.get(name)
        assert topic is not None
        assert topic.subscribers == 1
    assert room.hub.policy.wildcards == 1


# Memory


def test_renderings_are_kept_only_while_they_are_small(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        room.join(f"web{number}")
        room.say_raw(f"web{number}", UPGRADE)
    said = (
        message_b("hub:subscribe", {"topic": "t"}),
        synap("subscribe", topics=["t"]),
    )
    for name, message in zip(("ann", "bob"), said, strict=True):
        room.ask(name, message)
    data = b"\x01" * MIB
    for _ in range(8):
        room.say_raw("lin", b"pub t %d %b\n" % (len(data), data))
        for name in ("ann", "bob"):
            room.hears(name)
    kept = [one for one in reached(room.hub) if isinstance(one, Batch)]
    assert sum(batch.size for batch in kept) < 64 * MIB
    assert max(batch.size for batch in kept) > 6 * MIB  # among others, in the form of Signal Hub
