"""Programs on a terminal, as a person sees them."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from tests.daemons import DEADLINE
from tests.forks import Forked
from tests.running import command_line, environment


class Screen:
    """A program on a terminal.

    Args:
        command: the program and its arguments.
        columns: the width of the terminal.
        env: more variables for it.

    Attributes:
        process: the program.
        seen: everything that it has written.
    """

    def __init__(self, *command: str | bytes, columns: int = 80, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.seen = b""
        start = Forked if command[1:3] == ("-m", "pubsubd") else subprocess.Popen
        try:
            self.process = start(
                command,
                env=environment(**{"TERM": "xterm", "COLUMNS": "", "LINES": "", **env}),
                start_new_session=True,
                **self._streams,
            )
        finally:
            os.close(theirs)

    def type(self, text: str) -> None:
        """Type on its keyboard."""
        os.write(self._ours, text.encode())

    def modes(self) -> list[Any]:
        """Return how the terminal treats input and output."""
        return termios.tcgetattr(self._ours)

    async def wait_seen(self, pattern: str) -> None:
        """Wait until what has been printed matches somewhere."""
        with trio.fail_after(DEADLINE):
            while not re.search(pattern, self.text(), re.DOTALL):
                assert await self._read(), f"it ended after {self.seen!r}"

    async def wait_end(self) -> int:
        """Wait until it has ended, and return its exit status."""
        with trio.fail_after(DEADLINE):
            while await self._read():
                pass
            return await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self._ours)
        try:
            part = os.read(self._ours, 65_536)
        except OSError:  # what Linux says at the end
            return False
        self.seen += part
        return bool(part)

    def text(self) -> str:
        """Return what has been printed, without colours and cursor movements."""
        whole = codecs.getincrementaldecoder("utf-8")().decode(self.seen)  # a read may cut a letter
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", whole).replace("\r", "")

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def on_screen(*words: str, port: int, **more: Any) -> Iterator[Screen]:
    """Run a command of pubsubd on a terminal."""
    screen = Screen(*command_line(*words, port=port), **more)
    try:
        yield screen
    finally:
        screen.close()
