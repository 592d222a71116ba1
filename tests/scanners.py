"""The compiled scanner, made of this checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pubsubd.routing.scanner import Scan
from tests.daemons import DEADLINE, ROOT


def build_scanner(to: Path) -> Path:
    """Compile it into a directory, for a module path; skip the test where nothing can be compiled.

    It is not optimised, which takes half of the time.
    """
    if (
        shutil.which("cc") is None
        or not Path(sysconfig.get_paths()["include"], "Python.h").exists()
    ):
        pytest.skip("needs a C compiler, and the headers of Python")
    source = to / "source"
    shutil.copytree(ROOT / "scanner", source, ignore=shutil.ignore_patterns("build", "*.c", "*.so"))
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", to],
        capture_output=True,
        check=False,
        cwd=source,
        env={**os.environ, "CFLAGS": "-O0", "PYTHONWARNINGS": "ignore"},
        text=True,
        timeout=4 * DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return to


def load_scanner(folder: Path) -> Scan:
    """Return what was built."""
    (path,) = folder.glob("pubsubd_scanner*.so")
    spec = importlib.util.spec_from_file_location("pubsubd_scanner", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scan: Scan = module.scan
    return scan
