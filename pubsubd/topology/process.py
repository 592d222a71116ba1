"""What Spark changes in the process that uses it: changed for a while, and put back."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import IO


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change the environment, which Spark hands on to Java and reads itself, for a while."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Let SIGTERM leave the block in order, and put back what Spark changes in this process."""
    path = list(sys.path)
    ours = threading.current_thread() is threading.main_thread()  # which alone has signals
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if ours and before[signal.SIGTERM] is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except _Terminated:
        raise SystemExit(128 + signal.SIGTERM) from None  # as if the signal had ended it
    finally:
        sys.path[:] = path
        if ours:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came. Spark's Python gives up a question to Java for a KeyboardInterrupt alone."""


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


@contextlib.contextmanager
def quiet_loggers(log: IO[bytes]) -> Iterator[None]:
    """Send what is logged here, with stacks, where Java's output goes, unless the caller has it."""
    stream = os.fdopen(os.dup(log.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    try:
        with contextlib.ExitStack() as stack:
            if not root.handlers:  # it would be given one that writes on the terminal
                root.addHandler(handler)
                stack.callback(root.removeHandler, handler)
            for one in _spark_loggers():
                stack.enter_context(_handled(one, handler))
            yield
    finally:
        stream.close()


def _spark_loggers() -> list[logging.Logger]:
    """Return the loggers that print Java's stacks on the terminal if they are let."""
    try:
        from pyspark.logger import PySparkLogger  # noqa: PLC0415
    except ImportError:
        return []  # told when Spark is started
    names = ["DataFrameQueryContextLogger", "SQLQueryContextLogger"]  # of Spark's own class
    return [logging.getLogger("py4j"), *(PySparkLogger.getLogger(name) for name in names)]


@contextlib.contextmanager
def _handled(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Let ``handler`` alone handle what ``logger`` is told."""
    before, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagate
