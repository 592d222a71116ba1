"""Formats of graphs in lines of text: GML, Pajek, METIS, KONECT and Matrix Market."""

from __future__ import annotations

import contextlib
import html
import io
import re
from array import array
from collections.abc import Iterator
from typing import BinaryIO

from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.links import Links

LONGEST_LINE = 1 << 26
"""Characters of a line at most."""


def lines_of(file: BinaryIO, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a text in UTF-8, without their ends.

    Raises:
        FormatError: it is not UTF-8, or a line has over :data:`LONGEST_LINE` characters.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", errors)
    try:
        while line := text.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise FormatError(f"a line has over {LONGEST_LINE:,} characters")
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FormatError("it is not text in UTF-8") from error
    finally:
        with contextlib.suppress(ValueError):  # it is closed already
            text.detach()  # it would close the file


# GML


_GML_KEYS = {"id", "label", "source", "target", "directed"}
_TOKENS = re.compile(r'"[^"]*"|[][]|[^][\s"]+')


def read_gml(file: BinaryIO, links: Links) -> None:
    """Add the links of a GML file: nodes with ``id`` and ``label``, edges between ids.

    Raises:
        FormatError: it is malformed.
    """
    levels: list[tuple[str, dict[str, str]]] = []
    key = ""
    ends = Links()  # by number, since a graph may say at its end that it is directed
    edges = array("i")
    directed = "0"
    for token in _gml_tokens(file):
        if token == "]":
            if not levels or key:
                raise FormatError("it has a ']' too many")
            name, values = levels.pop()
            where = [one for one, _ in levels]
            if where == ["graph"] and name == "node":
                links.daemon(values.get("id", ""), values.get("label"))
            elif where == ["graph"] and name == "edge":
                edges.extend(ends.daemon(values.get(key, "")) for key in ("source", "target"))
            elif not levels and name == "graph":
                directed = values.get("directed", "0")
        elif not key:
            key = token.lower()
        elif token == "[":
            # What is below a node or an edge, as its place in a picture, is of no use.
            levels.append((key, {}))
            key = ""
        else:
            if levels and key in _GML_KEYS:
                levels[-1][1].setdefault(key, html.unescape(token.strip('"')))
            key = ""
    if levels or key:
        raise FormatError("it ends within the graph")
    names = ends.ids()
    for src, dst in zip(edges[::2], edges[1::2], strict=True):
        links.add(names[src], names[dst], both_ways=directed != "1")


def _gml_tokens(file: BinaryIO) -> Iterator[str]:
    held = ""
    for line in lines_of(file):
        if not held and line.lstrip().startswith("#"):
            continue
        held = f"{held}\n{line}" if held else line
        if held.count('"') % 2:  # a text goes on in the next line
            if len(held) > LONGEST_LINE:
                break
            continue
        yield from _TOKENS.findall(held)
        held = ""
    if held:
        raise FormatError("a quote is not closed")


# Pajek


_VERTEX = re.compile(r'\s*(\d+)(?:\s+(?:"([^"]*)"|(\S+)))?')


def read_pajek(file: BinaryIO, links: Links) -> None:
    """Add the links of a Pajek network, of which all sections of links count.

    Raises:
        FormatError: it is malformed, or has several networks or two kinds of vertices.
    """
    part, most, row = "", 0, 0
    for line in lines_of(file):
        words = line.split()
        if not words or line.lstrip().startswith("%"):
            continue
        if words[0].startswith("*"):
            part, row = words[0].lower(), 0
            if part == "*vertices":
                if most:
                    raise FormatError("it has more than one network")
                if len(words) > 2:
                    raise FormatError("it has vertices of two kinds: its links are no mesh")
                most = _whole(words[1]) if len(words) == 2 else 0
                links.expect(most)
                for number in range(1, most + 1):
                    links.daemon(str(number))
            elif part not in _PAJEK_PARTS:
                break  # partitions and vectors follow
        elif part == "*vertices":
            found = _VERTEX.match(line)
            if found is None:
                raise FormatError(f"{line[:60]!r} is no vertex")
            _check_number(found[1], most)
            links.daemon(str(int(found[1])), found[2] or found[3])
        elif part == "*matrix":
            row += 1
            for column, value in enumerate(words, 1):
                if _real(value):
                    _pajek_link(links, str(row), str(column), most, both_ways=False)
        elif part in _PAJEK_PARTS:
            ends = words[1:] if part.endswith("list") else words[1:2]
            for end in ends:
                _pajek_link(links, words[0], end, most, both_ways=part.startswith("*edges"))


_PAJEK_PARTS = {"*network", "*vertices", "*arcs", "*edges", "*arcslist", "*edgeslist", "*matrix"}


def _pajek_link(links: Links, src: str, dst: str, most: int, *, both_ways: bool) -> None:
    for end in (src, dst):
        _check_number(end, most)
    links.add(str(int(src)), str(int(dst)), both_ways=both_ways)


def _check_number(text: str, most: int) -> None:
    if not 1 <= _whole(text) <= most:
        raise FormatError(f"{text[:60]!r} is none of its {most:,} vertices")


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormatError(f"{text[:60]!r} is no whole number")
    return int(text)


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise FormatError(f"{text[:60]!r} is no number") from error


# METIS


def read_metis(file: BinaryIO, links: Links) -> None:
    """Add the links of a METIS or Chaco file: line i has the neighbours of vertex i.

    Raises:
        FormatError: the lines are not what the first one says.
    """
    rows = (line.split() for line in lines_of(file) if not line.lstrip().startswith("%"))
    first = next((words for words in rows if words), [])
    count, edges = (_whole(text) for text in first[:2])
    form = first[2].zfill(3) if len(first) > 2 else "000"
    weights = int(form[1]) * (_whole(first[3]) if len(first) > 3 else 1)
    skipped, step = int(form[0]) + weights, 1 + int(form[2])
    number = ends = 0
    for words in rows:
        if number == count:
            if words:
                raise FormatError(f"it has more than {count:,} vertices")
            continue
        number += 1
        links.daemon(str(number))
        for word in words[skipped::step]:
            _check_number(word, count)
            links.add(str(number), str(int(word)))
            ends += 1
    if number == count - 1:  # a last line without neighbours may be missing
        number += 1
        links.daemon(str(count))
    if number < count or ends != 2 * edges:
        raise FormatError(
            f"its first line tells of {count:,} vertices and {edges:,} edges,"
            f" and there are {number:,} and {ends / 2:,g}"
        )


# KONECT


def read_konect(file: BinaryIO, links: Links) -> None:
    """Add the links of a KONECT file, whose first line says whether they are directed.

    Raises:
        FormatError: its vertices are of two kinds.
    """
    both_ways = False
    for number, line in enumerate(lines_of(file, "replace")):
        if line.startswith("%"):
            words = line[1:].split()
            if not number and words[:1] == ["bip"]:
                raise FormatError("it has vertices of two kinds (bip): its links are no mesh")
            if not number:
                both_ways = words[:1] == ["sym"]
        elif words := line.split():
            if len(words) < 2:
                links.reject("short", line)
            else:
                links.add(words[0], words[1], both_ways=both_ways)


# Matrix Market


def read_matrix(file: BinaryIO, links: Links) -> None:
    """Add the links of a matrix in coordinates: each entry is an arc from its row to its column.

    scipy's reader is not used: some malformed files end the process.

    Raises:
        FormatError: it is malformed, dense, or not square.
    """
    lines = lines_of(file)
    _, kind, form, _, symmetry, *_ = [*next(lines).lower().split(), *[""] * 5]
    if (kind, form) != ("matrix", "coordinate"):
        raise FormatError("it is no matrix in coordinates: save it as one")
    rows = (line.split() for line in lines if not line.startswith("%") and line.strip())
    size = [_whole(text) for text in next(rows, [])]
    if len(size) != 3 or size[0] != size[1]:
        raise FormatError(f"the matrix is not square, and so no mesh: its size is {size[:2]}")
    links.expect(size[0])
    for number in range(1, size[0] + 1):
        links.daemon(str(number))
    count = 0
    for words in rows:
        for end in words[:2]:
            _check_number(end, size[0])
        if len(words) < 2:
            raise FormatError(f"entry {count + 1:,} has no row and column")
        links.add(str(int(words[0])), str(int(words[1])), both_ways=symmetry != "general")
        count += 1
    if count != size[2]:
        raise FormatError(f"it has {count:,} entries, and its size tells of {size[2]:,}")
