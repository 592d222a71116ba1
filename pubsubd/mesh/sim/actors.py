"""Actors in a simulation: registered at the daemons by chance, and at others after a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pubsubd.mesh.sim.member import Member
from pubsubd.mesh.sim.results import ActorResults, Change
from pubsubd.mesh.sim.world import World

_AWAY = 0.5  # seconds after which an actor that has left registers elsewhere
_SETTLED = 1.0  # seconds after which all daemons have to know where an actor is
_LOOK = 0.1  # seconds between two looks whether a daemon that was started knows all


class Truth(Protocol):
    """The truth about the mesh; :class:`pubsubd.mesh.sim.convergence.Convergence`."""

    changes: list[Change]
    parts: dict[str, frozenset[str]]


class Actors:
    """The actors of a simulation.

    Args:
        world: the clock.
        daemons: id -> daemon.
        convergence: the truth about the mesh.
        settled: returns whether all daemons have agreed on the mesh for two heartbeats.
    """

    def __init__(
        self,
        world: World,
        daemons: dict[str, Member],
        convergence: Truth,
        settled: Callable[[], bool],
    ) -> None:
        self._world = world
        self._convergence = convergence
        self._settled = settled
        self._started: list[tuple[Change, Member, int]] = []  # the last is its run
        self._daemons = daemons
        self._where: dict[str, tuple[Member, int, float]] = {}  # key -> daemon, its run, since when
        self._changed: dict[str, float] = {}  # key -> when it has come or gone last
        self._keys: list[str] = []
        self._serial = 0
        self._changes = self._asked = self._wrong = 0

    def register(self, count: int, rate: float, living: list[Member]) -> None:
        """Register actors, and from now on let so many a second be at other daemons by chance."""
        for _ in range(count):
            self._serial += 1
            key = f"sim/{self._serial}"
            self._keys.append(key)
            self._enter(key, self._world.rng.choice(living))
        if rate:
            self._world.schedule(self._world.now + 1 / rate, self._churn, 1 / rate)

    def _enter(self, key: str, daemon: Member) -> None:
        """Register an actor."""
        if not daemon.alive:
            another = self._world.rng.choice(list(self._daemons.values()))
            self._world.schedule(self._world.now + _AWAY, self._enter, key, another)
            return
        self._where[key] = daemon, daemon.starts, self._world.now
        self._changed[key] = self._world.now
        daemon.mesh.directory.claim(key)
        self._changes += 1

    def _move(self, key: str, daemon: Member) -> None:
        """Let an actor leave its daemon, and register at another one after a while."""
        before = self._where.pop(key, None)
        self._changed[key] = self._world.now
        if before is not None and before[0].alive and before[0].starts == before[1]:
            before[0].mesh.directory.release(key)
        self._world.schedule(self._world.now + _AWAY, self._enter, key, daemon)

    def _churn(self, pause: float) -> None:
        """Move one actor, and look another one up."""
        rng = self._world.rng
        living = [daemon for daemon in self._daemons.values() if daemon.alive]
        there = list(self._where)
        if living and there:
            self._move(rng.choice(there), rng.choice(living))
            self._look_up(rng.choice(living), rng.choice(there))
        self._world.schedule(self._world.now + pause, self._churn, pause)

    def _look_up(self, asker: Member, key: str) -> None:
        """Let a daemon say where an actor is, if it has had the time to know."""
        daemon, starts, since = self._where.get(key, (asker, 0, 0.0))
        if (
            not self._settled()
            or self._world.now - since < _SETTLED
            or not daemon.alive
            or daemon.starts != starts
            or daemon is asker
            or daemon.node not in asker.mesh.table.hops
        ):
            return
        self._asked += 1
        self._wrong += asker.mesh.directory.find(key) != daemon.node

    def note_start(self, daemon: Member) -> None:
        """Look from now on whether a daemon that was started knows all actors, and is known."""
        if self._keys:
            if not self._started:
                self._world.schedule(self._world.now + _LOOK, self._look)
            self._started.append((self._convergence.changes[-1], daemon, daemon.starts))

    def _look(self) -> None:
        doubtful = self._doubtful()
        left = [one for one in self._started if not self._is_known(one[1], doubtful)]
        for change, _, _ in self._started:
            if all(other is not change for other, _, _ in left):
                change.actors_known = round(self._world.now - change.at, 3)
        # One that was killed meanwhile is not waited for, nor what else was started with it.
        self._started = [one for one in left if one[1].alive and one[1].starts == one[2]]
        if self._started:
            self._world.schedule(self._world.now + _LOOK, self._look)

    def _is_known(self, daemon: Member, doubtful: set[str]) -> bool:
        """Return whether a daemon and those that it can reach know all actors of each other."""
        part = self._convergence.parts.get(daemon.node, ())
        others = [self._daemons[node] for node in part if node != daemon.node]
        return daemon.alive and not any(
            any(self._mistakes(one, daemon, doubtful) + self._mistakes(daemon, one, doubtful))
            for one in others
        )

    def _doubtful(self) -> set[str]:
        """Return the actors that have come or gone in the last second."""
        late = self._world.now - _SETTLED
        return {key for key, at in self._changed.items() if at > late}

    @staticmethod
    def _mistakes(daemon: Member, other: Member, doubtful: set[str]) -> tuple[int, int]:
        """Return how many actors of another one a daemon lacks, and how many are not there."""
        known, own = daemon.mesh.directory.keys(other.node), other.mesh.directory.own.keys()
        return len(own - known - doubtful), len(known - own - doubtful)

    def results(self, parts: Iterable[Iterable[str]]) -> ActorResults | None:
        """Return the results so far; None if there are no actors.

        Args:
            parts: ids of the daemons that can reach each other.
        """
        if not self._keys:
            return None
        missing = ghosts = letters = 0
        doubtful = self._doubtful()
        for part in parts:
            members = [self._daemons[node] for node in part]
            for daemon in members:
                letters += daemon.mesh.letters.sent
                for other in members:
                    if other is not daemon:
                        lacking, false = self._mistakes(daemon, other, doubtful)
                        missing += lacking
                        ghosts += false
        return ActorResults(
            actors=sum(len(one.mesh.directory.own) for one in self._daemons.values() if one.alive),
            changes=self._changes,
            looked_up=self._asked,
            not_found=self._wrong,
            missing=missing,
            ghosts=ghosts,
            letters=letters,
        )
