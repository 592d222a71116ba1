"""Counts what has happened since the start."""

from __future__ import annotations

from collections import Counter


class Counters:
    """Counts of events since the start. The hot path adds to these once a read."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed",
        "connections_total",
        "dropped",
        "errors",
        "half_frames",
        "messages_in",
        "messages_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.messages_out = 0
        self.dropped = 0
        self.half_frames = 0
        self.connections_total = 0
        self.closed: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
