"""Requests to the daemon by ``hub:request``, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from pubsubd.access.identity import Identity
from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import make_token
from tests.hubs import Room, message_a, message_b
from tests.rights import PASSWORD, rules_in

TOKEN, TOKEN_LINE = make_token()


@pytest.fixture
def room() -> Room:
    room = Room(rate=0)
    room.join("ann", "bob")
    return room


def ask(name: str, data: Any = None, **more: Any) -> Any:
    return message_b("hub:request", {"name": name, "data": data}, **more)


def data_of(answer: Any) -> Any:
    assert answer["type"] == "hub:response", answer
    return answer["payload"]["data"]


def reason(answer: Any) -> tuple[str, str]:
    assert answer["type"] == "hub:error", answer
    return answer["payload"]["code"], answer["payload"]["details"]["reason"]


def test_a_request_is_answered_with_the_json_of_the_line_port(room: Room) -> None:
    room.say("ann", ask("//pubsubd/connections", {"limit": 1}))
    (answer,) = room.hears("ann")
    assert data_of(answer)["count"] == 2
    assert data_of(room.ask("ann", ask("//pubsubd/explain", "chat")))["name"] == "chat"
    assert data_of(room.ask("ann", ask("//pubsubd/stats")))["connections"] == 2


def test_an_answer_refers_to_its_request_in_both_dialects(room: Room) -> None:
    answer = room.ask("ann", ask("//pubsubd/ping", "hi", correlationId="7"))
    assert (answer["correlationId"], data_of(answer)) == ("7", "hi")
    me = room.connect_a("bob")
    payload = {"name": "//pubsubd/ping", "data": '{"a": 1}'}
    message = message_a("hub:request", payload, me=me)
    answer = room.ask("bob", message)
    assert (answer["correlationId"], data_of(answer)) == (message["id"], '{"a": 1}')


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("//pubsubd/nothing", None, "unknown-request"),
        ("chat", None, "unknown-request"),
        ("", None, "unknown-request"),
        ("//pubsubd/hello", "x", "unknown-request"),
        ("//pubsubd/explain", "a b", "bad-request"),
        ("//pubsubd/connections", [1], "bad-request"),
        ("//pubsubd/kill", 99, "unknown-connection"),
        ("//pubsubd/peers", None, "no-mesh"),
    ],
)
def test_what_is_refused_has_the_code_of_the_line_port(
    room: Room, name: str, data: Any, code: str
) -> None:
    assert reason(room.ask("ann", ask(name, data))) == ("internal_error", code)
    assert room.broker.counters.errors[code] == 1
    assert data_of(room.ask("ann", ask("//pubsubd/ping", "still"))) == "still"


def test_who_ends_its_own_connection_is_told_so(room: Room) -> None:
    number = room.connections["ann"].peer.number
    assert reason(room.ask("ann", ask("//pubsubd/kill", number))) == ("internal_error", "killed")
    assert room.ended["ann"][0] == "killed"


def test_requests_have_the_rate_of_the_line_port(room: Room) -> None:
    for _ in range(round(10 * room.broker.listener.limits.request_rate)):
        room.ask("ann", ask("//pubsubd/stats"))
    assert reason(room.ask("ann", ask("//pubsubd/stats"))) == ("rate_limited", "rate-limited")
    assert data_of(room.ask("ann", ask("//pubsubd/ping", "x"))) == "x"


def test_rules_hold_for_requests(room: Room) -> None:
    room.broker.access.replace(
        users=room.broker.access.users,
        acl=Acl([AclRule(("*",), ("//pubsubd/stats",), ())]),
        authority=None,
    )
    assert data_of(room.ask("ann", ask("//pubsubd/stats")))["connections"] == 2
    answer = room.ask("ann", ask("//pubsubd/connections"))
    assert answer["payload"]["code"] == "unauthorized"


def test_a_token_that_allows_little_does_not_allow_requests(room: Room) -> None:
    room.connections["ann"].identity = Identity(None, frozenset({"receive"}), None)
    assert reason(room.ask("ann", ask("//pubsubd/stats"))) == ("unauthorized", "not-allowed")


def login_room() -> Room:
    room = Room(rate=0)
    room.hub.listener.login = True
    room.broker.wall = room.hub.wall
    rules_in(room.broker, AclRule(("ann", "tom"), ("//pubsubd/",)), ann=PASSWORD, tom=TOKEN_LINE)
    room.join("ann")
    return room


@pytest.mark.parametrize("given", [f"ann {PASSWORD}", TOKEN])
def test_a_password_or_a_token_logs_in(given: str) -> None:
    room = login_room()
    assert reason(room.ask("ann", ask("//pubsubd/stats")))[0] == "unauthorized"
    name = "tom" if given == TOKEN else "ann"
    assert data_of(room.ask("ann", ask("//pubsubd/auth", given))) == f"ok {name}"
    assert room.connections["ann"].peer.identity == name
    assert data_of(room.ask("ann", ask("//pubsubd/stats")))["connections"] == 1


def test_the_third_wrong_password_ends_the_connection() -> None:
    room = login_room()
    for _ in range(2):
        answer = room.ask("ann", ask("//pubsubd/auth", "ann wrong"))
        assert reason(answer) == ("unauthorized", "login-failed")
    assert room.connections["ann"].peer.identity is None
    room.say("ann", ask("//pubsubd/auth", "ann wrong"))
    assert reason(room.hears("ann")[0]) == ("unauthorized", "login-failed")
    assert room.ended["ann"][0] == "too-many-failures"
