"""Counters of this port, or those of the ports of all workers of the daemon, added up."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import asdict

from pubsubd.broker.turn import Steps
from pubsubd.hub.core import HubCore
from pubsubd.hub.listing import find_page
from pubsubd.hub.replies import Metrics

METRICS = b"hub-metrics"
"""The question for what hub:metrics tells."""

STATISTICS = b"hub-synap-stats"
"""The question for what pubsub.stats tells."""


class Statistics(Struct):
    """What Synap has counted.

    Attributes:
        counts: name -> count, which are added up.
        top: the topics with the most messages.
    """

    counts: dict[str, int | float]
    top: list[str]


def find_metrics(hub: HubCore) -> Steps[Metrics]:
    """Return the payload of hub:metrics_response, in steps."""
    found = hub.metrics()
    if hub.elsewhere is None:
        return found
    up, counts = found.uptime_seconds, asdict(found)
    for text in (yield from hub.elsewhere(METRICS, b"")):
        _add(counts, asdict(decode(text, type=Metrics)))
    topics = yield from count_topics(hub)
    return Metrics(**{**counts, "topics": topics, "uptime_seconds": up})


def find_statistics(hub: HubCore, own: Statistics) -> Steps[Statistics]:
    """Return what Synap has counted at all workers, in steps."""
    if hub.elsewhere is not None:
        for text in (yield from hub.elsewhere(STATISTICS, b"")):
            other = decode(text, type=Statistics)
            _add(own.counts, other.counts)
            own.top += other.top
    return own


def count_topics(hub: HubCore) -> Steps[int]:
    """Return how many topics there are, in steps; see :func:`~pubsubd.hub.listing.find_page`."""
    if hub.elsewhere is None:
        return len(hub.topics)
    return (yield from find_page(hub, 0, hub.limits.page))[1]


def answer_metrics(hub: HubCore, _data: bytes) -> bytes:
    """Answer another worker that asks for what hub:metrics tells."""
    return encode(hub.metrics())


def _add(counts: dict[str, int | float], others: dict[str, int | float]) -> None:
    for name, count in others.items():
        counts[name] += count
