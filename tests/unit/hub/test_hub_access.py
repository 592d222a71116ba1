"""Logins and rights on the hub port, without sockets."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users, make_token
from pubsubd.broker.listener_state import ListenerState
from pubsubd.hub.protocol import HubProtocol
from tests.hubs import UPGRADE, Room, connect_a, message_a, message_b
from tests.rights import PASSWORD, rules_in, work
from tests.unit.broker.test_logins import Authority

TOKEN, TOKEN_LINE = make_token()
RULES = (
    AclRule(("ann",), ("a", "//pubsubd/send"), ("a",)),
    AclRule(("tom",), ("#", "//pubsubd/broadcast"), ("#",)),
    AclRule(("*",), ("open",), ("open",)),
)


def make_room(*, login: bool) -> Room:
    room = Room(any_topic=True, rate=0)
    room.hub.listener.login = login
    room.broker.wall = room.hub.wall
    rules_in(room.broker, *RULES, ann=PASSWORD, tom=TOKEN_LINE)
    room.join("kim", "lee")
    return room


@pytest.fixture
def room() -> Room:
    """Return a room where one has to log in."""
    return make_room(login=True)


@pytest.fixture
def ruled() -> Room:
    """Return a room where one need not, with kim as ann and lee as nobody, and a line as tom."""
    room = make_room(login=False)
    room.broker.login(room.connections["kim"].peer, "ann")
    room.join_line("tom")
    room.broker.login(room.lines["tom"], "tom")
    return room


def code(answer: Any) -> str | None:
    found = answer["payload"]["code"] if answer["type"] == "hub:error" else None
    assert found is None or isinstance(found, str)
    return found


class Web:
    """A connection that speaks HTTP, as the daemon's side of it."""

    def __init__(self, room: Room, **listener: Any) -> None:
        self.room = room
        self._heard = b""
        self.connection = HubProtocol(
            room.hub,
            "192.0.2.1:5",
            self._take,
            lambda _code, _text: None,
            listener=ListenerState("hub", room.broker.listener.limits, room.hub.limits, **listener),
        )

    def _take(self, data: Any) -> None:
        self._heard += data

    def say(self, data: bytes) -> None:
        while self.connection.receive(data):
            data = b""
            work(self.connection.peer)

    def hears(self) -> bytes:
        heard, self._heard = self._heard, b""
        return heard

    def ask(
        self, method: str, path: str, body: Any = None, authorization: str | None = None
    ) -> tuple[int, Any]:
        self.say(request(method, path, body, authorization))
        head, _, text = self.hears().partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(text) if text else None


def request(method: str, path: str, body: Any = None, authorization: str | None = None) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n"
    if authorization is not None:
        head += f"Authorization: {authorization}\r\n"
    return head.encode() + b"\r\n" + text


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


# Logging in


@pytest.mark.parametrize("dialect", ["A", "B"])
def test_a_token_of_the_users_file_lets_in(room: Room, dialect: str) -> None:
    if dialect == "A":
        message = message_a("hub:connect", metadata=connect_a(authToken=TOKEN))
    else:
        message = message_b("hub:connect", {"version": "1.0", "jwt": TOKEN})
    assert room.ask("kim", message)["type"] == "hub:connected"
    assert room.connections["kim"].peer.identity == "tom"
    assert room.connections["kim"].identity is None
    register = message_b("hub:register", {"actorAddress": "browser/any", "capabilities": ["x"]})
    if dialect == "B":  # such a token names no address
        assert room.ask("kim", register)["type"] == "hub:registered"
    room.say("kim", {"command": "pubsub.publish", "payload": {"topic": "x", "payload": 1}})
    assert room.hears("kim")[-1]["success"]


def test_a_signed_token_and_the_connection_agree_on_who_it_is(room: Room) -> None:
    room.broker.access.replace(users=Users(), acl=Acl(RULES), authority=Authority())
    token = f"{int(room.now) + 100}/@(browser/ann)"
    assert room.ask("kim", message_b("hub:connect", {"version": "1.0", "jwt": token}))["type"] == (
        "hub:connected"
    )
    connection = room.connections["kim"]
    assert connection.peer.identity == "browser/ann"
    assert connection.identity is not None
    assert connection.identity.actor == "@(browser/ann)"


@pytest.mark.parametrize(
    "message",
    [
        message_b("hub:heartbeat"),
        message_b("hub:subscribe", {"topic": "open"}),
        message_b("hub:publish", {"topic": "open", "type": "x"}),
    ],
)
def test_without_a_login_nothing_is_carried_out(room: Room, message: Any) -> None:
    assert code(room.ask("kim", message)) == "unauthorized"
    answer = room.ask("kim", {"command": "pubsub.topics"})
    assert answer["error"] == "Unauthorized: a token is required"
    room.say("kim", {"type": "__subscribe", "id": "", "payload": {"topic": "open:1"}})
    assert room.broker.router.subscriptions == 0


def test_a_user_and_a_password_let_in_and_the_third_failure_is_the_last(room: Room) -> None:
    def connect(password: str) -> Any:
        return message_b("hub:connect", {"version": "1.0", "user": "ann", "password": password})

    assert room.ask("kim", connect(PASSWORD))["type"] == "hub:connected"
    assert room.connections["kim"].peer.identity == "ann"
    for _ in range(2):
        assert code(room.ask("lee", connect("wrong"))) == "unauthorized"
        room.tick(60)
    room.say("lee", connect("wrong"))
    assert code(room.hears("lee")[0]) == "unauthorized"
    assert room.ended["lee"][0] == "unauthorized"


def test_what_follows_a_password_waits_until_it_is_checked(room: Room) -> None:
    login = message_b("hub:connect", {"version": "1.0", "user": "ann", "password": PASSWORD})
    room.say("kim", login, message_b("hub:subscribe", {"topic": "a"}))
    assert [one["type"] for one in room.hears("kim")] == ["hub:connected", "hub:subscribed"]


def test_a_wrong_token_does_not_let_in(room: Room) -> None:
    message = message_a("hub:connect", metadata=connect_a(authToken="x"))
    for _ in range(2):
        assert code(room.ask("kim", message)) == "unauthorized"
    room.say("kim", message)
    assert code(room.hears("kim")[0]) == "unauthorized"
    assert room.ended["kim"][0] == "unauthorized"  # the third is the last
    assert room.broker.counters.errors["login-failed"] == 3
    assert room.connections.keys() == {"lee"}


def test_who_does_not_log_in_is_ended(room: Room) -> None:
    connection = room.connections["kim"]
    room.ask("kim", {"type": "ping"})
    assert connection.overdue(room.now, room.now) is None
    room.ask("lee", message_b("hub:connect", {"version": "1.0", "jwt": TOKEN}))
    room.connections["lee"].overdue(room.now, room.now)
    room.now += 11
    found = connection.overdue(room.now, room.now)
    assert found is not None
    assert found.code == "login-timeout"
    assert json.loads(connection.close_reason(found))["payload"]["code"] == "timeout"
    assert room.connections["lee"].overdue(room.now, room.now) is None


def test_a_login_that_has_expired_has_to_be_renewed(room: Room) -> None:
    room.broker.access.replace(users=Users(), acl=Acl(), authority=Authority())
    token = f"{int(room.now) + 100}/ann"
    room.ask("kim", message_b("hub:connect", {"version": "1.0", "jwt": token}))
    connection = room.connections["kim"]
    room.now += 101
    assert connection.overdue(room.now, room.now) is None
    room.now += 11
    found = connection.overdue(room.now, room.now)
    assert found is not None
    assert found.code == "login-timeout"


def test_rights_end_with_the_token_where_no_login_is_asked_for() -> None:
    room = make_room(login=False)
    rules = [AclRule(("ann",), ("#",), ("#",))]
    room.broker.access.replace(users=Users(), acl=Acl(rules), authority=Authority())
    token = f"{int(room.now) + 100}/ann"
    room.ask("kim", message_b("hub:connect", {"version": "1.0", "jwt": token}))
    assert room.ask("kim", message_b("hub:subscribe", {"topic": "#"}))["type"] == "hub:subscribed"
    room.join_line("tom")
    room.broker.login(room.lines["tom"], "ann")
    room.say_raw("tom", b"pub a 1 x\n")
    assert len(room.hears("kim")) == 1
    room.now += 101
    assert room.connections["kim"].overdue(room.now, room.now) is None
    room.say_raw("tom", b"pub a 1 x\n")
    assert room.hears("kim") == []


def test_who_has_come_in_by_what_is_no_longer_there_is_ended(room: Room) -> None:
    room.ask("kim", message_b("hub:connect", {"version": "1.0", "jwt": TOKEN}))
    rules_in(room.broker, ann=PASSWORD)
    assert room.ended == {"kim": ("login-revoked", "what it had logged in with holds no longer")}
    assert code(room.hears("kim")[-1]) == "unauthorized"


# HTTP

STATS = ("GET", "/pubsub/stats", None)


@pytest.mark.parametrize(
    "authorization",
    [
        f"Bearer {TOKEN}",
        basic("ann", PASSWORD),
        basic("tom", TOKEN),
    ],
)
def test_a_request_may_say_who_sends_it(room: Room, authorization: str) -> None:
    web = Web(room, login=True)
    for _ in range(3):
        assert web.ask(*STATS, authorization)[0] == 200
    assert web.ask(*STATS) == (401, None)  # each for itself
    assert web.connection.peer.identity is None
    assert web.ask(*STATS, authorization)[0] == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Bearer x",
        basic("ann", "wrong one"),
        basic("zoe", PASSWORD),
        basic("ann", TOKEN),
        "Digest x",
    ],
)
def test_a_request_that_does_not_say_it_is_refused(room: Room, authorization: str | None) -> None:
    web = Web(room, login=True)
    web.say(request(*STATS, authorization))
    heard = web.hears().lower()
    assert heard.startswith(b"http/1.1 401 ")
    assert b"www-authenticate: bearer\r\n" in heard
    assert b'www-authenticate: basic realm="pubsubd"' in heard
    assert web.ask("GET", "/healthz")[0] == 200


def test_requests_are_answered_in_order_while_passwords_are_checked(room: Room) -> None:
    web = Web(room, login=True)
    good, bad = basic("ann", PASSWORD), basic("ann", "wrong one")
    speech = b"".join(
        request("GET", "/pubsub/topics", None, one) for one in (bad, good, None, bad, good)
    )
    assert web.connection.receive(speech)
    assert web.hears() == b""
    assert web.connection.peer.job is not None
    web.say(b"")
    statuses = [int(part[:3]) for part in web.hears().split(b"HTTP/1.1 ")[1:]]
    assert statuses == [401, 200, 401, 401, 200]


def test_no_timeout_runs_while_the_password_of_a_request_is_checked(room: Room) -> None:
    web = Web(room, login=True)
    bad = request("GET", "/pubsub/topics", None, basic("ann", "wrong one"))
    begun = room.now
    web.connection.receive(bad + bad[:20])  # the second one comes only in part
    room.now += 100
    assert web.connection.overdue(room.now, begun) is None
    work(web.connection.peer)
    web.connection.rest(begun, room.now)
    web.connection.receive(b"")
    assert web.connection.overdue(room.now, room.now) is None
    room.now += 20
    assert web.connection.overdue(room.now, room.now) is None
    room.now += 11
    found = web.connection.overdue(room.now, room.now)
    assert found is not None
    assert found.code == "command-timeout"


def test_after_too_many_failures_a_request_is_told_to_wait(room: Room) -> None:
    web = Web(room, login=True)
    bad = basic("ann", "wrong one")
    statuses = [web.ask(*STATS, bad)[0] for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert web.ask(*STATS, basic("ann", PASSWORD))[0] == 429
    assert web.ask(*STATS, f"Bearer {TOKEN}")[0] == 200


def test_where_no_login_is_asked_for_one_may_log_in_all_the_same() -> None:
    room = make_room(login=False)
    web = Web(room)
    publish = ("POST", "/pubsub/a/publish", {"payload": 1})
    assert web.ask(*publish)[0] == 403
    assert web.ask(*publish, basic("ann", PASSWORD))[0] == 200
    assert web.ask(*publish)[0] == 403
    assert web.ask(*publish, "Bearer x") == (401, None)


def test_without_anything_to_check_it_with_what_a_request_says_is_ignored() -> None:
    web = Web(Room())
    assert web.ask(*STATS, "Bearer x")[0] == 200
    web = Web(Room(), login=True)
    assert web.ask(*STATS, "Bearer x") == (401, None)


@pytest.mark.parametrize("how", ["header", "query", "basic"])
def test_an_upgrade_may_say_who_asks_for_it(room: Room, how: str) -> None:
    web = Web(room, login=True)
    path = b"GET /ws"
    header = b""
    if how == "header":
        header = f"Authorization: Bearer {TOKEN}\r\n".encode()
    elif how == "query":
        path += b"?access_token=" + TOKEN.encode()
    else:
        header = f"Authorization: {basic('ann', PASSWORD)}\r\n".encode()
    web.say(UPGRADE.replace(b"GET /ws", path).replace(b"\r\n", b"\r\n" + header, 1))
    assert web.hears().startswith(b"HTTP/1.1 101 ")
    assert web.connection.peer.identity == ("ann" if how == "basic" else "tom")
    assert web.connection.may("publish")


def test_an_upgrade_without_a_login_may_log_in_later_and_a_wrong_one_is_refused(
    room: Room,
) -> None:
    web = Web(room, login=True)
    web.say(UPGRADE)
    assert web.hears().startswith(b"HTTP/1.1 101 ")
    assert not web.connection.may("publish")
    web = Web(room, login=True)
    web.say(UPGRADE.replace(b"\r\n", b"\r\nAuthorization: Bearer x\r\n", 1))
    assert web.hears().startswith(b"HTTP/1.1 401 ")


# Rights


def test_what_is_not_allowed_is_refused_in_every_dialect(ruled: Room) -> None:
    ruled.say_raw("tom", b"sub b\nsub a\n")
    answer = ruled.ask("kim", message_b("hub:publish", {"topic": "b", "type": "x"}))
    assert code(answer) == "unauthorized"
    assert answer["payload"]["message"] == "no right to publish topic 'b'"
    answer = ruled.ask("kim", {"command": "pubsub.publish", "payload": {"topic": "b", "data": 1}})
    assert answer["error"] == "Unauthorized: no right to publish topic 'b'"
    ruled.say("kim", {"type": "b", "id": "1", "payload": 1})
    assert ruled.hub.ignored == 1
    assert ruled.hears("tom") == []
    assert ruled.broker.counters.errors["not-allowed"] == 3
    ruled.say("kim", message_b("hub:publish", {"topic": "a", "type": "x"}))
    ruled.say("kim", {"command": "pubsub.publish", "payload": {"topic": "a", "data": 1}})
    ruled.say("kim", {"type": "a", "id": "1", "payload": 1})
    assert [name for name, _ in ruled.hears("tom")] == [b"a", b"a", b"a:1"]


def test_a_name_that_one_may_not_receive_cannot_be_subscribed(ruled: Room) -> None:
    assert code(ruled.ask("kim", message_b("hub:subscribe", {"topic": "b"}))) == "unauthorized"
    subscribe = {"command": "pubsub.subscribe", "payload": {"topics": ["a", "b"]}}
    answer = ruled.ask("kim", subscribe)
    assert answer["error"] == "Unauthorized: no right to receive topic 'b'"
    ruled.say("kim", {"type": "__subscribe", "id": "", "payload": {"topic": "b:1"}})
    assert ruled.hub.ignored == 1
    assert ruled.broker.router.subscriptions == 0


def test_a_wildcard_brings_what_one_may_receive(ruled: Room) -> None:
    assert ruled.ask("kim", message_b("hub:subscribe", {"topic": "#"}))["type"] == "hub:subscribed"
    subscribe = {"command": "pubsub.subscribe", "payload": {"topics": ["*"]}}
    assert ruled.ask("lee", subscribe)["success"]
    ruled.say_raw("tom", b"pub a1 1 0\npub b1 1 1\npub open 1 2\npub //a 1 3\n" * 2)
    assert [one["payload"]["data"] for one in ruled.hears("kim")] == ["0", "2"] * 2
    assert [one["topic"] for one in ruled.hears("lee")] == ["open"] * 2


def test_rights_that_change_hold_for_what_is_known_of_publications(ruled: Room) -> None:
    publish = message_b("hub:publish", {"topic": "a", "type": "x"})
    assert ruled.ask("kim", publish)["type"] == "hub:delivery_ack"
    rules_in(ruled.broker, AclRule(("ann",), ("b",), ("b",)))
    assert code(ruled.ask("kim", publish)) == "unauthorized"


def test_topics_that_one_may_not_receive_are_not_listed(ruled: Room) -> None:
    ruled.connections["lee"].peer.identity = None
    for topic in ("a1", "open"):
        ruled.say("kim", message_b("hub:publish", {"topic": topic, "type": "x"}))
    ruled.hears("kim")
    listed = ruled.ask("lee", message_b("hub:list_topics", {}))["payload"]["topics"]
    assert [one["topic"] for one in listed] == ["open"]
    listed = ruled.ask("lee", {"command": "pubsub.topics"})["payload"]["topics"]
    assert listed == ["open"]
    top = ruled.ask("lee", {"command": "pubsub.stats"})["payload"]["top_topics"]
    assert [one["topic"] for one in top] == ["open"]
    info = {"command": "pubsub.info", "payload": {"topic": "a1"}}
    assert "not found" in ruled.ask("lee", info)["error"]
    assert ruled.ask("kim", info)["success"]
    message = message_b("hub:topic_info", {"topic": "a1"})
    assert "not found" in ruled.ask("lee", message)["payload"]["message"]
    assert ruled.ask("kim", message)["type"] == "hub:topic_info"
    assert len(ruled.ask("kim", {"command": "pubsub.topics"})["payload"]["topics"]) == 2


def test_over_http_the_same_rights_hold() -> None:
    room = make_room(login=False)
    web = Web(room)
    ann = basic("ann", PASSWORD)
    post = ("POST", "/api/v1/command")
    for topic, authorization, allowed in (
        ("open", None, True),
        ("a", None, False),
        ("a", ann, True),
        ("b", ann, False),
    ):
        publish = {"command": "pubsub.publish", "payload": {"topic": topic, "data": 1}}
        assert web.ask(*post, publish, authorization)[1]["success"] is allowed
        status = 200 if allowed else 403
        assert web.ask("POST", f"/pubsub/{topic}/publish", {"data": 1}, authorization)[0] == status
        subscribe = {"topics": [topic]}
        assert web.ask("POST", "/pubsub/subscribe", subscribe, authorization)[0] == status
        info = 200 if allowed else 404
        assert web.ask("GET", f"/pubsub/{topic}/info", None, authorization)[0] == info
    assert web.ask("GET", "/pubsub/topics")[1]["topics"] == ["open"]
    assert web.ask("GET", "/pubsub/topics", None, ann)[1]["topics"] == ["open", "a"]
    web.say(UPGRADE.replace(b"GET /ws", b"GET /pubsub/ws?topics=a"))
    assert web.hears().startswith(b"HTTP/1.1 403 ")


def test_a_subscriber_that_is_taken_over_brings_no_more_than_one_may_receive() -> None:
    room = make_room(login=False)
    web = Web(room)
    subscribe = {"topics": ["*", "open"], "subscriber_id": "one"}
    assert web.ask("POST", "/pubsub/subscribe", subscribe)[0] == 200
    attach = {
        "command": "pubsub.subscribe",
        "payload": {"topics": ["open"], "subscriber_id": "one"},
    }
    assert room.ask("lee", attach)["success"]
    room.join_line("tom")
    room.broker.login(room.lines["tom"], "tom")
    room.say_raw("tom", b"pub a 1 x\npub open 1 y\n")
    assert [one["topic"] for one in room.hears("lee")] == ["open"]


def test_sending_to_actors_needs_a_right_of_its_own(ruled: Room) -> None:
    ruled.broker.login(ruled.connections["lee"].peer, "tom")
    register = message_b("hub:register", {"actorAddress": "browser/lee", "capabilities": ["x"]})
    assert ruled.ask("lee", register)["type"] == "hub:registered"
    to_lee = {"to": "browser/lee", "type": "x", "data": 1}
    send = message_b("hub:send", to_lee)
    broadcast = message_b("hub:broadcast", {"type": "x", "data": 1})
    ruled.say("kim", send)
    assert [one["type"] for one in ruled.hears("lee")] == ["x"]
    assert code(ruled.ask("kim", broadcast)) == "unauthorized"
    assert code(ruled.ask("lee", send)) == "unauthorized"
    ruled.say("lee", broadcast)
    assert [one["type"] for one in ruled.hears("lee")] == ["x", "hub:broadcast_ack"]
    assert ruled.ask("kim", message_b("hub:discover", {}))["type"] == "hub:discovery_result"
