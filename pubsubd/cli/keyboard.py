"""Keys as they are pressed, and a terminal that is as it was before, whatever ends the command."""

from __future__ import annotations

import codecs
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import trio

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE, TAB = "enter", "escape", "backspace", "tab"

_SEQUENCES = {
    "[A": UP,
    "OA": UP,
    "[B": DOWN,
    "OB": DOWN,
    "[5~": PAGE_UP,
    "[6~": PAGE_DOWN,
    "[H": HOME,
    "OH": HOME,
    "[1~": HOME,
    "[F": END,
    "OF": END,
    "[4~": END,
}
_CONTROLS = {
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\b": BACKSPACE,
    "\t": TAB,
    "\x1b": ESCAPE,
}
_KEY = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])|(.)", re.DOTALL)


class Keyboard:
    """The keyboard of the terminal that is standard input."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)

    def take(self) -> None:
        """Get keys at once, without showing them; Ctrl-C and Ctrl-Z stay what they are."""
        tty.setcbreak(self._descriptor, termios.TCSANOW)

    def give_back(self) -> None:
        """Let the terminal be as it was."""
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the keyboard for the block."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

    async def keys(self) -> AsyncIterator[str]:
        """Yield keys: a character, or one of the names above. Ends with the input."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, 1024)
            except OSError:  # the terminal is gone
                return
            if not data:
                return
            for sequence, character in _KEY.findall(decode(data)):
                key = _SEQUENCES.get(sequence) if sequence else _CONTROLS.get(character, character)
                if key is not None:
                    yield key


def stop_here() -> None:
    """Stop this process, as Ctrl-Z does, until it is continued."""
    os.kill(os.getpid(), signal.SIGSTOP)


def end_by(number: int) -> None:
    """End this process by a signal, as it would have ended without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
