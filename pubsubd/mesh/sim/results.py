"""What a simulation has found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

from pubsubd.mesh.graphs import Edge

Client: TypeAlias = tuple[str, int]
"""The client of a daemon: the daemon's id, and how often it has been started."""


@dataclass(slots=True)
class Change:
    """Something that has happened to the mesh.

    Attributes:
        at: when.
        what: it, and how much more at the same time.
        took: seconds until all had converged, or None if something else came first.
        advert_bytes: what a daemon has sent of adverts by then, on average.
    """

    at: float
    what: str
    took: float | None = None
    advert_bytes: float | None = None


@dataclass(slots=True)
class Message:
    """A message that was published; see the module for *due* and *stable*."""

    at: float
    origin: str
    due: frozenset[Client]
    least: int
    stable: bool
    crossings: int = 0
    overtaken: int = 0
    got: Counter[Client] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What has become of some messages.

    Attributes:
        messages: how many.
        due: deliveries that had to be.
        lost: of these, what did not come, although the daemon is still the same.
        duplicates: deliveries beyond the first.
        overtaken: deliveries after one of a message that was published later at the same daemon.
        crossings: links that messages have crossed, each message and link.
        least: the least that would have done.
    """

    messages: int
    due: int
    lost: int
    duplicates: int
    overtaken: int
    crossings: int
    least: int

    @property
    def excess(self) -> float:
        """Crossings by the least number of them."""
        return self.crossings / self.least if self.least else float(bool(self.crossings)) + 1


@dataclass(frozen=True, slots=True)
class Results:
    """What a simulation has shown. Times in seconds.

    Attributes:
        daemons, links: of the graph; links whoever dialled, and however often.
        living: daemons that run at the end.
        duration, events: how long it was, and how many events.
        changes: what has happened, and how long it took to converge.
        relapses: how often tables disagreed although nothing had happened.
        stable, unstable: deliveries of stable messages, and of the others.
        link_messages: ids of two daemons -> messages that have crossed their link, and the least.
        advert_rate: bytes a second of adverts that a daemon sends, mean over the run.
        advert_rate_most: the same for the daemon that sends most, since its start.
        advert_rate_stable: the mean while everything has converged; None if it never has.
        counters: those of the meshes, added up.
        refused: code -> connections refused.
    """

    daemons: int
    links: int
    living: int
    duration: float
    events: int
    changes: list[Change]
    relapses: int
    stable: Delivery
    unstable: Delivery
    link_messages: dict[Edge, tuple[int, int]]
    advert_rate: float
    advert_rate_most: float
    advert_rate_stable: float | None
    counters: dict[str, int]
    refused: dict[str, int]
