"""Messages like an earlier one: they mean the same as if each were read, and are not read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsubd.hub import dispatch
from pubsubd.hub.strict import JsonError, read
from pubsubd.hub.templates import UNLIKE, Sample
from pubsubd.protocol.limits import Limits
from tests.examples import examples
from tests.hubs import Room, connect_a, message_a, message_b

_RANDOM = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|msg_[0-9a-f]{32}|sub-[0-9a-f-]+")
STYLES: list[Any] = [(",", ":"), (", ", ": ")]

data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(['"', "\\", '","id":"x', "", "a b", "\x7f", "é"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ids = st.sampled_from(["a-1", "b-2", "a\n1", 'a"1', "é-1", "a-10", ""])
times = st.sampled_from([1, 5, 9, 12, 0, -1, 1.5])
others = st.dictionaries(
    st.sampled_from(["data", "id", "payload", "message", "timestamp", "metadata", "request_id"]),
    st.sampled_from(["x", "a-1", 5, {"data": "x"}, {"id": "a-1"}]),
    max_size=2,
)


def hub_a(data: Any, id_: str, time: float, more: Any) -> Any:
    payload = {"topic": "t", "type": "x", "data": data}
    return message_a("hub:publish", payload, id=id_, timestamp=time) | more


def hub_b(data: Any, _id: str, time: float, more: Any) -> Any:
    payload = {"topic": "t", "message": {"type": "x", "data": data}}
    return message_b("hub:publish", payload, timestamp=time) | more


def envelope(data: Any, id_: str, _time: float, _more: Any) -> Any:
    return {"type": "t", "id": id_, "payload": data}


def synap(data: Any, id_: str, _time: float, more: Any) -> Any:
    return {
        "command": "pubsub.publish",
        "request_id": id_,
        "payload": {"topic": "t", "payload": data},
    } | more


def send_a(data: Any, id_: str, time: float, more: Any) -> Any:
    payload = {"to": "@(x/cat)", "type": "x", "data": data}
    said = message_a("hub:send", payload, id=id_, timestamp=time, pattern="ask")
    return said | {"metadata": {"100%": ["%b", None], "via": "y"}} | more


def send_b(data: Any, id_: str, time: float, more: Any) -> Any:
    payload = {"to": "x/cat", "type": "x", "data": data}
    return message_b("hub:send", payload, timestamp=time, correlationId="c") | {"id": id_} | more


def send_nobody(data: Any, id_: str, time: float, more: Any) -> Any:
    payload = {"to": "x/nobody", "type": "x", "data": data}
    return message_a("hub:send", payload, id=id_, timestamp=time, pattern="ask") | more


FEW: list[Any] = [("x", "a-1", 1), ("y", "b-2", 5), ("zz", "c-3", 7)]
DIALECTS = [hub_a, hub_b, envelope, synap]
SENDS = [send_a, send_b, send_nobody]


def hall(**limits: Any) -> Room:
    """Return a port at which cat has subscribed what ann publishes."""
    room = Room(**{"rate": 0, **limits})
    room.join("ann", "cat")
    room.say("ann", message_a("hub:connect", metadata=connect_a()))
    room.say("cat", {"command": "pubsub.subscribe", "payload": {"topics": ["t", "t:a-1", "t:b-2"]}})
    room.say("cat", message_b("hub:register", {"actorAddress": "x/cat"}, me="x/cat"))
    for name in ("ann", "cat"):
        room.hears(name)
    return room


def outcome(
    lines: list[bytes], *, alike: bool, together: bool = False, **limits: Any
) -> tuple[dict[str, bytes], list[int], bool]:
    """Return what comes of lines, each in a read of its own or together, but for what is random."""
    room = hall(**limits)
    ann = room.connections["ann"]
    for one in [b"\n".join(lines)] if together else lines:
        if not alike:
            ann.template, ann.unlike = None, -1
        room.say_raw("ann", one + b"\n")
    hub = room.hub
    counts = [hub.processed, hub.failed, hub.ignored, hub.synap.published]
    heard = {name: _RANDOM.sub(b"?", said) for name, said in room.heard.items()}
    return heard, counts, "ann" in room.ended


def write(dialect: Any, style: Any, *parts: Any) -> bytes:
    return json.dumps(dialect(*parts), separators=style, ensure_ascii=style == STYLES[1]).encode()


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from([*DIALECTS, *SENDS]),
    st.sampled_from(STYLES),
    others,
    st.lists(st.tuples(data, ids, times), min_size=2, max_size=5),
    st.binary(max_size=3),
    st.integers(0, 300),
    st.sampled_from([{}, {"rate": 1, "burst": 3}]),
)
@example(hub_a, STYLES[0], {}, FEW, b"", 0, {})
@example(hub_a, STYLES[0], {}, FEW * 2, b"", 0, {"rate": 1, "burst": 4})
@example(hub_a, STYLES[0], {"ttl": 1}, FEW, b"", 0, {})
@example(hub_b, STYLES[0], {}, FEW, b"", 0, {"rate": 1, "burst": 2})
@example(
    send_a, STYLES[1], {}, [("x", "a-1", 1), ("y%", "b-2", 5), ({"a": 1}, "c-3", 7)], b"", 0, {}
)
@example(send_nobody, STYLES[0], {}, FEW, b"", 0, {})
@example(envelope, STYLES[0], {}, [("x", "a-1", 1)] * 3, b"", 0, {})
@example(synap, STYLES[0], {}, FEW, b"", 0, {})
@example(
    synap,
    STYLES[0],
    {},
    [(FEW[0][0], "a-1", 1), ({"name": "t", "data": "y"}, "b-2", 5)],
    b"",
    0,
    {},
)
@example(synap, STYLES[1], {}, [({"a": 1}, "a-1", 1), ({"a": 2}, "b-2", 5)], b'"', 80, {})
def test_messages_mean_the_same_as_if_each_were_read(
    dialect: Any, style: Any, more: Any, parts: list[Any], hurt: bytes, at: int, limits: Any
) -> None:
    lines = [write(dialect, style, *one, more) for one in parts]
    damaged = lines[-1][:at] + hurt + lines[-1][at + len(hurt) :]
    lines.append(damaged.replace(b"\n", b" "))
    expected = outcome(lines, alike=False, **limits)
    assert outcome(lines, alike=True, **limits) == expected
    assert outcome(lines, alike=True, together=True, **limits) == expected


@pytest.mark.parametrize("dialect", [hub_a, envelope, synap])
def test_messages_alike_that_come_together_are_carried_out_together(dialect: Any) -> None:
    room, alone, together = hall(), "one by one", "together"
    heard, counts = {}, {}
    for way in (alone, together):
        lines = [write(dialect, STYLES[0], "y" * n, "a-1", 10, {}) + b"\n" for n in range(20)]
        if dialect is not envelope:
            lines = [one.replace(b"a-1", b"%03d" % n) for n, one in enumerate(lines)]
        looked: list[bytes] = []
        receivers = room.broker.router.receivers

        def look(name: bytes, receivers: Any = receivers, looked: Any = looked) -> Any:
            looked.append(name)
            return receivers(name)

        room.broker.router.receivers = look  # type: ignore[method-assign]
        for said in lines if way is alone else [b"".join(lines)]:
            room.say_raw("ann", said)
        room.broker.router.receivers = receivers  # type: ignore[method-assign]
        heard[way] = [_RANDOM.sub(b"?", room.heard[name]) for name in ("ann", "cat")]
        counts[way] = len(looked)
        for name in ("ann", "cat"):
            room.hears(name)
    assert heard[alone] == heard[together]
    assert (counts[alone], counts[together]) == (20, 1)


@pytest.mark.parametrize("dialect", [hub_a, envelope, synap])
def test_of_messages_alike_one_that_is_too_large_is_refused_alone(dialect: Any) -> None:
    lines = [write(dialect, STYLES[0], "y" * n, "a-1", 1, {}) for n in (1, 1, 600, 1, 1)]
    few = {"line_limits": Limits(max_payload=500)}
    assert outcome(lines, alike=True, together=True, **few) == outcome(lines, alike=False, **few)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_like_the_one_before_is_not_read_again(
    dialect: Any, style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, reads = hall(), []

    def count(text: bytes) -> Any:
        reads.append(text)
        return read(text)

    monkeypatch.setattr(dispatch, "read", count)
    for number in range(20):
        id_ = "a-1" if dialect is envelope else f"id-{number:02}"
        room.say_raw("ann", write(dialect, style, "y" * number, id_, 10 + number, {}) + b"\n")
    assert len(reads) == 1
    texts = [message["message"] for message in room.hears("cat")]
    assert [len(text if isinstance(text, str) else text["data"]) for text in texts] == [*range(20)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dialect", [send_a, send_b])
def test_a_message_to_an_actor_like_the_one_before_is_not_read_again(
    dialect: Any, style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, reads = hall(), []

    def count(text: bytes) -> Any:
        reads.append(text)
        return read(text)

    monkeypatch.setattr(dispatch, "read", count)
    for number in range(20):
        said = write(dialect, style, "y" * number, f"id-{number:02}", 10 + number, {})
        room.say_raw("ann", said + b"\n")
    assert len(reads) == 1
    heard = room.hears("cat")
    assert [len(one["payload"]) for one in heard] == [*range(20)]
    ids = [f"id-{number:02}" for number in range(20)]
    assert [one["metadata"]["originalMessageId"] for one in heard] == ids
    assert [one["correlationId"] for one in heard] == (ids if dialect is send_a else ["c"] * 20)
    assert len({one["id"] for one in heard}) == 20


def test_after_some_that_are_unlike_another_message_is_remembered() -> None:
    room = hall()
    said = [write(hub_a, STYLES[0], "x", "a-1", 1, {"ttl": ttl}) + b"\n" for ttl in (None, 5)]
    room.say_raw("ann", said[0])
    first = room.connections["ann"].template
    for _ in range(UNLIKE):
        assert room.connections["ann"].template is first
        room.say_raw("ann", said[1])
    assert room.connections["ann"].template is not first


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":"x","data":1,"z":{"data":1}}',  # which of them?
        b'{"id":"x", "data":1}',  # a spelling of its own
        b'{"id":"x","data":1,"z":"' + b"y" * 3_000 + b'"}',
    ],
)
def test_a_message_that_leaves_doubt_is_not_remembered(text: bytes) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    sample = Sample(text, read(text)[1])
    assert sample.template(("data", b"1"), ("id", b'"x"'), ("time", None), fail) is None


def test_only_what_is_legal_by_itself_stands_in_for_data() -> None:
    text = b'{"id":"x","data":1,"time":17}'
    taken: list[Any] = []

    def take(*found: Any) -> None:
        taken.append(found)

    template = Sample(text, text).template(("data", b"1"), ("id", b'"x"'), ("time", 17.0), take)
    assert template is not None
    for data in (b'"y"', b"[1, 2]", b'"\\u0041"', b"null"):
        assert template.take(b'{"id":"z","data":%b,"time":99}' % data)
    assert taken == [
        (b'"y"', b"z", 99),
        (b"[1,2]", b"z", 99),
        (b'"A"', b"z", 99),
        (b"null", b"z", 99),
    ]
    for wrong in (
        b"",
        b"{}",
        b'{"id":"z","data":,"time":99}',
        b'{"id":"z","data":1,"id":"q","time":99}',
        b'{"id":"z","data":"\xff","time":99}',
        b'{"id":"z","data":{"a":1,"a":2},"time":99}',
        b'{"id":"z","data":99999999999999999999,"time":99}',
        b'{"id":"z","data":%b1%b,"time":99}' % (b"[" * 199, b"]" * 199),
        b'{"id":"\\","data":1,"time":99}',
        b'{"id":"z","data":1,"time":09}',
        b'{"id":"z","data":1,"time":9.}',
        b'{"id":"z","data":1,"time":99}}',
    ):
        assert not template.take(wrong)
        assert len(taken) == 4
    with pytest.raises(JsonError):
        read(b"[" * 201 + b"]" * 201)


def test_a_time_that_is_no_integer_has_to_be_the_same() -> None:
    text = b'{"data":1,"time":17.5}'
    taken: list[Any] = []

    def take(*found: Any) -> None:
        taken.append(found)

    template = Sample(text, text).template(("data", b"1"), ("id", b"null"), ("time", 17.5), take)
    assert template is not None
    assert template.take(b'{"data":2,"time":17.5}')
    assert not template.take(b'{"data":2,"time":99.5}')
    assert taken == [(b"2", b"", 0)]
