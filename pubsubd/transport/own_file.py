"""Removes a file at the end if it is still the one that was made.

A daemon that is ending may take longer than its successor takes to begin, which puts files of its
own in the same places.
"""

from __future__ import annotations

import os
from pathlib import Path


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
        """Remove it, unless it is gone or another file has its place."""
        try:
            if _identify(self._path) == self._identity:
                self._path.unlink()
        except FileNotFoundError:
            pass


def _identify(path: Path) -> tuple[int, int, int]:
    found = os.lstat(path)
    # A file system may give the number of a file that is gone to the next one at once.
    return found.st_dev, found.st_ino, found.st_mtime_ns
