"""Tables with a link a row: which columns hold its ends, and the rows of those that are converted.

A plain list, whose first two columns are the ends and whose fields have neither quotes nor spaces,
is left to Spark. The beginning of any other table says what it is, and a table that does not say it
is refused, since two columns of anything make a graph.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from pubsubd.topology.formats.errors import FormatError, UnevenError
from pubsubd.topology.formats.links import Links
from pubsubd.topology.formats.text_graphs import lines_of

ENDS = (
    ("src", "dst"),
    ("source", "target"),
    ("from", "to"),
    ("source", "destination"),
    ("src", "dest"),
    ("node1", "node2"),
    ("nodea", "nodeb"),
    ("id1", "id2"),
    ("router", "neighbor"),
    ("local", "remote"),
    ("u", "v"),
)
"""Names of the columns with the ends, without signs between letters, ``node`` and ``id``."""

PLAIN_TITLES = (("src", "dst"), ("source", "target"), ("from", "to"), ("fromnodeid", "tonodeid"))
"""Names of the first two columns of a plain list, in lower case."""

_DELIMITERS = ("\t", ";", "|", ",")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?").fullmatch
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]|$)").match
_LETTER = re.compile(r"[^\W\d_]").search
_USUAL = 0.9  # share of rows that have to be alike for a table to be meant
_FEW = 3  # rows from which on their columns tell something
_WORDS = 4  # in what a sentence has between its commas, and few names have
_BYTES = re.compile("[\udc80-\udcff]").search  # that are no UTF-8


@dataclass(frozen=True)
class Columns:
    """Columns of a table: each a number from 1 on, or the name that the header has for it."""

    src: str
    dst: str
    weight: str | None = None


@dataclass(frozen=True)
class Table:
    """How to read a table.

    Attributes:
        delimiter: of its columns; a space stands for any spaces, tabs and commas.
        src, dst, weight: places of the columns, from 0 on.
        header: the first row has the columns' names.
        comment: what lines that are none begin with.
    """

    delimiter: str
    src: int = 0
    dst: int = 1
    weight: int | None = None
    header: bool = False
    comment: str = "#"


def split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line.

    Raises:
        FormatError: a field is too long, or a quote is not closed.
    """
    if delimiter == " " and '"' not in line:
        return re.split(r"[\s,]+", line.strip())
    if '"' not in line:
        return [field.strip() for field in line.split(delimiter)]
    text = re.sub(r"[\s,]+", " ", line.strip()) if delimiter == " " else line
    try:
        (fields,) = csv.reader([text], delimiter=delimiter, strict=True, skipinitialspace=True)
    except csv.Error as error:
        raise FormatError(str(error)) from error
    except ValueError as error:
        raise FormatError("a row has several lines") from error
    return [field.strip() for field in fields]


def is_plain(lines: Sequence[str], table: Table) -> bool:
    """Tell whether Spark reads a table as it is.

    Args:
        lines: its first lines, without comments.
        table: how it is to be read.
    """
    if table.delimiter not in {"\t", ",", " "} or table.comment != "#":
        return False
    if (table.src, table.dst, table.weight) != (0, 1, None):
        return False
    rows = [split(line, table.delimiter) for line in lines]
    if table.header:
        first = rows.pop(0)
        if tuple(one.lower() for one in first[:2]) not in PLAIN_TITLES:
            return False
    ends = [one for row in rows for one in row[:2]]
    quoted = any('"' in line for line in lines)
    return not quoted and not any(re.search(r"[\s,]", one) for one in ends)


def recognise(
    lines: Sequence[str],
    comment: str = "#",
    columns: Columns | None = None,
    *,
    lenient: bool = False,
    of_folder: bool = False,
) -> Table:
    """Return how a table is to be read, from its first lines.

    Args:
        lines: whole lines, without empty ones and comments; at least one.
        comment: what comments begin with.
        columns: those with the ends, if somebody has said which.
        lenient: rows may have several widths.
        of_folder: nobody has named the file, so that it has to look like a list of links.

    Raises:
        FormatError: it does not say what its columns are, or is no table.
    """
    delimiter, widths = _find_delimiter(lines)
    usual = max(set(widths), key=widths.count)
    if len(set(widths)) > 1 and not lenient:
        _refuse_uneven(lines, widths, usual)
    if usual < 2 and columns is None:
        raise FormatError("it has one column, and a link has two ends")
    rows = [_fields(line, delimiter) for line in lines]
    rows = [row for row in rows if len(row) == usual] or rows
    if columns is not None:
        return _by_columns(rows[0], delimiter, comment, columns)
    titles = [_title(one) for one in rows[0]]
    for src, dst in ENDS:
        if src in titles and dst in titles:
            places = (titles.index(src), titles.index(dst))
            return Table(delimiter, *places, header=True, comment=comment)
    if _has_header(rows):
        raise FormatError(
            f"its columns are called {', '.join(rows[0])[:80]}, which does not say where the ends"
            " of a link are: use --columns src=1,dst=2"
        )
    _check_kinds(rows, of_folder=of_folder)
    return Table(delimiter, comment=comment)


def _refuse_uneven(lines: Sequence[str], widths: Sequence[int], usual: int) -> NoReturn:
    if usual >= 2 and widths.count(usual) >= _USUAL * len(widths):
        odd = next(place for place, width in enumerate(widths) if width != usual)
        raise UnevenError(
            f"most of its rows have {usual} columns, and {lines[odd].strip()[:60]!r} has"
            f" {widths[odd]}: --lenient reads it all the same"
        )
    raise FormatError(
        f"it is no list of links: its rows have {min(widths)} to {max(widths)} columns, as prose or"
        " an adjacency list has"
    )


def _find_delimiter(lines: Sequence[str]) -> tuple[str, list[int]]:
    """Return the delimiter by which most rows have the same width, and the widths."""
    for delimiter in _DELIMITERS:
        if sum(delimiter in line for line in lines) >= _USUAL * len(lines):
            widths = [len(_fields(line, delimiter)) for line in lines]
            if delimiter != "," or len(set(widths)) == 1:
                return delimiter, widths
    return " ", [len(_fields(line, " ")) for line in lines]


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return split(line, delimiter)
    except FormatError:
        return line.split(delimiter)


def _by_columns(first: list[str], delimiter: str, comment: str, columns: Columns) -> Table:
    named = [one.lower() for one in first]
    header = False
    places: list[int | None] = []
    for which in (columns.src, columns.dst, columns.weight):
        if which is None:
            places.append(None)
        elif which.isdigit():
            if not 1 <= int(which) <= len(first):
                raise FormatError(f"it has {len(first)} columns, and no column {which}")
            places.append(int(which) - 1)
        elif which.lower() in named:
            places.append(named.index(which.lower()))
            header = True
        else:
            raise FormatError(f"none of its columns is called {which!r}: {', '.join(first)[:80]}")
    src, dst, weight = places[0] or 0, places[1] or 0, places[2]
    if not header:  # by numbers: a first row with names for numbers, or for ends, is a header
        titles = [_title(one) for one in first]
        header = (titles[src], titles[dst]) in ENDS
        if weight is not None and not _NUMBER(first[weight]):
            header = True
    return Table(delimiter, src, dst, weight, header, comment)


def _title(text: str) -> str:
    """Return the name of a column as :data:`ENDS` has it: ``from`` for ``FromNodeId``."""
    name = re.sub(r"[^a-z0-9]", "", text.lower())
    short = re.sub(r"^(node|id)|(node)?(id|name|ip|host)?$", "", name)
    known = {end for pair in ENDS for end in pair}
    return next((one for one in (name, short) if one in known), name)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first row has text in a column that is numbers in all others."""
    if len(rows) < _FEW:
        return False
    return any(
        _LETTER(title) and not _NUMBER(title) and all(_NUMBER(row[place]) for row in rows[1:])
        for place, title in enumerate(rows[0])
    )


def _check_kinds(rows: Sequence[Sequence[str]], *, of_folder: bool) -> None:
    """Check that the first two columns may be the ends of links.

    Raises:
        FormatError: they are of different kinds, or times, or prose, or a matrix; or, if nobody has
            named the file, no name is in both.
    """
    hint = "if they are links all the same, use --columns src=1,dst=2"
    first, second = ({row[place] for row in rows} for place in (0, 1))
    wordy = sum(max(len(one.split()) for one in row[:2]) >= _WORDS for row in rows)
    if wordy > len(rows) / 2 and not first & second:
        raise FormatError(f"it looks like prose: {hint}")
    if len(rows) < _FEW:
        return
    if len(rows) == len(rows[0]) and {one for row in rows for one in row} <= {"0", "1"}:
        raise FormatError("it looks like a matrix: save it in coordinates, as Matrix Market has it")
    if any(all(_DATE(one) for one in column) for column in (first, second)):
        raise FormatError(f"one of its first two columns has times: {hint}")
    numbers = [[bool(_NUMBER(one)) for one in column] for column in (first, second)]
    differ = any(all(numbers[one]) and not any(numbers[1 - one]) for one in (0, 1))
    if differ and not first & second:
        raise FormatError(f"its first two columns have names and numbers: {hint}")
    if of_folder and len(rows[0]) > 2 and len(first) == len(rows) and not first & second:
        raise FormatError("no name is in both of its first two columns")


# Reading what Spark does not


def read_table(file: BinaryIO, links: Links, table: Table) -> None:
    """Add the links of a table, one a row; a row that has none is rejected.

    Raises:
        FormatError: it is too large.
    """
    header = table.header
    for line in lines_of(file, "surrogateescape"):
        if not line.strip() or line.startswith(table.comment):
            continue
        if header:
            header = False
            continue
        _read_row(line, links, table)


def _read_row(line: str, links: Links, table: Table) -> None:
    if not line.isascii() and _BYTES(line):
        links.reject("utf8", line.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        return
    try:
        fields = split(line, table.delimiter)
        src, dst = fields[table.src], fields[table.dst]
        weight = None if table.weight is None else float(fields[table.weight])
    except (FormatError, IndexError):
        links.reject("short", line)
        return
    except ValueError:
        links.reject("number", line)
        return
    if not src or not dst:
        links.reject("short", line)
    elif weight is not None and not math.isfinite(weight):
        links.reject("number", line)
    else:
        links.add(src, dst, weight=weight)


# Other rows of links


_ARROW = re.compile(
    r'\s*("[^"]*"|\S+?)\s*(<?->|<?=>|→|↔|--)\s*("[^"]*"|[^\s;\[]+)\s*;?\s*'
).fullmatch


def are_arrows(lines: Iterable[str]) -> bool:
    """Tell whether all rows are as ``a -> b`` or ``a -- b``."""
    return all(map(_ARROW, lines))


def read_arrows(file: BinaryIO, links: Links) -> None:
    """Add the links of rows as ``a -> b``, or ``a -- b`` and ``a <-> b`` for both ways."""
    for line in _rows(file):
        found = _ARROW(line)
        if found is None:
            links.reject("short", line)
        else:
            src, arrow, dst = found.groups()
            both_ways = arrow in {"--", "↔"} or arrow.startswith("<")
            links.add(src.strip('"'), dst.strip('"'), both_ways=both_ways)


_KEYED = re.compile(r"\s*([^\s:]+):(\s.*)?").fullmatch


def is_adjacency(lines: Sequence[str]) -> bool:
    """Tell whether rows are a daemon and its neighbours: all of it must be seen.

    They are if each is as ``a: b c``; or if each begins with another name, all names begin one, and
    it is no list of two columns and a number: rows have several widths or more names, or each link
    is in the rows of both ends.
    """
    if all(_KEYED(line) and _KEYED(line.split()[0]) for line in lines):
        return True
    words = [line.split() for line in lines]
    first = {one[0] for one in words}
    widths = {len(one) for one in words}
    if not len(first) == len(words) > 1 or (max(widths) < 3 and len(widths) == 1):
        return False
    if not all(one in first for row in words for one in row):
        return False
    arcs = {(row[0], one) for row in words for one in row[1:]}
    named = any(not _NUMBER(one) for one in first)
    return len(widths) > 1 or named or arcs == {(dst, src) for src, dst in arcs}


def read_adjacency(file: BinaryIO, links: Links) -> None:
    """Add the links of an adjacency list: a daemon, and those that it has arcs to."""
    for line in _rows(file):
        src, *others = line.replace(":", " ", 1).split() if _KEYED(line) else line.split()
        links.daemon(src)
        for dst in others:
            links.add(src, dst.strip(","))


def read_olsr(file: BinaryIO, links: Links) -> None:
    """Add the links of the topology table of OLSR's plugin txtinfo.

    Raises:
        FormatError: it has another form.
    """
    part, titles = "", list[str]()
    for line in lines_of(file, "replace"):
        fields = [one.strip() for one in re.split(r"\t| {2,}", line.strip())]
        if line.startswith("Table: "):
            part, titles = line.removeprefix("Table: ").strip(), []
        elif part == "Topology" and line.strip():
            if not titles:
                titles = [re.sub(r"[^a-z]", "", one.lower()) for one in fields]
                if not {"destip", "lasthopip"} <= set(titles):
                    raise FormatError("its table of the topology has no 'Dest. IP', 'Last hop IP'")
            elif len(fields) < 2:
                links.reject("short", line)
            else:
                links.add(fields[titles.index("lasthopip")], fields[titles.index("destip")])


def _rows(file: BinaryIO) -> Iterator[str]:
    for line in lines_of(file, "replace"):
        if line.strip() and not line.startswith("#"):
            yield line
