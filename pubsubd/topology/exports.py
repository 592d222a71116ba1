"""The mesh as a file of a graph format, for other programs: daemons and links with their metrics.

Rows go to the file as they come, so memory is that of the daemons alone. A value that is not known
is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

import pubsubd
from pubsubd.topology.errors import TopologyError

DAEMON: dict[str, type] = {
    "state": str,
    "degree": int,
    "component": int,
    "region": int,
    "core": int,
    "articulation": bool,
    "cut_off": int,
    "clustering": float,
    "pagerank": float,
    "betweenness": float,
    "availability": float,
    "messages": int,
    "bytes": int,
    "address": str,
    "version": str,
    "site": str,
    "rack": str,
}
"""Attribute of a daemon -> its type. ``state`` is up or gone; of one that is gone, little is known;
``cut_off``: daemons that its loss cuts off."""

LINK: dict[str, type] = {
    "bridge": bool,
    "cut_off": int,
    "one_sided": bool,
    "weight": float,
    "rtt_ms": float,
    "availability": float,
    "messages": int,
    "bytes": int,
}
"""Attribute of a link -> its type; ``rtt_ms`` is the median."""

Row = Mapping[str, Any]

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XML_TYPES = {str: "string", int: "long", float: "double", bool: "boolean"}
_COLOURS = {"red": "#c62828", "grey": "#888888"}


@dataclass(frozen=True)
class Graph:
    """A mesh to be written.

    Attributes:
        name: of the mesh.
        daemons: rows with ``id`` and some of :data:`DAEMON`.
        links: rows with ``src`` and ``dst``, each link once, and some of :data:`LINK`.
    """

    name: str
    daemons: Iterable[Row]
    links: Iterable[Row]


def check_ending(path: Path) -> None:
    """Check that the name of a file says which format a graph is to have.

    Raises:
        TopologyError: it does not.
    """
    if path.suffix.lower() not in WRITERS:
        raise TopologyError(f"{path}: a graph's file ends in one of {', '.join(WRITERS)}")


def write_graph(path: Path, graph: Graph) -> None:
    """Write a graph in the format that the ending of ``path`` names, as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", errors="replace") as file:
            WRITERS[path.suffix.lower()](file, graph)
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _known(row: Row, types: Mapping[str, type]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a row that are known."""
    for name, kind in types.items():
        if (value := row.get(name)) is not None:
            yield name, kind(value)


# GraphML and GEXF


def _attribute(value: Any) -> str:
    """Return a value as a quoted attribute of XML, which cannot have all characters."""
    return quoteattr(_NO_XML.sub("\ufffd", _text(value)))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_graphml(file: TextIO, graph: Graph) -> None:
    write = file.write
    write('<?xml version="1.0" encoding="UTF-8"?>\n')
    write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
    for owner, types in (("node", DAEMON), ("edge", LINK)):
        for name, kind in types.items():
            write(
                f'<key id="{owner}_{name}" for="{owner}" attr.name="{name}"'
                f' attr.type="{_XML_TYPES[kind]}"/>\n'
            )
    write(f'<graph id={_attribute(graph.name)} edgedefault="undirected">\n')
    for row in graph.daemons:
        write(f"<node id={_attribute(row['id'])}>{_graphml_data('node', row, DAEMON)}</node>\n")
    for row in graph.links:
        ends = f"source={_attribute(row['src'])} target={_attribute(row['dst'])}"
        write(f"<edge {ends}>{_graphml_data('edge', row, LINK)}</edge>\n")
    write("</graph>\n</graphml>\n")


def _graphml_data(owner: str, row: Row, types: Mapping[str, type]) -> str:
    return "".join(
        f'<data key="{owner}_{name}">{escape(_NO_XML.sub(chr(0xFFFD), _text(value)))}</data>'
        for name, value in _known(row, types)
    )


def _write_gexf(file: TextIO, graph: Graph) -> None:
    write = file.write
    write('<?xml version="1.0" encoding="UTF-8"?>\n')
    write('<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">\n')
    write(f"<meta><description>{escape(_NO_XML.sub(chr(0xFFFD), graph.name))}</description></meta>")
    write('\n<graph mode="static" defaultedgetype="undirected">\n')
    for owner, types in (("node", DAEMON), ("edge", LINK)):
        write(f'<attributes class="{owner}" mode="static">\n')
        for name, kind in types.items():
            write(f'<attribute id="{name}" title="{name}" type="{_XML_TYPES[kind]}"/>\n')
        write("</attributes>\n")
    write("<nodes>\n")
    for row in graph.daemons:
        name = _attribute(row["id"])
        write(f"<node id={name} label={name}>{_gexf_values(row, DAEMON)}</node>\n")
    write("</nodes>\n<edges>\n")
    for number, row in enumerate(graph.links):
        ends = f"source={_attribute(row['src'])} target={_attribute(row['dst'])}"
        write(f'<edge id="{number}" {ends}>{_gexf_values(row, LINK)}</edge>\n')
    write("</edges>\n</graph>\n</gexf>\n")


def _gexf_values(row: Row, types: Mapping[str, type]) -> str:
    values = (
        f'<attvalue for="{name}" value={_attribute(value)}/>' for name, value in _known(row, types)
    )
    return f"<attvalues>{''.join(values)}</attvalues>"


# NetJSON


def _write_netjson(file: TextIO, graph: Graph) -> None:
    head = {
        "type": "NetworkGraph",
        "label": graph.name,
        "protocol": "pubsubd",
        "version": pubsubd.__version__,
        "metric": "rtt_ms",
    }
    file.write(json.dumps(head)[:-1] + ', "nodes": [')
    _write_items(
        file, ({"id": row["id"], "properties": dict(_known(row, DAEMON))} for row in graph.daemons)
    )
    file.write('], "links": [')
    _write_items(file, map(_netjson_link, graph.links))
    file.write("]}\n")


def _netjson_link(row: Row) -> dict[str, Any]:
    properties = dict(_known(row, LINK))
    cost = properties.get("rtt_ms", properties.get("weight", 1.0))
    return {"source": row["src"], "target": row["dst"], "cost": cost, "properties": properties}


def _write_items(file: TextIO, items: Iterable[Mapping[str, Any]]) -> None:
    separator = "\n"
    for item in items:
        file.write(separator + json.dumps(item))
        separator = ",\n"


# Graphviz


def _write_dot(file: TextIO, graph: Graph) -> None:
    file.write(f"graph {_quoted(graph.name)} {{\n")
    file.write('  node [shape=box, style=rounded, fontname="sans-serif"]\n')
    file.write('  edge [fontname="sans-serif", fontsize=10]\n')
    for row in graph.daemons:
        shown = dict(_known(row, DAEMON))
        if shown["state"] == "gone":
            shown |= {"color": _COLOURS["grey"], "style": "dashed"}
        elif shown.get("articulation"):
            shown |= {"color": _COLOURS["red"], "penwidth": 2}
        file.write(f"  {_quoted(row['id'])} [{_dot_values(shown)}]\n")
    for row in graph.links:
        shown = dict(_known(row, LINK))
        if "rtt_ms" in shown:
            shown["label"] = f"{shown['rtt_ms']:.3g} ms"
        if shown.get("bridge"):
            shown |= {"color": _COLOURS["red"], "penwidth": 2}
        if shown.get("one_sided"):
            shown["style"] = "dashed"
        ends = f"{_quoted(row['src'])} -- {_quoted(row['dst'])}"
        file.write(f"  {ends} [{_dot_values(shown)}]\n")
    file.write("}\n")


def _quoted(value: Any) -> str:
    """Return a string of DOT, of which a backslash would begin an escape."""
    text = _NO_XML.sub("\ufffd", _text(value)).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\r\n]+", " ", text) + '"'


def _dot_values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_quoted(value)}" for name, value in values.items())


WRITERS: dict[str, Callable[[TextIO, Graph], None]] = {
    ".graphml": _write_graphml,
    ".gexf": _write_gexf,
    ".json": _write_netjson,
    ".dot": _write_dot,
}
"""Ending of a file -> the writer of its format."""
