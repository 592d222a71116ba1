"""Lists of topics: of this port, or of the ports of all workers of the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

from msgspec import Struct
from msgspec.json import decode, encode

from pubsubd.broker.turn import Steps
from pubsubd.hub.core import HubCore
from pubsubd.routing.lookups import Unfinished

NAMES = b"hub-topics"
"""The question for topics, in the order in which they came."""

RECORDS = b"hub-topic-records"
"""The question for records of topics."""

_ROOM = 512 * 1024  # bytes of names told to another worker
_STEP = 256  # names between two pauses


class Record(Struct, array_like=True):
    """A topic.

    Attributes:
        created_at: when it was first published or subscribed, in epoch milliseconds; 0 if this
            worker does not remember it.
        messages: messages published to it over hub ports.
        receivers: connections that get it.
    """

    created_at: int
    messages: int
    receivers: int

    def add(self, other: Record) -> None:
        """Add what another worker knows of the topic."""
        known = [one for one in (self.created_at, other.created_at) if one]
        self.created_at = min(known, default=0)
        self.messages += other.messages
        self.receivers += other.receivers


class _Names(Struct, array_like=True):
    """Topics in the order in which they came, with when that was, and how many there are."""

    names: list[tuple[int, str]]
    total: int


def find_page(hub: HubCore, offset: int, limit: int) -> Steps[tuple[list[bytes], int]]:
    """Return ``limit`` topics, in the order in which they came, and how many there are; in steps.

    With several workers, their number is the least that there are if there are very many.
    """
    if hub.elsewhere is None:
        return hub.topics.page(offset, limit)
    most = offset + limit
    texts = yield from hub.elsewhere(NAMES, b"%d" % most)
    parts = [_first(hub, most)]
    for text in texts:
        parts.append(decode(text, type=_Names))
        yield
    seen: dict[str, None] = {}
    for number, (_, name) in enumerate(merge(*(part.names for part in parts)), 1):
        seen[name] = None
        if number % _STEP == 0:
            yield
    page = [name.encode() for name in list(seen)[offset:most]]
    return page, max(len(seen), *(part.total for part in parts))


def find_records(hub: HubCore, names: Sequence[bytes]) -> Steps[list[Record | None]]:
    """Return the records of topics, None for those that are not remembered; in steps."""
    over, found = hub.broker.delivery.turn.over, []
    for name in names:
        if over():
            yield
        found.append((yield from _describe(hub, name)))
    if hub.elsewhere is not None:
        asked = encode([name.decode() for name in names])
        for text in (yield from hub.elsewhere(RECORDS, asked)):
            for at, other in enumerate(decode(text, type=list[Record | None])):
                record = found[at]
                if record is None:
                    found[at] = other
                elif other is not None:
                    record.add(other)
            yield
    return [record if record and record.created_at else None for record in found]


def answer_names(hub: HubCore, data: bytes) -> bytes:
    """Answer another worker that asks for topics: so many as ``data`` says, or fit."""
    return encode(_first(hub, int(data)))


def answer_records(hub: HubCore, data: bytes) -> Steps[bytes]:
    """Answer another worker that asks for records of topics, in steps."""
    found = []
    for name in decode(data, type=list[str]):
        found.append((yield from _describe(hub, name.encode())))
        yield
    return encode(found)


def _first(hub: HubCore, most: int) -> _Names:
    names, total = hub.topics.page(0, most)
    return _Names(list(_dated(hub, names)), total)


def _dated(hub: HubCore, names: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    room = _ROOM
    for name in names:
        room -= len(name) + 20
        if room < 0:
            return
        topic = hub.topics.get(name)
        assert topic is not None
        yield hub.date(int(topic.created_at * 1000)), name.decode()


def _describe(hub: HubCore, name: bytes) -> Steps[Record | None]:
    """Return what this worker knows of a topic, in steps."""
    while True:
        try:
            receivers = hub.broker.delivery.count_receivers(name)
            break
        except Unfinished:  # who receives it takes more than a turn to find out
            yield
    topic = hub.topics.get(name)
    if topic is None:
        return Record(0, 0, receivers) if receivers else None
    return Record(hub.date(int(topic.created_at * 1000)), topic.message_count, receivers)
