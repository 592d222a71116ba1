"""A directory for what an analysis needs while it runs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.held import held_folder

SPARED = 1 << 30
"""Bytes that copies leave free on the disk."""


PREFIX = ".topology-"
"""What the names of directories begin with that are gone when a report is done."""


class Scratch:
    """A directory beside the report, since the executors have to see both.

    It is made when it is first needed, and removed at the end.

    Args:
        out: the directory of the report; otherwise it is among the system's temporary files.
    """

    def __init__(self, out: Path | str | None) -> None:
        self._out = out.absolute() if isinstance(out, Path) else None
        self._path: Path | None = None
        self._made = False
        self._count = 0
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()
        if self._made and self._out:
            with contextlib.suppress(OSError):  # the report may be in it
                self._out.rmdir()

    @property
    def path(self) -> Path:
        """The directory.

        Raises:
            OSError: it cannot be made.
        """
        if self._path is None:
            parent, prefix = Path(tempfile.gettempdir()), "pubsubd-report-"
            if self._out:
                parent, prefix = self._out, PREFIX
                self._made = not parent.exists()
                parent.mkdir(parents=True, exist_ok=True)
            self._path = self._held.enter_context(held_folder(prefix, parent))
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
                f"{what} does not fit: less than {SPARED >> 30} GiB is free in {self.path.parent}"
            )
