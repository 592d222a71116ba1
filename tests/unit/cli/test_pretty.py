"""JSON for people, and when there are colours."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.cli.pretty import MAX_DEPTH, MAX_SIZE, pretty_json
from pubsubd.cli.terminal import coloured, console

WIDE = 10_000

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
documents = st.lists(values) | st.dictionaries(st.text(), values)


@given(documents, st.booleans(), st.booleans(), st.integers(0, 200))
def test_what_is_shown_means_the_same_and_is_printable(
    value: Any, ascii_only: bool, colours: bool, room: int
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    shown = pretty_json(data, room, colours=colours)
    assert shown is not None
    plain = re.sub(r"\x1b\[[0-9;]+m", "", shown)
    assert plain.replace("\n", "").isprintable()
    assert json.loads(plain) == value


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a":1.00,"a":1e400}', '{"a": 1.00, "a": 1e400}'),
        (b' [ "\\u00e9\\/" ] ', r'["\u00e9\/"]'),
        ('["\x7f\x9b\u202e\U000e0001"]'.encode(), r'["\u007f\u009b\u202e\udb40\udc01"]'),
        (b"{}", "{}"),
    ],
)
def test_numbers_keys_and_escapes_stay_as_they_are_written(data: bytes, shown: str) -> None:
    assert pretty_json(data, WIDE, colours=False) == shown


def test_it_is_indented_if_a_line_has_no_room_for_it() -> None:
    assert pretty_json(b'{"a":[1]}', 9, colours=False) == '{\n  "a": [\n    1\n  ]\n}'
    assert pretty_json(b'{"a":[1]}', 10, colours=False) == '{"a": [1]}'


def test_keys_and_values_have_colours() -> None:
    key, text, number, word = (f"\x1b[{code}m" for code in ("1;34", "32", "36", "35"))
    end = "\x1b[0m"
    assert pretty_json(b'{"a\\"":["x:",-1.5e3,null]}', WIDE, colours=True) == (
        f'{{{key}"a\\""{end}: [{text}"x:"{end}, {number}-1.5e3{end}, {word}null{end}]}}'
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b'"text"',
        b"{",
        b"{]",
        b"[1] x",
        b'{"a": NaN}',
        b'["\xff"]',
        b"[" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"[" + b" " * MAX_SIZE + b"]",
    ],
)
def test_everything_else_is_left_alone(data: bytes) -> None:
    assert pretty_json(data, 0, colours=True) is None


def test_it_makes_no_more_of_a_message_than_its_levels_allow() -> None:
    deep = b"[" * MAX_DEPTH + b",".join([b"1"] * 30_000) + b"]" * MAX_DEPTH
    shown = pretty_json(deep, 0, colours=False)
    assert shown is not None
    assert len(shown) < MAX_SIZE * 2 * (MAX_DEPTH + 1)


@pytest.mark.parametrize(
    ("variables", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_variables_and_the_terminal_decide_on_colours(
    variables: dict[str, str], terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert coloured() == expected
    screen = console()
    with screen.capture() as captured:
        screen.print("x", style="cyan")
    if variables.get("TERM") != "dumb":
        assert ("\x1b[36m" in captured.get()) == expected
