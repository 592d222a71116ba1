"""That no token is ever shown by a daemon: to another client, in an error, or in its log."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.daemons import DEADLINE, Daemon
from tests.hubs import Socket, message_b
from tests.unit.hub.test_tokens import SECRET, token


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
