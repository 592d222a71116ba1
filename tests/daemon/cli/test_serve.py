"""``pubsubd serve``: how it starts, what it refuses, and how it ends, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forks
from tests.daemons import DEADLINE, wait_until
from tests.running import command_line, environment


@contextmanager
def serve(*words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    env.setdefault("PUBSUBD_NO_HUB", "1")
    with subprocess.Popen(
        command_line("serve", *words), stderr=subprocess.PIPE, text=True, env=environment(**env)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> str:
    """Return the line of the log that says that it is ready."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "event=ready" in line, line
    return line


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Send a signal and return the status and the rest of the log."""
    process.send_signal(number)
    assert process.stderr is not None
    rest = process.stderr.read()
    return process.wait(), rest


def failed(*words: str, **env: str) -> tuple[int, str]:
    done = forks.run(
        command_line("serve", *words),
        capture_output=True,
        text=True,
        check=False,
        env=environment(PUBSUBD_NO_HUB="1") | env,
        timeout=DEADLINE,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(number: int) -> None:
    with serve("--port=0") as process:
        ready(process)
        status, rest = end(process, number)
    assert status == 0
    assert "event=stopped" in rest


def test_the_addresses_are_in_the_ports_file_when_they_accept(tmp_path: Path) -> None:
    path, unix = tmp_path / "ports", tmp_path / "socket"
    with serve("--port=0", "--ports-file", str(path), "--unix", str(unix)) as process:
        ready(process)
        ports = json.loads(path.read_text())
        assert ports["pid"] == process.pid
        with socket.create_connection((ports["line"]["host"], ports["line"]["port"])) as tcp:
            tcp.sendall(b"pub //pubsubd/ping 1 x\n")
            assert tcp.recv(100) == b"pub //pubsubd/ping 1 x\n"
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(unix))
            local.sendall(b"pub //pubsubd/ping 1 y\n")
            assert local.recv(100) == b"pub //pubsubd/ping 1 y\n"
        assert end(process)[0] == 0
    assert not path.exists()
    assert not unix.exists()


def test_the_flags_reach_the_daemon_and_go_before_the_environment() -> None:
    with serve("--port=0", "--max-payload=1KiB", PUBSUBD_MAX_PAYLOAD="10") as process:
        port = int(ready(process).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as tcp:
            tcp.sendall(b"pub x 1025 ")
            assert b"payload-too-large" in tcp.recv(1000)
        end(process)
    with serve(PUBSUBD_PORT="0", PUBSUBD_MAX_PAYLOAD="10") as process:
        port = int(ready(process).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as tcp:
            tcp.sendall(b"pub x 11 ")
            assert b"payload-too-large" in tcp.recv(1000)
        end(process)


def test_each_event_is_one_line_with_its_time_or_for_the_journal_its_priority() -> None:
    with serve("--port=0") as process:
        assert re.match(
            r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info event=ready ", ready(process)
        )
        end(process)
    with serve("--port=0", JOURNAL_STREAM="8:1") as process:
        assert ready(process).startswith("<6>event=ready ")
        end(process)


def test_the_log_tells_no_less_than_the_level() -> None:
    with serve("--port=0", "--log-level=warning", "--ports-file=/dev/null/x") as process:
        assert process.stderr is not None
        assert process.stderr.read().count("\n") == 1
        assert process.wait() == 1


def test_an_address_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, told = failed(f"--port={port}")
    assert status == 1
    assert re.fullmatch(
        rf"pubsubd: cannot listen on 127\.0\.0\.1:{port}: Address already in use\n", told
    )


def test_a_socket_that_cannot_be_made_is_one_clear_line() -> None:
    status, told = failed("--port=0", "--unix=/nonexistent/socket")
    assert status == 1
    assert told == "pubsubd: cannot listen on /nonexistent/socket: No such file or directory\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_loopback_is_refused_unless_it_is_meant(host: str) -> None:
    status, told = failed("--port=0", "--host", host)
    assert status == 2
    assert "--insecure" in told


def test_a_host_without_an_address_is_refused() -> None:
    status, told = failed("--port=0", "--host=nonsense.invalid")
    assert status == 2
    assert "nonsense.invalid" in told


def test_a_variable_has_several_hosts() -> None:
    with serve("--port=0", "--no-hub", PUBSUBD_HOST="127.0.0.2 ::1") as process:
        assert re.search(r" line=127\.0\.0\.2:(\d+),\[::1\]:\1\n", ready(process))
        assert end(process)[0] == 0


def test_without_anything_to_listen_on_it_is_refused() -> None:
    status, told = failed("--host=")
    assert status == 2
    assert "nothing to listen on" in told


@pytest.mark.parametrize(
    ("flags", "env", "there"),
    [
        (["--hub-port=0"], {"PUBSUBD_NO_HUB": "0"}, True),
        ([], {"PUBSUBD_NO_HUB": "0", "PUBSUBD_HUB_PORT": "0"}, True),
        (["--hub-port=0", "--no-hub"], {"PUBSUBD_NO_HUB": "0"}, False),
        (["--hub-port=0"], {"PUBSUBD_NO_HUB": "1"}, False),
    ],
)
def test_the_hub_port_is_there_unless_it_is_not_wanted(
    flags: list[str], env: dict[str, str], there: bool
) -> None:
    with serve("--port=0", *flags, **env) as process:
        assert (" hub=127.0.0.1:" in ready(process)) is there
        assert end(process)[0] == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file"), (b"short\n", "32 are the least"), (b"-----BEGIN X", "no public key")],
)
def test_a_key_that_cannot_be_used_is_refused(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    status, told = failed("--port=0", f"--hub-auth={path}")
    assert status == 2
    assert text in told


# Signals before the daemon's own handlers are there

EARLY = """
import os, signal, sys
sys.argv = ["pubsubd", "serve", "--port=0", "--hub-port=0"]
before = set(sys.modules)
import pubsubd.__main__ as entry
loaded = set(sys.modules) - before - set(sys.builtin_module_names)
assert loaded == {"pubsubd", "pubsubd.__main__"}, loaded
"""


def run_early(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", EARLY + code],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=DEADLINE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_is_being_imported_ends_it_with_status_0(number: int) -> None:
    done = run_early(f"os.kill(os.getpid(), {int(number)}); sys.exit(entry.main())")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_signal_just_before_the_daemon_takes_over_ends_it_with_status_0() -> None:
    done = run_early(
        "import trio; run = trio.run\n"
        "def late(*args, **kwargs):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return run(*args, **kwargs)\n"
        "trio.run = late\n"
        "sys.exit(entry.main())"
    )
    assert done.returncode == 0
    assert "event=stopped" in done.stderr


def test_a_second_early_signal_ends_it_at_once() -> None:
    done = run_early("os.kill(os.getpid(), 15); os.kill(os.getpid(), 15); os._exit(7)")
    assert done.returncode == -signal.SIGTERM


def test_other_commands_are_interrupted_as_usual() -> None:
    code = (
        "import signal, sys; sys.argv = ['pubsubd', 'sub', 'serve']; import pubsubd.__main__\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment(),
    )
    assert done.returncode == 0


def threads(process: subprocess.Popen[str]) -> int:
    return len(os.listdir(f"/proc/{process.pid}/task"))


def test_a_file_that_never_answers_keeps_neither_the_daemon_nor_a_thread_each(
    tmp_path: Path,
) -> None:
    users = tmp_path / "users"
    users.touch(mode=0o600)
    with serve("--port=0", "--users-file", str(users), "--auth=none") as process:
        port = int(ready(process).rpartition(":")[2])
        users.unlink()
        os.mkfifo(users, 0o600)
        before = threads(process)
        process.send_signal(signal.SIGHUP)
        held: list[int] = []

        def reads() -> bool:
            with contextlib.suppress(OSError):  # until there is a reader
                held.append(os.open(users, os.O_WRONLY | os.O_NONBLOCK))
            return bool(held)

        wait_until(reads, "the reload reads the file")
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
            with socket.create_connection(("127.0.0.1", port)) as tcp:
                tcp.sendall(b"pub //pubsubd/ping 1 x\n")
                assert tcp.recv(100) == b"pub //pubsubd/ping 1 x\n"
        assert threads(process) == before + 1
        status, rest = end(process)
        os.close(held[0])
    assert status == 0
    assert "event=stopped" in rest
    assert "reload" not in rest  # it would have failed if the end had waited for it


def test_a_second_signal_ends_a_drain_at_once() -> None:
    with serve("--port=0", "--drain-timeout=60") as process:
        port = int(ready(process).rpartition(":")[2])
        with socket.socket() as slow, socket.create_connection(("127.0.0.1", port)) as fast:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"sub x\npub //pubsubd/ping 0 \n")
            assert slow.recv(100)
            for _ in range(6):
                fast.sendall(b"pub x 1048576 " + bytes(1048576) + b"\n")
            fast.sendall(b"pub //pubsubd/ping 0 \n")
            assert fast.recv(100)
            assert process.stderr is not None
            process.terminate()
            assert "event=draining" in process.stderr.readline()
            status, told = end(process)
    assert status == 1
    assert "second signal" in told
    assert os.linesep not in told.rstrip("\n").rpartition("pubsubd: ")[2]
