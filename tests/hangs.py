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


class Hung(BaseException):
    """A test has taken far too long. Not an Exception: the code that is tested may catch these."""


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


def pytest_unconfigure() -> None:
    """Limit the end of the process, which waits for threads and runs what is registered for it."""
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("longest")
    seconds: float = LONGEST if mark is None else mark.args[0]
    if item.get_closest_marker("hypothesis"):
        seconds *= max(1, settings().max_examples / _USUAL)
    told: list[str] = []

    def expire(_number: int, frame: FrameType | None) -> None:
        told.append(f"longer than {seconds:g} s\n{_stacks(frame)}")
        if len(told) > 1 or not trio.lowlevel.in_trio_run():
            raise Hung(told[0])
        # A call that is safe in a signal handler.
        trio.lowlevel.current_trio_token().run_sync_soon(_main_nursery().cancel_scope.cancel)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _GRACE)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if told and not isinstance(sys.exception(), Hung):
            raise Hung(told[0]) from None


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
    if trio.lowlevel.in_trio_run():
        (first,) = _main_nursery().child_tasks
        # Tests with crowds have many that wait at the same place.
        for task, count in Counter(_tasks(first)).items():
            parts.append(f"--- {count} x {task}")
    return "".join(parts)


def _main_nursery() -> trio.Nursery:
    """Return the one in which trio has started the main task, and nothing else."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return root.child_nurseries[-1]


def _tasks(task: trio.lowlevel.Task) -> Iterator[str]:
    stack = traceback.StackSummary.extract(task.iter_await_frames()).format()
    yield f"task {task.name}\n{''.join(stack)}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child)
