"""The daemon's own end, at any moment: status 0, and everything it had received is delivered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemons import (
    DEADLINE,
    KIB,
    MIB,
    PATIENT,
    Background,
    Daemon,
    Dial,
    Line,
    Start,
    environment,
    error_codes,
    frame,
    frames,
    wait_until,
)

SAID = b"".join(frame("log", b"%08d" % n + b"l" * (8 * KIB - 8)) for n in range(3000))


def _fill(daemon: Daemon, dial: Dial, buffer: int) -> tuple[Line, Line]:
    """Return a reader for which all that was said waits in the daemon, and its publisher."""
    reader, publisher = dial(daemon, buffer=buffer), dial(daemon)
    reader.say(b"sub log\n")
    reader.ping()
    publisher.say(SAID)
    publisher.ping()
    return reader, publisher


def _hear_slowly(line: Line, pause: float) -> bytes:
    """Read 16 KiB at a time with a pause of so many seconds after each, up to the end."""
    parts = []
    while part := line.sock.recv(16 * KIB):
        parts.append(part)
        time.sleep(pause)
    return b"".join(parts)


def _check_all_delivered(heard: bytes) -> None:
    assert heard.startswith(SAID), f"{len(heard)} bytes of {len(SAID)}"
    assert error_codes(heard[len(SAID) :]) == ["shutting-down"]


@pytest.mark.parametrize(
    ("number", "pause"), [(signal.SIGTERM, 0.002), (signal.SIGINT, 0)], ids=["SIGTERM", "SIGINT"]
)
def test_what_is_queued_to_a_slow_reader_is_all_delivered_before_the_end(
    start: Start, dial: Dial, number: signal.Signals, pause: float
) -> None:
    # The whole of it waits in the daemon: nobody reads before the signal. Reading takes longer
    # than a connection that is being cut may linger (2 s).
    daemon = start("--max-pending", "64MiB", "--drain-timeout", str(DEADLINE))
    reader, publisher = _fill(daemon, dial, 64 * KIB)
    assert publisher.stats()["backlog_bytes"] > 16 * MIB
    daemon.signal(number)
    daemon.wait_log("event=draining")
    _check_all_delivered(_hear_slowly(reader, pause))
    assert error_codes(publisher.hear_end()) == ["shutting-down"]
    reader.close()
    publisher.close()
    assert daemon.wait() == 0


def test_what_a_throttled_publisher_had_sent_is_all_delivered_to_a_slow_reader(
    start: Start, dial: Dial
) -> None:
    # With the default bound of what may wait: the rest is still in the publisher's socket, or
    # has not left it.
    daemon = start("--drain-timeout", str(DEADLINE), *PATIENT)
    reader, publisher, control = dial(daemon, buffer=64 * KIB), dial(daemon), dial(daemon)
    reader.say(b"sub log\n")
    reader.ping()
    heard: list[bytes] = []

    def read() -> None:
        heard.append(_hear_slowly(reader, 0.0003))

    with Background(publisher.say, SAID) as said:
        wait_until(lambda: control.stats()["backlog_bytes"] > 2 * MIB, "there is a backlog")
        daemon.signal()
        with Background(read):
            said.join()
            publisher.shut()
    _check_all_delivered(heard[0])
    for line in (reader, publisher, control):
        line.close()
    assert daemon.wait() == 0
    assert "slow-consumer" not in daemon.log


def test_commands_received_before_the_signal_are_carried_out(daemon: Daemon, dial: Dial) -> None:
    reader, publisher = dial(daemon), dial(daemon)
    reader.say(b"sub log\n")
    reader.ping()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:  # all of this is in the daemon's sockets before it sees the signal
        publisher.say(b"pub log 1 a\npub log 1 b\nbogus\npub log 5 hal")
        late = dial(daemon)
        late.say(b"pub log 1 c\n")
        daemon.signal()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    heard = reader.hear_end()
    assert sorted(data for name, data in frames(heard) if name == "log") == [b"a", b"b", b"c"]
    assert error_codes(heard) == ["shutting-down"]
    assert error_codes(publisher.hear_end()) == ["unknown-command", "shutting-down"]
    assert error_codes(late.hear_end()) == ["shutting-down"]
    for line in (reader, publisher, late):
        line.close()
    assert daemon.wait() == 0
    assert not daemon.ports_file.exists()


def test_nobody_is_let_in_any_more_while_it_drains(start: Start, dial: Dial) -> None:
    daemon = start("--max-pending", "64MiB", "--drain-timeout", str(DEADLINE))
    reader, publisher = _fill(daemon, dial, 4 * KIB)
    daemon.signal()

    def refused() -> bool:
        try:
            Line(daemon.address).close()
        except ConnectionError:
            return True
        return False

    wait_until(refused, "connections are refused")
    _check_all_delivered(reader.hear_end())
    reader.close()
    publisher.close()
    assert daemon.wait() == 0


def test_one_that_drains_leaves_the_socket_and_the_ports_file_of_its_successor(
    start: Start, dial: Dial, tmp_path: Path
) -> None:
    path, ports = tmp_path / "socket", tmp_path / "ports"
    daemon = start("--unix", str(path), "--max-pending", "64MiB", "--drain-timeout", str(DEADLINE))
    daemon.ports_file.rename(ports)  # as another one would write it there
    daemon.ports_file.write_text("of its successor")
    reader, publisher = _fill(daemon, dial, 4 * KIB)
    daemon.signal()
    daemon.wait_log("event=draining")
    successor = start("--unix", str(path))
    _check_all_delivered(reader.hear_end())
    reader.close()
    publisher.close()
    assert daemon.wait() == 0
    assert path.is_socket()
    assert daemon.ports_file.read_text() == "of its successor"
    successor.stop()
    assert not path.exists()
    assert not successor.ports_file.exists()


def test_a_second_signal_ends_it_at_once(start: Start, dial: Dial) -> None:
    daemon = start("--max-pending", "64MiB", "--drain-timeout", "100000")
    _fill(daemon, dial, 4 * KIB)
    daemon.signal()
    daemon.wait_log("event=draining")
    assert daemon.process.poll() is None
    daemon.signal()
    assert daemon.wait() == 1
    *events, last = daemon.log.splitlines()
    assert last == "pubsubd: ended by a second signal; what had not been delivered is lost"
    daemon.log_file.write_text("\n".join(events) + "\n", encoding="utf-8")  # the rest is checked


def test_a_reader_that_has_stopped_holds_the_end_up_for_the_drain_timeout_only(
    start: Start, dial: Dial
) -> None:
    daemon = start("--max-pending", "64MiB", "--drain-timeout", "0.3")
    _reader, publisher = _fill(daemon, dial, 4 * KIB)
    daemon.signal()
    assert error_codes(publisher.hear_end()) == ["shutting-down"]
    assert daemon.wait() == 0


def test_idle_connections_and_listeners_do_not_hold_the_end_up(start: Start, dial: Dial) -> None:
    daemon = start("--drain-timeout", "100000")
    lines = [dial(daemon) for _ in range(50)]
    for line in lines:
        line.say(b"sub x\n")
        line.ping()
        line.say(b"pub y 5 ha")
    lines[0].shut()
    daemon.signal()
    for line in lines:
        assert error_codes(line.hear_end()) == ["shutting-down"]
        line.close()
    assert daemon.wait() == 0


# Before it is ready


def _catches(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.parametrize("delay", [0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2])
def test_sigterm_at_any_moment_of_its_start_ends_it_with_status_0(
    start: Start, delay: float
) -> None:
    # From the first moment that a program can do something about it: before Python runs any
    # line of ours, the signal's effect is the kernel's.
    daemon = start(fresh=True, wait=False)
    wait_until(lambda: _catches(daemon.pid, signal.SIGTERM), "SIGTERM is caught")
    time.sleep(delay)  # not to wait for something, but to hit different moments
    daemon.signal()
    assert daemon.wait() == 0
    assert not daemon.ports_file.exists()


def test_signals_are_caught_before_anything_is_imported_that_takes_time() -> None:
    look = (
        "import sys; sys.argv[1:] = ['serve']; before = set(sys.modules)\n"
        "import pubsubd.__main__, signal\n"
        "assert callable(signal.getsignal(signal.SIGTERM)), 'not caught'\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    command = [sys.executable, "-c", look]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    # enum and what it needs come with signal, which this look itself imports.
    assert not {"trio", "click", "rich", "socket", "ssl", "json", "logging"} & set(
        done.stdout.split()
    )


def test_sigint_while_it_starts_ends_it_with_status_0_as_well(start: Start) -> None:
    daemon = start(fresh=True, wait=False)
    wait_until(lambda: _catches(daemon.pid, signal.SIGTERM), "signals are caught")
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0


def test_a_port_that_is_taken_is_one_clear_line(daemon: Daemon, start: Start) -> None:
    second = start("--port", str(daemon.address[1]), wait=False)
    assert second.wait() == 1
    assert second.log.count("\n") == 1
    assert str(daemon.address[1]) in second.log
    second.log_file.write_text("", encoding="utf-8")  # it is no event, and rightly so
