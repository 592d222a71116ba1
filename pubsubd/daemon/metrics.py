"""Metrics for Prometheus: the answer to ``GET /metrics``.

Strategy: nothing is counted for this alone. A scrape takes a snapshot of what the parts of the
daemon count anyway, and goes once through the connections, for what is known of each of them only.
It does so in steps, and once for all who ask within a moment.

This module is imported when it is asked for the first time, as few daemons are.

Invariants:

- Labels come from the settings, from this program, or from daemons that are linked: never from a
  client. Each has few values, whatever anybody sends; a code that is not this program's own, which
  another daemon may have told, is ``other``.
- What is told as a counter never goes down.
- pubsubd-operations(7) lists the families.
"""

from __future__ import annotations

import logging
import os
import platform
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from pubsubd import __version__
from pubsubd.broker.connections import spoken
from pubsubd.broker.turn import Shared, Steps
from pubsubd.daemon import joined_metrics
from pubsubd.daemon.lag import BUCKETS
from pubsubd.hub.replies import CODES as HUB_ERRORS
from pubsubd.hub.sums import count_topics
from pubsubd.protocol.errors import CLOSES, HUB_CLOSES, MESH_CLOSES, STAYS

if TYPE_CHECKING:
    from pubsubd.broker.broker import Broker
    from pubsubd.daemon.lag import LoopLag
    from pubsubd.daemon.reload import Reloader
    from pubsubd.hub.port import Hub
    from pubsubd.mesh.report import Report
    from pubsubd.siblings.kept import Kept
    from pubsubd.transport.tasks import Tasks

MAX_LINKS = 100
"""Links to other daemons that have series of their own, those that have lasted longest."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

AUTH_CODES = (
    "login-failed",
    "login-required",
    "login-revoked",
    "login-throttled",
    "login-timeout",
    "not-allowed",
    "too-many-failures",
    "unauthorized",
    "hub:invalid_token",
    "hub:unauthorized",
)
"""Codes that say that somebody may not do something."""

_CLOSING = (*CLOSES, *HUB_CLOSES, *MESH_CLOSES)
_CODES = (*STAYS, *_CLOSING, *(f"hub:{code}" for code in HUB_ERRORS))
_REFUSED = (*MESH_CLOSES, "bad-address", "bad-advert", "forged-advert", "trace")
_openmetrics: Callable[[CollectorRegistry], bytes] = generate_openmetrics  # which has no types
_GENERATE = {TEXT: generate_latest, OPENMETRICS: _openmetrics}
_AT_ONCE = 256  # connections counted without looking at the clock
_PLACES = 100  # functions that faults are told of, those with the most
_UNTOLD = "dialled"  # the listener of connections that came by none


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of the daemon that a scrape reads.

    Attributes:
        broker: the daemon's.
        hub: its hub port, which is where scrapes come by.
        lag: how late its loop is.
        mesh: what it knows of its mesh; None if it takes part in none.
        reloader: what puts settings into force; None if nothing does.
        tasks: the daemon's own; None if there are none.
        number: of this worker, from 0, if there are others.
        kept: what the workers keep of their counters; None if there is only one.
    """

    broker: Broker
    hub: Hub
    lag: LoopLag
    mesh: Report | None = None
    reloader: Reloader | None = None
    tasks: Tasks | None = None
    number: int = 0
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class _SubscriberSet:
    """Figures of the connections.

    Attributes:
        kinds: how many there are, by listener, transport and dialect.
        backlog, largest: bytes that wait for all, and for one, of them.
        share: the largest part of what may wait for one.
    """

    kinds: Counter[tuple[str, str, str]]
    backlog: int
    largest: int
    share: float


class _Made(Collector):
    """Families that are made already."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> list[Metric]:
        return self.families


class Metrics:
    """The families, made anew at each scrape."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._registry = CollectorRegistry(auto_describe=False)
        self._made = _Made()
        self._registry.register(self._made)
        clock = sources.hub.clock
        self._shared = {
            kind: Shared(partial(self._write, generate), clock)
            for kind, generate in _GENERATE.items()
        }
        self._dumped = Shared(self._dump, clock)
        self._before = b"" if sources.kept is None else sources.kept.last(sources.number)
        self._hits = 0
        self._process_start = _process_start()

    def render(self, accept: str) -> Steps[tuple[bytes, str]]:
        """Return all families, and their content type, in steps.

        Args:
            accept: the header of the request: OpenMetrics is for those who name it.
        """
        kind = _kind(accept)
        return (yield from self._shared[kind].get()), kind

    def render_joined(self, accept: str, parts: Mapping[int, bytes]) -> Steps[tuple[bytes, str]]:
        """Return the families of several workers, by number, and their content type, in steps."""
        topics = yield from count_topics(self._sources.hub)  # many are known to several workers
        families = joined_metrics.join(parts, {"pubsubd_hub_topics": topics})
        yield
        kind = _kind(accept)
        return self._generate(families, _GENERATE[kind]), kind

    def dump(self) -> Steps[bytes]:
        """Return all families, in a form for other workers, in steps."""
        return (yield from self._dumped.get())

    def _dump(self) -> Steps[bytes]:
        part = joined_metrics.dump((yield from self.collect()))
        kept = self._sources.kept
        if kept is None:
            return part
        yield
        if self._before:
            part = joined_metrics.add(part, self._before)
        kept.keep(self._sources.number, joined_metrics.count(part))
        return part

    def _write(self, generate: Callable[[CollectorRegistry], bytes]) -> Steps[bytes]:
        families = yield from self.collect()
        yield  # writing is a step of its own
        return self._generate(families, generate)

    def _generate(
        self, families: list[Metric], generate: Callable[[CollectorRegistry], bytes]
    ) -> bytes:
        self._made.families = families
        return generate(self._registry)

    def collect(self) -> Steps[list[Metric]]:
        """Return the families, in steps."""
        over, mesh = self._sources.broker.delivery.turn.over, self._sources.mesh
        crowd = yield from self._count_connections()
        families = []
        for part in (
            self._traffic(),
            self._connections(crowd),
            self._routing(),
            self._security(),
            self._hub(),
            () if mesh is None else _mesh(mesh),
            self._daemon(),
            self._process(),
        ):
            for family in part:
                families.append(family)
                if over():
                    yield
        return families

    def _traffic(self) -> Iterator[Metric]:
        counters = self._sources.broker.counters
        yield _counter(
            "messages_received", "Messages that clients and links have sent.", counters.messages_in
        )
        yield _counter(
            "messages_sent",
            "Messages handed to connections, once for each that receives it.",
            counters.messages_out,
        )
        yield _counter("received_bytes", "Bytes read from connections.", counters.bytes_in)
        yield _counter("sent_bytes", "Bytes handed to connections.", counters.bytes_out)
        yield _counter(
            "messages_dropped",
            "Messages that slow consumers have lost under slow_consumer = drop.",
            counters.dropped,
        )
        yield _counter(
            "half_frames",
            "Commands that were cut short by the end of the connection.",
            counters.half_frames,
        )

    def _count_connections(self) -> Steps[_SubscriberSet]:
        broker = self._sources.broker
        kinds: Counter[tuple[str, str, str]] = Counter()
        backlog = largest = 0
        share = 0.0
        for done, peer in enumerate(list(broker.peers.values())):
            if done % _AT_ONCE == 0 and broker.delivery.turn.over():
                yield
            listener = peer.listener
            kinds[listener.name, *spoken(peer)] += 1
            if size := peer.outbox.size:
                limits = listener.limits if peer.hub is None else listener.hub_limits
                backlog += size
                largest = max(largest, size)
                share = max(share, size / limits.max_pending)
        return _SubscriberSet(kinds, backlog, largest, share)

    def _connections(self, crowd: _SubscriberSet) -> Iterator[Metric]:
        broker = self._sources.broker
        counters = broker.counters
        yield _counter(
            "connections_accepted",
            "Connections that were let in, and those that were made to other daemons.",
            counters.connections_total,
        )
        yield _counters(
            "connections_closed",
            "Connections that the daemon has ended, by the reason that they were told.",
            "reason",
            _known(counters.closed, _CLOSING),
        )
        family = GaugeMetricFamily(
            "pubsubd_connections",
            "Connections that are open.",
            labels=("listener", "transport", "dialect"),
        )
        for (listener, transport, dialect), count in crowd.kinds.items():
            family.add_metric((listener or _UNTOLD, transport, dialect), count)
        yield family
        yield _gauge(
            "connections_limit",
            "Connections that there may be at a time.",
            broker.listener.limits.max_connections,
        )
        yield _gauge(
            "backlog_bytes", "Bytes that wait to be sent, of all connections.", crowd.backlog
        )
        yield _gauge("backlog_largest_bytes", "Bytes that wait for one connection.", crowd.largest)
        yield _gauge(
            "backlog_largest_ratio",
            "The largest backlog, as a part of what may wait for that connection.",
            crowd.share,
        )

    def _routing(self) -> Iterator[Metric]:
        broker = self._sources.broker
        router = broker.router
        yield _gauge(
            "subscriptions",
            "Pairs of a connection and a substring, name or wildcard.",
            router.own_subscriptions,
        )
        yield _gauge("substrings", "Different substrings.", router.substrings)
        yield _gauge("cached_names", "Names whose receivers are remembered.", router.cached_names)
        yield _gauge("cached_headers", "Headers that are remembered.", len(router.routes))
        yield _counter("route_lookups", "Names whose receivers had to be found.", router.lookups)
        # There are lookups without a message, and a counter must not go down because of them.
        self._hits = max(self._hits, broker.counters.messages_in - router.lookups)
        yield _counter("route_hits", "Messages whose receivers were remembered.", self._hits)

    def _security(self) -> Iterator[Metric]:
        errors = self._sources.broker.counters.errors
        yield _counters(
            "errors", "Errors that were told, by their code.", "code", _known(errors, _CODES)
        )
        yield _counters(
            "auth_refusals",
            "Those of the errors that say that somebody may not do something.",
            "code",
            {code: errors[code] for code in AUTH_CODES},
        )
        reloader = self._sources.reloader
        if reloader is not None and reloader.reminders.files:
            family = GaugeMetricFamily(
                "pubsubd_tls_not_after_timestamp_seconds",
                "When the first certificate of a file in use expires, in seconds since the epoch.",
                labels=("listener", "setting"),
            )
            for file in reloader.reminders.files:
                family.add_metric((file.listener, file.setting), file.not_after)
            yield family

    def _hub(self) -> Iterator[Metric]:
        hub = self._sources.hub
        yield _gauge("hub_actors", "Actors that are registered.", len(hub.registry))
        yield _gauge("hub_topics", "Topics that are remembered.", len(hub.topics))
        yield _gauge(
            "hub_subscribers",
            "Synap subscribers, those without a connection included.",
            len(hub.synap.subscribers),
        )
        yield _counter("hub_messages", "Messages of Signal Hub that have come.", hub.processed)
        yield _counter(
            "hub_messages_failed", "Messages that were answered with hub:error.", hub.failed
        )
        yield _counter(
            "hub_envelopes_ignored", "Envelopes that could not be understood.", hub.ignored
        )

    def _daemon(self) -> Iterator[Metric]:
        lag, reloader = self._sources.lag, self._sources.reloader
        bounds = [*map(str, BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "pubsubd_loop_lag_seconds",
            "How much later than it should a task of the loop was woken.",
            buckets=list(zip(bounds, accumulate(lag.counts), strict=True)),
            sum_value=lag.total,
        )
        faults = self._sources.broker.faults.counts
        yield _counters(
            "faults",
            "Mistakes of this program that were met, by the function; none is the rule.",
            "place",
            dict(faults.most_common(_PLACES)),
        )
        log = logging.getLogger("pubsubd")
        yield _counter(
            "log_lines_lost",
            "Lines of the log that its reader has not taken.",
            sum(getattr(handler, "lost", 0) for handler in log.handlers),
        )
        if (tasks := self._sources.tasks) is not None:
            yield _counters(
                "task_restarts",
                "Tasks of the daemon's own that have failed and were started again.",
                "task",
                dict(tasks.restarts),
            )
            yield _gauge(
                "tasks_down",
                "Tasks of the daemon's own that have failed and do not run again yet.",
                len(tasks.down),
            )
        yield _gauge(
            "ready",
            "1 while new connections are let in, 0 while it is full or ends.",
            self._sources.hub.state == "ok",
        )
        if reloader is not None:
            yield _gauge(
                "config_last_reload_successful",
                "1 if the settings in force are those that were read last, 0 if these had a fault.",
                not reloader.failed,
            )
            yield _gauge(
                "config_last_reload_success_timestamp_seconds",
                "When the settings in force were put into force.",
                reloader.applied,
            )
        yield InfoMetricFamily(
            "pubsubd_build",
            "What runs.",
            value={"version": __version__, "python": platform.python_version()},
        )

    def _process(self) -> Iterator[Metric]:
        # As prometheus_client's own collector has them; but that lists all descriptors one by one,
        # which takes longer than everything else if there are many connections.
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield CounterMetricFamily(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds.",
            used.ru_utime + used.ru_stime,
        )
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield GaugeMetricFamily(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            float("inf") if most == resource.RLIM_INFINITY else most,
        )
        try:
            with open("/proc/self/statm", encoding="ascii") as statm:
                pages = statm.read().split()
            # The size of this directory is their number (Linux 6.2); before, it was 0.
            count = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
        except OSError:
            return
        size = os.sysconf("SC_PAGE_SIZE")
        yield GaugeMetricFamily(
            "process_virtual_memory_bytes", "Virtual memory size in bytes.", int(pages[0]) * size
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Resident memory size in bytes.", int(pages[1]) * size
        )
        yield GaugeMetricFamily("process_open_fds", "Number of open file descriptors.", count)
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            self._process_start,
        )


def _mesh(report: Report) -> Iterator[Metric]:
    mesh = report.mesh
    counters, links, table = mesh.counters, mesh.links, mesh.table
    reached = len(table.adverts.keys() & table.hops.keys())
    yield InfoMetricFamily(
        "pubsubd_mesh",
        "Who this daemon is in its mesh.",
        value={"mesh": mesh.state.config.mesh, "node": mesh.state.node},
    )
    yield _gauge("mesh_links", "Links to other daemons that are up.", len(links))
    yield _gauge(
        "mesh_dialling",
        "Addresses that were dialled in vain and are dialled again.",
        len(report.dialling),
    )
    yield _gauge("mesh_plain_peers", "Peers that know of no hello.", len(mesh.legacy.peers))
    yield _gauges(
        "mesh_daemons",
        "Daemons of the mesh that are known, this one included, by whether they can be reached.",
        "state",
        {"reachable": reached, "unreachable": len(table.adverts) - reached},
    )
    yield _gauge(
        "mesh_flooding",
        "1 while messages go over all links, because the mesh has just changed.",
        mesh.forwarding.flooding,
    )
    yield _counter(
        "mesh_batches_originated", "Batches of messages sent from here.", counters.originated
    )
    yield _counter("mesh_batches_received", "Batches that links have brought.", counters.received)
    yield _counter("mesh_batches_relayed", "Received batches passed on.", counters.relayed)
    yield _counter(
        "mesh_batches_duplicate",
        "Received batches that had come before, by another way.",
        counters.duplicates,
    )
    yield _counter(
        "mesh_batches_dropped",
        "Batches that were lost because a link was too slow for them.",
        counters.dropped + sum(link.dropped for link in links.values()),
    )
    yield _counters(
        "mesh_batches_faulty",
        "Received batches that could not be used as they should.",
        "reason",
        {
            "broken": counters.broken,
            "expired": counters.expired,
            "unknown-origin": counters.unknown_origin,
        },
    )
    yield _counters(
        "mesh_refusals",
        "Hellos, adverts and addresses that were refused.",
        "reason",
        _known(counters.refused, _REFUSED),
    )
    yield _counter("mesh_adverts_received", "Adverts of daemons received.", counters.adverts_in)
    yield _counter("mesh_adverts_sent", "Adverts of daemons sent.", counters.adverts_out)
    yield _counter(
        "mesh_adverts_received_bytes", "Bytes of received adverts.", counters.advert_bytes_in
    )
    yield _counter("mesh_adverts_sent_bytes", "Bytes of sent adverts.", counters.advert_bytes_out)
    shown = list(islice(links.values(), MAX_LINKS))
    yield _gauges(
        "mesh_link_round_trip_seconds",
        "Time there and back on a link.",
        "node",
        {link.node: link.rtt_ms / 1000 for link in shown if link.rtt_ms is not None},
    )
    yield _gauges(
        "mesh_link_backlog_bytes",
        "Bytes that wait to be sent on a link.",
        "node",
        {link.node: link.peer.outbox.size for link in shown},
    )


def _kind(accept: str) -> str:
    """Return the content type for an Accept header."""
    open_metrics = any(
        one.partition(";")[0].strip().lower() == "application/openmetrics-text"
        for one in accept.split(",")
    )
    return OPENMETRICS if open_metrics else TEXT


def _known(counts: Mapping[str, int], codes: Iterable[str]) -> dict[str, int]:
    """Return the counts of ``codes``, those that are 0 as well, and the sum of all others."""
    told = {code: counts.get(code, 0) for code in codes}
    other = sum(counts.values()) - sum(told.values())
    return told | {"other": other}


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"pubsubd_{name}", text, value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"pubsubd_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pubsubd_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"pubsubd_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _process_start() -> float:
    """Return since when this process runs, in seconds since the epoch; 0 where /proc is silent."""
    try:
        with open("/proc/self/stat", encoding="utf-8") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    up = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - up
