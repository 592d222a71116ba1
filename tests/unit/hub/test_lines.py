"""The line protocol over WebSocket, without sockets; wsproto is the client."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from pubsubd.access.identity import Identity
from pubsubd.hub.frames import LINES_IN_WEBSOCKET
from pubsubd.protocol.limits import Limits
from pubsubd.protocol.wire import Decoder
from tests.hubs import UPGRADE, Room, client_frame, message_b
from tests.rights import PASSWORD, rules_in
from tests.unit.broker.test_logins import Authority

LINE = UPGRADE.replace(b"/ws", b"/line")
ERROR = b"//pubsubd/error"


class Browser:
    """One that speaks the line protocol over a WebSocket."""

    def __init__(self, room: Room, name: str, *, header: bytes = b"") -> None:
        self._room, self._name = room, name
        room.join(name)
        room.say_raw(name, LINE.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n", 1))
        self.answer, _, room.heard[name] = room.heard[name].partition(b"\r\n\r\n")
        self._client = Connection(ConnectionType.CLIENT)

    def say(self, *texts: bytes) -> None:
        self._room.say_raw(self._name, b"".join(map(client_frame, texts)))

    def events(self) -> Iterator[Event]:
        room = self._room
        heard, room.heard[self._name] = room.heard[self._name], b""
        self._client.receive_data(heard)
        yield from self._client.events()

    def hears(self) -> list[Any]:
        """Return (name, data) of each frame, then the close code if it has ended."""
        found: list[Any] = []
        for event in self.events():
            if isinstance(event, BytesMessage):
                decoder = Decoder(1 << 30)
                found += decoder.feed(bytes(event.data))
                assert not decoder.incomplete, "a message has whole frames only"
            elif isinstance(event, CloseConnection):
                found.append((event.code, event.reason))
            else:
                found.append(event)
        return found


class Narrow(Authority):
    """Takes any token, for receiving only."""

    def verify(self, token: str, now: float) -> Identity:
        return Identity("browser/ann", frozenset({"subscribe"}), None)


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_browser_subscribes_substrings_and_makes_requests(room: Room) -> None:
    ann = Browser(room, "ann")
    room.join_line("bob")
    ann.say(b"sub hat\npub //pubsubd/ping - x\n")
    assert ann.hears() == [(b"//pubsubd/ping", b"x")]
    room.say_raw("bob", b"sub\npub chat 2 \xff\x00\npub tea 1 x\n")
    assert ann.hears() == [(b"chat", b"\xff\x00")]
    room.hears("bob")
    ann.say(b"pub hat - hello\n")
    assert ann.hears() == [(b"hat", b"hello")]
    assert room.hears("bob") == [(b"hat", b"hello")]
    assert room.connections["ann"].spoken == ("websocket", "line")


COMMANDS = (
    b"sub a", b"sub", b"unsub a", b"unsub", b"pub a 1 x", b"pub ab 0 ", b"pub b 300 " + b"y" * 300,
    b"pub a - typed", b"pub //pubsubd/ping 1 x", b"pub //pubsubd/nothing 0 ", b"bogus", b"sub a b",
    b"help", b"", b"pub a 1 wrong", b"quit",
)  # fmt: skip


@given(st.lists(st.sampled_from(COMMANDS), max_size=12), st.lists(st.integers(0, 80), max_size=8))
@example([*COMMANDS[:-2]], [1] * 40)
def test_whatever_is_said_is_answered_as_on_the_line_port(
    commands: list[bytes], sizes: list[int]
) -> None:
    """Wherever the messages of the WebSocket end: that means nothing."""
    stream = b"".join(command + b"\n" for command in commands)
    plain, room = Room(), Room()
    plain.join_line("ann")
    ann = Browser(room, "ann")
    plain.say_raw("ann", stream)
    parts = []
    for size in sizes:
        part, stream = stream[:size], stream[size:]
        parts.append(part)
    ann.say(*parts, stream)
    frames = [one for one in ann.hears() if isinstance(one[0], bytes)]
    assert frames == plain.hears("ann")


def test_a_message_that_names_another_sender_is_not_believed(room: Room) -> None:
    ann = Browser(room, "ann")
    room.join("bob")
    room.ask("bob", message_b("hub:subscribe", {"topic": "t"}))
    ann.say(b'pub t - {"type":"note","from":"browser/boss","payload":1}\n')
    (message,) = room.hears("bob")
    assert message["from"].startswith("tcp/")


def test_pings_between_commands_are_answered_in_order(room: Room) -> None:
    ann = Browser(room, "ann")
    room.say_raw("ann", client_frame(b"sub a\npub a 1 x\n") + client_frame(b"p", 0x89) * 2)
    assert [type(event) for event in ann.hears()] == [tuple, Pong, Pong]


def test_a_fault_is_told_and_closes_the_websocket(room: Room) -> None:
    ann = Browser(room, "ann")
    ann.say(b"sub a\npub a 1 hello\n", b"pub a 1 x\n")
    (name, data), (code, reason) = ann.hears()
    assert name == ERROR
    assert data.startswith(b"wrong-length ")
    assert (code, reason[:12]) == (1000, "wrong-length")
    assert room.ended["ann"][0] == "wrong-length"


def test_whoever_ends_it_from_outside_is_told_about(room: Room) -> None:
    ann = Browser(room, "ann")
    room.connections["ann"].end("killed", "ended by root")
    assert ann.hears() == [(ERROR, b"killed ended by root"), (1008, "killed: ended by root")]


def test_any_command_fits_into_one_message_and_what_is_larger_ends_the_connection() -> None:
    room = Room(line_limits=Limits(max_payload=100_000), max_message=500)
    ann = Browser(room, "ann")
    command = b"sub a\npub a 100000 %b\n" % (b"x" * 100_000)
    ann.say(command)
    assert ann.hears() == [(b"a", b"x" * 100_000)]
    ann.say(b"x" * 110_000)
    error, close = ann.hears()
    assert error[1].startswith(b"bad-websocket a message of 110000 bytes, over 10")
    assert close[0] == 1009


def test_a_login_goes_as_on_the_line_port_and_the_third_failure_is_the_last(room: Room) -> None:
    room.hub.listener.login = True
    rules_in(room.broker, ann=PASSWORD)
    ann, eve = Browser(room, "ann"), Browser(room, "eve")
    ann.say(b"sub a\npub //pubsubd/auth - ann %b\n" % PASSWORD.encode(), b"sub a\npub a 1 x\n")
    refused, *rest = ann.hears()
    assert refused[1].startswith(b"login-required")
    assert rest == [(b"//pubsubd/auth", b"ok ann"), (b"a", b"x")]
    for _ in range(3):
        eve.say(b"pub //pubsubd/auth - eve wrong\n")
        room.tick(60)
    *_, error, close = eve.hears()
    assert error[1].startswith(b"too-many-failures")
    assert close[1].startswith("too-many-failures")


def test_a_login_of_the_request_counts(room: Room) -> None:
    room.hub.listener.login = True
    rules_in(room.broker, ann=PASSWORD)
    secret = base64.b64encode(b"ann:" + PASSWORD.encode())
    ann = Browser(room, "ann", header=b"Authorization: Basic %b\r\n" % secret)
    ann.say(b"sub a\npub a 1 x\n")
    assert ann.hears() == [(b"a", b"x")]


def test_a_token_that_allows_less_than_the_line_protocol_is_refused() -> None:
    room = Room(authority=Narrow())
    ann = Browser(room, "ann", header=b"Authorization: Bearer x\r\n")
    assert ann.answer.startswith(b"HTTP/1.1 403 ")


def test_a_page_from_elsewhere_is_refused(room: Room) -> None:
    assert Browser(room, "eve", header=b"Origin: https://attacker.example\r\n").answer.startswith(
        b"HTTP/1.1 403 "
    )


def test_frames_are_counted_and_cut_inside_of_the_messages() -> None:
    frames = [b"pub a 1 x\n" * 3, b"pub a 200 %b\n" % (b"y" * 200), b"pub b 0 \n"]
    chunk = b"".join(map(LINES_IN_WEBSOCKET.frame, frames)) + b"\x8a\x00"
    assert LINES_IN_WEBSOCKET.count_frames(chunk) == 5
    assert LINES_IN_WEBSOCKET.end_of_frame(chunk, 5) == 2 + 30


def test_a_text_message_is_as_good_as_a_binary_one(room: Room) -> None:
    ann = Browser(room, "ann")
    client = Connection(ConnectionType.CLIENT)
    texts = TextMessage("sub é\npub é 1 x\n"), BytesMessage("pub é 1 y\n".encode()), Ping()
    room.say_raw("ann", b"".join(bytes(client.send(text)) for text in texts))
    assert ann.hears()[:2] == [("é".encode(), b"x"), ("é".encode(), b"y")]
