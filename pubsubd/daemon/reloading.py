"""Reloads at SIGHUP: read the settings in a thread, put them into force, and tell the result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import trio

from pubsubd.daemon.check import check
from pubsubd.daemon.reload import Prepared, Reloader
from pubsubd.daemon.signals import wait_signal
from pubsubd.daemon.status import Status
from pubsubd.daemon.systemd import Notifier
from pubsubd.daemon.warnings import inherited, warnings
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.limits import TURN
from pubsubd.settings.config import Config
from pubsubd.transport.listen import BoundSocket

log = logging.getLogger("pubsubd")

READ_TIMEOUT = 30.0
"""Seconds that reading the settings and their files may take at a reload."""


class _ReloadFaultError(ConfigError):
    """Settings that cannot be read because of a mistake in this program, which is the cause."""


_Read: TypeAlias = Callable[[], tuple[Prepared, list[str]]]


def read_again(
    reload: Callable[[], Config], all_bound: Sequence[BoundSocket]
) -> tuple[Prepared, list[str]]:
    """Return settings that can be put into force, and warnings about them.

    Whatever goes wrong is a ConfigError.
    """
    try:
        prepared = check(reload(), all_bound)
        return prepared, warnings(prepared, inherited(all_bound))
    except ConfigError:
        raise
    except Exception as error:
        raise _ReloadFaultError(f"an unexpected failure: {error!r:.200}") from error


async def reload_on_signal(
    signals: Any,
    read: _Read | None,
    reloader: Reloader,
    notifier: Notifier,
    status: Status,
) -> None:
    """Read the settings again at each signal, put them into force, and tell what came of it."""
    threads = trio.CapacityLimiter(1)
    while True:
        await wait_signal(signals)
        notifier.reloading()
        try:
            if read is None:
                raise ConfigError("there are no settings to read again")
            prepared, texts = await _read_in_thread(read, threads)
            await apply(prepared, reloader)
        except ConfigError as error:
            reloader.failed = True
            if isinstance(error, _ReloadFaultError) and error.__cause__ is not None:
                # Here and not where it was met: that was in a thread, where there is no clock.
                reloader.server.broker.faults.note(error.__cause__, "reload")
            told: dict[str, object] = {"event": "reload-failed", "detail": str(error)}
            reloader.server.publish_event(told, logging.ERROR, asked=True)
        else:
            reloader.server.publish_event({"event": "reloaded"}, asked=True)
            log_warnings(texts)
        if notifier.listening:
            await status.look()
            status.tell()
        notifier.ready()


async def _read_in_thread(read: _Read, threads: trio.CapacityLimiter) -> tuple[Prepared, list[str]]:
    """Read in a thread: files may be slow, and nobody has to wait for them.

    One that never answers, as on a disk that is gone, keeps its thread. There is no second one
    then, and the daemon ends without it.

    Raises:
        ConfigError: the settings cannot be used, or have not been read in time.
    """
    if threads.borrowed_tokens:
        raise ConfigError("the files of the reload before have not been read yet")
    with trio.move_on_after(READ_TIMEOUT):
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=threads)
    raise ConfigError(f"the files have not been read in {READ_TIMEOUT:g} s")


async def apply(prepared: Prepared, reloader: Reloader) -> None:
    """Put settings into force, and let others have their turns meanwhile."""
    turn, lane = reloader.server.broker.delivery.turn, reloader.server.lane
    turn.begin()
    for _ in reloader.apply(prepared, turn.over):
        await lane.wait_next(TURN)
        turn.begin()


def log_warnings(texts: Iterable[str]) -> None:
    """Log warnings about settings."""
    for text in texts:
        log.warning("event=settings-warning detail=%s", json.dumps(text))
