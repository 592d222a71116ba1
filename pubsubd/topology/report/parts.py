"""Parts of a report's section, before they become a page or a line on a terminal."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import NOTHING, quantity

WORST = 10
"""Rows that a listing shows at once."""
MORE = 50
"""Rows that it has in all."""


FULL = 10
"""Meshes that are shown in full: those with most daemons. The others are shown in short."""


class Status(enum.IntEnum):
    """State of health; the larger, the worse."""

    UNKNOWN = 0
    GOOD = 1
    LOOK = 2
    ACT = 3

    @property
    def word(self) -> str:
        """For a person."""
        return ("not judged", "healthy", "worth a look", "act")[self]


@dataclass(frozen=True)
class Figure:
    """One value with its healthy range.

    Attributes:
        label: what it is.
        value: as it is shown, with its unit.
        note: what has to be said with it, if anything.
        healthy: the range.
        status: whether it is in there.
        definition: what it means, from the registry.
    """

    label: str
    value: str
    healthy: str = ""
    status: Status = Status.UNKNOWN
    definition: str = ""
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """Rows, the worst first.

    Attributes:
        title: what the rows are.
        columns: heading -> ``name``, ``number``, ``text`` or ``command``.
        rows: a text for each column.
        total: how many there are in all, if not all are here.
        folded: nothing is to be seen of it at first.
    """

    title: str
    columns: dict[str, str]
    rows: Sequence[Sequence[str]]
    total: int | None = None
    folded: bool = False

    @property
    def hidden(self) -> int:
        """The number of rows that are left out."""
        return max((self.total or 0) - len(self.rows), 0)


@dataclass
class Section:
    """One question that a report answers.

    Attributes:
        key: stable, for links and JSON.
        title: for a person.
        advice: one sentence: what to do.
        figures: values with their healthy ranges.
        listings: the worst ones.
        pictures: names of the pictures that belong here.
        silent: there is nothing to tell; ``advice`` says why.
    """

    key: str
    title: str
    advice: str = ""
    figures: list[Figure] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    silent: bool = False

    @property
    def status(self) -> Status:
        """The worst one of its figures."""
        return max((figure.status for figure in self.figures), default=Status.UNKNOWN)

    def add(self, listing: Listing) -> None:
        """Add a listing, unless it is empty."""
        if listing.rows:
            self.listings.append(listing)


def judge(fits: bool | None, otherwise: Status = Status.LOOK) -> Status:
    """Return GOOD if it fits, UNKNOWN if that cannot be said."""
    if fits is None:
        return Status.UNKNOWN
    return Status.GOOD if fits else otherwise


def metric_figure(
    facts: SnapshotView,
    name: str,
    *,
    otherwise: Status = Status.LOOK,
    fits: bool | None = None,
    judged: bool = True,
    note: str = "",
) -> Figure:
    """Return a metric as a figure.

    Args:
        facts: of the mesh.
        name: of the metric.
        otherwise: what it is when it does not fit.
        fits: whether it is in its healthy range, where the registry alone cannot say it.
        judged: False for a mesh on which the range says nothing.
        note: what has to be said with the value.
    """
    metric, found = METRICS[name], facts.metric(name)
    if found.value is None:
        note = found.why or "not computed"
        return Figure(
            metric.label, NOTHING, metric.healthy, Status.UNKNOWN, metric.definition, note
        )
    if fits is None:
        fits = metric.is_healthy(found.value)
    return Figure(
        metric.label,
        quantity(found.value, metric.unit, found.error),
        metric.healthy if judged else "",
        judge(fits, otherwise) if judged else Status.UNKNOWN,
        metric.definition,
        note,
    )


def at_most(facts: SnapshotView, name: str, factor: float, other: str) -> bool | None:
    """Return whether a metric is at most ``factor`` times another one; None if not known."""
    one, two = facts.value(name), facts.value(other)
    return None if one is None or two is None else one <= factor * two


def at_least(facts: SnapshotView, name: str, factor: float, other: str) -> bool | None:
    """Return whether a metric is at least ``factor`` times another one; None if not known."""
    one, two = facts.value(name), facts.value(other)
    return None if one is None or two is None else one >= factor * two
