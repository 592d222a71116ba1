"""Counters, and the snapshot of them that ``//pubsubd/stats`` carries."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass


class Counters:
    """What has happened since the start. The hot path adds to these once a read."""

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


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the daemon. Bytes and seconds; the rest are counts."""

    version: str
    pid: int
    uptime_s: float
    connections: int
    connections_total: int
    subscriptions: int
    substrings: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog_bytes: int
    dropped: int
    half_frames: int
    closed: dict[str, int]
    errors: dict[str, int]
    faults: dict[str, int]
    cached_names: int
    cached_headers: int
    lookups: int
    rss_bytes: int


def rss() -> int:
    """Return the resident memory of this process in bytes, 0 where /proc does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
