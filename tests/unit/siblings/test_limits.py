"""Limits of the hub port that hold for all workers together."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pubsubd.hub.topics import TopicError
from tests.hubs import message_b
from tests.unit.siblings.webs import HubWorker, Workers


def workers(**limits: int) -> Workers:
    """Two workers, with ann at the first and bob at the second."""
    two = Workers(2, partial(HubWorker, **limits))
    for worker, name in zip(two.all, ("ann", "bob"), strict=True):
        worker.join(name)
    return two


def subscribe(two: Workers, number: int, topic: str) -> str:
    """Let ann, or bob, subscribe a topic; return the type of the answer."""
    name = ("ann", "bob")[number]
    two[number].say(name, message_b("hub:subscribe", {"topic": topic}))
    two.settle()
    return str(two[number].hears(name)[-1]["type"])


def synap(two: Workers, number: int, command: str, **payload: Any) -> bool:
    """Let somebody new at a worker give a command of Synap's; return whether it succeeds."""
    worker = two[number]
    name = f"s{len(worker.heard)}"
    worker.join(name)
    worker.say(name, {"command": f"pubsub.{command}", "request_id": "r", "payload": payload})
    two.settle()
    return bool(worker.hears(name)[-1]["success"])


def test_topics_are_those_of_all_workers() -> None:
    two = workers(max_topics=2)
    assert subscribe(two, 0, "a") == subscribe(two, 1, "b") == "hub:subscribed"
    assert subscribe(two, 0, "c") == subscribe(two, 1, "c") == "hub:error"
    assert subscribe(two, 0, "b") == subscribe(two, 1, "a") == "hub:subscribed"
    two[0].leave("ann")
    two.settle()
    assert subscribe(two, 1, "c") == "hub:error"
    two[1].say("bob", message_b("hub:unsubscribe", {"topic": "a"}))
    assert subscribe(two, 1, "c") == "hub:subscribed"


def test_subscribers_of_a_topic_are_those_of_all_workers() -> None:
    two = workers(max_topic_subscribers=2)
    assert synap(two, 1, "subscribe", topics=["a"])
    assert subscribe(two, 0, "a") == "hub:subscribed"
    assert subscribe(two, 1, "a") == "hub:error"
    two.kill(0)
    assert subscribe(two, 1, "a") == "hub:subscribed"


def test_wildcards_are_those_of_all_workers() -> None:
    two = workers(max_wildcards=3)
    two[0].join("amy")
    for name in ("ann", "amy"):
        two[0].say(name, message_b("hub:subscribe", {"topic": "a/+"}))
    assert synap(two, 1, "subscribe", topics=["a.*"])
    assert subscribe(two, 0, "b/+") == subscribe(two, 1, "b/+") == "hub:error"
    two[0].leave("amy")
    two.settle()
    assert subscribe(two, 1, "b/+") == "hub:subscribed"


def test_subscribers_of_synap_are_those_of_all_workers() -> None:
    two = workers(max_subscribers=2)
    assert synap(two, 0, "subscribe", topics=["a"])
    assert synap(two, 1, "subscribe", topics=["a"])
    assert not synap(two, 0, "subscribe", topics=["a"])
    assert not synap(two, 1, "subscribe", topics=["a"])


def test_a_new_worker_learns_how_many_there_are() -> None:
    two = workers(max_wildcards=1)
    assert subscribe(two, 0, "a/+") == "hub:subscribed"
    two.kill(1)
    two.all[1] = HubWorker(two, 1, max_wildcards=1)
    two[0].link(1)
    two[1].link(0)
    two.settle()
    with pytest.raises(TopicError):
        two[1].hub.policy.check_patterns(1)
    two.kill(0)
    two[1].hub.policy.check_patterns(1)
