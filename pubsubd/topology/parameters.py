"""Parameters of a run of the analysis, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pubsubd.topology.formats.tables import Columns

CONDITIONS = ("left", "new-spof", "partition", "spof", "one-sided")
"""A daemon is gone; there is a single point of failure that the window before did not have; the
mesh is in several parts; there is a single point of failure; a link is told of by one end only."""

Stage = Callable[[str], None]
"""Called with the name of each stage that begins."""


@dataclass(frozen=True)
class Job:
    """Parameters of a run; pubsubd-topology(1) explains each.

    Durations are seconds. ``columns`` are those of tables that have the ends of links. ``mesh``,
    ``since`` and ``until`` keep a part of the rows, ``nodes`` is a file with daemons that exist.
    ``out`` is the directory for the report and the tables, or the URL of one that is not on this
    machine, ``json`` the file for ``report.json``, ``-`` for the :class:`Outcome`, ``textfile``
    that for Prometheus; each may be None. ``without`` and ``added`` make it hypothetical: daemons,
    and links as their two ends. ``conf`` are settings of Spark.
    """

    inputs: Sequence[str]
    out: Path | str | None = None
    json: str | None = None
    textfile: Path | None = None
    without: Sequence[tuple[str, ...]] = ()
    added: Sequence[tuple[str, str]] = ()
    master: str | None = None
    window: int = 3600
    since: datetime | None = None
    until: datetime | None = None
    mesh: str | None = None
    nodes: Path | None = None
    stale: int | None = None
    strict: bool = False
    lenient: bool = False
    columns: Columns | None = None
    export: Sequence[Path] = ()
    seed: int = 0
    local_edges: int = 10_000_000
    log_file: Path | None = None
    driver_memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    Attributes:
        summary: lines for a terminal.
        conditions: those of :data:`CONDITIONS` that hold in the latest window of a mesh.
        notes: what else is to be told: files that were left out, or that vanished.
        json: ``report.json``, if it is to be printed.
    """

    summary: list[str]
    conditions: frozenset[str]
    notes: tuple[str, ...] = ()
    json: bytes | None = None
