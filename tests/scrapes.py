"""What ``GET /metrics`` answers, for tests: the types of the families, and the samples."""

from __future__ import annotations

import http.client
import re
from collections import defaultdict

from tests.daemons import DEADLINE, Daemon

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """An answer in the text format.

    Attributes:
        text: all of it.
        types: name of a family -> its type.
        samples: name of a sample -> its values, by their labels as ``key=value`` in order.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE))
        self.samples: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            match = _SAMPLE.fullmatch(line)
            assert match, f"no sample: {line!r}"
            name, labels, value = match.groups()
            key = tuple(sorted(f"{key}={text}" for key, text in _LABEL.findall(labels or "")))
            assert key not in self.samples[name], f"twice: {line!r}"
            self.samples[name][key] = float(value)

    def __call__(self, name: str, *labels: str) -> float:
        """Return the sum of the values of ``pubsubd_<name>`` that have these labels."""
        rows = self.samples[f"pubsubd_{name}"]
        return sum(value for key, value in rows.items() if set(labels) <= set(key))

    def told(self, name: str) -> dict[str, float]:
        """Return the values of ``pubsubd_<name>``, which has one label, that are not 0."""
        rows = self.samples[f"pubsubd_{name}"]
        return {key.partition("=")[2]: value for (key,), value in rows.items() if value}

    def labels(self, family: str) -> set[str]:
        """Return the names of the labels of a family."""
        rows = self.samples[family] or self.samples[f"{family}_bucket"]
        return {label.partition("=")[0] for key in rows for label in key}


def request(
    daemon: Daemon, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of one request to the hub port."""
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    try:
        named = {key.replace("_", "-"): text for key, text in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        found = {key.lower(): text for key, text in answer.getheaders()}
        return answer.status, found, answer.read().decode()
    finally:
        connection.close()


def scrape(daemon: Daemon, **headers: str) -> Scrape:
    """Return what a daemon tells now."""
    status, _, text = request(daemon, **headers)
    assert status == 200, (status, text)
    return Scrape(text)
