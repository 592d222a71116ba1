"""The standard streams: closed, full, or with an encoding that lacks some characters.

A descriptor that is closed at the start would be the number of the first socket that is opened, and
what is meant for the output would go there.
"""

from __future__ import annotations

import io
import os
import select
import sys

import click

from pubsubd.protocol.wire import escape

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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests may have put another one there
            stream.reconfigure(errors="backslashreplace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    r"""Print text; characters that the stream's encoding lacks are escaped, as in ``\xe9``.

    Args:
        text: what to print.
        err: whether it is for standard error.
        nl: whether a line end follows.
    """
    # click's own choice of a stream would write UTF-8 where the encoding is ASCII.
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)  # noqa: TID251


def visible(text: bytes | str) -> str:
    """Return ``text`` as one line that standard output can show; see :func:`wire.escape`.

    Text that is laid out has to be escaped first, or its width is not what it seems.
    """
    return encoded(escape(text)).decode(sys.stdout.encoding or "utf-8")


def encoded(text: str, *, err: bool = False) -> bytes:
    """Return ``text`` as a stream would write it, with escapes as :func:`echo` has."""
    # What others put in the place of the stream, such as io.StringIO, may have no encoding.
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    return text.encode(encoding, "backslashreplace")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, and wait for as long as that takes.

    Raises:
        OSError: it cannot be written.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another program has made it so
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def drop_output() -> None:
    """Discard what standard output has not taken; Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
