"""Hooks of pytest: a test that hangs fails, and tells where all threads and all tasks of trio were.

Each phase of a test, which are what it asks for, itself and what it leaves to clean up, has
:data:`LONGEST` seconds, or those of its mark ``longest``. In trio, the test is cancelled then, so
that it ends as usual; elsewhere, and if that does not help, :exc:`Hung` is raised in the main
thread. pytest-timeout raises in either case: then it is trio itself that fails, each test of trio
that comes later fails too, and of the tasks nothing is told.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from types import FrameType

import pytest
import trio
from hypothesis import settings

from tests.daemons import DEADLINE

LONGEST = 300.0
"""Seconds of a phase: more than :data:`DEADLINE`, so that what is waited for is told instead."""

_GRACE = DEADLINE + 30  # seconds until it is done again: a thread that is waited for may end
_USUAL = 15  # examples of Hypothesis


class Hung(pytest.fail.Exception):
    """A test has taken far too long. Not an Exception: the code that is tested may catch these."""


class HungExample(BaseException):
    """The same in a test of Hypothesis, which would try what has failed again and again."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Limit what a test asks for."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Limit a test itself."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limit what is cleaned up."""
    return (yield from _limited(item))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Limit the end of the process: what has not been cleaned up, threads, and registered calls."""
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("longest")
    seconds: float = LONGEST if mark is None else mark.args[0]
    kind: type[BaseException] = Hung
    if item.get_closest_marker("hypothesis"):
        kind = HungExample
        seconds *= max(1, settings().max_examples / _USUAL)
    told: list[str] = []

    def expire(_number: int, frame: FrameType | None) -> None:
        told.append(f"longer than {seconds:g} s\n{_stacks(frame)}")
        if len(told) > 1 or not (nursery := _main_nursery()):
            raise kind(told[0])
        # A call that is safe in a signal handler.
        trio.lowlevel.current_trio_token().run_sync_soon(nursery.cancel_scope.cancel)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _GRACE)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if told and not isinstance(sys.exception(), kind):
            raise kind(told[0]) from None


def _stacks(main: FrameType | None) -> str:
    """Return where everything is; ``main`` is where the main thread was."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = main if thread is threading.main_thread() else frames.get(thread.ident or 0)
        stack = traceback.extract_stack(frame)
        ours = [at for at, one in enumerate(stack) if "/_pytest/" in one.filename]
        del stack[: max(ours, default=-1) + 1]  # what has called the test
        parts += [f"--- thread {thread.name}\n", *stack.format()]
    if nursery := _main_nursery():
        # Tests with crowds have many that wait at the same place.
        tasks = (text for task in nursery.child_tasks for text in _tasks(task))
        parts += (f"--- {count} x {task}" for task, count in Counter(tasks).items())
    return "".join(parts)


def _main_nursery() -> trio.Nursery | None:
    """Return the one in which trio has started the main task, and nothing else."""
    if not trio.lowlevel.in_trio_run() or (root := trio.lowlevel.current_root_task()) is None:
        return None
    return root.child_nurseries[-1] if root.child_nurseries else None


def _tasks(task: trio.lowlevel.Task) -> Iterator[str]:
    stack = traceback.StackSummary.extract(task.iter_await_frames()).format()
    yield f"task {task.name}\n{''.join(stack)}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child)
