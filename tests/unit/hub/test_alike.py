"""What another daemon sends, if it is like something earlier, is delivered as if it were read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.hub import replies as r
from pubsubd.hub.alike import Recurring
from pubsubd.hub.handover import write
from pubsubd.hub.ids import new_id
from pubsubd.hub.mirrors import decode
from pubsubd.hub.strict import LIGHT
from pubsubd.hub.templates import UNLIKE
from tests.examples import examples
from tests.federations import Wing, federate
from tests.hubs import message_b
from tests.webs import Web

read = msgspec.json.Decoder(r.Delivery).decode
encode = msgspec.json.encode

texts = st.sampled_from(["", "a-1", "b-2", "a\n1", 'a"1', "é-1", "a-10", '","timestamp":5,"x":"'])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
deliveries = st.fixed_dictionaries(
    {
        "payload": values,
        "type": st.sampled_from(["t", 'u","payload":1,"x":"', "é"]),
        "pattern": st.sampled_from(["ask", "tell"]),
        "correlation_id": st.none() | texts,
        "timestamp": st.sampled_from([5, 1_767_225_606_000, 1_767_225_606_001, 0, -5]),
        "original": texts,
        "more": st.dictionaries(
            st.sampled_from(["via", "x", "timestamp", "originalMessageId"]),
            texts | st.sampled_from([5, {"originalMessageId": "a-1"}, "%b %d"]),
            max_size=2,
        ),
    }
)


def text(one: dict[str, Any], sender: str = "x/ann") -> bytes:
    """Return a message as a daemon sends it to another."""
    return encode(
        r.Delivery(
            id=new_id(),
            sender=sender,
            to="",
            type=one["type"],
            payload=msgspec.Raw(encode(one["payload"])),
            pattern=one["pattern"],
            correlation_id=one["correlation_id"],
            timestamp=one["timestamp"],
            metadata=one["more"] | {"forwarded": True, "originalMessageId": one["original"]},
        )
    )


def write_read(body: bytes, to: str) -> bytes:
    """Return what is delivered of a message that is read."""
    return write(decode(read, body), to, to.startswith("@("))


def plain(**more: Any) -> dict[str, Any]:
    fields = {"payload": "x", "type": "t", "pattern": "tell", "correlation_id": None}
    return fields | {"timestamp": 1_767_225_606_000, "original": "m-1", "more": {}} | more


def known(body: bytes) -> Recurring:
    """Return what has been sent this message."""
    recurring = Recurring()
    assert recurring.write(body, "x/bob") is None
    recurring.note(body, decode(read, body))
    return recurring


@pytest.mark.parametrize("to", ["x/bob", "@(x/bob)"])
@pytest.mark.parametrize("correlation", [None, "c-1"])
def test_a_message_like_an_earlier_one_is_not_read(to: str, correlation: str | None) -> None:
    recurring = known(text(plain(correlation_id=correlation, more={"trace": "%b", "via": "y"})))
    body = text(
        plain(
            payload={"a": [1, "é"]},
            correlation_id=correlation and "d-2",
            timestamp=1_767_225_607_777,
            original="n-2",
            more={"trace": "%b", "via": "y"},
        )
    )
    assert recurring.write(body, to) == write_read(body, to)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(deliveries, min_size=2, max_size=6), st.sampled_from(["x/bob", "@(x/bob)"]))
def test_messages_are_delivered_as_if_all_were_read(all_: list[dict[str, Any]], to: str) -> None:
    recurring = Recurring()
    for one in all_:
        body = text(one)
        written = recurring.write(body, to)
        assert written in (None, write_read(body, to))
        for _ in range(UNLIKE):
            recurring.note(body, decode(read, body))


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_what_is_no_message_is_not_taken_for_one(data: st.DataObject) -> None:
    body = text(plain(correlation_id="c-1"))
    recurring = known(body)
    at = data.draw(st.integers(0, len(body) - 1))
    cut = data.draw(st.integers(0, 3))
    put = data.draw(st.sampled_from([b"", b'"', b"\\", b"0", b"x", b"\xff", b",", b'"x":1,', b"{"]))
    spoilt = body[:at] + put + body[at + cut :]
    written = recurring.write(spoilt, "x/bob")
    assert written is None or written == write_read(spoilt, "x/bob")


def test_what_is_spelled_in_another_way_or_large_is_not_remembered() -> None:
    for body in (
        json.dumps(json.loads(text(plain()))).encode(),
        text(plain(more={"x": "y" * LIGHT})),
        text(plain(more={"x": {"originalMessageId": "m-1"}})),
    ):
        assert known(body).write(body, "x/bob") is None


def test_not_every_message_is_remembered_in_its_turn() -> None:
    recurring = known(text(plain()))
    other = text(plain(type="u"))
    for _ in range(UNLIKE - 1):
        recurring.note(other, decode(read, other))
        assert recurring.write(other, "x/bob") is None
    recurring.note(other, decode(read, other))
    assert recurring.write(other, "x/bob") == write_read(other, "x/bob")


def test_what_is_said_again_across_a_link_comes_as_it_was_said() -> None:
    web, wings = federate("ab")
    for name, wing in (("ann", wings["a"]), ("bob", wings["b"])):
        wing.registered(name)

    def heard(number: int) -> Any:
        said = {"to": "x/bob", "type": "t", "data": [number, "é"]}
        wings["a"].say("ann", message_b("hub:send", said, me="x/ann", id=f"m-{number}"))
        web.run(0.2)
        (one,) = wings["b"].hears("bob")
        del one["id"], one["timestamp"]
        return one

    first = heard(1)
    for number in range(2, 30):
        again = first | {"payload": [number, "é"]}
        again["metadata"] = first["metadata"] | {"originalMessageId": f"m-{number}"}
        assert heard(number) == again


def test_rights_and_the_end_of_a_registration_hold_for_what_is_said_again() -> None:
    web, wings = federate("ab")
    wings["a"].registered("ann")
    wings["b"].registered("bob")
    for _ in range(20):
        wings["a"].say(
            "ann", message_b("hub:send", {"to": "x/bob", "type": "t", "data": 1}, me="x/ann")
        )
    web.run(0.2)
    assert len(wings["b"].hears("bob")) == 20
    _leave(web, wings["b"])
    wings["a"].say(
        "ann", message_b("hub:send", {"to": "x/bob", "type": "t", "data": 1}, me="x/ann")
    )
    web.run(0.5)
    (told,) = wings["a"].hears("ann")
    assert told["payload"]["code"] == "unknown_actor"


def _leave(web: Web, wing: Wing) -> None:
    wing.say("bob", message_b("hub:unregister", {"actorAddress": "x/bob"}, me="x/bob"))
    web.run(0.2)
    wing.hears("bob")
