"""Line data and JSON messages: what a round trip restores, and what nobody can make up."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsubd.hub.codec import PLAIN, from_line, to_line
from pubsubd.hub.strict import decode

NAME = 'rooms/grüße:"1"\\\t\''
EVE = "tcp/127.0.0.1:5000"
DEEP = b"[" * 199 + b"]" * 199

names = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters=" \r\n"), min_size=1, max_size=8
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "data", "dataBase64", "type", "é"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)

HOSTILE = [
    b"{",
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b'{"type":"x"}',
    b'{"payload":1}',
    b'{"type":1,"payload":1}',
    b'{"type":null,"payload":1}',
    b'{"type":["x"],"payload":1}',
    b'{"type":"x","type":"y","payload":1}',
    b'{"type":"x","payload":1,"payload":2}',
    b'{"type":"x","from":"a/b","payload":{"a":1,"a":2}}',
    b'{"type":"x","from":"a/b","from":"c/d","payload":1}',
    b'{"type":"x","from":"a/b","payload":1e400}',
    b'{"type":"x","from":"a/b","payload":18446744073709551616}',
    b'{"type":"x","from":"a/b","payload":[' + DEEP + b"]}",
    b'{"type":"x","from":"a/b","payload":' + b"[" * 50_000 + b"}",
    b'{"type":"x","from":"a/b","payload":"\\ud800"}',
    b'{"type":"\\ud800","from":"a/b","payload":1}',
    b'{"type":"x","from":"a/b","payload":"\xff"}',
    b'{"type":"x","from":"a/b","payload":"\xed\xa0\x80"}',
    b'{"type":"x","from":"a/b","payload":01}',
    b'{"type":"x","from":"a/b","payload":NaN}',
    b'{"type":"x","from":"a/b","payload":}',
    b'{"type":"x","from":"a/b","payload":1}}',
    b'{"type":"x","from":"a/b","payload":1},{"injected":1}',
    b'{"type":"x","from":"a/b","payload":1,}',
    b'\xef\xbb\xbf{"type":"x","payload":1}',
    b"",
    b"\n",
    b" \t{",
    b"\x00\xff\xfe",
    b"a\nb\r\n\x00\x1b\x7f\xe2\x80\xa8",
    b"\xed\xa0\x80",
]
"""No messages, though many look like one."""

MESSAGES = [
    b'{"type":"x","from":"bank/teller","payload":1}',
    b' \r\n\t{ "payload" :\n[1,\n{"injected" : 1}]\r, "from":"bank/teller", "type":"x"}\n',
    b'{"\\u0074ype":"x","from":"bank/teller","payload":"\\u0022\\n"}',
    b'{"type":"","payload":null,"color":{"red":1}}',
    b'{"type":"pubsub:message","from":"bank/teller","payload":{"name":"n"}}',
    b'{"type":"x","from":"a/b","payload":' + DEEP + b"}",
]
"""Messages, written in one way or another."""

almost = st.lists(st.sampled_from(HOSTILE + MESSAGES), min_size=1, max_size=2).map(b"".join)
lines = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    values.map(lambda value: json.dumps(value).encode()),
    almost,
    st.tuples(almost, st.integers(0, 60), st.binary(max_size=2)).map(
        lambda all_: all_[0][: all_[1]] + all_[2] + all_[0][all_[1] :]
    ),
)


def dump(value: Any) -> bytes:
    """Return JSON in its compact form."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def is_message(data: bytes) -> bool:
    """Return whether data is a JSON object that is to be taken for a message."""
    try:
        value = decode(data)
    except Exception:  # noqa: BLE001  (whatever it is, it is none)
        return False
    return isinstance(value, dict) and isinstance(value.get("type"), str) and "payload" in value


# From a line and back


@settings(deadline=None)
@given(names, lines, st.booleans())
def test_text_and_bytes_are_restored_exactly(name: str, data: bytes, trusted: bool) -> None:
    message = from_line(name.encode(), data, EVE, trusted)
    if is_message(data):
        return
    assert message.type == PLAIN
    assert message.sender == EVE
    assert to_line(name.encode(), message.type, message.sender, message.payload) == data


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: str(data[:60]))
@pytest.mark.parametrize("trusted", [False, True])
def test_what_is_no_message_is_text_or_bytes(data: bytes, trusted: bool) -> None:
    message = from_line(NAME.encode(), data, EVE, trusted)
    assert (message.type, message.sender, message.id, message.metadata) == (PLAIN, EVE, None, None)
    payload = decode(message.payload)
    try:
        assert payload == {"name": NAME, "data": data.decode()}
    except UnicodeDecodeError:
        assert payload == {"name": NAME, "dataBase64": base64.b64encode(data).decode()}
    assert b"\n" not in message.payload
    assert to_line(NAME.encode(), PLAIN, EVE, message.payload) == data


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: str(data[:60]))
def test_a_message_keeps_its_type_and_payload_and_comes_in_one_line(data: bytes) -> None:
    wanted = json.loads(data)
    message = from_line(b"n", data, EVE, trusted=False)
    assert (message.type, json.loads(message.payload)) == (wanted["type"], wanted["payload"])
    assert message.sender == EVE
    assert b"\n" not in message.payload
    assert b"\r" not in message.payload


def test_only_a_trusted_line_tells_who_has_sent_it() -> None:
    data = to_line(b"n", "x", "browser/ann", b"1")
    assert data == b'{"type":"x","from":"browser/ann","payload":1}'
    assert from_line(b"n", data, EVE, trusted=True).sender == "browser/ann"
    assert from_line(b"n", data, EVE, trusted=False).sender == EVE
    assert from_line(b"n", b'{"type":"x","from":7,"payload":1}', EVE, trusted=True).sender == EVE


def test_synap_adds_an_identifier_and_metadata() -> None:
    data = to_line(b"n", PLAIN, "a/b", b'[1,"\xc3\xa9"]', "msg_1", b'{"k":[1]}')
    assert json.loads(data) == {
        "type": PLAIN,
        "from": "a/b",
        "payload": [1, "é"],
        "id": "msg_1",
        "metadata": {"k": [1]},
    }
    message = from_line(b"n", data, EVE, trusted=True)
    assert (message.id, message.metadata) == ("msg_1", b'{"k":[1]}')


@pytest.mark.parametrize("value", ["1", "null", '"x"', "[]", "[{}]"])
def test_an_identifier_or_metadata_of_another_shape_is_left_out(value: str) -> None:
    data = f'{{"type":"x","payload":1,"metadata":{value},"id":[{value}]}}'.encode()
    message = from_line(b"n", data, EVE, trusted=True)
    assert (message.id, message.metadata, message.payload) == (None, None, b"1")


def test_a_payload_is_cut_out_and_not_written_again() -> None:
    payload = b'{"b":1.50,"a":[1E5,"\\u00e9\\/"]}'
    data = b'{"type":"x","from":"a/b","payload":' + payload + b"}"
    message = from_line(b"n", data, EVE, trusted=True)
    assert json.loads(message.payload) == json.loads(payload)
    compact = dump(json.loads(payload))
    data = to_line(b"n", "x", "a/b", compact)
    assert from_line(b"n", data, EVE, trusted=True).payload == compact
    assert compact in data


# From JSON and back


@settings(deadline=None)
@given(
    names, st.one_of(st.just(PLAIN), st.text(st.characters(blacklist_categories=["Cs"]))), values
)
@example("n", PLAIN, {"name": "n", "data": "text"})
@example("n", PLAIN, {"name": "n", "data": ""})
@example("n", PLAIN, {"name": "n", "data": '{"type":"x","from":"a/b","payload":1}'})
@example("n", PLAIN, {"name": "n", "dataBase64": "/w=="})
@example("n", PLAIN, {"name": "n", "dataBase64": "/w"})
@example("n", PLAIN, {"name": "n", "dataBase64": "/x=="})
@example("n", PLAIN, {"name": "n", "data": None})
@example("n", PLAIN, {"name": "n", "data": "x", "dataBase64": None})
@example("n", PLAIN, {"name": "n", "data": "x", "dataBase64": "/w=="})
@example("n", PLAIN, {"name": "n", "data": "x", "more": 1})
def test_type_and_payload_are_restored(name: str, type_: str, value: Any) -> None:
    message = from_line(
        name.encode(), to_line(name.encode(), type_, "a/b", dump(value)), EVE, trusted=True
    )
    assert message.type == type_
    restored = json.loads(message.payload)
    assert restored == value
    assert type(restored) is type(value)


@settings(deadline=None)
@given(names, lines)
def test_bytes_in_base64_reach_the_line_as_bytes(name: str, data: bytes) -> None:
    payload = dump({"name": name, "dataBase64": base64.b64encode(data).decode()})
    line = to_line(name.encode(), PLAIN, "a/b", payload)
    assert line == data or is_message(data)
    message = from_line(name.encode(), line, EVE, trusted=True)
    assert message.type == PLAIN
    restored = json.loads(message.payload)
    if "dataBase64" in restored:
        assert base64.b64decode(restored["dataBase64"]) == data
    else:
        assert restored["data"].encode() == data  # text is text, however it came


@pytest.mark.parametrize(
    "payload",
    [
        {"name": "other", "data": "x"},
        {"data": "x"},
        {"name": "n"},
        {"name": "n", "data": 1},
        {"name": "n", "data": None},
        {"name": "n", "data": "x", "dataBase64": "eA=="},
        {"name": "n", "data": "x", "dataBase64": None},
        {"name": "n", "data": "x", "more": 1},
        {"name": "n", "dataBase64": "eA"},
        {"name": "n", "dataBase64": "eB=="},
        {"name": "n", "dataBase64": "eA==\n"},
        {"name": "n", "dataBase64": "e A=="},
        {"name": "n", "dataBase64": "_w=="},
        {"name": "n", "dataBase64": "é"},
        [{"name": "n", "data": "x"}],
    ],
    ids=json.dumps,
)
def test_what_only_resembles_text_or_bytes_travels_as_json(payload: Any) -> None:
    line = to_line(b"n", PLAIN, "a/b", dump(payload))
    assert json.loads(line) == {"type": PLAIN, "from": "a/b", "payload": payload}


def test_text_of_another_type_travels_as_json() -> None:
    payload = {"name": "n", "data": "x"}
    line = to_line(b"n", "chat", "a/b", dump(payload))
    assert json.loads(line) == {"type": "chat", "from": "a/b", "payload": payload}


# What nobody can make up


@settings(deadline=None)
@given(lines, st.booleans())
def test_text_that_looks_like_a_message_cannot_tell_who_has_sent_it(
    data: bytes, in_base64: bool
) -> None:
    try:
        text = None if in_base64 else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        payload = {"name": "n", "dataBase64": base64.b64encode(data).decode()}
    else:
        payload = {"name": "n", "data": text}
    line = to_line(b"n", PLAIN, "browser/eve", dump(payload))
    message = from_line(b"n", line, "browser/eve", trusted=True)
    assert message.sender == "browser/eve"
    assert message.type == PLAIN


@settings(deadline=None)
@given(lines, st.booleans())
@example(b'{"type":"x","from":"a/b","payload":[1,\n{"injected":1},\n2]}', True)
def test_any_line_becomes_json_that_fits_into_a_line_of_json(data: bytes, trusted: bool) -> None:
    message = from_line(b"n", data, EVE, trusted)
    decode(message.payload)
    assert b"\n" not in message.payload
    assert b"\r" not in message.payload
    decode(b'{"payload":' + message.payload + b"}")  # nor is it too deep for that
    if message.metadata is not None:
        assert isinstance(decode(message.metadata), dict)
