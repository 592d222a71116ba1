"""Frames of the hub port: WebSocket, with wsproto as the other side and as the model; and lines."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason

from pubsubd.hub.frames import NDJSON, WEBSOCKET, Closed, Framing, Send, TooLarge, close_frame
from pubsubd.hub.line_reader import LineReader
from pubsubd.hub.websocket_reader import WebSocketReader

MOST = 70_000  # of a message, in these tests, unless they say something else
EDGES = [0, 1, 3, 4, 5, 125, 126, 127, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, MOST]

cuts = st.lists(st.integers(0, 2_000), max_size=20)


def client(*events: Event) -> bytes:
    """Return what wsproto's client sends."""
    connection = Connection(ConnectionType.CLIENT)
    return b"".join(bytes(connection.send(event)) for event in events)


def masked(first: int, payload: bytes = b"", mask: bytes = b"\x01\x20\xff\x7a") -> bytes:
    """Return a frame of any first byte, as a client masks it."""
    size = len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65_536:
        head = bytes((first, 0xFE)) + size.to_bytes(2)
    else:
        head = bytes((first, 0xFF)) + size.to_bytes(8)
    pad = (mask * (size // 4 + 1))[:size]
    return head + mask + (int.from_bytes(payload) ^ int.from_bytes(pad)).to_bytes(size)


def read(reader: Any, stream: bytes, sizes: list[int]) -> list[Any]:
    """Return what a reader finds in a stream that comes in pieces of these sizes, then the rest."""
    found = []
    for size in sizes:
        piece, stream = stream[:size], stream[size:]
        if piece:
            found += reader.receive(piece)
    return found + (reader.receive(stream) if stream else [])


def read_anyhow(make: Callable[[], Any], stream: bytes) -> list[Any]:
    """Return what a reader finds, which must be the same whole, bytewise and in pieces."""
    whole = read(make(), stream, [])
    for size in (1, 2, 7, 1_000):
        assert read(make(), stream, [size] * (len(stream) // size)) == whole
    return whole


def sockets(max_message: int = MOST) -> Callable[[], WebSocketReader]:
    return lambda: WebSocketReader(max_message)


def reads_back(frame: bytes) -> list[Event]:
    """Return what wsproto's client makes of a server's frames."""
    connection = Connection(ConnectionType.CLIENT)
    connection.receive_data(frame)
    return list(connection.events())


@pytest.mark.parametrize("size", EDGES)
def test_a_message_of_any_size_is_read_in_one_piece(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    stream = client(BytesMessage(data[:size]), TextMessage("x" * size))
    assert read_anyhow(sockets(), stream) == [data[:size], b"x" * size]


@pytest.mark.parametrize("size", EDGES)
def test_a_frame_is_read_by_a_client_as_it_was_written(size: int) -> None:
    frame = WEBSOCKET.frame(b"x" * size)
    assert frame == WEBSOCKET.head(size) + b"x" * size + WEBSOCKET.tail
    assert "".join(event.data for event in reads_back(frame)) == "x" * size


fragments = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
actions = st.one_of(
    st.tuples(st.just("text"), st.text(max_size=300)),
    st.tuples(st.just("fragments"), st.tuples(fragments, st.binary(max_size=125))),
    st.tuples(st.just("ping"), st.binary(max_size=125)),
    st.tuples(st.just("pong"), st.binary(max_size=125)),
)


@given(st.lists(actions, max_size=12), cuts)
def test_what_a_client_sends_is_found_wherever_it_is_cut(
    todo: list[tuple[str, Any]], sizes: list[int]
) -> None:
    sent: list[Event] = []
    expected: list[Any] = []
    for kind, value in todo:
        if kind == "text":
            sent.append(TextMessage(value))
            message = value.encode()
            expected.append(message if len(message) <= 600 else TooLarge(len(message)))
        elif kind == "fragments":
            parts, ping = value
            for part in parts[:-1]:
                sent += [BytesMessage(part, message_finished=False), Ping(ping)]
                expected.append(Send(b"\x8a%c%b" % (len(ping), ping)))
            sent.append(BytesMessage(parts[-1]))
            message = b"".join(parts)
            expected.append(message if len(message) <= 600 else TooLarge(len(message)))
        elif kind == "ping":
            sent.append(Ping(value))
            expected.append(Send(b"\x8a%c%b" % (len(value), value)))
        else:
            sent.append(Pong(value))
    reader = WebSocketReader(600)
    assert read(reader, client(*sent), sizes) == expected
    assert not reader.halfway


def test_the_answer_to_a_ping_is_a_pong_to_a_client() -> None:
    (pong,) = WebSocketReader(MOST).receive(client(Ping(b"are you there?")))
    assert isinstance(pong, Send)
    assert reads_back(pong.data) == [Pong(b"are you there?")]


def test_a_fragmented_text_may_be_cut_inside_a_character() -> None:
    text = "né".encode()
    stream = masked(0x01, text[:2]) + masked(0x00) + masked(0x80, text[2:])
    assert read_anyhow(sockets(), stream) == [text]


def test_a_reader_is_halfway_until_the_last_byte_of_the_last_fragment() -> None:
    stream = masked(0x01, b"a") + masked(0x89) + masked(0x80, b"b" * 200)
    reader = WebSocketReader(MOST)
    states = []
    for at in range(len(stream)):
        reader.receive(stream[at : at + 1])
        states.append(reader.halfway)
    assert states == [True] * (len(stream) - 1) + [False]


# Too large


@pytest.mark.parametrize("size", [101, 126, 1_600])
def test_a_message_over_the_limit_is_skipped_and_told_once(size: int) -> None:
    stream = client(TextMessage("x" * 100), TextMessage("x" * size), TextMessage("next"))
    assert read_anyhow(sockets(100), stream) == [b"x" * 100, TooLarge(size), b"next"]


def test_it_is_told_as_soon_as_its_size_is_known_and_goes_on_being_skipped() -> None:
    reader = WebSocketReader(100)
    stream = client(TextMessage("x" * 1_000))
    assert reader.receive(stream[:4]) == [TooLarge(1_000)]
    assert reader.halfway
    assert reader.receive(stream[4:-1]) == []
    assert reader.halfway
    assert reader.receive(stream[-1:] + client(Ping())) == [Send(b"\x8a\0")]


def test_fragments_that_are_too_many_together_are_skipped_and_their_pings_answered() -> None:
    stream = client(
        TextMessage("x" * 60, message_finished=False),
        TextMessage("é" * 60, message_finished=False),
        Ping(b"1"),
        TextMessage("x", message_finished=False),
        Ping(b"2"),
        TextMessage("x" * 300),
        TextMessage("ne", message_finished=False),
        TextMessage("xt"),
    )
    expected = [Send(b"\x8a\x011"), Send(b"\x8a\x012"), TooLarge(60 + 120 + 1 + 300), b"next"]
    assert read_anyhow(sockets(100), stream) == expected


@pytest.mark.parametrize(
    "stream",
    [
        client(TextMessage("x" * 1_601)),
        client(*[BytesMessage(b"x" * 200, message_finished=False)] * 9),
        b"\x82\xff\x7f" + b"\xff" * 7,
    ],
)
def test_a_message_far_over_the_limit_ends_the_connection(stream: bytes) -> None:
    (closed,) = read_anyhow(sockets(100), stream)
    assert (closed.code, closed.reply[:4]) == (1009, b"\x88%c\x03\xf1" % (len(closed.reply) - 2))
    (event,) = reads_back(closed.reply)
    assert isinstance(event, CloseConnection)
    assert event.code == 1009


# The end


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1000, "bye"), (1001, None), (4999, "é" * 61), (CloseReason.NO_STATUS_RCVD, None)],
)
def test_a_close_is_echoed_and_nothing_comes_after_it(code: int, reason: str | None) -> None:
    stream = client(TextMessage("a"), CloseConnection(code, reason)) + masked(0x81, b"late")
    assert read_anyhow(sockets(), stream)[:1] == [b"a"]
    closed = read_anyhow(sockets(), stream)[1:]
    assert closed == [Closed(code, reason or "", close_frame(code, reason or ""))]
    side = Connection(ConnectionType.CLIENT)
    side.send(CloseConnection(code, reason))
    side.receive_data(closed[0].reply)
    assert [event.code for event in side.events() if isinstance(event, CloseConnection)] == [code]
    assert side.state is ConnectionState.CLOSED


def test_the_reason_is_told_as_a_printable_line() -> None:
    (closed,) = WebSocketReader(9).receive(client(CloseConnection(1000, "\x1b[2J\n")))
    assert isinstance(closed, Closed)
    assert closed.reason == "\\x1b[2J\\n"


def test_a_long_reason_is_cut_between_characters() -> None:
    frame = close_frame(1013, "é" * 100)
    assert frame == close_frame(1013, "é" * 61)
    assert reads_back(frame) == [CloseConnection(1013, "é" * 61)]


FAULTS = {
    "a reserved bit": masked(0xC1, b"x"),
    "a reserved bit of a large frame": masked(0xA2, b"x" * 70_000),
    "a reserved bit of a ping": masked(0x99, b"x"),
    "an unknown opcode": masked(0x83),
    "an unknown control opcode": masked(0x8B),
    "a ping over 125 bytes": masked(0x89, b"x" * 126),
    "a close over 125 bytes": masked(0x88, b"\x03\xe8" + b"x" * 124),
    "a ping in fragments": masked(0x09),
    "no mask": WEBSOCKET.frame(b"x"),
    "no mask on 126 bytes": WEBSOCKET.frame(b"x" * 126),
    "no mask on a ping": b"\x89\0",
    "two bytes of length for 125": b"\x81\xfe\0\x7d" + bytes(129),
    "eight bytes of length for 65,535": b"\x81\xff" + (65_535).to_bytes(8) + bytes(4),
    "a length with the highest bit": b"\x81\xff\x80" + bytes(11),
    "a close of one byte": masked(0x88, b"x"),
    "a close with a code out of range": masked(0x88, (999).to_bytes(2)),
    "a close with a code that is never sent": masked(0x88, (1006).to_bytes(2)),
    "a close with a reserved code": masked(0x88, (2_000).to_bytes(2)),
}


@pytest.mark.parametrize("before", [b"", masked(0x02, b"open"), masked(0x01, b"x" * 300)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_the_connection_after_what_came_before(fault: str, before: bytes) -> None:
    stream = masked(0x89, b"!") + before + FAULTS[fault] + masked(0x89, b"late")
    first, closed = read_anyhow(sockets(200), stream)
    assert first == Send(b"\x8a\x01!")
    assert (closed.code, closed.reply) == (1002, close_frame(1002, closed.reason))
    assert closed.reason
    reader = WebSocketReader(200)
    reader.receive(stream)
    assert not reader.halfway


@pytest.mark.parametrize("size", [0, 5, 300, 70_000])
@pytest.mark.parametrize(
    ("before", "first"), [(b"", 0x80), (b"", 0), (masked(0x01), 0x81), (masked(0x02, b"x"), 0x02)]
)
def test_fragments_have_a_start_and_no_other_message_between(
    before: bytes, first: int, size: int
) -> None:
    (closed,) = read_anyhow(sockets(200), before + masked(first, b"x" * size))
    assert closed.code == 1002
    assert "CONTINUATION" in closed.reason


def test_a_close_whose_reason_is_not_utf8_is_told_so() -> None:
    (closed,) = read_anyhow(sockets(), masked(0x88, b"\x03\xe8\xff"))
    assert closed.code == 1007


def model(stream: bytes) -> list[Any]:
    """Return what wsproto's server makes of a stream, in this module's terms."""
    connection = Connection(ConnectionType.SERVER)
    connection.receive_data(stream)
    found: list[Any] = []
    message = b""
    for event in connection.events():
        if isinstance(event, BytesMessage):
            message += event.data
            if event.message_finished:
                found.append(message)
                message = b""
        elif isinstance(event, Ping):
            found.append(Send(bytes(connection.send(event.response()))))
        elif isinstance(event, CloseConnection):
            reason = event.reason or ""
            found.append(Closed(int(event.code), reason, close_frame(int(event.code), reason)))
            break
    return found


@st.composite
def any_frame(draw: st.DrawFn) -> bytes:
    """Return a frame that is often legal, and never a text, whose UTF-8 is nobody's matter here."""
    kinds = [0x82] * 6 + [0x02] * 4 + [0x00] * 4 + [0x80] * 4 + [0x89] * 4 + [0x8A, 0x88]
    first = draw(st.sampled_from(kinds) | st.integers(0, 255))
    first += first & 0x0F == 1
    payload = draw(st.binary(max_size=140))
    if first == 0x88:
        payload = draw(st.integers(990, 5_010)).to_bytes(2) + b"bye"
    frame = masked(first, payload, draw(st.binary(min_size=4, max_size=4)))
    if draw(st.integers(0, 20)) == 20:
        frame = bytes((first, len(payload) % 128)) + frame[2:]
    if draw(st.integers(0, 20)) == 20:
        frame = bytes((first, 0xFE)) + len(payload).to_bytes(2) + frame[2:]
    return frame


@given(st.lists(any_frame(), max_size=12), cuts)
@example([masked(0x02, b"a"), masked(0x82, b"b")], [])
def test_it_agrees_with_wsproto_about_any_frames(frames: list[bytes], sizes: list[int]) -> None:
    # Behind them all, so that wsproto has the payload of a fault that is told by the header.
    stream = b"".join(frames) + masked(0x8A) * 40
    assert read(WebSocketReader(MOST), stream, sizes) == model(stream)


@given(st.binary(max_size=200), cuts)
def test_any_bytes_are_read_alike_wherever_they_are_cut(data: bytes, sizes: list[int]) -> None:
    assert read(WebSocketReader(50), data, sizes) == read(WebSocketReader(50), data, [])


# What it costs


def held(make: Callable[[], Any], count: int = 1) -> int:
    """Return bytes allocated for ``count`` of what ``make`` makes, one of them on average."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        kept = [make() for _ in range(count)]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - 8 * len(kept)) // count
    finally:
        tracemalloc.stop()


def test_a_reader_at_rest_is_small() -> None:
    def rested() -> WebSocketReader:
        reader = WebSocketReader(MOST)
        stream = masked(0x81, b"x" * 400) + masked(0x02, b"x" * 400) + masked(0x89) + masked(0x80)
        assert len(read(reader, stream, [100, 500])) == 3
        assert not reader.halfway
        return reader

    assert held(rested, 50) < 200
    assert held(lambda: LineReader(MOST), 50) < 200


@pytest.mark.parametrize("parts", [1, 16])
def test_half_a_message_is_held_once_however_small_its_pieces(parts: int) -> None:
    size = 200_000 // parts
    stream = b"".join(masked(0x02 if not at else 0x00, bytes(size)) for at in range(parts))[:-1]

    def half() -> WebSocketReader:
        reader = WebSocketReader(200_000)
        for at in range(0, len(stream), 50):
            reader.receive(stream[at : at + 50])
        return reader

    assert 190_000 < held(half) < 240_000


@pytest.mark.parametrize(
    ("make", "stream"),
    [
        (lambda: WebSocketReader(200_000), masked(0x82, bytes(100_000))),
        (lambda: WebSocketReader(200_000), masked(0x82, bytes(16_000))),
        (lambda: WebSocketReader(200_000), masked(0x02) + masked(0x80, bytes(100_000))),
        (lambda: WebSocketReader(20_000), masked(0x82, bytes(100_000))),
        (lambda: LineReader(200_000), b"x" * 100_000 + b"\n"),
        (lambda: LineReader(20_000), b"x" * 100_000 + b"\n"),
    ],
)
def test_a_piece_of_a_message_does_not_copy_what_came_before(
    make: Callable[[], Any], stream: bytes
) -> None:
    reader = make()
    copies = 0
    tracemalloc.start()
    try:
        for at in range(0, len(stream), 40):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            reader.receive(stream[at : at + 40])
            copies += tracemalloc.get_traced_memory()[1] - before > len(stream) // 4
    finally:
        tracemalloc.stop()
    assert copies < 10
    assert not reader.halfway


# Chunks of frames

bodies = st.lists(st.sampled_from([0, 1, 125, 126, 200, 65_535, 65_536]), min_size=1, max_size=5)


@pytest.mark.parametrize("framing", [WEBSOCKET, NDJSON])
@given(sizes=bodies, at=st.floats(0, 1))
def test_frames_of_a_chunk_are_counted_and_their_ends_found(
    framing: Framing, sizes: list[int], at: float
) -> None:
    frames = [framing.frame(b"x" * size) for size in sizes]
    chunk = b"".join(frames)
    assert framing.count_frames(chunk) == len(frames)
    ends = [0]
    for frame in frames:
        ends.append(ends[-1] + len(frame))
    for start, end in pairwise(ends):
        for offset in (start + 1, start + int(at * (end - start - 1)) + 1, end):
            assert framing.end_of_frame(chunk, offset) == end
        assert framing.end_of_frame(chunk, start) == start


def test_the_answer_to_an_upgrade_in_front_of_the_first_frames_is_no_frame() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n"
    chunk = head + WEBSOCKET.frame(b"a") + close_frame(1000, "")
    assert WEBSOCKET.count_frames(chunk) == 2
    assert WEBSOCKET.count_frames(head) == 0
    assert WEBSOCKET.end_of_frame(chunk, 3) == len(head)
    assert WEBSOCKET.end_of_frame(chunk, 0) == 0
    assert WEBSOCKET.end_of_frame(chunk, len(head) + 1) == len(head) + 3


# Lines


def lines_of(stream: bytes, most: int) -> list[bytes | TooLarge]:
    """Return the lines of a stream: the naive way."""
    lines = [line.removesuffix(b"\r") for line in stream.split(b"\n")[:-1]]
    return [line if len(line) <= most else TooLarge(len(line)) for line in lines if line]


pieces = st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"{}", b"x" * 19, b"x" * 20, b"x" * 21])


@given(st.lists(pieces, max_size=30).map(b"".join), cuts)
@example(b"x" * 20 + b"\r\n", [20])
@example(b"x" * 21 + b"\n", [])
@example(b"a\r\n", [])
@example(b"x" * 21 + b"\r\n", [21, 1])
def test_lines_are_found_wherever_they_are_cut(stream: bytes, sizes: list[int]) -> None:
    expected = lines_of(stream, 20)
    reader = LineReader(20)
    assert read(reader, stream, sizes) == expected
    assert reader.halfway == (not stream.endswith(b"\n") and bool(stream))
    assert read(LineReader(20), stream, [1] * len(stream)) == expected


def test_a_line_that_never_ends_is_not_held() -> None:
    def endless() -> LineReader:
        reader = LineReader(20_000)
        for _ in range(100):
            assert reader.receive(b"x" * 10_000) == []
        return reader

    assert held(endless) < 500
