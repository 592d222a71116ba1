"""One hub, however many daemons: actors are found and reached at all of them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users
from pubsubd.hub import federation, replies
from pubsubd.hub.signal.base import Signal
from pubsubd.mesh import outgoing
from tests.federations import Wing, federate
from tests.hubs import Room, heaviest, message_a, message_b
from tests.webs import Web

Wings = dict[str, Wing]


@pytest.fixture
def mesh() -> tuple[Web, Wings]:
    """Return a chain of three daemons; ann is at the first, cid at the last."""
    web, wings = federate("ab", "bc")
    assert wings["a"].registered("ann", "ui")["type"] == "hub:registered"
    assert wings["c"].registered("cid", "db", metadata={"n": 1})["type"] == "hub:registered"
    return web, wings


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("on purpose")


def send(to: str, data: Any, me: str = "x/ann", **more: Any) -> dict[str, Any]:
    return message_b("hub:send", {"to": to, "type": "t", "data": data}, me=me, **more)


def send_a(to: str, data: Any, **more: Any) -> dict[str, Any]:
    payload = {"to": to, "type": "t", "data": data}
    return message_a("hub:send", payload, me="@(x/amy)", **more)


def ask(wing: Wing, name: str, message: dict[str, Any], seconds: float = 0.5) -> list[Any]:
    """Let a client say something, and return what it hears after a while."""
    wing.say(name, message)
    wing.web.run(seconds)
    return wing.hears(name)


def enter_a(wing: Wing, name: str = "amy") -> None:
    """Let a client register in dialect A."""
    wing.join(name)
    wing.register_a(name)
    wing.web.run(0.2)


# Messages


def test_what_is_sent_to_an_actor_of_another_daemon_arrives_once_and_in_order(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    wings["a"].say("ann", *[send("x/cid", number) for number in range(50)])
    web.run(0.2)
    heard = wings["c"].hears("cid")
    assert [one["payload"] for one in heard] == list(range(50))
    assert {(one["from"], one["to"], one["type"]) for one in heard} == {("x/ann", "x/cid", "t")}
    assert heard[0]["metadata"]["via"] == "cloudflare/signal-hub"
    assert wings["a"].hears("ann") == []
    assert wings["a"].hub.federation is not None


def test_the_largest_message_that_a_daemon_takes_is_taken_by_the_others(
    mesh: tuple[Web, Wings],
) -> None:
    _web, wings = mesh
    wings["c"].registered("bob")
    wings["a"].join("eve")
    for message in heaviest():
        answers = ask(wings["a"], "eve", message)
        assert [one["type"] for one in answers] in ([], ["hub:broadcast_ack"])
        assert wings["c"].hears("bob")
    assert not wings["c"].web["c"].mesh.letters.ignored


def test_addresses_have_the_form_that_the_receiver_uses(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    enter_a(wings["b"])
    wings["a"].say("ann", send("@(browser/amy)", 1))
    web.run(0.2)
    (heard,) = wings["b"].hears("amy")
    assert (heard["from"], heard["to"]) == ("@(x/ann)", "@(browser/amy)")
    assert heard["metadata"]["via"] == "@(cloudflare/signal-hub)"


def test_an_ask_is_answered_by_the_daemon_that_delivered(mesh: tuple[Web, Wings]) -> None:
    _web, wings = mesh
    enter_a(wings["b"])
    (ack,) = ask(wings["b"], "amy", send_a("x/cid", 1, id="7", pattern="ask"))
    assert (ack["type"], ack["correlationId"]) == ("hub:delivery_ack", "7")
    assert ack["payload"]["status"] == "delivered"
    (heard,) = wings["c"].hears("cid")
    assert heard["correlationId"] == "7"
    reply = send("browser/amy", 2, me="x/cid", correlationId="7")
    assert ask(wings["c"], "cid", reply) == []
    (answer,) = wings["b"].hears("amy")
    assert (answer["payload"], answer["correlationId"]) == (2, "7")


def test_asks_that_are_alike_are_each_answered_for_themselves(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    enter_a(wings["b"])
    for number in range(10, 30):  # none of which has been answered before the last one
        asked = send_a("x/cid", "y" * number, id=f"{number}", pattern="ask", timestamp=number)
        wings["b"].say("amy", asked)
    web.run(0.5)
    heard = wings["c"].hears("cid")
    assert [(one["correlationId"], len(one["payload"])) for one in heard] == [
        (f"{number}", number) for number in range(10, 30)
    ]
    acks = wings["b"].hears("amy")
    assert sorted(one["correlationId"] for one in acks) == [one["correlationId"] for one in heard]
    assert {one["type"] for one in acks} == {"hub:delivery_ack"}


def test_a_tell_gets_no_answer_in_a_and_crosses_no_other_link(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    enter_a(wings["b"])
    before = web["a"].mesh.counters.received
    assert ask(wings["b"], "amy", send_a("x/cid", 1)) == []
    assert [one["payload"] for one in wings["c"].hears("cid")] == [1]
    assert web["a"].mesh.counters.received == before


def test_one_who_is_gone_when_the_message_comes_is_told_of(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    enter_a(wings["a"])
    for pattern in ("ask", "tell"):
        wings["c"].registered("dan")
        for name, message in (
            ("amy", send_a("x/dan", 1, pattern=pattern, id="5")),
            ("ann", send("x/dan", 1, pattern=pattern, correlationId="6")),
        ):
            wings["a"].say(name, message)
        wings["c"].leave("dan")
        web.run(0.5)
        (told,) = wings["a"].hears("ann")
        assert (told["type"], told["payload"]["code"]) == ("hub:error", "unknown_actor")
        assert told["correlationId"] == "6"
        told_a = wings["a"].hears("amy")
        assert [one["type"] for one in told_a] == ["hub:unknown_actor"] * (pattern == "ask")
        del wings["c"].heard["dan"]
    assert wings["a"].hub.federation is not None
    assert wings["a"].hub.federation.waiting == 0


def test_an_ask_that_nobody_answers_is_answered_after_a_stated_time(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    enter_a(wings["a"])
    web["c"].mesh.letters.kinds["send"] = lambda *_: None
    wings["a"].say("amy", send_a("x/cid", 1, pattern="ask"))
    wings["a"].say("ann", send("x/cid", 1, pattern="ask"), send("x/cid", 1))
    web.run(federation.PATIENCE - 0.1)
    assert wings["a"].hears("amy") == wings["a"].hears("ann") == []
    web.run(1.2)
    (told_a,) = wings["a"].hears("amy")
    assert told_a["type"] == "hub:unknown_actor"
    told = wings["a"].hears("ann")  # of the tell, too
    assert [one["payload"]["code"] for one in told] == ["unknown_actor"] * 2


def test_what_is_not_confirmed_does_not_grow(
    mesh: tuple[Web, Wings], monkeypatch: pytest.MonkeyPatch
) -> None:
    web, wings = mesh
    monkeypatch.setattr(outgoing, "MAX_EACH", 3_000)
    web["c"].mesh.letters.kinds["send"] = lambda *_: None
    wings["a"].say("ann", *[send("x/cid", 1) for _ in range(5)])
    refused = wings["a"].hears("ann")
    assert 0 < len(refused) < 5
    assert {one["payload"]["code"] for one in refused} == {"rate_limited"}
    assert 0 < web["a"].mesh.streams.outgoing.size <= 3_000
    wings["a"].leave("ann")
    web.run(7)
    assert web["a"].mesh.streams.outgoing.size == 0


def test_sending_needs_the_right_at_the_senders_daemon(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    acl = Acl([AclRule(("*",), ("chat/",), ("chat/",))])
    for _ in web["a"].broker.access.replacing(users=Users(), acl=acl, authority=None):
        pass
    (error,) = ask(wings["a"], "ann", send("x/cid", 1))
    assert error["payload"]["code"] == "unauthorized"
    assert wings["c"].hears("cid") == []


# Registering


def test_an_address_is_registered_once_in_the_mesh(mesh: tuple[Web, Wings]) -> None:
    _web, wings = mesh
    refused = wings["b"].registered("ann")
    assert refused["payload"]["code"] == "unknown_actor"
    assert refused["payload"]["details"]["daemon"] == "a"
    assert wings["b"].hub.registry.get_any("x/ann") is None


def test_in_dialect_a_a_client_takes_its_address_along_to_another_daemon(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    enter_a(wings["a"])
    wings["c"].join("amy")
    wings["c"].connect_a("amy")
    payload = {"actorAddress": "@(browser/amy)", "capabilities": ["ui"]}
    request = message_a("hub:register", payload, me="@(browser/amy)")
    (answer,) = ask(wings["c"], "amy", request)
    assert answer["type"] == "hub:registered"
    assert wings["a"].ended["amy"][0] == "duplicate-connection"
    web.run(1.0)
    for name in "ab":
        assert web[name].mesh.directory.find("browser/amy") == "c"
    wings["a"].say("ann", send("browser/amy", 3))
    web.run(0.2)
    assert [one["payload"] for one in wings["c"].hears("amy")] == [3]


def test_nobody_takes_the_address_of_another_user(mesh: tuple[Web, Wings]) -> None:
    _web, wings = mesh
    enter_a(wings["a"])
    wings["a"].broker.login(wings["a"].connections["amy"].peer, "user")
    wings["c"].join("amy")
    wings["c"].connect_a("amy")
    payload = {"actorAddress": "@(browser/amy)", "capabilities": ["ui"]}
    request = message_a("hub:register", payload, me="@(browser/amy)")
    (answer,) = ask(wings["c"], "amy", request)
    assert answer["payload"]["code"] == "unauthorized"
    assert "amy" not in wings["a"].ended


def test_a_silent_daemon_keeps_its_addresses(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    enter_a(wings["a"])
    web["a"].mesh.letters.kinds["displace"] = lambda *_: None
    wings["c"].join("amy")
    wings["c"].connect_a("amy")
    payload = {"actorAddress": "@(browser/amy)", "capabilities": ["ui"]}
    request = message_a("hub:register", payload, me="@(browser/amy)")
    (answer,) = ask(wings["c"], "amy", request, federation.PATIENCE + 1.2)
    assert answer["payload"]["code"] == "timeout"


def test_two_registrations_at_once_end_in_one_and_the_loser_is_told(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    wings["c"].register("zoe", "ui")
    web.run(0.0015)  # which is less than the letter takes
    wings["a"].register("zoe", "ui")
    wings["a"].say("zoe", message_b("hub:subscribe", {"topic": "t"}, me="x/zoe"))
    web.run(1.0)
    kinds = [one["type"] for one in wings["a"].hears("zoe")]
    assert kinds == ["hub:registered", "hub:subscribed", "hub:registration_lost"]
    assert [one["type"] for one in wings["c"].hears("zoe")] == ["hub:registered"]
    assert [e["detail"] for e in web["a"].events if e["event"] == "registration-lost"] == [
        "x/zoe was registered there earlier than here"
    ]
    web.run(1.1)
    assert not wings["a"].connections["zoe"].subscriptions
    wings["a"].say("ann", send("x/zoe", 4))
    web.run(0.2)
    assert [one["payload"] for one in wings["c"].hears("zoe")] == [4]


def test_both_sides_of_a_partition_go_on_and_heal(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    (link,) = [one for one in web["b"].connections if web["c"] in one.nodes]
    link.close()
    web.run(0.5)
    (error,) = ask(wings["a"], "ann", send("x/cid", 1))
    assert error["payload"]["code"] == "unknown_actor"
    wings["b"].registered("cid")
    assert ask(wings["a"], "ann", send("x/cid", 2)) == []
    assert [one["payload"] for one in wings["b"].hears("cid")] == [2]
    web.link("bc")
    web.run(2.0)
    (lost,) = wings["b"].hears("cid")
    assert lost["type"] == "hub:registration_lost"
    assert lost["payload"]["daemon"] == "c"
    assert ask(wings["a"], "ann", send("x/cid", 3)) == []
    assert [one["payload"] for one in wings["c"].hears("cid")] == [3]


# Finding


def test_edge_lists_tell_how_many_actors_and_connections_each_hub_has(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    enter_a(wings["a"], "eve")
    enter_a(wings["a"], "zoe")
    web.run(60)
    for node in "ab":
        rows = web[node].report.edges()
        told = {row["observer"]: (row["actors"], row["hub_connections"]) for row in rows}
        assert told == {"a": (3, 3), "b": (0, 0), "c": (1, 1)}


def found(answer: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(one["address"], one.get("daemon")) for one in answer["payload"]["actors"]]


def test_actors_of_all_daemons_are_found_and_listed_by_address(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    wings["b"].registered("bob", "db", metadata={"n": 1})
    wings["b"].registered("ada")
    everybody = [("x/ada", "b"), ("x/ann", "a"), ("x/bob", "b"), ("x/cid", "c")]
    for name, wing in (("ann", wings["a"]), ("bob", wings["b"]), ("cid", wings["c"])):
        answer = wing.ask(name, message_b("hub:list_actors", {}))
        assert found(answer) == everybody
        assert answer["payload"]["unanswered"] == []
        answer = wing.ask(name, message_b("hub:discover", {"pattern": "^x/[bc]"}))
        assert found(answer) == everybody[2:]
        wanted = {"capabilities": ["db"], "metadata": {"n": 1}, "limit": 1, "offset": 1}
        answer = wing.ask(name, message_b("hub:discover", wanted))
        assert found(answer) == [("x/cid", "c")]
        assert (answer["payload"]["total"], answer["payload"]["hasMore"]) == (2, False)
    (cid,) = answer["payload"]["actors"]
    assert (cid["capabilities"], cid["metadata"]) == (["db"], {"n": 1})
    assert abs(cid["registeredAt"] / 1000 - web.wall()) < 10
    assert isinstance(cid["expiresAt"], int)
    answer = wings["a"].ask("ann", message_b("hub:discover", wanted))
    assert answer["payload"]["actors"][0]["expiresAt"] is None


def test_local_means_this_daemon_and_answers_as_one_without_a_mesh(
    mesh: tuple[Web, Wings],
) -> None:
    _web, wings = mesh
    for kind in ("hub:list_actors", "hub:discover"):
        answer = wings["a"].ask("ann", message_b(kind, {"scope": "local"}))
        assert found(answer) == [("x/ann", None)]
        assert "unanswered" not in answer["payload"]
        answer = wings["a"].ask("ann", message_b(kind, {"scope": "world"}))
        assert answer["payload"]["message"] == "scope is local or mesh"


def test_other_details_and_the_end_of_a_registration_are_known_at_once(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    wings["c"].registered("cid", "new")
    answer = wings["a"].ask("ann", message_b("hub:discover", {"capability": "new"}))
    assert found(answer) == [("x/cid", "c")]
    before = web["c"].mesh.directory.sequence
    wings["c"].registered("cid", "new")  # nothing has changed
    assert web["c"].mesh.directory.sequence == before
    wings["c"].leave("cid")
    web.run(0.2)
    assert found(wings["a"].ask("ann", message_b("hub:list_actors", {}))) == [("x/ann", "a")]
    assert wings["a"].hub.federation is not None
    assert wings["a"].hub.federation.mirrors == {}


def test_actors_who_tell_as_much_as_they_may_are_known_everywhere(
    mesh: tuple[Web, Wings],
) -> None:
    web, wings = mesh
    controls = [chr(code) for code in range(0x10, 0x20)]  # each is six bytes of JSON
    texts = [(a + b).ljust(256, "\x01") for a in controls for b in controls[:8]]
    texts[0] = texts[0][:254]  # there is no room for more
    wings["a"].join("eve")
    wings["a"].say(
        "eve",
        *(
            message_b("hub:register", {"actorAddress": f"x/{name}"} | details, me=f"x/{name}")
            for name, details in (
                ("bob", {}),
                ("eve", {"metadata": {"text": "m" * 65_250}}),
                ("fay", {"capabilities": texts}),
            )
        ),
    )
    web.run(2.0)
    assert [one["type"] for one in wings["a"].hears("eve")] == ["hub:registered"] * 3
    for name in "bc":
        directory = web[name].mesh.directory
        assert [directory.find(f"x/{one}") for one in ("bob", "eve", "fay")] == ["a"] * 3
        assert directory.unsettled == []


def test_daemons_whose_actors_are_not_known_are_named(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    web["c"].mesh.letters.kinds["sync"] = lambda *_: None
    for one in web["b"].connections:
        one.close()
    web.run(0.5)
    web.link("ab", "bc")
    web.run(3.0)
    answer = wings["a"].ask("ann", message_b("hub:list_actors", {}))
    assert answer["payload"]["unanswered"] == ["c"]
    assert found(answer) == [("x/ann", "a")]


# Broadcasts


def test_a_broadcast_reaches_the_actors_of_all_daemons(mesh: tuple[Web, Wings]) -> None:
    _web, wings = mesh
    wings["b"].registered("bob", "db")
    (ack,) = [
        one
        for one in ask(wings["a"], "ann", message_b("hub:broadcast", {"type": "t", "data": 1}))
        if one["type"] == "hub:broadcast_ack"
    ]
    assert ack["payload"]["deliveredCount"] == 3
    assert ack["payload"]["unanswered"] == []
    for name, wing in (("bob", wings["b"]), ("cid", wings["c"])):
        (heard,) = wing.hears(name)
        assert (heard["payload"], heard["from"]) == (1, "x/ann")
        assert heard["metadata"]["broadcast"] is True
    message = message_b("hub:broadcast", {"type": "t", "data": 2, "scope": "local"})
    kinds = [one["type"] for one in ask(wings["a"], "ann", message)]
    assert kinds == ["t", "hub:broadcast_ack"]
    assert wings["b"].hears("bob") == []
    message = message_b(
        "hub:broadcast", {"type": "t", "data": 3}, metadata={"targetCapability": "db"}
    )
    assert [one["type"] for one in ask(wings["a"], "ann", message)] == ["hub:broadcast_ack"]
    assert [one["payload"] for one in wings["c"].hears("cid")] == [3]


def test_a_broadcast_names_the_daemons_that_do_not_answer(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    web["c"].mesh.letters.kinds["broadcast"] = lambda *_: None
    message = message_b("hub:broadcast", {"type": "t", "data": 1, "excludeSelf": True})
    (ack,) = ask(wings["a"], "ann", message, federation.PATIENCE + 1.2)
    assert ack["payload"]["unanswered"] == ["c"]
    assert ack["payload"]["deliveredCount"] == 0


@pytest.mark.parametrize("answered", [True, False])
def test_who_cannot_be_told_what_became_of_a_broadcast_ends(
    mesh: tuple[Web, Wings], monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    web, wings = mesh
    if not answered:
        web["c"].mesh.letters.kinds["broadcast"] = lambda *_: None
    monkeypatch.setattr(replies, "BroadcastAck", broken)
    message = message_b("hub:broadcast", {"type": "t", "data": 1})
    assert [one["type"] for one in ask(wings["a"], "ann", message, 7.0)][:1] == ["t"]
    assert {name: code for name, (code, _) in wings["a"].ended.items()} == {"ann": "internal-error"}
    assert not wings["c"].ended


@pytest.mark.parametrize("answered", [True, False])
def test_who_cannot_be_told_whether_it_has_an_address_ends(
    mesh: tuple[Web, Wings], monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    web, wings = mesh
    enter_a(wings["a"])
    if not answered:
        web["a"].mesh.letters.kinds["displace"] = lambda *_: None
    wings["c"].join("amy")
    wings["c"].connect_a("amy")
    monkeypatch.setattr(replies, "Registered", broken)
    monkeypatch.setattr(Signal, "error", broken)
    payload = {"actorAddress": "@(browser/amy)", "capabilities": ["ui"]}
    request = message_a("hub:register", payload, me="@(browser/amy)")
    ask(wings["c"], "amy", request, 7.0)
    assert wings["c"].ended["amy"][0] == "internal-error"


def test_another_daemon_may_ask_for_so_many_broadcasts(
    mesh: tuple[Web, Wings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "BURST", 5)
    web, wings = mesh
    message = message_b("hub:broadcast", {"type": "t", "data": 1, "excludeSelf": True})
    wings["a"].say("ann", *[message] * 9)
    web.run(0.05)
    assert len(wings["c"].hears("cid")) == 5
    assert web["c"].mesh.letters.ignored["rate"] == 4


def test_bad_letters_change_nothing(mesh: tuple[Web, Wings]) -> None:
    web, wings = mesh
    letters = web["a"].mesh.letters
    delivery = {
        "id": "1",
        "from": "x/ann",
        "to": "",
        "type": "hub:error",
        "payload": 1,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": 0,
        "metadata": {},
    }
    bad = [
        ("send 1 1 1 0 tell x/cid", json.dumps(delivery)),
        ("send 1 2 1 0 tell x/cid", json.dumps(delivery | {"type": 7})),
        ("send 1 3 1 0 tell x/cid", '{"a":1,"a":2}'),
        ("send 1 4 1 0 tell x/cid", "x"),
        ("send 1 5", json.dumps(delivery | {"type": "t"})),
        ("send 1 x 1 0 tell x/cid", json.dumps(delivery | {"type": "t"})),
        ("got 1 1", ""),
        ("got 1 1 x", ""),
        ("broadcast 1", json.dumps({"capability": None, "delivery": delivery})),
        ("broadcast x", "{}"),
        ("displace 1", "{}"),
        ("displaced", ""),
        ("kept x", ""),
        ("delivered 1 x y", ""),
        ("claims 99", ""),
    ]
    for words, body in bad:
        letters.send("c", words, body.encode())
    letters.post()
    web.run(0.2)
    assert wings["c"].hears("cid") == []
    assert web["c"].mesh.letters.ignored["malformed"] >= len(bad) - 3
    sequence = web["a"].mesh.directory.sequence
    for number, line in enumerate(
        [
            b'+ 1 x/eve {"address":"x/eve"}',
            b'+ 1 x/eve {"address":"x/bob","capabilities":[],"metadata":{}}',
            b'+ 1 x/eve {"address":"x/eve","capabilities":[],"metadata":7}',
        ],
        1,
    ):
        letters.send("c", f"claims {sequence + number}", line + b"\n")
    letters.post()
    web.run(0.2)
    assert web["c"].mesh.directory.find("x/eve") is None


@pytest.mark.parametrize("count", ["-1", "9" * 400])
def test_no_daemon_delivers_a_broadcast_to_more_or_fewer_than_there_can_be(
    mesh: tuple[Web, Wings], count: str
) -> None:
    web, _wings = mesh
    letters = web["a"].mesh.letters
    letters.send("c", f"delivered 1 {count} 0")
    letters.send("c", f"delivered 1 0 {count}")
    letters.post()
    web.run(0.2)
    assert web["c"].mesh.letters.ignored["malformed"] == 2


# Answers about one daemon


def test_answers_about_topics_and_queues_name_the_daemon_that_they_are_about(
    mesh: tuple[Web, Wings],
) -> None:
    _web, wings = mesh
    wings["a"].ask("ann", message_b("hub:subscribe", {"topic": "t"}))
    for kind, payload in (
        ("hub:list_topics", {}),
        ("hub:topic_info", {"topic": "t"}),
        ("hub:queue_stats", {}),
    ):
        assert wings["a"].ask("ann", message_b(kind, payload))["payload"]["daemon"] == "a"
    for command, payload in (
        ("pubsub.topics", {}),
        ("pubsub.info", {"topic": "t"}),
        ("pubsub.stats", {}),
    ):
        answer = wings["a"].ask("ann", {"command": command, "payload": payload})
        assert answer["payload"]["daemon"] == "a"
    room = Room()
    room.join("ann")
    assert "daemon" not in room.ask("ann", message_b("hub:list_topics", {}))["payload"]


class Nine:
    """A directory that knows of nine other daemons."""

    node, named = "me", True
    siblings, gate = (), None

    def __init__(self) -> None:
        self.others = [f"n{number}" for number in range(9)]
        self.unsettled: list[str] = []

    def serve(self, registrar: object) -> None:
        """Take part."""

    def claim(self, key: str) -> None:
        """Claim an address."""

    release = find = claim
    disown = staticmethod(lambda _node, _key: None)


class NoLetters:
    """Letters that go nowhere."""

    def __init__(self) -> None:
        self.kinds: dict[str, Any] = {}

    after = send = refuse = staticmethod(lambda *_: None)


def test_fifty_thousand_actors_on_ten_daemons_are_searched_with_ten_calls_for_each_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsubd.hub.catalogue.MATCH_TIME", float("inf"))
    room = Room(rate=0.0)
    room.join("ann")
    others = Nine()
    room.hub.join(others, far=(NoLetters(), NoLetters()))  # type: ignore[arg-type]
    known, registry = room.hub.federation, room.hub.registry
    assert known is not None
    for number in range(5_000):
        ann = room.connections["ann"]
        registry.register(f"user/{number}/me", ("ui",), b"{}", 10**6, ann, room.hub.ticks())
        for node in others.others:
            key = f"user/{number}/{node}"
            details = b'{"address":"%b","capabilities":["ui"],"metadata":{}}' % key.encode()
            assert known.learn(node, key, 1, details)
    wanted = {"pattern": "^user/[0-9]*7/[a-z]", "limit": 30, "offset": 4_960}
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count)
    try:
        answer = room.ask("ann", message_b("hub:discover", wanted))
    finally:
        sys.setprofile(None)
    assert calls < 10 * 50_000
    assert answer["payload"]["total"] == 5_000
    every = sorted(
        f"user/{number}/{node}" for number in range(7, 5_000, 10) for node in (*others.others, "me")
    )
    assert [one["address"] for one in answer["payload"]["actors"]] == every[4_960:4_990]
