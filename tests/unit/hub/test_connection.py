"""One connection of the hub port: which dialect, which form, in which order, and what is left."""

from __future__ import annotations

import base64
import gc
import json
from typing import Any

import pytest

from pubsubd.hub.connection import HubConnection
from pubsubd.hub.protocol import PING
from pubsubd.protocol.limits import HUB_TURN, HubLimits, Limits
from pubsubd.routing.outbox import Outbox
from pubsubd.routing.wildcards import Pattern
from tests.hubs import UPGRADE, Room, message_a, message_b


@pytest.fixture
def room() -> Room:
    room = Room()
    room.join("ann", "bob", "cat")
    room.join_line("lin")
    return room


def subscribe_envelope(topic: str) -> Any:
    return {"type": "__subscribe", "id": "", "payload": {"topic": topic}}


def synap(command: str, **payload: Any) -> Any:
    return {"command": command, "request_id": "r1", "payload": payload}


# Telling dialects apart


def test_a_ping_is_answered_before_anything_else(room: Room) -> None:
    assert room.ask("ann", {"type": "ping"}) == {"type": "pong"}


def test_each_message_is_told_by_its_shape(room: Room) -> None:
    room.say(
        "ann",
        message_b("hub:heartbeat"),
        synap("pubsub.topics"),
        subscribe_envelope("a:b"),
        {"type": "ping"},
    )
    beat, topics, pong = room.hears("ann")
    assert beat["type"] == "hub:heartbeat_ack"
    assert topics["success"] is True
    assert pong == {"type": "pong"}


def test_lines_may_end_as_telnet_ends_them_and_empty_ones_are_ignored(room: Room) -> None:
    room.say_raw("ann", b'\r\n\n{"type":"ping"}\r\n\n{"type":"ping"}\n')
    assert room.hears("ann") == [{"type": "pong"}] * 2


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_outcome_does_not_depend_on_how_the_bytes_are_cut(room: Room, size: int) -> None:
    room.ask("bob", message_b("hub:subscribe", {"topic": "t"}))
    said = b"".join(
        json.dumps(one).encode() + b"\n"
        for one in (
            message_b("hub:publish", {"topic": "t", "type": "x", "data": "é€"}),
            {"type": "ping"},
            synap("pubsub.publish", topic="t", payload=2),
        )
    )
    for at in range(0, len(said), size):
        room.say_raw("ann", said[at : at + size])
    assert [one.get("type") for one in room.hears("ann")] == ["hub:delivery_ack", "pong", None]
    assert [one["payload"] for one in room.hears("bob")] == ["é€", 2]


# Faults


@pytest.mark.parametrize(
    "line",
    [
        b"{nonsense",
        b'{"type":"ping"',
        b'{"type":"a","type":"b"}',
        b'{"payload":{"a":{"b":1,"b":2}},"type":"hub:publish"}',
        b'{"type":"\\ud800"}',
        b'{"type":"\xff"}',
        b'{"type":"hub:x","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"hub:x","payload":' + b"9" * 400 + b"}",
        b'{"type":"hub:x","payload":1e999}',
        b'{"type":"hub:x","payload":NaN}',
    ],
    ids=[
        "syntax", "cut", "twice", "twice inside", "surrogate", "utf-8", "deep", "huge", "infinite",
        "nan",
    ],
)  # fmt: skip
def test_what_is_no_json_is_told_and_ends_the_connection(room: Room, line: bytes) -> None:
    room.ask("bob", message_b("hub:subscribe", {"topic": "t"}))
    room.say_raw("ann", line + b"\n" + json.dumps({"type": "ping"}).encode() + b"\n")
    (told,) = room.hears("ann")
    assert told["type"] == "hub:error"
    assert told["payload"]["code"] == "internal_error"
    assert room.ended["ann"][0] == "bad-json"
    room.say_raw("lin", b"pub t 1 x\n")
    assert len(room.hears("bob")) == 1


@pytest.mark.parametrize("value", [[], "text", 7, None, True])
def test_json_that_is_no_object_is_told(room: Room, value: Any) -> None:
    room.say("ann", {"type": "ping"})
    room.hears("ann")
    answer = room.ask("ann", value)
    assert answer["payload"]["message"] == "Invalid SharedMessage structure"


@pytest.mark.parametrize("request_id", [7, None, [1], {"a": 1}])
def test_a_command_is_answered_with_its_request_id_whatever_that_is(
    room: Room, request_id: Any
) -> None:
    command = {"command": "pubsub.topics", "request_id": request_id, "type": 7, "id": []}
    assert room.ask("ann", command)["request_id"] == request_id


# Envelopes


def test_an_envelope_reaches_every_other_subscriber_and_not_its_sender(room: Room) -> None:
    for name in ("ann", "bob", "cat"):
        room.say(name, subscribe_envelope("message.sent:conv-1"))
    envelope = {"type": "message.sent", "id": "conv-1", "payload": {"text": "hé", "n": [1, None]}}
    room.say("ann", envelope)
    assert room.hears("ann") == []
    assert room.hears("bob") == room.hears("cat") == [envelope]


def test_an_empty_id_leaves_a_colon_at_the_end(room: Room) -> None:
    room.say("bob", subscribe_envelope("tick"), subscribe_envelope("tock:"))
    room.say(
        "ann", {"type": "tick", "id": "", "payload": 1}, {"type": "tock", "id": "", "payload": 2}
    )
    assert room.hears("bob") == [{"type": "tock", "id": "", "payload": 2}]


def test_a_direct_topic_is_an_ordinary_one(room: Room) -> None:
    room.say("bob", subscribe_envelope("direct:bob"))
    room.say("ann", {"type": "direct", "id": "bob", "payload": "psst"})
    assert room.hears("bob") == [{"type": "direct", "id": "bob", "payload": "psst"}]


def test_unsubscribing_ends_it_without_an_answer(room: Room) -> None:
    room.say("bob", subscribe_envelope("a:1"))
    room.say("bob", {"type": "__unsubscribe", "id": "", "payload": {"topic": "a:1"}})
    room.say("ann", {"type": "a", "id": "1", "payload": 1})
    assert room.hears("bob") == room.hears("ann") == []
    assert room.broker.router.subscriptions == 0


@pytest.mark.parametrize(
    "message",
    [
        {"type": "__subscribe", "id": "", "payload": {"topic": ""}},
        {"type": "__subscribe", "id": "", "payload": {}},
        {"type": "__subscribe", "id": "", "payload": None},
        {"type": "__subscribe", "id": "", "payload": {"topic": "a b"}},
        {"type": "__subscribe", "id": "", "payload": {"topic": "//pubsubd/stats"}},
        {"type": "__other", "id": "", "payload": {"topic": "a:1"}},
        {"type": "a b", "id": "1", "payload": 1},
        {"type": "a", "id": "1\npub a:1 1 x", "payload": 1},
        {"type": "//pubsubd/x", "id": "1", "payload": 1},
        {"type": "a", "id": 7, "payload": 1},
        {"type": "", "id": "", "payload": 1},
        {"type": "__subscribe", "id": "", "payload": 1, "more": 1},
    ],
)
def test_an_envelope_that_cannot_be_used_is_ignored_and_counted(room: Room, message: Any) -> None:
    room.say_raw("lin", b"sub a\n")
    before = room.hub.ignored
    room.say("ann", message)
    assert room.hears("lin") == []
    if "more" not in message and not isinstance(message["id"], int):
        assert room.hears("ann") == []
        assert room.hub.ignored == before + 1
    assert room.broker.router.subscriptions == 1


def test_even_what_is_no_json_is_ignored_on_a_connection_of_envelopes(room: Room) -> None:
    room.say("ann", subscribe_envelope("a:1"))
    room.say_raw("ann", b"{nonsense\n")
    assert room.hears("ann") == []
    assert room.hub.ignored == 1
    room.say("bob", {"type": "a", "id": "1", "payload": 1})
    assert len(room.hears("ann")) == 1


# The bridge


def test_a_line_message_arrives_in_the_form_of_each_dialect(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "chat"}))
    room.say("bob", subscribe_envelope("chat"))
    room.ask("cat", synap("pubsub.subscribe", topics=["chat"]))
    room.say_raw("lin", b"pub chat 5 hello\n")
    plain = {"name": "chat", "data": "hello"}
    (got,) = room.hears("ann")
    assert (got["type"], got["payload"]) == ("pubsub:message", plain)
    assert got["from"].startswith("tcp/127.0.0.1:")
    assert room.hears("bob") == [{"type": "chat", "id": "", "payload": plain}]
    (pushed,) = room.hears("cat")
    assert (pushed["type"], pushed["topic"]) == ("message", "chat")
    assert pushed["payload"] == pushed["message"] == plain


def test_bytes_that_are_no_text_arrive_in_base64_and_go_back_as_bytes(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "chat"}))
    room.say_raw("lin", b"sub chat\n")
    room.say_raw("lin", b"pub chat 3 \x00\xff\n\n")
    assert room.hears("lin") == [(b"chat", b"\x00\xff\n")]
    (got,) = room.hears("ann")
    assert base64.b64decode(got["payload"]["dataBase64"]) == b"\x00\xff\n"
    back = {"topic": "chat", "type": got["type"], "data": got["payload"]}
    room.ask("bob", message_b("hub:publish", back))
    assert room.hears("lin") == [(b"chat", b"\x00\xff\n")]


def test_json_with_a_type_keeps_type_and_payload_both_ways(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    room.say_raw("lin", b"sub t\n")
    data = b'{"type":"x","payload":{"a":1},"from":"me"}'
    room.say_raw("lin", b"pub t %d %b\n" % (len(data), data))
    got, *_ = room.hears("ann")
    assert (got["type"], got["payload"]) == ("x", {"a": 1})
    assert got["from"].startswith("tcp/")  # not what it claims
    room.hears("lin")
    room.ask("bob", message_b("hub:publish", {"topic": "t", "type": "x", "data": {"a": 1}}))
    ((name, data),) = room.hears("lin")
    assert name == b"t"
    told = json.loads(data)
    assert told.pop("from").startswith("tcp/127.0.0.1:")
    assert told == {"type": "x", "payload": {"a": 1}}
    assert b" " not in data


@pytest.mark.parametrize(
    "data", ['{"type":"x","from":"bank/teller","payload":1}', '{"type":"x","payload":[1,\n2]}']
)
def test_text_made_to_look_like_a_message_of_the_hub_deceives_nobody(room: Room, data: str) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    publish = {"topic": "t", "type": "pubsub:message", "data": {"name": "t", "data": data}}
    room.ask("bob", message_b("hub:publish", publish, me="bank/teller"))
    (got,) = room.hears("ann")
    assert got["from"].startswith("tcp/127.0.0.1:")


def test_what_synap_says_of_a_message_is_kept_even_for_text(room: Room) -> None:
    room.ask("ann", synap("pubsub.subscribe", topics=["t"]))
    payload = {"name": "t", "data": "text"}
    room.ask("bob", synap("pubsub.publish", topic="t", payload=payload, metadata={"m": 1}))
    (got,) = room.hears("ann")
    assert (got["payload"], got["metadata"]) == (payload, {"m": 1})


def test_one_dialect_publishes_and_the_others_receive(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    room.ask("cat", synap("pubsub.subscribe", topics=["t", "a:*"]))
    answer = room.ask(
        "bob", synap("pubsub.publish", topic="t", payload={"k": 1}, metadata={"m": 2})
    )
    assert answer["payload"]["subscribers_matched"] == 2
    (got,) = room.hears("ann")
    assert got["payload"] == {"k": 1}
    (pushed,) = room.hears("cat")
    assert pushed["message_id"] == answer["payload"]["message_id"]
    assert (pushed["payload"], pushed["metadata"]) == ({"k": 1}, {"m": 2})
    room.say("bob", {"type": "a", "id": "1", "payload": 3})
    (pushed,) = room.hears("cat")
    assert (pushed["topic"], pushed["payload"]) == ("a:1", 3)


def test_the_forwarded_copy_of_a_name_reaches_those_who_ask_for_it(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "//fwd/x/y"}))
    room.ask("bob", message_b("hub:subscribe", {"topic": "//x/y"}, me="browser/bob"))
    room.say_raw("lin", b"pub //x/y 1 z\n")
    assert [one["metadata"]["topic"] for one in room.hears("ann")] == ["//fwd/x/y"]
    assert [one["metadata"]["topic"] for one in room.hears("bob")] == ["//x/y"]


# Several dialects on one connection


def test_a_connection_gets_each_message_in_the_form_it_has_asked_for(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "h"}))
    room.say("ann", subscribe_envelope("e:1"))
    room.ask("ann", synap("pubsub.subscribe", topics=["s.*"]))
    room.say_raw("lin", b"pub h 1 x\npub e:1 1 x\npub s.a 1 x\n")
    hub, envelope, pushed = room.hears("ann")
    assert hub["metadata"]["topic"] == "h"
    assert envelope["id"] == "1"
    assert pushed["topic"] == "s.a"


def test_a_message_comes_once_however_many_dialects_ask_for_it(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    room.ask("ann", message_b("hub:subscribe", {"topic": "#"}))
    room.say("ann", subscribe_envelope("t"))
    room.ask("ann", synap("pubsub.subscribe", topics=["t"]))
    room.say_raw("lin", b"pub t 1 x\n")
    (got,) = room.hears("ann")
    assert got["type"] == "pubsub:message"
    room.ask("ann", message_b("hub:unsubscribe", {"topic": "t"}))
    room.say_raw("lin", b"pub t 1 x\n")
    (got,) = room.hears("ann")
    assert got["type"] == "message"


def test_wildcards_are_of_one_dialect_at_a_time(room: Room) -> None:
    hub, pattern = (
        message_b("hub:subscribe", {"topic": "a/#"}),
        synap("pubsub.subscribe", topics=["a.*"]),
    )
    assert room.ask("ann", hub)["type"] == "hub:subscribed"
    refused = room.ask("ann", pattern)
    assert refused["error"] == "Invalid request: this connection has wildcards of another dialect"
    assert room.ask("ann", synap("pubsub.subscribe", topics=["a.b"]))["success"]
    room.ask("ann", message_b("hub:unsubscribe", {"topic": "a/#"}))
    assert room.ask("ann", pattern)["success"]
    refused = room.ask("ann", hub)
    assert refused["payload"]["message"] == "this connection has wildcards of another dialect"
    room.ask("ann", synap("pubsub.unsubscribe"))
    assert room.ask("ann", hub)["type"] == "hub:subscribed"


def test_wildcards_taken_over_are_of_the_dialect_of_the_connection_too(room: Room) -> None:
    room.hub.synap.run("pubsub.subscribe", {"topics": ["a.*"], "subscriber_id": "x"}, None)
    room.ask("ann", message_b("hub:subscribe", {"topic": "a/#"}))
    refused = room.ask("ann", synap("pubsub.subscribe", topics=["b"], subscriber_id="x"))
    assert "another dialect" in refused["error"]
    assert room.ask("bob", synap("pubsub.subscribe", topics=["b"], subscriber_id="x"))["success"]
    room.say_raw("lin", b"pub a.c 1 x\n")
    assert len(room.hears("bob")) == 1


def test_one_connection_has_no_more_wildcards_than_the_limit() -> None:
    room = Room(max_connection_wildcards=2)
    room.join("ann", "bob")
    for topic in ("a/#", "b/#"):
        assert room.ask("ann", message_b("hub:subscribe", {"topic": topic}))["type"] != "hub:error"
    refused = room.ask("ann", message_b("hub:subscribe", {"topic": "c/#"}))
    assert refused["payload"]["message"] == "over 2 wildcard subscriptions of one connection"
    assert room.ask("bob", synap("pubsub.subscribe", topics=["a.*", "b.*"]))["success"]
    refused = room.ask("bob", synap("pubsub.subscribe", topics=["c.*"]))
    assert refused["error"] == ("Invalid request: over 2 wildcard subscriptions of one connection")


def test_the_form_of_a_message_is_found_without_trying_wildcards(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.ask("ann", synap("pubsub.subscribe", topics=[f"a.{n}.*" for n in range(900)]))
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    tried: list[Pattern] = []
    monkeypatch.setattr(Pattern, "matches", lambda self, _name: tried.append(self))
    room.say_raw("lin", b"pub a.7.x 1 x\npub t 1 y\n")
    assert [one["type"] for one in room.hears("ann")] == ["message", "pubsub:message"]
    assert tried == []


@pytest.mark.parametrize("dialect", ["hub", "synap", "envelope"])
def test_all_dialects_are_held_to_the_limit_of_all_subscriptions(dialect: str) -> None:
    room = Room(line_limits=Limits(max_subscriptions_total=2))
    room.join("ann")
    ask: Any = {
        "hub": lambda topic: message_b("hub:subscribe", {"topic": topic}),
        "synap": lambda topic: synap("pubsub.subscribe", topics=[topic]),
        "envelope": subscribe_envelope,
    }[dialect]
    for topic in ("a:", "b:", "c:", "d:") if dialect == "envelope" else ("a", "b", "c", "d/#"):
        room.say("ann", ask(topic))
    assert room.broker.router.subscriptions == 2


# Order


def test_what_one_connection_sends_to_another_stays_in_order(room: Room) -> None:
    room.register_a("bob")
    room.ask("bob", message_a("hub:subscribe", {"topic": "t"}, me="@(browser/bob)"))
    publish = message_b("hub:publish", {"topic": "t", "type": "first", "data": 1})
    send = message_b("hub:send", {"type": "second", "data": 2}, to="browser/bob")
    last = message_b("hub:publish", {"topic": "t", "type": "third", "data": 3})
    room.say("ann", publish, send, last)
    assert [one["type"] for one in room.hears("bob")] == ["first", "second", "third"]


def test_what_was_published_before_an_unsubscribe_in_one_read_still_arrives(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    room.say(
        "ann",
        message_b("hub:publish", {"topic": "t", "type": "x", "data": 1}),
        message_b("hub:unsubscribe", {"topic": "t"}),
    )
    assert {one["type"] for one in room.hears("ann")} == {
        "x",
        "hub:delivery_ack",
        "hub:unsubscribed",
    }


def test_all_that_one_read_leads_to_reaches_a_connection_in_one_piece(room: Room) -> None:
    sends = []
    room.ask("bob", message_b("hub:subscribe", {"topic": "t"}))
    room.sends["bob"] = sends.append
    room.sends["ann"] = sends.append
    room.say(
        "ann",
        *[message_b("hub:publish", {"topic": "t", "type": "x", "data": i}) for i in range(50)],
    )
    assert len(sends) == 2


def test_a_read_of_many_messages_takes_several_turns(room: Room) -> None:
    line = json.dumps({"type": "ping"}).encode() + b"\n"
    connection = room.connections["ann"]
    assert connection.receive(line * (HUB_TURN + 1))
    assert len(room.hears("ann")) <= HUB_TURN
    while connection.receive(b""):
        pass
    room.hears("ann")
    assert room.ask("ann", {"type": "ping"}) == {"type": "pong"}


# The end


def test_a_connection_that_has_ended_leaves_nothing(room: Room) -> None:
    before = room.broker.router.subscriptions
    room.join("dan")
    room.register_a("dan")
    for topic in ("a", "b/+", "#"):
        room.ask("dan", message_a("hub:subscribe", {"topic": topic}, me="@(browser/dan)"))
    room.say("dan", subscribe_envelope("e:1"))
    room.ask("dan", synap("pubsub.subscribe", topics=["x", "y.*"], subscriber_id="s1"))
    room.say_raw("dan", b'{"type":')
    number = room.connections["dan"].peer.number
    room.leave("dan")
    gc.collect()
    connections = [one for one in gc.get_objects() if isinstance(one, HubConnection)]
    assert number not in [
        connection.peer.number for connection in connections if connection.hub is room.hub
    ]
    assert room.broker.router.subscriptions == before
    assert len(room.hub.registry) == 0
    assert len(room.hub.synap.subscribers) == 0
    assert room.hub.policy.wildcards == 0
    assert room.hub.synap.subscribers.wildcards == 0
    assert set(room.hub.connections) == {
        room.connections[n].peer.number for n in ("ann", "bob", "cat")
    }
    assert room.broker.counters.half_frames == 1


def test_the_reason_of_an_end_is_told_in_json(room: Room) -> None:
    room.say("ann", {"type": "ping"})
    room.hears("ann")
    room.end("ann", "slow-consumer", "9 bytes were waiting, over 8")
    (told,) = room.hears("ann")
    assert told["type"] == "hub:error"
    assert told["payload"]["details"] == {"reason": "slow-consumer"}
    assert "9 bytes" in told["payload"]["message"]


def test_a_message_that_grows_over_the_line_ports_limit_is_refused() -> None:
    room = Room(line_limits=Limits(max_payload=100))
    room.join("ann")
    answer = room.ask(
        "ann", message_b("hub:publish", {"topic": "t", "type": "x", "data": "y" * 90})
    )
    assert answer["payload"]["code"] == "message_too_large"
    assert answer["payload"]["details"]["maxSize"] == 100


# Pings


def test_a_websocket_gets_a_ping_now_and_then_unless_something_waits_for_it() -> None:
    room = Room(ping=30.0)
    room.join("ann", "bob")
    room.say_raw("ann", UPGRADE)
    room.heard["ann"] = b""
    connection = room.connections["ann"]

    def pinged(after: float, name: str = "ann") -> bool:
        room.tick(after)
        assert room.connections[name].overdue(room.now, room.now) is None
        heard, room.heard[name] = room.heard[name], b""
        assert heard in (b"", PING)
        return bool(heard)

    assert [pinged(10.0) for _ in range(8)] == [0, 0, 0, 1, 0, 0, 1, 0]
    connection.peer.outbox.put(b"x")
    assert [pinged(10.0) for _ in range(3)] == [0, 0, 0]
    connection.peer.outbox = Outbox()
    assert [pinged(10.0) for _ in range(3)] == [0, 1, 0]
    room.hub.listener.hub_limits = HubLimits(ping=5.0)  # a reload
    assert [pinged(10.0) for _ in range(3)] == [0, 1, 1]
    room.hub.listener.hub_limits = HubLimits(ping=0.0)
    assert [pinged(100.0) for _ in range(3)] == [0, 0, 0]
    assert not pinged(100.0, "bob")  # it has not said what it speaks
