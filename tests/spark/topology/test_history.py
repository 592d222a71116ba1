"""Layer 2 of the analysis: what the ends of links told, reconciled, window by window.

Each case is a mesh of its own, so that one run of the whole tells of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertSchemaEqual

from pubsubd.topology import history as layer
from pubsubd.topology.cleaning import ROWS
from pubsubd.topology.history import History, make_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGAN = datetime(2026, 11, 28, 6, tzinfo=UTC)
HOUR = 3600
GRAPHS = [("list", None), ("other", None)]
LISTED = [("list", None, "x", "y"), ("list", None, "z", "z"), ("other", None, "x", "y")]
TABLES = ("links", "daemons", "churn", "events", "arcs")
CASES: list[Callable[[], Iterator[tuple[Any, ...]]]] = []
Cells = dict[str, Any]


def case(make: Callable[[], Iterator[tuple[Any, ...]]]) -> Callable[[], Iterator[tuple[Any, ...]]]:
    CASES.append(make)
    return make


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


def tell(
    ts: float, observer: str, link: str, since: float, state: str = "up", **more: Any
) -> tuple[Any, ...]:
    """A row without mesh and window; a link is both names, that of the dialler first."""
    numbers = (more.get("rtt"), more.get("messages", 0), more.get("size", 0))
    about = (more.get("address"), more.get("version"), None, None, None, None)
    return (at(ts), observer, link[0], link[1], state, at(since), *numbers, *about)


def both(ts: float, link: str, since: float, **more: Any) -> Iterator[tuple[Any, ...]]:
    """Both ends tell the same."""
    for observer in link:
        yield tell(ts, observer, link, since, **more)


@case
def killed() -> Iterator[tuple[Any, ...]]:
    """A ring of four, of which c is killed at 33 s; it is back before the next hour."""
    ring = ("ab", "bc", "cd", "da")
    for ts in range(0, 61, 10):
        for link in ring:
            if ts < 33 or "c" not in link:
                yield from both(ts, link, -100)
        if ts > 33:
            yield tell(ts, "b", "bc", 33, "down")
            yield tell(ts, "d", "cd", 34, "down")
    for link in ring:
        yield from both(HOUR, link, 100 if "c" in link else -100)
    yield tell(HOUR, "b", "bc", 33, "down")


@case
def flapping() -> Iterator[tuple[Any, ...]]:
    """A link that ended twice and came back, as its later ``since`` tells."""
    yield from both(0, "ab", -100)
    yield from both(100, "ab", 50)
    yield from both(200, "ba", 150)
    for end in (40, 140):
        yield tell(200, "a", "ab", end, "down")


@case
def late() -> Iterator[tuple[Any, ...]]:
    """Others tell that an end is up for a moment after it told that it is not."""
    yield from both(0, "ab", -100)
    yield from both(0, "bc", -100)
    yield tell(60, "a", "ab", 59, "down")
    yield from both(62, "ab", -100)
    yield from both(62, "bc", -100)


@case
def silent() -> Iterator[tuple[Any, ...]]:
    """One end was told of last 301 s before the end of it all, another 300 s before."""
    yield from both(0, "ab", -100)
    yield from both(99, "ac", -100)
    yield from both(100, "ad", -100)
    for end in "ab":
        yield tell(400, end, "ab", -100)


@case
def halves() -> Iterator[tuple[Any, ...]]:
    """One end tells, the other does not."""
    yield tell(0, "b", "ab", -100)


@case
def uneven() -> Iterator[tuple[Any, ...]]:
    """The ends measure differently."""
    for ts in (0, 10, 20, 30):
        yield tell(ts, "a", "ab", -100, rtt=1.0 + ts / 10, messages=ts)
        yield tell(ts, "b", "ab", -100, rtt=11.0 + ts / 10, messages=ts)
        yield tell(ts, "a", "ac", -100, rtt=1.0, messages=10 * ts)
        yield tell(ts, "c", "ac", -100, rtt=1.9, messages=5 * ts)
        yield from both(ts, "ad", -100, rtt=0.1)


@case
def counting() -> Iterator[tuple[Any, ...]]:
    """Counters over two hours; in the second, the link begins anew."""
    yield from both(0, "ab", -100, messages=1000, size=5)
    yield from both(60, "ab", -100, messages=1100, size=9)
    yield tell(HOUR, "a", "ab", -100, messages=1150, size=10)
    yield tell(HOUR, "b", "ab", -100, messages=1140, size=12)
    yield from both(HOUR + 100, "ab", HOUR + 50, messages=30, size=1)


@case
def alone() -> Iterator[tuple[Any, ...]]:
    """A daemon without links that still tells so, for hours; the other one is gone."""
    yield from both(0, "ab", -100)
    yield tell(60, "a", "ab", 30, "down")
    yield tell(HOUR, "a", "ab", 30, "down")


@case
def before() -> Iterator[tuple[Any, ...]]:
    """A link that ended before the first row, and two daemons that were here then."""
    yield from both(0, "ab", -100)
    yield tell(0, "a", "ac", -50, "down")


@case
def vanished() -> Iterator[tuple[Any, ...]]:
    """A link and a daemon that nobody tells of in the next hour; another link is new."""
    yield from both(0, "ab", -100)
    yield from both(0, "bc", -100)
    yield from both(2 * HOUR, "ab", -100)
    yield from both(2 * HOUR, "ad", HOUR)


@case
def telling() -> Iterator[tuple[Any, ...]]:
    """A daemon moves and is updated; another one has exporters that do not write such columns."""
    yield tell(0, "a", "ab", -100, address="a:1", version="0.1.0")
    yield tell(0, "b", "ab", -100, address="b:1", version="0.1.0")
    yield tell(60, "a", "ab", -100, address="a:2", version="0.2.0")
    yield tell(60, "b", "ab", -100)


@case
def loops() -> Iterator[tuple[Any, ...]]:
    yield tell(0, "a", "aa", -100)


def frame(spark: SparkSession, partitions: int = 2) -> DataFrame:
    rows = []
    for make in CASES:
        for ts, *rest in make():
            window = datetime.fromtimestamp(ts.timestamp() // HOUR * HOUR, UTC)
            rows.append((ts, window, make.__name__, *rest))
    return spark.createDataFrame(rows, ROWS).repartition(partitions)


@pytest.fixture(scope="module")
def keep() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Compute a frame once; it is forgotten at the end."""
    kept: list[DataFrame] = []

    def keep_one(one: DataFrame) -> DataFrame:
        kept.append(one.persist())
        return kept[-1]

    yield keep_one
    for one in kept:
        one.unpersist()


@pytest.fixture(scope="module")
def history(spark: SparkSession, keep: Callable[[DataFrame], DataFrame]) -> History:
    return make_history(frame(spark), HOUR, keep=keep)


@pytest.fixture(scope="module")
def found(history: History) -> dict[str, list[Cells]]:
    """The rows of each table, sorted; times are in seconds since it all began."""
    return {
        name: [plain(row.asDict()) for row in getattr(history, name).collect()] for name in TABLES
    }


def plain(cells: Cells) -> Cells:
    def of(value: Any) -> Any:
        if isinstance(value, datetime):
            return (value.astimezone(UTC) - BEGAN).total_seconds()
        return value

    return {name: of(value) for name, value in cells.items()}


def pick(rows: list[Cells], mesh: Callable[..., Any], *names: str) -> list[Any]:
    """Return the cells of one case's rows, sorted, ``None`` first."""
    chosen = [tuple(row[name] for name in names) for row in rows if row["mesh"] == mesh.__name__]
    return sorted(chosen, key=lambda row: [(cell is not None, cell) for cell in row])


def test_the_tables_have_the_columns_that_are_documented(
    spark: SparkSession, history: History
) -> None:
    for name in TABLES:
        documented = spark.createDataFrame([], getattr(layer, name.upper())).schema
        assertSchemaEqual(getattr(history, name).schema, documented)


def test_links_of_a_killed_daemon_are_down_and_up_again_when_it_is_back(
    found: dict[str, list[Cells]],
) -> None:
    states = pick(found["links"], killed, "window", "src", "dst", "state")
    assert states == [
        (0, "a", "b", "up"),
        (0, "a", "d", "up"),
        (0, "b", "c", "down"),
        (0, "c", "d", "down"),
        *[(HOUR, *link, "up") for link in ("ab", "ad", "bc", "cd")],
    ]
    daemons = pick(found["daemons"], killed, "window", "id", "present", "links", "flaps")
    assert daemons[:4] == [
        (0, "a", True, 2, 0),
        (0, "b", True, 1, 1),
        (0, "c", False, 0, 2),
        (0, "d", True, 1, 1),
    ]
    assert daemons[4:] == [(HOUR, name, True, 2, 0) for name in "abcd"]


def test_the_events_tell_what_broke_and_when(found: dict[str, list[Cells]]) -> None:
    assert pick(found["events"], killed, "at", "kind", "src", "dst", "detail") == [
        (33, "daemon-left", "c", None, "lost by b, d"),
        (33, "link-down", "b", "c", "told by b"),
        (34, "link-down", "c", "d", "told by d"),
        (100, "daemon-joined", "c", None, ""),
        (100, "link-up", "b", "c", "dialled by b"),
        (100, "link-up", "c", "d", "dialled by c"),
    ]


def test_a_daemon_is_what_it_told_of_itself_last(found: dict[str, list[Cells]]) -> None:
    assert pick(found["daemons"], telling, "id", "address", "version", "site") == [
        ("a", "a:2", "0.2.0", None),
        ("b", "b:1", "0.1.0", None),
    ]


def test_churn_counts_what_came_and_went_between_windows(found: dict[str, list[Cells]]) -> None:
    names = ("window", "daemons", "joined", "left", "links", "new_links", "lost_links", "jaccard")
    assert pick(found["churn"], killed, *names) == [
        (0, 3, 0, 1, 2, 0, 2, 0.5),
        (HOUR, 4, 1, 0, 4, 2, 0, 0.5),
    ]
    assert pick(found["churn"], vanished, *names) == [
        (0, 3, 0, 0, 2, 0, 0, 1.0),
        (2 * HOUR, 3, 1, 1, 2, 1, 1, 1 / 3),
    ]


def test_what_nobody_tells_of_any_more_is_gone(found: dict[str, list[Cells]]) -> None:
    events = pick(found["events"], vanished, "at", "kind", "src", "dst", "detail")
    assert events == [
        (0, "daemon-left", "c", None, "not told of any more"),
        (0, "link-down", "b", "c", "not told of any more"),
        (HOUR, "daemon-joined", "d", None, ""),
        (HOUR, "link-up", "a", "d", "dialled by a"),
    ]


def test_the_later_since_wins_and_each_end_of_a_session_is_a_flap(
    found: dict[str, list[Cells]],
) -> None:
    names = ("state", "flaps", "dialled_by", "first_seen", "last_seen", "availability")
    # 0 to 0, 50 to 100, 150 to 200 of 200 seconds.
    assert pick(found["links"], flapping, *names) == [("up", 2, "b", 0, 200, 0.5)]
    assert pick(found["events"], flapping, "at", "kind") == [
        (40, "link-down"),
        (50, "link-up"),
        (140, "link-down"),
        (150, "link-up"),
    ]


def test_an_end_that_is_over_is_not_up_again_because_others_tell_so_late(
    found: dict[str, list[Cells]],
) -> None:
    states = pick(found["links"], late, "src", "dst", "state", "told_by")
    assert states == [("a", "b", "one-sided", "b"), ("b", "c", "up", None)]


def test_an_end_counts_as_up_for_a_while_after_it_was_told_of_last(
    found: dict[str, list[Cells]],
) -> None:
    links = pick(found["links"], silent, "dst", "state", "availability")
    assert links == [("b", "up", 1.0), ("c", "down", 99 / 400), ("d", "up", 1.0)]
    assert pick(found["daemons"], silent, "id", "present") == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", True),
    ]


def test_a_link_that_one_end_tells_of_is_one_sided_and_one_arc(
    found: dict[str, list[Cells]],
) -> None:
    links = pick(found["links"], halves, "state", "ends", "one_sided", "told_by", "availability")
    assert links == [("one-sided", 1, True, "b", 1.0)]
    assert pick(found["daemons"], halves, "id", "present", "told") == [
        ("a", True, False),
        ("b", True, True),
    ]
    assert ("b", "a") in pick(found["arcs"], halves, "src", "dst")
    assert ("a", "b") not in pick(found["arcs"], halves, "src", "dst")


def test_round_trips_are_exact_percentiles_of_both_ends_and_asymmetry_is_told(
    found: dict[str, list[Cells]],
) -> None:
    rows = pick(found["links"], uneven, "dst", "asymmetric", "src_rtt_p50", "dst_rtt_p50")
    assert rows == [("b", True, 2.5, 12.5), ("c", True, 1.0, 1.9), ("d", False, 0.1, 0.1)]
    # Of 1, 2, 3, 4, 11, 12, 13, 14.
    percentiles = pick(found["links"], uneven, "rtt_p50", "rtt_p95", "rtt_p99")
    assert percentiles[2] == pytest.approx((7.5, 13.65, 13.93))


def test_traffic_is_what_counters_grew_by_since_the_window_before_and_they_may_begin_anew(
    found: dict[str, list[Cells]],
) -> None:
    names = ("window", "src_messages", "dst_messages", "messages", "bytes")
    assert pick(found["links"], counting, *names) == [(0, 100, 100, 100, 4), (HOUR, 80, 70, 80, 4)]
    assert pick(found["daemons"], counting, "window", "id", "messages")[2:] == [
        (HOUR, "a", 80),
        (HOUR, "b", 80),
    ]


def test_a_daemon_without_links_is_there_as_long_as_it_tells_something(
    found: dict[str, list[Cells]],
) -> None:
    assert pick(found["daemons"], alone, "window", "id", "present", "links") == [
        (0, "a", True, 0),
        (0, "b", False, 0),
        (HOUR, "a", True, 0),
    ]
    # The end of the link is repeated, but happened once.
    assert pick(found["links"], alone, "window", "state", "flaps") == [(0, "down", 1)]
    arcs = pick(found["arcs"], alone, "window", "src", "dst")
    assert set(arcs) == {(0, "a", None), (HOUR, "a", None)}


def test_what_ended_before_the_first_row_is_no_part_of_the_history(
    found: dict[str, list[Cells]],
) -> None:
    assert pick(found["links"], before, "src", "dst") == [("a", "b")]
    assert pick(found["daemons"], before, "id") == [("a",), ("b",)]
    assert pick(found["events"], before, "kind") == []


def test_arcs_are_of_ends_that_are_up(found: dict[str, list[Cells]]) -> None:
    first = [arc[1:] for arc in pick(found["arcs"], killed, "window", "src", "dst") if arc[0] == 0]
    assert first == [("a", "b"), ("a", "d"), ("b", "a"), ("d", "a")]
    assert ("a", "a") in pick(found["arcs"], loops, "src", "dst")
    assert pick(found["links"], loops, "src") == []


def test_arcs_are_of_bare_lists_and_listed_daemons_exist_in_every_window(
    spark: SparkSession,
) -> None:
    cells = [(mesh, window, src, src, dst) for mesh, window, src, dst in LISTED]
    schema = "mesh string, window timestamp, observer string, src string, dst string"
    rows = spark.createDataFrame(cells, schema)
    nodes = spark.createDataFrame([("a",), ("n",)], "id string")
    arcs = rows.transform(layer.list_arcs).transform(layer.add_nodes(nodes)).collect()
    assert sorted(arcs, key=str) == sorted(
        [
            *LISTED,
            *((mesh, window, node, None) for mesh, window in GRAPHS for node in ("a", "n")),
        ],
        key=str,
    )


def test_the_same_rows_give_the_same_history_however_they_are_dealt_out(
    spark: SparkSession,
    found: dict[str, list[Cells]],
    keep: Callable[[DataFrame], DataFrame],
) -> None:
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "5"}
    usual = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        other = make_history(frame(spark, 3), HOUR, keep=keep)
        for name in ("links", "daemons"):
            rows = [plain(row.asDict()) for row in getattr(other, name).collect()]
            assert sorted(map(repr, rows)) == sorted(map(repr, found[name]))
    finally:
        for name, value in usual.items():
            spark.conf.set(name, value)
