"""How many frames in a row get the same receivers, told without a lookup of each, without I/O.

Strategy: names that come once, with a number or an id in them, mostly have one width, and their
data one length. Such frames are rows of a table. Where a substring that is subscribed stands in
the first name, its columns have to be the same in all; the others may stand in none of them. So
a frame costs some 30 ns instead of a lookup, and nothing is remembered for it. Where widths and
lengths vary, a regular expression that is made for this set of substrings takes 0.3 µs for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

from pubsubd.protocol.limits import MAX_DIGITS

Match = Callable[[bytes, int], re.Match[bytes] | None]

_WIDEST = 128  # bytes of a header: each is a column
_ROWS = 64  # looked at first
_MOST_ROWS = 1_024
_GROWTH = 4
_LONGEST = 128  # bytes of a name that is matched
_MOST = 8_192  # rows in all: a fraction of a millisecond
_SLOW = 0.000_5  # seconds of looking, then no more: a substring may nearly match everywhere


def count_alike(
    buf: bytes,
    at: int,
    key: bytes,
    length: int,
    substrings: Iterable[bytes],
    clock: Callable[[], float] = perf_counter,
) -> int:
    """Return how many frames in a row are like one that begins with ``key``, LF and its header.

    Their names are legal, have its name's width and contain the same substrings, and none begins
    with a slash; the digits are the same. That an LF ends the last one is not looked at. More than
    some thousands are not counted.

    Args:
        buf: what was read.
        at: where the first of them would begin: its LF.
        key: a legal header with an ASCII name, and the LF before it.
        length: bytes of such a frame.
        substrings: all that are subscribed; nothing else decides who gets a name.
        clock: seconds.
    """
    gap, width = key.index(b" ", 5), len(key)
    name, across = key[5:gap], gap - 4  # a name and the LF that ends it
    if width > _WIDEST:
        return 0
    equal, absent = {*range(5), *range(gap, width)}, []
    for substring in substrings:
        place = name.find(substring)
        if place < 0:
            absent.append(substring)
        else:
            equal.update(range(5 + place, 5 + place + len(substring)))
    done, rows, until = 0, _ROWS, clock() + _SLOW
    while True:
        base = at + done * length
        count = min(rows, (len(buf) - base) // length)
        for i in equal:
            column, byte = buf[base + i : base + count * length : length], key[i : i + 1]
            if column != byte * count:
                count -= len(column.lstrip(byte))
        names = bytearray(b"\n") * (count * across)
        for i in range(5, gap):
            names[i - 5 :: across] = buf[base + i : base + count * length : length]
        if (
            not names.isascii()
            or b" " in names
            or b"\r" in names
            or names.count(b"\n") != count
            or names.startswith(b"/")
            or b"\n/" in names
            or any(substring in names for substring in absent)
        ):
            return done
        done += count
        if count < rows or done >= _MOST or clock() > until:
            return done
        rows = min(_GROWTH * rows, _MOST_ROWS)


def matcher(name: bytes, substrings: Iterable[bytes]) -> Match:
    """Return what matches LF and a header whose ASCII name contains those that ``name`` does.

    And no others of ``substrings``; group 1 is the digits. Names that begin with a slash do not
    match, nor do long ones: what looks for a substring may take as many steps as both have bytes,
    and what has no space may go on to the end of what was read.
    """
    one = rb"[^ \r\n\x80-\xff]"
    looks = b"".join(
        b"(?%b%b{0,%d}?%b)"
        % (b"=" if substring in name else b"!", one, _LONGEST, re.escape(substring))
        for substring in substrings
    )
    form = rb"\npub (?!/)%b%b{1,%d} ([0-9]{1,%d}) "
    return re.compile(form % (looks, one, _LONGEST, MAX_DIGITS)).match


def count_matching(
    buf: bytes, at: int, match: Match, sizes: Mapping[bytes, int], largest: int, most: int
) -> tuple[int, int]:
    """Return how many whole frames from ``at`` on match, without the last one, and where that is.

    Args:
        buf: what was read.
        at: where the first of them would begin: its LF.
        match: made by :func:`matcher`.
        sizes: digits -> what they say.
        largest: bytes of data in each of them.
        most: how many are looked at.
    """
    count, before = -1, at
    found = match(buf, at)
    while found is not None and count < most:
        size = sizes[found[1]]
        if size > largest:
            break
        count += 1
        before, at = at, found.end() + size
        found = match(buf, at)
    return max(count, 0), before
