"""scripts/bench hub: that it takes nothing for right that is not, and what it sends and counts.

Its figures are no matter of tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import AcceptConnection, Message, Request

from benchlib.hubcases import GROUPS, acked, fan_100
from benchlib.hubwires import (
    ENVELOPES,
    HUB,
    HUB_FROM_LINE,
    MINIMAL,
    MQTT,
    NATS,
    SYNAP,
    Hub,
    WebSocketWire,
    compact,
)
from benchlib.protocols import WIRES, Want
from benchlib.traffic import Load
from benchlib.websocket import (
    BINARY,
    TEXT,
    FrameError,
    Frames,
    PayloadCounter,
    accepts,
    client_frame,
    server_frame,
    upgrade,
)
from tests.daemons import DEADLINE, ROOT

BENCH = ROOT / "scripts" / "bench"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=2 * DEADLINE, check=False
    )


HUB_OPTIONS = ["--quick", "--runs", "1", "--seconds", "0.05", "--extra", "0"]


def test_every_hub_case_is_correct_with_the_daemon() -> None:
    # Not the two whose many connections or actors take their time.
    cases = [name for name in GROUPS["hub"] if name not in ("idle-actors", "discover")]
    done = bench(*cases, "--servers", "pubsubd", *HUB_OPTIONS, "--python", sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert [name for name in cases if name not in shown] == []


# Runs what it is given, altered.
ALTERED = """#!{python}
import sys

if sys.argv[1] == "-c":
    sys.exit()  # the question whether the package is there
source = open(sys.argv[1]).read()
assert {old!r} in source
sys.argv = sys.argv[1:]
exec(compile(source.replace({old!r}, {new!r}), "minimal", "exec"), {{"__name__": "__main__"}})
"""

TWICE = """broadcast((receiver,), text)
        topics["sent"] = topics.get("sent", 0) + 1
        if topics["sent"] == 500:
            broadcast((receiver,), text)
"""
ACKNOWLEDGED_TWICE = """connection.send(publish(message))
                topics["sent"] = topics.get("sent", 0) + 1
                if topics["sent"] == 500:
                    await connection.send(answer(message, "hub:published", {"topic": "bench"}))
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("", "", ""),
        # Seen in the measured time, or at the end of a time with fewer messages than that.
        ("broadcast((receiver,), text)\n", TWICE, "bytes of|instead of"),
        ("connection.send(publish(message))\n", ACKNOWLEDGED_TWICE, "bytes of|instead of"),
        ('"to": to,', '"to": sender,', "instead of"),
        ('[connection] = message["from"]', '[connection] = "@(bench/x)"', "different from byte"),
        ('"id": str(uuid.uuid4())', '"id": "1"', "instead of"),
        ('payload["data"], sender', 'payload["data"].upper(), sender', "different from byte"),
        ('"subscriberCount": len(receivers)', '"subscriberCount": 2', "different from byte"),
        ('correlationId=message["id"]', "correlationId=str(uuid.uuid4())", "instead of"),
        ('"publication": True', '"publication": 1', "different from byte"),
        ('payload["type"], payload["data"]', '"x", payload["data"]', "different from byte"),
    ],
    ids=[
        "right",
        "twice",
        "ack",
        "to",
        "receiver",
        "id",
        "data",
        "count",
        "correlation",
        "mark",
        "type",
    ],
)
def test_a_hub_message_that_is_wrong_fails_the_run(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    server = tmp_path / "python"
    server.write_text(ALTERED.format(python=sys.executable, old=old, new=new))
    server.chmod(0o755)
    options = ["--servers", "websockets", *HUB_OPTIONS, "--python", str(server)]
    done = bench("ws-one-acked", *options)
    assert done.returncode == bool(complaint), done.stdout + done.stderr
    assert re.search(complaint, done.stdout), done.stdout


def heard(frames: bytes) -> list[bytes]:
    """The messages in client frames, read by another implementation."""
    connection = Connection(ConnectionType.SERVER)
    connection.receive_data(frames)
    events = list(connection.events())
    assert all(isinstance(event, Message) and event.message_finished for event in events)
    return [
        bytes(event.data, "utf-8") if isinstance(event.data, str) else bytes(event.data)
        for event in events
        if isinstance(event, Message)
    ]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_client_frames_are_read_by_another_implementation(size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    frame = client_frame(BINARY, payload)
    assert b"".join(heard(frame)) == payload
    assert size < 4 or payload not in frame  # it is masked


def test_the_upgrade_is_agreed_upon_with_another_implementation() -> None:
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(upgrade(9015, "/ws", "mqtt"))
    (request,) = server.events()
    assert isinstance(request, Request)
    assert (request.target, request.host) == ("/ws", "127.0.0.1:9015")
    assert request.subprotocols == ["mqtt"]
    answer = server.send(AcceptConnection(subprotocol="mqtt"))
    assert accepts(answer)
    assert not accepts(answer.replace(b"101", b"200"))
    assert not accepts(answer.replace(b"Accept: ", b"Accept: x"))
    assert not accepts(answer[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` in pieces, cut at these places."""
    places = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


payloads = st.lists(st.integers(0, 300) | st.sampled_from([65535, 65536]), max_size=5).map(
    lambda sizes: [bytes([65 + i]) * size for i, size in enumerate(sizes)]
)


@given(payloads, st.lists(st.integers(0, 1 << 17), max_size=8))
def test_messages_are_the_same_in_whatever_pieces_they_come(
    messages: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(server_frame(TEXT, message) for message in messages)
    frames, counter = Frames(TEXT), PayloadCounter()
    pieces = cut(stream, cuts)
    assert [message for piece in pieces for message in frames.feed(piece)] == messages
    counted = sum(counter.count(memoryview(piece)) for piece in pieces)
    assert counted == sum(map(len, messages))


@pytest.mark.parametrize(
    "frame",
    [
        server_frame(BINARY, b"x"),
        b"\x01\x01x",  # more is to follow
        b"\xc1\x01x",  # compressed
        client_frame(TEXT, b"x"),
        server_frame(9, b""),
        server_frame(8, b"\x03\xf5slow"),
    ],
    ids=["binary", "fragment", "compressed", "masked", "ping", "close"],
)
def test_only_whole_plain_messages_are_accepted(frame: bytes) -> None:
    with pytest.raises(FrameError):
        Frames(TEXT).feed(server_frame(TEXT, b"before") + frame)


ME = "@(bench/me)"
IDS = "bea4d5ae-e3fa-4e1c-b1b5-2a5b9a4f6fbb"


def hub_message(kind: str, payload: Any, **more: Any) -> dict[str, Any]:
    """A message of ``hub:*`` as a server sends it, written by hand."""
    return {
        "id": IDS,
        "from": "@(cloudflare/signal-hub)",
        "to": ME,
        "type": kind,
        "payload": payload,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": 1764300000000,
        "metadata": {},
        "ttl": None,
        "signature": None,
    } | more


PUBLISHED = {
    "topic": "n7",
    "publication": True,
    "forwarded": True,
    "via": "@(x/hub)",
}
RECEIVED: list[tuple[WebSocketWire, dict[str, Any], bytes]] = [
    (Hub(ME), {"type": "pong"}, b"pong\n"),
    (Hub(ME), hub_message("hub:connected", {}, correlationId="a"), b"hub:connected a\n"),
    (
        Hub(ME),
        hub_message("hub:registered", {"actorAddress": ME}, correlationId="a"),
        b"hub:registered @(bench/me) a\n",
    ),
    (
        Hub(ME),
        hub_message("hub:published", {"topic": "n7", "subscriberCount": 3}, correlationId="a"),
        b"hub:published n7 3 a\n",
    ),
    (
        Hub(ME),
        hub_message("bench:message", "hello", metadata=PUBLISHED),
        b"n7 5 hello\n",
    ),
    (
        HUB_FROM_LINE.of(ME),
        hub_message("pubsub:message", {"name": "n7", "data": "hello"}, metadata=PUBLISHED),
        b"n7 5 hello\n",
    ),
    (ENVELOPES, {"type": "n7", "id": "1", "payload": "hello"}, b"n7 5 hello\n"),
    (
        SYNAP,
        {
            "type": "message",
            "message_id": IDS,
            "topic": "n7",
            "payload": "hello",
            "message": "hello",
            "metadata": None,
            "timestamp": 1764300000,
        },
        b"n7 5 hello\n",
    ),
    (
        SYNAP,
        {
            "success": True,
            "request_id": "a",
            "payload": {"message_id": IDS, "topic": "n7", "subscribers_matched": 3},
            "error": None,
        },
        b"published n7 3 a\n",
    ),
    (MINIMAL, {"type": "message", "topic": "n7", "data": "hello"}, b"n7 5 hello\n"),
]


@pytest.mark.parametrize(("wire", "message", "told"), RECEIVED)
def test_a_received_message_is_told_by_what_is_known_beforehand(
    wire: WebSocketWire, message: dict[str, Any], told: bytes
) -> None:
    assert wire.read(compact(message)) == told


@pytest.mark.parametrize(("wire", "message", "told"), RECEIVED)
@pytest.mark.parametrize("wrong", [None, 7, "wrong", {}, []], ids=repr)
def test_a_received_message_with_a_wrong_field_is_told_differently(
    wire: WebSocketWire, message: dict[str, Any], told: bytes, wrong: Any
) -> None:
    unchecked = {"timestamp", "ttl", "signature", "metadata", "from", "error", "correlationId"}
    for key in message.keys() - unchecked:
        if message[key] != wrong:
            assert wire.read(compact(message | {key: wrong})) != told, key
    assert wire.read(b"[" * 100_000) != told
    assert wire.read(compact(message)[:-1]) != told


@pytest.mark.parametrize("wire", [HUB, SYNAP, MINIMAL], ids=["hub", "synap", "minimal"])
def test_each_acknowledgement_is_told_from_every_other(wire: WebSocketWire) -> None:
    load = Load(acked(), wire)
    lines = load.answer.splitlines()
    assert len(set(lines)) == len(lines) == load.messages == 32


HUB_SENT: list[tuple[WebSocketWire, dict[str, Any], dict[str, Any]]] = [
    (
        Hub(ME),
        {
            "from": ME,
            "to": "@(cloudflare/signal-hub)",
            "type": "hub:publish",
            "payload": {"topic": "n7", "type": "bench:message", "data": "hello"},
            "pattern": "tell",
            "correlationId": None,
            "metadata": {},
            "ttl": None,
            "signature": None,
        },
        {"type": "hub:subscribe", "payload": {"topic": "n7", "durable": False}, "from": ME},
    ),
    (
        ENVELOPES,
        {"type": "n7", "id": "1", "payload": "hello"},
        {"type": "__subscribe", "id": "", "payload": {"topic": "n7:1"}},
    ),
    (
        SYNAP,
        {"command": "pubsub.publish", "payload": {"topic": "n7", "payload": "hello"}},
        {"command": "pubsub.subscribe", "payload": {"topics": ["n7"]}},
    ),
    (
        MINIMAL,
        {"type": "publish", "topic": "n7", "data": "hello"},
        {"type": "subscribe", "topic": "n7"},
    ),
]


@pytest.mark.parametrize(("wire", "publish", "subscribe"), HUB_SENT)
def test_json_messages_are_those_written_by_hand(
    wire: WebSocketWire, publish: dict[str, Any], subscribe: dict[str, Any]
) -> None:
    sent = wire.publish(b"n7", b"hello") + wire.subscribe(0, Want("exact", b"n7"))
    for message, expected in zip(map(json.loads, heard(sent)), (publish, subscribe), strict=True):
        assert {key: message[key] for key in expected} == expected


@pytest.mark.parametrize("wire", [NATS, MQTT], ids=["nats", "mqtt"])
def test_the_peers_commands_are_their_own_in_frames(wire: WebSocketWire) -> None:
    own = WIRES["nats" if wire is NATS else "mosquitto"]
    want = Want("exact", b"n7")
    sent = wire.hello + wire.publish(b"n7", b"hello") + wire.subscribe(0, want) + wire.ping
    commands = [own.hello, own.publish(b"n7", b"hello"), own.subscribe(0, want), own.ping]
    assert heard(sent) == commands
    assert wire.deliver(0, want, b"n7", b"hello") == own.deliver(0, want, b"n7", b"hello")
    assert wire.read(b"anything") == b"anything"


def test_all_publish_the_same_to_a_hundred_subscribers() -> None:
    for wire in (HUB, ENVELOPES, SYNAP, MINIMAL, NATS, MQTT):
        load = Load(fan_100(), wire)
        assert len(load.streams) == 100
        for _, payload in fan_100().messages:
            assert len(payload) == 128
            assert payload in load.streams[99]
