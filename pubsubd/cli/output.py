"""Standard output as commands that stream write to it."""

from __future__ import annotations

import os
import select
import stat

import trio

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
