"""Do the schemas say what the hub port takes, and what it sends?

Messages are made from the schemas and said to a hub: it reads all of them, and whatever it sends
because of them satisfies a schema. What satisfies none is refused or ignored.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.hub import actors, replies
from pubsubd.hub.schema import asyncapi, signal, synap
from pubsubd.hub.signal import REQUESTS
from pubsubd.hub.synap import commands
from tests.daemons import ROOT
from tests.examples import examples
from tests.hubs import HUB_B, Room, connect_a, message_a
from tests.schemas import DEFINITIONS, SCHEMA, kinds_of

CLIENT = [name for name in DEFINITIONS if name.startswith("client_")]
SHAPE = re.compile(
    r"Invalid SharedMessage structure|Unknown (message type|command)|payload: |not JSON"
    r"|is required|required, got|mismatch|must be|Missing|At least one|is no address|has 1 to 256"
)
"""What the daemon says of a message that it cannot read."""


# Messages made from a schema


def merged(one: Any, other: Any) -> dict[str, Any]:
    """Return a schema for what satisfies both."""
    both = one | other
    for key in ("properties",):
        if key in one and key in other:
            both[key] = one[key] | other[key]
            for name in one[key].keys() & other[key].keys():
                both[key][name] = {"allOf": [one[key][name], other[key][name]]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def alternatives(schema: Any) -> list[dict[str, Any]]:
    """Return schemas without anyOf, allOf and references, one of which is satisfied."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "allOf", "$ref")}
    found = [rest]
    parts = list(schema.get("allOf", []))
    if "$ref" in schema:
        parts.append(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    for part in parts:
        found = [merged(one, other) for one in found for other in alternatives(part)]
    if "anyOf" in schema:
        choices = [one for part in schema["anyOf"] for one in alternatives(part)]
        found = [merged(one, other) for one in found for other in choices]
    return found


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2), st.just({"name": "a"})
)


@cache
def satisfying(text: str) -> st.SearchStrategy[Any]:
    """Return a strategy for values that satisfy a schema, given as JSON."""
    return st.one_of([_one(schema) for schema in alternatives(json.loads(text))])


def _one(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type")
    if kinds is None:
        kinds = "object" if "properties" in schema else None
    if kinds is None:
        return VALUES
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if schema.get("not") == {"type": "null"}:
        kinds = [kind for kind in kinds if kind != "null"]
    return st.one_of([_of(kind, schema) for kind in kinds]) if kinds else st.nothing()


def _of(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", 1 if "exclusiveMinimum" in schema else -3)
    if kind == "null":
        return st.none()
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        return st.integers(least, 1_000)
    if kind == "number":
        return st.integers(least, 10**12) | st.floats(max(least, 0.5), 1e6)
    if kind == "array":
        most = min(schema.get("maxItems", 3), 3)
        items = satisfying(json.dumps(schema.get("items", {})))
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=most)
    if kind == "string":
        if "pattern" in schema and "/" in schema["pattern"]:
            return st.sampled_from(["x/ann", "x/bob", "@(x/ann)", "@(y/c.d/e)"])
        if "pattern" in schema and "^[^" not in schema["pattern"]:
            return st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=False)
        low, high = schema.get("minLength", 0), min(schema.get("maxLength", 6), 6)
        if "pattern" in schema:
            low = max(low, 1)
        return st.sampled_from(["a", "a/b", "+"]) | st.text("ab/_-#+", min_size=low, max_size=high)
    assert kind == "object", kind
    properties = {
        name: satisfying(json.dumps(inner)) for name, inner in schema.get("properties", {}).items()
    }
    needed = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: properties[name] for name in needed if name in properties},
        optional={name: inner for name, inner in properties.items() if name not in needed},
    )


def message_of(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for messages of a definition."""
    return satisfying(json.dumps({"$ref": f"#/$defs/{name}"})).filter(
        lambda message: name in kinds_of(message, "client")
    )


ANY_MESSAGE = st.sampled_from(CLIENT).flatmap(message_of)


@pytest.mark.parametrize("name", CLIENT)
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_what_satisfies_a_schema_is_read(name: str, data: st.DataObject) -> None:
    room = Room(rate=0)
    room.join("ann")
    room.say("ann", data.draw(message_of(name)))
    for answer in room.hears("ann"):
        assert kinds_of(answer, "daemon"), answer
        fault = answer.get("payload") if answer.get("type") == "hub:error" else answer
        text = str((fault or {}).get("message") or answer.get("error") or "")
        if "must match" not in text and "topic" not in text.lower():  # that is for settings
            assert not SHAPE.search(text), (text, answer)


@given(said=st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), ANY_MESSAGE), max_size=12))
@settings(max_examples=examples(150), deadline=None)
def test_whatever_the_daemon_sends_satisfies_a_schema(said: list[tuple[str, Any]]) -> None:
    room = Room(rate=0)
    room.join("ann", "bob", "eve")
    room.join_line("nc")
    room.connect_a("eve")
    for name in ("ann", "bob"):
        room.say(name, {"type": "hub:subscribe", "payload": {"topic": "#"}})
        room.say(name, {"command": "pubsub.subscribe", "payload": {"topics": ["#"]}})
    for name, message in said:
        if name not in room.ended:
            room.say(name, message)
        room.say_raw("nc", b'pub a 2 hi\npub a/b 24 {"type":"","payload":[]}  \npub a:b 1 \xff\n')
    for name in ("ann", "bob", "eve"):
        for heard in room.hears(name):
            assert kinds_of(heard, "daemon"), heard


@pytest.mark.parametrize(
    "message",
    [
        {"type": "hub:connect"},
        {"type": "hub:connect", "payload": {"version": "2.0"}},
        {"type": "hub:connect", "payload": {"version": 1}},
        {"type": "hub:connect", "metadata": {"protocolVersion": "0.1.0", "capabilities": []}},
        {"type": "hub:connect", "metadata": {"protocolVersion": "1.0", "capabilities": ["x"]}},
        {"type": "hub:register", "payload": {}},
        {"type": "hub:register", "payload": {"actorAddress": "ann"}},
        {"type": "hub:register", "payload": {"actorAddress": "x/" + "y" * 255}},
        {"type": "hub:register", "payload": {"actorAddress": "x/ann", "ttl": 0}},
        {"type": "hub:register", "payload": {"actorAddress": "x/ann", "metadata": []}},
        {"type": "hub:register", "payload": {"actorAddress": "x/ann", "capabilities": [""]}},
        {"type": "hub:renew", "payload": {"actorAddress": "x/ann"}},
        {"type": "hub:discover", "payload": {"limit": 0}},
        {"type": "hub:discover", "payload": {"offset": -1}},
        {"type": "hub:discover", "payload": {"pattern": "x" * 1025}},
        {"type": "hub:discover", "payload": {"capabilities": "ui"}},
        {"type": "hub:send", "payload": {"type": "x"}},
        {"type": "hub:send", "to": "x/ann", "payload": {"data": 1}},
        {"type": "hub:send", "to": "x/ann", "payload": {"type": "a b"}},
        {"type": "hub:send", "to": "x/ann", "payload": {"type": "a" * 257}},
        {"type": "hub:broadcast", "payload": None},
        {"type": "hub:subscribe", "payload": None},
        {"type": "hub:subscribe", "payload": {"topic": ""}},
        {"type": "hub:subscribe", "payload": {"topic": "a b"}},
        {"type": "hub:publish", "payload": {"type": "x"}},
        {"type": "hub:publish", "payload": {"topic": 7, "type": "x"}},
        {"type": "hub:publish", "payload": {"topic": "a"}},
        {"type": "hub:publish", "payload": {"topic": "a", "message": {"data": 1}}},
        {"type": "hub:publish"},
        {"type": "hub:unsubscribe", "payload": {}},
        {"type": "hub:topic_info", "payload": {}},
        {"type": "hub:refresh_token", "payload": {}},
        {"type": "hub:heartbeat", "payload": 7},
        {"type": "hub:heartbeat", "pattern": "shout"},
        {"type": "hub:heartbeat", "from": 7},
        {"type": "hub:heartbeat", "ttl": "7"},
        {"type": "hub:nothing", "payload": {}},
        {"command": "pubsub.publish", "payload": {"payload": 1}},
        {"command": "pubsub.publish", "payload": {"topic": "a"}},
        {"command": "pubsub.publish", "payload": {"topic": "", "data": 1}},
        {"command": "pubsub.publish", "payload": {"topic": "a", "data": 1, "metadata": 7}},
        {"command": "pubsub.subscribe", "payload": {"topics": []}},
        {"command": "pubsub.subscribe", "payload": {"topics": ["a"], "subscriber_id": ""}},
        {"command": "pubsub.info", "payload": {}},
        {"command": "pubsub.topics", "payload": {"limit": "1"}},
        {"command": "pubsub.nothing"},
        {"type": "a", "id": "1"},
        {"type": "a", "id": "1", "payload": 1, "more": 2},
        {"type": "", "id": "1", "payload": 1},
        {"type": "a b", "id": "1", "payload": 1},
        {"type": "a", "id": 1, "payload": 1},
        {"type": "__subscribe", "id": "", "payload": {}},
        {"type": "__other", "id": "", "payload": {"topic": "a:1"}},
        {"type": "ping", "more": 1},
        {},
    ],
    ids=json.dumps,
)
def test_what_satisfies_no_schema_is_refused(message: Any) -> None:
    assert kinds_of(message, "client") == []
    room = Room()
    room.join("ann")
    room.say("ann", message)
    heard = room.hears("ann")
    if room.hub.ignored:
        assert heard == []
    else:
        (answer,) = heard
        assert answer.get("type") == "hub:error" or answer.get("success") is False, answer


@pytest.mark.parametrize("message", [[], 7, "x", None])
def test_what_is_no_object_satisfies_no_schema(message: Any) -> None:
    assert kinds_of(message, "client") == kinds_of(message, "daemon") == []


# What the schemas repeat


@given(st.text("aZ9._:-/@()# \n", max_size=12) | st.just("x/" + "y" * 254))
def test_an_address_is_one_in_the_schemas_as_it_is_in_the_registry(text: str) -> None:
    schema = SCHEMA["$defs"]["HubUnregister"]["properties"]["actorAddress"]
    assert jsonschema.Draft202012Validator(schema).is_valid(text) == (
        actors.canonical(text) is not None
    )


def test_every_error_code_is_told_somewhere() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "pubsubd" / "hub").rglob("*.py")
        if path.name != "messages.py"
    )
    for code in replies.CODES:
        assert f'"{code}"' in sources, code


# Completeness


def test_the_schemas_are_schemas_whose_references_lead_somewhere() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(SCHEMA)))
    assert references == {
        f"#/$defs/{name}" for name in SCHEMA["$defs"] if not name.startswith("http_")
    }


def test_no_text_of_the_schemas_has_markup_of_the_source() -> None:
    for text in re.findall(r'"description": "([^"]*)"', json.dumps(asyncapi())):
        assert "``" not in text
        assert ":class:" not in text
        assert "_" not in re.sub(r"hub:[a-z_]+|created_at|access_token|__\w+", "", text), text


def test_the_schemas_cover_every_request_reply_and_command() -> None:
    assert list(signal.ANSWERS) == list(REQUESTS)
    assert list(synap.COMMANDS) == list(commands.COMMANDS)
    for name in (*REQUESTS, *synap.COMMANDS):
        assert f"client_{re.sub('[.:]', '_', name)}" in DEFINITIONS
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "pubsubd/hub/signal").glob("*.py")
    )
    sent = set(re.findall(r'"(hub:[a-z_]+)"', sources)) - set(REQUESTS)
    sent |= {"hub:disconnect", "hub:topic_info"}  # both a request and a reply
    assert sent == set(signal.REPLIES)
    assert {reply for replies in signal.ANSWERS.values() for reply in replies} == sent - {
        "hub:error",
        "hub:registration_lost",
    }


@pytest.mark.parametrize("dialect", ["A", "B"])
def test_a_request_is_answered_with_what_the_schemas_say(dialect: str) -> None:
    payloads: dict[str, Any] = {
        "hub:register": {"actorAddress": "x/ann", "capabilities": ["ui"]},
        "hub:send": {"to": "x/ann", "type": "hi", "data": 1},
        "hub:broadcast": {"type": "hi", "data": 1},
        "hub:subscribe": {"topic": "a"},
        "hub:publish": {"topic": "a", "type": "hi", "data": 1},
        "hub:unsubscribe": {"topic": "a"},
        "hub:topic_info": {"topic": "a"},
    }
    room = Room()
    room.join("ann")
    me = "@(x/ann)" if dialect == "A" else "x/ann"
    last = ["hub:unregister", "hub:disconnect"]
    order = [kind for kind in REQUESTS if kind not in last] + last
    token = ""
    for kind in order:
        if kind == "hub:refresh_token":
            continue  # tokens have tests of their own
        payload = payloads.get(kind, {})
        metadata: Any = {}
        if kind == "hub:renew":
            payload = {"renewalToken": token}
        if kind == "hub:connect":
            payload = {} if dialect == "A" else {"version": "1.0"}
            metadata = connect_a() if dialect == "A" else {}
        more = {"to": HUB_B, "pattern": "ask"}
        room.say("ann", message_a(kind, payload, me=me, metadata=metadata, **more))
        types = {one["type"]: one for one in room.hears("ann")}
        if kind == "hub:send" and dialect == "B":
            assert set(types) == {"hi"}
            continue
        answered = set(types) & set(signal.ANSWERS[kind])
        assert len(answered) == 1, (kind, types)
        token = (types.get("hub:registered") or {}).get("payload", {}).get("renewalToken", token)


def test_the_asyncapi_document_is_whole() -> None:
    document = json.loads(json.dumps(asyncapi()))
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(document["info"])
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
        place = document
        for step in reference.split("/"):
            place = place[step]
    for kind, entries in document["components"].items():
        for key in entries:
            assert re.fullmatch(r"[a-zA-Z0-9._-]+", key), (kind, key)
    said = set()
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        sides = [(operation["action"], operation["messages"])]
        if "reply" in operation:
            assert operation["action"] == "receive"
            assert operation["reply"]["channel"]["$ref"] == channel
            sides.append(("send", operation["reply"]["messages"]))
        for action, listed in sides:
            for message in listed:
                assert message["$ref"].startswith(f"{channel}/messages/")
                name = message["$ref"].rpartition("/")[2]
                assert name.startswith("client_" if action == "receive" else "daemon_")
                said.add(name)
    assert said == set(DEFINITIONS) == set(document["components"]["messages"])
    schemas = document["components"]["schemas"]
    text = json.dumps(schemas).replace("#/components/schemas/", "#/$defs/")
    assert json.loads(text) == SCHEMA["$defs"]
