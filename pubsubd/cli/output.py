"""The output of commands that stream: messages, and whether they are connected."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from pubsubd.cli.streams import echo, write_all
from pubsubd.protocol.errors import PubsubdError

_LOOK = 0.2  # seconds between two looks at a pipe that could be read, too


async def wait_closed(descriptor: int = 1) -> None:
    """Return when the reader of a pipe that is written to has closed it, as ``head`` does.

    Never returns for anything but a pipe.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        await trio.sleep_forever()
    poll = select.poll()
    poll.register(descriptor, 0)  # asks for POLLERR alone
    while not poll.poll(0):
        await trio.lowlevel.wait_readable(descriptor)  # an error is among what ends this
        await trio.sleep(0 if poll.poll(0) else _LOOK)


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """Raise :class:`BrokenPipeError` in the block as soon as nobody reads standard output."""
    closed = False

    async def notice_closed(scope: trio.CancelScope) -> None:
        nonlocal closed
        await wait_closed()
        closed = True
        scope.cancel()

    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notice_closed, nursery.cancel_scope)
        try:
            yield
        except BaseException as exc:  # noqa: BLE001  (raised below, where no nursery groups it)
            error = exc
        nursery.cancel_scope.cancel()
    if closed:
        raise BrokenPipeError
    if error is not None:
        raise error


def write(output: bytes) -> None:
    """Write all of ``output`` to standard output.

    Not through ``sys.stdout``: a part that could not be written would be tried again at exit.
    """
    write_all(1, output)


def telling(lost: str) -> dict[str, Any]:
    """Return handlers for a client that reconnects, which tell so on standard error.

    Args:
        lost: what is lost while there is no connection.
    """

    def tell_disconnected(why: PubsubdError) -> None:
        more = f"reconnecting ({lost} in the meantime are lost)"
        echo(f"pubsubd: disconnected: {why}; {more}", err=True)

    def tell_connected() -> None:
        echo("pubsubd: reconnected", err=True)

    return {"on_disconnect": tell_disconnected, "on_connect": tell_connected}
