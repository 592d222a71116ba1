"""Whatever a client of the hub port says: no exception, and only what is JSON comes back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.hub.signal import REQUESTS
from tests.examples import examples
from tests.hubs import Room

COMMANDS = [
    f"pubsub.{name}" for name in ("publish", "subscribe", "unsubscribe", "topics", "info", "stats")
]
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["t", "a/b", "+", "#", "a.*", "x/ann", "@(x/ann)", "tell", "ask", "1.0", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "topic", "type", "data", "message", "to", "actorAddress", "capabilities", "metadata", "ttl",
        "ttlSeconds", "renewalToken", "pattern", "capability", "limit", "offset", "version", "jwt",
        "token", "subscriptionId", "excludeSelf", "timestamp", "protocolVersion", "authToken",
        "targetCapability", "topics", "subscriber_id", "payload", "name", "dataBase64",
    ]
)  # fmt: skip
payloads = st.dictionaries(keys, odd, max_size=5) | odd
messages = (
    st.fixed_dictionaries(
        {"type": st.sampled_from([*REQUESTS, "__subscribe", "__unsubscribe", "ping", "x"]) | odd},
        optional={
            "id": odd,
            "from": odd,
            "to": odd,
            "payload": payloads,
            "pattern": odd,
            "correlationId": odd,
            "timestamp": odd,
            "metadata": payloads,
            "ttl": odd,
        },
    )
    | st.fixed_dictionaries({"command": st.sampled_from(COMMANDS) | odd, "payload": payloads})
    | odd
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ann", "bob"]), messages), max_size=12))
def test_any_messages_are_carried_out_or_refused(said: list[tuple[str, Any]]) -> None:
    room = Room(rate=0)
    room.join("ann", "bob", "cat")
    room.join_line("lin")
    room.say_raw("lin", b"sub e\nsub /\n")
    room.say("cat", {"type": "ping"})
    room.hears("cat")
    for name, message in said:
        if name in room.connections:
            room.say(name, {"type": "ping"}, message)
        for one in ("ann", "bob"):
            for heard in room.hears(one):
                assert isinstance(heard, dict), heard
        for topic, data in room.hears("lin"):
            assert not set(topic) & set(b" \r\n")  # other white space is as good as letters
            json.loads(data) if data.startswith(b'{"type"') else None
    room.tick(4_000)
    room.say("cat", {"type": "ping"})
    assert room.hears("cat") == [{"type": "pong"}]
    for name in list(room.connections):
        room.leave(name)
    assert room.broker.router.subscriptions == 2 + sum(
        len(one.topics) for one in room.hub.synap.subscribers.values()
    )


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_are_carried_out_or_refused(data: bytes, step: int) -> None:
    room = Room()
    room.join("ann", "bob")
    for at in range(0, len(data), step):
        if "ann" in room.connections:
            connection = room.connections["ann"]
            while connection.receive(data[at : at + step]):
                break
            if connection.peer.ending is not None:
                room.leave("ann")
    assert room.ask("bob", {"type": "ping"}) == {"type": "pong"}
