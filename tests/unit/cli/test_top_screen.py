"""What ``pubsubd top`` makes of the daemon's messages, and what it draws of that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from pubsubd.cli.live_state import LiveState
from pubsubd.cli.top_screen import Frame, draw
from pubsubd.cli.top_views import VIEWS, Choice
from pubsubd.protocol.errors import PubsubdError

TOTALS = {"version": "1.2", "since": 900.0, "connections": 3, "messages_in_rate": 12345.6}
HOSTILE = "\x1b[31m\x9b[red]\n\u202e"


def connection(number: int, **more: Any) -> dict[str, Any]:
    return {
        "connection": number,
        "user": None,
        "peer": f"10.0.0.{number}:4000",
        "listener": "line",
        "transport": "line",
        "dialect": "line",
        "node": None,
        "subscriptions": 1,
        "messages_in_rate": 0.0,
        "messages_out_rate": 0.0,
        "bytes_in_rate": 0.0,
        "bytes_out_rate": 0.0,
        "backlog_bytes": 0,
        "dropped": 0,
        "since": 940.0,
    } | more


def told(number: int, message: dict[str, Any]) -> bytes:
    return json.dumps({"n": number, "at": 1_000.0, "interval": 1.0} | message).encode()


def after(*messages: dict[str, Any]) -> LiveState:
    state = LiveState()
    for number, message in enumerate(messages, 1):
        state.take(told(number, message))
    return state


def lines(state: LiveState, view: str, width: int, height: int, **more: Any) -> list[str]:
    """Return what is drawn on a terminal of this size."""
    console = Console(width=width, height=height, force_terminal=True, no_color=True)
    choice = more.pop("choice", Choice())
    picture = draw(Frame("h:9014", state, VIEWS[view], choice, **more), width, height)
    drawn = console.render_lines(picture, console.options.update(height=None))
    return ["".join(part.text for part in line).rstrip() for line in drawn]


def rows(*some: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"connections": {"count": 9, "matching": len(some), "rows": list(some)} | more}


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 50), (20, 6)])
@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("more", [{}, {"help": True}, {"prompt": "y/n"}, {"status": "x" * 99}])
def test_a_picture_fills_the_terminal_and_no_more(
    size: tuple[int, int], view: str, more: dict[str, Any]
) -> None:
    many = rows(*(connection(number) for number in range(1, 60)))
    events = [{"id": i, "at": 5.0, "event": "closed", "detail": "d" * 300} for i in range(60)]
    names = [{"name": "n" * 300 + str(i), "rate": 1.0, "error": 0.5} for i in range(60)]
    state = after({"totals": TOTALS, "events": {"rows": events}, "names": {"rows": names}, **many})
    width, height = size
    drawn = lines(state, view, width, height, **more)
    assert len(drawn) == height
    assert max(map(len, drawn)) <= width


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_picture_before_the_first_message_is_empty(view: str) -> None:
    assert len(lines(LiveState(), view, 80, 24, choice=Choice(match="x"))) == 24


def test_connections_are_merged_ordered_and_have_the_columns_that_fit() -> None:
    state = after(
        {"totals": TOTALS, **rows(connection(1), connection(2, backlog_bytes=9), connection(3))},
        rows({"connection": 3, "messages_out_rate": 7.0}, gone=[1]),
    )
    wide = lines(state, "connections", 160, 16)
    assert wide[0].startswith("pubsubd 1.2 at h:9014, up 0:01:40")
    assert wide[0].endswith("every 1 s")
    assert "in 12,346/s 0 B/s" in wide[1]
    assert [line.split()[0] for line in wide if "10.0.0" in line] == ["3", "2"]
    assert any("listener" in line for line in wide)
    by_backlog = lines(state, "connections", 70, 16, choice=Choice("backlog"), selected=3)
    assert [line.split()[0] for line in by_backlog if "10.0.0" in line] == ["2", "3"]
    assert "number  address        in/s  out/s" in lines(state, "connections", 40, 16)


def test_a_row_that_is_selected_far_below_is_drawn() -> None:
    state = after({"totals": TOTALS, **rows(*map(connection, range(1, 60)))})
    drawn = lines(state, "connections", 80, 12, selected=50)
    assert [int(line.split()[0]) for line in drawn if "10.0.0" in line][-1] == 50


def test_the_mesh_names_and_events_say_what_matters() -> None:
    links = [
        {"link": f"a {b}", "a": "a", "b": b, "rtt_ms": 1.25, "messages_rate": rate, "bytes_rate": 2}
        for b, rate in (("b", 1.0), ("c", 9.0))
    ]
    links[0]["bridge"] = True
    daemons = [{"node": "a", "hops": 0, "articulation": True}, {"node": "z", "hops": None}]
    event = {"id": 1, "at": 5.0, "event": "closed", "user": "ann", "reason": "killed"}
    state = after(
        {
            "mesh": {"node": "a", "links": {"rows": links}, "daemons": {"rows": daemons}},
            "names": {"rows": [{"name": "x", "rate": 2, "error": 1.5}], "sampled": 0.25},
            "events": {"rows": [event], "missed": {"events": 4, "why": "."}},
            "missed": {"updates": 7, "why": "."},
        }
    )
    mesh = lines(state, "mesh", 120, 12)
    assert "2 daemons, 1 of them cannot be reached, without one of these" in "".join(mesh)
    assert [line.split() for line in mesh if "1.2 ms" in line] == [
        ["a", "c", "1.2", "ms", "9", "2", "B"],
        ["a", "b", "1.2", "ms", "1", "2", "B", "bridge"],
    ]
    names = "\n".join(lines(state, "names", 150, 12))
    assert "from 25 % of them; 7 updates were missed" in names
    assert "2.0  1.5  x" in names
    events = "\n".join(lines(state, "events", 120, 12))
    assert "events, the last one first; 4 are lost" in events
    assert "closed  ann" in events


def test_a_section_that_one_may_not_see_says_why_and_comes_back() -> None:
    error = {"error": {"code": "not-allowed", "text": "no right"}}
    state = after({"totals": error, "connections": error})
    drawn = lines(state, "connections", 80, 12)
    assert "totals: not-allowed: no right" in drawn
    assert "not-allowed: no right" in drawn
    state.take(told(2, {"connections": {"error": None, "count": 1, "rows": []}, "totals": TOTALS}))
    assert state.refusal("connections") is None


def test_hostile_names_are_escaped() -> None:
    state = after(
        {
            "totals": TOTALS | {"version": HOSTILE},
            "names": {"rows": [{"name": HOSTILE, "rate": 1.0, "error": 0.0}]},
            **rows(connection(1, user=HOSTILE)),
        }
    )
    for view in ("connections", "names"):
        text = "".join(lines(state, view, 200, 12, prompt=HOSTILE, status=HOSTILE))
        assert r"\x1b[31m" in text
        assert not {"\x1b", "\x9b", "\u202e"} & {*text}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"n": 1}',
        b'{"n": 1, "at": 1, "interval": 1, "connections": 7}',
        b'{"n": 1, "at": 1, "interval": 1, "connections": {"rows": [7]}}',
        b'{"n": 1, "at": 1, "interval": 1, "connections": {"rows": [{"connection": []}]}}',
        b'{"n": 1, "at": 1, "interval": 1, "events": {"rows": 7}}',
        b'{"n": 1, "at": 1, "interval": 1, "missed": 7}',
    ],
)
def test_what_is_no_message_is_told(data: bytes) -> None:
    with pytest.raises(PubsubdError, match="the daemon's message cannot be understood"):
        LiveState().take(data)


def test_rows_that_are_none_are_told() -> None:
    state = after(rows(connection(1, since="long ago")))
    with pytest.raises(PubsubdError, match="a ConnectionRow that is none"):
        lines(state, "connections", 80, 24)
