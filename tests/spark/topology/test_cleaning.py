"""Layer 1 of the analysis: which rows are good, and what is told of those that are not."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from pubsubd.mesh.edges import COLUMNS, LATER, REQUIRED
from pubsubd.topology.cleaning import (
    CHECKED,
    REJECTS,
    ROWS,
    check_csv,
    check_jsonl,
    check_lists,
    check_rows,
    clean,
    drop_repeats,
    rejects,
)
from pubsubd.topology.parameters import Job
from pubsubd.topology.preparing import prepare
from pubsubd.topology.reading import read_inputs
from pubsubd.topology.scratch import Scratch
from tests.rows import row
from tests.topologies import read_arcs, real

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

GOOD = row(ts="2026-11-28T06:59:59.999Z", bytes=2**63 - 1)
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("time", {"ts": "yesterday"}),
    ("time", {"ts": "T06:00"}),  # a time of today
    ("time", {"since": "12026-11-28T06:00:00Z"}),
    ("time", {"since": "2026-02-30T06:00:00Z"}),
    ("time", {"since": "0001-01-01T00:00:00Z"}),
    ("number", {"messages": "3.5"}),
    ("number", {"messages": -1}),
    ("number", {"bytes": 2**63}),
    ("number", {"rtt_ms": "fast"}),
    ("number", {"rtt_ms": -0.5}),
    ("number", {"rtt_ms": "Infinity"}),
    ("number", {"rtt_ms": "NaN"}),
    ("state", {"state": "UP"}),
    ("observer", {"observer": "c"}),
    ("self-loop", {"dst": "a"}),
    ("short", {"mesh": ""}),
    ("short", {"src": ""}),
]
Texts = list[bytes]


def lines(spark: SparkSession, texts: Texts, file: str = "/d/x") -> DataFrame:
    """Return lines, whose bytes may be no UTF-8."""
    rows = [(file, bytearray(text)) for text in texts]
    return spark.createDataFrame(rows, "file string, raw binary").selectExpr(
        "file", "cast(raw as string) as line"
    )


def as_json(**more: Any) -> bytes:
    return json.dumps({**GOOD, **more}).encode()


def as_csv(**more: Any) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(({**GOOD, **more})[name] for name in COLUMNS)
    return file.getvalue().encode()


def reasons(checked: DataFrame) -> list[str | None]:
    return [row["reason"] for row in checked.select("reason").collect()]


@pytest.mark.parametrize(
    ("check", "write"), [(check_jsonl, as_json), (check_csv, as_csv)], ids=["json", "csv"]
)
def test_each_fault_of_a_row_has_its_reason(
    spark: SparkSession,
    check: Callable[[DataFrame], DataFrame],
    write: Callable[..., bytes],
) -> None:
    texts = [write(), write(rtt_ms=None), write(src="é\u202e", observer="b")]
    texts += [write(**more) for _, more in FAULTS]
    texts.append(write(mesh="\xff").replace("\xff".encode(), b"\xff").replace(b"\\u00ff", b"\xff"))
    checked = check(lines(spark, texts))
    assertSchemaEqual(checked.schema, spark.createDataFrame([], CHECKED).schema)
    assert reasons(checked) == [None, None, None, *(reason for reason, _ in FAULTS), "utf8"]


def test_json_that_is_no_object_or_lacks_a_column_is_told_and_empty_lines_are_none(
    spark: SparkSession,
) -> None:
    whole = as_json()
    short = json.dumps({name: GOOD[name] for name in COLUMNS if name != "bytes"}).encode()
    texts = [whole[:90], b"[1]", b"5", whole + b" more", whole + whole, whole + b"," + whole]
    texts += [b"[" + whole + b"]", b"", b"  ", short, as_json(ts=None)]
    more = as_json(color="blue")
    earlier = json.dumps({name: GOOD[name] for name in REQUIRED}).encode()
    found = reasons(check_jsonl(lines(spark, [*texts, b"\t" + whole + b" ", more, earlier])))
    assert found == [*["json"] * 7, "short", "short", None, None, None]


def test_csv_may_have_quotes_and_its_header_anywhere_but_not_more_or_fewer_columns(
    spark: SparkSession,
) -> None:
    header = ",".join(COLUMNS).encode()
    quoted = as_csv(src='say "a", b', observer='say "a", b')
    texts = [b"\xef\xbb\xbf" + header, quoted, header, b"", as_csv() + b",1", as_csv() + b",1,2"]
    earlier = as_csv().rsplit(b",", len(LATER))[0]
    texts += [as_csv()[:40], earlier.rpartition(b",")[0], ",".join(REQUIRED).encode(), earlier]
    checked = check_csv(lines(spark, texts))
    rows = checked.select("src", "reason").collect()
    assert rows[0]["src"] == 'say "a", b'
    assert [row["reason"] for row in rows] == [None, "long", "long", "short", "short", None]
    assert checked.where("reason is null").select("address", "version", "site").collect() == [
        ("10.0.0.1:9014", "0.1.0", None),
        (None, None, None),
    ]


def test_rows_of_parquet_are_held_to_the_same_rules(spark: SparkSession) -> None:
    fields = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    ts, since = (datetime.fromisoformat(GOOD[name]) for name in ("ts", "since"))
    faults: list[tuple[str | None, dict[str, Any]]] = [
        (None, {}),
        (None, {"rtt_ms": None}),
        ("short", {"state": None}),
        ("short", {"dst": ""}),
        ("time", {"since": datetime(1969, 12, 31, tzinfo=UTC)}),
        ("number", {"rtt_ms": float("nan")}),
        ("number", {"messages": -1}),
        ("state", {"state": "on"}),
        ("observer", {"observer": "c"}),
        ("self-loop", {"dst": "a"}),
    ]
    values = [{**GOOD, "ts": ts, "since": since, **more} for _, more in faults]
    rows = [(1, "/d/x", *(one[name] for name in COLUMNS)) for one in values]
    checked = check_rows(spark.createDataFrame(rows, f"rows bigint, file string, {fields}"))
    assertSchemaEqual(checked.schema, spark.createDataFrame([], CHECKED).schema)
    assert reasons(checked) == [reason for reason, _ in faults]


def test_bare_lists_have_two_columns_and_others_that_are_ignored(spark: SparkSession) -> None:
    texts = [
        b"# a\tb",
        b"FromNodeId\tToNodeId",
        b"Source , target,weight\r",
        b"a b",
        b" c\td\t0.5\twifi\r",
        b"e,f,1",
        b"g , h",
    ]
    texts += [b"\xef\xbb\xbfi j", b"", b" \r", b"k", b"l,", b"m m", b"\xffn o", "é 日".encode()]
    checked = check_lists(lines(spark, texts, "/d/freifunk-ulm.edges.tsv.gz"))
    assertSchemaEqual(checked.schema, spark.createDataFrame([], CHECKED).schema)
    rows = checked.collect()
    good = [(row["src"], row["dst"]) for row in rows if row["reason"] is None]
    bad = [row["reason"] for row in rows if row["reason"]]
    assert good == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j"), ("é", "日")]
    assert bad == ["short", "short", "self-loop", "utf8"]
    assert {(row["mesh"], row["state"], row["ts"]) for row in rows} == {
        ("freifunk-ulm", "up", None)
    }


@pytest.mark.parametrize(("name", "loops"), [("as20000102.txt", 1323), ("p2p-Gnutella08.txt", 0)])
def test_a_real_list_comes_whole(spark: SparkSession, tmp_path: Any, name: str, loops: int) -> None:
    job = Job([str(real(name))], tmp_path)
    lists = read_inputs(spark, prepare(job, Scratch(tmp_path), print)).lists
    assert lists is not None
    rows = check_lists(lists).groupBy("mesh", "reason").count().collect()
    counts = {row["reason"]: row["count"] for row in rows}
    arcs = read_arcs(real(name))
    assert {row["mesh"] for row in rows} == {name.removesuffix(".txt")}
    assert counts.get("self-loop", 0) == loops == sum(one == two for one, two in arcs)
    assert counts[None] + loops == len(arcs)


def test_rejects_show_a_printable_beginning_of_the_line(spark: SparkSession) -> None:
    texts = [b"\x1b[31m\xff\xe2\x80\xae", b"x" * 500, b"a b", b"\tq"]
    found = rejects(check_lists(lines(spark, texts)))
    assertSchemaEqual(found.schema, spark.createDataFrame([], REJECTS).schema)
    assert [tuple(row) for row in found.collect()] == [
        ("/d/x", "utf8", "\ufffd[31m\ufffd\ufffd"),
        ("/d/x", "short", "x" * 200),
        ("/d/x", "short", " q"),
    ]


def test_good_rows_come_once_with_their_window_and_the_largest_numbers(spark: SparkSession) -> None:
    texts = [as_json(), as_json(), as_json(messages=5, rtt_ms=None), as_json(dst="a")]
    texts += [as_json(ts="2026-11-28T08:00:00+01:00"), as_json(state="bad"), as_json(observer="b")]
    checked = check_jsonl(lines(spark, texts)).union(check_lists(lines(spark, [b"p q"])))
    rows = clean(checked, 3600).transform(drop_repeats)
    assertSchemaEqual(rows.schema, spark.createDataFrame([], ROWS).schema)
    found = rows.selectExpr(
        "date_format(window, 'HH')", "mesh", "observer", "src", "dst", "rtt_ms", "messages"
    )
    expected = [
        ("06", "m", "a", "a", "b", 0.25, 5),
        ("06", "m", "b", "a", "b", 0.25, 3),
        ("06", "m", "a", "a", "a", 0.25, 3),
        ("07", "m", "a", "a", "b", 0.25, 3),
        (None, "x", "p", "p", "q", None, None),
    ]
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))


def test_a_mesh_and_a_time_are_kept_with_since_in_it_and_until_not(spark: SparkSession) -> None:
    texts = [
        as_json(ts=f"2026-11-28T0{hour}:00:00Z", mesh=mesh) for hour in (5, 6, 7) for mesh in "mn"
    ]
    checked = check_jsonl(lines(spark, texts)).union(
        check_lists(lines(spark, [b"p q"], "/d/m.txt"))
    )
    since, until = (datetime(2026, 11, 28, hour, tzinfo=UTC) for hour in (6, 7))
    rows = clean(checked, 900, "m", since, until).collect()
    assert sorted((row["mesh"], str(row["ts"] and row["ts"].hour), row["src"]) for row in rows) == [
        ("m", "6", "a"),
        ("m", "None", "p"),
    ]
