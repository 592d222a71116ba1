"""Input of a report: plain values and small tables, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

import pyarrow as pa


class Coverage(TypedDict, total=False):
    """Coverage of a mesh by the input. Unknown values are left out."""

    exporters: int
    """Daemons that report links of their own."""
    named: int
    """Daemons that are known, the exporters and those that are gone included."""
    gone: int
    """Daemons that are gone, see :class:`Gone`."""
    silent: list[str]
    """Daemons that others name and that report nothing; some of them, if they are many."""
    age_seconds: float
    """Age, at the window's end, of the oldest among the exporters' latest reports."""
    oldest: str
    """The exporter of that report."""
    duplicate_ids: list[str]
    """Ids that more than one daemon has."""
    unknown_ids: list[str]
    """Ids that are not in the list of daemons that was given."""


@dataclass(frozen=True)
class Gone:
    """A daemon that should be there and is not.

    Attributes:
        id: its name.
        since: when it left; None if nothing in the input tells of it, but it was listed.
        detail: who told so: ``lost by b, d``, or ``not told of any more``.
        last_seen: when it told something last.
        address: ``HOST:PORT``, where it is known.
        version: of its program, where it is known.
        neighbours: some daemons that it had links to.
    """

    id: str
    since: datetime | None = None
    detail: str = ""
    last_seen: datetime | None = None
    address: str | None = None
    version: str | None = None
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A component other than the largest.

    Attributes:
        daemons: how many there are in it.
        names: some of them.
        since: when its last link to another one went down, as far as the input tells.
    """

    daemons: int
    names: Sequence[str]
    since: datetime | None = None


@dataclass(frozen=True)
class Incident:
    """What broke in a mesh, at the end of its latest window.

    Attributes:
        gone: the latest first; then those that nothing in the input tells of.
        parts: some components other than the largest, the largest of them first.
        compared: start of the window before; None if it is the first, which is compared with its
            own beginning.
        new_articulation: articulation daemons that were none then, the worst first; None if it is
            not known.
        new_bridges: bridges that were none then, the worst first; None if it is not known.
        why: why that is not known.
    """

    gone: Sequence[Gone] = ()
    parts: Sequence[Part] = ()
    compared: datetime | None = None
    new_articulation: Sequence[str] | None = None
    new_bridges: Sequence[tuple[str, str]] | None = None
    why: str | None = None


@dataclass(frozen=True)
class DomainKind:
    """Failure domains of one kind, such as all sites.

    Attributes:
        kind: ``site``, ``rack``, or as a node list calls it.
        domains: how many there are.
        placed: how many daemons of the mesh are in one.
        rows: of each domain its ``name``, ``daemons``, how many others its loss has ``cut_off``
            and into how many ``pieces`` it parts them, and ``links`` with which it would not, of
            the worst ones; those that cut off most come first.
        why: the reason if it was not computed.
    """

    kind: str
    domains: int
    placed: int
    rows: list[dict[str, Any]]
    why: str | None = None

    @property
    def parting(self) -> list[dict[str, Any]]:
        """The domains whose loss cuts off others."""
        return [row for row in self.rows if row["cut_off"]]


@dataclass(frozen=True)
class RoundTrips:
    """Round trips in the largest component, in milliseconds.

    Attributes:
        links: of the component; ``measured`` of them have a round trip.
        daemons: of the component; messages of ``origins`` of them were looked at.
        mean: along the ways that messages take.
        fastest: along the fastest ways.
        worst: links with the longest ones: ``src, dst, median, p95``.
        slowest: pairs with the longest ones: ``src, dst, hops, trip, fastest``.
        new: links to add: ``src, dst, trip, saves, mean_saves``.
        why: the reason if they were not computed.
    """

    links: int = 0
    measured: int = 0
    daemons: int = 0
    origins: int = 0
    mean: float = 0.0
    fastest: float = 0.0
    worst: list[dict[str, Any]] = field(default_factory=list)
    slowest: list[dict[str, Any]] = field(default_factory=list)
    new: list[dict[str, Any]] = field(default_factory=list)
    why: str | None = None


@dataclass
class MeshReport:
    """One mesh at the end of its latest window, and what is shown of its history.

    Attributes:
        mesh: its name.
        window: start of the window, UTC; None for a list without times.
        snapshot: rows of the kernel: ``kind, id, other, name, rank, x, y, size, value, error,
            text`` and the columns of daemons.
        before: of a hypothetical report, those rows with metrics of the mesh that was reported.
        series: ``window, name, value``: metrics of all windows.
        churn: ``window, daemons, joined, left, links, new_links, lost_links, jaccard``.
        availability: ``id, window, availability``: shares, of the daemons that are worst.
        chronic: ``id, windows, share``: daemons that were articulation daemons, in how many
            windows, and in what share of them; the most often first.
        events: ``at, kind, src`` or ``id``, ``dst, detail``: the latest ones.
        one_sided: ``src, dst, told_by``.
        asymmetric: ``src, dst`` and what differs between the ends.
        coverage: how much the input tells of.
        addresses: id -> ``HOST:PORT``, where it is known.
        versions: id -> version of its program, where it is known, of daemons that are there.
        incident: what broke; None for a list without times.
        domains: failure domains, by kind; none if no daemon is known to be in one.
        trips: round trips; None if no link was measured.
    """

    mesh: str
    window: datetime | None
    snapshot: pa.Table
    series: pa.Table
    churn: pa.Table
    availability: pa.Table
    chronic: pa.Table
    events: pa.Table
    one_sided: pa.Table
    asymmetric: pa.Table
    coverage: Coverage = field(default_factory=Coverage)
    addresses: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    incident: Incident | None = None
    before: pa.Table | None = None
    domains: list[DomainKind] = field(default_factory=list)
    trips: RoundTrips | None = None


@dataclass
class Report:
    """Findings of one run.

    Attributes:
        made_of: the inputs, as they were given.
        rows: good rows read.
        rejects: reason -> bad rows.
        seed: of everything random.
        meshes: in any order.
        parameters: what else the result depends on; values that JSON has.
        without: if it is hypothetical: daemons and links that it leaves out, a link as its ends.
        added: links that are not there.
    """

    made_of: list[str]
    rows: int
    rejects: dict[str, int]
    seed: int
    meshes: list[MeshReport]
    parameters: dict[str, Any]
    without: Sequence[tuple[str, ...]] = ()
    added: Sequence[tuple[str, str]] = ()
