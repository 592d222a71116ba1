"""Changes that Spark makes in the process that uses it, undone afterwards."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

from pubsubd.topology.failures import chain


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Let signals leave the block in order; restore signals, environment and import path."""
    path, environ = list(sys.path), dict(os.environ)
    ours = threading.current_thread() is threading.main_thread()  # which alone has signals
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_ENDING)}
    for number in _ENDING:
        if ours and before[number] is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _terminate)
    try:
        yield
    except BaseException as error:
        # What cleans up on the way may ask Java, which the signal has ended, and fail.
        causes = list(chain(error))
        for one in causes:
            if isinstance(one, _Terminated):
                raise SystemExit(128 + one.number) from None  # as if the signal had ended it
        if any(isinstance(one, KeyboardInterrupt) for one in causes):
            raise KeyboardInterrupt from None
        raise
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environ)
        if ours:
            for number, handler in before.items():
                signal.signal(number, handler)


_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(KeyboardInterrupt):
    """A signal came. Spark's Python gives up a question to Java for a KeyboardInterrupt alone."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _terminate(number: int, _frame: object) -> None:
    raise _Terminated(number)


def quiet_loggers() -> None:
    """Keep Spark's loggers off the terminal: they print the stacks of failures reported anyway."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (the daemon is installed without it)

    if not logging.root.handlers:  # logging.exception() would add one that writes on the terminal
        logging.root.addHandler(logging.NullHandler())
    for kind in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True
