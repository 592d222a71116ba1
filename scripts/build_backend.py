"""What builds the package: setuptools, made to give the same bytes for the same files.

pip and ``python -m build`` call these functions (PEP 517). What would differ from one build to the
next is what is left out here: times, owners, permissions and the order in the archive. The time of
all files is ``SOURCE_DATE_EPOCH`` (reproducible-builds.org), or else that of the last commit, or
of the archive that this came in.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Write the archive of the sources to ``directory``, and return its name."""
    epoch = _epoch()
    name = build_meta.build_sdist(directory, settings)
    path = Path(directory, name)
    fresh = path.with_name(name + ".new")
    with (
        tarfile.open(path) as old,
        fresh.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            if member.isfile():
                plain = _plain(member, epoch)
                new.addfile(plain, old.extractfile(member))
    fresh.replace(path)
    return name


def build_wheel(
    directory: str, settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write the package as pip installs it to ``directory``, and return its name."""
    os.environ["SOURCE_DATE_EPOCH"] = str(_epoch())
    os.umask(0o022)
    return build_meta.build_wheel(directory, settings, metadata_directory)


def _plain(member: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    plain = tarfile.TarInfo(member.name)
    plain.size = member.size
    plain.mode = 0o755 if member.mode & 0o100 else 0o644
    plain.mtime = epoch
    return plain


def _epoch() -> int:
    """Return the time of all files, in seconds since 1970."""
    if text := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(text)
    if Path(".git").exists():
        told = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], capture_output=True, check=False, text=True
        )
        if told.returncode == 0 and told.stdout.strip():
            return int(told.stdout)
    information = Path("PKG-INFO")
    return int((information if information.exists() else Path("setup.cfg")).stat().st_mtime)
