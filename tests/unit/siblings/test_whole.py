"""Requests about the daemon, whichever of its workers is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsubd.protocol.wire import Decoder, frame
from pubsubd.siblings.whole import Whole
from tests.unit.siblings.webs import Worker, Workers

PID = 4711


@pytest.fixture
def three() -> Workers:
    workers = Workers(3)
    for number, worker in enumerate(workers.all):
        worker.broker.counters.connections_total = 100 * number
        worker.join("one")
        worker.join("two")
        Whole(worker.siblings, PID)
    return workers


def ask(workers: Workers, number: int, name: str, data: Any = b"", peer: str = "one") -> Any:
    """Return the answer to a request, or the code of the error."""
    worker = workers[number]
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    going = worker.broker.receive(worker.peers[peer], frame(f"//pubsubd/{name}".encode(), text))
    while going:
        workers.settle()
        going = worker.broker.receive(worker.peers[peer], b"")
    ((topic, answer),) = Decoder(1 << 30).feed(worker.hears(peer))
    return answer.split()[0].decode() if topic == b"//pubsubd/error" else json.loads(answer)


def test_statistics_are_the_sums_without_what_goes_on_between_workers(three):
    three[0].say("one", b"sub a\n")
    three[1].say("one", b"sub a\nsub b\n")
    three.settle()
    three[2].say("one", b"pub a 1 x\n" * 3)
    three.settle()
    for number in range(3):
        found = ask(three, number, "stats", peer="two")
        assert found["messages_in"] == 3
        assert found["messages_out"] == 6 + number  # answers are messages, too
        assert (found["subscriptions"], found["substrings"]) == (3, 2)
        assert (found["connections"], found["pid"]) == (6, PID)
        assert list(found["workers_cpu_s"]) == ["0", "1", "2"]
        assert found["cpu_s"] == pytest.approx(sum(found["workers_cpu_s"].values()))
        assert "silent" not in found


def test_no_counter_goes_down_when_a_worker_dies_or_when_it_is_back(three):
    def told(number: int) -> tuple[int, dict[str, int], int]:
        found = ask(three, number, "stats")
        assert list(found["workers_cpu_s"]) == ["0", "1", "2"]
        return found["messages_in"], found["errors"], found["connections"]

    three[1].say("one", b"pub a 1 x\n" * 3 + b"sub a b\n")
    three.settle()
    assert told(0) == (3, {"bad-name": 1}, 6)
    three.kill(1)
    assert told(2) == (3, {"bad-name": 1}, 4)  # this one had not asked before
    back = three.all[1] = Worker(three, 1)
    for other in (0, 2):
        three[other].link(1)
        back.link(other)
    Whole(back.siblings, PID)
    back.join("one")
    back.say("one", b"pub a 1 x\n" * 4)
    three.settle()
    assert told(0) == told(2) == told(1) == (7, {"bad-name": 1}, 5)


def test_a_worker_that_does_not_answer_is_named(three):
    del three[0].links[2]  # nothing is carried to it any more
    worker = three[0]
    worker.broker.receive(worker.peers["one"], b"pub //pubsubd/stats 0 \n")
    three.settle()
    assert worker.hears("one") == b""
    three.now = 1.0
    worker.siblings.expire()
    while worker.broker.receive(worker.peers["one"], b""):
        pass
    ((_, answer),) = Decoder(1 << 30).feed(worker.hears("one"))
    found = json.loads(answer)
    assert (found["connections"], found["silent"]) == (4, [2])


def test_explain_lists_the_receivers_of_all_workers_and_no_worker(three):
    for number in range(3):
        three[number].say("two", b"sub chat\n")
    three.settle()
    for number in range(3):
        found = ask(three, number, "explain", b"chat/main")
        assert found["count"] == 3
        rows = sorted(found["receivers"], key=lambda row: row["connection"])
        assert [row["connection"] for row in rows] == [2, 102, 202]
        assert all(row["substrings"] == ["chat"] for row in rows)
    assert ask(three, 0, "explain", b"a b") == "bad-request"


def test_connections_are_those_of_all_workers_in_order(three):
    three[1].peers["two"].dropped = 7
    three[2].peers["one"].dropped = 9
    for number in range(3):
        found = ask(three, number, "connections")
        assert [row["connection"] for row in found["connections"]] == [1, 2, 101, 102, 201, 202]
        assert (found["count"], found["next"]) == (6, None)
        found = ask(three, number, "connections", {"sort": "dropped", "limit": 2})
        assert [row["connection"] for row in found["connections"]] == [201, 102]
        assert ask(three, number, "connections", {"sort": "?"}) == "bad-request"


def test_pages_of_connections_miss_none(three):
    seen, after = [], 0
    while after is not None:
        found = ask(three, 1, "connections", {"limit": 2, "after": after})
        seen += [row["connection"] for row in found["connections"]]
        after = found["next"]
    assert seen == [1, 2, 101, 102, 201, 202]


def test_a_connection_of_another_worker_is_ended(three):
    three[0].peers["one"].label = "127.0.0.1:50312"
    told = []
    three[2].peers["two"].end = lambda code, text: told.append((code, text))
    row = ask(three, 0, "kill", b"202")
    assert row["connection"] == 202
    assert told == [("killed", "ended by 127.0.0.1:50312")]
    assert ask(three, 1, "kill", b"1") == "not-allowed"  # from elsewhere, and without a login
    assert ask(three, 0, "kill", b"999") == "unknown-connection"
    assert ask(three, 0, "kill", b"x") == "bad-request"
    assert ask(three, 0, "kill", b"1") == "killed"


def test_a_trace_counts_the_receivers_of_all_workers(three):
    three[1].say("two", b"sub a\n")
    three[2].say("two", b"sub a\n")
    three.settle()
    found = ask(three, 0, "trace", {"name": "a/1"})
    (hop,) = found["hops"]
    assert found["receivers"] == hop["receivers"] == 2
    assert hop["connections"] == 6
    assert [row["connection"] for row in hop["listed"]] == [102, 202]
