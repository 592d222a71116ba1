"""The standard streams where whoever started a command has closed them, or the output is full.

A descriptor that is closed at the start would be the number of the first socket that is opened, and
what is meant for the output would go there.
"""

from __future__ import annotations

import os
import sys

_MODES = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)  # of the null device in the place of 0, 1 and 2


def open_streams() -> None:
    """Occupy descriptors 0 to 2 where they are closed.

    Reading the input and writing the output then fail as on a closed descriptor (``EBADF``). Error
    messages and the log are discarded: whether they are read changes nothing.
    """
    for descriptor, mode in enumerate(_MODES):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
    # Python has none for what it found closed.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def drop_output() -> None:
    """Discard what standard output has not taken; Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
