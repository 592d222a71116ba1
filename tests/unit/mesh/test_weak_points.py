"""Single points of failure, as a daemon tells them of the mesh that it is part of."""

from __future__ import annotations

import json
from typing import Any

from pubsubd.broker.turn import finish
from tests.webs import Node, build

HOUSE = ["ab", "bc", "cd", "da", "de", "ef", "eg"]
"""A ring of four; e hangs on it, and two leaves on e."""


def ask(node: Node) -> dict[str, Any]:
    node.say("ask", b"pub //pubsubd/weak 0 \n")
    ((_, data),) = node.hears("ask")
    answer: dict[str, Any] = json.loads(data)
    return answer


def test_the_answer_names_what_cannot_be_lost_and_which_links_to_add() -> None:
    answer = ask(build(HOUSE)["a"])
    assert (answer["node"], answer["mesh"], answer["daemons"], answer["links"]) == (
        "a",
        "default",
        7,
        7,
    )
    assert answer["articulation_daemons"] == [
        {"node": "d", "cut_off": 3, "daemons": ["e", "f", "g"]},
        {"node": "e", "cut_off": 2, "daemons": ["f", "g"]},
    ]
    assert answer["bridges"] == [
        {"src": "d", "dst": "e", "cut_off": 3, "daemons": ["e", "f", "g"]},
        {"src": "e", "dst": "f", "cut_off": 1, "daemons": ["f"]},
        {"src": "e", "dst": "g", "cut_off": 1, "daemons": ["g"]},
    ]
    assert answer["add"] == [
        {"node": "a", "to": "f", "peer": "f.example:9014"},
        {"node": "a", "to": "g", "peer": "g.example:9014"},
    ]
    assert (answer["unreachable"], answer["next"]) == ([], None)
    assert answer["counts"] == {"articulation_daemons": 2, "bridges": 3, "add": 2, "unreachable": 0}


def test_every_daemon_says_the_same_of_the_same_mesh() -> None:
    web = build([*HOUSE, "ah", "hd"])
    first, *others = [ask(web[name]) | {"node": ""} for name in "abcdefgh"]
    assert others == [first] * 7


def test_the_advised_links_are_what_it_takes() -> None:
    web = build(HOUSE)
    web.link(*(one["node"] + one["to"] for one in ask(web["c"])["add"]))
    web.run()
    counts = ask(web["c"])["counts"]
    assert counts == {"articulation_daemons": 0, "bridges": 0, "add": 0, "unreachable": 0}


def test_a_daemon_that_has_died_is_told_as_gone_and_no_link_to_it_is_advised() -> None:
    web = build([*HOUSE, "fg"])
    web.kill("b")
    web.run(20)
    answer = ask(web["a"])
    (gone,) = answer["unreachable"]
    assert (gone["node"], gone["peer"]) == ("b", "b.example:9014")
    assert 15 < gone["seconds"] < 20
    assert answer["daemons"] == 6
    assert "b" not in {end for one in answer["add"] for end in (one["node"], one["to"])}
    assert [one["node"] for one in answer["articulation_daemons"]] == ["d", "e"]


def test_a_daemon_alone_has_nothing_to_lose() -> None:
    web = build(["ab"])
    assert ask(web["a"])["bridges"] == [{"src": "a", "dst": "b", "cut_off": 1, "daemons": ["b"]}]
    web.kill("b")
    web.run()
    answer = ask(web["a"])
    assert (answer["daemons"], answer["links"], answer["bridges"]) == (1, 0, [])


def test_what_was_found_holds_until_the_graph_changes() -> None:
    web = build(HOUSE)
    weak = web["a"].report.weak
    found = finish(weak.find())
    web.run(60)
    assert finish(weak.find()) is found
    web.link("ce")
    web.run()
    assert finish(weak.find()) is not found
    assert list(weak.latest.articulation) == ["e"]  # type: ignore[union-attr]
