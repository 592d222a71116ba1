"""The tests themselves: one that fails does not fail the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.daemons import DEADLINE, environment

_TESTS = """
import gc
import socket

def test_one():
    left = socket.socket()
    circle = [left]
    circle.append(circle)
    assert not circle

def test_two():
    gc.collect()
"""


def test_what_a_failed_test_leaves_open_does_not_fail_the_next(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.leftovers", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment()
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
