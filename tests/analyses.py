"""Runs of ``pubsubd topology`` as a user starts it, with a Spark of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.daemons import environment

LONGEST = 900
"""Seconds after which a run is ended: a guard only."""

Ran = tuple[Path, subprocess.CompletedProcess[str]]
"""Where it was run, and what came of it."""


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pubsubd", "topology", *words],
        cwd=cwd,
        env=environment() | {"TMPDIR": str(cwd)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )


def put_list(folder: Path) -> Path:
    """Write ``mesh.txt``, a list of links."""
    (folder / "mesh.txt").write_text("# two rings\n1 2\n2 3\n3 1\n3 4\n4 5\n5 6\n6 4\n6 6\n")
    return folder
