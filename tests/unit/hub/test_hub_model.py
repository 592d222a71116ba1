"""The registry and the subscriptions of the real session core, against a naive model.

The model keeps lists and tries everything; what each connection hears, message by message, has to
be what the model says, whatever came before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.examples import examples
from tests.hubs import Room, message_a, message_b

NAMES = ("c0", "c1", "c2")
ADDRESSES = ("x/a", "x/b", "y/a")
TOPICS = ("a", "a/b", "a/b/c", "b", "s.t", "s.t.u", "e:1", "//f/g")
HUB_TOPICS = ("a", "a/b", "b", "+", "a/+", "a/#", "#", "+/b", "//f/g", "//fwd/f/g")
SYNAP_TOPICS = ("a", "s.*", "s.#", "#", "s.t", "*", "e:*", "//fwd/f/g")
ENVELOPE_TOPICS = ("a", "e:1", "b", "s.t")

names = st.sampled_from(NAMES)


@dataclass
class Client:
    """What the model knows of a connection."""

    dialect: str
    hub: dict[str, str | None] = field(default_factory=dict)  # topic -> actor it is under
    synap: list[str] = field(default_factory=list)
    envelopes: set[str] = field(default_factory=set)
    actors: list[str] = field(default_factory=list)


def wild(topic: str) -> bool:
    """Return whether a topic of any dialect's is a wildcard."""
    return any(mark in topic for mark in "+#*")


def matches(separator: str, topic: str, name: str, fits: Callable[[str, str], bool]) -> bool:
    """Return whether a wildcard means a name, if ``fits`` tells that of their levels."""
    wanted, levels = topic.split(separator), name.split(separator)
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(map(fits, wanted, levels))


def hub_matches(topic: str, name: str) -> bool:
    return matches("/", topic, name, lambda wanted, level: wanted in ("+", level))


def synap_matches(topic: str, name: str) -> bool:
    def fits(wanted: str, level: str) -> bool:
        begins = wanted.endswith("*") and level.startswith(wanted[:-1])
        return begins or wanted in ("*", level)

    return matches(".", topic, name, fits)


class HubMachine(RuleBasedStateMachine):
    """Connections that do anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(rate=0)
        self.room.join_line("lin")
        self.clients: dict[str, Client] = {}
        self.actors: dict[str, tuple[str, float]] = {}  # address -> connection, end
        self.count = 0

    # Connections

    @initialize()
    def begin(self) -> None:
        self.room.say_raw("lin", b"sub a\n")

    @rule(name=names, dialect=st.sampled_from("AB"))
    def join(self, name: str, dialect: str) -> None:
        if name in self.clients:
            return
        self.room.join(name)
        self.clients[name] = Client(dialect)
        if dialect == "A":
            self.room.connect_a(name)

    @rule(name=names, politely=st.booleans())
    def leave(self, name: str, politely: bool) -> None:
        client = self.clients.pop(name, None)
        if client is None:
            return
        if politely:
            self.room.say(name, self.message(client, "hub:disconnect", None))
            self.room.hears(name)
            assert self.room.ended.pop(name)[0] == "goodbye"
        else:
            self.room.leave(name)
        self.forget(name)

    def forget(self, name: str) -> None:
        self.actors = {a: held for a, held in self.actors.items() if held[0] != name}

    def message(self, client: Client, kind: str, payload: Any, **more: Any) -> Any:
        if client.dialect == "A":
            return message_a(kind, payload, **{"me": "@(who/knows)"} | more)
        return message_b(kind, payload, **{"me": "who/knows"} | more)

    def written(self, client: Client, address: str) -> str:
        return f"@({address})" if client.dialect == "A" else address

    # Actors

    @rule(name=names, address=st.sampled_from(ADDRESSES), seconds=st.sampled_from([5, 50]))
    def register(self, name: str, address: str, seconds: int) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        payload = {
            "actorAddress": self.written(client, address),
            "capabilities": ["c"],
            "ttlSeconds": seconds,
        }
        answer = self.room.ask(name, self.message(client, "hub:register", payload))
        holder = self.actors.get(address)
        if holder is not None and holder[0] != name:
            if client.dialect == "B":
                assert answer["payload"]["code"] == "unknown_actor"
                return
            self.room.hears(holder[0])
            assert self.room.ended.pop(holder[0])[0] == "duplicate-connection"
            del self.clients[holder[0]]
            self.forget(holder[0])
        assert answer["type"] == "hub:registered"
        self.actors[address] = name, self.room.now + seconds
        if address not in client.actors:
            client.actors.append(address)

    @rule(name=names, address=st.sampled_from(ADDRESSES))
    def unregister(self, name: str, address: str) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        payload = {"actorAddress": self.written(client, address)}
        answer = self.room.ask(name, self.message(client, "hub:unregister", payload))
        holder = self.actors.get(address)
        if holder is not None and holder[0] != name:
            assert answer["payload"]["code"] == "unauthorized"
            return
        assert answer["type"] == "hub:unregistered"
        self.end_actor(address)

    def end_actor(self, address: str) -> None:
        holder = self.actors.pop(address, None)
        if holder is None:
            return
        client = self.clients[holder[0]]
        client.actors.remove(address)
        client.hub = {topic: actor for topic, actor in client.hub.items() if actor != address}

    @rule(seconds=st.sampled_from([1, 6, 60]))
    def wait(self, seconds: int) -> None:
        self.room.tick(seconds)
        for address, (_, end) in list(self.actors.items()):
            if end <= self.room.now:
                self.end_actor(address)

    # Subscriptions

    @rule(name=names, topic=st.sampled_from(HUB_TOPICS))
    def subscribe_hub(self, name: str, topic: str) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        answer = self.room.ask(name, self.message(client, "hub:subscribe", {"topic": topic}))
        if wild(topic) and any(map(wild, client.synap)):
            assert answer["payload"]["code"] == "internal_error"
            return
        assert answer["type"] == "hub:subscribed"
        client.hub.setdefault(topic, client.actors[-1] if client.actors else None)

    @rule(name=names, topic=st.sampled_from(HUB_TOPICS))
    def unsubscribe_hub(self, name: str, topic: str) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        answer = self.room.ask(name, self.message(client, "hub:unsubscribe", {"topic": topic}))
        assert answer["type"] == "hub:unsubscribed"
        client.hub.pop(topic, None)

    @rule(name=names, topics=st.lists(st.sampled_from(SYNAP_TOPICS), min_size=1, max_size=3))
    def subscribe_synap(self, name: str, topics: list[str]) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        answer = self.room.ask(name, {"command": "pubsub.subscribe", "payload": {"topics": topics}})
        if any(map(wild, client.hub)) and any(wild(one) for one in topics):
            assert "another dialect" in answer["error"]
            return
        assert answer["success"], answer
        client.synap += [topic for topic in dict.fromkeys(topics) if topic not in client.synap]

    @rule(name=names, topic=st.sampled_from(SYNAP_TOPICS))
    def unsubscribe_synap(self, name: str, topic: str) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        command = {"command": "pubsub.unsubscribe", "payload": {"topics": [topic]}}
        answer = self.room.ask(name, command)
        assert answer["payload"] == {"unsubscribed": client.synap.count(topic)}
        client.synap = [one for one in client.synap if one != topic]

    @rule(name=names, topic=st.sampled_from(ENVELOPE_TOPICS), on=st.booleans())
    def subscribe_envelope(self, name: str, topic: str, on: bool) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        kind = "__subscribe" if on else "__unsubscribe"
        self.room.say(name, {"type": kind, "id": "", "payload": {"topic": topic}})
        (client.envelopes.add if on else client.envelopes.discard)(topic)

    # Messages

    def form(self, client: Client, name: str) -> str | None:
        """Return the form in which a connection gets a name, by trying everything."""
        for form, topics in (
            ("hub", client.hub), ("synap", client.synap), ("envelope", client.envelopes)
        ):  # fmt: skip
            if name in topics:
                return form
        if any(hub_matches(topic, name) for topic in client.hub):
            return "hub"
        return "synap" if any(synap_matches(topic, name) for topic in client.synap) else None

    def check_heard(self, name: str, value: Any, sender: str | None) -> int:
        """Compare what all have heard of a message; return how many connections got it."""
        copy = f"//fwd/{name[2:]}" if name.startswith("//") else None
        got = 0
        for who, client in self.clients.items():
            seen = name
            form = self.form(client, name)
            if form is None and copy is not None:
                form, seen = self.form(client, copy), copy
            if form is None or (who == sender and form is not None and sender is not None):
                assert self.room.hears(who) == [], (who, name)
                continue
            got += 1
            (message,) = self.room.hears(who)
            if form == "hub":
                assert (message["metadata"]["topic"], message["payload"]) == (seen, value)
            elif form == "synap":
                assert (message["topic"], message["payload"]) == (seen, value)
            else:
                assert (f"{message['type']}:{message['id']}").rstrip(":") == seen
                assert message["payload"] == value
        return got

    @rule(topic=st.sampled_from(TOPICS))
    def publish_line(self, topic: str) -> None:
        self.count += 1
        data = json.dumps({"type": "t", "payload": self.count})
        self.room.say_raw("lin", f"pub {topic} {len(data)} {data}\n".encode())
        self.check_heard(topic, self.count, None)
        self.room.hears("lin")

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic=st.sampled_from(["a", "a/b", "a/b/c", "b", "//f/g"]))
    def publish_hub(self, data: Any, topic: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        self.count += 1
        payload = {"topic": topic, "type": "t", "data": self.count}
        self.room.say(name, self.message(client, "hub:publish", payload))
        mine = self.room.hears(name)
        kind = "hub:published" if client.dialect == "A" else "hub:delivery_ack"
        (ack,) = [one for one in mine if one.get("type") == kind]
        # Put back what it got of its own, for the common check.
        rest = [one for one in mine if one is not ack]
        self.room.heard[name] = b"".join(json.dumps(one).encode() + b"\n" for one in rest)
        got = self.check_heard(topic, self.count, None)
        heard_by_line = len(self.room.hears("lin"))
        assert heard_by_line == (1 if "a" in topic else 0)
        assert ack["payload"]["subscriberCount"] == got + heard_by_line

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def publish_envelope(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        self.count += 1
        self.room.say(name, {"type": "e", "id": "1", "payload": self.count})
        self.check_heard("e:1", self.count, name)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), address=st.sampled_from(ADDRESSES))
    def send(self, data: Any, address: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        self.count += 1
        payload = {"to": address, "type": "t", "data": self.count}
        more = {"pattern": "ask"} if client.dialect == "A" else {"to": address}
        self.room.say(name, self.message(client, "hub:send", payload, **more))
        holder = self.actors.get(address)
        for who in self.clients:
            heard = self.room.hears(who)
            if holder is not None and who == holder[0]:
                delivered = [one for one in heard if one["type"] == "t"]
                assert [one["payload"] for one in delivered] == [self.count]
                heard = [one for one in heard if one["type"] != "t"]
            if who != name:
                assert heard == []
            elif holder is None:
                kind = "hub:unknown_actor" if client.dialect == "A" else "hub:error"
                assert [one["type"] for one in heard] == [kind]
            else:
                expected = ["hub:delivery_ack"] if client.dialect == "A" else []
                assert [one["type"] for one in heard] == expected

    # What must always be so

    @invariant()
    def the_registry_is_as_the_model_has_it(self) -> None:
        for name, client in self.clients.items():
            answer = self.room.ask(name, self.message(client, "hub:list_actors", {}))
            found = {one["actorAddress"].strip("@()") for one in answer["payload"]["actors"]}
            assert found == set(self.actors)
            break

    @invariant()
    def the_router_has_as_many_subscriptions_as_the_model(self) -> None:
        count = 1
        for client in self.clients.values():
            plain = {topic for topic in client.hub if "+" not in topic and "#" not in topic}
            plain |= {topic for topic in client.synap if "*" not in topic and "#" not in topic}
            plain |= client.envelopes
            count += len(plain)
            count += sum("+" in topic or "#" in topic for topic in client.hub)
            count += sum("*" in topic or "#" in topic for topic in client.synap)
        assert self.room.broker.router.subscriptions == count
        assert not self.room.hub.touched

    def teardown(self) -> None:
        for name in list(self.clients):
            self.room.leave(name)
        assert self.room.broker.router.subscriptions == 1
        assert len(self.room.hub.registry) == 0
        assert self.room.hub.connections == {}
        assert len(self.room.hub.synap.subscribers) == 0


TestHub = HubMachine.TestCase
TestHub.settings = settings(max_examples=examples(250), stateful_step_count=50, deadline=None)


@pytest.mark.parametrize(
    ("topic", "name", "expected"),
    [("a/#", "a", True), ("#", "x/y", True), ("+", "a/b", False), ("a/+", "a/", True)],
)
def test_the_model_matches_as_the_protocol_says(topic: str, name: str, expected: bool) -> None:
    assert hub_matches(topic, name) is expected
