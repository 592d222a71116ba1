"""Synap's commands, on a real broker: what they answer, and who hears what is published."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.broker.turn import Turn
from pubsubd.hub.core import HubCore
from pubsubd.hub.strict import JsonError
from pubsubd.hub.subscriptions import Subscriptions
from pubsubd.hub.synap import (
    Answer,
    Synap,
    SynapError,
    commands,
    connected,
    rest,
    status,
    subscribers,
)
from pubsubd.hub.topics import TopicError
from pubsubd.protocol.limits import HubLimits, Limits
from pubsubd.protocol.wire import header
from tests.examples import examples
from tests.tables import Table


class Connection:
    """A connection as Synap needs it."""

    def __init__(self, bench: Bench, name: str) -> None:
        bench.table.join(name)
        self.peer = bench.table.peers[name]
        self.sender = f"tcp/{name}"
        self.subscriptions = Subscriptions(bench.hub, self.peer)


class Bench:
    """A broker with Synap, connections to it by name, and one line client that hears everything."""

    def __init__(self, limits: Limits | None = None, **hub: Any) -> None:
        self.table = Table(limits=limits)
        self.limits = HubLimits(**hub)
        self.now = 1_000.5
        self.hub = HubCore(
            self.table.broker, self.limits, clock=lambda: self.now, wall=lambda: self.now
        )
        self.topics = self.hub.topics
        self.synap = Synap(self.hub)
        self.connections: dict[str, Connection] = {}

    def join(self, *names: str) -> None:
        for name in names:
            self.connections[name] = Connection(self, name)

    def leave(self, name: str) -> None:
        connection = self.connections.pop(name)
        self.synap.drop(connection)
        for _ in connection.subscriptions.release():
            pass
        self.table.leave(name)

    def run(self, who: str | None, command: str, /, **payload: Any) -> dict[str, Any]:
        """Carry out a command of a connection, or over HTTP, and send what it leads to."""
        connection = self.connections[who] if who is not None else None
        answer = finished(self.synap.run(f"pubsub.{command}", payload, connection))
        self.table.broker.delivery.flush()
        json.dumps(answer)
        return answer

    def hears(self, name: str) -> list[tuple[str, Any]]:
        """Return the topic and the JSON of what a connection heard since the last call."""
        return [(topic.decode(), json.loads(data)) for topic, data in self.table.messages(name)]

    def payloads(self, name: str) -> list[Any]:
        return [message["payload"] for _, message in self.hears(name)]


def finished(answer: Answer) -> dict[str, Any]:
    """Return the payload of an answer, in however many steps it comes."""
    while not isinstance(answer, dict):
        try:
            next(answer)
        except StopIteration as done:
            answer = done.value
    return answer


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.join("ann", "bob")
    return made


def refused(bench: Bench, who: str | None, command: str, /, **payload: Any) -> str:
    with pytest.raises(SynapError) as caught:
        bench.run(who, command, **payload)
    assert str(caught.value) == caught.value.text
    return caught.value.text


# Publishing


def test_a_message_reaches_each_subscriber_once_however_many_of_its_topics_match(
    bench: Bench,
) -> None:
    bench.run("ann", "subscribe", topics=["a.b", "a.*", "a.#", "#"])
    bench.run("bob", "subscribe", topics=["a.b.c"])
    assert bench.run("bob", "publish", topic="a.b", payload=1)["subscribers_matched"] == 1
    assert bench.payloads("ann") == [1]
    assert bench.hears("bob") == []


def test_what_is_published_is_a_json_object_on_the_line(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    answer = bench.run("bob", "publish", topic="t", payload={"x": [1]}, metadata={"k": "v"})
    assert re.fullmatch("msg_[0-9a-f]{32}", answer["message_id"])
    assert answer == {
        "message_id": answer["message_id"],
        "topic": "t",
        "subscribers_matched": 1,
    }
    assert bench.hears("ann") == [
        (
            "t",
            {
                "type": "pubsub:message",
                "from": "tcp/bob",
                "payload": {"x": [1]},
                "id": answer["message_id"],
                "metadata": {"k": "v"},
            },
        )
    ]


def test_a_publisher_hears_itself(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    assert bench.run("ann", "publish", topic="t", payload=1)["subscribers_matched"] == 1
    assert bench.payloads("ann") == [1]


def test_a_message_over_http_is_from_http_and_needs_no_connection(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    assert bench.run(None, "publish", topic="t", payload=1)["subscribers_matched"] == 1
    [(_, message)] = bench.hears("ann")
    assert message["from"] == "http"
    assert "metadata" not in message


def test_the_message_may_be_called_payload_or_data_or_message_in_that_order(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    bench.run("bob", "publish", topic="t", payload=None, data=1, message=2)
    bench.run("bob", "publish", topic="t", data=None, message=2)
    bench.run("bob", "publish", topic="t", message=None)
    bench.run("bob", "publish", topic="t", data=3)
    assert bench.payloads("ann") == [None, None, None, 3]


def test_a_metadata_that_is_null_is_none_and_an_empty_one_is_kept(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    bench.run("bob", "publish", topic="t", payload=1, metadata=None)
    bench.run("bob", "publish", topic="t", payload=1, metadata={})
    assert [message.get("metadata") for _, message in bench.hears("ann")] == [None, {}]


def test_a_message_that_is_too_large_for_the_line_is_refused() -> None:
    bench = Bench(Limits(max_payload=200))
    text = refused(bench, None, "publish", topic="t", payload="x" * 200)
    assert re.fullmatch(r"Invalid request: message too large: \d+ bytes, over 200", text)
    assert bench.run(None, "topics") == {"topics": [], "count": 0}


def test_a_message_is_counted_where_it_goes_to_somebody(bench: Bench) -> None:
    bench.table.join("line")
    bench.table.say("line", b"sub t\n")
    bench.run("ann", "subscribe", topics=["t*"])
    bench.run(None, "subscribe", topics=["t"], subscriber_id="nobody")
    assert bench.run("bob", "publish", topic="t1", payload=1)["subscribers_matched"] == 2
    assert bench.run("bob", "publish", topic="t", payload=1)["subscribers_matched"] == 3
    stats = bench.run(None, "stats")
    assert stats["messages_published"] == 2
    assert stats["messages_delivered"] == 4


def test_the_copy_of_a_name_with_two_slashes_is_heard_and_counted(bench: Bench) -> None:
    bench.table.join("line")
    bench.table.say("line", b"sub //fwd/\n")
    bench.run("ann", "subscribe", topics=["//x"])
    assert bench.run("bob", "publish", topic="//x", payload=1)["subscribers_matched"] == 2
    assert [name for name, _ in bench.hears("ann")] == ["//x"]
    assert [name for name, _ in bench.hears("line")] == ["//fwd/x"]


# Subscribing


def test_a_connection_is_named_at_random_unless_it_says_its_name(bench: Bench) -> None:
    answer = bench.run("ann", "subscribe", topics=["t"])
    assert re.fullmatch("sub-[0-9a-f-]{36}", answer["subscriber_id"])
    assert bench.run("bob", "subscribe", topics=["t", "u.*"], subscriber_id="bob") == {
        "subscriber_id": "bob",
        "topics": ["t", "u.*"],
        "subscription_count": 2,
    }


def test_a_connection_may_subscribe_again_under_its_name_or_none(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"], subscriber_id="x")
    bench.run("ann", "subscribe", topics=["t", "u"], subscriber_id="x")
    answer = bench.run("ann", "subscribe", topics=["v"])
    assert (answer["subscriber_id"], answer["subscription_count"]) == ("x", 3)
    text = refused(bench, "ann", "subscribe", topics=["w"], subscriber_id="y")
    assert text == "Invalid request: This connection is subscriber 'x' already"


def test_a_name_that_a_live_connection_has_is_refused_to_another(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"], subscriber_id="x")
    text = refused(bench, "bob", "subscribe", topics=["u"], subscriber_id="x")
    assert text == "Invalid request: Subscriber 'x' is connected elsewhere"
    bench.leave("ann")
    assert bench.run("bob", "subscribe", topics=["u"], subscriber_id="x")["subscription_count"] == 1


def test_a_connection_takes_over_what_was_subscribed_over_http(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t", "u.*"], subscriber_id="x")
    assert bench.run("bob", "publish", topic="t", payload=1)["subscribers_matched"] == 1
    answer = bench.run("ann", "subscribe", topics=["v"], subscriber_id="x")
    assert answer["topics"] == ["v"]
    assert answer["subscription_count"] == 3
    for topic in ("t", "u.1", "v"):
        assert bench.run("bob", "publish", topic=topic, payload=topic)["subscribers_matched"] == 1
    assert bench.payloads("ann") == ["t", "u.1", "v"]


def test_what_a_connection_has_taken_over_does_not_go_until_it_does() -> None:
    bench = Bench(detached_idle=100.0)
    bench.join("ann")
    bench.run(None, "subscribe", topics=["t", "u.*"], subscriber_id="x")
    bench.run("ann", "subscribe", topics=["t"], subscriber_id="x")
    bench.now += 200
    assert bench.synap.expire(bench.now) == 0
    assert bench.run("ann", "publish", topic="u.1", payload=1)["subscribers_matched"] == 1
    connection = bench.connections["ann"]
    bench.leave("ann")
    assert bench.synap.subscribers.of(connection) is None
    assert len(bench.synap.subscribers) == 0


def test_topics_added_over_http_come_to_the_connection_that_has_the_name(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t"], subscriber_id="x")
    bench.run(None, "subscribe", topics=["u"], subscriber_id="x")
    bench.run("bob", "publish", topic="u", payload=1)
    assert bench.payloads("ann") == [1]
    assert bench.run(None, "unsubscribe", topics=["t"], subscriber_id="x") == {"unsubscribed": 1}
    assert bench.run("bob", "publish", topic="t", payload=1)["subscribers_matched"] == 0


def test_a_subscriber_over_http_is_named_at_random_too(bench: Bench) -> None:
    first = bench.run(None, "subscribe", topics=["t"])["subscriber_id"]
    second = bench.run(None, "subscribe", topics=["t"])["subscriber_id"]
    assert first != second
    assert bench.run(None, "unsubscribe", subscriber_id=first) == {"unsubscribed": 1}
    assert bench.run("bob", "publish", topic="t", payload=1)["subscribers_matched"] == 1


def test_a_refused_subscribe_leaves_nothing_behind(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t"], subscriber_id="x")
    for who in (None, "ann"):
        text = refused(bench, who, "subscribe", topics=["ok", "#.no"], subscriber_id="x")
        assert text == "Invalid value: # wildcard must be at the end of pattern"
        refused(bench, who, "subscribe", topics=["ok", ""], subscriber_id="new")
    assert bench.synap.subscribers.of(bench.connections["ann"]) is None
    assert bench.run(None, "stats")["total_subscribers"] == 1
    assert bench.run(None, "topics") == {"topics": ["t"], "count": 1}


def test_what_a_connection_subscribed_is_gone_with_it(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["t", "u.#"], subscriber_id="x")
    bench.leave("ann")
    assert bench.run("bob", "publish", topic="t", payload=1)["subscribers_matched"] == 0
    stats = bench.run(None, "stats")
    assert stats["total_subscribers"] == stats["total_wildcard_subscriptions"] == 0
    assert bench.run(None, "unsubscribe", subscriber_id="x") == {"unsubscribed": 0}


def test_the_first_frame_of_a_push_stream_lists_the_topics(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t"], subscriber_id="x")
    bench.run("ann", "subscribe", topics=["u.#"], subscriber_id="x")
    subscriber = bench.synap.subscribers.of(bench.connections["ann"])
    assert subscriber is not None
    assert connected(subscriber) == {
        "type": "connected",
        "subscriber_id": "x",
        "topics": ["t", "u.#"],
        "subscription_count": 2,
    }


# Unsubscribing


def test_unsubscribe_counts_what_it_removed(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["a", "b", "c.*"], subscriber_id="x")
    assert bench.run("ann", "unsubscribe", topics=["a", "a", "z", "c.*"]) == {"unsubscribed": 2}
    assert bench.run("ann", "unsubscribe", topics=[]) == {"unsubscribed": 0}
    assert bench.run("ann", "unsubscribe") == {"unsubscribed": 1}
    assert bench.run("ann", "unsubscribe") == {"unsubscribed": 0}
    for topic in ("a", "b", "c.d"):
        assert bench.run("bob", "publish", topic=topic, payload=1)["subscribers_matched"] == 0


def test_a_connection_that_has_never_subscribed_has_nothing_to_unsubscribe(bench: Bench) -> None:
    assert bench.run("ann", "unsubscribe", topics=["a"]) == {"unsubscribed": 0}
    assert bench.run(None, "unsubscribe", subscriber_id="who") == {"unsubscribed": 0}


# Faults

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("publish", {}, "Invalid request: Missing 'topic' field"),
    ("publish", {"topic": 5, "payload": 1}, "Invalid request: Missing 'topic' field"),
    ("publish", {"topic": None, "payload": 1}, "Invalid request: Missing 'topic' field"),
    ("publish", {"topic": "t"}, "Invalid request: Missing 'payload' or 'data' field"),
    ("publish", {"topic": "", "payload": 1}, "Invalid value: Topic cannot be empty"),
    (
        "publish",
        {"topic": "t", "payload": 1, "metadata": [1]},
        "Invalid request: 'metadata' must be an object",
    ),
    (
        "publish",
        {"topic": "a b", "payload": 1},
        'Invalid value: a space in the topic "a b"',
    ),
    (
        "publish",
        {"topic": "//pubsubd/x", "payload": 1},
        "Invalid value: topic '//pubsubd/x' is one of the daemon's own",
    ),
    ("subscribe", {}, "Invalid request: Missing 'topics' field"),
    ("subscribe", {"topics": "a"}, "Invalid request: 'topics' must be an array"),
    ("subscribe", {"topics": None}, "Invalid request: 'topics' must be an array"),
    ("subscribe", {"topics": {"a": 1}}, "Invalid request: 'topics' must be an array"),
    ("subscribe", {"topics": ["a", 1]}, "Invalid request: 'topics' must be an array of strings"),
    ("subscribe", {"topics": []}, "Invalid request: At least one topic required"),
    ("subscribe", {"topics": [""]}, "Invalid value: Topic cannot be empty"),
    (
        "subscribe",
        {"topics": ["a"], "subscriber_id": 5},
        "Invalid request: 'subscriber_id' must be a string",
    ),
    (
        "subscribe",
        {"topics": ["a"], "subscriber_id": ""},
        "Invalid request: 'subscriber_id' must have 1 to 256 characters",
    ),
    ("unsubscribe", {}, "Invalid request: Missing 'subscriber_id' field"),
    ("unsubscribe", {"topics": ["a"]}, "Invalid request: Missing 'subscriber_id' field"),
    (
        "unsubscribe",
        {"subscriber_id": "x", "topics": "a"},
        "Invalid request: 'topics' must be an array",
    ),
    ("info", {}, "Invalid request: Missing 'topic' field"),
    ("info", {"topic": "x"}, "Invalid request: Topic 'x' not found"),
    ("info", {"topic": ""}, "Invalid value: Topic cannot be empty"),
    ("topics", {"offset": "x"}, "Invalid request: 'offset' must be an integer"),
    ("topics", {"limit": 1.5}, "Invalid request: 'limit' must be an integer"),
    ("list", {}, "Unknown command: pubsub.list"),
]


@pytest.mark.parametrize(("command", "payload", "text"), WRONG)
def test_a_fault_is_told_in_synaps_words(
    bench: Bench, command: str, payload: dict[str, Any], text: str
) -> None:
    assert refused(bench, None, command, **payload) == text


@pytest.mark.parametrize("payload", [[], "x", 5, True, [{}]])
@pytest.mark.parametrize("command", ["publish", "subscribe", "unsubscribe", "topics", "stats"])
def test_a_payload_that_is_no_object_is_refused(bench: Bench, command: str, payload: Any) -> None:
    with pytest.raises(SynapError) as caught:
        bench.synap.run(f"pubsub.{command}", payload, None)
    assert caught.value.text == "Invalid request: 'payload' must be an object"


def test_a_payload_may_be_left_out_where_nothing_is_needed_of_it(bench: Bench) -> None:
    assert bench.synap.run("pubsub.topics", None, None) == {"topics": [], "count": 0}
    bench.synap.run("pubsub.stats", None, None)


def test_fields_that_nobody_knows_are_ignored(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t"], qos=1)


# What there is


def test_topics_are_those_that_were_published_or_are_subscribed(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["a", "w.*"])
    bench.run("bob", "publish", topic="b", payload=1)
    assert bench.run(None, "topics") == {"topics": ["a", "b"], "count": 2}


def test_topics_come_in_pages() -> None:
    bench = Bench(page=2)
    for topic in "abc":
        bench.run(None, "publish", topic=topic, payload=1)
    assert bench.run(None, "topics") == {"topics": ["a", "b"], "count": 3}
    assert bench.run(None, "topics", offset=2, limit=9) == {"topics": ["c"], "count": 3}
    assert bench.run(None, "topics", offset=-1, limit=1) == {"topics": ["a"], "count": 3}
    for offset, limit in ((0, -1), (2**64 - 1, 1), (3, 2**64 - 1)):
        answer = bench.run(None, "topics", offset=offset, limit=limit)
        assert answer == {"topics": [], "count": 3}


def test_info_tells_who_would_get_a_message_how_many_there_were_and_since_when(
    bench: Bench,
) -> None:
    bench.run("ann", "subscribe", topics=["t"])
    bench.now += 100
    bench.run("bob", "subscribe", topics=["#"])
    bench.run("bob", "publish", topic="t", payload=1)
    assert bench.run(None, "info", topic="t") == {
        "topic": "t",
        "subscriber_count": 2,
        "message_count": 1,
        "created_at": 1_000,
    }


def test_statistics_are_those_of_the_reference_and_true(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=["a", "b", "w.*", "x.#"])
    bench.run(None, "subscribe", topics=["a", "w.*"])
    for count, topic in enumerate(["a", "b", "c"], 1):
        for _ in range(count):
            bench.run("bob", "publish", topic=topic, payload=1)
    bench.synap.delivered(3, 0.002)
    bench.synap.delivered(1, 0.006)
    bench.hub.slow_consumers += 1
    bench.hub.undelivered += 7
    assert bench.run(None, "stats") == {
        "total_topics": 3,
        "total_subscribers": 2,
        "total_wildcard_subscriptions": 3,
        "messages_published": 6,
        "messages_delivered": 3,
        "slow_consumers_dropped": 1,
        "delivery_failures": 7,
        "avg_delivery_latency_ms": 3.0,
        "top_topics": [
            {"topic": "c", "subscribers": 0, "messages": 3},
            {"topic": "b", "subscribers": 1, "messages": 2},
            {"topic": "a", "subscribers": 2, "messages": 1},
        ],
    }


# Limits


def test_a_topic_has_no_more_subscribers_than_the_limit() -> None:
    bench = Bench(max_topic_subscribers=2)
    bench.join("ann")
    bench.run(None, "subscribe", topics=["t"], subscriber_id="x")
    bench.run("ann", "subscribe", topics=["t"], subscriber_id="y")
    text = refused(bench, None, "subscribe", topics=["u", "t"])
    assert text == "Invalid request: over 2 subscribers of topic 't'"
    with pytest.raises(TopicError):
        bench.hub.policy.check_name(b"t")
    bench.run("ann", "subscribe", topics=["t", "u"])
    bench.run(None, "unsubscribe", subscriber_id="x")
    bench.run(None, "subscribe", topics=["t"])


def test_there_are_no_more_topics_subscribed_than_the_limit() -> None:
    bench = Bench(max_topics=3)
    bench.run(None, "subscribe", topics=["a", "b"], subscriber_id="x")
    assert refused(bench, None, "subscribe", topics=["c", "d"]) == "Invalid request: over 3 topics"
    bench.run(None, "subscribe", topics=["a", "c"])
    with pytest.raises(TopicError):
        bench.hub.policy.check_name(b"d")
    bench.hub.policy.check_name(b"a")
    assert bench.run(None, "publish", topic="d", payload=1)["subscribers_matched"] == 0


def test_there_are_no_more_wildcards_than_the_limit() -> None:
    bench = Bench(max_wildcards=2)
    bench.run(None, "subscribe", topics=["a.*"], subscriber_id="x")
    text = refused(bench, None, "subscribe", topics=["b.*", "c.*"])
    assert text == "Invalid request: over 2 wildcard subscriptions"
    bench.run(None, "subscribe", topics=["b.*", "c"], subscriber_id="x")
    with pytest.raises(TopicError):
        bench.hub.policy.check_patterns(1)
    bench.run(None, "unsubscribe", topics=["a.*"], subscriber_id="x")
    bench.hub.policy.check_patterns(1)
    bench.hub.policy.wildcards += 1
    refused(bench, None, "subscribe", topics=["d.*"])
    assert bench.run(None, "stats")["total_wildcard_subscriptions"] == 1


def test_there_are_no_more_subscribers_than_the_limit() -> None:
    bench = Bench(max_subscribers=1)
    bench.join("ann")
    bench.run(None, "subscribe", topics=["a"], subscriber_id="x")
    for who in (None, "ann"):
        text = refused(bench, who, "subscribe", topics=["a"])
        assert text == "Invalid request: over 1 subscribers"
    bench.run("ann", "subscribe", topics=["b"], subscriber_id="x")
    bench.leave("ann")
    bench.run(None, "subscribe", topics=["a"])


def test_a_subscriber_and_a_command_have_no_more_topics_than_the_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "MAX_TOPICS", 3)
    monkeypatch.setattr(commands, "MAX_TOPICS_AT_ONCE", 2)
    bench.run("ann", "subscribe", topics=["a", "b"])
    for command in ("subscribe", "unsubscribe"):
        text = refused(bench, "ann", command, topics=["a", "a", "a"])
        assert text == "Invalid request: over 2 topics in one command"
    text = refused(bench, "ann", "subscribe", topics=["c", "d.*"])
    assert text == "Invalid request: over 3 topics of one subscriber"
    bench.run("ann", "subscribe", topics=["a", "d.*"])


def test_one_without_a_connection_that_nobody_names_is_forgotten() -> None:
    bench = Bench(detached_idle=100.0)
    bench.join("ann")
    bench.run(None, "subscribe", topics=["a", "w.*"], subscriber_id="x")
    bench.run(None, "subscribe", topics=["a"], subscriber_id="y")
    bench.run(None, "subscribe", topics=["a"], subscriber_id="z")
    bench.run("ann", "subscribe", topics=["a"], subscriber_id="live")
    bench.now += 60
    bench.run(None, "unsubscribe", topics=["none"], subscriber_id="x")
    bench.run(None, "subscribe", topics=["a"], subscriber_id="y")
    bench.now += 60
    assert bench.synap.expire(bench.now) == 1  # topic
    assert set(bench.synap.subscribers) == {"x", "y", "live"}
    bench.now += 60
    assert [bench.synap.expire(bench.now) for _ in range(2)] == [3, 0]
    assert bench.run(None, "stats")["total_wildcard_subscriptions"] == 0
    assert bench.run("ann", "publish", topic="a", payload=1)["subscribers_matched"] == 1


def test_one_without_a_connection_costs_nothing_where_messages_are_delivered(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t"], subscriber_id="x")
    peer = bench.synap.subscribers["x"].peer
    bench.run("bob", "publish", topic="t", payload=1)
    bench.table.say("bob", b"pub t 1 x\n" * 1_000)
    large = b"x" * 300_000
    bench.table.say("bob", header(b"t", len(large)) + large + b"\n")
    assert peer.pending == []
    assert peer.outbox.size == 0
    assert bench.run(None, "stats")["messages_delivered"] == 0


def test_subscribers_without_a_connection_have_limits_of_their_own() -> None:
    bench = Bench(max_detached=2, max_detached_topics=3, max_connection_wildcards=1)
    bench.join("ann")
    bench.run(None, "subscribe", topics=["a"], subscriber_id="x")
    bench.run(None, "subscribe", topics=["a", "b"], subscriber_id="y")
    refusal = "Invalid request: over 2 subscribers without a connection"
    assert refused(bench, None, "subscribe", topics=["a"]) == refusal
    refusal = "Invalid request: over 3 topics of subscribers without a connection"
    assert refused(bench, None, "subscribe", topics=["c"], subscriber_id="x") == refusal
    bench.run("ann", "subscribe", topics=["c", "d", "e", "f"], subscriber_id="y")
    assert bench.synap.subscribers.detached_topics == 1
    bench.run(None, "subscribe", topics=["a.*"], subscriber_id="x")
    refusal = "Invalid request: over 1 wildcard subscriptions of one subscriber"
    assert refused(bench, None, "subscribe", topics=["b.*"], subscriber_id="x") == refusal
    bench.run(None, "unsubscribe", subscriber_id="x")
    assert bench.synap.subscribers.detached_topics == 0


def test_one_without_a_connection_has_few_topics(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "MAX_DETACHED_TOPICS", 2)
    refusal = "Invalid request: over 2 topics of one subscriber without a connection"
    assert refused(bench, None, "subscribe", topics=["a", "b", "c"]) == refusal
    bench.run(None, "subscribe", topics=["a", "b"], subscriber_id="x")
    assert refused(bench, None, "subscribe", topics=["c"], subscriber_id="x") == refusal
    bench.run("ann", "subscribe", topics=["c"], subscriber_id="x")


def test_messages_to_those_without_a_connection_stay_together(bench: Bench) -> None:
    bench.run(None, "subscribe", topics=["t"], subscriber_id="x")
    bench.run("ann", "subscribe", topics=["t"])
    chunks: list[bytes] = []
    peer = bench.connections["ann"].peer
    peer.enqueue = chunks.append
    bench.table.broker.router.clear()
    for number in range(5):
        bench.synap.run(
            "pubsub.publish", {"topic": "t", "payload": number}, bench.connections["bob"]
        )
    bench.table.broker.delivery.flush()
    assert bench.synap.deliveries == 5
    assert bench.synap.subscribers["x"].peer.pending == []
    assert bench.table.broker.counters.messages_out == 10


def test_many_topics_are_taken_back_in_steps(bench: Bench) -> None:
    topics = [f"t{number}" for number in range(1_000)]
    bench.run("ann", "subscribe", topics=topics)
    bench.table.broker.delivery.turn = Turn(clock=lambda: 1.0)  # always over
    answer = bench.synap.run("pubsub.unsubscribe", {}, bench.connections["ann"])
    assert not isinstance(answer, dict)
    assert bench.table.broker.router.subscriptions == 800
    bench.run("ann", "publish", topic="t999", payload=1)
    assert finished(answer) == {"unsubscribed": 1_000}
    assert bench.table.broker.router.subscriptions == 0


def test_what_leaves_while_its_topics_are_taken_back_takes_them_along(bench: Bench) -> None:
    bench.run("ann", "subscribe", topics=[f"t{number}" for number in range(1_000)])
    bench.table.broker.delivery.turn = Turn(clock=lambda: 1.0)  # always over
    answer = bench.synap.run("pubsub.unsubscribe", {}, bench.connections["ann"])
    bench.leave("ann")
    assert finished(answer) == {"unsubscribed": 200}
    assert len(bench.topics) == 1_000
    assert bench.table.broker.router.subscriptions == 0


def test_many_wildcards_cost_one_look_at_what_is_remembered(bench: Bench) -> None:
    router = bench.table.broker.router
    for number in range(200):
        bench.run("bob", "publish", topic=f"a{number}.b", payload=1)
        bench.run("bob", "publish", topic=f"a{number}.b", payload=1)
    assert router.cached_names == 200
    before = router.index.work
    bench.run("ann", "subscribe", topics=[f"x{number}.*" for number in range(1_000)])
    assert router.index.work == before
    assert router.cached_names == 0


# REST


@pytest.mark.parametrize(
    ("method", "path", "body", "found"),
    [
        (
            "POST",
            "/pubsub/a.b/publish",
            b'{"payload":1}',
            ("publish", {"payload": 1, "topic": "a.b"}),
        ),
        ("POST", "/pubsub/a/b/publish", b'{"topic":"c"}', ("publish", {"topic": "a/b"})),
        ("POST", "/pubsub/publish/publish", b"{}", ("publish", {"topic": "publish"})),
        ("POST", "/pubsub//publish", b"{}", ("publish", {"topic": ""})),
        ("POST", "/pubsub/subscribe", b'{"topics":["a"]}', ("subscribe", {"topics": ["a"]})),
        ("POST", "/pubsub/unsubscribe", b"[]", ("unsubscribe", [])),
        ("GET", "/pubsub/stats", b"", ("stats", {})),
        ("HEAD", "/pubsub/topics", b"", ("topics", {})),
        ("GET", "/pubsub/a b/info", b"", ("info", {"topic": "a b"})),
        ("GET", "/pubsub/stats/info", b"", ("info", {"topic": "stats"})),
        ("GET", "/pubsub/subscribe", b"", None),
        ("GET", "/pubsub/a/publish", b"", None),
        ("POST", "/pubsub/stats", b"{}", None),
        ("POST", "/pubsub/publish", b"{}", None),
        ("GET", "/pubsub/info", b"", None),
        ("GET", "/pubsub/a", b"", None),
        ("GET", "/other/a/info", b"", None),
        ("PUT", "/pubsub/subscribe", b"{}", None),
    ],
)
def test_a_rest_request_is_a_command(
    method: str, path: str, body: bytes, found: tuple[str, Any] | None
) -> None:
    expected = (f"pubsub.{found[0]}", found[1]) if found is not None else None
    assert rest(method, path, body) == expected


def test_a_body_that_is_no_json_or_no_object_is_refused() -> None:
    for body in (b"", b"{", b'{"a":1,"a":2}', b"\xff"):
        with pytest.raises(JsonError):
            rest("POST", "/pubsub/t/publish", body)
    with pytest.raises(SynapError, match="must be an object"):
        rest("POST", "/pubsub/t/publish", b"[]")


def test_a_topic_that_is_not_found_is_404_and_the_rest_is_400(bench: Bench) -> None:
    found: dict[str, int] = {}
    for path in ("/pubsub/t/info", "/pubsub//info", "/pubsub/a\ud800/info"):
        command = rest("GET", path, b"")
        assert command is not None
        with pytest.raises(SynapError) as caught:
            bench.synap.run(*command, None)
        found[path] = status(caught.value)
        json.dumps(caught.value.text).encode()
    assert list(found.values()) == [404, 400, 400]


# Against a model that scans

EXACT = ["a", "a.b", "a.b.c", "ab", "x"]
TOPICS = [*EXACT, "*", "#", "a.*", "a.#", "*.b", "a*", "a.b.#", "*.#"]
IDS = ["i", "j", "k"]


def matches(pattern: str, name: str) -> bool:
    """Return whether a Synap topic or pattern matches a name, level by level."""
    levels, parts = pattern.split("."), name.split(".")
    for index, level in enumerate(levels):
        if level == "#":
            return True
        if index >= len(parts):
            return False
        if level == "*":
            continue
        if not re.fullmatch(".*".join(map(re.escape, level.split("*"))), parts[index]):
            return False
    return len(levels) == len(parts)


class SynapAgainstScan(RuleBasedStateMachine):
    """Connections and requests subscribe, unsubscribe, publish, come and go."""

    whos = st.sampled_from([None, "ann", "bob", "eve"])
    ids = st.sampled_from([None, *IDS])

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.bench.join("ann", "bob", "eve")
        self.topics: dict[str, list[str]] = {}  # id -> topics
        self.owners: dict[str, str] = {}  # connection -> id
        self.messages: dict[str, int] = {}
        self.number = 0

    @rule(who=whos, id_=ids, topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4))
    def subscribe(self, who: str | None, id_: str | None, topics: list[str]) -> None:
        payload: dict[str, Any] = {"topics": topics}
        if id_ is not None:
            payload["subscriber_id"] = id_
        own = self.owners.get(who) if who is not None else None
        elsewhere = any(owner == id_ for conn, owner in self.owners.items() if conn != who)
        if (own is not None and id_ not in (None, own)) or (who is not None and elsewhere):
            refused(self.bench, who, "subscribe", **payload)
            return
        answer = self.bench.run(who, "subscribe", **payload)
        found = answer["subscriber_id"]
        assert found == (id_ or own or found)
        mine = self.topics.setdefault(found, [])
        mine += [topic for topic in dict.fromkeys(topics) if topic not in mine]
        assert answer["topics"] == topics
        assert answer["subscription_count"] == len(mine)
        if who is not None:
            self.owners[who] = found

    @rule(
        who=whos,
        id_=ids,
        topics=st.none() | st.lists(st.sampled_from(TOPICS), max_size=4),
    )
    def unsubscribe(self, who: str | None, id_: str | None, topics: list[str] | None) -> None:
        payload: dict[str, Any] = {}
        if id_ is not None:
            payload["subscriber_id"] = id_
        if topics is not None:
            payload["topics"] = topics
        if who is None and id_ is None:
            refused(self.bench, who, "unsubscribe", **payload)
            return
        found = id_ if id_ is not None else self.owners.get(who or "", "")
        mine = self.topics.get(found, [])
        gone = [topic for topic in mine if topics is None or topic in topics]
        assert self.bench.run(who, "unsubscribe", **payload) == {"unsubscribed": len(gone)}
        for topic in gone:
            mine.remove(topic)
        if not mine and found not in self.owners.values():
            self.topics.pop(found, None)

    @rule(who=whos, topic=st.sampled_from(EXACT))
    def publish(self, who: str | None, topic: str) -> None:
        self.number += 1
        getting = {
            id_ for id_, mine in self.topics.items() if any(matches(one, topic) for one in mine)
        }
        answer = self.bench.run(who, "publish", topic=topic, payload=self.number)
        assert answer["subscribers_matched"] == len(getting)
        self.messages[topic] = self.messages.get(topic, 0) + 1
        for name in self.bench.connections:
            expected = [self.number] if self.owners.get(name) in getting else []
            assert self.bench.payloads(name) == expected

    @rule(who=st.sampled_from(["ann", "bob", "eve"]))
    def leave(self, who: str) -> None:
        self.bench.leave(who)
        self.bench.join(who)
        id_ = self.owners.pop(who, None)
        if id_ is not None:
            del self.topics[id_]

    @rule()
    def expire(self) -> None:
        self.bench.now += 100_000
        while self.bench.synap.expire(self.bench.now):
            pass
        while self.bench.topics.expire(self.bench.now):
            pass
        live = set(self.owners.values())
        self.topics = {id_: mine for id_, mine in self.topics.items() if id_ in live}
        held = {topic for mine in self.topics.values() for topic in mine}
        self.messages = {topic: n for topic, n in self.messages.items() if topic in held}

    @invariant()
    def the_statistics_are_right(self) -> None:
        stats = self.bench.run(None, "stats")
        every = [topic for mine in self.topics.values() for topic in mine]
        assert stats["total_subscribers"] == len(self.topics)
        wild = sum(1 for topic in every if topic not in EXACT)
        assert stats["total_wildcard_subscriptions"] == wild
        held = {topic for topic in every if topic in EXACT}
        # A topic that was subscribed is remembered for a while, messages or not.
        assert set(self.bench.run(None, "topics")["topics"]) >= held | set(self.messages)
        counts = {entry["topic"]: entry["messages"] for entry in stats["top_topics"]}
        assert counts == self.messages

    @invariant()
    def the_connections_have_what_their_subscribers_have(self) -> None:
        for name, connection in self.bench.connections.items():
            mine = self.topics.get(self.owners.get(name, ""), [])
            held = {topic.decode() for topic in connection.peer.names or ()}
            held |= {pattern.text for pattern in connection.peer.patterns or ()}
            assert held == set(mine)
            subscriber = self.bench.synap.subscribers.of(connection)
            assert (subscriber is None) == (name not in self.owners)
            if subscriber is not None:
                assert list(subscriber.topics) == mine
                assert subscriber.connection is connection

    @invariant()
    def the_table_counts_subscribers(self) -> None:
        for topic in EXACT:
            found = self.bench.topics.get(topic.encode())
            count = sum(topic in mine for mine in self.topics.values())
            assert (found.subscribers if found is not None else 0) == count


TestSynapAgainstScan = SynapAgainstScan.TestCase
TestSynapAgainstScan.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)
