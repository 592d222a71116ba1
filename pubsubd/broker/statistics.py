"""The statistics that ``//pubsubd/stats`` carries."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass

from pubsubd import __version__
from pubsubd.broker.counters import Counters
from pubsubd.broker.faults import Faults
from pubsubd.broker.peer import Peer
from pubsubd.routing.router import Router


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
    cpu_s: float


def rss() -> int:
    """Return the resident memory of this process in bytes, 0 where /proc does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def take_statistics(
    counters: Counters, faults: Faults, router: Router, peers: Collection[Peer], uptime: float
) -> Statistics:
    """Return a snapshot of a broker that has run for ``uptime`` seconds."""
    return Statistics(
        version=__version__,
        pid=os.getpid(),
        uptime_s=round(uptime, 3),
        connections=len(peers),
        connections_total=counters.connections_total,
        subscriptions=router.own_subscriptions,
        substrings=router.substrings,
        messages_in=counters.messages_in,
        messages_out=counters.messages_out,
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
        backlog_bytes=sum(peer.outbox.size for peer in peers),
        dropped=counters.dropped,
        half_frames=counters.half_frames,
        closed=dict(counters.closed),
        errors=dict(counters.errors),
        faults=dict(faults.counts),
        cached_names=router.cached_names,
        cached_headers=len(router.routes),
        lookups=router.lookups,
        rss_bytes=rss(),
        cpu_s=round(time.process_time(), 3),
    )
