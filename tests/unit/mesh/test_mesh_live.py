"""The mesh as observers of ``//pubsubd/live`` see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsubd.broker.live.states import State, difference
from pubsubd.broker.turn import finish
from pubsubd.mesh import live
from pubsubd.mesh.live import MeshRows
from tests.webs import Web, build


class Stage:
    """The section of one daemon, and what an observer of it has been told."""

    def __init__(self, web: Web, name: str) -> None:
        self._rows = MeshRows(web[name].report)
        self._before: State | None = None

    def look(self) -> dict[str, Any]:
        """Return what has changed since the last look."""
        now = finish(self._rows.look([(None, None)]))[None, None]
        text = difference(self._before, now)
        self._before = now
        found: dict[str, Any] = json.loads(text) if text else {}
        return found


def by(section: dict[str, Any], key: str) -> dict[str, Any]:
    return {row[key]: row for row in section["rows"]}


def test_it_has_all_daemons_and_links_and_what_is_weak() -> None:
    stage = Stage(build(["ba", "bc", "cd", "db"]), "a")
    mesh = stage.look()
    assert (mesh["node"], mesh["more_daemons"], mesh["more_links"]) == ("a", 0, 0)
    daemons, links = by(mesh["daemons"], "node"), by(mesh["links"], "link")
    assert {node: row["hops"] for node, row in daemons.items()} == {"a": 0, "b": 1, "c": 2, "d": 2}
    assert [node for node, row in daemons.items() if row["articulation"]] == ["b"]
    assert daemons["c"]["host"] == "c.example"
    assert set(links) == {"a b", "b c", "b d", "c d"}
    assert [link for link, row in links.items() if row["bridge"]] == ["a b"]
    assert stage.look() == {}


def test_a_daemon_that_dies_takes_its_links_with_it() -> None:
    web = build(["ab", "bc"])
    stage = Stage(web, "a")
    stage.look()
    web.kill("c")
    web.run()
    mesh = stage.look()
    assert mesh["links"]["gone"] == ["b c"]
    rows = by(mesh["daemons"], "node")
    assert (rows["c"]["hops"], rows["c"]["articulation"]) == (None, None)
    assert rows["b"]["articulation"] is False


def test_links_have_rates_those_of_others_from_their_adverts() -> None:
    web = build(["ab", "bc"])
    stage = Stage(web, "a")
    rates = {row["link"]: row["messages_rate"] for row in stage.look()["links"]["rows"]}
    assert rates == {"a b": 0, "b c": None}
    web["c"].say("bob", b"sub //fwd/x\n")
    web.run()
    web["a"].say("ann", b"pub //x 10 0123456789\n" * 600)
    web.run(0.5)
    own = by(stage.look()["links"], "link")["a b"]
    assert own["messages_rate"] > 0
    known = []
    for _ in range(30):
        web.run(1)
        rows = stage.look().get("links", {}).get("rows", ())
        new = [row.get("messages_rate") for row in rows if row["link"] == "b c"]
        known += [rate for rate in new if rate is not None]
    assert 20 < max(known) <= 600  # 600 messages, in the time between two adverts
    assert known[-1] == 0


def test_what_is_too_much_to_be_shown_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_DAEMONS", 2)
    monkeypatch.setattr(live, "MAX_LINKS", 1)
    mesh = Stage(build(["ab", "bc", "cd"]), "a").look()
    assert (mesh["more_daemons"], mesh["more_links"]) == (2, 2)
    assert (len(mesh["daemons"]["rows"]), len(mesh["links"]["rows"])) == (2, 1)
