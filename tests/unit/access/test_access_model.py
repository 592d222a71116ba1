"""Any messages, subscriptions, rules and logins, on both ports, against asking each rule."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users
from pubsubd.protocol.wire import copy_name, subscription
from tests.examples import examples
from tests.hubs import Room
from tests.model import Listener
from tests.rights import may

LINES, WEBS = ("ann", "bob", "eve"), ("kim", "lee")
PEOPLE = (*LINES, *WEBS)

texts = st.lists(
    st.sampled_from(["a", "=a/b", "a/+", "#", "//a", "//fwd/b", "*b", "//", "b", "//pubsubd/"]),
    max_size=3,
).map(tuple)
rules = st.builds(
    AclRule,
    st.lists(st.sampled_from(["x", "y", "*"]), min_size=1, max_size=2).map(tuple),
    texts,
    texts,
)
names = st.one_of(
    st.text(alphabet="ab/", min_size=1, max_size=4),
    st.sampled_from(["//a/b", "//b", "//fwd/a", "//fwd/b/a", "a/b"]),
)
patterns = st.sampled_from(["a/+", "#", "+/b", "//a/#", "//fwd/+", "+/+/#"])


class Rights(RuleBasedStateMachine):
    """What reaches whom."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(any_topic=True, rate=0)
        self.room.join(*WEBS)
        self.room.join_line(*LINES)
        self.rules: list[AclRule] = []
        self.who: dict[str, str | None] = dict.fromkeys(PEOPLE)
        self.listeners = {name: Listener() for name in PEOPLE}
        self.count = 0

    def peer(self, name: str) -> Any:
        return self.room.lines[name] if name in LINES else self.room.connections[name].peer

    def may(self, name: str, what: str, topic: str) -> bool:
        return may(self.rules, self.who[name], what, topic.encode())

    @rule(some=st.lists(rules, max_size=3))
    def reload(self, some: list[AclRule]) -> None:
        self.rules = some
        self.room.broker.access.replace(users=Users(), acl=Acl(some), authority=None)

    @rule(name=st.sampled_from(PEOPLE), who=st.sampled_from(["x", "y", "z"]))
    def log_in(self, name: str, who: str) -> None:
        self.who[name] = who
        self.room.broker.login(self.peer(name), who)

    @rule(name=st.sampled_from(LINES), substring=st.one_of(names, st.just("")))
    def subscribe(self, name: str, substring: str) -> None:
        mine = self.listeners[name].substrings
        if substring.encode() not in mine:
            mine.append(substring.encode())
            self.room.say_raw(name, subscription(b"sub", substring.encode()))
        else:
            mine.remove(substring.encode())
            self.room.say_raw(name, subscription(b"unsub", substring.encode()))
        assert self.room.hears(name) == []

    @rule(name=st.sampled_from(WEBS), topic=names)
    def subscribe_topic(self, name: str, topic: str) -> None:
        mine = self.listeners[name].names
        if topic.encode() in mine:
            mine.remove(topic.encode())
            self.ask(name, "hub:unsubscribe", {"topic": topic}, "hub:unsubscribed")
        elif self.may(name, "receive", topic):
            mine.add(topic.encode())
            self.ask(name, "hub:subscribe", {"topic": topic}, "hub:subscribed")
        else:
            self.ask(name, "hub:subscribe", {"topic": topic}, "hub:error")

    @rule(name=st.sampled_from(WEBS), pattern=patterns)
    def subscribe_pattern(self, name: str, pattern: str) -> None:
        mine = self.listeners[name].patterns
        if ("/", pattern) in mine:
            mine.remove(("/", pattern))
            self.ask(name, "hub:unsubscribe", {"topic": pattern}, "hub:unsubscribed")
        else:
            mine.add(("/", pattern))
            self.ask(name, "hub:subscribe", {"topic": pattern}, "hub:subscribed")

    def ask(self, name: str, kind: str, payload: Any, wanted: str) -> None:
        answer = self.room.ask(name, {"type": kind, "payload": payload})
        assert answer["type"] == wanted, answer
        if wanted == "hub:error":
            assert answer["payload"]["code"] == "unauthorized"

    @rule(
        name=st.sampled_from(LINES),
        topic=names,
        verb=st.sampled_from(["pub", "pub", "PUB", "large"]),
        again=st.integers(1, 3),
    )
    def publish(self, name: str, topic: str, verb: str, again: int) -> None:
        sent = []
        for _ in range(again):
            self.count += 1
            sent.append(str(self.count) + ("x" * 300_000 if verb == "large" else ""))
        head = "pub" if verb == "large" else verb
        speech = "".join(f"{head} {topic} {len(data)} {data}\n" for data in sent)
        allowed = self.may(name, "publish", topic)
        self.room.hears(name)
        self.room.say_raw(name, speech.encode())
        self.room.hub.flush()
        refused = []
        if not allowed:
            refused, sent = [("//pubsubd/error", "not-allowed")], []
        if verb == "large" and not allowed:  # each may be refused by itself
            messages, errors = self.heard(name)
            assert (messages, set(errors)) == ([], set(refused))
            refused = []
        self.check(topic, sent, name, refused)

    @rule(name=st.sampled_from(WEBS), topic=names)
    def publish_json(self, name: str, topic: str) -> None:
        self.count += 1
        data = str(self.count)
        payload = {"topic": topic, "type": "pubsub:message", "data": {"name": topic, "data": data}}
        self.room.say(name, {"type": "hub:publish", "payload": payload})
        allowed = self.may(name, "publish", topic)
        self.check(topic, [data] if allowed else [], name, [] if allowed else [("error", "")])

    def check(self, topic: str, sent: list[str], speaker: str, refused: list[Any]) -> None:
        """Compare what everybody has heard with what they should have."""
        copy = copy_name(topic.encode())
        for name, mine in self.listeners.items():
            seen = None
            if self.may(name, "receive", topic):
                if mine.wants(topic.encode()):
                    seen = topic
                elif copy is not None and mine.wants(copy):
                    seen = copy.decode()
            wanted = [] if seen is None else [(seen, data) for data in sent]
            told = refused if name == speaker else []
            assert self.heard(name) == (wanted, told), name

    def heard(self, name: str) -> tuple[list[Any], list[Any]]:
        messages: list[Any] = []
        errors: list[Any] = []
        for one in self.room.hears(name):
            if name in LINES:
                topic, data = one[0].decode(), one[1].decode()
                if topic == "//pubsubd/error":
                    errors.append((topic, data.split(" ")[0]))
                else:
                    messages.append((topic, data))
            elif one["type"] == "hub:error":
                assert one["payload"]["code"] == "unauthorized"
                errors.append(("error", ""))
            elif one["type"] == "pubsub:message":
                messages.append((one["payload"]["name"], one["payload"]["data"]))
        return messages, errors

    @rule(topic=names)
    def explain(self, topic: str) -> None:
        told: list[Any] = []
        asker = self.room.broker.join("asker", told.append)
        self.room.broker.access.trust(asker)
        self.room.broker.receive(
            asker, b"pub //pubsubd/explain %d %b\n" % (len(topic), topic.encode())
        )
        found = json.loads(told[0].split(b" ", 3)[3])
        copy = copy_name(topic.encode())
        wanted = {
            self.peer(name).number
            for name, mine in self.listeners.items()
            if self.may(name, "receive", topic)
            and (mine.wants(topic.encode()) or (copy is not None and mine.wants(copy)))
        }
        assert {one["connection"] for one in found["receivers"]} == wanted
        for _ in self.room.broker.leave(asker):
            pass


TestRights = Rights.TestCase
TestRights.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
