"""Removes a file at the end if it is still the one that was made.

A daemon that is ending may take longer than its successor takes to begin, which puts files of its
own in the same places.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pubsubd.files.whole import NOT_RENAMED, locked

_WAIT = 0.1  # seconds that somebody else's lock is waited for


class OwnFile:
    """A file that this process has made.

    Args:
        path: where it is now.

    Raises:
        OSError: it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identify(path)

    def remove(self) -> None:
        """Remove it, unless it is gone or another file has its place.

        A file that cannot be removed, because it is mounted or its folder is read-only, is emptied.
        """
        with contextlib.suppress(FileNotFoundError):
            try:
                if self._is_there():
                    self._path.unlink()
            except OSError as error:
                if error.errno not in NOT_RENAMED or not self._path.is_file():
                    raise
                with locked(self._path, _WAIT):
                    if self._is_there():  # the successor may have written meanwhile
                        os.truncate(self._path, 0)

    def _is_there(self) -> bool:
        return _identify(self._path) == self._identity


def _identify(path: Path) -> tuple[int, int, int]:
    found = os.lstat(path)
    # A file system may give the number of a file that is gone to the next one at once.
    return found.st_dev, found.st_ino, found.st_mtime_ns
