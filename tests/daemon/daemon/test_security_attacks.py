"""What an attacker would try, beyond what the tests of each part hold already: see SECURITY.md."""

from __future__ import annotations

import hmac
import json
import os
import random
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from pubsubd.access import users as stretching
from pubsubd.access.identity import Identity
from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users, check_secret, check_user, hash_password, parse_users
from pubsubd.broker.broker import Broker
from pubsubd.daemon import reloading
from pubsubd.daemon.reload import Reloader
from pubsubd.daemon.status import Status
from pubsubd.daemon.systemd import Notifier
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.hello import check_proof, parse_hello
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.protocol.wire import Decoder, frame
from pubsubd.settings.config import Config, ListenerConfig
from pubsubd.settings.load import load
from pubsubd.transport.listen import BoundSocket
from pubsubd.transport.server import Server
from pubsubd.transport.tls import client_context, server_context
from tests.certificates import Certificates
from tests.daemons import Daemon
from tests.hubs import UPGRADE, message_a, message_b
from tests.meshes import hello
from tests.rights import PASSWORD, rules_in, say
from tests.unit.broker.test_logins import AUTH, Hall
from tests.unit.hub.test_hub_access import Web, basic, code, make_room, request

Start = Callable[..., Daemon]


# A client that says that it is a daemon


class Node:
    """A broker that takes part in the mesh "m", and one client of it."""

    def __init__(self, secret: bytes | None, *rules: AclRule, identity: str | None = None) -> None:
        self.broker = Broker(Limits(), clock=lambda: 1_000.0)
        config = MeshConfig("b", "m", secret=secret)
        rng = random.Random(1)
        Mesh(self.broker, config, clock=lambda: 1_000.0, wall=lambda: 1_000.0, rng=rng)
        rules_in(self.broker, *rules)
        self._heard = b""
        self.client = self.broker.join("192.0.2.1:1", self._take)
        if identity is not None:
            self.broker.login(self.client, identity)

    def _take(self, data: Any) -> None:
        self._heard += data

    def ask(self, data: bytes) -> list[tuple[bytes, bytes]]:
        say(self.broker, self.client, data)
        heard, self._heard = self._heard, b""
        return Decoder(1 << 20).feed(heard)


HELLO = frame(b"//pubsubd/hello", hello("a"))
PROOF = frame(b"//pubsubd/hello", b"proof -")


def link_up(node: Node) -> bool:
    """Say hello as a daemon does, and return whether that has made a link."""
    node.ask(HELLO)
    return (b"//pubsubd/hello", b"welcome") in node.ask(PROOF)


@pytest.mark.parametrize("identity", [None, "ann"])
def test_without_a_secret_nobody_of_limited_rights_becomes_a_daemon(identity: str | None) -> None:
    rule = AclRule(("*", "ann"), ("chat/",), ("chat/",))
    node = Node(None, rule, identity=identity)
    ((name, data),) = node.ask(HELLO)
    assert name == b"//pubsubd/error"
    assert data.startswith(b"not-allowed ")
    assert not link_up(node)
    assert not node.client.trusted
    assert node.client.permission is not None


def test_without_a_secret_the_right_to_say_hello_makes_a_daemon() -> None:
    rule = AclRule(("bob",), ("//pubsubd/hello",), ())
    assert link_up(Node(None, rule, identity="bob"))
    assert link_up(Node(None))  # without rules everybody has it


def test_with_a_secret_the_proof_is_what_counts() -> None:
    rule = AclRule(("bob",), ("#", "//pubsubd/"), ("#",))
    node = Node(b"0123456789", rule, identity="bob")
    assert not link_up(node)


# Tokens that are limited


class Narrow:
    """Takes any token, and lets it do what it says."""

    def verify(self, token: str, now: float) -> Identity:
        return Identity("ann", frozenset(token.split(",")), now + 100)

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("capabilities", "let_in"),
    [
        ("receive", False),
        ("send", False),
        ("discover", False),
        ("send,receive", True),
        ("publish,subscribe", True),
        ("send,receive,publish", False),  # which narrows it to publishing
    ],
)
def test_a_token_of_limited_capabilities_opens_no_line_that_knows_none(
    capabilities: str, let_in: bool
) -> None:
    hall = Hall()
    hall.broker.access.replace(users=Users(), acl=Acl(), authority=Narrow())
    peer = hall.join("ann")
    heard = hall.log_in("ann", capabilities)
    assert heard == [(AUTH, "ok ann") if let_in else ("error", "login-failed")]
    assert (peer.identity == "ann") is let_in


# What belongs to somebody else


def test_nobody_touches_the_subscriber_of_another_user() -> None:
    room = make_room(login=False)
    web = Web(room)
    ann = basic("ann", PASSWORD)
    mine = {"topics": ["a"], "subscriber_id": "mine"}
    assert web.ask("POST", "/pubsub/subscribe", mine, ann)[0] == 200
    for authorization in (None, basic("tom", PASSWORD)):
        status = web.ask("POST", "/pubsub/unsubscribe", {"subscriber_id": "mine"}, authorization)[0]
        assert status in (401, 403)
    more = {"topics": ["open"], "subscriber_id": "mine"}
    assert web.ask("POST", "/pubsub/subscribe", more)[0] == 403
    take = {"command": "pubsub.subscribe", "payload": more}
    assert "another user" in room.ask("lee", take)["error"]
    assert room.hub.synap.subscribers["mine"].topics == {"a": b"a"}
    # ann herself can, on a connection, and then over HTTP.
    room.broker.login(room.connections["kim"].peer, "ann")
    assert room.ask("kim", take)["success"]
    assert web.ask("POST", "/pubsub/unsubscribe", {"subscriber_id": "mine"})[0] == 403
    assert web.ask("POST", "/pubsub/unsubscribe", {"subscriber_id": "mine"}, ann)[1] == {
        "unsubscribed": 2
    }


def test_nobody_takes_the_address_of_another_user() -> None:
    room = make_room(login=False)
    room.broker.login(room.connections["kim"].peer, "ann")
    me = room.register_a("kim")
    room.connect_a("lee")
    steal = message_a("hub:register", {"actorAddress": me, "capabilities": ["x"]}, me=me)
    answer = room.ask("lee", steal)
    assert code(answer) == "unauthorized"
    assert "kim" not in room.ended
    # The same user may, as one that connects again.
    room.broker.login(room.connections["lee"].peer, "ann")
    assert room.ask("lee", steal)["type"] == "hub:registered"
    assert room.ended["kim"][0] == "duplicate-connection"


def test_a_message_over_http_is_not_from_the_hub() -> None:
    room = make_room(login=False)
    assert room.ask("lee", message_b("hub:subscribe", {"topic": "open"}))["type"] == (
        "hub:subscribed"
    )
    web = Web(room)
    lie = {"payload": {"type": "hub:error", "from": "cloudflare/signal-hub"}}
    web.say(request("POST", "/pubsub/open/publish", lie) * 2)
    told = room.hears("lee")
    assert [one["from"] for one in told] == ["http", "http"]
    assert {one["type"] for one in told} == {"pubsub:message"}


# Requests of browsers, and of nobody in particular


def test_a_request_that_trickles_in_is_not_waited_for_without_a_login() -> None:
    room = make_room(login=True)
    web = Web(room, login=True)
    web.say(
        b"POST /pubsub/open/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"
    )
    limit = room.broker.listener.limits.command_timeout
    for _ in range(3):
        assert web.connection.overdue(room.now, room.now) is None
        room.now += limit / 3
        web.say(b" ")
    room.now += 1
    found = web.connection.overdue(room.now, room.now)
    assert found is not None
    assert found.code == "command-timeout"
    # One request after the other is not one request.
    web = Web(room, login=True)
    for _ in range(10):
        web.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET")
        room.now += limit / 3
        assert web.connection.overdue(room.now, room.now) is None
        web.say(b" /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize("path", ["/", "/healthz", "/pubsub/stats", "/nothing", "/ws"])
def test_no_answer_is_guessed_at_or_kept_by_a_browser(path: str) -> None:
    web = Web(make_room(login=False))
    web.say(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = web.hears().partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    assert b"x-content-type-options: nosniff" in head
    assert b"cache-control: no-store" in head
    assert b"cross-origin-resource-policy: same-origin" in head
    assert not any(line.startswith((b"set-cookie", b"server:", b"location")) for line in head)


def test_the_page_can_be_neither_framed_nor_rebased_nor_made_to_tell_where_it_is() -> None:
    web = Web(make_room(login=True), login=True)
    web.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = web.hears().partition(b"\r\n\r\n")[0].lower()
    for part in (b"frame-ancestors 'none'", b"base-uri 'none'", b"form-action 'none'"):
        assert part in head
    assert b"default-src 'none'" in head  # object-src is part of it
    assert b"script-src 'self';" in head
    assert b"unsafe" not in head
    assert b"\r\nreferrer-policy: no-referrer" in head
    assert b"\r\ncross-origin-opener-policy: same-origin" in head


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PUT", "DELETE", "PATCH"])
def test_methods_that_nothing_needs_do_nothing(method: str) -> None:
    web = Web(make_room(login=False))
    for path in ("/", "/healthz", "/metrics", "/pubsub/topics", "/pubsub/open/publish"):
        web.say(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        heard = web.hears()
        assert heard.split(b" ")[1] in (b"404", b"405")
        assert b"localhost" not in heard


def test_everything_that_may_be_agreed_on_is_authenticated_and_keeps_old_secrets(
    certificates: Certificates,
) -> None:
    pair = str(certificates.server_certificate), str(certificates.server_key)
    for context in (server_context(*pair, None), client_context(str(certificates.ca))):
        found = context.get_ciphers()
        assert found
        assert all(one["aead"] and one["kea"] in ("kx-ecdhe", "kx-any") for one in found)
        assert not any("NULL" in one["name"] for one in found)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION
    assert client_context(str(certificates.ca)).check_hostname


def test_a_password_may_be_long_and_counts_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretching, "LOG2_N", 4)  # as little as can be
    for size in (64, 1_024):
        secret = "x" * (size - 1) + "y"
        check_secret(secret)
        users = parse_users(f"ann:{hash_password(secret)}")
        assert users.verify("ann", secret)
        for other in (secret[:-1], secret.upper(), secret + "y", f" {secret}"):
            assert users.verify("ann", other) is None


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append(other)
        return bool(one == other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert parse_users(f"ann:{hash_password(PASSWORD)}").verify("ann", "wrong one") is None
    assert len(compared) == 1
    mine = parse_hello(hello("a"), 6)[0]
    with pytest.raises(ProtocolError):
        check_proof("0" * 64, b"0123456789", "dialler", mine, mine)
    assert len(compared) == 2


def test_nobody_comes_in_by_a_name_that_rules_have_for_everybody() -> None:
    acl = Acl([AclRule(("*",), ("open",), ("open",)), AclRule(("ann",), ("#",), ("#",))])
    assert acl.permission("*") is acl.permission(None)
    with pytest.raises(ValueError, match="cannot be called"):
        check_user("*")


def test_two_headers_that_say_who_it_is_say_nothing() -> None:
    web = Web(make_room(login=True), login=True)
    one = f"Authorization: {basic('ann', PASSWORD)}\r\n"
    web.say(f"GET /pubsub/topics HTTP/1.1\r\nHost: localhost\r\n{one}{one}\r\n".encode())
    assert web.hears().startswith(b"HTTP/1.1 401 ")


def test_what_looks_like_a_format_is_text() -> None:
    room = make_room(login=False)
    rules_in(room.broker)
    room.say("lee", message_b("hub:subscribe", {"topic": "a%s%b%d"}, me="x/%n"))
    sent = {"topic": "a%s%b%d", "type": "%s", "data": "%%"}
    room.say("kim", message_b("hub:publish", sent, me="%s/%d"))
    assert room.hears("kim")[-1]["payload"]["topic"] == "a%s%b%d"
    told = room.hears("lee")[-1]
    assert (told["type"], told["payload"]) == ("%s", "%%")


# Files


def test_a_link_in_place_of_the_ports_file_is_replaced_and_not_followed(
    tmp_path: Path, start: Start
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    precious.chmod(0o600)
    directory = tmp_path / "daemon0"
    directory.mkdir()
    (directory / "ports.json").symlink_to(precious)
    daemon = start(wait=False)
    daemon.wait_log("event=ready")
    assert precious.read_text() == "precious"
    assert precious.stat().st_mode & 0o777 == 0o600
    assert not daemon.ports_file.is_symlink()
    daemon.wait_ready()


def test_a_link_in_place_of_the_unix_socket_is_not_followed(tmp_path: Path, start: Start) -> None:
    elsewhere = tmp_path / "elsewhere"
    path = tmp_path / "socket"
    path.symlink_to(elsewhere)
    daemon = start("--unix", str(path), wait=False)
    assert daemon.wait() == 1
    assert "cannot listen on" in daemon.log
    daemon.log_file.write_text("")  # which is no event
    assert not os.path.lexists(elsewhere)
    assert path.is_symlink()


@pytest.mark.parametrize(
    "text",
    [
        f"port = {'9' * 5_000}\n",
        f'[[listener]]\nprotocol = "line"\naddress = "127.0.0.1:{"9" * 5_000}"\n',
    ],
)
def test_a_number_beyond_all_bounds_is_an_error_like_others(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pubsubd.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load({}, file)
    assert "9" * 100 not in str(raised.value)


async def test_a_reload_that_fails_in_a_way_nobody_thought_of_is_counted() -> None:
    def broken() -> Config:
        raise ZeroDivisionError("nobody thought of it")

    async def one_signal() -> AsyncIterator[int]:
        yield signal.SIGHUP
        nursery.cancel_scope.cancel()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        reloader = Reloader(server := Server(Limits(), nursery))
        read = partial(reloading.read_again, broken, ())
        signals = one_signal()
        # It asks for the second signal once it is done with the first.
        notifier = Notifier()
        status = Status(reloader, notifier)
        await reloading.reload_on_signal(signals, read, reloader, notifier, status)
    assert reloader.failed
    assert sum(server.broker.faults.counts.values()) == 1


def test_a_reload_opens_no_inherited_socket_to_strangers() -> None:
    safe = ListenerConfig("line", "line", (("127.0.0.1", 0),))
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))  # and nobody listens there
        bound = [BoundSocket(safe, sock, inherited=True)]
        with pytest.raises(ConfigError, match=r"0\.0\.0\.0 is not loopback"):
            reloading.read_again(lambda: Config(listeners=(safe,)), bound)
        reloading.read_again(lambda: Config(listeners=(safe,), insecure=True), bound)


# Discovery


@pytest.mark.parametrize("ruled", ["acl", "users"])
def test_clients_choose_no_daemons_that_may_do_more_than_they(tmp_path: Path, ruled: str) -> None:
    people = tmp_path / "users"
    people.write_text("")
    file = tmp_path / "pubsubd.toml"
    text = 'discover = "any"\nmesh = "m"\n'
    rules = {
        "acl": '[[acl]]\nwho = ["*"]\npublish = ["#"]\n',
        "users": f"users_file = {json.dumps(str(people))}\n",
    }
    file.write_text(rules[ruled] + text if ruled == "users" else text + rules[ruled])
    with pytest.raises(ConfigError, match="mesh_secret_file"):
        load({}, file)
    file.write_text('mesh_secret_file = "secret"\n' + file.read_text())
    load({}, file)
    file.write_text(text)
    load({}, file)


def test_an_upgrade_of_another_origin_gets_nothing_even_with_a_good_login() -> None:
    room = make_room(login=True)
    web = Web(room, login=True)
    evil = f"Origin: https://evil.example\r\nAuthorization: {basic('ann', PASSWORD)}\r\n".encode()
    web.say(UPGRADE.replace(b"\r\n", b"\r\n" + evil, 1))
    assert web.hears().startswith(b"HTTP/1.1 403 ")
    assert web.connection.peer.identity is None
