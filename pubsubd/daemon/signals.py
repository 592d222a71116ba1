"""Signals as something to wait for, where they can be received: in the main thread."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import trio


@contextlib.contextmanager
def open_signals(*numbers: int) -> Iterator[Any]:
    """Receive signals where that is possible: in the main thread."""
    try:
        receiver = trio.open_signal_receiver(*numbers)
        with receiver as signals:
            yield signals
    except RuntimeError:
        yield None


@contextlib.contextmanager
def open_hangups() -> Iterator[Any]:
    """Receive SIGHUP; one that nobody has taken at the end would end the process by itself."""
    try:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    except ValueError:  # as above
        yield None
        return
    try:
        with open_signals(signal.SIGHUP) as signals:
            yield signals
    finally:
        signal.signal(signal.SIGHUP, before)


async def wait_signal(signals: Any) -> None:
    """Wait for the next signal; for ever, if there is nothing to wait for."""
    if signals is None:
        await trio.sleep_forever()
    async for _ in signals:
        return
