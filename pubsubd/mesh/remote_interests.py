"""What other daemons are subscribed to here, without I/O: what they want while they can be reached.

Whatever has changed, the adverts or the graph, leads to the same: the daemons that it concerns are
looked at again, one after the other, in steps. So a change of thousands of daemons holds up nobody.
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
    """The other daemons, as receivers.

    Args:
        state: the daemon's.
        broker: the daemon's.
        back: called with a daemon that can be reached again, and of which new neighbours have
            not been told meanwhile.

    Attributes:
        remotes: id -> another daemon, which subscribes what it wants while it can be reached.
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
        """Whether nobody has to be looked at."""
        return not self._due

    def reconcile(self, node: str) -> None:
        """Look at a daemon that wants something else: at once, as far as this turn goes."""
        if node not in self._due and not self._reconcile(node):
            self._due[node] = None

    def reconcile_all(self) -> None:
        """Look at all daemons, as :meth:`reconciling` goes on: the graph has changed."""
        self._due.update(dict.fromkeys(self._state.table.adverts))

    def reconciling(self) -> Steps[None]:
        """Look at those that have to be, in steps; at each once, as it may change all the time."""
        for done, node in enumerate(list(self._due), 1):
            try:
                if self._reconcile(node):
                    self._due.pop(node, None)
                else:
                    yield
            except Exception as error:  # noqa: BLE001  (the others get what they want)
                self._due.pop(node, None)
                self._broker.faults.note(error, f"mesh/{node}")
            if done % _STEP == 0:
                yield

    def _reconcile(self, node: str) -> bool:
        """Let a daemon get what it wants if it can be reached; False if that takes longer."""
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
        return remote.follow(self._broker.router, interests, self._broker.turn.over)

    def forgetting(self, node: str) -> Steps[None]:
        """Forget a daemon, in steps."""
        self._state.unreachable.pop(node, None)
        self._due.pop(node, None)
        remote = self.remotes.pop(node, None)
        while remote is not None and not remote.follow(
            self._broker.router, (), self._broker.turn.over
        ):
            yield
