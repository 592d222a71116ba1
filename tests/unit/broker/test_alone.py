"""Messages that come alone: passed on as they came, and only where nothing else is to be done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pubsubd.access.rules import Permission
from pubsubd.broker.alone import MOST
from pubsubd.broker.publish_filter import PublishFilter
from pubsubd.routing.outbox import Pieces
from tests.tables import Table

MESSAGE = b"pub n 3 abc\n"


class Sent:
    """A publisher whose last header is known, and what one subscriber is sent, as it is."""

    def __init__(self) -> None:
        self.table = Table("pub", "a")
        self.peer = self.table.peers["pub"]
        self.chunks: list[bytes | Pieces] = []
        self.table.peers["a"].send = self.chunks.append
        self.table.say("a", b"sub n\n")
        for _ in range(2):  # it is learned first, and its width is known then
            self.table.say("pub", MESSAGE)
        self.chunks.clear()


def test_a_message_that_comes_alone_is_sent_as_it_came() -> None:
    sent = Sent()
    for data in (MESSAGE, b"pub n 3 xyz\n"):
        sent.table.say("pub", data)
        (chunk,) = sent.chunks
        assert chunk is data
        sent.chunks.clear()
    counters = sent.table.broker.counters
    assert (counters.messages_in, counters.messages_out) == (4, 4)
    assert sent.table.peers["a"].messages_out == 4
    assert counters.bytes_in == len(b"sub n\n") + 4 * len(MESSAGE)


def begin(sent: Sent) -> None:
    sent.table.say("pub", b"p")
    assert sent.peer.halfway
    sent.table.say("pub", MESSAGE[1:-1])


def crowd(sent: Sent) -> None:
    for number in range(9):
        sent.table.join(f"more{number}")
        sent.table.say(f"more{number}", b"sub n\n")
    for _ in range(2):
        sent.table.say("pub", MESSAGE)
    sent.chunks.clear()


def do_nothing(_sent: Sent) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "data"),
    [
        (begin, b"\n"),
        (crowd, MESSAGE),
        (do_nothing, 2 * MESSAGE),
        (do_nothing, MESSAGE + b"pub"),
        (do_nothing, b"pub n 3 abc\r\n"),
        (do_nothing, b"pub n 03 abc\n"),
        (do_nothing, b"pub n %d %b\n" % (MOST, bytes(MOST))),
    ],
)
def test_what_does_not_come_alone_is_looked_through(
    prepare: Callable[[Sent], None], data: bytes
) -> None:
    sent = Sent()
    prepare(sent)
    sent.table.say("pub", data)
    assert sent.chunks
    assert not any(chunk is data for chunk in sent.chunks)


def test_data_that_looks_like_a_message_is_none() -> None:
    sent = Sent()
    sent.table.say("pub", b"pub m %d " % len(MESSAGE))
    sent.table.say("pub", MESSAGE)
    sent.table.say("pub", b"\n")
    assert sent.chunks == []
    sent.table.say("pub", MESSAGE)
    assert sent.chunks == [MESSAGE]


def test_a_wrong_length_of_a_known_header_is_told() -> None:
    sent = Sent()
    sent.table.say("pub", b"pub n 3 abcd")
    assert sent.chunks == []
    assert sent.table.messages("pub") == [("error", "wrong-length")]


def test_who_does_not_get_its_own_messages_gets_none_that_comes_alone() -> None:
    sent = Sent()
    sent.table.say("pub", b"sub n\n")
    for _ in range(2):
        sent.table.say("pub", MESSAGE)
    assert sent.table.hears("pub") == 2 * MESSAGE
    sent.peer.echo = False
    sent.table.say("pub", MESSAGE)
    assert sent.table.hears("pub") == b""
    assert len(sent.chunks) == 3


def test_a_receiver_that_fails_is_alone_in_that() -> None:
    table, ended = Table("pub", "a", "b"), []

    def fail(_data: bytes | Pieces) -> None:
        raise RuntimeError("broken")

    table.say("a", b"sub n\n")
    table.say("b", b"sub n\n")
    for _ in range(2):
        table.say("pub", MESSAGE)
    table.hears("b")
    table.peers["a"].send = fail
    table.peers["a"].end = lambda code, _text: ended.append(code)
    table.say("pub", MESSAGE)
    assert ended == ["internal-error"]
    assert table.hears("b") == MESSAGE


def test_what_comes_alone_is_refused_to_one_who_may_not_publish_it() -> None:
    sent = Sent()
    sent.peer.publish_filter = PublishFilter(
        sent.table.broker.router, Permission(publish=["other"])
    )
    sent.table.say("pub", MESSAGE)
    assert sent.chunks == []
    assert sent.table.messages("pub") == [("error", "not-allowed")]
