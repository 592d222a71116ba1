"""Messages of those who do not speak the line protocol, kept together until they are put."""

from __future__ import annotations

from pubsubd.broker.peer import Peer
from pubsubd.protocol import wire
from pubsubd.routing.targets import CopyTargets, Targets

_LENGTHS = 1024  # of data whose headers are remembered, for one name


class Heads(dict[int, bytes]):
    """Headers of the frames of one name, by the lengths of their data."""

    def __init__(self, name: bytes) -> None:
        self.name = name

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _LENGTHS:
            self.clear()
        self[size] = head = wire.header(self.name, size)
        return head


class Run:
    """Messages put one after the other that go to the same peers.

    Attributes:
        targets: these peers.
        spared: the one of them that does not get them, if there is one.
        frames: the messages.
        notes: what is known of each of them.
        count: how many peers get them.
        header: of the last one, if they are put one by one.
        heads: the headers of others of the last name.
    """

    __slots__ = ("count", "frames", "header", "heads", "notes", "spared", "targets")

    def __init__(self, targets: Targets | CopyTargets) -> None:
        self.targets = targets
        self.spared: Peer | None = None
        self.frames: list[bytes] = []
        self.notes: list[object] = []
        self.count = 0
        self.header = b""
        self.heads = Heads(b"")
