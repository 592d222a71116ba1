"""Conversion of one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pubsubd.topology.formats import json_graphs, tables, text_graphs, xml_graphs
from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.links import Links
from pubsubd.topology.formats.packing import BROKEN, open_unpacked
from pubsubd.topology.formats.recognition import Format

READERS: dict[str, Callable[[BinaryIO, Links], None]] = {
    "adjacency": tables.read_adjacency,
    "arrows": tables.read_arrows,
    "gml": text_graphs.read_gml,
    "json": json_graphs.read_document,
    "json-lines": json_graphs.read_json_lines,
    "konect": text_graphs.read_konect,
    "matrix": text_graphs.read_matrix,
    "metis": text_graphs.read_metis,
    "olsr": tables.read_olsr,
    "pajek": text_graphs.read_pajek,
    "xml": xml_graphs.read_xml,
}
"""Format -> its reader; but a ``table`` is read by :func:`tables.read_table`."""


def read_links(path: Path, form: Format, *, lenient: bool = False) -> Links:
    """Return the links of a file.

    Raises:
        FormatError: it is malformed, or too many of its rows are no links.
        OSError: it cannot be read.
    """
    links = Links()
    try:
        with open_unpacked(path) as file:
            if form.table is not None:
                tables.read_table(file, links, form.table)
            else:
                READERS[form.name](file, links)
    except OSError:
        raise
    except BROKEN as error:
        raise FormatError(f"it is cut off: {error}") from error
    links.check(lenient=lenient)
    return links
