"""What the broker knows of a connection, whatever it speaks, without I/O."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.errors import ProtocolError
from pubsubd.limits import MAX_READ, READ_SIZE
from pubsubd.outbox import Outbox


class Peer:
    """A connection, as the broker sees it.

    Attributes:
        number: counts the connections since the start, from 1.
        label: what it is called in logs, for example ``127.0.0.1:50312``.
        substrings: what it subscribes; the router's.
        fresh: frames put during the present read.
        put: ``fresh.append``, bound once.
        send: hands over bytes at the end of a read; never blocks; set by the owner.
        outbox: what could not be sent at once; the owner's.
        parts, missing: input that is not worked off; bytes without which nothing can be.
        large: whether that input is a frame with a known header, larger than a read.
        ending: why the connection has to be closed, once it has.
    """

    __slots__ = (
        "ending",
        "fresh",
        "label",
        "large",
        "missing",
        "number",
        "outbox",
        "parts",
        "put",
        "send",
        "substrings",
        "width",
    )

    def __init__(self, number: int, label: str, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.label = label
        self.send = send
        self.substrings: set[bytes] = set()
        self.fresh: list[bytes] = []
        self.put = self.fresh.append
        self.outbox = Outbox()
        self.parts = [b"\n"]
        self.missing = 1
        self.large = False
        self.width = 0
        self.ending: ProtocolError | None = None

    def release(self) -> None:
        """Let go of all that is held for a peer that has left and is closed."""
        self.send = _discard
        self.fresh.clear()
        self.parts.clear()
        self.outbox = Outbox()

    @property
    def wanted(self) -> int:
        """Bytes to read at once: of a large frame what is missing, so that it ends the read."""
        return max(READ_SIZE, min(self.missing, MAX_READ)) if self.large else READ_SIZE

    @property
    def halfway(self) -> bool:
        """Whether part of a command has come and the rest has not."""
        return sum(map(len, self.parts)) > 1


def _discard(data: bytes) -> None:
    """Take what is sent to a peer that is closed."""
