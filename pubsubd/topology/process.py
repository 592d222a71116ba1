"""What the analysis changes in its process while it uses Spark."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block as Ctrl-C does, whatever fails on the way."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt  # for this alone, Spark's Python gives up a question to Java

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = threading.current_thread() is threading.main_thread()  # which alone has signals
    for number, handler in before.items() if ours else ():
        if handler in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores SIGHUP
            signal.signal(number, interrupt)
    try:
        yield
    except BaseException:
        # What cleans up on the way may have asked Java, which the signal has ended too.
        if came:
            interrupted = came[0] == signal.SIGINT
            raise KeyboardInterrupt if interrupted else SystemExit(128 + came[0]) from None
        raise
    finally:
        for number, handler in before.items() if ours else ():
            signal.signal(number, handler)


def quiet_loggers() -> None:
    """Keep Spark's loggers off the terminal: they print the stacks of failures reported anyway."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (the daemon is installed without it)

    if not logging.root.handlers:  # logging.exception() would add one that writes on the terminal
        logging.root.addHandler(logging.NullHandler())
    for kind in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True
