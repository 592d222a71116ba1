"""What the daemon and systemd say to each other, by a real socket and systemd's own programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pubsubd.daemon.systemd import Notifier, take_sockets
from pubsubd.protocol.errors import ConfigError
from tests.daemons import (
    DEADLINE,
    ROOT,
    Daemon,
    Line,
    environment,
    error_codes,
    frame,
    free_port,
    tool,
    wait_until,
)
from tests.packages import run

Start = Callable[..., Daemon]


class Manager:
    """A service manager: a datagram socket, and what came to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + address[1:] if address[0] == "@" else address)
        self.sock.settimeout(DEADLINE)

    def hear(self, wanted: str) -> dict[str, str]:
        """Return the next message that has ``wanted``; others are skipped."""
        while wanted not in (pairs := self.hear_any()):
            pass
        return pairs

    def hear_any(self) -> dict[str, str]:
        """Return the next message."""
        return dict(line.split("=", 1) for line in self.sock.recv(4096).decode().splitlines())

    def all_so_far(self) -> list[str]:
        """Return the messages that are here."""
        self.sock.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.sock.recv(4096).decode())
        except BlockingIOError:
            self.sock.settimeout(DEADLINE)
            return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A service manager."""
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"@pubsubd-test-{os.getpid()}"
    made = Manager(address)
    yield made
    made.sock.close()


def test_it_tells_when_it_is_ready_reloads_and_ends(
    manager: Manager, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    (tmp_path / "file.toml").write_text("")
    workers = "2" if manager.address[0] == "@" else "1"
    daemon = start(f"--config={tmp_path / 'file.toml'}", "--workers", workers)
    manager.hear("READY")
    line = Line(daemon.address)
    line.ping()
    assert "connections" in manager.hear("STATUS")["STATUS"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    daemon.signal(signal.SIGHUP)
    reloading = manager.hear("RELOADING")
    assert before <= int(reloading["MONOTONIC_USEC"])
    assert int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.hear("READY")
    daemon.signal()
    manager.hear("STOPPING")
    line.hear_end()
    line.close()
    assert daemon.wait() == 0
    assert not any("WATCHDOG" in one for one in manager.all_so_far())  # nobody has asked for it


def test_a_reload_that_fails_is_over_as_well(
    manager: Manager, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    path = tmp_path / "file.toml"
    path.write_text("")
    daemon = start(f"--config={path}")
    manager.hear("READY")
    path.write_text("nothing\n")
    daemon.signal(signal.SIGHUP)
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    manager.hear("RELOADING")
    # Once it is over, the status says so: what is told next is that it is over.
    told = [manager.hear_any(), manager.hear_any()]
    status = told[0]["STATUS"]
    assert status.startswith(
        f"settings in force are older than {path} since {changed:%Y-%m-%d %H:%M:%S} UTC:"
        " a reload has failed, see the log; 0 connections, "
    )
    assert "READY" in told[1]
    path.write_text("max_payload = 5\n")
    daemon.signal(signal.SIGHUP)
    manager.hear("RELOADING")
    assert manager.hear_any()["STATUS"].startswith("0 connections, ")
    daemon.signal()
    assert daemon.wait() == 0
    assert "event=reload-failed" in daemon.log
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_the_status_of_a_daemon_of_several_workers_tells_of_a_reload_when_it_is_over(
    manager: Manager, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    path = tmp_path / "file.toml"
    path.write_text("")
    daemon = start(f"--config={path}", "--workers=2")
    for text, failed in (("nothing\n", True), ("max_payload = 5\n", False)):
        path.write_text(text)
        daemon.signal(signal.SIGHUP)
        manager.hear("RELOADING")
        told = manager.hear_any()["STATUS"]
        assert ("a reload has failed, see the log" in told) == failed
        assert "2 of 2 workers, 0 connections" in told
        assert "READY" in manager.hear_any()
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def reload_as_systemd(daemon: Daemon, path: Path) -> subprocess.CompletedProcess[str]:
    """Run what the unit for systemd 252 runs at a reload: one after the other, until one fails."""
    install = ROOT / "scripts" / "install"
    unit = run("bash", "-c", 'source "$1" && render_service 252 /usr/bin/pubsubd', "-", install)
    commands = [line.partition("=")[2] for line in unit.splitlines() if "ExecReload=" in line[:11]]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("/etc/pubsubd/pubsubd.toml", str(path)))
        if words[0] == "/usr/bin/pubsubd":
            words[:1] = [sys.executable, "-m", "pubsubd"]
        done = subprocess.run(
            words,
            env=environment() | {"MAINPID": str(daemon.pid)},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        if done.returncode:
            break
    return done


def test_a_reload_of_the_service_fails_with_the_reason_if_the_daemon_would_refuse_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    path = tmp_path / "file.toml"
    path.write_text("")
    daemon = start(f"--config={path}")
    for text, said in (
        ("max_payload = 'much'\n", f"{path}, line 1: max_payload: 'much' is not bytes"),
        ("tls_certificate = '/none.pem'\n", "cannot read /none.pem: No such file"),
        ("node = 'other'\n", "a change that needs a restart: node"),
    ):
        path.write_text(text)
        done = reload_as_systemd(daemon, path)
        assert done.returncode == 2
        assert said in done.stderr.splitlines()[-1]
    # Whoever checks by hand may be about to restart it.
    words = [sys.executable, "-m", "pubsubd", "serve", "--check", f"--config={path}"]
    told = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    assert told.stderr == (
        "Warning: a reload of the running daemon will be refused: a change that needs a restart:"
        " node\n"
    )
    assert "event=reload" not in daemon.log
    path.write_text(f"max_payload = 5\nport = {free_port()}\n")  # flags go before the port
    assert reload_as_systemd(daemon, path).returncode == 0
    assert "event=reloaded" in daemon.wait_log("event=reload")


def test_the_watchdog_hears_of_the_loop_and_of_nothing_else(
    manager: Manager, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    daemon = start()
    for _ in range(5):
        manager.hear("WATCHDOG")
    daemon.signal(signal.SIGSTOP)
    wait_until(lambda: _state(daemon) == "T", "the daemon stops")
    manager.all_so_far()
    manager.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        manager.sock.recv(4096)
    daemon.signal(signal.SIGCONT)
    manager.sock.settimeout(DEADLINE)
    manager.hear("WATCHDOG")


def _state(daemon: Daemon) -> str:
    return Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("address", ["", "nothing", "/none/socket", "@nobody", "/dev/null", "@"])
def test_a_manager_that_is_not_there_changes_nothing(
    address: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    line = Line(start().address)
    line.ping()
    line.close()


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    notifier = Notifier({"NOTIFY_SOCKET": manager.address})
    for number in range(10_000):
        notifier.status(f"{number}")
    notifier.close()
    assert len(manager.all_so_far()) < 10_000
    manager.sock.close()


@pytest.mark.parametrize(
    ("more", "watchdog"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_this_process_and_for_good_numbers(
    more: dict[str, str], watchdog: float | None
) -> None:
    given = {"NOTIFY_SOCKET": "/run/x", **more}
    assert Notifier(given).watchdog == watchdog
    assert given == {}


# Sockets


@pytest.fixture
def activated(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Run ``serve`` by systemd-socket-activate, which listens and starts it at the first call."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(names: str, addresses: list[str], *flags: str) -> subprocess.Popen[bytes]:
        command = [tool("systemd-socket-activate"), f"--fdname={names}"]
        command += [f"--listen={address}" for address in addresses]
        command += [sys.executable, "-m", "pubsubd", "serve", *flags]
        env = environment()
        command[1:1] = [f"--setenv={name}={env[name]}" for name in ("PATH", "PYTHONPATH")]
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(command, env=env, stderr=log, stdin=subprocess.DEVNULL)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.terminate()
        try:
            process.wait(DEADLINE)
        finally:
            process.kill()


def connect(address: int | str) -> Line:
    """Connect to a port or a path, once somebody listens: a path is there before that."""
    found: list[Line] = []

    def connected() -> bool:
        try:
            found.append(Line(address if isinstance(address, str) else ("127.0.0.1", address)))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True

    wait_until(connected, f"somebody listens on {address}")
    return found[0]


def wait_ready(log: Path) -> str:
    """Return a log once it says that the daemon is ready: a thread writes it."""
    wait_until(lambda: re.search(r"event=ready .*\n", log.read_text()), "the daemon is ready")
    return log.read_text()


def test_sockets_are_taken_by_their_names(
    activated: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    line_port, hub_port = free_port(), free_port()
    flags = ("--port=1", f"--hub-port={hub_port}")
    activated("hub:line", [f"127.0.0.1:{hub_port}", f"127.0.0.1:{line_port}"], *flags)
    hub = connect(hub_port)
    hub.say(b'{"command":"pubsub.stats","request_id":"1"}\n')
    assert b'"success":true' in hub.hear_until(b"\n")
    line = connect(line_port)
    line.ping()
    for one in (hub, line):
        one.close()
    log = wait_ready(tmp_path / "log")
    assert f"line=127.0.0.1:{line_port} hub=127.0.0.1:{hub_port}" in log
    (warning,) = [line for line in log.splitlines() if "event=settings-warning" in line]
    assert "port has no effect on the listener line: systemd passes a socket for" in warning


def test_a_socket_for_both_families_is_told_as_both_and_ipv4_is_plain(
    activated: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    port = free_port()
    activated("line", [f"[::]:{port}"], "--insecure", "--no-hub")
    line = connect(port)
    line.say(b"sub a\n" + frame("//pubsubd/explain", b"a"))
    _, answer = line.hear_frame()
    assert json.loads(answer)["receivers"][0]["peer"] == line.label
    line.close()
    log = wait_ready(tmp_path / "log")
    assert f"families=ipv4,ipv6 line=0.0.0.0:{port},[::]:{port}\n" in log


def test_a_unix_socket_of_the_manager_is_taken_and_left(
    activated: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    process = activated("unix", [str(path)], f"--unix={path}", "--port=0", "--hub-port=0")
    line = connect(str(path))
    line.ping()
    line.close()
    process.terminate()
    assert process.wait(DEADLINE) == 0
    assert path.exists()


def test_a_socket_that_no_listener_is_for_is_an_error(
    activated: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    port = free_port()
    process = activated("other", [f"127.0.0.1:{port}"])
    connect(port).close()
    assert process.wait(DEADLINE) == 2
    assert "a socket named 'other'" in (tmp_path / "log").read_text()


def test_while_the_daemon_is_restarted_nobody_is_refused_and_no_subscription_is_lost(
    tmp_path: Path,
) -> None:
    # The manager keeps the socket: here this process, which hands it over twice.
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    port = listener.getsockname()[1]

    def serve() -> subprocess.Popen[bytes]:
        code = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3);"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='line');"
            "os.execv(sys.executable, [sys.executable, '-m', 'pubsubd', 'serve', '--no-hub'])"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, str(listener.fileno())],
            env=environment(),
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )

    first = serve()
    reader = connect(port)
    reader.say(b"sub a\n")
    reader.ping()
    first.terminate()
    assert error_codes(reader.hear_end()) == ["shutting-down"]
    waiting = [Line(("127.0.0.1", port)) for _ in range(20)]  # some perhaps before it has ended
    assert first.wait(DEADLINE) == 0
    waiting += [Line(("127.0.0.1", port)) for _ in range(20)]
    for one in waiting:
        one.say(b"sub a\n")
    second = serve()
    try:
        for one in waiting:
            one.ping()
        waiting[0].say(frame("a", b"x"))
        for one in waiting:
            assert one.hear_frame() == ("a", b"x")
            one.close()
    finally:
        second.terminate()
        assert second.wait(DEADLINE) == 0
        listener.close()
        reader.close()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "many", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_sockets_for_others_are_not_touched(given: dict[str, str]) -> None:
    assert take_sockets(given) == {}


def test_a_descriptor_that_is_no_listening_socket_is_an_error() -> None:
    code = (
        "import os; from pubsubd.daemon.systemd import take_sockets\n"
        "from pubsubd.protocol.errors import ConfigError\n"
        "for kind in ('file', 'datagram', 'connected', 'none'):\n"
        "    import socket\n"
        "    pair = socket.socketpair()\n"
        "    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    null = os.open('/dev/null', os.O_RDONLY)\n"
        "    source = {'file': null, 'datagram': sock.fileno(), 'connected': pair[0].fileno()}\n"
        "    if kind == 'none': os.close(3)\n"
        "    else: os.dup2(source[kind], 3)\n"
        "    try: take_sockets({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})\n"
        "    except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.open('/dev/null', os.O_RDONLY)\n" + code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 4, done
    assert ConfigError.__name__ not in done.stderr
