"""Interests of other daemons, subscribed in the router while they can be reached, without I/O.

After a change of the adverts or the graph, the daemons concerned are reconciled one after the
other, in steps: so a change of thousands of daemons holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.broker import Broker
from pubsubd.broker.turn import Steps
from pubsubd.mesh import news
from pubsubd.mesh.remotes import Remote
from pubsubd.mesh.state import State

_STEP = 64  # daemons looked at between two looks at the clock


class RemoteInterests:
    """The subscriptions of other daemons.

    Args:
        state: the daemon's.
        broker: the daemon's.
        back: called with a daemon that can be reached again, and was not announced to new
            neighbours meanwhile.

    Attributes:
        remotes: id -> another daemon as a subscriber.
        changed: whether legacy peers have to be asked for something else.
    """

    def __init__(self, state: State, broker: Broker, back: Callable[[str], None]) -> None:
        self._state = state
        self._broker = broker
        self._back = back
        self.remotes: dict[str, Remote] = {}
        self.changed = False
        self._due: dict[str, None] = {}  # daemons to be looked at

    @property
    def settled(self) -> bool:
        """Whether nothing is left to reconcile."""
        return not self._due

    def reconcile(self, node: str) -> None:
        """Subscribe the new interests of a daemon: at once, up to the end of the turn."""
        if node not in self._due and not self._attempt(node):
            self._due[node] = None

    def reconcile_all(self) -> None:
        """Let :meth:`reconciling` look at all daemons: the graph has changed."""
        self._due.update(dict.fromkeys(self._state.table.adverts))

    def reconciling(self) -> Steps[None]:
        """Reconcile all that are due, in steps; each once, as one may change all the time."""
        for done, node in enumerate(list(self._due), 1):
            if self._attempt(node):
                self._due.pop(node, None)
            else:
                yield
            if done % _STEP == 0:
                yield

    def _attempt(self, node: str) -> bool:
        """Do as :meth:`_reconcile`; after a fault begin anew with that daemon, once."""
        for _ in range(2):
            try:
                return self._reconcile(node)
            except Exception as error:  # noqa: BLE001  (links and other daemons are not concerned)
                self._broker.faults.note(error, f"mesh/{node}")
                if (remote := self.remotes.get(node)) is not None:
                    remote.interests = ()
                    self._broker.router.repair(remote)
        return True

    def _reconcile(self, node: str) -> bool:
        """Subscribe a daemon's interests if it can be reached; False if that takes longer."""
        state = self._state
        advert = state.table.adverts.get(node)
        if advert is None or node == state.node:
            return True
        now, interests = state.now(), advert.interests
        remote = self.remotes.get(node)
        if node in state.table.hops:
            if self._state.unreachable.pop(node, now) < now - news.LOST:
                self._back(node)
            if remote is None:
                remote = self.remotes[node] = Remote(node)
        else:
            self._state.unreachable.setdefault(node, now)
            interests = ()
        if remote is None or remote.interests is interests:
            return True
        self.changed = True
        return remote.follow(self._broker.router, interests, self._broker.delivery.turn.over)

    def forgetting(self, node: str) -> Steps[None]:
        """Forget a daemon, in steps."""
        self._state.unreachable.pop(node, None)
        self._due.pop(node, None)
        remote = self.remotes.pop(node, None)
        while remote is not None and not remote.follow(
            self._broker.router, (), self._broker.delivery.turn.over
        ):
            yield
