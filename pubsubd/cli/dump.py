"""Messages as files of one folder, for ``pubsubd sub --dump``.

Whoever publishes chooses the names of messages, so a file's name is a number and what is harmless
of the message's; and files are only ever made: none is overwritten, and no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from urllib.parse import quote

import click

from pubsubd.client import Message

MAX_FILES = 10_000
"""Files that one command makes, unless ``--count`` says otherwise."""

_LONGEST = 200  # bytes of a message's name, as it is written; a file's name may have 255
_NUMBERED = re.compile(r"(\d{8,18})-")


class Dump:
    """A folder that gets a file for each message; used as a context.

    Args:
        folder: made if it is not there.
        files, room: most files, and most bytes of them all, that are written.
    """

    def __init__(self, folder: str, files: int, room: int) -> None:
        self._folder = Path(folder)
        self._files = files
        self._room = room
        self._done = self._size = self._number = 0

    def __enter__(self) -> Dump:
        """Open the folder, and go on after the files that are there."""
        self._folder.mkdir(exist_ok=True)
        if not os.access(self._folder, os.W_OK | os.X_OK):  # better now than with the first message
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self._folder)
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        numbers = (_NUMBERED.match(name) for name in os.listdir(self._descriptor))
        self._number = max((int(found[1]) for found in numbers if found), default=0)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the folder."""
        os.close(self._descriptor)

    def write(self, message: Message) -> Path:
        """Write a message to a new file and return its path.

        Raises:
            click.ClickException: there are as many files or bytes as there may be.
        """
        if self._done >= self._files:
            text = f"{self._done} files in {self._shown} are the most without --count"
            raise click.ClickException(text)
        self._size += len(message.data)
        if self._size > self._room:
            text = f"over {self._room} bytes in {self._shown}; --dump-size allows more"
            raise click.ClickException(text)
        name, descriptor = self._make(_harmless(message.name))
        with open(descriptor, "wb") as file:
            file.write(message.data)
        self._done += 1
        return self._folder / name

    def _make(self, harmless: str) -> tuple[str, int]:
        """Make a file, and return its name and its descriptor."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        while True:
            self._number += 1
            name = f"{self._number:08}-{harmless}"
            # If it is there, another command writes to the folder, too.
            with contextlib.suppress(FileExistsError):
                return name, os.open(name, flags, 0o666, dir_fd=self._descriptor)

    @property
    def _shown(self) -> str:
        return click.format_filename(self._folder)


def _harmless(name: str) -> str:
    """Return ``name`` with letters, digits, ``_-.~`` as they are, and ``%XX`` for other bytes."""
    quoted = quote(name, safe="")
    return re.sub(r"%.?$", "", quoted[:_LONGEST]) if len(quoted) > _LONGEST else quoted
