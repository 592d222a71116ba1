"""Graphs of a mesh: which links are in them, and that no name breaks out of its place."""

from __future__ import annotations

import re

from pubsubd.cli.graph import dot, links_of, mermaid
from tests.rows import row

HOSTILE = ['a"]; b', "back\\", "\x1b[31m\n", "&lt;#quot;`<b>`", "n1", "end"]


def test_each_link_that_is_up_is_there_once_with_its_shorter_round_trip() -> None:
    rows = [
        row(src="b", dst="a", rtt_ms=2.0),
        row(src="b", dst="a", observer="a", rtt_ms=1.5),
        row(dst="c", rtt_ms=None),
        row(src="c", dst="d", state="down", rtt_ms=None),
    ]
    assert links_of(rows) == {("a", "b"): 1.5, ("a", "c"): None}


def test_dot_has_all_daemons_and_links() -> None:
    assert dot("b", ["a", "z"], {("a", "b"): 1.5, ("b", "c"): None}) == (
        "graph mesh {\n"
        '    "a";\n'
        '    "b" [style=bold];\n'
        '    "c";\n'
        '    "z";\n'
        '    "a" -- "b" [label="1.50 ms"];\n'
        '    "b" -- "c";\n'
        "}\n"
    )


def test_mermaid_has_all_daemons_and_links() -> None:
    assert mermaid("b", ["a", "z"], {("a", "b"): 1.5, ("b", "c"): None}) == (
        "graph LR\n"
        '    n0["a"]\n'
        '    n1["b"]\n'
        '    n2["c"]\n'
        '    n3["z"]\n'
        '    n0 ---|"1.50 ms"| n1\n'
        "    n1 --- n2\n"
        "    style n1 stroke-width:3px\n"
    )


def test_hostile_names_stay_within_their_quotes() -> None:
    drawn = dot(HOSTILE[0], HOSTILE, {})
    for line in drawn.splitlines()[1:-1]:
        assert re.fullmatch(r'    "(?:[^"\\]|\\.)*"( \[style=bold\])?;', line), line
        assert line.isprintable()
    drawn = mermaid(HOSTILE[0], HOSTILE, {})
    for line in drawn.splitlines()[1:-1]:
        assert re.fullmatch(r'    n\d\["(?:[\w .:/-]|#\d+;)*"\]', line), line
