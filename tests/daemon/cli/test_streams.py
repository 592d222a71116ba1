"""Commands whose standard streams are closed or full, and commands that are process 1."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import DEADLINE, Daemon, Line, environment, frame, program, tool, wait_until

CLOSED = "pubsubd: standard input or output is closed\n"


def run(how: str, *words: str) -> tuple[int, str, str]:
    """Run a command with redirections of the shell; return its status and what it printed."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {how}', sys.executable, "-m", "pubsubd", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_message_is_published_whatever_streams_are_closed(shared: Daemon) -> None:
    port = f"--port={shared.address[1]}"
    line = Line(shared.address)
    line.say(b"sub a\n")
    line.ping()
    for how in (">&-", "2>&-", "<&- >&- 2>&-"):
        assert run(how, "pub", "a", how, port) == (0, "", "")
        assert line.hear_frame() == ("a", how.encode())
    # What is to be read and cannot be is no empty message.
    assert run("<&-", "pub", "a", port) == (1, "", CLOSED)
    assert line.ping() == b""
    line.close()


@pytest.mark.parametrize(
    ("how", "words", "told"),
    [
        (">&-", ["stats"], CLOSED),
        (">&-", ["explain", "x"], CLOSED),
        ("2>&- >&-", ["stats", "--json"], ""),
        (">/dev/full", ["stats"], "pubsubd: No space left on device\n"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_clear_line(
    how: str, words: list[str], told: str, shared: Daemon
) -> None:
    assert run(how, *words, f"--port={shared.address[1]}") == (1, "", told)


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "café"],
        ["explain", "x", "--café"],
        ["stats", "--host=café.invalid"],
        ["serve", "--check", "--config=/café"],
        ["serve", "--port=0", "--no-hub", "--unix=/none/café"],
    ],
)
def test_what_the_output_cannot_show_is_escaped(
    words: list[str], shared: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    port = [] if words[0] == "serve" else [f"--port={shared.address[1]}"]
    _, printed, told = run("", *words, *port)
    assert r"caf\xe9" in printed + told
    assert "internal error" not in told


def test_the_log_escapes_what_it_cannot_show(
    start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    daemon = start("--unix", str(tmp_path / "café"), "--no-hub", fresh=True)
    daemon.wait_log(rf"unix={tmp_path}/caf\xe9")


@pytest.mark.parametrize(
    ("how", "told"), [(">&-", CLOSED), (">/dev/full", "pubsubd: No space left on device\n")]
)
def test_what_a_subscriber_cannot_print_goes_nowhere_else(
    how: str, told: str, shared: Daemon
) -> None:
    # What it opens first, as its connection, must not take the place of its output.
    line = Line(shared.address)
    shell = ["/bin/sh", "-c", f'exec "$0" "$@" {how}', sys.executable, "-m", "pubsubd"]
    port = f"--port={shared.address[1]}"
    with program(*shell, "sub", "b", port, stderr=subprocess.PIPE) as process:
        line.say(b"pub //pubsubd/explain 1 b\n")
        while b'"count": 1' not in line.hear_frame()[1]:
            time.sleep(0.02)  # requests have a rate
            line.say(b"pub //pubsubd/explain 1 b\n")
        line.say(frame("b", b"x"))
        assert process.stderr is not None
        assert process.stderr.read().decode() == told
        assert process.wait(DEADLINE) == 1
    line.close()


def test_a_daemon_with_no_streams_serves_and_ends_with_status_0(tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    words = ["serve", "--port=0", "--no-hub", f"--ports-file={ports}"]
    shell = ["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-m", "pubsubd"]
    with program(*shell, *words) as process:
        wait_until(ports.exists, "the daemon accepts connections")
        for descriptor in range(3):
            assert Path(f"/proc/{process.pid}/fd/{descriptor}").readlink() == Path("/dev/null")
        process.terminate()
        assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [(["sub", "a"], 128 + signal.SIGTERM), (["pub", "a"], 128 + signal.SIGTERM), (["serve"], 0)],
)
def test_process_1_of_a_container_ends_by_sigterm(
    words: list[str], status: int, shared: Daemon
) -> None:
    unshare = [tool("unshare"), "--user", "--map-root-user", "--pid", "--fork"]
    tried = subprocess.run([*unshare, "true"], capture_output=True, check=False, timeout=DEADLINE)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.decode()}")
    serving = words == ["serve"]
    where = ["--port=0", "--no-hub"] if serving else [f"--port={shared.address[1]}"]
    before = Line(shared.address)
    connections = before.stats()["connections"]
    command = [*unshare, sys.executable, "-m", "pubsubd", *words, *where]
    with program(*command, stderr=subprocess.PIPE) as process:
        if serving:
            assert process.stderr is not None
            assert b"event=ready pid=1 " in process.stderr.readline()
        else:
            wait_until(lambda: before.stats()["connections"] > connections, "it has connected")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", "-TERM", *children], check=True, timeout=DEADLINE)
        assert process.wait(DEADLINE) == status
    before.close()
