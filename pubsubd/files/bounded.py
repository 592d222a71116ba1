"""Reads files of settings, keys and users, within bounds.

A path may name anything: a device that never ends, or a FIFO that nobody writes to. Opening such a
FIFO would block, and a signal that is caught could not end that.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from io import FileIO
from pathlib import Path

MAX_FILE = 64 * 1024 * 1024
"""Bytes of the largest file that is read."""

PATIENCE = 5.0
"""Seconds in all that a pipe is waited for."""

_PART = 1024 * 1024  # bytes read at once
_LOOK = 0.02  # seconds between two looks at a pipe


def read_bounded(path: Path, most: int = MAX_FILE) -> bytes:
    """Return what a file holds, or what comes from a pipe until it is closed.

    Raises:
        OSError: it cannot be read; ``EFBIG``, it has over ``most`` bytes; ``ETIMEDOUT``, a pipe
            had nothing, or was not closed, within :data:`PATIENCE`.
    """
    with open_bounded(path) as file:
        return read_open(file, most)


def open_bounded(path: Path) -> FileIO:
    """Return a file that :func:`read_open` can read; opening waits for nobody.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, "rb", buffering=0, opener=_open)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_open(file: FileIO, most: int = MAX_FILE) -> bytes:
    """Return what an open file holds, as :func:`read_bounded` does. Raises as that does."""
    deadline = time.monotonic() + PATIENCE
    piped = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    data = bytearray()
    while True:
        part = file.read(min(_PART, most + 1 - len(data)))
        data += part or b""
        if len(data) > most:
            raise OSError(errno.EFBIG, f"it has over {most} bytes")
        if part == b"" and (data or not piped):  # before a pipe's first writer it is empty, too
            return bytes(data)
        if not part:
            if time.monotonic() > deadline:
                what = "was not closed" if data else "had nothing"
                raise OSError(errno.ETIMEDOUT, f"it is a pipe that {what} within {PATIENCE:g} s")
            time.sleep(_LOOK)


def check_regular(path: str) -> None:
    """Check that a file can be read, and again and again, as no pipe or device can.

    Raises:
        OSError: it cannot, or has over :data:`MAX_FILE` bytes.
    """
    with open_bounded(Path(path)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if found.st_size > MAX_FILE:
            raise OSError(errno.EFBIG, f"it has over {MAX_FILE} bytes")
