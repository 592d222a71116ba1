"""Inputs for the cases of topology, made by the interpreter that analyses them.

    python topologydata.py KIND TARGET NUMBER      KIND: mesh, windows, links

The same arguments make the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

_BEGAN = 1_790_000_000_000  # milliseconds since the epoch
_DAEMONS, _LINKS, _REPORTS = 300, 1_000, 10
_HOUR = 3_600_000


def make_mesh(target: Path, daemons: int) -> None:
    """Write what a mesh exports in ten minutes, a file a minute and daemon, as JSON lines."""
    import json  # noqa: PLC0415  (only here)
    from datetime import UTC, datetime  # noqa: PLC0415

    def told(at: float) -> str:
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    target.mkdir(parents=True)
    ring = [(i, (i + 1) % daemons) for i in range(daemons)]
    for minute in range(10):
        for exporter in range(daemons):
            at = _BEGAN + minute * 60_000 + exporter * 137
            lines = [
                json.dumps(
                    {
                        "ts": told(at),
                        "mesh": "bench",
                        "observer": f"n{observer}",
                        "src": f"n{src}",
                        "dst": f"n{dst}",
                        "state": "up",
                        "since": told(_BEGAN - _HOUR),
                        "rtt_ms": 1.25,
                        "messages": minute * 1000,
                        "bytes": minute * 16_000,
                    }
                )
                for src, dst in ring
                for observer in (src, dst)
            ]
            path = target / f"edges-{exporter}-{minute}.jsonl"
            path.write_text("\n".join(lines) + "\n")


def make_windows(target: Path, windows: int) -> None:
    """Write hours of a mesh of 300 daemons and 1,000 links, 10,000 rows each, as Parquet."""
    target.mkdir(parents=True)
    rng = np.random.default_rng(windows)
    names = pa.array([f"daemon-{i:03d}.example:9014" for i in range(_DAEMONS)])
    pairs = np.sort(rng.choice(_DAEMONS * (_DAEMONS - 1) // 2, 2 * _LINKS, replace=False))
    tails = (np.sqrt(2 * pairs + 0.25) + 0.5).astype(np.int64)
    heads = pairs - tails * (tails - 1) // 2
    per_file = 100
    for first in range(0, windows, per_file):
        hours = np.arange(first, min(first + per_file, windows))
        # Each hour, one link in a hundred is another one.
        chosen = np.stack([_choose(hour) for hour in hours])
        rows = len(hours) * _LINKS * _REPORTS
        links = np.repeat(chosen[:, None, :], _REPORTS // 2, axis=1)[..., None]
        links = np.broadcast_to(links, (*links.shape[:3], 2)).reshape(-1)
        hour = np.repeat(hours, _LINKS * _REPORTS)
        report = np.tile(np.repeat(np.arange(_REPORTS // 2), _LINKS * 2), len(hours))
        end = np.tile(np.array([0, 1]), rows // 2)
        stamps = _BEGAN // _HOUR * _HOUR + hour * _HOUR + report * (_HOUR // 5) + 60_000
        src, dst = tails[links], heads[links]
        codes = {"src": src, "dst": dst, "observer": np.where(end == 0, src, dst)}
        text = {
            name: pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), names)
            for name, numbers in codes.items()
        }
        time = pa.timestamp("ms", "UTC")
        columns = {
            "ts": pa.array(stamps, time),
            "mesh": pa.array(["bench"] * rows),
            **{name: text[name].cast(pa.string()) for name in ("observer", "src", "dst")},
            "state": pa.array(["up"] * rows),
            "since": pa.array(np.full(rows, _BEGAN // _HOUR * _HOUR), time),
            "rtt_ms": pa.array(np.round(rng.gamma(2, 5, rows), 3)),
            "messages": pa.array(hour * 1000 + report * 100),
            "bytes": pa.array((hour * 1000 + report * 100) * 64),
        }
        pq.write_table(pa.table(columns), target / f"edges-{first:06d}.parquet")


def _choose(hour: int) -> np.ndarray:
    """Return the links of an hour: 1,000 of 2,000, of which a few change by the hour."""
    rng = np.random.default_rng([hour, 1])
    chosen = np.random.default_rng(0).permutation(2 * _LINKS)
    changed = rng.choice(_LINKS, _LINKS // 100, replace=False)
    links = chosen[:_LINKS].copy()
    links[changed] = rng.choice(chosen[_LINKS:], len(changed), replace=False)
    return np.sort(links)


def make_links(target: Path, links: int) -> None:
    """Write a graph with a tail of high degrees: a fifth as many daemons as links (Chung, Lu)."""
    target.mkdir(parents=True)
    rng = np.random.default_rng(links)
    daemons = links // 5
    weights = np.arange(1, daemons + 1) ** -0.4
    cumulated = np.cumsum(weights / weights.sum())
    order = rng.permutation(daemons)
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    # One file, as each list is a mesh of its own.
    with (target / "links.txt").open("wb") as file:
        for _ in range(8):
            drawn = [order[np.searchsorted(cumulated, rng.random(links // 8))] for _ in range(2)]
            src, dst = (pa.array(np.char.add("n", one.astype(str)), pa.string()) for one in drawn)
            pyarrow.csv.write_csv(pa.table({"src": src, "dst": dst}), file, options)


if __name__ == "__main__":
    {"mesh": make_mesh, "windows": make_windows, "links": make_links}[sys.argv[1]](
        Path(sys.argv[2]), int(sys.argv[3])
    )
