"""A worker: residents, visitors and reloads, and what became of them.

It is told

``begin``
    let visitors of some kinds come, again and again, and look from now on
``visit``
    let one visitor of each of some kinds come, and wait until they have left
``kinds``
    which there are
``hold``
    let no more come, and wait until those who are here have left
``check``
    wait until all who stay hear all that is published, try every door, and tell what was seen
    since ``begin``
``daemons``
    the processes to be told to reload
``excuse``
    a daemon was started again: what was missed is of no account
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from soaklib.faults import hubvisitors, visitors
from soaklib.faults.doors import Doors
from soaklib.faults.reloads import Reloads
from soaklib.faults.residents import Pub, Publisher, Seen, Sub, Subscriber
from soaklib.faults.wire import LostError, WrongError, awaited, opened, until, wires
from soaklib.workers import Told

_PAUSE = 0.15  # seconds between two visits of one kind
_DOOR = 15.0  # seconds until a new connection is served; on a busy machine, a handshake takes some
_LONGEST = 40.0  # seconds that a visit may take; on a busy machine, some take ten


@dataclass
class Round:
    """What was seen since ``begin``.

    Attributes:
        lost: connections that the daemon has ended without a reason.
        wrong: what was answered, or not, on connections that were not ended.
        streams: what has not come as it should.
        stuck: who hears nothing any more, and visits that do not end.
        shut: doors at which a new connection is not served.
        visits: that came to their end.
    """

    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    streams: list[Seen] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    shut: list[str] = field(default_factory=list)
    visits: int = 0


class Load:
    """The worker; see the module."""

    def __init__(
        self, told: Told, doors: Doors, pubs: list[Pub], subs: list[Sub], reloads: Reloads
    ) -> None:
        self._told = told
        self._doors = doors
        self._reloads = reloads
        self._round = Round()
        self._visits: dict[str, Callable[[Doors], Awaitable[None]]] = {
            **{f"line {one.__name__}": one for one in visitors.VISITS},
            **{f"hub {one.__name__}": one for one in hubvisitors.VISITS},
            "reload": reloads.turn,
        }
        self._gates = {name: trio.Event() for name in self._visits}
        self._inside: list[str] = []
        self._publishers = {pub.name: Publisher(pub, self._lose) for pub in pubs}
        self._subscribers = [Subscriber(sub, pubs, self._lose) for sub in subs]

    def _lose(self, what: str) -> None:
        self._round.lost.append(what)

    async def run(self) -> None:
        """Do what is told, for ever."""
        wires.set([])
        async with trio.open_nursery() as nursery:
            for resident in (*self._publishers.values(), *self._subscribers):
                nursery.start_soon(resident.run)
            for name in self._visits:
                nursery.start_soon(self._keep_visiting, name)
            self._told.answer()
            while True:
                await trio.lowlevel.wait_readable(self._told.fileno())
                word, *arguments = self._told.hear()
                self._told.answer(await getattr(self, "do_" + word)(*arguments))

    async def _keep_visiting(self, name: str) -> None:
        while True:
            await self._gates[name].wait()
            await self._visit(name)
            await trio.sleep(_PAUSE * self._doors.rng.uniform(0.5, 1.5))

    async def _visit(self, name: str) -> None:
        here = self._round
        self._inside.append(name)
        wires.set([])
        try:
            with trio.fail_after(_LONGEST):
                await self._visits[name](self._doors)
            here.visits += 1
        except LostError as error:
            here.lost.append(f"{name}: {error}")
        except WrongError as error:
            # Who reads all that comes meets the reason of the end among it.
            seen = here.lost if "internal-error" in str(error) else here.wrong
            seen.append(f"{name}: {error}")
        except trio.TooSlowError:
            here.wrong.append(f"{name}: waits in vain for {awaited.get()!r}")
        finally:
            self._inside.remove(name)

    # What it is told

    async def do_daemons(self, *pids: int) -> None:
        """Take note which processes are to be told to reload."""
        self._reloads.take(*pids)

    async def do_excuse(self) -> None:
        """Let what was missed so far be of no account."""
        for one in self._subscribers:
            one.excuse()

    async def do_kinds(self) -> list[str]:
        """Which kinds of visits there are."""
        return list(self._visits)

    async def do_begin(self, kinds: list[str]) -> None:
        """Let visitors come, and look from now on."""
        self._look()
        self._round = Round()
        for kind in kinds:
            self._gates[kind].set()

    async def do_visit(self, kinds: list[str]) -> None:
        """Let one visitor of each kind come, and look from now on; returns when they have left."""
        await self.do_begin([])
        async with trio.open_nursery() as nursery:
            for kind in kinds:
                nursery.start_soon(self._visit, kind)

    async def do_hold(self) -> None:
        """Let no more visitors come, and wait until those who are here have left."""
        for kind, gate in self._gates.items():
            if gate.is_set():
                self._gates[kind] = trio.Event()
        with trio.move_on_after(_LONGEST + 1):
            await until(lambda: not self._inside)

    async def do_check(self, patience: float) -> Round:
        """Wait until all is well, and tell what was seen since ``begin``."""
        here = self._round
        here.stuck += self._inside
        here.stuck += await self._settle(patience)
        await self._try_doors()
        here.streams = self._look()
        for publisher in self._publishers.values():
            here.wrong += publisher.wrong
            publisher.wrong.clear()
        return here

    async def _settle(self, patience: float) -> list[str]:
        """Wait until all who stay hear what is published from now on; return who does not."""
        due = {name: one.number for name, one in self._publishers.items()}
        with trio.move_on_after(patience):
            await until(lambda: not self._missing(due))
        return self._missing(due)

    def _missing(self, due: dict[str, int]) -> list[str]:
        residents = (*self._publishers.values(), *self._subscribers)
        return [
            *(f"{one.name} is not connected" for one in residents if not one.up),
            *(
                f"{one.name} is not answered; it was lost the last time: {one.broke}"
                for name, one in self._publishers.items()
                if one.up and one.done <= due[name]
            ),
            *(
                f"{one.name} does not hear {name}"
                for one in self._subscribers
                if one.up
                for name, flow in one.flows.items()
                if flow.next <= due[name]
            ),
        ]

    async def _try_doors(self) -> None:
        doors = self._doors
        for name, address, kind in (
            ("line", doors.line, "line"),
            ("secure", doors.secure, "line"),
            ("unix", doors.unix, "line"),
            ("hub", doors.hub, "ndjson"),
            ("hub", doors.hub, "ws"),
            ("secure hub", doors.secure_hub, "ws"),
        ):
            try:
                with trio.fail_after(_DOOR):
                    async with opened(address, kind) as wire:
                        await wire.ping()
            except (LostError, WrongError, trio.TooSlowError) as error:
                self._round.shut.append(f"{name} {kind}: {error!r}")

    def _look(self) -> list[Seen]:
        return [seen for one in self._subscribers for seen in one.look(self._publishers)]


def load(told: Told, doors: Doors, pubs: list[Pub], subs: list[Sub], reloads: Reloads) -> None:
    """Be the load; see the module."""
    trio.run(Load(told, doors, pubs, subs, reloads).run)
