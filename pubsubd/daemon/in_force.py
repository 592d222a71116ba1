"""Settings that only a restart can change, left by a service for the check before its reload.

The check is another process, and cannot know what the daemon has read at its start. So a daemon
that systemd has given a directory of its own (``RUNTIME_DIRECTORY``, systemd.exec(5)) notes it
there.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pubsubd.settings.load import Settings, changed_names

NAME = "in-force.json"
"""The file in that directory."""


def record(settings: Settings) -> None:
    """Note what this daemon was started with, if there is a place for it."""
    directory = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if not directory or settings.path is None:
        return
    noted = {
        "pid": os.getpid(),
        "path": str(settings.path.absolute()),
        "given": sorted(settings.given),
        "fixed": settings.fixed(),
    }
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=directory, delete=False, encoding="utf-8"
        ) as file:
            json.dump(noted, file)
        os.replace(file.name, Path(directory, NAME))
    except OSError:
        return  # the check then misses what it would find there


def find_fixed_changes(settings: Settings, directories: Sequence[str]) -> tuple[list[str], int]:
    """Return what has changed that needs a restart of the daemon that runs, and its process.

    Args:
        settings: those that are checked.
        directories: where a daemon may have noted what it was started with.
    """
    for directory in directories:
        try:
            noted = json.loads(Path(directory, NAME).read_bytes())
            process, given = int(noted["pid"]), set(noted["given"])
            fixed: Mapping[str, object] = noted["fixed"]
            os.stat(f"/proc/{process}")
            same = settings.path is not None and noted["path"] == str(settings.path.absolute())
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if same:
            after = json.loads(json.dumps(settings.fixed()))
            # Flags and variables keep what they were, whatever the check itself was given. A daemon
            # of another version has other settings.
            names = [
                name
                for name in sorted(fixed.keys() | after.keys())
                if name.startswith("listener ") or (name in fixed.keys() & after.keys() - given)
            ]
            return changed_names(
                {name: fixed.get(name) for name in names}, {name: after.get(name) for name in names}
            ), process
    return [], 0
