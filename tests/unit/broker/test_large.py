"""Large frames: what is copied of them, where reads end, and that nothing else is different."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pubsubd.access.rules import Permission
from pubsubd.broker.peer import Peer
from pubsubd.broker.publish_filter import PublishFilter
from pubsubd.broker.turn import Turn
from pubsubd.protocol.limits import KIB, LARGE, READ_SIZE, TURN, Limits
from pubsubd.routing.outbox import Pieces
from tests.tables import Table

FRAME = b"pub n 65536 " + b"x" * 64 * KIB + b"\n"
SIZE = len(FRAME)


class Sent:
    """A publisher, and what one subscriber was sent, as it was."""

    def __init__(self) -> None:
        self.table = Table("pub", "a")
        self.peer: Peer = self.table.peers["pub"]
        self.chunks: list[bytes | Pieces] = []
        self.table.peers["a"].send = self.chunks.append
        self.table.say("a", b"sub n\n")

    def pieces(self) -> list[bytes]:
        """Return the parts of what was sent since the last call."""
        parts: list[bytes] = []
        for chunk in self.chunks:
            assert isinstance(chunk, Pieces)
            parts += chunk.parts
        self.chunks.clear()
        return parts


def test_a_read_of_whole_large_frames_is_sent_as_it_came() -> None:
    sent = Sent()
    sent.table.say("pub", data := 4 * FRAME)
    (part,) = sent.pieces()
    assert part is data
    assert sent.table.peers["a"].messages_out == 4
    assert sent.table.broker.counters.messages_in == 4


def test_of_a_frame_that_is_cut_only_the_beginning_is_copied() -> None:
    sent = Sent()
    sent.table.say("pub", data := 3 * FRAME + FRAME[:1000])
    (part,) = sent.pieces()
    assert isinstance(part, memoryview)
    assert part.obj is data
    assert len(part) == 3 * SIZE
    sent.table.say("pub", rest := FRAME[1000:] + FRAME)
    begun, whole = sent.pieces()
    assert begun == FRAME[:1000]
    assert whole is rest
    assert sent.table.peers["a"].messages_out == 5


def test_while_large_frames_come_reads_end_where_one_of_them_does() -> None:
    sent = Sent()
    assert sent.peer.wanted == READ_SIZE
    sent.table.say("pub", (3 * FRAME + FRAME)[:READ_SIZE])
    missing = 4 * SIZE - READ_SIZE
    assert sent.peer.wanted == missing + 8 * SIZE
    sent.table.say("pub", FRAME[-missing:] + FRAME)
    assert sent.peer.wanted == 8 * SIZE
    sent.table.say("pub", b"pub n 1 x\n")
    assert sent.peer.wanted == READ_SIZE


def test_a_frame_that_the_hot_loop_meets_is_not_copied_from_its_second_read_on() -> None:
    sent = Sent()
    sent.table.say("pub", b"pub n 1 x\n" + FRAME[:1000])
    assert sent.peer.wanted == SIZE - 1000 + 8 * SIZE
    sent.chunks.clear()
    sent.table.say("pub", rest := FRAME[1000:] + 2 * FRAME)
    assert sent.pieces()[-1] is rest


def test_those_who_render_messages_get_large_ones_by_the_clock_too() -> None:
    sent = Sent()
    for name in "bc":
        sent.table.join(name)
        sent.table.say(name, b"sub n\n")
    for name in "ac":  # two, as receivers come in any order
        sent.table.peers[name].render = lambda data: not sent.chunks.append(data)
    sent.table.broker.delivery.turn = Turn(itertools.count(0.0, 2 * TURN).__next__)
    sent.table.broker.receive(sent.peer, FRAME)
    delivery = sent.table.broker.delivery
    assert delivery.unsent  # what is left is for further turns
    delivery.turn = Turn(clock=lambda: 0.0)
    delivery.send_some()
    assert not delivery.unsent
    assert sent.table.hears("b") == FRAME
    assert set(sent.chunks) == {FRAME}


def test_what_may_not_be_published_is_refused_once_for_each_frame() -> None:
    sent = Sent()
    rights = Permission(publish=["other"])
    sent.peer.publish_filter = PublishFilter(sent.table.broker.router, rights)
    sent.table.say("pub", 3 * FRAME)
    assert not sent.chunks
    assert sent.table.broker.counters.errors["not-allowed"] == 3


TOO_LARGE = b"pub n %d " % (64 * KIB + 1) + b"t" * (64 * KIB + 1) + b"\n"

frames = st.sampled_from(
    [
        b"pub n %d " % LARGE + b"n" * LARGE + b"\n",
        b"pub n %d " % LARGE + b"m" * LARGE + b"\n",
        b"pub other %d " % LARGE + b"o" * LARGE + b"\n",
        b"pub n %d " % LARGE + b"r" * LARGE + b"\r\n",
        b"pub n 40000 " + b"f" * 40_000 + b"\n",
        b"pub n 3 abc\n",
        b"sub n\n",
        TOO_LARGE,
    ]
)


@given(
    st.lists(frames, max_size=12),
    st.lists(st.integers(0, 400_000), max_size=6).map(sorted),
    st.booleans(),
)
def test_large_frames_arrive_as_they_are_however_they_are_cut(
    spoken: list[bytes], cuts: list[int], echo: bool
) -> None:
    table = Table("pub", "a", limits=Limits(max_payload=64 * KIB))
    table.peers["pub"].echo = echo
    table.say("a", b"sub\n")
    said = b"".join(spoken)
    for start, stop in zip([0, *cuts], [*cuts, len(said)], strict=True):
        if said[start:stop]:
            table.say("pub", said[start:stop])
    legal = spoken[: spoken.index(TOO_LARGE)] if TOO_LARGE in spoken else spoken
    due = [frame.replace(b"\r\n", b"\n") for frame in legal if frame.startswith(b"pub")]
    assert table.hears("a") == b"".join(due)
    assert table.broker.counters.messages_in == len(due)
    assert (table.peers["pub"].ending is not None) == (TOO_LARGE in spoken)
    subscribed = legal.index(b"sub n\n") if b"sub n\n" in legal else len(legal)
    back = [one.replace(b"\r\n", b"\n") for one in legal[subscribed:] if one.startswith(b"pub n")]
    heard = table.hears("pub")
    assert heard.startswith(b"".join(back) if echo else b"")
    assert echo or b"pub n" not in heard
