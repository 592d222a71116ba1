"""Wheels, archives and Debian packages of this checkout, made without a network."""

from __future__ import annotations

import base64
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.daemons import DEADLINE, ROOT

EPOCH = 1_764_300_000

SHARED_OBJECT = "msgspec"
"""The package whose wheel has a library in it."""


def run(*command: str | Path, **variables: str) -> str:
    """Run a program with some variables and return what it prints; the test fails if it fails."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    environ.pop("DESTDIR", None)
    found = subprocess.run(
        command,
        capture_output=True,
        check=False,
        env=environ | variables,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=4 * DEADLINE,  # an environment has over a thousand files, and discs may be slow
    )
    assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
    return found.stdout


def copy_checkout(to: Path) -> Path:
    """Copy what git has of this checkout, or all of it if it is none."""
    run("bash", "-c", 'source "$1" && copy_sources "$2"', "-", ROOT / "scripts" / "install", to)
    return to


def build(what: str, source: Path, to: Path, **variables: str) -> Path:
    """Let the build backend of ``source`` make an ``sdist`` or a ``wheel``."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("setuptools is too old to build this: pip install 'setuptools>=77'")
    to.mkdir(parents=True, exist_ok=True)
    code = (
        "import os, sys; os.chdir(sys.argv[1]); sys.path.insert(0, 'scripts');"
        f" import build_backend; name = build_backend.build_{what}(sys.argv[2]); print(name)"
    )
    told = run(sys.executable, "-c", code, source, to, **variables)
    return to / told.splitlines()[-1]


_QUICK = """\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    shift 2
    '{python}' -m venv --without-pip "$@" || exit
    for place; do :; done
    exec cp -r '{site}'/pip '{site}'/pip-*.dist-info "$place"/lib/python3*/site-packages
fi
exec '{python}' "$@"
"""


def quick_python(directory: Path) -> Path:
    """Write a ``python3`` that copies pip into the environments it makes.

    To install it there takes most of the time of a whole installation.
    """
    python = directory / "python3"
    python.parent.mkdir(parents=True, exist_ok=True)
    site = sysconfig.get_path("purelib")
    if not Path(site, "pip").is_dir():
        python.symlink_to(sys.executable)
    else:
        python.write_text(_QUICK.format(python=sys.executable, site=site), encoding="utf-8")
        python.chmod(0o755)
    return python


def fake_wheels(wheel: Path, to: Path) -> Path:
    """Write empty wheels of what ``wheel`` requires and of the scanner, and ``wheel`` itself."""
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel, to)
    _fake_wheel("pubsubd_scanner", "1", to)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    for requirement in metadata.get_all("Requires-Dist", []):
        if "extra ==" not in requirement:
            parts = re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", requirement)
            assert parts is not None, requirement
            _fake_wheel(parts[1].lower().replace("-", "_"), parts[2], to)
    return to


def _fake_wheel(name: str, version: str, to: Path) -> None:
    folder = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": b"",
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if name == SHARED_OBJECT:
        files[f"{name}/_core.so"] = b"no machine runs this"
    record = f"{folder}/RECORD"
    lines = []
    for path, data in files.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={hashed},{len(data)}")
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(to / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
