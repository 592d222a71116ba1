"""Findings of a run, for people and programs: a page, JSON, and a few lines for a terminal.

``write_report`` makes ``report.json`` and ``report.html``; :func:`terminal_summary` makes the lines
printed at the end. The same :class:`Report` gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path

from pubsubd.files.whole import write_whole
from pubsubd.topology.report.data import (
    Coverage,
    DomainKind,
    Gone,
    Incident,
    MeshReport,
    Part,
    Report,
    RoundTrips,
)
from pubsubd.topology.report.page import render
from pubsubd.topology.report.schema import as_json, encode, schema
from pubsubd.topology.report.summary import terminal_summary

__all__ = [
    "Coverage",
    "DomainKind",
    "Gone",
    "Incident",
    "MeshReport",
    "Part",
    "Report",
    "RoundTrips",
    "as_json",
    "encode",
    "render",
    "schema",
    "terminal_summary",
    "write_report",
]


def write_report(report: Report, out: Path) -> None:
    """Write ``report.json`` and ``report.html`` to the directory ``out``.

    Raises:
        OSError: a file could not be written.
    """
    for name, data in (("report.json", encode(report)), ("report.html", render(report).encode())):
        write_whole(out / name, data)
