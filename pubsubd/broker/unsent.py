"""What one turn could not send, and what a peer waits for, without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pubsubd.broker.peer import Peer
from pubsubd.routing.targets import Sink

_FEW = 16  # receivers, and pieces, of what is little
_LITTLE = 16_384  # bytes of it

Notes = tuple[bytes, list[object]]
"""A chunk of messages, and what is known of each of them."""


class Waited(Protocol):
    """Something that a peer waits for.

    Attributes:
        done: called when it is there.
    """

    done: Callable[[], None]


class Unsent:
    """Output of one read that was more than its turn could send.

    Attributes:
        speaker: whose input has led to it; None if it is the daemon's own.
        notes: what is known of the messages; see :attr:`Delivery.notes`.
        pieces: what is to be sent, and to whom.
        part: what is being sent of the first piece; empty if the next part is not cut.
        start: where that part ends.
        at: the first of the peers of the first piece that has not been sent the part.
        done: called when nothing is left.
    """

    __slots__ = ("__weakref__", "at", "done", "notes", "part", "pieces", "speaker", "start")

    def __init__(
        self, speaker: Peer | None, notes: Notes, pieces: deque[tuple[bytes, list[Sink]]]
    ) -> None:
        self.speaker = speaker
        self.notes = notes
        self.pieces = pieces
        self.part = b""
        self.start = 0
        self.at = 0
        self.done: Callable[[], None] = lambda: None

    @property
    def little(self) -> bool:
        """Whether it is a small part of a turn."""
        pieces = self.pieces
        return (
            len(pieces) <= _FEW
            and sum(len(peers) for _, peers in pieces) <= _FEW
            and sum(len(data) for data, _ in pieces) <= _LITTLE
        )

    @property
    def renders(self) -> bool:
        """Whether the first piece is for peers that render it."""
        return self.pieces[0][1][0].render is not None
