"""The log of a daemon whose reader has stopped."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubsubd.cli import line_writer
from pubsubd.cli.line_writer import LineWriter, write_in_time
from pubsubd.cli.logs import start_log
from tests.daemons import DEADLINE, Background, Daemon, Line, wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that takes no more, with the number of bytes in it unknown to who writes."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4_096)
    os.write(writer, b"." * 4_096)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def read_line(reader: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(reader, 1)
    return line


def tell_lost(count: int) -> bytes:
    return b"lost %d\n" % count


def test_what_the_reader_does_not_take_waits_and_the_rest_is_counted(
    pipe: tuple[int, int],
) -> None:
    reader, descriptor = pipe
    writer = LineWriter(descriptor, tell_lost, room=1_000)
    lines = [b"%04d" % number + b"x" * 95 + b"\n" for number in range(100)]
    writer.put(lines[0])
    wait_until(lambda: not writer.waiting, "the first line is being written")
    for line in lines[1:]:
        writer.put(line)
    writer.close(0.01)
    os.read(reader, 4_096)
    told = [read_line(reader) for _ in range(12)]
    assert told == [*lines[:11], b"lost 89\n"]
    assert writer.lost == 89
    writer.put(b"again\n")
    assert read_line(reader) == b"again\n"
    writer.close(DEADLINE)


def test_what_cannot_be_written_is_counted_until_it_can(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(descriptor, tell_lost)
    for _ in range(5):
        writer.put(b"x\n")
    writer.close(DEADLINE)
    good = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(good, descriptor)  # as if there were room again
    writer.put(b"again\n")
    writer.close(DEADLINE)
    text = (tmp_path / "log").read_text()
    os.close(good)
    os.close(descriptor)
    assert text == "lost 5\nagain\n"
    assert writer.lost == 5


def test_a_fault_while_lines_are_written_is_told_as_one_that_is_lost_and_the_log_goes_on(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all, failed = line_writer.write_all, threading.Event()

    def fail_once(descriptor: int, data: bytes) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("on purpose")
        write_all(descriptor, data)

    monkeypatch.setattr(line_writer, "write_all", fail_once)
    reader, descriptor = pipe
    os.read(reader, 4_096)
    writer = LineWriter(descriptor, tell_lost)
    writer.put(b"a\n")
    assert failed.wait(DEADLINE)
    writer.put(b"b\n")
    assert sorted(read_line(reader) for _ in range(2)) == [b"b\n", b"lost 1\n"]
    writer.close(DEADLINE)


def test_a_descriptor_that_another_program_has_made_non_blocking_is_waited_for(
    pipe: tuple[int, int],
) -> None:
    reader, descriptor = pipe
    os.set_blocking(descriptor, False)
    with Background(write_in_time, descriptor, b"x" * 10_000 + b"\n", DEADLINE):
        os.read(reader, 4_096)
        assert read_line(reader) == b"x" * 10_000 + b"\n"


def test_the_loss_is_an_event_of_the_log(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, descriptor = pipe
    log = logging.getLogger("pubsubd")
    before, propagate, level = log.handlers[:], log.propagate, log.level
    try:
        with os.fdopen(descriptor, "w", closefd=False) as stderr:
            monkeypatch.setattr(sys, "stderr", stderr)
            writer = start_log("info", "text")
        writer.room = 200
        log.warning("event=one")
        wait_until(lambda: not writer.waiting, "the first line is being written")
        for number in range(20):
            log.warning("event=more number=%d", number)
        os.read(reader, 4_096)
        line = b""
        while b"log-dropped" not in line:
            line = read_line(reader)
        writer.close(DEADLINE)
    finally:
        log.handlers[:], log.propagate = before, propagate
        log.setLevel(level)
    form = rb"time=[-0-9T:.]+Z level=warning event=log-dropped lines=\d+\n"
    assert re.fullmatch(form, line)


def test_a_daemon_whose_log_nobody_reads_serves_and_ends(
    pipe: tuple[int, int], start: Callable[..., Daemon], dial: Callable[..., Line]
) -> None:
    daemon = start("--log-level=debug", stderr=pipe[1])
    watch = dial(daemon)
    for _ in range(150):
        wrong = dial(daemon)
        wrong.say(b"GET / HTTP/1.1\r\n")
        assert b"http-request" in wrong.hear_end()
        wrong.close()
    assert watch.ping() == b""
    daemon.signal()
    assert daemon.wait() == 0


def test_an_error_that_nobody_reads_does_not_keep_a_daemon_from_ending(
    pipe: tuple[int, int],
) -> None:
    command = [sys.executable, "-m", "pubsubd", "serve", "--port", "x"]
    done = subprocess.run(command, stderr=pipe[1], timeout=DEADLINE, check=False)
    assert done.returncode == 2
