"""The metrics of several workers as those of one daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from prometheus_client.core import Metric

_LARGEST = {
    "pubsubd_backlog_largest_bytes",
    "pubsubd_backlog_largest_ratio",
    "pubsubd_connections_limit",
    "pubsubd_substrings",
}
_LEAST = {
    "pubsubd_ready",
    "pubsubd_config_last_reload_successful",
    "pubsubd_config_last_reload_success_timestamp_seconds",
    "pubsubd_tls_not_after_timestamp_seconds",
}
_SAME = {"pubsubd_build"}


class _Sample(msgspec.Struct, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class _Family(msgspec.Struct, array_like=True):
    name: str
    text: str
    kind: str
    samples: list[_Sample]


_decoder = msgspec.msgpack.Decoder(list[_Family])


def dump(families: Iterable[Metric]) -> bytes:
    """Return families in a form that :func:`join` reads."""
    return msgspec.msgpack.encode(
        [
            _Family(
                one.name,
                one.documentation,
                one.type,
                [
                    _Sample(sample.name, sample.labels, float(sample.value))
                    for sample in one.samples
                ],
            )
            for one in families
        ]
    )


def add(part: bytes, before: bytes) -> bytes:
    """Return the families of a worker, with what :func:`count` has left of an earlier one."""
    return msgspec.msgpack.encode(_decoder.decode(part) + _decoder.decode(before))


def count(part: bytes) -> bytes:
    """Return those families of a worker that never go down, except those of its process."""
    return dump(
        family
        for family in join({0: part}, {})
        if family.type in ("counter", "histogram") and not family.name.startswith("process_")
    )


def join(parts: Mapping[int, bytes], whole: Mapping[str, float]) -> list[Metric]:
    """Return the families of all workers: figures of processes by worker, all others added up.

    Args:
        parts: number of a worker -> what :func:`dump` has made of its families.
        whole: family -> its only figure, of those that are no sums.
    """
    found: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for number, part in sorted(parts.items()):
        for family in _decoder.decode(part):
            name = family.name
            if name not in found:
                found[name] = Metric(name, family.text, family.kind)
                values[name] = {}
            known, add = values[name], _adding(name)
            for sample in family.samples:
                labels = sample.labels
                if name.startswith("process_"):
                    labels = labels | {"worker": str(number)}
                key = sample.name, tuple(labels.items())
                if name in whole:
                    known[key] = whole[name]
                    continue
                known[key] = add(known[key], sample.value) if key in known else sample.value
    for name, metric in found.items():
        for (sample_name, pairs), value in values[name].items():
            metric.add_sample(sample_name, dict(pairs), value)
    return list(found.values())


def _adding(name: str) -> Callable[[float, float], float]:
    if name in _LARGEST:
        return max
    if name in _LEAST:
        return min
    if name in _SAME:
        return lambda before, _: before
    return lambda before, value: before + value
