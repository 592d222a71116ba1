"""The backlog of one peer."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from pubsubd.protocol.wire import Decoder, end_of_frame, frame
from pubsubd.routing.outbox import Outbox
from tests.footprint import reached

frames = st.builds(
    frame, st.sampled_from([b"a", b"name"]), st.sampled_from([b"", b"x", b"y" * 900, b"z" * 9_000])
)
chunks = st.lists(frames, min_size=1, max_size=20).map(b"".join)


def test_who_has_no_backlog_takes_next_to_no_memory_for_it() -> None:
    tracemalloc.start()
    try:
        kept = [Outbox() for _ in range(1_000)]
        assert tracemalloc.get_traced_memory()[0] < 200 * len(kept)
    finally:
        tracemalloc.stop()


@given(st.data())
def test_what_is_put_is_sent_in_order_however_little_is_taken_at_once(data: st.DataObject) -> None:
    outbox = Outbox()
    put = sent = b""
    for chunk in data.draw(st.lists(chunks, min_size=1, max_size=12)):
        already = data.draw(st.integers(0, len(chunk) - 1)) if not outbox.size else 0
        put += chunk
        sent += chunk[:already]
        outbox.put(chunk, already)
        for share in data.draw(st.lists(st.floats(0, 1), max_size=3)):
            head = bytes(outbox.head())
            taken = round(len(head) * share)
            if taken:
                sent += head[:taken]
                outbox.sent(taken)
        assert outbox.size == len(put) - len(sent)
    while outbox.size:
        head = bytes(outbox.head())
        sent += head
        outbox.sent(len(head))
    assert sent == put
    assert outbox.head() == b""


@given(st.lists(chunks, min_size=1, max_size=6), st.floats(0, 1))
def test_after_a_cut_a_reader_finds_whole_frames_and_then_the_reason(
    backlog: list[bytes], share: float
) -> None:
    outbox = Outbox()
    for chunk in backlog:
        outbox.put(chunk)
    head = bytes(outbox.head())
    read = head[: round((len(head) - 1) * share)]
    if read:
        outbox.sent(len(read))
    outbox.cut(end_of_frame)
    assert outbox.size <= 9_100  # the rest of one frame at most
    outbox.put(b"pub reason 0 \n")
    while outbox.size:
        head = bytes(outbox.head())
        read += head
        outbox.sent(len(head))
    messages = Decoder(10_000).feed(read)
    assert messages.pop() == (b"reason", b"")
    assert (
        b"".join(frame(*message) for message in messages)
        == b"".join(backlog)[: len(read) - len(b"pub reason 0 \n")]
    )


def test_a_chunk_that_many_wait_for_is_one_object_in_all_their_outboxes() -> None:
    chunk = frame(b"a", b"x" * 100_000)
    first, second = Outbox(), Outbox()
    for outbox in (first, second):
        outbox.put(chunk)
        outbox.put(chunk)
    assert first.head() is second.head() or first.head() == second.head()
    big = frame(b"a", b"x" * 300_000)
    outboxes = [Outbox() for _ in range(3)]
    for outbox in outboxes:
        outbox.put(big)
    assert all(outbox.head() is big for outbox in outboxes)


def test_a_hundred_thousand_small_frames_do_not_become_as_many_objects() -> None:
    outbox = Outbox()
    for _ in range(100_000):
        outbox.put(b"pub a 1 x\n")
    assert len(list(reached(outbox))) < 1_000
    assert outbox.size == 1_000_000
