"""Results of a simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

from pubsubd.mesh.graphs import Edge

Client: TypeAlias = tuple[str, int]
"""The client of a daemon: the daemon's id, and how often it has been started."""


@dataclass(slots=True)
class Change:
    """A change of the mesh.

    Attributes:
        at: the time.
        what: the first change at that time, and the number of others.
        took: seconds until all had converged, or None if another change came first.
        advert_bytes: bytes of adverts that a daemon has sent by then, on average.
        actors_known: seconds until the daemons that were started knew the actors of all that they
            can reach, and these theirs; None if there are no actors, or if that was not seen.
    """

    at: float
    what: str
    took: float | None = None
    advert_bytes: float | None = None
    actors_known: float | None = None


@dataclass(slots=True)
class Message:
    """A published message; see :mod:`pubsubd.mesh.sim.simulation` for *due* and *stable*."""

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
    """The deliveries of some messages.

    Attributes:
        messages: how many.
        due: deliveries that had to be made.
        lost: of these, the missing ones at daemons that were not restarted.
        duplicates: deliveries beyond the first.
        overtaken: deliveries after one of a message that was published later at the same daemon.
        crossings: links that messages have crossed, each message and link.
        least: the least possible number of crossings.
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
class ActorResults:
    """Registered actors, and what the daemons know of them.

    Attributes:
        actors: registered at daemons that run at the end.
        changes: registrations, at first and elsewhere.
        looked_up: how often a daemon was asked for an actor that was registered at another one
            that it could reach, for a second or longer, in a mesh that had settled.
        not_found: how often it did not know that.
        missing, ghosts: pairs of a daemon and an actor at the end that it does not know, and that
            it takes to be where it is not; without those that have come or gone in the last second.
        letters: that the daemons have sent.
    """

    actors: int
    changes: int
    looked_up: int
    not_found: int
    missing: int
    ghosts: int
    letters: int


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a simulation; times in seconds.

    Attributes:
        daemons, links: of the graph; links whoever dialled, and however often.
        living: daemons that run at the end.
        duration, events: how long it was, and how many events.
        changes: the changes, and how long they took to converge.
        relapses: how often tables came to disagree without a change.
        stable, unstable: deliveries of stable messages, and of the others.
        link_messages: ids of two daemons -> messages that have crossed their link, and the least.
        advert_rate: bytes a second of adverts that a daemon sends, mean over the run.
        advert_rate_most: the same for the daemon that sends most, since its start.
        advert_rate_stable: the mean while everything has converged; None if it never has.
        counters: those of the meshes, added up.
        refused: code -> connections refused.
        actors: see :class:`ActorResults`; None if there were none.
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
    actors: ActorResults | None
