"""Is what a fault has cost seen, and nothing else taken for that?"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest
import trio

from soaklib.faults.judging import wrong
from soaklib.faults.load import Round
from soaklib.faults.reloads import Reloads
from soaklib.faults.residents import Pub, Publisher, Seen, Sub, Subscriber
from soaklib.faults.wire import LostError, opened, wires
from soaklib.streams import SLOW_COPIED, mark
from soaklib.wires import KIB, Address, frame
from tests.daemons import DEADLINE

NOWHERE = Address(("127.0.0.1", 1))


# Streams


class Stream:
    """One stream and who hears it, without connections."""

    def __init__(self, place: int = 0) -> None:
        pub = Pub("s00", place, NOWHERE)
        self.publisher = Publisher(pub, lambda _what: None)
        self.subscriber = Subscriber(Sub("one", 0, NOWHERE), [pub], lambda _what: None)

    def come(self, *numbers: int) -> None:
        """Let messages come to the subscriber."""
        for number in numbers:
            data = frame(SLOW_COPIED + b"s00", mark("s00", number))
            self.subscriber.reader.feed(data)

    def look(self) -> list[Seen]:
        return self.subscriber.look({"s00": self.publisher})


def test_what_is_complete_is_nothing_to_tell_of() -> None:
    stream = Stream()
    stream.come(0, 1, 2)
    assert stream.look() == []


def test_a_message_that_is_missing_is_told_once() -> None:
    stream = Stream()
    stream.come(0, 1, 3)
    (seen,) = stream.look()
    assert (seen.lost, seen.doubled, seen.far) == (1, 0, False)
    stream.come(4)
    assert stream.look() == []


def test_one_that_comes_late_after_it_was_missed_is_not_taken_for_a_second_one() -> None:
    stream = Stream()
    stream.come(0, 2)
    stream.look()
    stream.come(1)
    (seen,) = stream.look()
    assert (seen.late, seen.doubled) == (1, 0)
    stream.come(1)
    (seen,) = stream.look()
    assert (seen.late, seen.doubled) == (0, 1)


def test_what_had_no_answer_when_its_publisher_broke_is_excused_and_no_more() -> None:
    stream = Stream()
    stream.publisher.done, stream.publisher.number = 2, 5
    stream.publisher.break_off()
    stream.come(0, 1, 5)
    assert stream.look() == []
    stream.come(7)
    (seen,) = stream.look()
    assert seen.lost == 1


def test_of_a_gap_the_part_that_had_an_answer_is_lost() -> None:
    stream = Stream()
    stream.publisher.done, stream.publisher.number = 3, 5
    stream.publisher.break_off()
    stream.come(0, 6)
    (seen,) = stream.look()
    assert (seen.lost, seen.samples[:2]) == (3, ["1..2 lost", "5..5 lost"])


def test_what_comes_while_a_subscriber_is_away_is_excused_once() -> None:
    stream = Stream()
    stream.come(0)
    stream.subscriber.break_off()
    stream.come(5, 6)
    assert stream.look() == []
    stream.come(8)
    (seen,) = stream.look()
    assert seen.lost == 1


# What is judged


@pytest.mark.parametrize(
    ("seen", "fired", "links", "good"),
    [
        (Round(), 1, 0, True),
        (Round(lost=["a"]), 1, 0, True),
        (Round(lost=["a", "b"]), 1, 0, True),
        (Round(lost=["a", "b"]), 1, 1, False),
        (Round(lost=["a"]), 0, 0, False),
        (Round(wrong=["a"]), 1, 0, False),
        (Round(wrong=["b waits for a"], lost=["a"]), 1, 0, True),
        (Round(stuck=["a"], lost=["a"]), 1, 0, False),
        (Round(shut=["line"], lost=["a"]), 1, 0, False),
        (Round(streams=[Seen("a", "s00", False, lost=1)]), 1, 1, False),
        (Round(streams=[Seen("a", "s00", True, lost=1)]), 1, 0, False),
        (Round(streams=[Seen("a", "s00", True, lost=1)]), 1, 1, True),
        (Round(streams=[Seen("a", "s00", True, doubled=1)]), 1, 1, False),
        (Round(streams=[Seen("a", "s00", True, late=1)]), 1, 0, True),
        (Round(streams=[Seen("a", "s00", False, late=1)]), 1, 1, False),
        (Round(["publisher s00: x"], streams=[Seen("a", "s00", False, late=1)]), 1, 0, True),
        (Round(["publisher s01: x"], streams=[Seen("a", "s00", False, late=1)]), 1, 0, False),
        (Round(streams=[Seen("a", "s00", True, changed=1)]), 1, 1, False),
    ],
)
def test_a_fault_may_cost_two_connections_and_what_was_under_way_on_a_link(
    seen: Round, fired: int, links: int, good: bool
) -> None:
    assert (wrong(seen, fired, links) == []) == good


# Connections


class Host:
    """A server that does with each connection what a test says."""

    def __init__(self, *does: Callable[[socket.socket], object]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(self._listener.getsockname())
        self._does = does
        self._socks: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for one in self._does:
            try:
                sock = self._listener.accept()[0]
            except OSError:  # a test has failed before
                return
            self._socks.append(sock)
            one(sock)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # nobody waits for who does not come
        self._thread.join()
        for sock in (*self._socks, self._listener):
            sock.close()


def say(data: bytes) -> Callable[[socket.socket], object]:
    return lambda sock: sock.sendall(data)


def say_and_close(data: bytes) -> Callable[[socket.socket], object]:
    def do(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.close()

    return do


FAULT = frame(b"//pubsubd/error", b"internal-error at x")


async def test_what_is_waited_for_is_heard_and_the_rest_is_kept() -> None:
    wires.set([])
    with Host(say(b"one two three\n")) as host:
        async with opened(host.address) as wire:
            assert await wire.hear(b"two") == b"one two"
            assert await wire.hear(b"\n") == b" three\n"


async def test_a_connection_that_ends_is_lost_with_the_reason_that_was_told() -> None:
    wires.set([])
    with Host(say_and_close(FAULT)) as host:
        async with opened(host.address) as wire:
            with pytest.raises(LostError, match="internal-error at x"):
                await wire.hear(b"never")


@pytest.mark.parametrize("doomed", [False, True])
async def test_who_waits_for_one_connection_notices_that_another_one_has_ended(
    doomed: bool,
) -> None:
    wires.set([])
    with Host(say_and_close(FAULT), say(b"")) as host:
        async with opened(host.address, doomed=doomed), opened(host.address) as wire:
            with (
                trio.move_on_after(1.0 if doomed else DEADLINE) as scope,
                contextlib.suppress(LostError),
            ):
                await wire.hear(b"never")
            assert scope.cancelled_caught == doomed


async def test_a_reason_is_found_behind_much_that_nobody_has_read() -> None:
    wires.set([])
    with Host(say_and_close(b"x" * 64 * KIB + FAULT), say(b"")) as host:
        async with opened(host.address) as unread, opened(host.address) as wire:
            with pytest.raises(LostError, match=r"internal-error at x; 127\.0\.0\.1:\d+ while"):
                await wire.hear(b"never")
            assert unread.hung_up


async def test_an_end_that_is_due_has_to_have_its_reason() -> None:
    wires.set([])
    with Host(say_and_close(FAULT), say_and_close(FAULT)) as host:
        async with opened(host.address) as wire:
            assert b"at x" in await wire.hear_end(b"slow-consumer", b"internal-error")
        async with opened(host.address) as wire:
            with pytest.raises(LostError, match="internal-error"):
                await wire.hear_end(b"slow-consumer")


async def test_who_is_not_there_is_lost() -> None:
    wires.set([])
    with pytest.raises(LostError, match="no connection"):
        async with opened(NOWHERE):
            pass


# Reloads


def test_a_process_is_told_to_reload_and_one_that_has_ended_is_no_longer() -> None:
    written: list[tuple[bool, bool, int]] = []
    reloads = Reloads(lambda *what: written.append(what), NOWHERE, "n0", "")
    with subprocess.Popen(["sleep", "60"]) as process:
        reloads.take(process.pid)
        reloads.tell(True, False, 7)
        assert process.wait(DEADLINE) == -signal.SIGHUP
    reloads.tell(False, False, 8)
    assert written == [(True, False, 7), (False, False, 8)]
