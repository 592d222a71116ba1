"""A slow consumer at one worker: who waits for it at another one, and who does not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Thread

from tests.daemons import DEADLINE, KIB, MIB, PATIENT, Daemon, Dial, Line, Start, frame

FLAGS = (
    "--workers=2",
    f"--max-pending={MIB}",
    *PATIENT,
    f"--drain-timeout={DEADLINE}",
)
MANY = b"".join(frame(f"slow/{number}", b"%05d" % number * 3_000) for number in range(2_000))
"""More than all buffers on the way take."""

END = frame("//pubsubd/ping", b"end")


class Flood:
    """A publisher that sends much in a thread, and then pings.

    Attributes:
        line: its connection.
        sent: bytes so far.
        thread: where it sends.
    """

    def __init__(self, line: Line, data: bytes) -> None:
        self.line = line
        self.sent = 0
        self.thread = Thread(target=self._run, args=(data + END,), daemon=True)
        self.thread.start()

    def _run(self, data: bytes) -> None:
        for at in range(0, len(data), 64 * KIB):
            self.line.say(data[at : at + 64 * KIB])
            self.sent = at


def connect(daemon: Daemon, dial: Dial) -> tuple[Line, Line, Line, Line]:
    """Return a slow consumer and a publisher at another worker, and another pair of them."""
    slow = dial(daemon, buffer=4 * KIB)
    publisher, consumer, other = (dial(daemon) for _ in range(3))
    slow.say(b"sub slow/\n")
    consumer.say(b"sub quick/\n")
    for line in (slow, consumer, other, publisher):
        line.ping()
    return slow, publisher, consumer, other


def pass_until_still(flood: Flood, publisher: Line, consumer: Line) -> None:
    """Send messages to another consumer, one by one, until the flood has long stood still."""
    still, before = 0, -1
    while still < 300:
        still, before = (still + 1, before) if flood.sent == before else (0, flood.sent)
        said = frame("quick/", b"%d" % still)
        publisher.say(said)
        assert consumer.hear(len(said)) == said


def test_only_who_publishes_to_a_slow_consumer_at_another_worker_waits_for_it(
    start: Start, dial: Dial
) -> None:
    slow, publisher, consumer, other = connect(start(*FLAGS), dial)
    flood = Flood(publisher, MANY)
    pass_until_still(flood, other, consumer)
    assert flood.thread.is_alive()
    other.say(b"sub quick/\n")  # it is in force at the other worker, too, before the answer
    assert other.ping() == b""
    assert slow.hear(len(MANY)) == MANY
    assert publisher.hear(len(END)) == END


def test_what_was_kept_for_a_slow_consumer_is_delivered_before_the_daemon_ends(
    start: Start, dial: Dial
) -> None:
    daemon = start(*FLAGS)
    slow, publisher, consumer, other = connect(daemon, dial)
    data = MANY[: MANY.index(b"pub slow/250 ")]  # 3.75 MB
    flood = Flood(publisher, data)
    pass_until_still(flood, other, consumer)
    daemon.signal()
    assert slow.hear(len(data)) == data
    assert b"shutting-down" in slow.hear_end()
    assert publisher.hear_end().startswith(END)
    assert daemon.wait() == 0


def test_who_waits_for_a_consumer_of_a_worker_that_is_killed_goes_on(
    start: Start, dial: Dial
) -> None:
    daemon = start(*FLAGS)
    _slow, publisher, consumer, other = connect(daemon, dial)
    flood = Flood(publisher, MANY)
    pass_until_still(flood, other, consumer)
    assert flood.thread.is_alive()
    os.kill(worker_of(daemon, consumer), signal.SIGKILL)
    assert publisher.hear(len(END)) == END
    daemon.wait_log("event=worker-started")
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def worker_of(daemon: Daemon, line: Line) -> int:
    """Return the process that serves a connection."""
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text(encoding="ascii")
    port = b"%04X" % int(line.label.rpartition(":")[2])
    tables = Path("/proc/net/tcp").read_bytes().splitlines()
    (inode,) = (row.split()[9].decode() for row in tables if row.split()[2].endswith(b":" + port))
    for pid in map(int, text.split()):
        if any(
            os.readlink(one) == f"socket:[{inode}]"
            for one in Path(f"/proc/{pid}/fd").iterdir()
            if one.is_symlink()
        ):
            return pid
    raise AssertionError(port)
