"""Frames that get the same receivers, told by columns, against looking at each of them."""

from __future__ import annotations

import re
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsubd.protocol.wire import Sizes
from pubsubd.routing.columns import count_alike, count_matching, matcher
from tests.examples import examples

NAMES = (b"n0001", b"n0002", b"n1001", b"x0001", b"a7/n1", b"n7/a7")
OTHERS = (b"n 001", b"n\r001", b"n\n001", b"\xc3\xa9001", b"/0001", b"//001", b"n01", b"n00001")
SUBSTRINGS = (b"", b"n", b"0", b"7/", b"1", b"7", b"n0001", b"zz", b"1n")


def wants(name: bytes, substrings: tuple[bytes, ...]) -> set[bytes]:
    return {one for one in substrings if one in name}


def count_one_by_one(
    buf: bytes, at: int, key: bytes, length: int, substrings: tuple[bytes, ...]
) -> int:
    form = re.compile(rb"\npub ([^ \r\n/\x80-\xff][^ \r\n\x80-\xff]*) 2 ")
    name = key.split(b" ")[1]
    count = 0
    while at + length <= len(buf):
        match = form.match(buf, at, at + len(key))
        if match is None or len(match[1]) != len(name):
            break
        if wants(match[1], substrings) != wants(name, substrings):
            break
        count, at = count + 1, at + length
    return count


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES[:3] * 3 + NAMES + OTHERS),
            st.sampled_from([b"2", b"2", b"2", b"3"]),
            st.sampled_from([1, 1, 1, 70, 300]),
        ),
        max_size=4,
    ),
    st.lists(st.sampled_from(SUBSTRINGS), min_size=1, max_size=3, unique=True).map(tuple),
    st.integers(0, 30),
)
@example([(b"n1001", b"2", 700)], (b"n",), 0)
def test_as_many_are_counted_as_one_by_one_or_fewer(
    said: list[tuple[bytes, bytes, int]], substrings: tuple[bytes, ...], cut: int
) -> None:
    key = b"\npub n0001 2 "
    first = key + b"\xff\n"
    buf = first + b"".join(b"\npub %b %b \n\n" % (name, digits) * n for name, digits, n in said)
    buf = buf[: len(buf) - min(cut, len(buf) - len(first))]
    at = length = len(first)
    counted = count_alike(buf, at, key, length, substrings)
    right = count_one_by_one(buf, at, key, length, substrings)
    assert counted <= right
    places = {tuple(name.find(one) for one in substrings) for name, _, _ in said}
    if right == (len(buf) - at) // length and places <= {tuple(map(b"n0001".find, substrings))}:
        assert counted == right


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 320, 1_400, 8_000])
def test_all_rows_are_counted(rows: int) -> None:
    buf = b"".join(b"\npub n%05d 2 x%b" % (i, b"\n" if i % 2 else b" ") for i in range(rows + 1))
    key, length = b"\npub n00000 2 ", len(buf) // (rows + 1)
    count = partial(count_alike, clock=lambda: 0.0)
    assert count(buf, length, key, length, [b"n", b"zz"]) == rows
    assert count(buf, length, key, length, [b"zz"]) == rows
    assert count(buf, length, key, length, [b""]) == rows
    assert count(buf[:-1], length, key, length, [b"n"]) == rows - 1


def test_no_more_rows_are_looked_at_once_that_has_taken_long() -> None:
    buf = b"".join(b"\npub n%05d 2 xx" % i for i in range(8_000))
    key, length = b"\npub n00000 2 ", len(buf) // 8_000
    seconds = count()
    looked = count_alike(buf, 0, key, length, [b"n"], lambda: float(next(seconds)))
    assert 0 < looked < 100
    assert next(seconds) == 2


def test_what_looks_for_a_substring_ends_within_a_name_that_may_match() -> None:
    match: Any = matcher(b"n0001", [b"n", b"zz"])
    pattern = match.__self__.pattern
    assert b"*" not in pattern
    assert not re.search(rb"\+|\{[0-9]*,\}", pattern)
    assert not match(b"\npub " + b"n" * 10_000)
    assert match(b"\npub " + b"n" * 128 + b" 1 ")


def test_what_differs_ends_them() -> None:
    names = [b"n%05d" % i for i in range(1_000)]
    buf = b"".join(b"\npub %b 1 x" % name for name in names)
    key, length = b"\npub n00000 1 ", len(buf) // 1_000
    assert count_alike(buf, length, key, length, [b"n000"]) == 99
    assert count_alike(buf, length, key, length, [b"n", b"500"]) < 500
    assert count_alike(buf, 499 * length, key, length, [b"n", b"500"]) == 0
    assert count_alike(buf, 501 * length, key, length, [b"n", b"500"]) == 499


def test_wide_headers_are_left_to_others() -> None:
    key = b"\npub %b 1 " % (b"n" * 200)
    assert count_alike((key + b"x") * 90, 0, key, len(key) + 1, [b"n"]) == 0


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES * 3 + OTHERS[1:]), st.integers(0, 12), st.booleans()),
        max_size=20,
    ),
    st.lists(st.sampled_from((*SUBSTRINGS, b"n.")), min_size=1, max_size=3, unique=True),
    st.integers(0, 30),
    st.sampled_from([3, 1_000]),
)
def test_frames_of_any_length_are_counted_as_long_as_they_contain_the_same(
    said: list[tuple[bytes, int, bool]], substrings: list[bytes], cut: int, most: int
) -> None:
    frames = [
        b"\npub %b %d %b" % (name, size, (b"\n" if odd else b"x") * size)
        for name, size, odd in said
    ]
    whole = b"".join(frames)
    buf = whole[: len(whole) - min(cut, len(whole))]
    match = matcher(b"n0001", substrings)
    counted, at = count_matching(buf, 0, match, Sizes(), 10, most)
    right, stop = 0, 0
    legal = re.compile(rb"[^ \r\n/\x80-\xff][^ \r\n\x80-\xff]*")
    told = tuple(substrings)
    for (name, size, _), frame in zip(said, frames, strict=True):
        header = stop + len(frame) - size
        if not legal.fullmatch(name) or wants(name, told) != wants(b"n0001", told):
            break
        if size > 10 or header > len(buf) or right > most:
            break
        right, stop = right + 1, stop + len(frame)
    last = len(frames[right - 1]) if right else 0
    assert (counted, at) == (max(right - 1, 0), stop - last)
