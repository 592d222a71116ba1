"""What workers keep of their counters, in memory that outlasts them."""

from __future__ import annotations

import pytest

from pubsubd.siblings.kept import ROOM, Kept


def test_what_a_worker_has_kept_last_is_read_until_it_keeps_more():
    kept = Kept(3)
    assert [kept.last(number) for number in range(3)] == [b"", b"", b""]
    for text in (b"first", b"second, which is longer", b"3"):
        kept.keep(1, text)
        assert [kept.last(number) for number in range(3)] == [b"", text, b""]
    kept.keep(2, bytes(ROOM))
    kept.keep(2, bytes(ROOM + 1))  # has no room
    assert (kept.last(1), kept.last(2)) == (b"3", bytes(ROOM))


def test_a_worker_that_is_killed_while_it_writes_leaves_what_it_kept_before():
    class Longer(bytes):
        """Cannot be written, as it is longer than it says."""

        def __len__(self) -> int:
            return 3

    kept = Kept(1)
    kept.keep(0, b"before")
    kept.keep(0, b"whole")
    with pytest.raises((IndexError, ValueError)):
        kept.keep(0, Longer(b"torn"))
    assert kept.last(0) == b"whole"


def test_who_does_not_answer_is_stood_in_for_by_what_it_kept():
    kept = Kept(4)
    for number in (0, 1, 2):
        kept.keep(number, b"kept %d" % number)
    assert kept.fill({2: b"answered"}, own=0) == {1: b"kept 1", 2: b"answered"}
