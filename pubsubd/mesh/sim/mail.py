"""The messages of a simulation and their deliveries."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Set

from pubsubd.mesh.graphs import Edge
from pubsubd.mesh.link import RELAY
from pubsubd.mesh.sim.results import Client, Delivery, Message
from pubsubd.protocol import wire

_BATCH = b"pub %b " % RELAY
_MARK = b"sim"  # begins the data of a simulated message


class Mail:
    """The published messages, and where they have arrived.

    Args:
        grace: seconds of peace that a message needs after it, to be stable.

    Attributes:
        messages: in the order of publication.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.messages: list[Message] = []
        self._recent: deque[Message] = deque()
        self._latest: dict[tuple[Client, str], int] = {}
        self._carried: Counter[Edge] = Counter()
        self._least: Counter[Edge] = Counter()

    @property
    def links(self) -> dict[Edge, tuple[int, int]]:
        """Link -> messages that have crossed it, and the least possible number."""
        return {
            edge: (self._carried[edge], self._least[edge])
            for edge in sorted(self._carried | self._least)
        }

    def post(
        self,
        now: float,
        origin: str,
        due: frozenset[Client],
        edges: Iterable[Edge],
        *,
        stable: bool,
        size: int,
    ) -> bytes:
        """Return the data of a new message, ``size`` bytes or a few more."""
        edges = list(edges)
        message = Message(now, origin, due, len(edges), stable)
        self._least.update(edges)
        self.messages.append(message)
        self._recent.append(message)
        return (b"%b %d " % (_MARK, len(self.messages) - 1)).ljust(size, b".")

    def disturb(self, now: float) -> None:
        """Mark the messages of the last moments as unstable."""
        while self._recent and self._recent[0].at < now - self._grace:
            self._recent.popleft()
        for message in self._recent:
            message.stable = False

    def excuse(self, client: Client) -> None:
        """Expect no delivery of messages under way to a client that has unsubscribed."""
        for message in self._recent:
            if not message.got[client]:
                message.due -= {client}

    def count_crossings(self, src: str, dst: str, chunk: bytes) -> None:
        """Count the messages in the batches of ``chunk``, which is whole frames."""
        link = min(src, dst), max(src, dst)
        at = 0
        while at < len(chunk):
            end = wire.next_frame(chunk, at)
            if chunk.startswith(_BATCH, at):
                inner = chunk.index(b"\n", at) + 1
                while inner < end - 1:
                    after = wire.next_frame(chunk, inner)
                    words = chunk[inner:after].split(b" ", 5)
                    if words[3] == _MARK:
                        self.messages[int(words[4])].crossings += 1
                        self._carried[link] += 1
                    inner = after
            at = end

    def count_delivery(self, key: Client, data: bytes) -> None:
        """Count a message that the client of a daemon has received."""
        words = data.split(b" ", 2)
        if words[0] != _MARK:
            return
        number = int(words[1])
        message = self.messages[number]
        message.got[key] += 1
        latest = self._latest.get((key, message.origin), -1)
        if number < latest:
            message.overtaken += 1
        self._latest[key, message.origin] = max(number, latest)

    def add_up(self, now: float, running: Set[Client], *, stable: bool) -> Delivery:
        """Add up the deliveries of the stable messages, or of the others.

        Args:
            now: the time.
            running: the clients of the daemons that live.
            stable: which messages.
        """
        messages = [one for one in self.messages if one.stable == stable]
        lost = 0
        for message in messages:
            if message.stable or message.at <= now - self._grace:
                lost += sum(key in running and not message.got[key] for key in message.due)
        return Delivery(
            messages=len(messages),
            due=sum(len(message.due) for message in messages),
            lost=lost,
            duplicates=sum(sum(one.got.values()) - len(+one.got) for one in messages),
            overtaken=sum(message.overtaken for message in messages),
            crossings=sum(message.crossings for message in messages),
            least=sum(message.least for message in messages),
        )
