"""Topics of all workers in one list, with the sums of what each knows of them."""

from __future__ import annotations

from functools import partial

from pubsubd.broker.turn import Steps, finish
from pubsubd.hub.core import HubCore
from pubsubd.hub.listing import (
    NAMES,
    RECORDS,
    answer_names,
    answer_records,
    find_page,
    find_records,
)
from pubsubd.protocol.limits import HubLimits
from tests.unit.siblings.webs import Worker, Workers


def open_hub(workers: Workers, worker: Worker) -> HubCore:
    hub = HubCore(worker.broker, HubLimits(), clock=lambda: workers.now, wall=lambda: workers.now)

    def ask(name: bytes, data: bytes) -> Steps[list[bytes]]:
        answers = worker.siblings.questions.send(name, data)
        workers.settle()
        return list(answers.got.values())
        yield

    hub.elsewhere = ask
    worker.siblings.questions |= {
        NAMES: partial(answer_names, hub),
        RECORDS: partial(answer_records, hub),
    }
    return hub


def test_lists_have_the_topics_of_all_workers_in_the_order_in_which_they_came() -> None:
    workers = Workers(2)
    hubs = [open_hub(workers, worker) for worker in workers.all]
    for number in range(10):
        workers.now = 100.0 + number
        hubs[number % 2].topics.note(b"t%d" % number, workers.now)
        hubs[0].topics.note(b"both", workers.now)
    hubs[1].topics.note(b"both", workers.now)
    for hub in hubs:
        names, total = finish(find_page(hub, 0, 100))
        assert names == [b"t0", b"both", *(b"t%d" % number for number in range(1, 10))]
        assert total == 11
        names, total = finish(find_page(hub, 3, 2))
        assert names == [b"t2", b"t3"]
        assert total >= 5


def test_records_are_sums_and_count_the_receivers_of_all_workers() -> None:
    workers = Workers(2)
    hubs = [open_hub(workers, worker) for worker in workers.all]
    for worker in workers.all:
        worker.join("ann")
        worker.join("bob")
        worker.say("ann", b"sub a\n")
    workers[1].say("bob", b"sub a\n")
    workers.settle()
    workers.now = 50.0
    hubs[0].topics.note(b"a", 50.0)
    workers.now = 60.0
    hubs[1].topics.note(b"a", 60.0)
    for hub in hubs:
        found, unknown = finish(find_records(hub, [b"a", b"other"]))
        assert found is not None
        assert (found.created_at, found.messages, found.receivers) == (50_000, 2, 3)
        assert unknown is None


def test_a_topic_that_another_worker_alone_remembers_counts_receivers_here() -> None:
    workers = Workers(2)
    hubs = [open_hub(workers, worker) for worker in workers.all]
    workers[0].join("ann")
    workers[0].say("ann", b"sub a\n")
    workers.settle()
    workers.now = 50.0
    hubs[1].topics.note(b"a", 50.0)
    for hub in hubs:
        (found,) = finish(find_records(hub, [b"a"]))
        assert found is not None
        assert (found.created_at, found.messages, found.receivers) == (50_000, 1, 1)
