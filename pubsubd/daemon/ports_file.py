"""File with the addresses of all listeners, which is removed at the end."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import trio

from pubsubd.files.own import OwnFile
from pubsubd.files.whole import locked, write_whole
from pubsubd.protocol.errors import ConfigError

WRITE_TIMEOUT = 60.0
"""Seconds that writing the ports file may take; a disk or a machine may be busy."""


async def write_ports(path: Path, ports: dict[str, Any], stack: contextlib.ExitStack) -> None:
    """Write the file in a thread: connections are served meanwhile, however slow the disk is.

    Args:
        path: of the file.
        ports: what it is to hold, in terms of JSON.
        stack: removes it.

    Raises:
        ConfigError: it has not been written in time.
        OSError: it cannot be written.
    """
    with trio.move_on_after(WRITE_TIMEOUT):
        return await trio.to_thread.run_sync(
            partial(write_now, path, ports, stack), abandon_on_cancel=True
        )
    raise ConfigError(f"the ports file has not been written in {WRITE_TIMEOUT:g} s")


def write_now(path: Path, ports: dict[str, Any], stack: contextlib.ExitStack) -> None:
    """Write the file, however long that takes; arguments as for :func:`write_ports`."""
    with locked(path, 0.1):
        write_whole(path, json.dumps(ports).encode() + b"\n", prepare=_let_all_read)
    stack.callback(OwnFile(path).remove)


def _let_all_read(descriptor: int) -> None:
    with contextlib.suppress(PermissionError):  # it may be another user's
        os.fchmod(descriptor, 0o644)


def check_ports_file(path: Path) -> None:
    """Look whether the file could be written.

    Raises:
        ConfigError: it could not.
    """
    if path.is_dir():
        raise ConfigError(f"ports_file: {path} is a directory")
    if not path.parent.is_dir():
        raise ConfigError(f"ports_file: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK) and not os.access(path, os.W_OK):
        raise ConfigError(f"ports_file: no permission to write to {path.parent}")
