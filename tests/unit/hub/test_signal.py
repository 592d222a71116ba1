"""Signal Hub's messages, each as both dialects say it and as they expect the answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pubsubd.hub import handover
from pubsubd.protocol.limits import ANSWER, BYTES_PER_TURN
from tests.hubs import HUB_A, HUB_B, Room, connect_a, message_a, message_b

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
KEYS_A = {
    "id", "from", "to", "type", "payload", "pattern", "correlationId", "timestamp", "metadata",
    "ttl", "signature",
}  # fmt: skip


@pytest.fixture
def room() -> Room:
    room = Room()
    room.join("ann", "bob")
    room.join_line("lin")
    return room


def error(answer: Any) -> tuple[str, str]:
    """Return code and message of a hub:error."""
    assert answer["type"] == "hub:error", answer
    return answer["payload"]["code"], answer["payload"]["message"]


# Connecting


def test_in_a_connecting_tells_the_session_and_the_limits(room: Room) -> None:
    request = message_a("hub:connect", metadata=connect_a(clientMetadata={"x": 1}))
    answer = room.ask("ann", request)
    assert set(answer) == KEYS_A
    assert answer["type"] == "hub:connected"
    assert (answer["from"], answer["to"]) == (HUB_A, request["from"])
    assert (answer["pattern"], answer["correlationId"]) == ("tell", request["id"])
    payload = answer["payload"]
    prefix, _, rest = payload["sessionId"].partition("-")
    assert prefix == "session"
    assert UUID.fullmatch(rest)
    assert payload["serverVersion"] == "0.1.0"
    assert payload["maxMessageSize"] == 1_048_576
    assert payload["heartbeatInterval"] == 30_000
    assert payload["capabilities"] == {
        "maxActorsPerInstance": 50_000,
        "maxTopicsPerRequest": 1_000,
        "supportsBackpressure": True,
        "supportedContentTypes": ["application/json"],
    }
    assert answer["metadata"] == {"actorIdentity": "@(browser/ann)"}


def test_in_b_connecting_tells_the_session_and_what_is_allowed(room: Room) -> None:
    answer = room.ask("ann", message_b("hub:connect", {"version": "1.0"}, correlationId="c1"))
    assert answer["type"] == "hub:connected"
    assert (answer["from"], answer["to"]) == (HUB_B, "browser/ann")
    assert answer["correlationId"] == "c1"
    payload = answer["payload"]
    assert payload["actorIdentity"] == "browser/ann"
    assert payload["capabilities"] == ["send", "receive", "discover"]
    assert payload["serverTime"] == int(room.now * 1000)


@pytest.mark.parametrize("version", ["0.1.0", "0.2", "0.1.99"])
def test_in_a_a_minor_difference_of_versions_passes(room: Room, version: str) -> None:
    room_answer = room.ask(
        "ann", message_a("hub:connect", metadata=connect_a(protocolVersion=version))
    )
    assert room_answer["type"] == "hub:connected"


def test_in_a_another_major_version_is_refused_and_the_connection_goes_on(room: Room) -> None:
    request = message_a("hub:connect", metadata=connect_a(protocolVersion="1.0"))
    answer = room.ask("ann", request)
    assert error(answer) == (
        "version_mismatch",
        "Protocol version mismatch: client=1.0, server=0.1.0",
    )
    assert answer["correlationId"] == request["id"]
    room.connect_a("ann")


def test_in_b_another_major_version_is_refused_with_both_versions(room: Room) -> None:
    answer = room.ask("ann", message_b("hub:connect", {"version": "2.0"}))
    assert error(answer)[0] == "version_mismatch"
    assert answer["payload"]["details"] == {"expected": "1.0", "received": "2.0"}


def test_a_connect_without_a_version_is_refused(room: Room) -> None:
    answer = room.ask("ann", message_a("hub:connect", metadata={"capabilities": ["x"]}))
    assert error(answer) == ("version_mismatch", "Missing protocolVersion in metadata")


@pytest.mark.parametrize("capabilities", [[], None])
def test_in_a_a_connect_without_capabilities_is_unauthorized(room: Room, capabilities: Any) -> None:
    metadata = connect_a(capabilities=capabilities)
    assert error(room.ask("ann", message_a("hub:connect", metadata=metadata)))[0] == "unauthorized"
    room.connect_a("ann")


# Heartbeats and leaving


def test_a_heartbeat_is_answered_with_its_timestamp(room: Room) -> None:
    room.connect_a("ann")
    answer = room.ask("ann", message_a("hub:heartbeat", {"timestamp": 123}))
    assert answer["type"] == "hub:heartbeat_ack"
    assert answer["payload"] == {"timestamp": 123, "serverTime": int(room.now * 1000)}
    assert room.ask("ann", message_a("hub:heartbeat"))["payload"]["timestamp"] is None


@pytest.mark.parametrize(
    ("dialect", "name"), [("A", "hub:disconnect"), ("B", "hub:disconnect_ack")]
)
def test_a_disconnect_is_answered_before_the_end(room: Room, dialect: str, name: str) -> None:
    if dialect == "A":
        room.register_a("ann")
        room.say("ann", message_a("hub:disconnect"))
    else:
        room.ask("ann", message_b("hub:connect", {"version": "1.0"}))
        room.ask("ann", message_b("hub:register", {"actorAddress": "browser/ann"}))
        room.say("ann", message_b("hub:disconnect", {"reason": "done"}))
    (answer,) = room.hears("ann")
    assert answer["type"] == name
    assert answer["payload"]["acknowledged"] is True
    assert answer["payload"]["cleanedUp"] is True
    assert answer["payload"]["sessionId"].startswith("session-")
    assert room.ended["ann"][0] == "goodbye"
    listed = room.ask("bob", message_b("hub:list_actors", {}, me="browser/bob"))
    assert listed["payload"]["total"] == 0


def test_what_comes_after_a_disconnect_in_one_read_is_not_carried_out(room: Room) -> None:
    room.connect_a("ann")
    room.say_raw("lin", b"sub t\n")
    room.say(
        "ann",
        message_a("hub:disconnect"),
        message_a("hub:publish", {"topic": "t", "type": "x", "data": 1}),
    )
    assert [one["type"] for one in room.hears("ann")] == ["hub:disconnect"]
    assert room.hears("lin") == []


# Registration


def test_registering_answers_in_the_payload_and_in_the_metadata(room: Room) -> None:
    room.connect_a("ann")
    request = message_a(
        "hub:register",
        {"actorAddress": "@(browser/ann)", "capabilities": ["ui"], "metadata": {"v": 1}},
    )
    answer = room.ask("ann", request)
    assert answer["type"] == "hub:registered"
    payload = answer["payload"]
    assert payload["actorAddress"] == "@(browser/ann)"
    assert payload["expiresAt"] == int((room.now + 300) * 1000)
    assert payload["version"] == 1
    assert payload["renewalToken"]
    for key in ("expiresAt", "renewalToken", "version"):
        assert answer["metadata"][key] == payload[key]


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [({"ttlSeconds": 60}, 60), ({"ttl": 1500}, 1.5), ({"ttlSeconds": 99_999}, 3600), ({}, 300)],
)
def test_a_registration_holds_as_long_as_it_says_up_to_an_hour(
    room: Room, ttl: dict[str, Any], seconds: float
) -> None:
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/ann)", "capabilities": ["x"]} | ttl
    answer = room.ask("ann", message_a("hub:register", payload))
    assert answer["payload"]["expiresAt"] == int((room.now + seconds) * 1000)
    room.tick(seconds - 0.5)
    assert room.ask("ann", message_a("hub:list_actors", {}))["payload"]["total"] == 1
    room.tick(1)
    assert room.ask("ann", message_a("hub:list_actors", {}))["payload"]["total"] == 0


@pytest.mark.parametrize("ttl", [0, -5])
def test_a_ttl_that_is_not_positive_is_refused(room: Room, ttl: int) -> None:
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/ann)", "capabilities": ["x"], "ttl": ttl}
    assert error(room.ask("ann", message_a("hub:register", payload)))[0] == "internal_error"


def test_in_a_a_registration_needs_capabilities(room: Room) -> None:
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/ann)", "capabilities": []}
    assert error(room.ask("ann", message_a("hub:register", payload)))[0] == "internal_error"


@pytest.mark.parametrize(
    "address",
    ["x y/z", "x/y\npub a 1 x", "x/y\r", "noslash", "", "@(x/y", "x/" + "y" * 300, 'a/"b'],
)
def test_an_address_that_could_break_a_line_is_refused(room: Room, address: str) -> None:
    room.connect_a("ann")
    payload = {"actorAddress": address, "capabilities": ["x"]}
    request = message_a("hub:register", payload, me=address or "@(browser/ann) ")
    assert error(room.ask("ann", request))[0] == "internal_error"
    assert room.ask("ann", message_a("hub:list_actors", {}))["payload"]["total"] == 0


def test_in_a_a_second_registration_elsewhere_ends_the_first_connection(room: Room) -> None:
    me = room.register_a("ann")
    room.connect_a("bob")
    answer = room.ask("bob", message_a("hub:register", {"actorAddress": me, "capabilities": ["x"]}))
    assert answer["type"] == "hub:registered"
    (told,) = room.hears("ann")
    assert told["type"] == "hub:disconnect"
    assert told["payload"]["reason"] == "duplicate_connection"
    assert room.ended["ann"][0] == "duplicate-connection"
    (found,) = room.ask("bob", message_a("hub:list_actors", {}))["payload"]["actors"]
    assert found["address"] == me


def test_in_b_a_second_registration_elsewhere_is_refused_and_the_first_stays(room: Room) -> None:
    me = room.register_a("ann")
    answer = room.ask(
        "bob", message_b("hub:register", {"actorAddress": "browser/ann"}, me="browser/bob")
    )
    assert error(answer)[0] == "unknown_actor"
    details = answer["payload"]["details"]
    assert details["existingVersion"] == 1
    assert details["existingExpiresAt"] == int((room.now + 300) * 1000)
    assert details["hint"]
    assert "ann" not in room.ended
    (found,) = room.ask("bob", message_b("hub:list_actors", {}))["payload"]["actors"]
    assert found["actorAddress"] == me


def test_registering_again_on_the_same_connection_renews_and_keeps_subscriptions(
    room: Room,
) -> None:
    me = room.register_a("ann")
    room.ask("ann", message_a("hub:subscribe", {"topic": "t"}))
    answer = room.ask("ann", message_a("hub:register", {"actorAddress": me, "capabilities": ["y"]}))
    assert answer["payload"]["version"] == 2
    room.say_raw("lin", b"pub t 2 hi\n")
    assert len(room.hears("ann")) == 1


def test_the_registry_has_a_bound() -> None:
    room = Room(max_actors=1)
    room.join("ann", "bob")
    room.register_a("ann")
    room.connect_a("bob")
    payload = {"actorAddress": "@(browser/bob)", "capabilities": ["x"]}
    assert error(room.ask("bob", message_a("hub:register", payload)))[0] == "internal_error"
    room.say("ann", message_a("hub:disconnect"))
    assert room.ask("bob", message_a("hub:register", payload))["type"] == "hub:registered"


@pytest.mark.parametrize("payload", [None, {"actorAddress": "@(browser/ann)"}])
def test_unregistering_takes_the_actor_and_its_subscriptions(room: Room, payload: Any) -> None:
    room.register_a("ann")
    room.ask("ann", message_a("hub:subscribe", {"topic": "t"}))
    answer = room.ask("ann", message_a("hub:unregister", payload))
    assert answer["type"] == "hub:unregistered"
    assert answer["payload"]["actorAddress"] == "@(browser/ann)"
    assert room.ask("ann", message_a("hub:list_actors", {}))["payload"]["total"] == 0
    room.say_raw("lin", b"pub t 2 hi\n")
    assert room.hears("ann") == []
    assert room.broker.router.subscriptions == 0


def test_nobody_unregisters_another_connections_actor(room: Room) -> None:
    me = room.register_a("ann")
    room.connect_a("bob")
    answer = room.ask("bob", message_a("hub:unregister", {"actorAddress": me}, me="@(browser/bob)"))
    assert error(answer)[0] == "unauthorized"


@pytest.mark.parametrize("where", ["payload", "metadata"])
def test_renewing_gives_a_new_token_and_more_time(room: Room, where: str) -> None:
    room.connect_a("ann")
    payload = {"actorAddress": "@(browser/ann)", "capabilities": ["x"], "ttlSeconds": 10}
    token = room.ask("ann", message_a("hub:register", payload))["payload"]["renewalToken"]
    room.tick(9)
    given = {"renewalToken": token}
    if where == "payload":
        request = message_a("hub:renew", given)
    else:
        request = message_a("hub:renew", None, metadata=given)
    answer = room.ask("ann", request)
    assert answer["type"] == "hub:renewed"
    assert answer["payload"]["expiresAt"] == int((room.now + 300) * 1000)
    assert answer["payload"]["renewalToken"] == answer["payload"]["newRenewalToken"] != token
    assert error(room.ask("ann", request))[0] == "unauthorized"  # each token serves once
    room.tick(200)
    assert room.ask("ann", message_a("hub:list_actors", {}))["payload"]["total"] == 1


def test_in_b_renewing_what_is_not_registered_is_an_unknown_actor(room: Room) -> None:
    payload = {"actorAddress": "browser/ann", "renewalToken": "x"}
    assert error(room.ask("ann", message_b("hub:renew", payload)))[0] == "unknown_actor"


@pytest.mark.parametrize("step", [31_536_000.0, -31_536_000.0])
def test_a_clock_that_is_set_ends_no_registration_and_keeps_none(room: Room, step: float) -> None:
    me = room.register_a("ann")
    room.ask("bob", message_b("hub:subscribe", {"topic": "seen"}))
    room.stepped = step
    room.tick(299)
    listed = room.ask("bob", message_b("hub:list_actors", {}))
    (found,) = listed["payload"]["actors"]
    assert found["address"] == me
    assert found["expiresAt"] == int((room.now + step + 1) * 1000)
    assert found["registeredAt"] == int((room.now + step - 299) * 1000)
    info = room.ask("bob", message_b("hub:topic_info", {"topic": "seen"}))
    assert info["payload"]["createdAt"] == found["registeredAt"]
    assert listed["timestamp"] == int((room.now + step) * 1000)
    room.tick(1)
    assert room.ask("bob", message_b("hub:list_actors", {}))["payload"]["actors"] == []


def test_an_actor_that_expires_is_gone_and_its_subscriptions_with_it(room: Room) -> None:
    room.register_a("ann")
    room.ask("ann", message_a("hub:subscribe", {"topic": "t"}))
    room.tick(301)
    room.say_raw("lin", b"pub t 2 hi\n")
    assert room.hears("ann") == []
    answer = room.ask("bob", message_b("hub:send", {"type": "x"}, to="browser/ann"))
    assert error(answer)[0] == "unknown_actor"


def test_an_address_whose_registration_is_over_can_be_registered_before_the_next_sweep(
    room: Room,
) -> None:
    me = room.register_a("ann", ttlSeconds=5)
    room.ask("ann", message_a("hub:subscribe", {"topic": "t"}))
    room.connect_a("bob")
    room.now += 6
    request = message_a("hub:register", {"actorAddress": me, "capabilities": ["x"]})
    assert room.ask("bob", request)["type"] == "hub:registered"
    assert "ann" not in room.ended
    room.say("ann", message_a("hub:publish", {"topic": "t", "type": "x"}))
    assert [one["type"] for one in room.hears("ann")] == ["hub:published"]  # subscribes no more
    room.ask("bob", message_a("hub:subscribe", {"topic": "t"}))
    room.say("ann", message_a("hub:publish", {"topic": "t", "type": "x"}))
    (got,) = room.hears("bob")
    assert got["from"].startswith("@(tcp/")  # nor is it the actor any more


def test_what_an_actor_tells_about_itself_is_bounded(room: Room) -> None:
    room.connect_a("ann")
    payload = {
        "actorAddress": "@(browser/ann)",
        "capabilities": ["x"],
        "metadata": {"m": "x" * 65_536},
    }
    assert error(room.ask("ann", message_a("hub:register", payload)))[0] == "internal_error"
    payload = {"actorAddress": "@(browser/ann)", "capabilities": [f"c{n}" for n in range(300)]}
    assert error(room.ask("ann", message_a("hub:register", payload)))[0] == "internal_error"
    assert len(room.hub.registry) == 0


# Discovery


@pytest.fixture
def crowd(room: Room) -> Room:
    for name, capability in (("w1", "work"), ("w2", "work"), ("u1", "ui")):
        room.join(name)
        room.register_a(name, capability, "any", metadata={"rank": int(name[1])})
    room.connect_a("ann")
    return room


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ({"pattern": "*"}, ["w1", "w2", "u1"]),
        ({"pattern": "@(browser/w*)"}, ["w1", "w2"]),
        ({"pattern": "browser/w1"}, ["w1"]),
        ({"pattern": "*", "capability": "ui"}, ["u1"]),
        ({"pattern": "@(seag/*)"}, []),
        ({"pattern": "*", "limit": 2}, ["w1", "w2"]),
        ({}, ["w1", "w2", "u1"]),
    ],
)
def test_in_a_discovery_is_by_glob(crowd: Room, payload: Any, found: list[str]) -> None:
    answer = crowd.ask("ann", message_a("hub:discover", payload))
    assert answer["type"] == "hub:discovered"
    assert [a["address"] for a in answer["payload"]["actors"]] == [
        f"@(browser/{name})" for name in found
    ]
    assert answer["payload"]["hasMore"] is (payload.get("limit") == 2)
    assert "renewal" not in str(answer)


@pytest.mark.parametrize(
    ("payload", "found", "total"),
    [
        ({"pattern": "w[0-9]$"}, ["w1", "w2"], 2),
        ({"capabilities": ["work", "any"]}, ["w1", "w2"], 2),
        ({"capabilities": ["work", "ui"]}, [], 0),
        ({"metadata": {"rank": 2}}, ["w2"], 1),
        ({"limit": 1, "offset": 1}, ["w2"], 3),
        ({"pattern": "^browser/", "limit": 1_000_000}, ["w1", "w2", "u1"], 3),
    ],
)
def test_in_b_discovery_is_by_regular_expression(
    crowd: Room, payload: Any, found: list[str], total: int
) -> None:
    answer = crowd.ask("bob", message_b("hub:discover", payload, me="browser/bob"))
    assert answer["type"] == "hub:discovery_result"
    result = answer["payload"]
    assert [a["actorAddress"] for a in result["actors"]] == [f"@(browser/{n})" for n in found]
    assert (result["count"], result["totalMatches"]) == (len(found), total)
    for actor in result["actors"]:
        assert actor["metadata"]["rank"] in (1, 2)
        assert actor["registeredAt"] == int(crowd.now * 1000)


@pytest.mark.parametrize("payload", [{"limit": 0}, {"offset": -1}, {"pattern": "("}])
def test_a_discovery_that_makes_no_sense_is_refused(crowd: Room, payload: Any) -> None:
    answer = crowd.ask("bob", message_b("hub:discover", payload))
    assert error(answer)[0] == "internal_error"


def test_messages_behind_a_discovery_wait_for_its_answer(crowd: Room) -> None:
    crowd.say("ann", message_a("hub:discover", {}), message_a("hub:heartbeat"))
    assert [one["type"] for one in crowd.hears("ann")] == ["hub:discovered", "hub:heartbeat_ack"]


def test_listing_actors_is_paged(crowd: Room) -> None:
    answer = crowd.ask("ann", message_a("hub:list_actors", {"offset": 1, "limit": 1}))
    assert answer["type"] == "hub:actor_list"
    payload = answer["payload"]
    assert [a["address"] for a in payload["actors"]] == ["@(browser/w2)"]
    assert (payload["total"], payload["offset"], payload["limit"]) == (3, 1, 1)
    assert payload["hasMore"] is True
    in_b = crowd.ask("bob", message_b("hub:list_actors", {}))
    assert in_b["type"] == "hub:discovery_result"


# From one to one


def test_in_a_a_message_is_delivered_flat_and_an_ask_is_acknowledged(room: Room) -> None:
    room.register_a("ann")
    room.register_a("bob")
    request = message_a(
        "hub:send",
        {"to": "@(browser/bob)", "type": "greet", "data": {"a": [1, 2.5, None]}},
        pattern="ask",
        metadata={
            "trace": "t1",
            "authToken": "secret",
            "renewalToken": "secret",
            "publication": True,
            "broadcast": True,
            "topic": "t",
        },
    )
    answer = room.ask("ann", request)
    assert answer["type"] == "hub:delivery_ack"
    assert answer["payload"]["messageId"] == request["id"]
    assert answer["payload"]["status"] == "delivered"
    (got,) = room.hears("bob")
    assert set(got) == KEYS_A
    assert (got["type"], got["payload"]) == ("greet", {"a": [1, 2.5, None]})
    assert (got["from"], got["to"]) == ("@(browser/ann)", "@(browser/bob)")
    assert got["metadata"] == {
        "trace": "t1",
        "forwarded": True,
        "via": HUB_A,
        "originalMessageId": request["id"],
    }


def test_a_tell_that_is_delivered_is_not_answered(room: Room) -> None:
    room.register_a("ann")
    room.register_a("bob")
    room.say("ann", message_a("hub:send", {"to": "@(browser/bob)", "type": "x", "data": 1}))
    assert room.hears("ann") == []
    assert len(room.hears("bob")) == 1


def test_in_a_an_ask_to_nobody_is_an_unknown_actor_and_a_tell_is_silence(room: Room) -> None:
    room.connect_a("ann")
    payload = {"to": "@(browser/zoe)", "type": "x", "data": 1}
    answer = room.ask("ann", message_a("hub:send", payload, pattern="ask"))
    assert answer["type"] == "hub:unknown_actor"
    assert answer["payload"]["actorAddress"] == "@(browser/zoe)"
    assert answer["payload"]["message"].startswith("Actor not registered")
    room.say("ann", message_a("hub:send", payload))
    assert room.hears("ann") == []


def test_in_b_the_target_is_in_to_and_the_whole_payload_is_delivered(room: Room) -> None:
    room.register_a("bob")
    room.say(
        "ann",
        message_b("hub:send", {"type": "ask", "prompt": "?"}, to="browser/bob", correlationId="r1"),
    )
    assert room.hears("ann") == []
    (got,) = room.hears("bob")
    assert (got["type"], got["payload"]) == ("ask", {"type": "ask", "prompt": "?"})
    assert got["correlationId"] == "r1"
    assert got["from"].startswith("@(tcp/127.0.0.1:")  # not what it claims
    answer = room.ask(
        "ann", message_b("hub:send", {"type": "x"}, to="seag/none", correlationId="r2")
    )
    assert error(answer)[0] == "unknown_actor"
    assert answer["correlationId"] == "r2"
    assert answer["payload"]["details"] == {"targetActor": "seag/none"}


def test_a_message_too_old_is_refused(room: Room) -> None:
    room.register_a("bob")
    sent = int(room.now * 1000) - 2000
    payload = {"to": "@(browser/bob)", "type": "x", "data": 1}
    answer = room.ask("ann", message_a("hub:send", payload, timestamp=sent, ttl=1000))
    assert error(answer)[0] == "message_expired"
    room.say("ann", message_a("hub:send", payload, timestamp=sent, ttl=3000))
    assert len(room.hears("bob")) == 1


# To all


def test_a_broadcast_reaches_every_actor_its_sender_included(room: Room) -> None:
    room.register_a("ann")
    room.register_a("bob")
    room.say("ann", message_a("hub:broadcast", {"type": "news", "data": 7}))
    got, ack = room.hears("ann")
    assert (got["type"], got["payload"], got["to"]) == ("news", 7, "@(browser/ann)")
    assert got["metadata"]["broadcast"] is True
    assert got["metadata"]["via"] == HUB_A
    assert ack["type"] == "hub:broadcast_ack"
    assert (ack["payload"]["deliveredCount"], ack["payload"]["failedCount"]) == (2, 0)
    assert (ack["payload"]["recipientCount"], ack["payload"]["successCount"]) == (2, 2)
    assert [one["to"] for one in room.hears("bob")] == ["@(browser/bob)"]


def test_a_broadcast_can_leave_out_its_sender_and_those_without_a_capability(room: Room) -> None:
    room.join("cat")
    room.register_a("ann", "work")
    room.register_a("bob", "work")
    room.register_a("cat", "ui")
    room.say(
        "ann",
        message_a(
            "hub:broadcast",
            {"type": "news", "data": 7, "excludeSelf": True},
            metadata={"targetCapability": "work"},
        ),
    )
    (ack,) = room.hears("ann")
    assert ack["payload"]["deliveredCount"] == 1
    assert len(room.hears("bob")) == 1
    assert room.hears("cat") == []


def test_a_broadcast_goes_out_in_steps(room: Room) -> None:
    for number in range(25):
        room.join(f"n{number}")
        room.register_a(f"n{number}")
    room.shorten_turns(12)
    connection = room.connections["ann"]
    line = message_b("hub:broadcast", {"type": "news", "message": "x"})
    counts = []
    more = connection.receive(json.dumps(line).encode() + b"\n")
    while True:
        counts.append(sum(len(room.hears(f"n{number}")) for number in range(25)))
        if not more:
            break
        more = connection.receive(b"")
    assert max(counts) <= 12
    assert len([count for count in counts if count]) == 3
    (ack,) = room.hears("ann")
    assert ack["payload"]["successCount"] == sum(counts) == 25


def test_a_large_broadcast_makes_little_more_in_a_turn_than_one_may(room: Room) -> None:
    for one in range(5):
        room.join(f"n{one}")
        for number in range(20):
            address = f"n{one}/{number}" if number % 2 else f"@(n{one}/{number})"
            room.ask(f"n{one}", message_b("hub:register", {"actorAddress": address}))
    size = 200_000
    made = room.turns("ann", message_b("hub:broadcast", {"type": "x", "data": "y" * size}))
    assert sum(made) > 100 * size
    assert max(made) < BYTES_PER_TURN + 2 * size
    for one in range(5):
        heard = room.hears(f"n{one}")
        wanted = [f"n{one}/{n}" if n % 2 else f"@(n{one}/{n})" for n in range(20)]
        assert [message["to"] for message in heard] == wanted
        assert {len(message["payload"]) for message in heard} == {size}
        assert {message["from"].startswith("@(") for message in heard} == {True, False}


def test_a_broadcast_is_put_into_json_twice_however_many_get_it(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        payload = {"actorAddress": f"n/{number}", "capabilities": ["x"]}
        room.ask("bob", message_b("hub:register", payload))
    encoded: list[object] = []
    encode = handover.encode
    monkeypatch.setattr(handover, "encode", lambda it: encoded.append(it) or encode(it))
    room.say("ann", message_b("hub:broadcast", {"type": "x", "data": {'"to":""': 1}}, id='"to":""'))
    assert len(encoded) == 2
    heard = room.hears("bob")
    assert [one["to"] for one in heard] == [f"n/{number}" for number in range(50)]
    assert {one["metadata"]["originalMessageId"] for one in heard} == {'"to":""'}


def test_a_broadcast_waits_for_a_connection_that_is_behind(room: Room) -> None:
    for number in range(3):
        room.ask("bob", message_b("hub:register", {"actorAddress": f"n/{number}"}))
    outbox = room.connections["bob"].peer.outbox
    outbox.put(b"x" * (room.connections["bob"].max_pending // 2 + 1))
    assert len(room.turns("ann", message_b("hub:broadcast", {"type": "x"}))) == 4


def test_an_actor_that_leaves_during_a_broadcast_is_left_out(room: Room) -> None:
    for number in range(150):
        room.join(f"n{number}")
        room.register_a(f"n{number}")
    room.shorten_turns(100)
    connection = room.connections["ann"]
    more = connection.receive(
        json.dumps(message_b("hub:broadcast", {"type": "x", "message": 1})).encode() + b"\n"
    )
    assert more
    room.say("n149", message_a("hub:disconnect", me="@(browser/n149)"))
    room.hears("n149")
    while more:
        more = connection.receive(b"")
    (ack,) = room.hears("ann")
    assert ack["payload"]["successCount"] == 149
    assert room.hears("n149") == []


# Topics


def test_several_topics_are_subscribed_by_one_message_in_steps(room: Room) -> None:
    topics = ["", *[f"t{number}" for number in range(50)], "a b", "t7", "x/+"]
    room.register_a("bob")
    room.shorten_turns(5)
    (answer,) = told_in_turns(room, "bob", message_a("hub:subscribe", {"topics": topics}))
    assert answer["type"] == "hub:subscribed"
    subscribed, refused = answer["payload"]["subscriptions"], answer["payload"]["refused"]
    assert [one["topic"] for one in subscribed] == [*topics[1:51], "t7", "x/+"]
    assert len({one["subscriptionId"] for one in subscribed}) == 51
    assert [(one["topic"], one["code"]) for one in refused] == [
        ("", "internal_error"),
        ("a b", "internal_error"),
    ]
    assert room.broker.counters.errors["hub:internal_error"] == 2
    assert all(one["message"] for one in refused)
    room.register_a("ann")
    room.ask("ann", message_a("hub:publish", {"topic": "t49", "type": "n"}))
    assert len(room.hears("bob")) == 1


def told_in_turns(room: Room, name: str, message: dict[str, Any]) -> list[Any]:
    """Say a message that takes several turns; return what comes."""
    assert len(room.turns(name, message)) > 5
    return room.hears(name)


def test_topics_of_one_message_count_once_and_are_not_without_a_bound(room: Room) -> None:
    room.connect_a("bob")
    for payload, text in (
        ({"topics": ["t"] * 1_001}, "over 1000 topics in one message"),
        ({"topics": ["t"], "topic": "t"}, "payload has either topic or topics"),
        ({"topics": "t"}, "payload: "),
        ({"topics": [1]}, "payload: "),
    ):
        answer = room.ask("bob", message_a("hub:subscribe", payload))
        assert answer["payload"]["code"] == "internal_error"
        assert answer["payload"]["message"].startswith(text)
    assert room.broker.router.subscriptions == 0
    for _ in range(96):
        answer = room.ask("bob", message_a("hub:subscribe", {"topics": ["a", "b", "c"]}))
        assert answer["type"] == "hub:subscribed"
    assert room.ask("bob", message_a("hub:heartbeat"))["payload"]["code"] == "rate_limited"


def test_publishing_reaches_subscribers_flat_and_is_counted(room: Room) -> None:
    room.register_a("bob")
    request = message_a("hub:subscribe", {"topic": "system/events", "durable": False})
    answer = room.ask("bob", request)
    assert answer["type"] == "hub:subscribed"
    assert answer["payload"]["topic"] == "system/events"
    prefix, _, rest = answer["payload"]["subscriptionId"].partition("-")
    assert prefix == "sub"
    assert UUID.fullmatch(rest)
    assert answer["payload"]["subscribedAt"] == int(room.now * 1000)
    room.register_a("ann")
    published = room.ask(
        "ann",
        message_a(
            "hub:publish", {"topic": "system/events", "type": "event:created", "data": {"i": 1}}
        ),
    )
    assert published["type"] == "hub:published"
    assert published["payload"]["subscriberCount"] == 1
    (got,) = room.hears("bob")
    assert set(got) == KEYS_A
    assert (got["type"], got["payload"]) == ("event:created", {"i": 1})
    assert (got["from"], got["to"]) == ("@(browser/ann)", "@(browser/bob)")
    assert got["metadata"] == {
        "topic": "system/events",
        "publication": True,
        "forwarded": True,
        "via": HUB_A,
    }


@pytest.mark.parametrize(
    ("payload", "kind", "delivered"),
    [
        ({"topic": "t", "type": "x", "data": {"a": 1}}, "x", {"a": 1}),
        ({"topic": "t", "message": {"type": "y", "b": 2}}, "y", {"type": "y", "b": 2}),
        ({"topic": "t", "type": "x"}, "x", None),
        ({"topic": "t", "type": "x", "data": None}, "x", None),
    ],
)
def test_in_b_a_publication_may_have_two_shapes(
    room: Room, payload: Any, kind: str, delivered: Any
) -> None:
    room.ask("bob", message_b("hub:subscribe", {"topic": "t"}, me="browser/bob"))
    answer = room.ask("ann", message_b("hub:publish", payload))
    assert answer["type"] == "hub:delivery_ack"
    acked = answer["payload"]
    assert (acked["topic"], acked["subscriberCount"], acked["deliveredCount"]) == ("t", 1, 1)
    assert acked["delivered"] is True
    assert acked["timestamp"] == int(room.now * 1000)
    (got,) = room.hears("bob")
    assert (got["type"], got["payload"], got["to"]) == (kind, delivered, "browser/bob")
    assert got["metadata"]["via"] == HUB_B


def test_a_publisher_that_subscribes_gets_its_own_message(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    room.say("ann", message_b("hub:publish", {"topic": "t", "type": "x", "data": 1}))
    assert {one["type"] for one in room.hears("ann")} == {"hub:delivery_ack", "x"}


def test_subscribing_twice_is_one_subscription_with_one_id(room: Room) -> None:
    first = room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    second = room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    assert first["payload"]["subscriptionId"] == second["payload"]["subscriptionId"]
    room.say_raw("lin", b"pub t 1 x\n")
    assert len(room.hears("ann")) == 1


@pytest.mark.parametrize("how", ["topic", "subscriptionId", "topic as subscriptionId"])
def test_unsubscribing_names_the_topic_or_the_id(room: Room, how: str) -> None:
    answer = room.ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    payload = {
        "topic": {"topic": "t"},
        "subscriptionId": {"subscriptionId": answer["payload"]["subscriptionId"]},
        "topic as subscriptionId": {"subscriptionId": "t"},
    }[how]
    answer = room.ask("ann", message_b("hub:unsubscribe", payload))
    assert answer["type"] == "hub:unsubscribed"
    assert answer["payload"] == {"topic": "t", "unsubscribedAt": int(room.now * 1000)}
    room.say_raw("lin", b"pub t 1 x\n")
    assert room.hears("ann") == []


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("system/+/events", "system/user/events", "system/user/x/events"),
        ("system/#", "system/a/b", "systems/a"),
        ("system/#", "system", "sys"),
        ("#", "anything/at/all", None),
        ("+", "one", "one/two"),
    ],
)
def test_wildcards_match_levels(room: Room, pattern: str, matching: str, other: str | None) -> None:
    assert (
        room.ask("ann", message_b("hub:subscribe", {"topic": pattern}))["type"] == "hub:subscribed"
    )
    room.say_raw("lin", f"pub {matching} 1 x\n".encode())
    (got,) = room.hears("ann")
    assert got["metadata"]["topic"] == matching
    if other is not None:
        room.say_raw("lin", f"pub {other} 1 x\n".encode())
        assert room.hears("ann") == []
    room.ask("ann", message_b("hub:unsubscribe", {"topic": pattern}))
    room.say_raw("lin", f"pub {matching} 1 x\n".encode())
    assert room.hears("ann") == []


def test_one_message_comes_once_however_many_subscriptions_match(room: Room) -> None:
    for topic in ("a/b", "a/+", "#", "a/#"):
        room.ask("ann", message_b("hub:subscribe", {"topic": topic}))
    room.say_raw("lin", b"pub a/b 1 x\n")
    assert len(room.hears("ann")) == 1


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (None, "topic is required"),
        ("", "topic is required"),
        ("a b", None),
        ("a\nb", None),
        ("a\r", None),
        ("x\npub y 1 z\n", None),
        ("a.b", None),
        ("é", None),
        ("a" * 257, None),
        ("a/#/b", None),
        ("a/b+", None),
        (7, None),
    ],
)
@pytest.mark.parametrize("kind", ["hub:subscribe", "hub:publish"])
def test_a_topic_that_is_not_legal_is_refused(
    room: Room, kind: str, topic: Any, text: str | None
) -> None:
    room.say_raw("lin", b"sub y\n")
    payload = {"topic": topic, "type": "x", "data": 1}
    code, told = error(room.ask("ann", message_b(kind, payload)))
    assert code == "internal_error"
    assert text is None or told == text
    assert "\n" not in told
    assert room.hears("lin") == []
    assert room.broker.router.subscriptions == 1


@pytest.mark.parametrize("kind", [None, "", "a b", "a\nb", "x" * 257, "hub:disconnect"])
def test_a_type_that_is_not_legal_is_refused(room: Room, kind: Any) -> None:
    payload = {"topic": "t", "type": kind, "data": 1}
    code, told = error(room.ask("ann", message_b("hub:publish", payload)))
    assert code == "internal_error"
    assert told.startswith("payload.type")


def test_nobody_publishes_under_the_daemons_own_names(room: Room) -> None:
    payload = {"topic": "//pubsubd/stats", "type": "x", "data": 1}
    assert error(room.ask("ann", message_b("hub:publish", payload)))[0] == "internal_error"


def test_the_daemons_own_names_can_be_subscribed_by_name_but_not_by_wildcard(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "//pubsubd/events"}))
    room.ask("bob", message_b("hub:subscribe", {"topic": "#"}, me="browser/bob"))
    room.broker.delivery.publish(b"//pubsubd/events", b"{}")
    assert len(room.hears("ann")) == 1
    assert room.hears("bob") == []


def test_topics_can_be_any_name_if_the_operator_says_so() -> None:
    room = Room(any_topic=True)
    room.join("ann")
    room.join_line("lin")
    room.ask("ann", message_b("hub:subscribe", {"topic": "chat.m:é"}))
    room.say_raw("lin", "pub chat.m:é 1 x\n".encode())
    assert len(room.hears("ann")) == 1
    assert (
        error(room.ask("ann", message_b("hub:subscribe", {"topic": "a b"})))[0] == "internal_error"
    )


def test_topics_are_listed_with_their_counts(room: Room) -> None:
    room.ask("ann", message_b("hub:subscribe", {"topic": "a"}))
    room.say("bob", message_b("hub:publish", {"topic": "a", "type": "x"}, me="browser/bob"))
    room.say("bob", message_b("hub:publish", {"topic": "b", "type": "x"}, me="browser/bob"))
    room.hears("bob")
    room.hears("ann")
    answer = room.ask("ann", message_b("hub:list_topics", {}))
    assert answer["type"] == "hub:topic_list"
    found = {
        t["topic"]: (t["subscriberCount"], t["messageCount"]) for t in answer["payload"]["topics"]
    }
    assert found == {"a": (1, 1), "b": (0, 1)}
    assert answer["payload"]["total"] == 2
    info = room.ask("ann", message_b("hub:topic_info", {"topic": "a"}))
    assert info["type"] == "hub:topic_info"
    assert info["payload"]["subscriberCount"] == 1
    missing = room.ask("ann", message_b("hub:topic_info", {"topic": "c"}))
    assert error(missing)[0] == "internal_error"


def test_topics_are_listed_in_steps(room: Room) -> None:
    for number in range(30):
        topic = f"a/b{number}/{number}"
        room.ask("ann", message_b("hub:publish", {"topic": topic, "type": "x"}))
    room.shorten_turns(5)
    assert len(room.turns("ann", message_b("hub:list_topics", {}))) >= 7
    (answer,) = room.hears("ann")
    assert len(answer["payload"]["topics"]) == 30


def test_subscriptions_of_one_connection_are_bounded() -> None:
    room = Room(max_subscriptions=2)
    room.join("ann")
    for topic in ("a", "b"):
        room.ask("ann", message_b("hub:subscribe", {"topic": topic}))
    answer = room.ask("ann", message_b("hub:subscribe", {"topic": "c"}))
    assert error(answer)[0] == "internal_error"
    assert room.broker.router.subscriptions == 2


# Limits


def test_over_the_rate_messages_are_refused_until_there_is_room_again() -> None:
    room = Room(rate=60, burst=3)
    room.join("ann")
    beat = message_b("hub:heartbeat")
    room.say("ann", beat, beat, beat, beat)
    *fine, refused = room.hears("ann")
    assert [one["type"] for one in fine] == ["hub:heartbeat_ack"] * 3
    assert error(refused)[0] == "rate_limited"
    assert refused["payload"]["details"] == {"retryAfter": 1}
    assert room.ask("ann", message_b("hub:connect", {"version": "1.0"}))["type"] == "hub:connected"
    room.tick(1)
    assert room.ask("ann", beat)["type"] == "hub:heartbeat_ack"
    assert error(room.ask("ann", beat))[0] == "rate_limited"


def test_by_default_a_hundred_messages_may_come_at_once(room: Room) -> None:
    room.say("ann", *[message_b("hub:heartbeat")] * 101)
    answers = room.hears("ann")
    assert [one["type"] for one in answers].count("hub:heartbeat_ack") == 100
    assert error(answers[-1])[0] == "rate_limited"


def test_a_message_over_the_limit_is_refused_and_the_connection_goes_on() -> None:
    room = Room(max_message=1000)
    room.join("ann")
    room.say("ann", message_b("hub:publish", {"topic": "t", "type": "x", "data": "y" * 1000}))
    (answer,) = room.hears("ann")
    assert error(answer)[0] == "message_too_large"
    details = answer["payload"]["details"]
    assert details["maxSize"] == 1000
    assert details["actualSize"] > 1000
    assert room.ask("ann", message_b("hub:heartbeat"))["type"] == "hub:heartbeat_ack"


def test_silence_ends_a_client_that_has_introduced_itself(room: Room) -> None:
    room.connect_a("ann")
    connection = room.connections["ann"]
    assert connection.overdue(100.0, 41.0) is None
    overdue = connection.overdue(100.0, 39.0)
    assert overdue is not None
    assert overdue.code == "heartbeat-timeout"
    assert room.connections["bob"].overdue(100.0, 0.0) is None


# Asking the hub


@pytest.mark.parametrize(
    ("dialect", "name"), [("A", "hub:queue_stats_response"), ("B", "hub:queue_stats_result")]
)
def test_queue_statistics_are_those_of_the_connection(room: Room, dialect: str, name: str) -> None:
    if dialect == "A":
        room.connect_a("ann")
        answer = room.ask("ann", message_a("hub:queue_stats", {}))
    else:
        answer = room.ask("ann", message_b("hub:queue_stats", {}))
    assert answer["type"] == name
    assert set(answer["payload"]) == {
        "queueDepth", "processingRate", "pauseThreshold", "resumeThreshold",
        "pending", "processed", "failed", "paused",
    }  # fmt: skip
    assert answer["payload"]["paused"] is False


def test_metrics_tell_what_the_hub_has(room: Room) -> None:
    room.register_a("ann")
    answer = room.ask("ann", message_a("hub:metrics", {}))
    assert answer["type"] == "hub:metrics_response"
    assert answer["payload"]["actors"] == 1
    assert answer["payload"]["connections"] == 2


# What is no message


@pytest.mark.parametrize("kind", ["hub:bogus", "hub:", "greeting"])
def test_an_unknown_type_is_told(room: Room, kind: str) -> None:
    answer = room.ask("ann", message_b(kind, {}))
    assert error(answer) == ("internal_error", f"Unknown message type: {kind}")


@pytest.mark.parametrize("message", [{"from": None}, {"to": None}, {"pattern": "shout"}])
def test_in_a_an_envelope_that_is_not_whole_is_told(room: Room, message: Any) -> None:
    room.connect_a("ann")
    answer = room.ask("ann", message_a("hub:heartbeat") | message)
    assert error(answer) == ("internal_error", "Invalid SharedMessage structure")


@pytest.mark.parametrize("message", [{}, {"type": 7}, {"a": 1}, {"type": "hub:connect", "id": []}])
def test_an_object_that_is_no_message_is_told(room: Room, message: Any) -> None:
    assert error(room.ask("ann", message)) == (
        "internal_error",
        "Invalid SharedMessage structure",
    )


@pytest.mark.parametrize("payload", ["text", 7, [], {"topic": []}])
def test_a_payload_of_another_shape_is_told(room: Room, payload: Any) -> None:
    assert error(room.ask("ann", message_b("hub:subscribe", payload)))[0] == "internal_error"


def test_addresses_of_one_form_with_replies_of_the_other_dialect_are_served(room: Room) -> None:
    answer = room.ask("ann", message_b("hub:subscribe", {"topic": "t"}, me="@(browser/ann)"))
    assert (answer["type"], answer["from"]) == ("hub:subscribed", HUB_A)
    room.say_raw("lin", b"pub t 1 x\n")
    (got,) = room.hears("ann")
    assert got["to"] == "@(browser/ann)"
    published = room.ask("bob", message_b("hub:publish", {"topic": "t", "type": "x"}, me="@(s/p)"))
    assert published["type"] == "hub:delivery_ack"


# Bounds of what is listed, taken and remembered


def test_an_answer_lists_no_more_actors_than_there_is_room_for(room: Room) -> None:
    for number in range(20):
        payload = {"actorAddress": f"n/{number}", "metadata": {"x": "y" * 60_000}}
        assert room.ask("bob", message_b("hub:register", payload))["type"] == "hub:registered"
    for kind in ("hub:list_actors", "hub:discover"):
        found: list[str] = []
        while True:
            page = room.ask("ann", message_b(kind, {"offset": len(found)}))["payload"]
            assert 0 < page["count"] == len(page["actors"]) <= ANSWER // 60_000
            found += [one["address"] for one in page["actors"]]
            assert page["total"] == 20
            if not page["hasMore"]:
                break
        assert found == [f"n/{number}" for number in range(20)]


def test_an_answer_lists_no_more_topics_than_there_is_room_for() -> None:
    room = Room(rate=0, topic_length=1_024)
    room.join("ann")
    topics = [f"{number:04}" + "x" * 1_000 for number in range(500)]
    for topic in topics:
        room.ask("ann", message_b("hub:publish", {"topic": topic, "type": "x"}))
    page = room.ask("ann", message_b("hub:list_topics", {"limit": 1_000}))["payload"]
    assert page["hasMore"] is True
    assert page["count"] <= ANSWER // 1_000
    more = room.ask("ann", message_b("hub:list_topics", {"limit": 1_000, "offset": page["count"]}))
    assert [one["topic"] for one in page["topics"] + more["payload"]["topics"]] == topics[
        : page["count"] + more["payload"]["count"]
    ]
    answer = room.ask("ann", {"command": "pubsub.topics", "payload": {"limit": 1_000}})
    assert 0 < len(answer["payload"]["topics"]) <= ANSWER // 1_000


@pytest.mark.parametrize("kind", ["hub:list_actors", "hub:discover", "hub:list_topics"])
@pytest.mark.parametrize("offset", [2**31, 2**63 - 1, 2**64 - 1])
def test_any_offset_is_answered(room: Room, kind: str, offset: int) -> None:
    answer = room.ask("ann", message_b(kind, {"offset": offset, "limit": 2**64 - 1}))
    assert answer["payload"]["count"] == 0
    assert answer["payload"]["hasMore"] is False


def test_any_numbers_are_answered(room: Room) -> None:
    for number in (1e308, -1e308, 2**64 - 1, -(2**63)):
        answer = room.ask("ann", message_b("hub:heartbeat", {"timestamp": number}))
        assert answer["payload"]["timestamp"] == float(number)
        expired = message_b("hub:heartbeat", timestamp=-1e308, ttl=min(0, number))
        assert error(room.ask("ann", expired))[0] == "message_expired"
        payload = {"actorAddress": "x/y", "ttl": abs(number)}
        assert room.ask("ann", message_b("hub:register", payload))["type"] == "hub:registered"


@pytest.mark.parametrize(
    "address", ["cloudflare/signal-hub", "tcp/127.0.0.1:1", "unix/1", "http/x", "mesh/b"]
)
@pytest.mark.parametrize("form", ["{}", "@({})"])
def test_nobody_registers_an_address_of_the_daemons_own(
    room: Room, address: str, form: str
) -> None:
    payload = {"actorAddress": form.format(address), "capabilities": ["x"]}
    assert error(room.ask("ann", message_b("hub:register", payload)))[0] == "unauthorized"
    assert error(room.ask("ann", message_b("hub:register", {}, me=form.format(address))))[0] == (
        "unauthorized"
    )
    assert len(room.hub.registry) == 0


def test_long_senders_are_not_remembered(room: Room) -> None:
    for number in range(10):
        publish = {"topic": "t", "type": "x"}
        room.ask("ann", message_b("hub:publish", publish, me=f"{number}" + "x" * 100_000))
    signal = room.hub.signals.get(room.connections["ann"])
    assert signal is not None
    assert len(signal.publications) == 0
    room.ask("ann", message_b("hub:publish", publish))
    assert len(signal.publications) == 1


def test_subscriptions_under_a_registration_that_is_over_end_in_steps(room: Room) -> None:
    room.register_a("bob", ttlSeconds=5)
    for number in range(90):
        room.ask("bob", message_a("hub:subscribe", {"topic": f"t{number}"}, me="@(browser/bob)"))
    room.now += 10
    room.shorten_turns(1)
    left = []
    for _ in range(7):
        room.connections["ann"].receive(b'{"type":"ping"}\n')
        left.append(room.broker.router.subscriptions)
    assert left == [74, 58, 42, 26, 10, 0, 0]


def test_a_topic_subscribed_anew_outlives_the_registration_before(room: Room) -> None:
    me = room.register_a("bob", ttlSeconds=5)
    for number in range(90):
        room.ask("bob", message_a("hub:subscribe", {"topic": f"t{number}"}, me=me))
    room.now += 10
    room.shorten_turns(1)
    room.connections["ann"].receive(b'{"type":"ping"}\n')
    assert room.broker.router.subscriptions == 74
    subscribe = message_a("hub:subscribe", {"topic": "t89"}, me=me)
    data = json.dumps(subscribe).encode() + b"\n"
    while not (heard := room.hears("bob")):
        room.connections["bob"].receive(data)
        data = b""
    assert heard[0]["type"] == "hub:subscribed"
    assert room.broker.router.subscriptions > 1
    for _ in range(9):
        room.say("ann", {"type": "ping"})
    assert room.broker.router.subscriptions == 1
    room.say("ann", message_b("hub:publish", {"topic": "t89", "type": "x"}))
    assert len(room.hears("bob")) == 1
