"""Logins and rights of real daemons: alone, while others are served, and in a mesh."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pwd
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from pubsubd.access.users import make_token
from tests.daemons import (
    DEADLINE,
    KIB,
    Background,
    Daemon,
    Line,
    error_codes,
    frame,
    frames,
    wait_until,
)
from tests.hubs import Lines, Socket, message_b
from tests.meshes import hello
from tests.rights import PASSWORD, users

Start = Callable[..., Daemon]
Dial = Callable[..., Line]

TOKEN, TOKEN_LINE = make_token()
BOSS, BOSS_LINE = make_token()
ACL = """
[[acl]]
who = ["ann"]
publish = ["chat/", "//chat/"]
receive = ["chat/", "//chat/"]

[[acl]]
who = ["boss"]
publish = ["#", "//pubsubd/"]
receive = ["#", "//pubsubd/"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return settings with the users ann, who has a password and rights, tom and the boss."""
    people = users(ann=PASSWORD, tom=TOKEN_LINE, boss=BOSS_LINE)
    path = tmp_path / "users"
    path.write_text("".join(f"{name}:{line}\n" for name, line in people.lines))
    path.chmod(0o600)
    file = tmp_path / "pubsubd.toml"
    file.write_text(f"users_file = {json.dumps(str(path))}\n{ACL}")
    return file


def log_in(line: Line, words: str) -> bytes:
    line.say(frame("//pubsubd/auth", words.encode()))
    name, data = line.hear_frame()
    return data if name == "//pubsubd/auth" else b"error " + data.split(b" ")[0]


def logged_in(dial: Dial, daemon: Daemon, words: str, user: str) -> Line:
    """Return a connection that logs in with the first that the daemon sees of it."""
    with daemon.standing_still():
        line = dial(daemon)
        line.say(frame("//pubsubd/auth", words.encode()))
    assert line.hear_frame() == ("//pubsubd/auth", b"ok " + user.encode())
    return line


def boss(dial: Dial, daemon: Daemon) -> Line:
    return logged_in(dial, daemon, BOSS, "boss")


def explained(line: Line, name: str) -> int:
    """Return how many would receive a name."""
    line.say(frame("//pubsubd/explain", name.encode()))
    _, data = line.hear_frame()
    return int(json.loads(data)["count"])


def test_a_daemon_lets_in_whom_its_file_has(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config))
    ann, eve = dial(daemon), dial(daemon)
    assert log_in(ann, f"ann {PASSWORD}") == b"ok ann"
    assert log_in(eve, f"eve {PASSWORD}") == b"error login-failed"
    assert error_codes(eve.ping()) == []
    ann.say(b"sub a\nsub t\npub chat/1 2 hi\npub secret 2 no\n")
    assert frames(ann.ping())[0] == ("chat/1", b"hi")
    eve.say(b"sub a\npub chat/1 4 spam\n")
    assert error_codes(eve.ping()) == ["login-required"]
    found = boss(dial, daemon).stats()["errors"]
    assert found == {"login-failed": 1, "not-allowed": 1, "login-required": 2}


def test_what_is_said_behind_a_password_waits_for_it(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    ann = dial(daemon)
    login = frame("//pubsubd/auth", f"ann {PASSWORD}".encode())
    ann.say(login + b"sub chat\n" + b"pub chat/1 2 hi\n" * 100)
    ann.shut()
    heard = frames(ann.hear_until(b"hi\n"))
    assert heard[0] == ("//pubsubd/auth", b"ok ann")


def test_a_client_that_ends_behind_its_password_is_served(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    listener = boss(dial, daemon)
    listener.say(b"sub chat\n")
    listener.ping()
    ann = dial(daemon)
    ann.say(frame("//pubsubd/auth", f"ann {PASSWORD}".encode()) + b"pub chat/1 2 hi\n")
    ann.shut()
    assert frames(ann.hear_end()) == [("//pubsubd/auth", b"ok ann")]
    assert listener.hear_frame() == ("chat/1", b"hi")


def test_others_are_served_while_passwords_are_checked(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    one = boss(dial, daemon)
    one.say(b"sub x\n")
    guessing = [dial(daemon) for _ in range(10)]
    for number, line in enumerate(guessing):
        line.say(frame("//pubsubd/auth", b"ann guess-%d" % number))
    for number in range(200):
        one.say(b"pub x 3 %03d\n" % number)
        assert one.hear_frame() == ("x", b"%03d" % number)
    codes = [error_codes(line.hear_until(b"\n")) for line in guessing]
    assert codes == [["login-failed"]] * 10


def test_those_who_guess_do_not_hold_up_others(start: Start, dial: Dial, config: Path) -> None:
    config.write_text(config.read_text().replace('["chat/"', '["//pubsubd/", "chat/"'))
    daemon = start("--config", str(config), "--auth-timeout", "0.5")
    one = boss(dial, daemon)
    guesses = frame("//pubsubd/auth", b"ann guess") * 2
    with daemon.standing_still():
        guessing = [
            dial(daemon, source=f"127.0.1.{number + 1}") for number in range(12) for _ in range(3)
        ]
        for line in guessing:  # each waits for those before it, and for longer than may pass
            line.say(guesses)

    def failed(told: bytes) -> int:
        return int(json.loads(told)["errors"].get("login-failed", 0))

    asks = frame("//pubsubd/stats", b"")
    wait_until(lambda: one.stats()["errors"].get("login-failed", 0) >= 12, "all have failed once")
    with daemon.standing_still():  # so that both see its statistics at once, and not later
        ann = dial(daemon)
        ann.say(frame("//pubsubd/auth", f"ann {PASSWORD}".encode()) + asks)
        one.say(asks)
    before = failed(one.hear_frame()[1])
    assert ann.hear_frame() == ("//pubsubd/auth", b"ok ann")
    assert failed(ann.hear_frame()[1]) - before < 8
    for line in guessing:
        with contextlib.suppress(BlockingIOError):
            codes = error_codes(line.sock.recv(KIB, socket.MSG_DONTWAIT))
            assert codes[:1] != ["login-timeout"], "it was not to wait for the others"
        line.vanish()
    wait_until(lambda: one.stats()["connections"] == 2, "those that are gone are noticed")


def test_a_connection_that_is_reset_while_it_waits_is_not_checked(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    one = boss(dial, daemon)
    guessing = [dial(daemon) for _ in range(8)]
    for line in guessing:
        line.say(frame("//pubsubd/auth", b"ann guess"))
    for line in guessing[1:]:
        line.vanish()
    wait_until(lambda: one.stats()["connections"] == 2, "those that are gone are noticed")
    assert error_codes(guessing[0].hear_until(b"\n")) == ["login-failed"]
    assert one.stats()["errors"]["login-failed"] < 8


def test_a_daemon_that_ends_while_passwords_are_checked_ends_properly(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    lines = [dial(daemon) for _ in range(6)]
    for line in lines:
        line.say(frame("//pubsubd/auth", f"ann {PASSWORD}".encode()))
    daemon.signal()
    for line in lines:
        heard = frames(line.hear_end())
        assert heard[-1][1].startswith(b"shutting-down")
    assert daemon.wait() == 0


def test_who_does_not_log_in_is_ended_and_told_why(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config), "--auth-timeout", "0.5")
    line = dial(daemon)
    stays = boss(dial, daemon)
    assert error_codes(line.hear_end()) == ["login-timeout"]
    stays.ping()
    assert "reason=login-timeout" in daemon.wait_log("login-timeout")


def test_a_user_of_the_machine_needs_no_password_on_a_unix_socket(
    start: Start, tmp_path: Path, config: Path
) -> None:
    path = str(tmp_path / "socket")
    daemon = start("--config", str(config), "--unix", path)
    line = Line(path)
    line.say(b"sub x\npub x 1 y\n")
    assert error_codes(line.ping()) == ["not-allowed"]  # as the rules do not name this user
    line.close()
    assert daemon.process.poll() is None


def test_the_rules_name_users_of_the_machine(start: Start, tmp_path: Path, config: Path) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    rule = f'\n[[acl]]\nwho = ["{user}"]\npublish = ["x"]\nreceive = ["x"]\n'
    config.write_text(config.read_text() + rule)
    path = str(tmp_path / "socket")
    start("--config", str(config), "--unix", path)
    line = Line(path)
    line.say(b"sub x\nsub chat\npub x 1 y\n")
    assert line.hear_frame() == ("x", b"y")
    line.say(b"pub chat 1 z\n")
    assert error_codes(line.ping()) == ["not-allowed"]
    line.close()


def test_a_reload_changes_what_those_may_who_are_here(
    start: Start, dial: Dial, config: Path
) -> None:
    daemon = start("--config", str(config))
    ann, one = dial(daemon), boss(dial, daemon)
    log_in(ann, f"ann {PASSWORD}")
    ann.say(b"sub a\n")
    ann.ping()
    one.say(frame("chat/a", b"1") + frame("data/a", b"2"))
    assert ann.hear_frame() == ("chat/a", b"1")
    assert ann.ping() == b""
    text = config.read_text()
    config.write_text(text.replace('["chat/", "//chat/"]', '["data/"]'))
    daemon.signal(signal.SIGHUP)
    daemon.wait_log("event=reloaded")
    one.say(frame("chat/a", b"3") + frame("data/a", b"4"))
    assert ann.hear_frame() == ("data/a", b"4")
    ann.say(frame("chat/a", b"5"))
    assert error_codes(ann.ping()) == ["not-allowed"]


def test_a_reload_ends_those_whose_line_is_gone(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config))
    ann, one = dial(daemon), boss(dial, daemon)
    log_in(ann, f"ann {PASSWORD}")
    path = config.with_name("users")
    kept = [line for line in path.read_text().splitlines() if not line.startswith("ann:")]
    path.write_text("\n".join(kept))
    daemon.signal(signal.SIGHUP)
    assert error_codes(ann.hear_end()) == ["login-revoked"]
    one.ping()
    again = dial(daemon)
    assert log_in(again, f"ann {PASSWORD}") == b"error login-failed"


def test_no_secret_reaches_the_log(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config), "--log-level", "debug")
    for words in (f"ann {PASSWORD}", TOKEN, "ann my-guess-1", "my-guess-2", "my-guess-3 x"):
        line = dial(daemon)
        log_in(line, words)
        line.close()
    line = dial(daemon)
    for _ in range(3):
        line.say(frame("//pubsubd/auth", b"ann my-guess-4"))
    assert error_codes(line.hear_end()) == ["login-failed"] * 2 + ["too-many-failures"]
    log = daemon.wait_log("too-many-failures")
    assert log.count('event=login address="127.0.0.1" reason=login-failed') == 6
    for secret in (PASSWORD, TOKEN, "guess", TOKEN_LINE[-40:]):
        assert secret not in log


# The hub port


def get(daemon: Daemon, path: str, authorization: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    headers = {} if authorization is None else {"Authorization": authorization}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    told = answer.status, answer.read()
    connection.close()
    return told


def test_the_hub_port_lets_in_whom_the_file_has(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config))
    basic = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    assert get(daemon, "/pubsub/stats")[0] == 401
    assert get(daemon, "/pubsub/stats", basic)[0] == 200
    assert get(daemon, "/pubsub/stats", f"Bearer {TOKEN}")[0] == 200
    assert get(daemon, "/pubsub/stats", f"Bearer {TOKEN}x")[0] == 401
    assert get(daemon, "/healthz")[0] == 200
    with pytest.raises(InvalidStatus):
        Socket(daemon, additional_headers={"Authorization": "Bearer x"})
    web = Socket(daemon, additional_headers={"Authorization": basic})
    assert web.ask(message_b("hub:subscribe", {"topic": "chat/#"}))["type"] == "hub:subscribed"
    assert web.ask(message_b("hub:subscribe", {"topic": "#"}))["type"] == "hub:subscribed"
    refused = web.ask(message_b("hub:subscribe", {"topic": "other"}))
    assert refused["payload"]["code"] == "unauthorized"
    one = boss(dial, daemon)
    one.say(b"pub other 1 x\npub chat/1 1 y\npub //other 1 z\npub //chat/1 1 w\n")
    heard = [web.hear()["payload"]["data"] for _ in range(2)]
    assert heard == ["y", "w"]
    assert web.quiet()
    web.close()


def test_a_json_client_may_log_in_with_its_first_message(start: Start, config: Path) -> None:
    daemon = start("--config", str(config), "--auth-timeout", "0.5")
    with daemon.standing_still():
        client, silent = Lines(daemon), Lines(daemon)
        silent.say({"type": "ping"})
        client.say(message_b("hub:connect", {"version": "1.0", "jwt": TOKEN}))
    answer = client.hear()
    assert answer["type"] == "hub:connected"
    assert silent.hear() == {"type": "pong"}
    assert silent.hear()["payload"]["details"] == {"reason": "login-timeout"}
    assert client.ask({"type": "ping"}) == {"type": "pong"}
    client.close()
    silent.close()


# The mesh


def two(start: Start, config: Path, *flags: str) -> tuple[Daemon, Daemon]:
    """Start two daemons that are to be linked, the second one of which has rules."""
    ruled = start("--config", str(config), *flags)
    peer = ["--peer", f"{ruled.address[0]}:{ruled.address[1]}", "--node", "free"]
    free = start(*peer, "--mesh-heartbeat", "1", *flags)
    return free, ruled


def test_a_link_brings_to_nobody_what_its_owner_may_not_receive(
    start: Start, dial: Dial, tmp_path: Path, config: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the mesh, long enough")
    secret.chmod(0o600)
    config.write_text(config.read_text().replace("users_file", 'node = "ruled"\nusers_file', 1))
    free, ruled = two(start, config, "--mesh", "m", "--mesh-secret-file", str(secret))
    ann, far, one = dial(ruled), dial(free), boss(dial, ruled)
    log_in(ann, f"ann {PASSWORD}")
    ann.say(b"sub //\nsub //fwd/\n")
    assert error_codes(ann.ping()) == []
    web = Socket(ruled, additional_headers={"Authorization": f"Bearer {BOSS}"})
    basic = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    hers = Socket(ruled, additional_headers={"Authorization": basic})
    for client in (web, hers):
        assert client.ask(message_b("hub:subscribe", {"topic": "//fwd/#"}))["type"] == (
            "hub:subscribed"
        )
    one.say(b"sub //fwd/\n")
    one.ping()
    # The link is there, and the other daemon knows what is wanted here.
    wait_until(lambda: explained(far, "//secret/1") > 0, "what is wanted has come to the other")
    far.say(b"".join(b"pub //secret/%d 1 x\npub //chat/%d 1 y\n" % (i, i) for i in range(50)))
    far.say(b"pub //chat/last 3 end\n")
    heard = {}
    for name, line in (("ann", ann), ("boss", one)):
        stream = line.hear_until(b"end\n")
        heard[name] = [where for where, _ in frames(stream) if "peers" not in where]
    chat = [f"//fwd/chat/{i}" for i in range(50)]
    assert heard["ann"] == [*chat, "//fwd/chat/last"]
    assert len(heard["boss"]) == 101
    told: dict[str, list[str]] = {}
    for name, client in (("boss", web), ("ann", hers)):
        told[name] = []
        while not told[name] or told[name][-1] != "//fwd/chat/last":
            topic = client.hear()["metadata"]["topic"]
            if "peers" not in topic:
                told[name].append(topic)
    assert told == heard
    assert hers.quiet()
    web.close()
    hers.close()


@pytest.mark.parametrize("auth", ["required", "none"])
def test_without_a_secret_of_the_mesh_a_hello_needs_a_right(
    start: Start, dial: Dial, config: Path, auth: str
) -> None:
    """As a link may do everything, whatever the rules."""
    config.write_text(config.read_text().replace("users_file", 'mesh = "m"\nusers_file', 1))
    daemon = start("--config", str(config), "--peer", "127.0.0.1:1", "--auth", auth)
    stranger = dial(daemon)
    stranger.say(frame("//pubsubd/hello", hello("x")))
    code = "login-required" if auth == "required" else "not-allowed"
    assert error_codes(stranger.ping()) == [code]
    user = dial(daemon)
    assert log_in(user, TOKEN) == b"ok tom"
    user.say(frame("//pubsubd/hello", hello("x")))
    assert error_codes(user.ping()) == ["not-allowed"]
    known = boss(dial, daemon)
    known.say(frame("//pubsubd/hello", hello("x")))
    name, data = known.hear_frame()
    assert name == "//pubsubd/hello"
    assert data.startswith(b"1 m ")


# Survival


def test_a_flood_of_what_is_refused_harms_nobody(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config))
    ann, listener, one = dial(daemon), boss(dial, daemon), boss(dial, daemon)
    log_in(ann, f"ann {PASSWORD}")
    listener.say(b"sub n/\n")
    listener.ping()
    before = daemon.memory()
    names = b"".join(b"pub secret/%d 4 spam\n" % i for i in range(20_000))
    flood = names + b"pub secret 4 spam\n" * 20_000
    with Background(lambda: [ann.say(flood) for _ in range(20)]):
        for number in range(500):
            one.say(b"pub n/%d 1 x\n" % number)
            assert listener.hear_frame() == (f"n/{number}", b"x")
    told = ann.ping()
    assert 0 < len(error_codes(told)) < 2_000
    assert set(error_codes(told)) == {"not-allowed"}
    assert one.stats()["errors"] == {"not-allowed": 20 * 40_000}
    assert daemon.memory() - before < 32 << 20


def test_a_flood_of_logins_harms_nobody(start: Start, dial: Dial, config: Path) -> None:
    daemon = start("--config", str(config))
    one = boss(dial, daemon)
    one.say(b"sub n/\n")
    one.ping()
    lines = []
    for number in range(200):
        line = dial(daemon)
        line.say(frame("//pubsubd/auth", b"ann guess-%d" % number) * 4)
        lines.append(line)
    for number in range(100):
        one.say(b"pub n/%d 1 x\n" % number)
        assert one.hear_frame() == (f"n/{number}", b"x")
    for line in lines:
        assert error_codes(line.hear_end())[-1] == "too-many-failures"
    errors = one.stats()["errors"]
    assert errors["login-failed"] + errors["login-throttled"] == 3 * 200
    assert errors["login-failed"] < 60
    late = dial(daemon)
    assert log_in(late, TOKEN) == b"ok tom"
