"""Files that may be compressed, opened by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
"""First bytes -> the way of packing, which is also the usual ending."""

BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of a file that cannot be read to its end."""


def packing_of(path: Path) -> str | None:
    """Return how a file is packed, by its first bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(6)
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file to read what is packed in it; reading raises one of :data:`BROKEN`.

    Raises:
        OSError: it cannot be opened.
    """
    openers: dict[str | None, Callable[[Path], Any]] = {
        None: lambda path: path.open("rb"),
        "gz": gzip.open,
        "bz2": bz2.open,
        "xz": lzma.open,
        "zst": _open_zstandard,
    }
    opened: BinaryIO = openers[packing_of(path)](path)
    return opened


def _open_zstandard(path: Path) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (Python before 3.14 has none of its own)

    return pa.input_stream(str(path), compression="zstd")


def without_packing(name: str) -> str:
    """Return a file's name without the ending that tells how it is packed."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and stem and ending.lower() in MAGIC.values() else name
