"""Folders that last as long as the process that made them, even if that is killed.

Who makes one holds a lock on it. One that nobody holds was left behind by a process that was
killed, and is removed by whoever makes the next one beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """Make a folder in ``parent``, and remove it at the end; and those that nobody holds.

    Args:
        prefix: of its name, which no other program uses.
        parent: where it is.

    Raises:
        OSError: it cannot be made.
    """
    for left in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(left):  # it is held, or somebody else's
            shutil.rmtree(left, ignore_errors=True)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # a file system without locks, where none is removed
                stack.enter_context(_locked(path))
            if not path.exists():  # another process was faster than the lock
                continue
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
            return


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
