"""Inputs for the cases of topology, made by the interpreter that analyses them.

    python topologydata.py KIND TARGET NUMBER      KIND: mesh, windows, links, year

The same arguments make the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from pubsubd.mesh.edge_files import Exporter, list_name, packed_name
from pubsubd.mesh.edges import COLUMNS, write_parquet_tables

_BEGAN = 1_790_000_000_000  # milliseconds since the epoch
_DAEMONS, _LINKS, _REPORTS = 300, 1_000, 10
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


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


def make_year(target: Path, days: int) -> None:
    """Write the folders of 50 daemons with 100 links, each of which breaks twice a week.

    All of them export once a minute and have compacted: all days but the last two, the hours of
    these, and nothing yet of the last half hour.
    """
    mesh = _Mesh(50, days * _DAY)
    last = mesh.began + days * _DAY
    for daemon in range(mesh.daemons):
        folder = target / f"daemon-{daemon:02}"
        folder.mkdir(parents=True)
        for day in range(mesh.began, last - 2 * _DAY, _DAY):
            _write(folder / packed_name(_stamp(day)[:8], "parquet"), mesh.thinned(daemon, day))
        for hour in range(max(mesh.began, last - 2 * _DAY), last, _HOUR):
            _write(folder / packed_name(_stamp(hour)[:11], "parquet"), mesh.lists(daemon, hour, 60))
        for minute in range(30):
            at = last + minute * _MINUTE
            rows = mesh.lists(daemon, at, 1)
            for name in ("ts", "since"):
                texts = pc.strftime(rows[name], "%Y-%m-%dT%H:%M:%SZ")
                rows = rows.set_column(rows.column_names.index(name), name, texts)
            Exporter(folder).write(rows.to_pylist(), at / 1000)


def _stamp(at: int) -> str:
    """Return a time as it is in names: ``20261128T063000.000Z``."""
    return list_name(at / 1000).removeprefix("edges-")


def _write(path: Path, rows: pa.Table) -> None:
    with path.open("xb") as file:
        write_parquet_tables([rows], file)


class _Mesh:
    """A ring with chords, and the sessions of its links for so many milliseconds, and a day."""

    def __init__(self, daemons: int, length: int) -> None:
        self.daemons = daemons
        self.began = _BEGAN // _DAY * _DAY
        self._rng = rng = np.random.default_rng(daemons)
        self._names = pa.array([f"daemon-{number:02}.example:9014" for number in range(daemons)])
        ring = np.arange(daemons)
        self._tails = np.concatenate([ring, ring])
        self._heads = np.concatenate([(ring + 1) % daemons, (ring + 7) % daemons])
        links = len(self._tails)
        self._offsets = rng.integers(0, _MINUTE, daemons)
        # Times of all links one after the other, apart from each other.
        self._apart = 2 * (length + 10 * _DAY)
        up = rng.exponential(3.5 * _DAY, (links, 8 + length // _DAY))
        down = rng.uniform(5_000, 900_000, up.shape)
        ends = np.cumsum(np.stack([up, down], 2).reshape(links, -1), 1).astype(np.int64)
        base = (np.arange(links) * self._apart)[:, None]
        ends = np.minimum(ends, self._apart - 1) + base
        self._starts = np.concatenate([base, ends[:, 1:-1:2]], 1).reshape(-1)
        self._stops = ends[:, ::2].reshape(-1)

    def lists(self, daemon: int, begin: int, count: int) -> pa.Table:
        """Return the rows of the lists that a daemon exports in some minutes."""
        at = begin - self.began + np.arange(count) * _MINUTE + self._offsets[daemon]
        links = np.arange(len(self._tails))
        return self._rows(np.repeat(links, count), np.tile(at, len(links)))

    def thinned(self, daemon: int, day: int) -> pa.Table:
        """Return what a daemon keeps of a day: see :mod:`pubsubd.mesh.thinning`."""
        offset, begin = int(self._offsets[daemon]), day - self.began
        lasts = begin + np.arange(1, 25) * _HOUR - _MINUTE + offset
        at = np.concatenate([[begin + offset], lasts])
        links = np.arange(len(self._tails))
        pairs = [(np.repeat(links, len(at)), np.tile(at, len(links)))]
        # The first list with each session, and the last one before and the first one after its end.
        for times, later in ((self._starts, 1), (self._stops, 0), (self._stops, 1)):
            link, time = np.divmod(times, self._apart)
            listed = ((time - offset) // _MINUTE + later) * _MINUTE + offset
            some = (listed >= begin) & (listed < begin + _DAY)
            pairs.append((link[some], listed[some]))
        return self._rows(*(np.concatenate(one) for one in zip(*pairs, strict=True)))

    def _rows(self, link: np.ndarray, at: np.ndarray) -> pa.Table:
        """Return the rows of both ends of links at times, counted from the beginning."""
        place = np.searchsorted(self._starts, link * self._apart + at, "right") - 1
        starts, stops = (one[place] - link * self._apart for one in (self._starts, self._stops))
        up = at < stops
        age = np.where(up, at, stops) - starts
        end = np.repeat([0, 1], len(link))
        link, at, up, age = (np.tile(one, 2) for one in (link, at, up, age))
        since = np.where(up, np.tile(starts, 2), np.tile(stops, 2))
        src, dst = self._tails[link], self._heads[link]
        observer = np.where(end == 0, src, dst)
        count = len(link)
        time = pa.timestamp("ms", "UTC")
        columns = {
            "ts": pa.array(self.began + at, time),
            "mesh": pa.array(["bench"] * count),
            "observer": self._names.take(pa.array(observer)),
            "src": self._names.take(pa.array(src)),
            "dst": self._names.take(pa.array(dst)),
            "state": pc.if_else(pa.array(up), "up", "down"),
            "since": pa.array(self.began + since, time),
            "rtt_ms": pa.array(np.round(self._rng.gamma(2, 5, count), 3), mask=~up),
            "messages": pa.array(age // 100),
            "bytes": pa.array(age // 100 * 64),
            "address": self._names.take(pa.array(observer)),
            "version": pa.array(["1.0.0"] * count),
        }
        nothing = pa.nulls(count)
        table = pa.table({name: columns.get(name, nothing) for name in COLUMNS})
        return table.sort_by([(name, "ascending") for name in ("observer", "src", "dst", "ts")])


if __name__ == "__main__":
    {"mesh": make_mesh, "windows": make_windows, "links": make_links, "year": make_year}[
        sys.argv[1]
    ](Path(sys.argv[2]), int(sys.argv[3]))
