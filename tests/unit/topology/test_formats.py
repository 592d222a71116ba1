"""Foreign formats of graphs: read as networkx reads them, or refused by name; and no Java."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.formats import json_graphs, links
from pubsubd.topology.formats.conversion import READERS, read_links
from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.recognition import Wishes
from pubsubd.topology.formats.tables import Columns
from pubsubd.topology.inputs import find_here, tell
from tests.examples import examples

Arcs = set[tuple[str, str | None]]

ARCS = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}
BOTH = ARCS | {(b, a) for a, b in ARCS}
NUMBERED = {("1", "2"), ("2", "3"), ("3", "1"), ("3", "4")}
NUMBERED_BOTH = NUMBERED | {(b, a) for a, b in NUMBERED}

GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment -->
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="label" attr.type="string"/>
  <key id="d1" for="edge" attr.name="weight" attr.type="double"/>
  <graph id="G" edgedefault="{default}">
    <node id="n0"><data key="d0">a</data></node>
    <node id="n1"><data key="d0">b</data></node>
    <node id="n2"><data key="d0">c</data></node>
    <node id="n3"><data key="d0">d</data></node>
    <node id="n4"><data key="d0">alone</data></node>
    <edge id="e0" source="n0" target="n1"><data key="d1">1.0</data></edge>
    <edge source="n1" target="n2"/>
    <edge source="n2" target="n0"/>
    <edge source="n2" target="n3"/>
  </graph>
</graphml>
"""
GEXF = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.2draft" version="1.2"><meta lastmodifieddate="2026-11-28"/>
<graph mode="static" defaultedgetype="directed"><nodes>
<node id="0" label="a"/><node id="1" label="b"/><node id="2" label="c"/><node id="3" label="d"/>
<node id="4" label="alone"/></nodes><edges>
<edge id="0" source="0" target="1" weight="2"/><edge id="1" source="1" target="2"/>
<edge id="2" source="2" target="0"/><edge id="3" source="2" target="3"/></edges></graph></gexf>
"""
GML = """Creator "a \\"program\\""
# a comment
graph
[
  directed 1
  node [ id 1 label "a" graphics [ x 1.5 y 2 ] ]
  node
  [
    id 2
    label "b"
  ]
  node [ id 3 label "c" ]
  node [ id 4 label "d" ]
  node [ id 5 label "alone" ]
  edge [ source 1 target 2 weight 0.5 ]
  edge [ source 2 target 3 ]
  edge [ source 3 target 1 label "a
longer one" ]
  edge [ source 3 target 4 ]
]
""".replace('"a \\"program\\""', '"a program"')
PAJEK = """*Network mesh
*Vertices 5
1 "a" 0.1 0.2 0.5
2 "b"
3 c
4 "d"
5 "alone"
*Arcs
1 2 1
2 3 1
3 1 1
*Edges
3 4 2
"""
PAJEK_LISTS = """% lists
*vertices 4
*arcslist
1 2 3
*edgeslist
3 4
"""
MATRIX = """%%MatrixMarket matrix coordinate real general
% a comment
5 5 4
1 2 0.5
2 3 1
3 1 1
3 4 1
"""
SYMMETRIC = """%%MatrixMarket matrix coordinate pattern symmetric
4 4 4
2 1
3 2
3 1
4 3
"""
METIS = "% a comment\n5 4\n2 3\n1 3\n1 2 4\n3\n\n"
METIS_WEIGHTS = "4 4 011\n7 2 1 3 1\n7 1 1 3 1\n7 1 1 2 1 4 9\n7 3 9\n"
NETJSON = {
    "type": "NetworkGraph",
    "protocol": "olsr",
    "version": "0.6.6",
    "metric": "etx",
    "nodes": [{"id": one, "label": one} for one in ("a", "b", "c", "d", "alone")],
    "links": [{"source": a, "target": b, "cost": 1.0} for a, b in sorted(ARCS)],
}
MESHVIEWER = {
    "timestamp": "2026-11-28T06:00:00+0000",
    "nodes": [
        {"node_id": f"{number:012x}", "hostname": name, "is_online": True, "mesh": "x"}
        for number, name in enumerate(["a", "b", "c", "d", "alone"])
    ],
    "links": [
        {
            "type": "wifi",
            "source": f"{'abcd'.index(a):012x}",
            "target": f"{'abcd'.index(b):012x}",
            "source_tq": 0.9,
            "target_tq": 1,
        }
        for a, b in sorted(ARCS)
    ],
}
FFMAP = {
    "version": 1,
    "batadv": {
        "directed": False,
        "nodes": [{"id": f"02:0{n}", "node_id": f"0{n}"} for n in range(5)],
        "links": [{"source": "abcd".index(a), "target": "abcd".index(b)} for a, b in ARCS],
    },
}
VIS = {
    "source_version": "2025.4",
    "algorithm": 4,
    "vis": [
        {
            "primary": one,
            "secondary": [f"{one}2"],
            "neighbors": [
                {"router": f"{a}2", "neighbor": b, "metric": "1.0"} for a, b in ARCS if a == one
            ],
        }
        for one in ("a", "b", "c", "d", "alone")
    ],
}
VIS_LINES = """{ "primary" : "a" }
{ "secondary" : "a2", "of" : "a" }
{ "router" : "a2", "neighbor" : "b", "label" : "1.000" }
{ "router" : "a", "gateway" : "66:66", "label" : "TT" }
{ "router" : "b", "neighbor" : "c", "label" : "1.000" }
{ "router" : "c", "neighbor" : "a2", "label" : "1.008" }
{ "router" : "c", "neighbor" : "d", "label" : "2.000" }
"""
OLSR_JSON = {
    "pid": 7,
    "topology": [
        {"destinationIP": b, "lastHopIP": a, "linkQuality": 1.0, "tcEdgeCost": 1024}
        for a, b in ARCS
    ],
}
OLSR = """HTTP/1.0 200 OK

Table: Links
Local IP\tRemote IP\tHyst.\tLQ\tNLQ\tCost
z\ty\t0.00\t1.000\t1.000\t1.000

Table: Topology
Dest. IP\tLast hop IP\tLQ\tNLQ\tCost
b\ta\t1.000\t1.000\t1.000
c\tb\t1.000\t1.000\t1.000
a\tc\t1.000\t1.000\t1.000
d\tc\t1.000\t1.000\t1.000

Table: HNA
Destination\tGateway
0.0.0.0/0\ta
"""
CYTOSCAPE = nx.cytoscape_data(nx.DiGraph(list(ARCS)))
JGF = {
    "graph": {
        "directed": True,
        "nodes": {one: {"label": one} for one in "abcd"},
        "edges": [{"source": a, "target": b} for a, b in ARCS],
    }
}


def lines(form: str = "{} {}", numbered: bool = False) -> str:
    return "".join(form.format(*arc) + "\n" for arc in sorted(NUMBERED if numbered else ARCS))


def complete(names: str) -> Arcs:
    return {(a, b) for a in names for b in names if a != b}


ALONE: Arcs = {("alone", None)}

READ: list[tuple[str, str, Any, Arcs]] = [
    # name of the file, format, what is in it, arcs
    ("x.graphml", "xml", GRAPHML.format(default="directed"), ARCS | ALONE),
    ("x.xml", "xml", GRAPHML.format(default="undirected"), BOTH | ALONE),
    ("x.gexf", "xml", GEXF, ARCS | ALONE),
    ("x.gml", "gml", GML, ARCS | ALONE),
    ("y.gml", "gml", GML.replace("directed 1", ""), BOTH | ALONE),
    ("x.net", "pajek", PAJEK, ARCS | {("d", "c")} | ALONE),
    ("y.net", "pajek", PAJEK_LISTS, {("1", "2"), ("1", "3"), ("3", "4"), ("4", "3")}),
    ("z.net", "pajek", "*Vertices 2\n*Matrix\n0 1\n0 0\n", {("1", "2")}),
    ("x.mtx", "matrix", MATRIX, NUMBERED | {("5", None)}),
    ("y.mtx", "matrix", SYMMETRIC, NUMBERED_BOTH),
    ("out.x", "konect", "% sym unweighted\n% 4 4 4\n" + lines(numbered=True), NUMBERED_BOTH),
    ("out.y", "konect", "% asym positive\n" + lines("{} {} 1 99", numbered=True), NUMBERED),
    ("x.graph", "metis", METIS, NUMBERED_BOTH | {("5", None)}),
    ("y.graph", "metis", METIS_WEIGHTS, NUMBERED_BOTH),
    ("ring", "metis", "3 3\n2 3\n1 3\n1 2\n", complete("123")),
    ("x.json", "json", NETJSON, BOTH | ALONE),
    ("y.json", "json", {"type": "NetworkCollection", "collection": [NETJSON]}, BOTH | ALONE),
    ("meshviewer.json", "json", MESHVIEWER, BOTH | ALONE),
    (
        "graph.json",
        "json",
        FFMAP,
        {(f"02:0{'abcd'.index(a)}", f"02:0{'abcd'.index(b)}") for a, b in BOTH} | {("02:04", None)},
    ),
    ("vis.json", "json", VIS, ARCS | ALONE),
    ("vis.txt", "json-lines", VIS_LINES, ARCS),
    ("olsr.json", "json", OLSR_JSON, ARCS),
    ("olsr.txt", "olsr", OLSR, ARCS),
    ("cy.json", "json", CYTOSCAPE, ARCS),
    ("jgf.json", "json", JGF, ARCS),
    ("d3.json", "json", nx.node_link_data(nx.DiGraph(list(ARCS)), edges="links"), ARCS),
    ("nx.json", "json", nx.node_link_data(nx.Graph(list(ARCS)), edges="edges"), BOTH),
    ("array.json", "json", [{"source": a, "target": b} for a, b in ARCS], ARCS),
    ("x.jsonl", "json-lines", lines('{{"source": "{}", "target": "{}", "x": 1}}'), ARCS),
    ("one.jsonl", "json-lines", '{"src": "a", "dst": 1}\n', {("a", "1")}),
    ("a.txt", "arrows", lines("{} -> {}"), ARCS),
    ("b.txt", "arrows", lines('"{}" -- "{}";'), BOTH),
    ("c.txt", "adjacency", "a: b\nb: c\nc: a d\nd:\n", ARCS),
    ("d.txt", "adjacency", "# by networkx\na b\nb c\nc a d\nd\n", ARCS),
    ("e.txt", "adjacency", "a b\nb c\nc a d\nd\n", ARCS),
    (
        "f.txt",
        "adjacency",
        "a b c\nb a c\nc a b\n",
        complete("abc"),
    ),
    (
        "g.txt",
        "adjacency",
        "1 2 3\n2 1 3\n3 1 2\n",
        complete("123"),
    ),
    ("q.csv", "table", lines('"{}","{}"'), ARCS),
    ("i.csv", "table", "id,source,target\n" + lines("7,{},{}"), ARCS),
    ("h.csv", "table", "id_1,id_2\n" + lines("{},{}", numbered=True), NUMBERED),
    ("n.csv", "table", "NodeA,NodeB\n" + lines("{},{}"), ARCS),
    ("w.tsv", "table", "weight\tFromNode\tToNode\n" + lines("1\t{}\t{}"), ARCS),
    ("r.txt", "table", '"x" "source" "target"\n' + lines('"1" "{}" "{}"'), ARCS),
    ("pipe.txt", "table", "# relations\n" + lines("{}|{}|-1"), ARCS),
    ("semi.csv", "table", lines("{};{}"), ARCS),
    ("town.csv", "table", lines("New {},New {}"), {(f"New {a}", f"New {b}") for a, b in ARCS}),
    ("comment.edges", "table", "% by somebody\n" + lines(), ARCS),
]

NATIVE = {
    "list.txt": ("list", lines()),
    "list.csv": ("list", lines("{},{},0.5")),
    "weights.txt": ("list", "1 2 3\n2 3 3\n3 1 2\n"),
    "no-metis.txt": ("list", "3 3\n1 2\n2 3\n1 3\n"),
    "titles.tsv": ("list", "source\ttarget\tquality\n" + lines("{}\t{}\t0.5")),
    "snap.txt": ("list", "# Nodes: 4\n#\n# FromNodeId\tToNodeId\n" + lines("{}\t{}")),
    "rows.jsonl": ("jsonl", '{"ts": 1, "src": "a", "dst": "b"}\n'),
    "cut.jsonl": ("jsonl", '{"ts'),
    "empty.csv": ("list", ""),
}

REFUSED: list[tuple[str, str | bytes, str]] = [
    # what it is, what is in it, what is told
    (
        "batctl o",
        "[B.A.T.M.A.N. adv 2025.4, MainIF/MAC: mesh0/02:01]\n   Originator  last-seen\n",
        "a table of batctl",
    ),
    (
        "batctl n",
        "IF             Neighbor              last-seen\nmesh0 02:02 0.1s\n",
        "a table of batctl",
    ),
    (
        "batctl oj",
        '[{"orig_address":"02:02","neigh_address":"02:02","tq":255}]',
        "a table of batctl",
    ),
    ("OLSR", "Table: Neighbors\nIP address\tSYM\tMPR\n10.0.0.1\tYES\tNO\n", "a table of OLSR"),
    (
        "OpenVPN",
        "OpenVPN CLIENT LIST\nUpdated,x\nCommon Name,Real Address\na,1.2.3.4:5\n",
        "OpenVPN",
    ),
    ("OpenVPN 2", "TITLE,OpenVPN 2.6\nTIME,x,1\nCLIENT_LIST,a,b\n", "OpenVPN"),
    ("wg show", "interface: wg0\n  public key: x=\n  listening port: 1\n\npeer: y=\n", "wg show"),
    ("wg dump", f"wg0\t{'A' * 43}=\t{'B' * 43}=\t51820\toff\n", "wg show"),
    ("dot", 'digraph {\n"a" -> "b"\n}\n', "gv2gml"),
    ("graph6", ">>graph6<<C~\n", "graph6"),
    ("UCINET", "dl n=3 format=edgelist1\ndata:\n1 2\n", "UCINET"),
    ("GDF", "nodedef>name VARCHAR\na\nedgedef>node1,node2\n", "GDF"),
    ("DIMACS", "c a comment\np edge 3 2\ne 1 2\ne 2 3\n", "DIMACS"),
    ("TGF", "1 a\n2 b\n#\n1 2\n", "Trivial Graph"),
    ("routes", "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0\n", "ip route"),
    ("prose", "Two words\nand three more\nand then there are four\n", "as prose"),
    (
        "sentences",
        "This is a text, and it has commas.\nIt goes on, as texts do for some lines.\n",
        "it looks like prose",
    ),
    ("people", "name,age,city\nAnn,31,Rome\nBob,35,Oslo\nEve,29,Riga\n", "called name, age, city"),
    ("no titles", "Ann,31,Rome\nBob,35,Oslo\nEve,29,Riga\n", "names and numbers"),
    ("times", "2026-01-01,a,b\n2026-01-02,b,c\n2026-01-03,c,a\n", "times"),
    ("dense", "0 1 1\n1 0 1\n1 1 0\n", "looks like a matrix"),
    ("uneven", lines() * 9 + "a b c\n", "'a b c' has 3"),
    ("one column", "a\nb\nc\n", "one column"),
    ("JSON", '{\n "name": "x",\n "version": 2\n}\n', "no links of a mesh"),
    ("numbers", "[1, 2]", "it is JSON without links of a mesh"),
    (
        "nodes without ids",
        '{"nodes": [{"nodeinfo": {}}, {}], "links": [{"source": "a", "target": "b"}]}',
        "its nodes have no id, and link 1 has no places of nodes",
    ),
    ("ip neigh", "10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 STALE\n", "ip neigh"),
    ("babeld", "add neighbour 55d3 address fe80::1 if eth0\n", "babeld"),
    ("items", "# Things\n\n- one thing\n- another thing\n", "a list of items"),
    ("nodes", '{"version": 2, "nodes": [{"id": "a"}]}', "nodes, and no links"),
    ("routes of NetJSON", '{"type": "NetworkRoutes", "routes": []}', "NetworkRoutes"),
    ("broken JSON", '{\n "links": [', "broken JSON"),
    ("deep JSON", "[[" * 30_000, "JSON"),
    ("svg", '<svg xmlns="x"/>', "neither GraphML nor GEXF"),
    ("html", "<!DOCTYPE html>\n<html></html>", "HTML"),
    ("zip", b"PK\x03\x04\x14\x00\x00\x00", "a ZIP archive"),
    ("utf-16", "a b\n".encode("utf-16"), "not text"),
]

BROKEN: list[tuple[str, str, str]] = [
    # name of the file, what is in it, what is told when it is converted
    ("cut.graphml", GRAPHML.format(default="directed")[:-30], "unclosed token: line 15"),
    (
        "bomb.graphml",
        '<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a "aaaa">]><graphml><graph/></graphml>',
        "document type declaration",
    ),
    ("hyper.graphml", "<graphml><graph><hyperedge/></graph></graphml>", "hyperedges"),
    ("two.graphml", "<graphml><graph/><graph/></graphml>", "more than one graph"),
    ("nameless.gexf", "<gexf><graph><edges><edge source='a'/></edges></graph></gexf>", "no name"),
    ("cut.gml", GML[:-20], "ends within the graph"),
    ("quote.gml", 'graph [ node [ id 1 label "a\n', "quote is not closed"),
    ("two.net", PAJEK * 2, "more than one network"),
    ("bip.net", "*Vertices 4 2\n*Edges\n1 3\n", "two kinds"),
    ("far.net", "*Vertices 2\n*Arcs\n1 3\n", "none of its 2 vertices"),
    ("many.net", "*Vertices 999999999\n", "over 10,000,000 daemons"),
    ("bip.mtx", MATRIX.replace("5 5 4", "5 6 4"), "its size is [5, 6]"),
    ("dense.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", "no matrix in coordinates"),
    ("many.mtx", MATRIX.replace("5 5 4", "99999999 99999999 4"), "over 10,000,000 daemons"),
    ("cut.mtx", MATRIX[:-9], "it has 3 entries, and its size tells of 4"),
    ("out.bip", "% bip unweighted\n1 1\n1 2\n", "two kinds"),
    ("short.graph", "9 4\n2 3\n1 3\n", "9 vertices"),
    ("edges.graph", "3 9\n2 3\n1 3\n1 2\n", "9 edges"),
    ("letters.net", "*Vertices 1\n*Matrix\nx\n", "'x' is no number"),
    ("encoding.gexf", GEXF.replace("UTF-8", "UTF-9"), "unknown encoding"),
    ("surrogate.json", '{"links": [{"source": "\\udc80", "target": "a"}]}', "no text in UTF-8"),
    ("far.mtx", MATRIX.replace("3 4 1", "3 6 1"), "none of its 5 vertices"),
    ("half.csv", '"a","b"\n' * 8 + '"a",""\n' * 2, "2 of its 10 rows are no links (2 short)"),
]


def read(path: Path, wishes: Wishes = Wishes()) -> list[dict[str, Any]]:  # noqa: B008
    """Return the rows that a file is converted to."""
    target = path.with_name("converted")
    form = tell(path, wishes)
    read_links(path, form, lenient=wishes.lenient).write(target, str(path), "m")
    return pq.read_table(target).to_pylist()


def arcs(rows: list[dict[str, Any]]) -> Arcs:
    assert {(row["mesh"], row["reason"]) for row in rows} <= {("m", None)}
    return {(row["src"], row["dst"]) for row in rows}


def put(path: Path, content: Any) -> Path:
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "form", "content", "expected"), READ, ids=[name for name, *_ in READ]
)
def test_a_graph_of_another_format_is_read(
    tmp_path: Path, name: str, form: str, content: Any, expected: Arcs
) -> None:
    path = put(tmp_path / name, content)
    assert tell(path, Wishes()).name == form
    rows = read(path)
    assert arcs(rows) == expected
    assert len(rows) == len(expected)


@pytest.mark.parametrize("name", NATIVE)
def test_what_spark_reads_is_left_to_it(tmp_path: Path, name: str) -> None:
    form, content = NATIVE[name]
    assert tell(put(tmp_path / name, content), Wishes()).name == form


@pytest.mark.parametrize(
    ("content", "why"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_what_has_no_links_of_a_mesh_is_refused_by_its_name(
    tmp_path: Path, content: str | bytes, why: str
) -> None:
    path = put(tmp_path / "x", content)
    with pytest.raises(TopologyError) as caught:
        tell(path, Wishes())
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert why in text
    assert "\n" not in text


@pytest.mark.parametrize(("name", "content", "why"), BROKEN, ids=[one[0] for one in BROKEN])
def test_a_broken_file_is_told_in_one_line(
    tmp_path: Path, name: str, content: str, why: str
) -> None:
    path = put(tmp_path / name, content)
    form = tell(path, Wishes())
    with pytest.raises(FormatError) as caught:
        read_links(path, form).write(tmp_path / "converted", "x", "m")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


INSERTED = [b"[", b"]", b"{", b'"', b"\n", b" ", b"-1", b"1e999", b"*", b"%", b"\xff", b"<", b"|"]


def test_whatever_is_changed_in_a_file_it_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("changed")

    @given(
        st.sampled_from(READ),
        st.lists(
            st.tuples(st.floats(0, 1), st.integers(0, 9), st.sampled_from(INSERTED)),
            min_size=1,
            max_size=3,
        ),
        st.booleans(),
    )
    @settings(max_examples=examples(300))
    def check(
        sample: tuple[str, str, Any, Arcs], changes: list[tuple[float, int, bytes]], lenient: bool
    ) -> None:
        path = put(folder / sample[0], sample[2])
        data = bytearray(path.read_bytes())
        for place, removed, inserted in changes:
            start = int(place * len(data))
            data[start : start + removed] = inserted
        path.write_bytes(data)
        with contextlib.suppress(TopologyError, FormatError):
            form = tell(path, Wishes(lenient=lenient))
            if form.name in READERS or form.table is not None:
                read_links(path, form, lenient=lenient).write(folder / "converted", "x", "m")

    check()


# Held against networkx and scipy


def written(graph: Any, form: str) -> bytes:
    file = io.BytesIO()
    if form == "mtx":
        scipy.io.mmwrite(file, nx.to_scipy_sparse_array(graph, nodelist=sorted(graph, key=int)))
    elif form == "json":
        file.write(json.dumps(nx.node_link_data(graph, edges="links")).encode())
    else:
        write: Callable[..., None] = getattr(nx, f"write_{form}")
        write(graph, file)
    return file.getvalue()


ENDINGS = {"graphml": "graphml", "gexf": "gexf", "gml": "gml", "pajek": "net", "mtx": "mtx"}
ENDINGS |= {"json": "json", "adjlist": "adjlist"}


@pytest.mark.parametrize("form", ENDINGS)
def test_whatever_networkx_writes_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    folder = tmp_path_factory.mktemp(form)

    @given(
        st.integers(1, 8).flatmap(
            lambda n: st.tuples(
                st.just(n), st.sets(st.tuples(st.integers(1, n), st.integers(1, n)), max_size=20)
            )
        ),
        st.booleans(),
    )
    @settings(max_examples=examples(40))
    def check(drawn: tuple[int, set[tuple[int, int]]], directed: bool) -> None:
        count, ends = drawn
        graph = nx.DiGraph() if directed else nx.Graph()
        graph.add_nodes_from(str(number) for number in range(1, count + 1))
        graph.add_edges_from((str(a), str(b)) for a, b in ends)
        if form == "adjlist" and len({len(one) for _, one in graph.adjacency()}) < 2:
            return  # all rows have the same width: it is a list, or one column
        path = put(folder / f"x.{ENDINGS[form]}", written(graph, form))
        if form == "adjlist" and tell_or_none(path) != "adjacency":
            return
        found = read(path)
        linked = {end for arc in graph.edges for end in arc}
        if form == "adjlist":
            expected = {
                (a, b)
                for line in path.read_text().splitlines()
                if line[0] != "#"
                for a, *others in [line.split()]
                for b in others
            }
        else:
            expected = set(graph.to_directed().edges)
        alone = {(one, None) for one in graph if one not in linked}
        assert arcs(found) == expected | alone

    check()


def test_a_path_that_networkx_writes_as_an_adjacency_list_is_one(tmp_path: Path) -> None:
    path = put(tmp_path / "path.adjlist", written(nx.path_graph(4), "adjlist"))
    assert tell_or_none(path) == "adjacency"
    assert arcs(read(path)) == {("0", "1"), ("1", "2"), ("2", "3")}


def tell_or_none(path: Path) -> str | None:
    try:
        return tell(path, Wishes()).name
    except TopologyError:
        return None


def test_labels_are_names_unless_one_is_missing_or_two_are_the_same(tmp_path: Path) -> None:
    same = GEXF.replace('label="d"', 'label="a"')
    assert arcs(read(put(tmp_path / "x.gexf", same))) >= {("0", "1"), ("4", None)}
    missing = GEXF.replace(' label="d"', "")
    assert arcs(read(put(tmp_path / "y.gexf", missing))) >= {("0", "1"), ("4", None)}


# Tables


@pytest.mark.parametrize(
    ("columns", "content"),
    [
        (Columns("3", "4"), lines("1 x {} {} 5")),
        (Columns("2", "1"), "to,from\nb,a\nc,b\na,c\nd,c\n"),
        (Columns("Who", "whom"), "whom;n;who\nb;1;a\nc;1;b\na;1;c\nd;1;c\n"),
        (Columns("1", "3", "2"), "a\tcost\tb\na\t0.5\tb\nb\t0.5\tc\nc\t0.5\ta\nc\t0.5\td\n"),
    ],
)
def test_columns_are_those_that_somebody_names(
    tmp_path: Path, columns: Columns, content: str
) -> None:
    rows = read(put(tmp_path / "x.txt", content), Wishes(columns=columns))
    assert arcs(rows) == ARCS
    assert {row["weight"] for row in rows} == {0.5 if columns.weight else None}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (Columns("1", "9"), "has 2 columns, and no column 9"),
        (Columns("x", "y"), "called 'x': a, b"),
    ],
)
def test_a_column_that_is_not_there_is_told(tmp_path: Path, columns: Columns, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        tell(put(tmp_path / "x.csv", lines("{},{}")), Wishes(columns=columns))


def test_a_row_that_is_no_link_is_rejected_with_its_reason(tmp_path: Path) -> None:
    content = lines("{};{};1") * 9 + "a;b;much\n;b;1\na\n"
    path = put(tmp_path / "x.csv", content.encode() + b"\xff;b;1\n")
    wishes = Wishes(columns=Columns("1", "2", "3"), lenient=True)
    rows = [row for row in read(path, wishes) if row["reason"]]
    assert [(row["reason"], row["line"]) for row in rows] == [
        ("number", "a;b;much"),
        ("short", ";b;1"),
        ("short", "a"),
        ("utf8", "\ufffd;b;1"),
    ]


def test_lenient_reads_uneven_lists_as_they_are(tmp_path: Path) -> None:
    path = put(tmp_path / "x.txt", lines() + "a b c\n")
    assert tell(path, Wishes(lenient=True)).name == "list"


# Files


def test_what_is_packed_is_read(tmp_path: Path) -> None:
    data = GRAPHML.format(default="directed").encode()
    put(tmp_path / "a.graphml.gz", gzip.compress(data))
    put(tmp_path / "b.graphml.bz2", bz2.compress(data))
    put(tmp_path / "c.graphml.xz", lzma.compress(data))
    put(tmp_path / "d.graphml.zst", pa.compress(data, "zstd", asbytes=True))
    put(tmp_path / "e", gzip.compress(data))
    for path in sorted(tmp_path.iterdir()):
        assert arcs(read(path)) == ARCS | ALONE, path


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_what_is_packed_and_cut_off_is_told(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = put(tmp_path / "x", pack(lines().encode() * 99)[:-9])
    with pytest.raises(TopologyError, match="cannot be read"):
        find_here(str(path))


def test_in_a_folder_what_is_no_edge_list_is_left_out_and_named(tmp_path: Path) -> None:
    for name, content in {
        "good.txt": lines(),
        "good.gml": GML,
        "notes.txt": "Two words\nand three more\nand then there are four\n",
        "people.csv": "Ann,Rome,Oslo\nBob,Oslo,Riga\nEve,Bonn,Rome\n",
        "package.json": '{\n "name": "x"\n}\n',
        "server.log": "a b\n",
    }.items():
        put(tmp_path / name, content)
    found = find_here(str(tmp_path))
    assert [Path(name).name for name in found.files] == ["good.gml", "good.txt"]
    assert {Path(name).name: why.partition(":")[0] for name, why in found.ignored.items()} == {
        "notes.txt": "it is no list of links",
        "package.json": "it is JSON with no links of a mesh",
        "people.csv": "no name is in both of its first two columns",
        "server.log": "its ending is none of an edge list",
    }
    put(tmp_path / "uneven.txt", lines() * 9 + "a b c\n")
    with pytest.raises(TopologyError, match="'a b c' has 3"):
        find_here(str(tmp_path))


# Bounds


def test_a_file_has_so_many_arcs_and_daemons_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_ARCS", 3)
    some = links.Links()
    some.add("a", "b", both_ways=True)
    with pytest.raises(FormatError, match="over 3 arcs"):
        some.add("b", "c", both_ways=True)
    monkeypatch.setattr(links, "MOST_DAEMONS", 1)
    with pytest.raises(FormatError, match="over 1 daemons"):
        links.Links().add("a", "b")


def test_a_document_of_json_has_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_graphs, "LARGEST", 2**20)
    with pytest.raises(FormatError, match="over 1 MiB"):
        json_graphs.read_document(io.BytesIO(b" " * 2**21), links.Links())
