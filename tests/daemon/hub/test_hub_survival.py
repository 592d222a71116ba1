"""What the hub port survives: one stated error or close each, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.daemons import DEADLINE, KIB, MIB, Daemon, Line, frames, wait_until
from tests.hubs import UPGRADE, Lines, Socket, client_frame, connect_a, message_a, message_b


class Raw(Lines):
    """A WebSocket whose bytes the test writes and reads itself."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.say_raw(UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.hear_raw(1)
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        self.head = answer

    def hear_frame(self) -> tuple[int, bytes]:
        """Return opcode and data of the next frame."""
        first, size = self.hear_raw(2)
        assert first & 0x80
        if size == 126:
            (size,) = struct.unpack(">H", self.hear_raw(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self.hear_raw(8))
        return first & 0x0F, self.hear_raw(size)

    def hear_close(self) -> tuple[int, str]:
        """Return code and reason of the close that comes next."""
        opcode, data = self.hear_frame()
        assert opcode == 8, (opcode, data)
        return struct.unpack(">H", data[:2])[0], data[2:].decode()


class Watch:
    """A stream of the line port to a WebSocket, beside whatever else happens."""

    def __init__(self, daemon: Daemon) -> None:
        self.line, self.web = Line(daemon.address), Socket(daemon)
        self.web.ask(message_b("hub:subscribe", {"topic": "watch"}))
        self.count = 0

    def check(self) -> None:
        """Fail unless a message still comes through at once and nothing else has come."""
        self.count += 1
        self.line.say(f"pub watch {len(str(self.count))} {self.count}\n".encode())
        assert self.web.hear()["payload"] == {"name": "watch", "data": str(self.count)}
        assert self.line.ping() == b""


@pytest.fixture(scope="module")
def watch(shared: Daemon) -> Iterator[Watch]:
    one = Watch(shared)
    yield one
    one.line.close()
    one.web.close()


@pytest.fixture
def raw(shared: Daemon) -> Iterator[Raw]:
    one = Raw(shared)
    yield one
    one.close()


# Frames


def test_a_message_one_byte_too_long_is_refused_and_the_socket_stays_open(
    shared: Daemon, watch: Watch
) -> None:
    web = Socket(shared)
    head = json.dumps(message_b("hub:publish", {"topic": "t", "type": "x", "data": ""}))
    fits = head.replace('"data": ""', '"data": "%s"' % ("y" * (MIB - len(head))))
    assert len(fits) == MIB
    web.connection.send(fits)
    # It fits; as line data, to which `from` is added, it is over the line port's limit or not.
    assert web.hear()["type"] in ("hub:delivery_ack", "hub:error")
    web.connection.send(fits.replace("yyyy", "yyyyy", 1))
    told = web.hear()["payload"]
    assert told["code"] == "message_too_large"
    assert told["details"] == {"actualSize": MIB + 1, "maxSize": MIB}
    assert web.quiet()
    watch.check()
    web.close()


def test_a_frame_that_announces_almost_everything_is_refused_at_once(
    shared: Daemon, raw: Raw, watch: Watch
) -> None:
    before = shared.memory()
    raw.say_raw(bytes([0x81, 0xFF]) + struct.pack(">Q", 2**63 - 1) + b"abcd" + b"x" * 1000)
    assert raw.hear_close()[0] == 1009
    assert raw.hear_rest() == b""
    assert shared.memory() - before < 4 * MIB
    watch.check()


@pytest.mark.parametrize(
    "frame",
    [
        bytes([0x81, 0x05]) + b"hello",
        client_frame(b"x", 0x83),
        client_frame(b"x", 0xC1),
        client_frame(b"x", 0x80),
        client_frame(b"x" * 126, 0x89),
        client_frame(b"x", 0x09),
        client_frame(b"\x03", 0x88),
        client_frame(struct.pack(">H", 1005), 0x88),
        bytes([0x81, 0xFF]) + struct.pack(">Q", 2**63 + 5) + b"abcd",
    ],
    ids=[
        "unmasked", "opcode", "reserved bit", "continuation of nothing", "long ping",
        "fragmented ping", "short close", "bad close code", "negative length",
    ],
)  # fmt: skip
def test_a_frame_that_breaks_the_protocol_ends_the_connection_with_a_code(
    raw: Raw, watch: Watch, frame: bytes
) -> None:
    raw.say_raw(frame)
    assert raw.hear_close()[0] in (1002, 1009)
    assert raw.hear_rest() == b""
    watch.check()


def test_fragments_of_one_byte_with_a_ping_between_are_one_message(raw: Raw) -> None:
    text = json.dumps({"type": "ping"}).encode()
    pieces = [client_frame(text[:1], 0x01)]
    for at in range(1, len(text) - 1):
        pieces.append(client_frame(text[at : at + 1], 0x00))
        pieces.append(client_frame(b"%d" % at, 0x89))
    pieces.append(client_frame(text[-1:], 0x80))
    for byte in b"".join(pieces):
        raw.say_raw(bytes([byte]))
    for at in range(1, len(text) - 1):
        assert raw.hear_frame() == (10, b"%d" % at)
    opcode, data = raw.hear_frame()
    assert (opcode, json.loads(data)) == (1, {"type": "pong"})


def test_compression_is_not_agreed_on(shared: Daemon) -> None:
    lines = Lines(shared)
    offer = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    lines.say_raw(UPGRADE.replace(b"\r\n\r\n", b"\r\n" + offer))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += lines.hear_raw(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in head.lower()
    lines.close()


def test_a_close_in_the_middle_of_a_message_is_counted_and_forgotten(
    shared: Daemon, watch: Watch
) -> None:
    line = Line(shared.address)
    before = line.stats()["half_frames"]
    one = Raw(shared)
    one.say_raw(client_frame(b'{"type":"hub:publish"')[:-5])
    one.close()
    wait_until(lambda: line.stats()["half_frames"] == before + 1, "the half message to be counted")
    watch.check()
    line.close()


def test_the_clients_own_close_is_answered_with_its_code(raw: Raw) -> None:
    raw.say_raw(client_frame(struct.pack(">H", 1001) + b"bye", 0x88))
    assert raw.hear_close()[0] == 1001
    assert raw.hear_rest() == b""


# Texts


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"type":"hub:x","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"hub:x","payload":' + b"9" * 100_000 + b"}",
        b'{"type":"hub:x","type":"hub:y"}',
        b'{"type":"\\udc00"}',
        b'{"type":"\xff\xfe"}',
        b"\x00\x01\x02",
        b"",
        b"not json",
    ],
    ids=[
        "deep",
        "deep inside",
        "huge number",
        "twice",
        "surrogate",
        "utf-8",
        "bytes",
        "empty",
        "text",
    ],
)
@pytest.mark.parametrize("first", [0x81, 0x82], ids=["text", "binary"])
def test_what_is_no_json_is_told_and_closed_with_1011(
    raw: Raw, watch: Watch, text: bytes, first: int
) -> None:
    raw.say_raw(client_frame(text, first))
    opcode, data = raw.hear_frame()
    told = json.loads(data)
    assert opcode == 1
    assert told["type"] == "hub:error"
    assert told["payload"]["code"] == "internal_error"
    assert raw.hear_close()[0] == 1011
    assert raw.hear_rest() == b""
    watch.check()


@pytest.mark.parametrize("bad", ["a b", "a\r", "a\n", "a\npub watch 1 x\n", "\u2028 ", "a\x00 b"])
def test_no_part_of_a_message_can_become_a_command_of_the_line_port(
    shared: Daemon, watch: Watch, bad: str
) -> None:
    line, web = Line(shared.address), Socket(shared)
    line.say(b"sub watch\nsub a\n")
    line.ping()
    for message in (
        message_b("hub:publish", {"topic": bad, "type": "x", "data": 1}),
        message_b("hub:subscribe", {"topic": bad}),
        message_b("hub:publish", {"topic": "ok", "type": bad, "data": 1}),
        message_b("hub:register", {"actorAddress": f"x/{bad}", "capabilities": ["x"]}),
        message_b("hub:send", {"type": "x", "data": 1}, to=f"x/{bad}"),
        {"command": "pubsub.publish", "request_id": "1", "payload": {"topic": bad, "payload": 1}},
        {"command": "pubsub.subscribe", "request_id": "1", "payload": {"topics": [bad]}},
    ):
        answer = web.ask(message)
        assert answer.get("type") == "hub:error" or answer.get("success") is False, (
            message,
            answer,
        )
    web.say({"type": bad, "id": "1", "payload": 1}, {"type": "a", "id": bad, "payload": 1})
    assert web.quiet()
    assert line.ping() == b""
    watch.check()
    line.close()
    web.close()


def test_text_that_looks_like_a_command_arrives_as_the_text_it_is(shared: Daemon) -> None:
    line, web = Line(shared.address), Socket(shared)
    line.say(b"sub looks\n")
    line.ping()
    web.ask(message_b("hub:publish", {"topic": "looks", "type": "x", "data": "\npub looks 1 x\n"}))
    ((_, data),) = frames(line.ping())
    assert json.loads(data)["payload"] == "\npub looks 1 x\n"
    line.close()
    web.close()


def test_a_hostile_regular_expression_does_not_stop_the_daemon(
    start: Callable[..., Daemon],
) -> None:
    daemon = start("--hub-rate", "0")
    web = Socket(daemon)
    for number in range(500):
        address = f"aaaa/{'a' * 200}{number}"
        web.ask(message_b("hub:register", {"actorAddress": address, "capabilities": ["x"]}))
    answer = web.ask(message_b("hub:discover", {"pattern": "(a+)+$"}))  # for ever, by backtracking
    assert answer["payload"]["total"] == 0
    answer = web.ask(message_b("hub:discover", {"pattern": "(a*)*b" + "(x{0,1000}){0,1000}"}))
    assert answer["type"] == "hub:error"
    web.close()


# Clients that misbehave


def test_200_clients_that_reset_at_every_stage_leave_nothing(start: Callable[..., Daemon]) -> None:
    daemon = start()
    watch = Watch(daemon)
    watch.check()
    descriptors = daemon.descriptors()
    stages = [
        b"",
        b"GET /w",
        UPGRADE[:-2],
        UPGRADE,
        UPGRADE + client_frame(b'{"type":"ping"}')[:3],
        UPGRADE + client_frame(json.dumps(message_b("hub:subscribe", {"topic": "watch"})).encode()),
        UPGRADE
        + client_frame(json.dumps(message_a("hub:connect", metadata=connect_a())).encode())
        + client_frame(
            json.dumps(
                message_a("hub:register", {"actorAddress": "@(x/y)", "capabilities": ["x"]})
            ).encode()
        ),
        b'{"type":',
        json.dumps({"command": "pubsub.subscribe", "payload": {"topics": ["watch", "#"]}}).encode()
        + b"\n",
        b"POST /api/v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    ]

    def misbehave(number: int) -> None:
        one = socket.create_connection(daemon.hub, timeout=DEADLINE)
        one.sendall(stages[number % len(stages)])
        if number % 3 == 0:
            one.settimeout(0.01)
            with contextlib.suppress(OSError):
                one.recv(100)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()

    threads = [threading.Thread(target=misbehave, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.check()
    line = Line(daemon.address)
    wait_until(lambda: line.stats()["connections"] == 3, "the last of them to be gone")
    wait_until(lambda: daemon.descriptors() == descriptors + 1, "their descriptors to be closed")
    assert line.stats()["subscriptions"] == 1
    listed = watch.web.ask(message_b("hub:list_actors", {}))
    assert listed["payload"]["total"] == 0
    watch.check()
    for one in (line, watch.line, watch.web):
        one.close()


def test_a_client_that_stops_reading_is_cut_with_1013_and_named(
    start: Callable[..., Daemon],
) -> None:
    daemon = start("--hub-max-pending", "256KiB", "--stall-timeout", "0.05")
    watch = Watch(daemon)
    slow = Raw(daemon)
    subscribe = {"type": "__subscribe", "id": "", "payload": {"topic": "flood:1"}}
    slow.say_raw(client_frame(json.dumps(subscribe).encode()))
    slow.say_raw(client_frame(b"before", 0x89))
    assert slow.hear_frame() == (10, b"before")
    line = Line(daemon.address)
    line.say(b"sub //pubsubd/events\n")
    data = b"x" * 65_536
    for _ in range(400):
        line.say(b"pub flood:1 %d %b\n" % (len(data), data))
    name, told = line.hear_frame()
    assert name == "//pubsubd/events"
    event = json.loads(told)
    assert (event["reason"], event["peer"]) == ("slow-consumer", slow.label)
    assert line.stats()["closed"]["slow-consumer"] == 1
    daemon.wait_log(f'peer={slow.label} listener="hub" reason=slow-consumer')
    while True:
        opcode, data = slow.hear_frame()
        if opcode == 8:
            break
        assert json.loads(data)["type"] == "flood"  # whole to the last one
    assert struct.unpack(">H", data[:2])[0] == 1013
    assert data[2:].startswith(b"slow-consumer")
    watch.check()
    for one in (line, slow, watch.line, watch.web):
        one.close()


def test_a_ping_is_answered_while_messages_wait(start: Callable[..., Daemon]) -> None:
    daemon = start()
    slow = Raw(daemon)
    subscribe = {"type": "__subscribe", "id": "", "payload": {"topic": "some:1"}}
    slow.say_raw(client_frame(json.dumps(subscribe).encode()) + client_frame(b"1", 0x89))
    assert slow.hear_frame() == (10, b"1")
    line = Line(daemon.address)
    line.say(b"pub some:1 600000 " + b"x" * 600_000 + b"\n")
    line.ping()
    slow.say_raw(client_frame(b"2", 0x89))
    assert len(slow.hear_frame()[1]) > 600_000
    assert slow.hear_frame() == (10, b"2")
    line.close()
    slow.close()


def test_old_sessions_leave_nothing_behind(start: Callable[..., Daemon]) -> None:
    daemon = start("--hub-rate", "0")
    line = Line(daemon.address)

    def round_of(count: int) -> None:
        webs = [Socket(daemon) for _ in range(count)]
        for number, web in enumerate(webs):
            me = f"@(browser/n{number})"
            web.ask(message_a("hub:connect", me=me, metadata=connect_a()))
            web.ask(message_a("hub:register", {"actorAddress": me, "capabilities": ["x"]}, me=me))
            topics = [{"topic": f"t{number}/{topic}"} for topic in range(20)]
            web.say(*[message_a("hub:subscribe", topic, me=me) for topic in topics])
            for _ in topics:
                assert web.hear()["type"] == "hub:subscribed"
            web.ask({"command": "pubsub.subscribe", "payload": {"topics": [f"s{number}.*"]}})
        for web in webs:
            web.close()
        wait_until(lambda: line.stats()["connections"] == 1, "all to be gone")

    line.ping()
    descriptors = daemon.descriptors()
    round_of(50)
    memory = daemon.memory()
    for _ in range(3):
        round_of(50)
    wait_until(lambda: daemon.descriptors() == descriptors, "all sockets are closed")
    assert line.stats()["subscriptions"] == 0
    assert daemon.memory() - memory < 2 * MIB
    line.close()


def test_a_request_that_is_too_large_or_no_request_is_refused(shared: Daemon, watch: Watch) -> None:
    for said, status in (
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * (20 * KIB) + b"\r\n\r\n", b"431"),
        (
            b"POST /api/v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n",
            b"413",
        ),
        (b"bogus\r\n\r\n", b"400"),
        (os.urandom(64).replace(b"{", b"x").replace(b"\n", b"x") + b"\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"4"),
    ):
        lines = Lines(shared)
        lines.say_raw(b"x" + said if said[:1].isspace() else said)
        assert lines.hear_raw(12).startswith(b"HTTP/1.1 " + status), said[:40]
        lines.close()
    watch.check()


def test_half_a_message_and_then_silence_is_cut(start: Callable[..., Daemon]) -> None:
    daemon = start("--command-timeout", "0.5")
    cut: list[Any] = [Raw(daemon), Lines(daemon), Lines(daemon)]
    cut[0].say_raw(client_frame(b'{"type":"ping"}')[:-3])
    cut[1].say_raw(b'{"type":')
    cut[2].say_raw(b"GET /hea")
    idle = Socket(daemon)
    assert cut[0].hear_close()[0] == 1008
    assert cut[1].hear()["payload"]["details"] == {"reason": "command-timeout"}
    cut[2].hear_rest()
    assert idle.quiet()
    for one in (*cut, idle):
        one.close()


def test_connections_over_the_limit_are_told(start: Callable[..., Daemon]) -> None:
    daemon = start("--max-connections", "1")
    first = Lines(daemon)
    assert first.ask({"type": "ping"}) == {"type": "pong"}
    second = Lines(daemon)
    told = second.hear_rest()
    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"too-many-connections" in told
    first.close()
    second.close()


def test_a_client_that_has_been_refused_everything_can_still_go_on(shared: Daemon) -> None:
    web = Socket(shared)
    for message in ({}, [], 7, {"type": "hub:nothing"}, {"command": "x"}):
        web.ask(message)
    assert web.quiet()
    web.connection.send("no json")
    assert web.hear()["type"] == "hub:error"
    with pytest.raises(ConnectionClosed):
        web.hear()
