"""Which password is checked next, without I/O: fair by address.

A check takes a processor for a tenth of a second, and anybody can ask for one. So only a few run at
a time; of one address one does. Of the addresses that wait, those of which no login has failed of
late come first, and within both groups it is one check for each in turn: whoever guesses makes
others wait for the check that runs, and for no more.

Invariants:

- An address is in ``_running`` while a check of it runs, else in one of the two ``_turns`` if, and
  only if, something of it waits, else nowhere.
- No queue in ``_waiting`` is empty, and ``size`` is what they hold together.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

AT_A_TIME = 2
"""Checks that run at a time: each takes a thread and 16 MiB."""

MOST = 1_024
"""Checks that may wait, of all addresses together; some 2 kB each."""

MOST_OF_ONE = 256
"""Checks of one address that may wait: a crowd behind it that comes back after a restart."""

MOST_SUSPECT = 10
"""The same for an address of which a login has failed of late."""


class Placed(Protocol):
    """A check that waits for its turn."""

    @property
    def address(self) -> str:
        """Where it comes from."""


Item = TypeVar("Item", bound=Placed)


class Checks(Generic[Item]):
    """The queue of checks that are to be run.

    Args:
        suspect: tells of an address whether a login from there has failed of late.

    Attributes:
        size: how many wait.
    """

    def __init__(self, suspect: Callable[[str], bool]) -> None:
        self.size = 0
        self._suspect = suspect
        self._waiting: dict[str, deque[Item]] = {}
        self._running: set[str] = set()
        # Addresses in the order of their turns: those in good standing, and the suspect ones.
        self._turns: tuple[OrderedDict[str, None], OrderedDict[str, None]] = (
            OrderedDict(),
            OrderedDict(),
        )

    def add(self, item: Item) -> Item | None:
        """Let ``item`` wait for its turn.

        Returns:
            Who is refused, because there is no room: ``item``, one of a suspect address that it has
            taken the place of, or None.
        """
        address = item.address
        suspect = self._suspect(address)
        queue = self._waiting.get(address)
        if queue is not None and len(queue) >= (MOST_SUSPECT if suspect else MOST_OF_ONE):
            return item
        refused: Item | None = None
        if self.size >= MOST:
            if suspect or not self._turns[1]:
                return item
            refused = self._waiting[next(reversed(self._turns[1]))][-1]
            self.remove(refused)
            queue = self._waiting.get(address)
        if queue is None:
            queue = self._waiting[address] = deque()
            if address not in self._running:
                self._turns[suspect][address] = None
        queue.append(item)
        self.size += 1
        return refused

    def remove(self, item: Item) -> bool:
        """Let ``item`` wait no longer; whether it did."""
        queue = self._waiting.get(item.address, ())
        if item not in queue:
            return False
        assert isinstance(queue, deque)
        self._take_from(item.address, queue, item)
        return True

    def take(self) -> Item | None:
        """Return what is to be run now, if anything is; then :meth:`done` has to be called."""
        if len(self._running) >= AT_A_TIME:
            return None
        turns = self._turns[0] or self._turns[1]
        if not turns:
            return None
        address = next(iter(turns))
        queue = self._waiting[address]
        item = queue[0]
        self._take_from(address, queue, item)
        turns.pop(address, None)
        self._running.add(address)
        return item

    def done(self, item: Item) -> None:
        """Take note that ``item`` runs no longer; may be told again."""
        address = item.address
        suspect = self._suspect(address)  # first: if that fails, it still runs
        self._running.discard(address)
        if address in self._waiting:
            self._turns[suspect][address] = None

    def _take_from(self, address: str, queue: deque[Item], item: Item) -> None:
        queue.remove(item)
        self.size -= 1
        if not queue:
            del self._waiting[address]
            for turns in self._turns:
                turns.pop(address, None)
