"""Tokens on the hub port: who may do what, in each dialect, and that no token is ever shown."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pubsubd.access.tokens import load_key
from tests.daemons import DEADLINE, Daemon
from tests.hubs import Room, Socket, connect_a, message_a, message_b

SECRET = b"0123456789abcdef0123456789abcdef"


def token(now: float, *, life: float = 600, **claims: Any) -> str:
    """Return a token that holds for ``life`` seconds."""
    whole = {"iss": "signal-hub", "iat": int(now), "exp": int(now + life)} | claims
    return jwt.encode(whole, SECRET, algorithm="HS256")


@pytest.fixture
def room(tmp_path: Path) -> Room:
    path = tmp_path / "key"
    path.write_bytes(SECRET + b"\n")
    room = Room(authority=load_key(path))
    room.join("ann", "bob")
    room.join_line("lin")
    return room


def log_in(room: Room, name: str, **claims: Any) -> Any:
    return room.ask(
        name, message_b("hub:connect", {"version": "1.0", "jwt": token(room.now, **claims)})
    )


def code(answer: Any) -> str:
    assert answer["type"] == "hub:error", answer
    found = answer["payload"]["code"]
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    "message",
    [
        message_b("hub:heartbeat"),
        message_b("hub:subscribe", {"topic": "t"}),
        message_b("hub:publish", {"topic": "t", "type": "x"}),
        message_b("hub:list_actors", {}),
    ],
)
def test_without_a_token_nothing_is_carried_out(room: Room, message: Any) -> None:
    room.say_raw("lin", b"sub t\n")
    assert code(room.ask("ann", message)) == "unauthorized"
    assert room.hears("lin") == []


def test_in_b_a_connect_without_a_good_token_ends_the_connection(room: Room) -> None:
    answer = room.ask("ann", message_b("hub:connect", {"version": "1.0"}))
    assert code(answer) == "unauthorized"
    assert room.ended["ann"][0] == "unauthorized"


def test_in_a_a_connect_without_a_good_token_leaves_the_connection_open(room: Room) -> None:
    request = message_a("hub:connect", metadata=connect_a(authToken="x.y.z"))
    assert code(room.ask("ann", request)) == "unauthorized"
    good = f"Bearer {token(room.now, sub='browser/ann')}"
    answer = room.ask("ann", message_a("hub:connect", metadata=connect_a(authToken=good)))
    assert answer["payload"]["actorIdentity"] == "@(browser/ann)"


def test_connecting_tells_what_the_token_allows(room: Room) -> None:
    answer = log_in(room, "ann", actorId="browser/ann", capabilities=["send", "discover"])
    assert answer["payload"]["capabilities"] == ["discover", "send"]
    assert answer["payload"]["actorIdentity"] == "browser/ann"


ALLOWED = {
    "hub:publish": {"topic": "t", "type": "x"},
    "hub:broadcast": {"type": "x", "data": 1},
    "hub:subscribe": {"topic": "t"},
    "hub:discover": {},
    "hub:register": {"actorAddress": "browser/ann", "capabilities": ["x"]},
}


@pytest.mark.parametrize(
    ("capabilities", "allowed"),
    [
        (["send"], {"hub:publish", "hub:broadcast"}),
        (["receive"], {"hub:subscribe", "hub:register"}),
        (["discover"], {"hub:discover"}),
        (["send", "publish"], {"hub:publish"}),
        (["send", "broadcast"], {"hub:broadcast"}),
        (["receive", "subscribe"], {"hub:subscribe", "hub:register"}),
        (["publish"], {"hub:publish"}),
        ([], set()),
        (None, set(ALLOWED)),
    ],
)
def test_a_token_allows_what_it_says(
    room: Room, capabilities: list[str] | None, allowed: set[str]
) -> None:
    claims = {} if capabilities is None else {"capabilities": capabilities}
    assert log_in(room, "ann", **claims)["type"] == "hub:connected"
    for kind, payload in ALLOWED.items():
        answer = room.ask("ann", message_b(kind, payload)) if kind != "hub:broadcast" else None
        if answer is None:
            room.say("ann", message_b(kind, payload))
            answer = room.hears("ann")[-1]
        refused = answer["type"] == "hub:error"
        assert refused is (kind not in allowed), (kind, answer)
    assert room.ask("ann", message_b("hub:heartbeat"))["type"] == "hub:heartbeat_ack"


def test_a_token_that_names_an_actor_registers_no_other(room: Room) -> None:
    log_in(room, "ann", sub="browser/ann")
    payload = {"actorAddress": "browser/bob", "capabilities": ["x"]}
    assert code(room.ask("ann", message_b("hub:register", payload))) == "unauthorized"
    payload["actorAddress"] = "@(browser/ann)"
    assert room.ask("ann", message_b("hub:register", payload))["type"] == "hub:registered"


def test_a_token_that_expires_allows_nothing_any_more(room: Room) -> None:
    log_in(room, "ann", life=10)
    room.tick(11)
    assert code(room.ask("ann", message_b("hub:heartbeat"))) == "unauthorized"
    assert log_in(room, "ann")["type"] == "hub:connected"
    assert room.ask("ann", message_b("hub:heartbeat"))["type"] == "hub:heartbeat_ack"


def test_a_token_can_be_exchanged_for_one_that_holds_longer(room: Room) -> None:
    old = token(room.now, life=100, sub="browser/ann")
    room.ask("ann", message_b("hub:connect", {"version": "1.0", "jwt": old}))
    room.tick(50)
    answer = room.ask("ann", message_b("hub:refresh_token", {"token": old}))
    assert answer["type"] == "hub:token_refreshed"
    assert answer["payload"]["expiresAt"] == int((room.now + 100) * 1000)
    new = answer["payload"]["token"]
    claims = jwt.decode(new, SECRET, ["HS256"], options={"verify_exp": False, "verify_iat": False})
    assert claims["sub"] == "browser/ann"
    room.tick(60)  # the old one is over
    assert room.ask("ann", message_b("hub:heartbeat"))["type"] == "hub:heartbeat_ack"
    for bad in (None, "", "x", old + "x"):
        answer = room.ask("ann", message_b("hub:refresh_token", {"token": bad}))
        assert code(answer) == "invalid_token"


def test_without_tokens_there_is_nothing_to_exchange() -> None:
    room = Room()
    room.join("ann")
    answer = room.ask("ann", message_b("hub:refresh_token", {"token": "x"}))
    assert code(answer) == "invalid_token"


def test_envelopes_need_a_token_too(room: Room) -> None:
    room.say_raw("lin", b"sub a\n")
    subscribe = {"type": "__subscribe", "id": "", "payload": {"topic": "a:1"}}
    room.say("ann", subscribe, {"type": "a", "id": "1", "payload": 1})
    assert room.hears("lin") == []
    assert room.hub.ignored == 2
    log_in(room, "ann", capabilities=["publish"])
    room.say("ann", subscribe, {"type": "a", "id": "1", "payload": 1})
    assert len(room.hears("lin")) == 1
    assert room.hub.ignored == 3
    assert room.broker.router.subscriptions == 1


def test_synaps_commands_need_a_token_too(room: Room) -> None:
    publish = {"command": "pubsub.publish", "payload": {"topic": "t", "payload": 1}}
    answer = room.ask("ann", publish)
    assert answer["success"] is False
    assert answer["error"].startswith("Unauthorized")
    log_in(room, "ann", capabilities=["send"])
    assert room.ask("ann", publish)["success"] is True
    subscribe = {"command": "pubsub.subscribe", "payload": {"topics": ["t"]}}
    assert room.ask("ann", subscribe)["success"] is False


def test_no_token_reaches_another_client_or_the_log(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    daemon = start("--hub-auth", str(path), "--log-level", "debug")
    good = token(time.time(), sub="browser/ann")
    bad = good[:-4] + "AAAA"

    def post(**headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
        body = json.dumps({"command": "pubsub.topics", "payload": {}})
        connection.request("POST", "/api/v1/command", body, headers)
        answer = connection.getresponse()
        told = answer.status, answer.read()
        connection.close()
        return told

    basic = base64.b64encode(f"user:{good}".encode()).decode()
    assert post() == (401, b"")
    assert post(Authorization=f"Bearer {bad}") == (401, b"")
    assert post(Authorization=f"Bearer {good}")[0] == 200
    assert post(Authorization=f"Basic {basic}")[0] == 200
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()

    with pytest.raises(InvalidStatus) as caught:
        Socket(daemon, additional_headers={"Authorization": f"Bearer {bad}"})
    assert caught.value.response.status_code == 401
    with pytest.raises(InvalidStatus):
        Socket(daemon, "/pubsub/ws?topics=a")
    for path_ in ("/ws", f"/ws?access_token={good}"):
        headers = {} if "?" in path_ else {"Authorization": f"Bearer {good}"}
        web = Socket(daemon, path_, additional_headers=headers)
        assert web.ask(message_b("hub:subscribe", {"topic": "t"}))["type"] == "hub:subscribed"
        web.close()
    web = Socket(daemon)
    told = web.ask(message_b("hub:connect", {"version": "1.0", "jwt": bad}))
    assert bad not in json.dumps(told)
    with pytest.raises(ConnectionClosed):
        web.hear()
    web.close()
    log = daemon.log
    for secret in (good, bad, good.split(".")[2], SECRET.decode()):
        assert secret not in log
