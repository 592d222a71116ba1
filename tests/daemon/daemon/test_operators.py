"""What operators see of connections, how they end them, and what the log says of both."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked
from websockets.exceptions import ConnectionClosed

from pubsubd.access.users import hash_password, make_token
from pubsubd.broker.traffic import INTERVAL
from pubsubd.client import open_client
from tests.daemons import (
    Daemon,
    Line,
    error_codes,
    frame,
    frames,
)
from tests.hubs import Lines, Socket, message_b
from tests.rights import PASSWORD
from tests.running import serving

Start = Callable[..., Daemon]
Dial = Callable[..., Line]

TOKEN, TOKEN_LINE = make_token()


def ask(line: Line, **request: Any) -> list[dict[str, Any]]:
    """Return the rows of connections that somebody is told."""
    line.say(frame("//pubsubd/connections", json.dumps(request).encode()))
    name, data = line.hear_frame()
    assert name == "//pubsubd/connections", data
    found: list[dict[str, Any]] = json.loads(data)["connections"]
    return found


def kill(line: Line, number: int) -> str:
    """Return the code of the error, or the address of the connection that is ended."""
    line.say(frame("//pubsubd/kill", b"%d" % number))
    name, data = line.hear_frame()
    if name == "//pubsubd/error":
        return data.split(b" ")[0].decode()
    assert name == "//pubsubd/kill"
    return str(json.loads(data)["peer"])


def close_of(socket: Socket) -> tuple[int, str]:
    """Return the code and the reason that the daemon closes a WebSocket with."""
    with pytest.raises(ConnectionClosed) as caught:
        deque(iter(socket.hear, None), 0)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


def test_each_connection_is_shown_and_ended_in_its_own_words(start: Start, dial: Dial) -> None:
    daemon = start("--node=a", "--mesh=m")
    host, port = daemon.address
    operator, line, plain = dial(daemon), dial(daemon), Lines(daemon)
    hub, synap = Socket(daemon), Socket(daemon, "/pubsub/ws?topics=x")
    envelope = Socket(daemon)
    line.say(b"sub x\nsub y\npub z 1 a\n")
    line.ping()
    plain.say(message_b("hub:subscribe", {"topic": "x"}))
    plain.hear()
    hub.ask(message_b("hub:subscribe", {"topic": "x"}))
    synap.hear()
    envelope.say({"type": "__subscribe", "id": "", "payload": {"topic": "x"}})
    assert envelope.quiet()
    start("--node=b", "--mesh=m", f"--peer={host}:{port}")
    daemon.wait_log('event=link-up node="b"')

    rows = {row["peer"]: row for row in ask(operator)}
    (link,) = [row for row in rows.values() if row["node"] is not None]
    assert (link["node"], link["dialect"], link["subscriptions"]) == ("b", "mesh", None)
    clients = (line, plain, hub, synap, envelope)
    labels = [client.label for client in clients]
    shown = [rows[label] for label in labels]
    assert [(row["listener"], row["transport"], row["dialect"]) for row in shown] == [
        ("line", "line", "line"),
        ("hub", "ndjson", "hub"),
        ("hub", "websocket", "hub"),
        ("hub", "websocket", "synap"),
        ("hub", "websocket", "envelope"),
    ]
    assert [row["subscriptions"] for row in shown] == [2, 1, 1, 1, 1]
    assert all(row["bytes_in_rate"] > 0 for row in shown)
    assert [row["messages_in_rate"] > 0 for row in shown] == [True, False, False, False, False]

    assert [kill(operator, row["connection"]) for row in shown] == labels
    text = f"ended by {operator.label}"
    assert frames(line.hear_end()) == [("//pubsubd/error", f"killed {text}".encode())]
    told = json.loads(plain.hear_rest())
    assert told["type"] == "hub:error"
    assert (told["payload"]["message"], told["payload"]["details"]) == (text, {"reason": "killed"})
    for socket in (hub, synap, envelope):
        assert close_of(socket) == (1008, f"killed: {text}")
    for client in clients:
        client.close()

    assert kill(operator, link["connection"]) == link["peer"]
    log = daemon.wait_log('event=link-up node="b"', 2)
    assert f'reason="killed" detail="{text}"' in log
    number = shown[2]["connection"]
    expected = f'peer={labels[2]} listener="hub" reason=killed detail="{text}"'
    assert f"event=closed connection={number} {expected}" in log
    assert kill(operator, number) == "unknown-connection"


@pytest.fixture
def guarded(start: Start, tmp_path: Path) -> Daemon:
    """A daemon with the users ann, who has a password, and tom, who has a token."""
    people = tmp_path / "users"
    people.write_text(f"ann:{hash_password(PASSWORD)}\ntom:{TOKEN_LINE}\n")
    people.chmod(0o600)
    return start(f"--users-file={people}", f"--unix={tmp_path}/socket")


def log_in(line: Line, words: str) -> Line:
    line.say(frame("//pubsubd/auth", words.encode()))
    assert line.hear_frame()[0] == "//pubsubd/auth"
    return line


def test_where_one_logs_in_the_operator_is_on_the_unix_socket(
    guarded: Daemon, dial: Dial, tmp_path: Path
) -> None:
    ann, tom = log_in(dial(guarded), f"ann {PASSWORD}"), log_in(dial(guarded), TOKEN)
    assert [row["user"] for row in ask(ann)] == ["ann"]
    assert kill(tom, ask(ann)[0]["connection"]) == "unknown-connection"
    operator = Line(str(tmp_path / "socket"))
    rows = ask(operator)
    assert {row["user"] for row in rows} == {"ann", "tom", pwd.getpwuid(os.getuid()).pw_name}
    number = next(row["connection"] for row in rows if row["user"] == "tom")
    assert kill(operator, number) == tom.label
    assert error_codes(tom.hear_end()) == ["killed"]
    operator.close()
    log = guarded.wait_log("reason=killed")
    assert f'connection={number} peer={tom.label} user="tom" listener="line" reason=killed' in log
    (tmp_path / "users").write_text(f"tom:{TOKEN_LINE}\n")
    guarded.signal(signal.SIGHUP)
    assert error_codes(ann.hear_end()) == ["login-revoked"]
    guarded.wait_log(f'peer={ann.label} user="ann" listener="line" reason=login-revoked')


def test_a_failed_login_is_logged_with_a_name_that_is_known_and_the_start_of_any_other(
    guarded: Daemon, dial: Dial
) -> None:
    watch = log_in(dial(guarded), f"ann {PASSWORD}")
    watch.say(b"sub //pubsubd/events\n")
    watch.ping()
    for words in ("ann wrong horse", "correct horse", "x\x1b[31m\ny z", "nonsense-token"):
        line = dial(guarded)
        line.say(frame("//pubsubd/auth", words.encode()))
        assert error_codes(line.hear_until(b"\n")) == ["login-failed"]
    web = Lines(guarded)  # bWFsbG9yeTp4eA== is mallory:xx
    web.say_raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
    web.say_raw(b"Authorization: Basic bWFsbG9yeTp4eA==\r\n\r\n")
    assert web.hear_raw(12) == b"HTTP/1.1 401"
    web.close()
    log = guarded.wait_log("event=login ", 5)
    told = re.findall(r'event=login (address="127.0.0.1" reason=login-failed .*)', log)
    assert [re.sub(r"connection=\d+ ", "", line).split(" ", 2)[2] for line in told] == [
        'listener="line" user="ann"',
        'listener="line" tried="cor..."',
        'listener="line" tried="x\\\\x1b[..."',
        'listener="line"',
        'listener="hub" tried="mal..."',
    ]
    events: list[dict[str, object]] = []
    while len(events) < len(told):  # others tell that who does not log in in time is closed
        event = json.loads(watch.hear_frame()[1])
        events += [event] if event["event"] == "login-failed" else []
    assert [one["user"] for one in events] == ["ann", None, None, None, None]
    for secret in ("wrong", "horse", "correct", "nonsense", "mallory"):
        assert secret not in log + str(events)


def test_what_a_token_lacks_is_in_the_log(start: Start, dial: Dial, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    daemon = start(f"--hub-auth={key}")
    web = Lines(daemon)
    token = "eyJhbGciOiJub25lIn0.e30."  # {"alg":"none"}
    web.say_raw(f"GET /metrics?access_token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert web.hear_raw(12) == b"HTTP/1.1 401"
    web.close()
    log = daemon.wait_log("event=login ")
    assert 'listener="hub" detail="the token is not signed by HS256"' in log


def test_a_link_that_ends_is_a_warning_that_says_why(start: Start, dial: Dial) -> None:
    one = start("--node=one", "--mesh=m")
    host, port = one.address
    two = start("--node=two", "--mesh=m", f"--peer={host}:{port}")
    one.wait_log("event=link-up")
    two.signal()
    assert two.wait() == 0
    log = one.wait_log("event=link-down")
    (line,) = [line for line in log.splitlines() if "event=link-down" in line]
    assert "level=warning" in line
    assert 'reason="closed" detail="the other daemon: shutting-down the daemon is ending"' in line
    assert "level=info event=link-down" in two.log  # it has ended the link itself, as it was told


async def test_a_daemon_notes_how_fast_its_connections_are(mock_clock: MockClock) -> None:
    async with serving() as port, open_client(port=port) as client:

        async def rate() -> float:
            answer = json.loads(await client.request("//pubsubd/connections"))
            return float(answer["connections"][0]["messages_in_rate"])

        for _ in range(50):
            await client.publish("x", b"hi")
        await client.flush()
        assert await rate() == 50
        for _ in range(3):
            mock_clock.jump(INTERVAL)
            await wait_all_tasks_blocked()
        assert await rate() == 0
