"""The metrics of several workers are those of one daemon."""

from __future__ import annotations

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from pubsubd.daemon.joined_metrics import add, count, dump, join


def families(number: int) -> list[Metric]:
    errors = CounterMetricFamily("pubsubd_errors", "Errors.", labels=("code",))
    errors.add_metric(("a",), number)
    errors.add_metric((f"only-{number}",), 1)
    return [
        CounterMetricFamily("pubsubd_messages_received", "Messages.", 10 * number),
        errors,
        GaugeMetricFamily("pubsubd_backlog_largest_bytes", "Bytes.", number),
        GaugeMetricFamily("pubsubd_ready", "Ready.", number != 2),
        GaugeMetricFamily("pubsubd_hub_topics", "Topics.", number),
        HistogramMetricFamily(
            "pubsubd_loop_lag_seconds", "Lag.", buckets=[("0.1", number), ("+Inf", 5)], sum_value=2
        ),
        GaugeMetricFamily("process_open_fds", "Descriptors.", 100 + number),
        InfoMetricFamily("pubsubd_build", "What runs.", value={"version": "1"}),
    ]


def samples(found: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in found
        for sample in family.samples
    }


def test_counts_are_added_up_and_processes_are_told_apart():
    parts = {number: dump(families(number)) for number in (2, 1, 3)}
    found = samples(join(parts, {"pubsubd_hub_topics": 4}))
    assert found == {
        ("pubsubd_messages_received_total",): 60,
        ("pubsubd_errors_total", "a"): 6,
        ("pubsubd_errors_total", "only-1"): 1,
        ("pubsubd_errors_total", "only-2"): 1,
        ("pubsubd_errors_total", "only-3"): 1,
        ("pubsubd_backlog_largest_bytes",): 3,
        ("pubsubd_ready",): 0,
        ("pubsubd_hub_topics",): 4,
        ("pubsubd_loop_lag_seconds_bucket", "0.1"): 6,
        ("pubsubd_loop_lag_seconds_bucket", "+Inf"): 15,
        ("pubsubd_loop_lag_seconds_count",): 15,
        ("pubsubd_loop_lag_seconds_sum",): 6,
        ("process_open_fds", "1"): 101,
        ("process_open_fds", "2"): 102,
        ("process_open_fds", "3"): 103,
        ("pubsubd_build_info", "1"): 1,
    }


def test_one_worker_alone_is_what_it_was():
    (own,) = [join({0: dump(families(1))}, {})]
    assert [one.type for one in own] == [one.type for one in families(1)]
    assert [one.documentation for one in own] == [one.documentation for one in families(1)]


def test_what_an_earlier_worker_counted_is_added_and_nothing_else_of_it():
    earlier = count(dump(families(2)))
    found = samples(join({1: add(dump(families(1)), earlier)}, {}))
    assert found == samples(join({1: dump(families(1))}, {})) | {
        ("pubsubd_messages_received_total",): 30,
        ("pubsubd_errors_total", "a"): 3,
        ("pubsubd_errors_total", "only-2"): 1,
        ("pubsubd_loop_lag_seconds_bucket", "0.1"): 3,
        ("pubsubd_loop_lag_seconds_bucket", "+Inf"): 10,
        ("pubsubd_loop_lag_seconds_count",): 10,
        ("pubsubd_loop_lag_seconds_sum",): 4,
    }
