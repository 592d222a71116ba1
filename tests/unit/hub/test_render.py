"""What subscribers are sent: every frame against one that is written key by key."""

from __future__ import annotations

import gc
import json
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

from pubsubd.broker.peer import MADE
from pubsubd.hub.codec import PLAIN, from_line, to_line
from pubsubd.hub.frames import NDJSON, WEBSOCKET, Framing
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import ROOM, Batch, Form, dress, read_chunk
from pubsubd.hub.strict import decode
from pubsubd.protocol.limits import MAX_NAME, MIB
from pubsubd.protocol.wire import frame
from pubsubd.routing.outbox import Pieces
from tests.unit.hub.test_codec import HOSTILE, MESSAGES, dump, lines, names

EVE = "tcp/127.0.0.1:5000"
NOW = 1_700_000_000_999
FRAMINGS = [WEBSOCKET, NDJSON]

framings = st.sampled_from(FRAMINGS)
addresses = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=12),
    st.sampled_from(["browser/ann", "@(browser/ann)", 'a"b\\c\x00\n\u2028é😀', "@()", "@(", ")"]),
)
messages = st.lists(
    st.tuples(
        names,
        st.one_of(lines, st.sampled_from(MESSAGES), st.integers(0, 66_000).map(lambda n: b"y" * n)),
    ),
    max_size=5,
)


def chunk_of(*pairs: tuple[str, bytes]) -> bytes:
    """Return line frames as a broker delivers them."""
    return b"".join(frame(name.encode(), data) for name, data in pairs)


def hub(batch: Batch, framing: Framing, wrapped: bool, to: bytes) -> bytes:
    """Return what a receiver is sent in the form of Signal Hub."""
    frames = batch.hub(framing, wrapped, to)
    return frames if isinstance(frames, bytes) else frames.whole()


def inside(text: str) -> bytes:
    """Return text as it stands inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False).encode()[1:-1]


def texts_in(framing: Framing, frames: bytes) -> list[bytes]:
    """Take frames apart with means that are not the daemon's."""
    if framing is NDJSON:
        assert frames.endswith(b"\n") or not frames
        return frames.split(b"\n")[:-1]
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(frames)
    found, parts = [], []
    for event in client.events():
        assert isinstance(event, TextMessage), event
        parts.append(event.data)
        if event.message_finished:
            found.append("".join(parts).encode())
            parts = []
    assert not parts
    return found


def expected(form: Form, name: str, data: bytes, trusted: bool, wrapped: bool, to: str) -> Any:
    """Return a delivery written key by key, but for its identifier."""
    message = from_line(name.encode(), data, EVE, trusted)
    payload = json.loads(message.payload)
    if form is Form.SYNAP:
        return {
            "type": "message",
            "topic": name,
            "payload": payload,
            "message": payload,
            "metadata": json.loads(message.metadata or b"null"),
            "timestamp": NOW // 1000,
        }
    if form is Form.ENVELOPE:
        kind = message.type if name.startswith(message.type + ":") else name.partition(":")[0]
        return {"type": kind, "id": name[len(kind) + 1 :], "payload": payload}
    hub = "@(cloudflare/signal-hub)" if wrapped else "cloudflare/signal-hub"
    return {
        "from": dress(message.sender, wrapped),
        "to": to,
        "type": message.type,
        "payload": payload,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": NOW,
        "metadata": {"topic": name, "publication": True, "forwarded": True, "via": hub},
        "ttl": None,
        "signature": None,
    }


def check(form: Form, text: bytes, wanted: Any) -> str | None:
    """Check one delivery, and return its identifier."""
    value = decode(text)  # strictly legal, no key twice
    id_ = value.pop("id") if form is Form.HUB else value.pop("message_id", None)
    assert value == wanted
    assert list(value) == list(wanted)
    assert id_ is None if form is Form.ENVELOPE else isinstance(id_, str)
    return id_


# Every form, every framing


@settings(deadline=None)
@given(messages, framings, st.booleans(), st.booleans(), st.lists(addresses, max_size=4))
@example([("n", data) for data in HOSTILE + MESSAGES], WEBSOCKET, True, True, ["a/b", "@(c/d)"])
@example([("n", data) for data in HOSTILE + MESSAGES], NDJSON, False, True, ["a/b", "@(c/d)"])
def test_splicing_is_the_same_as_writing_each_delivery(
    pairs: list[tuple[str, bytes]],
    framing: Framing,
    trusted: bool,
    wrapped: bool,
    receivers: list[str],
) -> None:
    batch = Batch(read_chunk(chunk_of(*pairs), EVE, trusted), NOW)
    assert batch.names == [name.encode() for name, _ in pairs]
    known = None
    for to in receivers:
        frames = hub(batch, framing, wrapped, inside(to))
        texts = texts_in(framing, frames)
        ids = [
            check(Form.HUB, text, expected(Form.HUB, name, data, trusted, wrapped, to))
            for text, (name, data) in zip(texts, pairs, strict=True)
        ]
        assert known in (None, ids)
        known = ids
        assert len(set(ids)) == len(ids)
        assert all(str(uuid.UUID(id_)) == id_ for id_ in ids)
        singles = [
            batch.one(index, Form.HUB, framing, wrapped, inside(to)) for index in range(len(pairs))
        ]
        assert b"".join(singles) == frames


@settings(deadline=None)
@given(messages, framings, st.booleans())
@example([("n", data) for data in HOSTILE + MESSAGES], NDJSON, True)
def test_what_all_receivers_get_alike_is_written_key_by_key_too(
    pairs: list[tuple[str, bytes]], framing: Framing, trusted: bool
) -> None:
    batch = Batch(read_chunk(chunk_of(*pairs), EVE, trusted), NOW)
    for form, frames in (
        (Form.SYNAP, batch.synap(framing)),
        (Form.ENVELOPE, batch.envelopes(framing)),
    ):
        for text, (name, data) in zip(texts_in(framing, frames), pairs, strict=True):
            check(form, text, expected(form, name, data, trusted, False, ""))
        for wrapped in (False, True):
            singles = [
                batch.one(index, form, framing, wrapped, b"a/b") for index in range(len(pairs))
            ]
            assert b"".join(singles) == frames


@pytest.mark.parametrize("edge", [125, 126, 65_535, 65_536])
def test_the_head_is_right_wherever_the_length_of_an_address_moves_it(edge: int) -> None:
    bare = len(
        texts_in(
            NDJSON, Batch(read_chunk(chunk_of(("n", b"")), EVE, False), NOW).envelopes(NDJSON)
        )[0]
    )
    for size in range(max(edge - bare, 0) - 3, edge - bare + 4):
        if size >= 0:
            batch = Batch(read_chunk(chunk_of(("n", b"y" * size)), EVE, False), NOW)
            (text,) = texts_in(WEBSOCKET, batch.envelopes(WEBSOCKET))
            assert len(text) == bare + size
    empty = (
        len(hub(Batch(read_chunk(chunk_of(("n", b"")), EVE, False), NOW), NDJSON, False, b"")) - 1
    )
    batch = Batch(read_chunk(chunk_of(("n", b"y" * max(edge - empty - 8, 0))), EVE, False), NOW)
    for length in range(16):
        (text,) = texts_in(WEBSOCKET, hub(batch, WEBSOCKET, False, b"x" * length))
        assert json.loads(text)["to"] == "x" * length


def test_a_name_may_be_as_long_and_as_odd_as_a_name_can_be() -> None:
    for name in ["\"\\/\x01\x7f'é😀\u2028", '"' * MAX_NAME, "//a:b:", ":", "%b%d{}"]:
        batch = Batch(read_chunk(chunk_of((name, b"x")), EVE, False), NOW)
        (text,) = texts_in(WEBSOCKET, hub(batch, WEBSOCKET, True, b"@(a/b)"))
        assert json.loads(text)["metadata"]["topic"] == name
        assert json.loads(text)["payload"] == {"name": name, "data": "x"}


def test_nothing_is_sent_that_could_be_left_out() -> None:
    batch = Batch(read_chunk(chunk_of(("é:1", "é".encode())), EVE, False), NOW)
    for frames in (
        hub(batch, NDJSON, True, b"@(a/b)"),
        batch.synap(NDJSON),
        batch.envelopes(NDJSON),
    ):
        assert frames == dump(json.loads(frames)) + b"\n"


def test_no_message_is_no_frame() -> None:
    batch = Batch(read_chunk(b"", EVE, False), NOW)
    assert batch.names == []
    for framing in FRAMINGS:
        assert hub(batch, framing, False, b"a/b") == b""
        assert batch.synap(framing) == batch.envelopes(framing) == b""


# What another worker has made

kinds = st.sampled_from(["t", "chat:x", 'a"payload":'])
senders = st.sampled_from(["x/ann", "@(x/ann)", "x/bob"])
payloads = st.sampled_from(
    [b"1", b'""', b'{"a":1,"id":2}', b'{"a":1,"metadata":{}}', b'[{"payload":null}]', b'"}"']
)
ids = st.one_of(st.none(), st.sampled_from(["", "a", "1"]))
metadatas = st.one_of(st.none(), st.sampled_from([b"{}", b'{"id":1}']))
one_made = st.tuples(names, kinds, senders, payloads, ids, metadatas)
made = st.lists(one_made, max_size=8)
runs = st.lists(st.tuples(one_made, st.integers(1, 300)), max_size=5)


@given(made)
@example([("n", "t", "x/ann", b'""', "", None), ("n", "t", "x/ann", b'""', "b", None)])
@example([("n", "t", "x/ann", b"1", None, None), ("n", "t", "x/ann", b"1", "b", b"{}")])
def test_what_was_made_from_objects_is_read_as_everything_is(pieces: list[Any]) -> None:
    chunk = chunk_of(*((one[0], to_line(one[0].encode(), *one[1:])) for one in pieces))
    assert list(read_chunk(chunk, EVE, MADE)) == list(read_chunk(chunk, EVE, True))


@settings(deadline=None)
@given(runs)
@example(
    [(("n", "t", "x/ann", b'"1234567"', None, None), 20), (("n", "t", "x/ann", b"1", "", None), 1)]
)
def test_runs_of_what_was_made_from_objects_are_read_as_everything_is(
    pieces: list[tuple[Any, int]],
) -> None:
    every = [one for one, count in pieces for _ in range(count)]
    chunk = chunk_of(*((one[0], to_line(one[0].encode(), *one[1:])) for one in every))
    assert list(read_chunk(chunk, EVE, MADE)) == list(read_chunk(chunk, EVE, True))


def test_what_was_made_from_objects_is_not_read_again_if_it_begins_as_the_last_one_did() -> None:
    begin = b'{"type":"t","from":"x/ann","payload":'
    for broken in (b"no JSON", b"?"):  # of another length, and of the same one
        chunk = chunk_of(("n", begin + b"1}"), *[("n", begin + broken + b"}")] * 200)
        assert [one.payload for one in read_chunk(chunk, EVE, MADE)] == [b"1", *[broken] * 200]
        assert [one.type for one in read_chunk(chunk, EVE, True)] == ["t", *[PLAIN] * 200]


# Addresses, identifiers, envelopes


@pytest.mark.parametrize("written", ["browser/ann", "@(browser/ann)"])
def test_the_sender_is_written_as_the_receiver_writes_addresses(written: str) -> None:
    batch = Batch(read_chunk(chunk_of(("n", to_line(b"n", "x", written, b"1"))), EVE, True), NOW)
    for wrapped, sender, via in (
        (False, "browser/ann", "cloudflare/signal-hub"),
        (True, "@(browser/ann)", "@(cloudflare/signal-hub)"),
    ):
        value = json.loads(hub(batch, NDJSON, wrapped, b"a/b"))
        assert (value["from"], value["metadata"]["via"]) == (sender, via)


def test_a_message_has_one_identifier_whoever_gets_it() -> None:
    batch = Batch(read_chunk(chunk_of(("a", b"1"), ("b", b"2")), EVE, False), NOW)
    frames = [hub(batch, NDJSON, wrapped, b"x") for wrapped in (False, True)]
    frames += [hub(batch, WEBSOCKET, False, b"xyz").replace(b"}\x81", b"}\n\x81")]
    ids = [[text.split(b'"id":"')[1][:36] for text in all_.splitlines()] for all_ in frames]
    assert ids[0] == ids[1] == ids[2]
    synap = [json.loads(text)["message_id"] for text in batch.synap(NDJSON).splitlines()]
    assert synap == [f"msg_{id_.decode().replace('-', '')}" for id_ in ids[0]]


def test_synap_is_told_the_identifier_and_metadata_that_were_published() -> None:
    data = to_line(b"n", PLAIN, "a/b", b"null", "msg_1", b'{"k":1}')
    value = json.loads(Batch(read_chunk(chunk_of(("n", data)), EVE, True), NOW).synap(NDJSON))
    assert (value["message_id"], value["metadata"]) == ("msg_1", {"k": 1})
    assert (value["payload"], value["message"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "type_", "kind", "id_"),
    [
        ("chat:1", "chat", "chat", "1"),
        ("chat:", "chat", "chat", ""),
        ("a:b:c", "a:b", "a:b", "c"),
        ("a:b:c", "a", "a", "b:c"),
        ("a:b:c", "other", "a", "b:c"),
        ("chat", "chat", "chat", ""),
        ("chat", "other", "chat", ""),
        (":1", "", "", "1"),
        (":1", "other", "", "1"),
        ("chatter:1", "chat", "chatter", "1"),
    ],
)
def test_an_envelope_spells_the_name(name: str, type_: str, kind: str, id_: str) -> None:
    data = to_line(name.encode(), type_, "a/b", b"1")
    value = json.loads(Batch(read_chunk(chunk_of((name, data)), EVE, True), NOW).envelopes(NDJSON))
    assert value == {"type": kind, "id": id_, "payload": 1}


@settings(deadline=None)
@given(st.text(max_size=8))
def test_an_address_is_dressed_once_and_undressed_again(bare: str) -> None:
    if bare.startswith("@(") and bare.endswith(")"):
        return
    assert dress(bare, True) == dress(f"@({bare})", True) == f"@({bare})"
    assert dress(bare, False) == dress(f"@({bare})", False) == bare


def test_identifiers_are_random_uuids_of_which_none_comes_twice() -> None:
    found = [new_id() for _ in range(3_000)]
    assert len(set(found)) == len(found)
    for text in found:
        one = uuid.UUID(text)
        assert str(one) == text
        assert (one.version, one.variant) == (4, uuid.RFC_4122)
    for at in {*range(36)} - {8, 13, 14, 18, 23}:
        assert len({text[at] for text in found}) == (4 if at == 19 else 16)


# What it costs


class Counting:
    """A framing that counts how often it is asked for a head."""

    tail = b""

    def __init__(self) -> None:
        self.heads = 0

    def head(self, size: int) -> bytes:
        self.heads += 1
        return WEBSOCKET.head(size)

    def frame(self, body: bytes) -> bytes:
        return self.head(len(body)) + body

    def end_of_frame(self, chunk: bytes, offset: int) -> int:
        return WEBSOCKET.end_of_frame(chunk, offset)

    def count_frames(self, chunk: bytes) -> int:
        return WEBSOCKET.count_frames(chunk)


def test_a_hundred_receivers_cost_one_rendering() -> None:
    framing = Counting()
    sizes = range(200)
    batch = Batch(read_chunk(chunk_of(*[("n", b"x" * size) for size in sizes]), EVE, False), NOW)
    for number in range(100):
        frames = hub(batch, framing, True, b"@(browser/user%02d)" % number)
        assert frames.count(b"@(browser/user%02d)" % number) == 200
    assert framing.heads == 200
    hub(batch, framing, True, b"@(browser/longer)!")
    hub(batch, framing, False, b"@(browser/longer)")
    assert framing.heads == 600


@settings(deadline=None)
@given(st.lists(st.text("abz/@()", min_size=40, max_size=40), min_size=1, max_size=6), st.data())
def test_many_messages_alike_are_told_to_each_receiver_as_one_by_one(
    receivers: list[str], data: st.DataObject
) -> None:
    texts = [b"%03d" % number + b"x" * 300 for number in range(150)]
    batch = Batch(read_chunk(chunk_of(*[("n", text) for text in texts]), EVE, False), NOW)
    for to in receivers:
        near = data.draw(st.sampled_from([to, to.replace("a", "b"), to[::-1]]))
        for address in (to, near):
            singles = [
                batch.one(index, Form.HUB, WEBSOCKET, True, inside(address))
                for index in range(len(texts))
            ]
            assert hub(batch, WEBSOCKET, True, inside(address)) == b"".join(singles)


def test_of_many_messages_alike_there_is_one_buffer_for_all_receivers() -> None:
    batch = Batch(read_chunk(chunk_of(*[("n", b"x" * 300)] * 200), EVE, False), NOW)
    first = batch.hub(WEBSOCKET, True, b"@(a/b)")
    kept = batch.size
    second = batch.hub(WEBSOCKET, True, b"@(a/c)")
    assert isinstance(first, Pieces)
    assert isinstance(second, Pieces)
    assert first.parts[0] is second.parts[0]
    assert batch.size == kept
    assert second.whole().count(b"@(a/c)") == 200  # a copy, for whoever cannot send it at once
    batch.hub(WEBSOCKET, True, b"@(a/d)")
    assert second.whole().count(b"@(a/c)") == 200


def test_all_receivers_of_envelopes_get_the_same_object() -> None:
    batch = Batch(read_chunk(chunk_of(("a:b", b"1"), ("c:d", b"2")), EVE, False), NOW)
    for framing in FRAMINGS:
        assert batch.synap(framing) is batch.synap(framing)
        assert batch.envelopes(framing) is batch.envelopes(framing)
    assert batch.synap(WEBSOCKET) != batch.synap(NDJSON)


def _held(batch: Batch, framing: Framing) -> int:
    """Return the bytes that a batch comes to hold for addresses of 260 lengths."""
    hub(batch, framing, True, b"")
    gc.collect()
    tracemalloc.start()
    for length in range(260):
        hub(batch, framing, True, b"x" * length)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(("count", "size"), [(200, 100), (2, 100_000), (1, MIB)])
def test_addresses_of_all_lengths_do_not_add_up(framing: Framing, count: int, size: int) -> None:
    pairs = [("n", b"x" * size)] * count
    batch = Batch(read_chunk(chunk_of(*pairs), EVE, False), NOW)
    # A line has no head, so that all lengths are alike.
    assert _held(batch, framing) < (2 * ROOM if framing is WEBSOCKET else 0.1 * MIB)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(
    "data",
    [to_line(b"n", "x", "a/b", b'"' + b"y" * MIB + b'"'), b"y" * MIB],
    ids=["JSON", "text"],
)
def test_a_large_message_is_copied_a_few_times_whoever_gets_it(
    data: bytes, framing: Framing
) -> None:
    chunk = frame(b"n", data)
    gc.collect()
    tracemalloc.start()
    batch = Batch(read_chunk(chunk, EVE, True), NOW)
    assert len(batch.messages) == 1
    read = tracemalloc.get_traced_memory()
    assert read[0] < 1.6 * MIB  # its payload
    assert read[1] < 3.7 * MIB  # while read: its data, its value, and that written again
    first = hub(batch, framing, True, b"@(a/b)")
    rendered = tracemalloc.get_traced_memory()[0]
    assert rendered - len(first) < read[0] + (1.1 if framing is WEBSOCKET else 2.1) * MIB
    for length in range(1, 4):
        hub(batch, framing, True, b"x" * length)
    assert tracemalloc.get_traced_memory()[0] < rendered + 0.1 * MIB
    tracemalloc.stop()
