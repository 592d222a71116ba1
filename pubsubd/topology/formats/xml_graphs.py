"""GraphML and GEXF, read in one pass.

Memory is that of the links alone. A document type declaration is refused, since entities can make
any amount of text of a few bytes, and neither format has a use for one.
"""

from __future__ import annotations

from typing import BinaryIO
from xml.parsers import expat

from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.links import Links

_CHUNK = 1 << 20
_LABELS = {"label", "name", "nodelabel"}  # attributes of GraphML's nodes, in lower case
_LONGEST = 1_000  # characters of a label


class _Reader:
    """Handlers for the elements of one document."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._both_ways = True
        self._graphs = self._depth = 0
        self._nodes: list[str] = []  # that we are in; GraphML and GEXF nest them
        self._label_keys: set[str] = set()
        self._text: list[str] | None = None
        self._graph_depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        kind = name.rpartition(" ")[2]
        self._depth += 1
        handler = getattr(self, f"start_{kind.lower()}", None)
        if handler is not None:
            handler(attributes)

    def start_graph(self, attributes: dict[str, str]) -> None:
        if not self._nodes:
            self._graphs += 1
            if self._graphs > 1:
                raise FormatError("it has more than one graph")
            kind = attributes.get("edgedefault", attributes.get("defaultedgetype", "undirected"))
            self._both_ways = kind != "directed"

    def start_key(self, attributes: dict[str, str]) -> None:
        is_label = attributes.get("attr.name", "").lower() in _LABELS
        if is_label and attributes.get("for") in {"node", "all"}:
            self._label_keys.add(attributes.get("id", ""))

    def start_node(self, attributes: dict[str, str]) -> None:
        self._links.daemon(attributes.get("id", ""), attributes.get("label"))
        self._nodes.append(attributes["id"])

    def start_edge(self, attributes: dict[str, str]) -> None:
        told = attributes.get("directed", attributes.get("type", ""))
        both_ways = {"true": False, "directed": False, "": self._both_ways}.get(told, True)
        src, dst = attributes.get("source", ""), attributes.get("target", "")
        self._links.add(src, dst, both_ways=both_ways)

    def start_hyperedge(self, attributes: dict[str, str]) -> None:
        raise FormatError("it has hyperedges, links of more than two ends")

    def start_data(self, attributes: dict[str, str]) -> None:
        if self._nodes and attributes.get("key") in self._label_keys:
            self._text = []

    def start_nodelabel(self, attributes: dict[str, str]) -> None:  # yEd's
        if self._nodes:
            self._text = []

    def text(self, text: str) -> None:
        if self._text is not None and len(self._text) < _LONGEST:
            self._text.append(text)

    def end(self, name: str) -> None:
        kind = name.rpartition(" ")[2].lower()
        self._depth -= 1
        if kind in {"data", "nodelabel"} and self._text is not None:
            self._links.daemon(self._nodes[-1], "".join(self._text).strip()[:_LONGEST])
            self._text = None
        elif kind == "node":
            self._nodes.pop()


def read_xml(file: BinaryIO, links: Links) -> None:
    """Add the links of a GraphML or GEXF file.

    Raises:
        FormatError: it is malformed, or has a document type declaration.
    """
    reader = _Reader(links)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    parser.buffer_text = True
    try:
        while chunk := file.read(_CHUNK):
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError) as error:  # the latter of its encoding
        raise FormatError(str(error)) from error


def _refuse(*_: object) -> None:
    raise FormatError("it has a document type declaration (<!DOCTYPE ...>): remove it")
