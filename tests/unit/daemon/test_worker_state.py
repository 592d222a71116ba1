"""What the supervisor knows of a worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsubd.daemon.workers.worker_state import LATE, SILENT, WorkerState

NAMES = st.sampled_from(["line", "hub"])


def test_a_worker_that_tells_is_believed_but_for_what_it_cannot_know_yet() -> None:
    worker = WorkerState(0)
    assert [worker.add("line") for _ in range(3)] == [1, 2, 3]
    assert worker.add("hub") == 4
    assert worker.connections == 4
    worker.take_open(2, {"line": 1})
    assert worker.open == {"line": 2, "hub": 1}
    worker.take_open(4, {"line": 1})
    assert worker.open == {"line": 1}


def test_a_mistake_does_not_outlast_the_next_time_that_it_tells() -> None:
    worker = WorkerState(0)
    for _ in range(3):
        worker.add("line")  # the second one fails on its way
    worker.take_open(3, {"line": 2})
    assert worker.connections == 2
    worker.open["line"] = 7
    worker.take_open(3, {"line": 2})
    assert worker.connections == 2


def test_one_that_is_started_again_has_nothing() -> None:
    worker = WorkerState(0)
    worker.add("line")
    worker.forget()
    assert worker.connections == 0
    worker.begin(1.0)
    assert worker.add("line") == 1
    worker.take_open(0, {})
    assert worker.open == {"line": 1}


def test_one_that_does_not_answer_in_time_is_late_until_it_does() -> None:
    worker, now = WorkerState(0), 100.0
    worker.begin(now)
    assert not worker.needs_asking(now)  # it was heard just now
    now += LATE
    assert worker.needs_asking(now)
    assert not worker.needs_asking(now)  # once
    assert not worker.late(now)
    assert worker.late(now + 2 * LATE)
    worker.hear(now + 2 * LATE)
    assert not worker.late(now + 9 * LATE)
    assert worker.needs_asking(now + 9 * LATE)


def test_one_that_says_nothing_is_stuck_also_before_it_is_ready() -> None:
    worker = WorkerState(0)
    assert not worker.stuck(1_000.0)  # there is none
    worker.pid = 1
    worker.begin(100.0)
    assert not worker.stuck(100.0 + 2 * SILENT)
    assert worker.stuck(101.0 + 2 * SILENT)
    worker.ready = True
    assert not worker.stuck(100.0 + SILENT)
    assert worker.stuck(101.0 + SILENT)
    worker.hear(101.0 + SILENT)
    assert not worker.stuck(101.0 + SILENT)


def test_an_answer_about_earlier_settings_is_none_about_the_last_ones() -> None:
    worker = WorkerState(0)
    worker.owed = 2  # the first ones were given up in the meantime
    assert [worker.answered() for _ in range(2)] == [False, True]
    worker.owed = 1
    worker.begin(0.0)  # another process
    worker.owed += 1
    assert worker.answered()


@given(st.lists(st.tuples(NAMES, st.booleans(), st.booleans()), max_size=30))
def test_the_count_is_right_however_late_it_tells(
    steps: list[tuple[str, bool, bool]],
) -> None:
    worker, taken, told = WorkerState(0), 0, list[tuple[int, dict[str, int]]]()
    open_ = {"line": 0, "hub": 0}
    for name, ends, delivered in steps:
        taken = worker.add(name)
        open_[name] += 1
        if ends:
            open_[name] -= 1
            told.append((taken, dict(open_)))
        if delivered:
            while told:
                worker.take_open(*told.pop(0))
    if told:
        worker.take_open(*told[-1])
        told.clear()
    assert {name: worker.open[name] for name in open_} == open_
