"""Files that are never seen half written.

A file is written under another name and renamed. Where that cannot be, it is written in place: if a
file is a mount of its own, as of a container, its name cannot be given to another one; and a folder
may be read-only although a file in it is not. Then readers have to lock the file as writers do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pubsubd.files.bounded import open_bounded, read_open

NOT_RENAMED = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS, errno.EXDEV)
"""Numbers of errors where a file can perhaps be written, but neither renamed nor removed."""

_LOOK = 0.01  # seconds between two looks whether a lock is free


def _nothing(_descriptor: int) -> None:
    pass


def write_whole(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o666,
    prepare: Callable[[int], None] = _nothing,
) -> None:
    """Write a file that others see as it was before or as it is now.

    Args:
        path: of the file, which need not exist.
        data: what it is to hold.
        mode: of a new file, as far as the umask leaves it.
        prepare: is given the file's descriptor, to change its owner and mode.

    Raises:
        OSError: it is not possible; or there is something other than a file.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "this is no plain file", str(path))
    try:
        _replace(path, data, mode, prepare)
    except OSError as error:
        if error.errno not in NOT_RENAMED or not path.exists():
            raise OSError(error.errno, error.strerror, str(path)) from None
        write_in_place(path, data, prepare)


def write_in_place(path: Path, data: bytes, prepare: Callable[[int], None] = _nothing) -> None:
    """Write over what a file holds; see :func:`write_whole`.

    A reader without the lock may see both mixed, but never an empty file. If the data cannot be
    written, the file has what it had before.

    Raises:
        OSError: it is not possible.
    """
    with path.open("r+b", buffering=0) as file:
        before = file.read()
        descriptor = file.fileno()
        try:
            # In one call, over all that was there: blank lines are of no importance to readers.
            _put(descriptor, data.ljust(len(before), b"\n"))
            os.ftruncate(descriptor, len(data))
            prepare(descriptor)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                _put(descriptor, before)
                os.ftruncate(descriptor, len(before))
            raise


@contextlib.contextmanager
def locked(path: Path, seconds: float = math.inf) -> Iterator[None]:
    """Keep other writers, and readers with :func:`read_whole`, from a file or folder.

    One that is not there, or that cannot be read, is not locked.

    Args:
        path: of the file or folder.
        seconds: how long somebody else's lock is waited for; it is passed over then.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for a writer
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        _lock(descriptor, fcntl.LOCK_EX, seconds)
        yield
    finally:
        os.close(descriptor)


def read_whole(path: Path) -> tuple[bytes, os.stat_result]:
    """Return what a file holds, and its owner and mode, while nobody writes it.

    A lock that somebody holds for over a second is passed over.

    Raises:
        OSError: it cannot be read; see :func:`~pubsubd.files.bounded.read_bounded`.
    """
    with open_bounded(path) as file:
        with contextlib.suppress(OSError):  # a file system without locks
            _lock(file.fileno(), fcntl.LOCK_SH, 1.0)
        return read_open(file), os.fstat(file.fileno())


def _lock(descriptor: int, kind: int, seconds: float) -> None:
    if seconds == math.inf:
        fcntl.flock(descriptor, kind)
        return
    for _ in range(round(seconds / _LOOK)):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK)
        else:
            return


def _replace(path: Path, data: bytes, mode: int, prepare: Callable[[int], None]) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with open(part, "xb", opener=partial(os.open, mode=mode)) as file:
        try:
            file.write(data)
            file.flush()
            prepare(file.fileno())
            os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink()
            raise


def _put(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    at = 0
    while at < len(view):
        at += os.pwrite(descriptor, view[at:], at)
