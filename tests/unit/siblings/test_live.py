"""Observers of one worker see the connections, names and totals of all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsubd.protocol.wire import Decoder
from pubsubd.siblings.live import install
from tests.unit.siblings.webs import Workers


@pytest.fixture
def two() -> Workers:
    workers = Workers(2)
    for number, worker in enumerate(workers.all):
        worker.broker.counters.connections_total = 100 * number
        worker.join("ann")
        worker.join("bob")
        install(worker.siblings, worker.broker.live)
        worker.broker.live.cost = lambda: 0.0
    return workers


def watch(workers: Workers, number: int, **request: Any) -> None:
    workers[number].say("ann", b"pub //pubsubd/live - %b\n" % json.dumps(request).encode())
    workers.settle()
    workers[number].hears("ann")


def tick(workers: Workers, number: int, *, carry: bool = True) -> Any:
    """Return what an observer is sent a second later."""
    workers.now += 1
    live = workers[number].broker.live
    for _ in live.tick():
        if live.awaited is not None:
            if not carry:
                workers.now += 1
                workers[number].siblings.expire()
            live.awaited = None
        if carry:
            workers.settle()
    for worker in workers.all:
        if worker.broker.delivery.sampler is not None:
            worker.broker.delivery.sampler.cost = lambda: 0.0  # or some reads are not looked at
    ((_, data),) = Decoder(1 << 30).feed(workers[number].hears("ann"))
    return json.loads(data)


def test_connections_of_all_workers_are_shown_in_order(two):
    watch(two, 1, connections={"sort": "backlog", "limit": 3})
    two[0].peers["bob"].outbox.put(b"x" * 10)
    two[1].peers["bob"].outbox.put(b"x" * 20)
    found = tick(two, 1)["connections"]
    assert [row["connection"] for row in found["rows"]] == [102, 2, 1]
    assert (found["count"], found["matching"], found["silent"]) == (4, 4, [])
    for _ in two[0].broker.leave(two[0].peers["bob"]):
        pass
    found = tick(two, 1)["connections"]
    assert found["gone"] == [2]
    assert found["count"] == 3


def test_totals_are_sums(two):
    watch(two, 0, totals=True)
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[0].say("bob", b"pub a 1 x\n" * 5)
    two.settle()
    found = tick(two, 0)["totals"]
    assert (found["messages_in"], found["connections"], found["subscriptions"]) == (5, 4, 1)
    assert found["messages_out"] == 6  # five, and the answer to who looks


def test_names_are_counted_at_all_workers_while_somebody_looks(two):
    watch(two, 0, names={"limit": 2})
    tick(two, 0)
    for number in range(2):
        two[number].say("bob", b"pub a 1 x\n" * 50 + b"pub c 1 x\n" * (10 + number))
    two[1].say("bob", b"pub b 1 x\n" * 30)
    found = tick(two, 0)["names"]
    rates = {row["name"]: row["rate"] for row in found["rows"]}
    assert list(rates) == ["a", "b"]
    assert 2.5 < rates["a"] / rates["b"] < 4.2
    assert all(worker.broker.delivery.sampler is not None for worker in two.all)
    two[0].say("ann", b"pub //pubsubd/live/stop 0 \n")
    two.settle()
    assert all(worker.broker.delivery.sampler is None for worker in two.all)


def test_who_looked_and_died_is_forgotten(two):
    watch(two, 0, names=True)
    tick(two, 0)
    assert two[1].broker.delivery.sampler is not None
    two.kill(0)
    assert two[1].broker.delivery.sampler is None


def test_a_worker_that_does_not_answer_holds_up_no_tick_for_ever(two):
    watch(two, 0, totals=True)
    found = tick(two, 0, carry=False)["totals"]
    assert (found["connections"], found["silent"]) == (2, [1])
