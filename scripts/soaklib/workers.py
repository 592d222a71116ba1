"""Processes of the generator, so that what is measured does not wait for who measures."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .daemons import die_with_parent
from .wires import PATIENCE, SoakError, wait_until

_context = multiprocessing.get_context("fork")


class Worker:
    """A process that runs ``main(connection, *arguments)`` and answers what it is told.

    ``main`` receives tuples by the connection, and sends one answer for each. An exception
    there is raised here as SoakError, at the next :meth:`ask`.
    """

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        self._near, far = _context.Pipe()
        self._process = _context.Process(target=_run, args=(main, far, *arguments), daemon=True)
        self._process.start()
        far.close()

    def tell(self, *words: Any) -> None:
        """Send without waiting for the answer; :meth:`answer` has to follow."""
        try:
            self._near.send(words)
        except OSError:
            self.answer(1.0)
            raise SoakError("a worker is gone") from None

    def answer(self, patience: float = 2 * PATIENCE) -> Any:
        """Return the answer to the first thing told that has none yet."""
        if not self._near.poll(patience):
            raise SoakError("a worker does not answer")
        try:
            kind, value = self._near.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise SoakError(f"a worker has ended with {self._process.exitcode}") from None
        if kind == "failed":
            raise SoakError(value)
        return value

    def ask(self, *words: Any, patience: float = 2 * PATIENCE) -> Any:
        """Send and return the answer."""
        self.tell(*words)
        return self.answer(patience)

    def stop(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._near.close()
        # join() with a timeout waits for ever: what tells it of an end is closed in the child.
        with contextlib.suppress(SoakError):
            wait_until(lambda: not self._process.is_alive(), "a worker ends", 0.2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Told:
    """The other end: what a worker is told."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.fileno = connection.fileno

    @property
    def waiting(self) -> bool:
        """Whether something was told, or the one who tells is gone."""
        return self._connection.poll()

    def hear(self) -> tuple[Any, ...]:
        """Return what is told; raises EOFError when there will be no more."""
        words: tuple[Any, ...] = self._connection.recv()
        return words

    def answer(self, value: Any = None) -> None:
        self._connection.send(("done", value))


def _run(main: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_go(connection.fileno())
    try:
        main(Told(connection), *arguments)
    except (EOFError, BrokenPipeError):
        pass
    except BaseException:  # noqa: BLE001  (raised again by who asks)
        with contextlib.suppress(OSError):
            connection.send(("failed", traceback.format_exc()))


def _let_go(kept: int) -> None:
    """Keep none of the parent's connections open; their numbers stay taken."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in (kept, null):
            with contextlib.suppress(OSError):
                os.fstat(number)  # the listing's own is gone
                os.dup2(null, number, inheritable=False)
