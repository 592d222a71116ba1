"""The mesh as a file for other programs, read back by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.exports import DAEMON, LINK, WRITERS, Graph, check_ending, write_graph

HOSTILE = "<&\">'\\ \x01\u202e\n日"
DAEMONS: list[dict[str, Any]] = [
    {"id": "a", "state": "up", "degree": 1, "articulation": False, "pagerank": 0.25, "site": None},
    {"id": "b", "state": "up", "degree": 2, "articulation": True, "cut_off": 1, "site": HOSTILE},
    {"id": HOSTILE, "state": "up", "degree": 1, "articulation": False},
    {"id": "old", "state": "gone", "address": "10.0.0.4:9014"},
]
LINKS: list[dict[str, Any]] = [
    {"src": "a", "dst": "b", "bridge": True, "cut_off": 1, "rtt_ms": 1.5, "messages": 2**40},
    {"src": "b", "dst": HOSTILE, "bridge": True, "one_sided": True, "rtt_ms": None, "weight": 2.5},
]


def written(folder: Path, ending: str) -> Path:
    path = folder / f"mesh{ending}"
    write_graph(path, Graph(HOSTILE, iter(DAEMONS), iter(LINKS)))
    assert [one.name for one in folder.iterdir()] == [path.name]
    return path


def as_netjson(path: Path) -> nx.Graph:
    document = json.loads(path.read_text())
    assert document["type"] == "NetworkGraph"
    assert {"protocol", "version", "metric", "nodes", "links"} <= document.keys()
    assert [link["cost"] for link in document["links"]] == [1.5, 2.5]
    graph = nx.node_link_graph(document, multigraph=False, edges="links")
    for _, values in graph.nodes(data=True):
        values.update(values.pop("properties"))
    for *_, values in graph.edges(data=True):
        values.update(values.pop("properties"))
    return graph


READERS = {".graphml": nx.read_graphml, ".gexf": nx.read_gexf, ".json": as_netjson}


@pytest.mark.parametrize("ending", READERS)
def test_networkx_reads_every_daemon_link_and_attribute(tmp_path: Path, ending: str) -> None:
    graph = READERS[ending](written(tmp_path, ending))
    hostile = HOSTILE if ending == ".json" else HOSTILE.replace("\x01", "\ufffd")
    assert not graph.is_directed()
    assert set(graph) == {"a", "b", hostile, "old"}
    assert {frozenset(ends) for ends in graph.edges} == {
        frozenset("ab"),
        frozenset(("b", hostile)),
    }
    for rows, types, get in (
        (DAEMONS, DAEMON, lambda row: graph.nodes[names(row["id"])]),
        (LINKS, LINK, lambda row: graph.edges[names(row["src"]), names(row["dst"])]),
    ):

        def names(name: str) -> str:
            return hostile if name == HOSTILE else name

        for row in rows:
            found = {name: value for name, value in get(row).items() if name in types}
            expected = {
                name: names(row[name]) if types[name] is str else row[name]
                for name in types
                if row.get(name) is not None
            }
            assert found == expected, row


def test_graphviz_draws_it(tmp_path: Path) -> None:
    path = written(tmp_path, ".dot")
    text = path.read_text()
    assert '"a" -- "b" [bridge="true", cut_off="1"' in text
    assert text.count("\n") == 10
    assert "\\\\" in text


def test_a_file_whose_ending_names_no_format_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"ends in one of \.graphml, \.gexf, \.json, \.dot"):
        check_ending(Path("x.txt"))
    for ending in WRITERS:
        check_ending(Path(f"x{ending.upper()}"))


def test_an_earlier_file_stays_if_a_new_one_cannot_be_made(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("earlier")

    def rows() -> Any:
        yield LINKS[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*x\.json"):
        write_graph(path, Graph("m", DAEMONS, rows()))
    assert path.read_text() == "earlier"
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]
    assert set(WRITERS) == {".graphml", ".gexf", ".json", ".dot"}
