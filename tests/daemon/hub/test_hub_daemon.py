"""The hub port of a real daemon, as its users would try it: nc, curl's HTTP, a browser, an SDK."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from synap_sdk import SynapClient, SynapConfig
from synap_sdk.exceptions import SynapException
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests import forks
from tests.browser import Page
from tests.daemons import DEADLINE, ROOT, Daemon, Line, environment, frames, tool, wait_until
from tests.hubs import UPGRADE, Lines, Socket, client_frame, connect_a, message_a, message_b


@pytest.fixture
def open_socket() -> Iterator[Callable[..., Socket]]:
    opened: list[Socket] = []

    def open_one(daemon: Daemon, *args: Any, **more: Any) -> Socket:
        opened.append(Socket(daemon, *args, **more))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def open_lines() -> Iterator[Callable[..., Lines]]:
    opened: list[Lines] = []

    def open_one(daemon: Daemon) -> Lines:
        opened.append(Lines(daemon))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def request(
    daemon: Daemon, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one HTTP request."""
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    try:
        text = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, text, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


# WebSocket and lines


@pytest.mark.parametrize("path", ["/ws", "/"])
def test_a_websocket_hears_what_the_line_port_publishes_and_the_other_way_round(
    shared: Daemon, dial: Callable[..., Line], open_socket: Callable[..., Socket], path: str
) -> None:
    web, line = open_socket(shared, path), dial(shared)
    topic = "daemon/" + path.strip("/")
    assert web.ask(message_b("hub:subscribe", {"topic": topic}))["type"] == "hub:subscribed"
    line.say(f"sub {topic}\npub {topic} 5 hello\n".encode())
    got = web.hear()
    assert got["payload"] == {"name": topic, "data": "hello"}
    assert got["from"] == f"tcp/{line.label}"
    assert frames(line.ping()) == [(topic, b"hello")]
    web.say(message_b("hub:publish", {"topic": topic, "type": "x", "data": [1, "é"]}))
    assert {web.hear()["type"], web.hear()["type"]} == {"hub:delivery_ack", "x"}
    ((_, data),) = frames(line.ping())
    assert json.loads(data) == {
        "type": "x",
        "from": f"tcp/{web.label}",
        "payload": [1, "é"],
    }


def test_who_does_not_read_yet_is_told_everything_under_its_own_address(
    start: Callable[..., Daemon], dial: Callable[..., Line], open_lines: Callable[..., Lines]
) -> None:
    daemon = start("--hub-max-pending", "64MiB")
    line, count, names = dial(daemon), 4_000, [b"late/%d" % number for number in range(4)]
    receivers = [open_lines(daemon) for _ in names]
    for receiver, name in zip(receivers, names, strict=True):
        receiver.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        receiver.say_raw(UPGRADE)
        for message in (
            message_b("hub:register", {"actorAddress": name.decode()}),
            message_b("hub:subscribe", {"topic": "late/news"}),
        ):
            receiver.say_raw(client_frame(json.dumps(message).encode()))
        receiver.hear_until(b'"hub:subscribed"')
    for _ in range(count // 500):  # 5 MB for each of them, more than a socket takes
        line.say(b"pub late/news 1000 %b\n" % (b"x" * 1000) * 500)
    line.ping()
    for receiver, name in zip(receivers, names, strict=True):
        heard = receiver.hear_until(b'"data":"', count)
        assert [heard.count(b'"to":"%b"' % one) for one in names] == [
            count if one is name else 0 for one in names
        ]


def test_nc_speaks_json_by_lines_and_stays_as_a_listener(
    shared: Daemon, dial: Callable[..., Line]
) -> None:
    host, port = shared.hub
    line = dial(shared)
    nc = subprocess.Popen(
        ["nc", "-N", host, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert nc.stdin is not None
        assert nc.stdout is not None
        nc.stdin.write(json.dumps(message_b("hub:subscribe", {"topic": "nc/t"})).encode() + b"\n")
        nc.stdin.close()
        assert json.loads(nc.stdout.readline())["type"] == "hub:subscribed"
        line.say(b"pub nc/t 2 hi\n")
        assert json.loads(nc.stdout.readline())["payload"] == {"name": "nc/t", "data": "hi"}
    finally:
        nc.kill()
        nc.wait()
        assert nc.stdout is not None
        nc.stdout.close()


@pytest.mark.parametrize("said", ["sub chat\n", "PUB chat 5 hello\r\n", "unsub a"])
def test_a_command_of_the_line_port_is_told_at_once_where_to_go(shared: Daemon, said: str) -> None:
    with contextlib.closing(Line(shared.hub)) as line:
        line.say(said.encode())
        ((name, data),) = frames(line.hear_end())
    verb = said.split(maxsplit=1)[0].lower()
    text = f"wrong-port this is the hub port, for JSON; {verb} goes to the line port"
    assert (name, data.decode()) == ("//pubsubd/error", text)


def test_a_command_at_the_wrong_port_says_so(shared: Daemon) -> None:
    host, port = shared.hub
    command = [sys.executable, "-m", "pubsubd", "stats", "--host", host, "--port", str(port)]
    done = forks.run(
        command, capture_output=True, text=True, check=False, timeout=DEADLINE, env=environment()
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "this is the hub port, for JSON; pub goes to the line port" in done.stderr


def test_a_binary_message_is_as_good_as_a_text(
    shared: Daemon, open_socket: Callable[..., Socket]
) -> None:
    web = open_socket(shared)
    web.connection.send(json.dumps({"type": "ping"}).encode())
    assert web.hear() == {"type": "pong"}


def test_a_message_of_900_kib_passes(shared: Daemon, open_socket: Callable[..., Socket]) -> None:
    web = open_socket(shared)
    web.ask(message_b("hub:subscribe", {"topic": "big"}))
    data = "x" * (900 * 1024)
    web.say(message_b("hub:publish", {"topic": "big", "type": "x", "data": data}))
    answers = [web.hear(), web.hear()]
    assert data in [one["payload"] for one in answers]


def test_leaving_is_answered_and_then_the_socket_closes_with_1000(
    shared: Daemon, open_socket: Callable[..., Socket]
) -> None:
    web = open_socket(shared)
    web.ask(message_a("hub:connect", metadata=connect_a()))
    assert web.ask(message_a("hub:disconnect"))["type"] == "hub:disconnect"
    with pytest.raises(ConnectionClosed) as caught:
        web.hear()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1000


def test_a_second_registration_closes_the_first_socket_with_1000(
    shared: Daemon, open_socket: Callable[..., Socket]
) -> None:
    first, second = open_socket(shared), open_socket(shared)
    for web in (first, second):
        web.ask(message_a("hub:connect", metadata=connect_a()))
        payload = {"actorAddress": "@(browser/twice)", "capabilities": ["x"]}
        assert web.ask(message_a("hub:register", payload))["type"] == "hub:registered"
    told = first.hear()
    assert (told["type"], told["payload"]["reason"]) == ("hub:disconnect", "duplicate_connection")
    with pytest.raises(ConnectionClosed) as caught:
        first.hear()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1000
    assert second.quiet()


def test_a_silent_client_is_told_and_closed(
    start: Callable[..., Daemon], open_socket: Callable[..., Socket]
) -> None:
    daemon = start("--hub-heartbeat", "1")
    web, silent = open_socket(daemon), open_socket(daemon)
    web.ask(message_a("hub:connect", metadata=connect_a()))
    told = web.hear()
    assert (told["type"], told["payload"]["code"]) == ("hub:error", "timeout")
    with pytest.raises(ConnectionClosed):
        web.hear()
    assert silent.quiet()  # has not introduced itself
    daemon.wait_log("reason=heartbeat-timeout")


def test_an_ending_daemon_says_goodbye_with_1001(
    start: Callable[..., Daemon],
    open_socket: Callable[..., Socket],
    open_lines: Callable[..., Lines],
) -> None:
    daemon = start()
    web, lines = open_socket(daemon), open_lines(daemon)
    web.ask({"type": "ping"})
    lines.ask({"type": "ping"})
    daemon.process.terminate()
    with pytest.raises(ConnectionClosed) as caught:
        web.hear()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001
    assert caught.value.rcvd.reason.startswith("shutting-down")
    told = lines.hear()
    assert told["payload"]["details"] == {"reason": "shutting-down"}
    assert lines.hear_rest() == b""
    web.close()
    lines.close()
    assert daemon.wait() == 0


def test_an_actor_expires_in_time(
    start: Callable[..., Daemon], open_socket: Callable[..., Socket]
) -> None:
    daemon = start("--hub-rate", "0")
    web, other = open_socket(daemon), open_socket(daemon)
    web.ask(message_a("hub:connect", metadata=connect_a()))
    payload = {"actorAddress": "@(browser/ann)", "capabilities": ["x"], "ttlSeconds": 1}
    web.ask(message_a("hub:register", payload))

    def gone() -> bool:
        other.say(message_b("hub:send", {"type": "x", "data": 1}, to="browser/ann"))
        other.say({"type": "ping"})
        answer = other.hear()
        if answer["type"] == "hub:error":
            assert answer["payload"]["code"] == "unknown_actor"
            other.hear()
            return True
        return False

    wait_until(gone, "the actor to expire")


# HTTP


def test_health_is_told(shared: Daemon) -> None:
    status, headers, body = request(shared, "GET", "/health")
    told = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (told["status"], told["service"]) == ("ok", "pubsubd")
    assert told["version"]
    assert told["timestamp"].endswith("Z")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_are_answered(shared: Daemon, path: str) -> None:
    assert request(shared, "GET", path)[0] == 200
    status, headers, body = request(shared, "HEAD", path)
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_a_plain_get_of_a_websocket_asks_for_an_upgrade(shared: Daemon) -> None:
    status, headers, _ = request(shared, "GET", "/ws")
    assert status == 426
    assert headers["upgrade"] == "websocket"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("PUT", "/health", 405), ("GET", "/api/v1/command", 405)],
)
def test_other_requests_are_refused(shared: Daemon, method: str, path: str, status: int) -> None:
    answer = request(shared, method, path)
    assert answer[0] == status
    assert "error" in json.loads(answer[2])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9015", "127.0.0.1.evil.example", ""]
)
def test_a_wrong_host_is_refused(shared: Daemon, host: str) -> None:
    assert request(shared, "GET", "/health", Host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]", "app.localhost:80"])
def test_a_host_that_is_here_is_served(shared: Daemon, host: str) -> None:
    assert request(shared, "GET", "/health", Host=host)[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize("path", ["/ws", "/", "/pubsub/ws?topics=a"])
def test_a_page_of_another_origin_gets_no_socket(
    shared: Daemon, open_socket: Callable[..., Socket], origin: str, path: str
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        open_socket(shared, path, origin=origin)
    assert caught.value.response.status_code == 403
    status, headers, _ = request(shared, "POST", "/api/v1/command", {}, Origin=origin)
    assert status == 403
    assert "access-control-allow-origin" not in headers


def test_origins_and_hosts_can_be_allowed(
    start: Callable[..., Daemon], open_socket: Callable[..., Socket]
) -> None:
    origin = "https://app.example"
    daemon = start("--hub-origin", origin, "--hub-host", "hub.example")
    assert open_socket(daemon, origin=origin).quiet()
    status, headers, _ = request(
        daemon, "POST", "/api/v1/command", {"command": "pubsub.topics"}, Origin=origin
    )
    assert (status, headers["access-control-allow-origin"]) == (200, origin)
    status, headers, _ = request(
        daemon, "OPTIONS", "/api/v1/command", Origin=origin, Access_Control_Request_Method="POST"
    )
    assert status == 204
    assert "POST" in headers["access-control-allow-methods"]
    assert request(daemon, "GET", "/health", Host="hub.example")[0] == 200
    with pytest.raises(InvalidStatus):
        open_socket(daemon, origin="https://other.example")


def test_the_own_origin_is_served(shared: Daemon, open_socket: Callable[..., Socket]) -> None:
    host, port = shared.hub
    assert open_socket(shared, origin=f"http://{host}:{port}").quiet()


# Synap


async def use_sdk(url: str) -> dict[str, Any]:
    """Do with the SDK what it can do, and return what came of it."""
    async with SynapClient(SynapConfig(url, timeout=DEADLINE)) as client:
        found: dict[str, Any] = {"health": await client.health()}
        await client.pubsub.subscribe_topics("sdk-1", ["sdk.*", "other"])
        found["matched"] = await client.pubsub.publish("sdk.a", {"n": 1})
        found["null"] = await client.pubsub.publish("other", None)
        found["nobody"] = await client.pubsub.publish("lonely", "x")
        found["topics"] = await client.pubsub.list_topics()
        found["stats"] = await client.pubsub.stats()
        await client.pubsub.unsubscribe_topics("sdk-1", ["sdk.*"])
        found["after"] = await client.pubsub.publish("sdk.a", {"n": 2})
        try:
            await client.send_command("pubsub.subscribe", {"topics": []})
        except SynapException as error:
            found["error"] = str(error)
        return found


def test_the_synap_sdk_runs_unmodified(
    start: Callable[..., Daemon], dial: Callable[..., Line]
) -> None:
    daemon = start()
    line = dial(daemon)
    line.say(b"sub sdk.\n")
    line.ping()
    host, port = daemon.hub
    found = asyncio.run(use_sdk(f"http://{host}:{port}"))
    assert found["health"]["status"] == "ok"
    assert found["matched"] == 2  # the subscriber and the one on the line port
    assert found["null"] == 1
    assert found["nobody"] == 0
    assert {"sdk.a", "other", "lonely"} <= set(found["topics"])
    assert found["stats"]["messages_published"] == 3
    assert found["stats"]["total_wildcard_subscriptions"] == 1
    assert found["after"] == 1
    assert "At least one topic required" in found["error"]
    told = [json.loads(data) for name, data in frames(line.ping()) if name == "sdk.a"]
    assert [one["payload"] for one in told] == [{"n": 1}, {"n": 2}]


def test_synap_pushes_over_its_own_websocket(
    shared: Daemon, open_socket: Callable[..., Socket], dial: Callable[..., Line]
) -> None:
    web = open_socket(shared, "/pubsub/ws?topics=pw.a,pw.b.*,pw.c.%23")
    first = web.hear()
    assert first["type"] == "connected"
    assert first["topics"] == ["pw.a", "pw.b.*", "pw.c.#"]
    assert first["subscription_count"] == 3
    assert first["subscriber_id"]
    status, _, body = request(shared, "POST", "/pubsub/pw.c/publish", {"payload": {"k": 1}})
    told = json.loads(body)
    assert (status, told["subscribers_matched"]) == (200, 1)
    pushed = web.hear()
    assert pushed["message_id"] == told["message_id"]
    assert (pushed["type"], pushed["topic"]) == ("message", "pw.c")
    assert pushed["payload"] == pushed["message"] == {"k": 1}
    assert isinstance(pushed["timestamp"], int)
    dial(shared).say(b"pub pw.b.x 2 hi\n")
    assert web.hear()["payload"] == {"name": "pw.b.x", "data": "hi"}


def test_synaps_websocket_needs_topics(shared: Daemon, open_socket: Callable[..., Socket]) -> None:
    for path in ("/pubsub/ws", "/pubsub/ws?topics="):
        with pytest.raises(InvalidStatus) as caught:
            open_socket(shared, path)
        assert caught.value.response.status_code == 400


def test_synaps_rest_paths_answer(start: Callable[..., Daemon]) -> None:
    daemon = start()
    status, _, body = request(
        daemon, "POST", "/pubsub/subscribe", {"topics": ["r.a"], "subscriber_id": "s"}
    )
    assert (status, json.loads(body)["subscriber_id"]) == (200, "s")
    assert (
        json.loads(request(daemon, "POST", "/pubsub/r.a/publish", {"data": 1})[2])[
            "subscribers_matched"
        ]
        == 1
    )
    assert json.loads(request(daemon, "GET", "/pubsub/topics")[2])["topics"] == ["r.a"]
    assert json.loads(request(daemon, "GET", "/pubsub/r.a/info")[2])["message_count"] == 1
    assert json.loads(request(daemon, "GET", "/pubsub/stats")[2])["messages_published"] == 1
    status, _, body = request(daemon, "GET", "/pubsub/none/info")
    assert (status, json.loads(body)["error"]) == (404, "Invalid request: Topic 'none' not found")
    assert request(daemon, "POST", "/pubsub/r.a/publish", b"{nonsense")[0] == 400
    gone = request(daemon, "POST", "/pubsub/unsubscribe", {"topics": ["r.a"], "subscriber_id": "s"})
    assert json.loads(gone[2]) == {"unsubscribed": 1}


def test_a_command_over_http_is_always_answered_with_200(shared: Daemon) -> None:
    status, _, body = request(
        shared, "POST", "/api/v1/command", {"command": "x.y", "request_id": "7"}
    )
    assert status == 200
    assert json.loads(body) == {
        "success": False,
        "request_id": "7",
        "payload": None,
        "error": "Unknown command: x.y",
    }


def test_requests_can_be_pipelined(shared: Daemon, open_lines: Callable[..., Lines]) -> None:
    lines = open_lines(shared)
    lines.say_raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    lines.sock.shutdown(socket.SHUT_WR)
    assert lines.hear_rest().count(b"HTTP/1.1 200") == 3


# A browser


@pytest.mark.parametrize("where", ["README.md", "man/pubsubd-hub.7"])
def test_the_script_of_the_documentation_works_in_a_browser(
    daemon: Daemon, dial: Callable[..., Line], page: Page, where: str
) -> None:
    host, port = daemon.hub
    line = dial(daemon)
    text = (ROOT / where).read_text(encoding="utf-8")
    found = re.search(r"^const socket = .*?\}\)\);$", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    script = re.sub(r"ws://[a-z0-9.]+:9015", f"ws://{host}:{port}", found[0])
    script = script.replace("console.log(", "heard.push(").replace("const socket", "socket")
    page.open(f"http://{host}:{port}/health")  # a page without a security policy of its own
    page.run(f"heard = []; {script}; null")
    wait_until(lambda: line.stats()["subscriptions"] == 1, "the page's subscription")
    line.say(b"pub chat:1 2 hi\n")
    page.wait("heard.length === 1")
    assert page.run("heard[0]") == {
        "type": "chat",
        "id": "1",
        "payload": {"name": "chat:1", "data": "hi"},
    }


@pytest.mark.parametrize("tool_", ["nc", "curl"])
def test_the_commands_of_the_page_work(
    daemon: Daemon, dial: Callable[..., Line], tool_: str
) -> None:
    tool(tool_)
    text = (ROOT / "man" / "pubsubd-hub.7").read_text(encoding="utf-8")
    (command,) = re.findall(rf"^(?:printf .*\| )?{tool_} .*$", text, flags=re.MULTILINE)
    host, port = daemon.hub
    command = command.replace("\\en", "\\n").replace("localhost 9015", f"{host} {port}")
    command = command.replace("localhost:9015", f"{host}:{port}")
    line = dial(daemon)
    line.say(b"sub chat\n")
    line.ping()
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if tool_ == "nc":
                assert json.loads(process.stdout.readline())["type"] == "hub:subscribed"
                line.say(b"pub chat 2 hi\n")
                got = json.loads(process.stdout.readline())
                assert got["payload"] == {"name": "chat", "data": "hi"}
            else:
                assert json.loads(process.stdout.read())["subscribers_matched"] == 1
                ((name, data),) = frames(line.ping())
                assert (name, json.loads(data)["payload"]) == ("chat", "hello")
        finally:
            process.kill()


def test_a_page_of_another_origin_gets_nothing_in_a_browser_either(
    shared: Daemon, daemon: Daemon, page: Page
) -> None:
    page.open(f"http://{daemon.hub[0]}:{daemon.hub[1]}/health")
    url = f"ws://{shared.hub[0]}:{shared.hub[1]}/ws"
    outcome = page.run(
        "new Promise(done => {"
        f" const socket = new WebSocket({json.dumps(url)});"
        " socket.onopen = () => done('open'); socket.onerror = () => done('refused'); })"
    )
    assert outcome == "refused"
