"""Windows of a mesh: what is computed once, and in how many threads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from pubsubd.topology import snapshots
from pubsubd.topology.kernel.snapshot import snapshot
from pubsubd.topology.preparing import ARCS, Prepared
from pubsubd.topology.run import LISTED, is_long_list
from pubsubd.topology.snapshots import analyse_here, list_graphs
from tests.topologies import graph, ring, star


def windows(*graphs: list[tuple[str, str]]) -> pa.Table:
    rows = [
        {"mesh": "m", "window": datetime(2026, 11, 28, hour, tzinfo=UTC), "src": src, "dst": dst}
        for hour, arcs in enumerate(graphs)
        for src, dst in arcs
    ]
    return pa.Table.from_pylist(rows)


def test_windows_with_the_same_graph_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: Any) -> pa.Table:
        calls.append(arguments)
        return snapshot(*arguments)

    monkeypatch.setattr(snapshots, "snapshot", counted)
    monkeypatch.setattr(snapshots, "KNOWN", {})
    same, other = ring(5), ring(6)
    arcs = windows(same, other, same[::-1], same)
    graphs = list_graphs(arcs)
    facts = analyse_here(arcs, graphs, 0)
    assert len(calls) == 3  # the last window is analysed in detail
    found = [
        facts.filter(pa.compute.field("window") == datetime(2026, 11, 28, hour, tzinfo=UTC))
        for hour in range(3)
    ]
    assert found[0].drop_columns("window").equals(found[2].drop_columns("window"))
    assert found[0].num_rows != found[1].num_rows
    analyse_here(arcs, graphs, 1)  # with another seed nothing is known
    assert len(calls) == 6


def test_what_is_known_of_graphs_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "KNOWN", {})
    monkeypatch.setattr(snapshots, "KNOWN_ROWS", 500)
    arcs = windows(*(ring(count) for count in range(3, 10)))
    analyse_here(arcs, list_graphs(arcs), 0)
    assert 1 <= len(snapshots.KNOWN) <= 3


@pytest.mark.parametrize("detailed", [False, True])
def test_two_threads_find_what_one_finds(detailed: bool) -> None:
    shape = graph([*ring(12), *star(4), ("n3", "n7")])
    assert snapshot(shape, 0, detailed, 2).equals(snapshot(shape, 0, detailed))


def test_a_failure_in_the_second_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr("pubsubd.topology.kernel.snapshot.hops", fail)
    with pytest.raises(MemoryError, match="no more"):
        snapshot(graph(ring(5)), 0, True, 2)


def test_code_is_generated_for_long_lists_alone() -> None:
    long = LISTED + 1.0
    assert is_long_list(Prepared({"/a": "list", "/b": ARCS}, size=long))
    assert not is_long_list(Prepared({"/a": "list"}, size=float(LISTED)))
    assert not is_long_list(Prepared({"/a": "list", "/b": "jsonl"}, size=long))
