"""A directory for what an analysis needs while it runs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from pubsubd.topology.errors import TopologyError

SPARED = 1 << 30
"""Bytes that copies leave free on the disk."""


class Scratch:
    """A directory beside the report, since the executors have to see both.

    It is made when it is first needed, and removed at the end.

    Args:
        out: the directory of the report; None if there is none, for the system's temporary one.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = Path(tempfile.gettempdir()) if out is None else out.absolute()
        self._path: Path | None = None
        self._made = False
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        if self._made:
            with contextlib.suppress(OSError):  # the report may be in it
                self._out.rmdir()

    @property
    def path(self) -> Path:
        """The directory.

        Raises:
            OSError: it cannot be made.
        """
        if self._path is None:
            self._made = not self._out.exists()
            self._out.mkdir(parents=True, exist_ok=True)
            self._path = Path(tempfile.mkdtemp(prefix=".topology-", dir=self._out))
        return self._path

    def place(self, name: str) -> Path:
        """Return a path for a new file called ``name``, in a directory of its own.

        Raises:
            OSError: it cannot be made.
        """
        self._count += 1
        folder = self.path / "inputs" / str(self._count)
        folder.mkdir(parents=True)
        return folder / name

    def check_room(self, what: str) -> None:
        """Check that the disk is not about to be full.

        Raises:
            TopologyError: less than :data:`SPARED` is free.
        """
        if shutil.disk_usage(self.path).free < SPARED:
            raise TopologyError(
                f"{what} does not fit: less than {SPARED >> 30} GiB is free in {self._out}"
            )
