"""Letters: what the hubs of daemons tell each other, as messages under ``//fwd/hub/``.

A letter is a line of words, the first of which is its kind, and a body. It travels in a batch like
any message: along the tree of its origin, once, and in order. Those for one daemon and those for
all have a name each, which a daemon with a hub advertises among its interests.

What has come is worked off in the turn of the link that brought it, and the link is not read
further before: so who sends more than is worked off waits, as any publisher does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer, stay
from pubsubd.broker.turn import Steps
from pubsubd.mesh.state import State
from pubsubd.protocol import wire
from pubsubd.protocol.limits import MAX_DIGITS
from pubsubd.routing.outbox import Pieces

if TYPE_CHECKING:
    from pubsubd.access.rules import Permission
    from pubsubd.routing.wildcards import Pattern

LETTERS = 2
"""Interests that are for letters: those to one daemon, and those to all."""

MAX_WORDS = 4_096
"""Bytes of the first line of a letter."""

_DONE = object()
_NAMES = 1_024  # that are remembered

Take = Callable[[str, list[str], bytes], Steps[None] | None]
"""Takes a letter: the daemon that sent it, its words, and its body.

Returns steps if that takes longer; no other letter is taken before they are done. Raises ValueError
if the letter is not as it should be.
"""


class Mailbox:
    """The receiver of the letters for this daemon, for the router.

    Attributes:
        names: of letters to it, and to all.
        inbox: who has sent, whole frames, and how far these are read.
    """

    remote = False
    label = "mesh"
    render: Callable[[bytes], bool] | None = None
    end = staticmethod(stay)
    permission: Permission | None = None
    patterns: set[Pattern] | None = None

    def __init__(self, names: set[bytes], speaker: Callable[[], Peer | None]) -> None:
        self.names: set[bytes] | None = names
        self.substrings: set[bytes] = set()
        self.pending: list[bytes] = []  # stays empty: what is put goes to the inbox
        self.messages_out = 0
        self.inbox: deque[tuple[str, bytes, int]] = deque()
        self._speaker = speaker

    def enqueue(self, chunk: bytes) -> None:
        """Take letters, whole frames, of the daemon that speaks at present."""
        speaker = self._speaker()
        if speaker is not None and speaker.relayed:
            self.inbox.append((speaker.label.removeprefix("mesh/"), chunk, 0))

    def send(self, data: bytes | Pieces) -> None:
        """Take one large frame."""
        self.enqueue(data.whole() if isinstance(data, Pieces) else data)


class Letters:
    """The letters of one daemon.

    Attributes:
        kinds: kind of a letter -> what takes it.
        open: whether this daemon has a hub, so that it is sent letters.
        sent, received: letters.
        ignored: letters that were not taken, by the reason: ``stranger`` for one from a daemon
            that has no hub, ``unknown`` for a kind of a later version, ``malformed``, and
            ``rate``.
        answer: called when letters were taken, to send those that answer them.
        after: called then, to send what they have led to.
    """

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self._prefix = b"%b%b/" % (wire.HUB, state.config.mesh.encode())
        self.kinds: dict[str, Take] = {}
        self.open = False
        self.sent = self.received = 0
        self.ignored: Counter[str] = Counter()
        self.answer: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = broker.delivery.flush
        self._names: dict[str | None, bytes] = {}  # daemon -> the name of letters to it
        self._steps: tuple[str, Steps[None]] | None = None  # of the letter that is being taken
        delivery = broker.delivery
        names = {self.name(state.node), self.name(None)}
        self._start = b"pub %b " % self.name(state.node)  # of a letter to this daemon alone
        self._box = broker.router.mailbox = Mailbox(names, lambda: delivery.speaker)

    def name(self, node: str | None) -> bytes:
        """Return the name of letters to a daemon, or to all."""
        name = self._prefix + (b"*" if node is None else node.encode()) + b"/"
        if len(self._names) >= _NAMES:
            self._names.clear()
        self._names[node] = name
        return name

    @property
    def interests(self) -> tuple[bytes, ...]:
        """What this daemon has to advertise so that it gets its letters."""
        return tuple(sorted(self._box.names or ())) if self.open else ()

    # Out

    def send(self, node: str | None, words: str, body: bytes = b"") -> None:
        """Send a letter to a daemon, or to all that have a hub, behind what was published before.

        Nothing is sent to one that cannot be reached. The letter leaves with what is put next, or
        with :meth:`post`.
        """
        # Hot path: scripts/bench mesh-send.
        delivery = self._broker.delivery
        name = self._names.get(node) or self.name(node)
        group = self._broker.router.receivers_of_letter(name).far
        self.sent += 1
        if group is None:
            return
        delivery.end_run()
        head = words.encode()
        group.post(b"pub %b %d %b\n%b\n" % (name, len(head) + 1 + len(body), head, body))
        delivery.counters.messages_out += 1

    def reaches(self, node: str) -> bool:
        """Return whether a letter to a daemon would be sent now."""
        return self._broker.router.receivers_of_letter(self.name(node)).far is not None

    def post(self) -> None:
        """Hand what was sent to the links."""
        self._broker.delivery.flush()

    # In

    def find(self, batch: bytes, start: int) -> int:
        """Return where the letter begins if what follows ``start`` is one to this daemon alone.

        It is 0 if it is anything else.
        """
        if not batch.startswith(self._start, start):
            return 0
        begin = start + len(self._start)
        gap = batch.find(b" ", begin, begin + MAX_DIGITS + 1)
        digits = batch[begin:gap]
        if gap < 0 or not digits.isdigit() or gap + 2 + int(digits) != len(batch):
            return 0
        return gap + 1 if batch.endswith(b"\n") else 0

    def take_one(self, node: str, batch: bytes, start: int, letter: int) -> bool:
        """Take the letter that :meth:`find` has found; return whether some are left."""
        box, counters = self._box, self._broker.counters
        counters.messages_in += 1
        counters.messages_out += 1
        if box.inbox or self._steps is not None:
            box.inbox.append((node, batch[start:], 0))
            return self.work()
        try:
            self._take(node, batch, letter, len(batch) - 1)
        except Exception as error:  # noqa: BLE001  (the other letters are not concerned)
            self._blame(node, error)
        if box.inbox or self._steps is not None:  # it takes longer
            return self.work()
        self._finish()
        return False

    def refuse(self, reason: str) -> None:
        """Count a letter that is not taken."""
        self.ignored[reason] += 1

    def work(self) -> bool:
        """Work off letters until the turn is over; return whether some are left."""
        if not self._is_busy():
            return False
        inbox, over = self._box.inbox, self._broker.delivery.turn.over
        try:
            while inbox or self._steps is not None:
                if self._steps is None:
                    node, chunk, at = inbox.popleft()
                    stop = wire.next_frame(chunk, at)
                    if stop < len(chunk):
                        inbox.appendleft((node, chunk, stop))
                    start = chunk.index(b" ", chunk.index(b" ", at + 4) + 1) + 1
                    self._guard(node, self._take, node, chunk, start, stop - 1)
                else:
                    self._guard(self._steps[0], self._go_on)
                if over():
                    break
        finally:
            self._finish()
        return self._is_busy()

    def _is_busy(self) -> bool:
        """Whether letters are left that have come."""
        return bool(self._box.inbox) or self._steps is not None

    def _finish(self) -> None:
        """Send what letters have led to."""
        try:
            self.answer()
        finally:
            self.after()

    def _guard(self, node: str, call: Callable[..., None], *arguments: object) -> None:
        """Do something for a letter; whatever is wrong with it is its sender's fault alone."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001  (the other letters are not concerned)
            self._blame(node, error)

    def _blame(self, node: str, error: Exception) -> None:
        """Do without a letter that has failed: its sender has made a mistake, or this daemon."""
        self._steps = None
        if isinstance(error, ValueError | IndexError):
            self.ignored["malformed"] += 1
        else:
            self._broker.faults.note(error, f"mesh/{node}")

    def _go_on(self) -> None:
        """Go on with a letter that takes several steps."""
        assert self._steps is not None
        if next(self._steps[1], _DONE) is _DONE:
            self._steps = None

    def _take(self, node: str, chunk: bytes, start: int, stop: int) -> None:
        """Take one letter, which is ``chunk[start:stop]``."""
        advert = self._state.table.adverts.get(node)
        if advert is None or advert.hub is None or not self.open:
            self.ignored["stranger"] += 1
            return
        end = chunk.find(b"\n", start, stop)
        if end < 0:
            end = stop
        if end - start > MAX_WORDS:
            raise ValueError(chunk[start:end])
        words = chunk[start:end].decode("utf-8", "replace").split(" ")
        take = self.kinds.get(words[0])
        if take is None:  # of a later version
            self.ignored["unknown"] += 1
            return
        self.received += 1
        steps = take(node, words, chunk[end + 1 : stop])
        if steps is not None:
            self._steps = node, steps
