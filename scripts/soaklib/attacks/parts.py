"""What floods say: bytes that were made beforehand, in parts that are written at once."""

from __future__ import annotations

from collections.abc import Iterable

from soaklib.wires import KIB

READ = 256 * KIB
"""Bytes that the daemon takes from a connection at once."""


def repeated(command: bytes, size: int = READ) -> list[bytes]:
    """Return a part that has a command over and over."""
    return [command * max(1, size // len(command))]


def packed(commands: Iterable[bytes], size: int = READ) -> list[bytes]:
    """Return parts of about so many bytes, of whole commands."""
    parts: list[bytes] = []
    chunk: list[bytes] = []
    room = size
    for command in commands:
        if len(command) > room and chunk:
            parts.append(b"".join(chunk))
            chunk, room = [], size
        chunk.append(command)
        room -= len(command)
    parts.append(b"".join(chunk))
    return parts


def new_names(count: int, width: int, head: bytes = b"") -> list[bytes]:
    """Return names of so many bytes, all different."""
    return [head + (b"%x/" % number).ljust(width - len(head), b"n") for number in range(count)]
