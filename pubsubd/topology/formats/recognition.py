"""Which format a file has, by its first 64 KiB.

=========== ====================================================================================
parquet     the first bytes are ``PAR1``
jsonl       rows of daemons: lines of JSON with the time and the observer
csv         rows of daemons: the first line is the names of the columns
list        a plain list, which Spark reads as it is
others      are converted: the keys of :data:`pubsubd.topology.formats.conversion.READERS`
=========== ====================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pubsubd.mesh.edges import HEADERS
from pubsubd.topology.formats import json_graphs, tables
from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.links import Links
from pubsubd.topology.formats.tables import Columns, Table

PEEKED = 65_536
"""Bytes of a file that tell what it is."""

_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_LOOKED_AT = 1_000  # lines of a table that tell how it is to be read
_GRAPH_KEYS = re.compile(r'"(nodes|links|edges|vis|topology|elements|batadv|collection)"\s*:')
_ROOT = re.compile(
    r"(\s*<(\?.*?\?|!--.*?--)>)*\s*<(!DOCTYPE\s+)?(?P<root>[A-Za-z][\w.:-]*)", re.DOTALL
).match
_JSON = re.compile(r'\{|\[\s*[][{"]').match

_PACKED = {
    b"PK\x03\x04": "a ZIP archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3": "an SQLite database",
}
_ONE_NODE = "it has what one node knows, not the links of a mesh"
_GIVE_COLUMNS = "save it as a list of two columns"
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (r"\[?B\.A\.T\.M\.A\.N\.", "a table of batctl", f"{_ONE_NODE}; batadv-vis -f jsondoc has them"),
    (r"\s*(IF\s+Neighbor|Originator)\s+last-seen", "a table of batctl", _ONE_NODE),
    (r"OpenVPN (CLIENT LIST|STATISTICS)|TITLE[,\t]OpenVPN", "a status file of OpenVPN", _ONE_NODE),
    (r"interface: \S+\n\s+(public|private) key: ", "a table of wg show", _ONE_NODE),
    (r"(\S+\t)?[A-Za-z0-9+/]{43}=\t", "a dump of wg show", _ONE_NODE),
    (r"traceroute to ", "the output of traceroute", _ONE_NODE),
    (r"(default|\S+/\d+) (via|dev) ", "a table of ip route", _ONE_NODE),
    (r"Kernel IP routing table", "a table of route", _ONE_NODE),
    (r"\S+ dev \S+ (lladdr|FAILED|INCOMPLETE|NOARP|PERMANENT)\b", "a table of ip neigh", _ONE_NODE),
    (r"add (interface|neighbour|route|xroute) \S", "a dump of babeld", _ONE_NODE),
    (r"(#[^\n]*\n|\s*\n)*[-*+] \S", "a list of items", "it has no links"),
    (r"(strict\s+)?(di)?graph\b[^\n]*\{", "Graphviz DOT", "gv2gml makes GML of it"),
    (r">>(graph6|sparse6|digraph6)<<", "graph6", "networkx writes it as GraphML"),
    (r"(?i)dl\s+n\s*=", "UCINET DL", _GIVE_COLUMNS),
    (r"(?i)nodedef\s*>", "GDF", _GIVE_COLUMNS),
    (r"LEDA\.GRAPH", "a LEDA graph", _GIVE_COLUMNS),
    (r"(c\b[^\n]*\n)*p\s+(edge|col|sp|max|min|aux)\s", "a DIMACS graph", _GIVE_COLUMNS),
    (r"([^#\s][^\n]*\n)+#\s*\n[^#\n]", "a Trivial Graph File", _GIVE_COLUMNS),
    (r"#!", "a program", "it has no links"),
)
"""Beginning of a file -> its name, and why it is refused or how to go on."""


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes:
        data: its first bytes, unpacked, :data:`PEEKED` at most.
        whole: that is all of it.
        name: of the file, without the ending of its packing.
    """

    data: bytes
    whole: bool
    name: str

    @property
    def ending(self) -> str:
        """The ending of the name, in lower case and without the dot."""
        return self.name.lower().rpartition(".")[2] if "." in self.name else ""

    @cached_property
    def text(self) -> str:
        """The text of it, without a byte order mark."""
        return self.data.decode("utf-8", "replace").removeprefix("\ufeff")

    @cached_property
    def lines(self) -> list[str]:
        """Whole lines, with empty ones and comments; the only line even if it is cut off."""
        lines = self.text.split("\n")
        lines = lines if self.whole or len(lines) == 1 else lines[:-1]
        return [line.rstrip("\r") for line in lines]

    def rows(self, comment: str = "#") -> list[str]:
        """Return the lines that are neither empty nor comments."""
        return [line for line in self.lines if line.strip() and not line.startswith(comment)]


@dataclass(frozen=True)
class Format:
    """Format of a file.

    Attributes:
        name: in the table above.
        table: how to read it if it is a table that is converted.
    """

    name: str
    table: Table | None = None


@dataclass(frozen=True)
class Wishes:
    """Wishes of the user, and how the file was found.

    Attributes:
        columns: the columns of tables that have the ends.
        lenient: tables may have rows of several widths.
        of_folder: nobody has named the file, so that it has to look like a list of links.
    """

    columns: Columns | None = None
    lenient: bool = False
    of_folder: bool = False


def recognise(head: Head, wishes: Wishes) -> Format:
    """Return the format of a file that is not empty.

    Raises:
        FormatError: it has no links of a mesh, or none that can be read.
    """
    if head.data.startswith(b"PAR1"):
        return Format("parquet")
    if _BINARY.search(head.data):
        what = next((what for magic, what in _PACKED.items() if head.data.startswith(magic)), "")
        raise FormatError(f"it is {what}" if what else "it is not text in UTF-8")
    start = head.text.lstrip()
    if _JSON(start):
        return _recognise_json(head, start)
    if start.startswith("<"):
        return _recognise_xml(start)
    first = next((line for line in head.lines if line.strip()), "").strip()
    names = [name.strip().strip('"') for name in first.split(",")]
    if ",".join(names) in HEADERS:
        return Format("csv")
    if {"ts", "src", "dst"} <= set(names):
        raise FormatError(f"its columns are not {HEADERS[0]}")
    return _recognise_text(head, wishes)


def _recognise_xml(start: str) -> Format:
    # Instructions and comments may come first, and a declaration of the type, refused later.
    found = re.match(
        r"(\s*<(\?.*?\?|!--.*?--)>)*\s*<(!DOCTYPE\s+)?([A-Za-z][\w.:-]*)", start, re.DOTALL
    )
    root = found[4].rpartition(":")[2].lower() if found else ""
    if root in {"graphml", "gexf"}:
        return Format("xml")
    raise FormatError(f"it is {'HTML' if root == 'html' else 'XML'}, but neither GraphML nor GEXF")


# JSON


def _recognise_json(head: Head, start: str) -> Format:
    rows = [line for line in head.lines if line.strip()]
    values = [_value(line) for line in rows[:_LOOKED_AT]] if start.startswith("{") else []
    objects = [one for one in values if isinstance(one, dict)]
    if any({"ts", "observer"} & one.keys() for one in objects):
        return Format("jsonl")
    if objects and len(objects) >= len(values) / 2:
        # Of a document of one line, too, there is one object.
        if any(ends[0] in one and ends[1] in one for one in objects for ends in json_graphs.ENDS):
            return Format("json-lines")
        if len(objects) > 1:
            return Format("jsonl")  # rows of daemons, of which none is whole
    one_row = head.whole and len(rows) == 1 and start.startswith("{") and not objects
    if one_row and head.ending in {"jsonl", "ndjson", "json"}:
        return Format("jsonl")  # it was cut off
    if head.whole:
        json_graphs.add_document(json_graphs.parse(head.text), Links())
    elif not _GRAPH_KEYS.search(start) and not start.startswith("["):
        raise FormatError("it is JSON without links of a mesh")
    return Format("json")


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


# Text


def _recognise_text(head: Head, wishes: Wishes) -> Format:
    start = head.text.lstrip()
    for beginning, what, why in _REFUSED:
        if re.match(beginning, start):
            raise FormatError(f"it looks like {what}: {why}")
    if start.startswith("[") and _value(head.text) is not None:
        raise FormatError("it is JSON without links of a mesh")
    if head.ending in {"jsonl", "ndjson", "json"}:
        raise FormatError("it is not JSON")
    if start.startswith("%%MatrixMarket"):
        return Format("matrix")
    if re.match(r"%\s*(sym|asym|bip)\b", start):
        return Format("konect")
    if re.search(r"^Table: \w", start, re.MULTILINE):
        if re.search(r"^Table: Topology$", start.replace("\r", ""), re.MULTILINE):
            return Format("olsr")
        raise FormatError(
            f"it looks like a table of OLSR: {_ONE_NODE}; the table Topology has them"
        )
    if re.match(r"(%[^\n]*\n|\s*\n)*\*(network|vertices)\b", start, re.IGNORECASE):
        return Format("pajek")
    if re.match(r'(#[^\n]*\n|\s*\n|\w+\s+("[^"]*"|[^\s"\[]+)\s*\n)*graph\s*\[', start):
        return Format("gml")
    comment = "%" if start.startswith("%") else "#"
    rows = head.rows(comment)
    if not rows:
        return Format("list" if comment == "#" else "table", Table(" ", comment=comment))
    return _recognise_rows(head, rows, comment, wishes)


def _recognise_rows(head: Head, rows: Sequence[str], comment: str, wishes: Wishes) -> Format:
    if wishes.columns is None:
        if _is_metis(head):
            return Format("metis")
        if tables.are_arrows(rows):
            return Format("arrows")
        if head.whole and tables.is_adjacency(rows):
            return Format("adjacency")
    shown = rows[:_LOOKED_AT]
    table = tables.recognise(
        shown, comment, wishes.columns, lenient=wishes.lenient, of_folder=wishes.of_folder
    )
    if wishes.lenient and wishes.columns is None and not table.header:
        plain = table.delimiter in {"\t", ",", " "} and comment == "#"
    else:
        plain = tables.is_plain(shown, table)
    return Format("list") if plain else Format("table", table)


def _is_metis(head: Head) -> bool:
    """Tell whether a text is a METIS file: as many lines as its first one says, all of vertices."""
    lines = [line.split() for line in head.lines if not line.startswith("%")]
    while lines and not lines[0]:
        lines.pop(0)
    if not lines or not 2 <= len(lines[0]) <= 4 or not all(map(_is_whole, lines[0])):
        return False
    count, edges = int(lines[0][0]), int(lines[0][1])
    rows = lines[1:]
    if not all(_is_whole(word) for row in rows for word in row):
        return False
    if head.ending in {"graph", "metis"}:
        return True
    if len(lines[0]) > 2 or any(int(word) > count for row in rows for word in row):
        return False  # weights tell nothing, so the ending has to
    if not head.whole:
        return len({len(row) for row in rows}) > 1 and sum(map(len, rows)) <= 2 * edges
    while len(rows) > count and not rows[-1]:
        rows.pop()
    arcs = {(str(number), word) for number, row in enumerate(rows, 1) for word in row}
    return len(rows) == count and len(arcs) == 2 * edges and arcs == {(b, a) for a, b in arcs}


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdigit()
