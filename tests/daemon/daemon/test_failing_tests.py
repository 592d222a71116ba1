"""The tests themselves: one that fails does not fail the next, and one that hangs fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import DEADLINE, environment

_LEAVES = """
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

_HANG = """
import threading
import pytest
import trio

pytestmark = pytest.mark.longest(2)
never = threading.Event()

def wait_for_ever():
    never.wait()

@pytest.fixture
def before():
    wait_for_ever()

@pytest.fixture
def after():
    yield
    wait_for_ever()

def test_before(before): pass

def test_after(after): pass

def test_other_thread():
    other = threading.Thread(target=wait_for_ever, name="other", daemon=True)
    other.start()
    other.join()

async def wait_in_task():
    await trio.sleep_forever()

async def test_trio():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_in_task)

async def test_next():
    await trio.sleep(0)
"""

_NO_END = """
import threading
from tests import hangs

def test_one():
    hangs.LONGEST = 0.5
    threading.Thread(target=threading.Event().wait).start()
"""


def run(tmp_path: Path, tests: str, *options: str) -> str:
    """Run tests with the hooks of ours, and return what is told."""
    (tmp_path / "test_two.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\ntrio_mode = true\nmarkers =\n    longest(seconds)\n"
    )
    hooks = ["-p", "tests.leftovers", "-p", "tests.hangs"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *hooks, *options, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,  # it starts one Python after the other
        check=False,
        env=environment(),
    ).stdout


def test_what_a_failed_test_leaves_open_does_not_fail_the_next(tmp_path: Path) -> None:
    told = run(tmp_path, _LEAVES)
    assert "1 failed, 1 passed" in told, told


@pytest.mark.parametrize("processes", [0, 1])
def test_a_test_that_hangs_fails_and_tells_where_and_the_next_are_run(
    tmp_path: Path, processes: int
) -> None:
    told = run(tmp_path, _HANG, "--color=no", f"--numprocesses={processes}")
    assert re.search("^2 failed, 2 passed, 2 errors in ", told, re.MULTILINE), told
    for name, place in (
        ("ERROR at setup of test_before", "in wait_for_ever"),
        ("ERROR at teardown of test_after", "in wait_for_ever"),
        ("test_other_thread", r"thread other$.*in wait_for_ever"),
        ("test_trio", r"task test_two.wait_in_task$.*in wait_in_task"),
    ):
        pattern = rf"^_+ {name} _+$(?:(?!^__).)*{place}"
        assert re.search(pattern, told, re.MULTILINE | re.DOTALL), (name, told)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_process_that_does_not_end_is_ended(tmp_path: Path, processes: int) -> None:
    assert "1 passed" in run(tmp_path, _NO_END, f"--numprocesses={processes}")
