"""Is a process that is forked for a test (tests/forks.py) what one that is started would be?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.daemons import Daemon, wait_until
from tests.running import command_line, environment


def look(daemon: Daemon) -> dict[str, Any]:
    """Return what the system knows of a daemon, without what is its own."""
    proc = Path(f"/proc/{daemon.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    kept = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "CapEff", "Seccomp")
    files = {int(one.name): os.readlink(one) for one in (proc / "fd").iterdir()}
    return {
        **{key: status[key] for key in kept},
        "files": [files[0], files[1], files[2] == str(daemon.log_file), len(files)],
        "places": [(proc / "cwd").readlink(), (proc / "root").readlink()],
        "limits": (proc / "limits").read_text(),
        "session": os.getsid(daemon.pid) == os.getpgid(daemon.pid) == daemon.pid,
    }


def test_a_forked_daemon_is_to_the_system_what_a_started_one_is(
    start: Callable[..., Daemon],
) -> None:
    started, forked = start(fresh=True), start()
    # Threads and what they open come and go, soon after the start.
    wait_until(lambda: look(started) == look(forked), "they are the same")


@pytest.mark.parametrize("run", [subprocess.run, forks.run])
def test_a_forked_command_reads_writes_and_ends_as_a_started_one(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "users"
    words = ["passwd", "--stdin", "users", b"\xc3\xa4nn"]
    done = run(
        command_line(*words), input=b"correct horse\n", capture_output=True, cwd=tmp_path,
        env=environment(PUBSUBD_DEBUG="1"),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert path.read_text(encoding="utf-8").startswith("\u00e4nn:scrypt$")
    done = run(command_line("pub", "a", "b", port=1), text=True, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_forked_command_is_ended_by_a_signal(number: int) -> None:
    with forks.Forked(
        [sys.executable, "-m", "pubsubd", "passwd", "--stdin", "/dev/null", "ann"],
        stdin=subprocess.PIPE,
    ) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait() == -number
