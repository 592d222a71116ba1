"""Streams: letters that arrive once and in order, or whose sender is told, without I/O.

A batch may be overtaken by a later one when a link comes up, and is lost with a link that breaks.
For messages to actors, that is made good here. Each daemon numbers what it sends to another one,
and keeps it until that one says that it has come; what is not confirmed for a while is sent again,
and given up after :data:`PATIENCE`. Each letter names the last one before it from the same sender
to the same receiver, and waits for that one alone.

    send <stream> <number> <floor> <after> <wanted> <address>
    got <stream> <first> <last> <time>      all of these; a line of those of them that could not
                                            be delivered, and a line of later ones that were

``floor`` is the lowest number that is not confirmed or given up: nothing below it comes any more.
``after`` is the number of the letter before, or 0. ``wanted`` is ``ask`` if the answer is waited
for, and ``tell`` if it may come with others.
"""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.faults import Faults
from pubsubd.broker.turn import Steps
from pubsubd.mesh.incoming import Deliver, Incoming
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.outgoing import Outgoing
from pubsubd.mesh.state import State


class Streams:
    """The streams to and from all other daemons.

    Args:
        state: the daemon's.
        faults: the daemon's.
        letters: of the daemon.
        wake: called with a time at which :meth:`acting` has something to do.

    Attributes:
        outgoing, incoming: the two halves.
        send: see :meth:`Outgoing.send`.
        due: when :meth:`acting` has something to do.
    """

    def __init__(
        self, state: State, faults: Faults, letters: Letters, wake: Callable[[float], None]
    ) -> None:
        self._state = state
        self._letters = letters
        self._wake_mesh = wake
        self.due = float("inf")
        self.outgoing = Outgoing(state, faults, letters, self._wake)
        self.incoming = Incoming(state, letters, self._wake)
        self.send = self.outgoing.send

    @property
    def deliver(self) -> Deliver:
        """Delivery of what comes; the hub's."""
        return self.incoming.deliver

    @deliver.setter
    def deliver(self, deliver: Deliver) -> None:
        self.incoming.deliver = deliver

    def _wake(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._wake_mesh(at)

    def acting(self) -> Steps[None]:
        """Do what is due, in steps."""
        now = self._state.now()
        if now < self.due:
            return
        self.due = float("inf")
        yield from self.incoming.acting(now)
        yield from self.outgoing.acting(now)
        self._letters.after()
