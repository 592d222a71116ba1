"""Consumers that are slow, pause, stop or die, and those beside them that must not notice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
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
    frame,
    frames,
    program,
    tool,
    wait_until,
)

END = frame("end", b"of the test")


def _listen(dial: Dial, daemon: Daemon, substring: str, buffer: int | None = None) -> Line:
    line = dial(daemon, buffer=buffer)
    line.say(f"sub {substring}\nsub end\n".encode())
    line.ping()
    return line


# Stopped ones


def test_100_stopped_subscribers_are_cut_with_a_reason_and_memory_is_bounded(
    start: Start, dial: Dial
) -> None:
    daemon = start("--stall-timeout", "2", "--stall-budget", str(DEADLINE))
    count, messages = 100, 40
    publisher, healthy, bystander = dial(daemon), _listen(dial, daemon, "big"), dial(daemon)
    watcher = dial(daemon)
    watcher.say(b"sub //pubsubd/events\n")
    watcher.ping()
    stopped = [_listen(dial, daemon, "big", buffer=64 * KIB) for _ in range(count)]
    before = daemon.memory()
    said = [frame("big", b"%08d" % n + b"m" * (MIB - 8)) for n in range(messages)]
    heard: list[bytes] = []

    def read() -> None:
        heard.extend(healthy.hear(len(said[0])) for _ in range(messages))

    with Background(read), Background(publisher.say, b"".join(said)):
        # Somebody who has nothing to do with all this is served meanwhile.
        wait_until(
            lambda: bystander.stats()["closed"].get("slow-consumer", 0) == count,
            "each stopped subscriber is cut",
        )
    assert heard == said, "a healthy subscriber lost something"
    assert publisher.ping() == b""

    # The messages that wait are shared, and so are counted once: max_pending of them, one
    # that is being read, and what the allocator keeps.
    assert daemon.peak() - before < 64 * MIB
    wait_until(lambda: bystander.stats()["connections"] == 4, "the stopped ones are gone")
    told = {json.loads(watcher.hear_frame()[1])["peer"] for _ in range(count)}
    assert told == {line.label for line in stopped}
    log = daemon.wait_log(" event=closed ", count).splitlines()
    for line in stopped:
        [event] = [event for event in log if f"peer={line.label} " in event]
        assert "event=closed" in event
        assert "reason=slow-consumer" in event
    assert bystander.stats()["closed"] == {"slow-consumer": count}


def test_the_others_do_not_wait_for_each_of_many_stopped_subscribers_in_turn(
    start: Start, dial: Dial
) -> None:
    # 2 s of patience with each, one after the other, would be longer than this test waits.
    daemon = start("--stall-timeout", "2", "--stall-budget", "60", "--max-pending", "256KiB")
    publisher, healthy = dial(daemon), _listen(dial, daemon, "big")
    for _ in range(40):
        _listen(dial, daemon, "big", buffer=4 * KIB)
    said = frame("big", b"m" * 64 * KIB)
    with Background(publisher.say, said * 100 + END):
        assert healthy.hear_until(END) == said * 100 + END
    assert publisher.stats()["closed"] == {"slow-consumer": 40}


def test_a_stopped_nc_is_told_why_it_is_cut_once_it_goes_on(daemon: Daemon, dial: Dial) -> None:
    publisher = dial(daemon)
    host, port = daemon.address
    with program(tool("nc"), "-I", str(64 * KIB), host, str(port)) as nc:
        assert nc.stdin is not None
        assert nc.stdout is not None
        nc.stdin.write(b"sub big\n")
        nc.stdin.flush()
        wait_until(lambda: publisher.stats()["subscriptions"] == 1, "nc has subscribed")
        nc.stdin.close()  # without -N this is not told to the daemon, but lets nc end
        nc.send_signal(signal.SIGSTOP)
        published = 0
        try:
            said = frame("big", b"m" * (256 * KIB - 20))

            def cut() -> bool:
                nonlocal published
                publisher.say(said)
                published += 1
                return bool(publisher.stats()["errors"].get("slow-consumer"))

            wait_until(cut, "nc is cut")
        finally:
            nc.send_signal(signal.SIGCONT)
        heard = nc.stdout.read()
        # Whole frames to the end, and then the reason.
        *messages, last = frames(heard)
        assert {data for _, data in messages} == {b"m" * (256 * KIB - 20)}
        assert last[0] == "//pubsubd/error"
        assert last[1].startswith(b"slow-consumer ")
        # The 8 MiB that were waiting are thrown away: nobody has to read them for the reason.
        assert len(messages) <= published - 8 * 4
        assert nc.wait(DEADLINE) == 0


@pytest.mark.parametrize("policy", ["disconnect", "drop"])
def test_the_other_policies_do_what_they_say(start: Start, dial: Dial, policy: str) -> None:
    daemon = start("--slow-consumer", policy, "--max-pending", "1MiB")
    publisher, slow = dial(daemon), _listen(dial, daemon, "big", buffer=4 * KIB)
    said = frame("big", b"m" * (64 * KIB))
    for _ in range(200):
        publisher.say(said)
        publisher.ping()
    stats = publisher.stats()
    if policy == "disconnect":
        assert stats["errors"] == {"slow-consumer": 1}
        assert stats["dropped"] == 0
        assert slow.hear_end().startswith(said)
    else:
        assert stats["errors"] == stats["closed"] == {}
        assert stats["dropped"] > 0
        # It stays, gets whole frames only, and gets all again once it has caught up.
        heard = slow.hear((200 - stats["dropped"]) * len(said))
        assert heard == said * (200 - stats["dropped"])
        assert slow.ping() == b""
        publisher.say(said + END)
        assert slow.hear_until(END) == said + END


# Healthy ones


def test_a_burst_a_drain_and_a_later_burst_do_not_cut_a_healthy_subscriber(
    start: Start, dial: Dial
) -> None:
    daemon = start(*PATIENT)
    publisher, listener = dial(daemon), _listen(dial, daemon, "big")
    said = frame("big", b"m" * (64 * KIB - 18)) * 16 * 16  # 16 MiB: twice what may wait
    for _ in range(5):
        with Background(publisher.say, said + END):
            assert listener.hear_until(END) == said + END
        assert publisher.stats()["backlog_bytes"] == 0
    stats = publisher.stats()
    assert stats["errors"] == stats["closed"] == {}
    assert stats["messages_in"] == 5 * (256 + 1)


class _Flood:
    """Pre-built messages, said over and over until it is told to stop."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._blob = b"".join(frame("flood", b"%04d" % n + b"f" * 8192) for n in range(256))
        self.size = len(self._blob)
        self.over = threading.Event()
        self.turns = 0

    def run(self) -> None:
        while not self.over.is_set():
            self._line.say(self._blob)
            self.turns += 1
        self._line.say(END)

    def hear_turn(self, listener: Line) -> None:
        assert listener.hear(self.size) == self._blob


def test_a_subscriber_that_pauses_during_a_flood_holds_it_up_and_loses_nothing(
    start: Start, dial: Dial
) -> None:
    # A patience so long that a slow machine does not matter; the pause ends by what is seen.
    daemon = start(*PATIENT)
    publisher, control = dial(daemon), dial(daemon)
    listener, other = _listen(dial, daemon, "flood"), dial(daemon)
    flood = _Flood(publisher)
    with Background(flood.run):
        for _ in range(3):
            for _ in range(4):
                flood.hear_turn(listener)
            wait_until(
                lambda: control.stats()["backlog_bytes"] > 4 * MIB, "the backlog is half full"
            )
            assert other.ping() == b"", "others are served while the flood is held up"
            assert control.stats()["backlog_bytes"] < 8 * MIB
        flood.over.set()
        heard = listener.hear_until(END)
    assert len(heard) == (flood.turns - 12) * flood.size + len(END)
    stats = control.stats()
    assert stats["errors"] == stats["closed"] == {}


def test_a_pattern_of_short_pauses_is_not_cut_while_the_budget_lasts(
    start: Start, dial: Dial
) -> None:
    daemon = start("--stall-timeout", "10", "--stall-budget", str(DEADLINE))
    publisher, listener = dial(daemon), _listen(dial, daemon, "flood", buffer=16 * KIB)
    flood = _Flood(publisher)
    with Background(flood.run):
        for _ in range(20):
            flood.hear_turn(listener)  # 2 MiB a turn through a buffer of 16 KiB: slow, but alive
        flood.over.set()
        heard = listener.hear_until(END)
    assert len(heard) == (flood.turns - 20) * flood.size + len(END)


# A gibibyte


def _check_stream(line: Line, expected: bytes, turns: int) -> None:
    """Compare what comes with ``expected``, ``turns`` times over, without keeping it."""
    view = memoryview(expected)
    buffer = memoryview(bytearray(MIB))
    size = len(expected)
    at, left = 0, size * turns
    while left:
        count = line.sock.recv_into(buffer, min(MIB, left))
        assert count, f"the stream ends {left} bytes early"
        left -= count
        done = 0
        while done < count:
            step = min(count - done, size - at)
            assert buffer[done : done + step] == view[at : at + step], "not what was sent"
            done += step
            at = (at + step) % size


@pytest.mark.parametrize("how", ["pubsubd pub", "nc"])
def test_a_long_stream_reaches_a_healthy_reader_and_memory_stays_flat(
    start: Start, dial: Dial, tmp_path: Path, how: str
) -> None:
    daemon = start(*PATIENT)
    total = 128 * MIB  # four times what memory may grow by
    chunk = 64 * KIB
    piece = b"".join(bytes([n]) * (chunk - 4) + b"\npub" for n in range(256))  # 16 MiB
    turns = total // len(piece)
    stream = b"".join(frame("big", piece[at : at + chunk]) for at in range(0, len(piece), chunk))
    source = tmp_path / "piece"
    if how == "nc":
        source.write_bytes(stream)
        host, port = daemon.address
        command = f"{tool('nc')} -N {host} {port}"
    else:
        source.write_bytes(piece)
        command = f"{sys.executable} -m pubsubd pub --port {daemon.address[1]} --chunk {chunk} big"
    listener = dial(daemon)
    listener.say(b"sub big\n")
    listener.ping()
    before = daemon.memory()
    feed = f"for n in $(seq {turns}); do cat {source}; done | {command}"
    with program("/bin/sh", "-c", feed, stdin=None) as sender:
        _check_stream(listener, stream, turns)
        assert sender.wait(DEADLINE) == 0
    stats = listener.stats()
    assert stats["messages_in"] == total // chunk
    assert stats["errors"] == {}
    # max_pending is what may wait for a reader that is a little behind.
    assert daemon.peak() - before < 32 * MIB


def test_a_file_sent_with_pub_and_received_with_sub_is_the_same(
    daemon: Daemon, dial: Dial, tmp_path: Path
) -> None:
    control = dial(daemon)
    sent, received = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(random.Random(1).randbytes(MIB - 1) + b"\n")
    pubsubd = [sys.executable, "-m", "pubsubd"]
    port = ["--port", str(daemon.address[1])]
    with (
        received.open("wb") as file,
        program(
            *pubsubd, "sub", *port, "file", "--count", "1", "--format", "raw", stdout=file
        ) as reader,
    ):
        wait_until(lambda: control.stats()["subscriptions"] == 1, "sub has subscribed")
        with program(*pubsubd, "pub", *port, "file/a", "--file", str(sent)) as writer:
            assert writer.wait(DEADLINE) == 0
        assert reader.wait(DEADLINE) == 0
    subprocess.run(["cmp", str(sent), str(received)], check=True, timeout=DEADLINE)


def test_a_file_sent_with_nc_is_the_same(daemon: Daemon, dial: Dial, tmp_path: Path) -> None:
    listener = dial(daemon)
    listener.say(b"sub file\n")
    listener.ping()
    sent = tmp_path / "sent"
    sent.write_bytes(random.Random(2).randbytes(700_000) + b"\npub x 1 a\n")
    host, port = daemon.address
    script = (
        f'{{ printf "pub file/a %d " $(wc -c <{sent}); cat {sent}; echo; }}'
        f" | {tool('nc')} -N {host} {port}"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, timeout=DEADLINE, check=True
    )
    assert done.stdout == b""
    assert listener.hear_frame() == ("file/a", sent.read_bytes())
