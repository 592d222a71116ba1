"""Thinning of a day: the rows that its hours need, and no others."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pubsubd.mesh.edges import format_row
from pubsubd.mesh.thinning import thin
from tests.rows import row


def listed(hour: int, minute: int, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a list."""
    return [one | {"ts": f"2026-11-28T{hour:02d}:{minute:02d}:00.000Z"} for one in rows]


def up(dst: str, since: str = "2026-11-01T00:00:00.000Z") -> dict[str, Any]:
    return row(dst=dst, since=since)


def down(dst: str, since: str) -> dict[str, Any]:
    return row(dst=dst, since=since, state="down", rtt_ms=None)


def kept(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    lines = thin(map(format_row, rows))
    assert set(lines) <= set(map(format_row, rows))  # as they were exported
    return sorted((one["ts"][11:16], one["dst"], one["state"]) for one in map(json.loads, lines))


def test_an_hour_ends_with_all_that_was_there_and_begins_when_it_began() -> None:
    rows = [
        one
        for hour in (5, 6)
        for minute in (0, 20, 40)
        for one in listed(hour, minute, up("b"), up("c"))
    ]
    assert kept(rows) == [
        ("05:00", "b", "up"),  # the first hour of a day has the counters that it began with
        ("05:00", "c", "up"),
        ("05:40", "b", "up"),
        ("05:40", "c", "up"),
        ("06:00", "b", "up"),
        ("06:40", "b", "up"),
        ("06:40", "c", "up"),
    ]


def test_sessions_begin_and_end_with_the_same_rows() -> None:
    new = "2026-11-28T06:31:00.000Z"
    rows = [
        *listed(5, 50, up("b"), up("c")),
        *listed(6, 0, up("b"), up("c")),
        *listed(6, 20, up("b"), up("c")),
        *listed(6, 25, up("b")),
        *listed(6, 40, up("b"), up("c", new), down("c", "2026-11-28T06:22:00.000Z")),
        *listed(6, 50, up("b"), up("c", new), down("c", "2026-11-28T06:22:00.000Z")),
        *listed(6, 59, up("b"), up("c", new), down("c", "2026-11-28T06:22:00.000Z")),
    ]
    assert [one for one in kept(rows) if one[0] >= "06:00"] == [
        ("06:00", "b", "up"),
        ("06:20", "c", "up"),
        ("06:40", "c", "down"),
        ("06:40", "c", "up"),
        ("06:59", "b", "up"),
        ("06:59", "c", "down"),
        ("06:59", "c", "up"),
    ]


def test_what_ended_long_ago_is_left_out() -> None:
    rows = listed(
        6, 0, up("b"), down("c", "2026-11-27T04:59:59.999Z"), down("d", "2026-11-27T05:00:00.000Z")
    )
    assert kept(rows) == [("06:00", "b", "up"), ("06:00", "d", "down")]


def test_a_daemon_that_has_no_link_any_more_is_not_forgotten() -> None:
    old = [down("c", "2026-11-20T05:00:00.000Z"), down("d", "2026-11-21T05:00:00.000Z")]
    rows = [one for minute in (0, 20, 40) for one in listed(6, minute, *old)]
    assert kept(rows) == [("06:00", "d", "down"), ("06:40", "d", "down")]


def test_lines_that_are_no_rows_are_left_out() -> None:
    good = format_row(row())
    assert thin([b"{}\n", b"[1]\n", b"nonsense\n", good, b'{"ts": "\xff"}\n', b"\n"]) == [good]


times = st.integers(0, 23).flatmap(lambda h: st.tuples(st.just(h), st.integers(0, 59)))


@given(
    st.dictionaries(
        times,
        st.sets(st.sampled_from([(dst, since) for dst in "bcd" for since in range(3)]), min_size=1),
        min_size=1,
        max_size=40,
    )
)
def test_each_hour_has_the_same_end_and_each_session_the_same_ends(
    lists: dict[tuple[int, int], set[tuple[str, int]]],
) -> None:
    rows = [
        one
        for (hour, minute), links in sorted(lists.items())
        for dst, since in sorted(links)
        for one in listed(hour, minute, up(dst, f"2026-11-01T0{since}:00:00.000Z"))
    ]
    thinned = [json.loads(line) for line in thin(map(format_row, rows))]

    before, after = tell(rows), tell(thinned)
    assert after.keys() == before.keys()
    for hour, spells in before.items():
        began = min(first for first, _ in spells.values())
        assert min(first for first, _ in after[hour].values()) == began
        assert after[hour].keys() == spells.keys()
        for key, (first, last) in spells.items():
            assert after[hour][key][1] == last
            if first > began:  # else it was there before
                assert after[hour][key][0] == first
    assert len(thinned) == len({json.dumps(one) for one in thinned})


def tell(rows: list[dict[str, Any]]) -> dict[str, dict[tuple[str, str], tuple[str, str]]]:
    """Return the first and last time of each session in each hour."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in rows:
        spells = found.setdefault(one["ts"][:13], {})
        spells.setdefault((one["dst"], one["since"]), []).append(one["ts"])
    return {
        hour: {key: (min(times), max(times)) for key, times in spells.items()}
        for hour, spells in found.items()
    }
